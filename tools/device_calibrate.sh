#!/usr/bin/env bash
# Builds (or takes) bin/trifold_calibrate and measures this machine. Made for a bare GPU machine.
#   tools/device_calibrate.sh pack             here, once: the program and headers that such a machine may lack -> .deps/
#   tools/device_calibrate.sh build            only builds
#   tools/device_calibrate.sh check            kernel checks, compute-sanitizer (memcheck) where present
#   tools/device_calibrate.sh quick|full|layer|lab   measures, into $OUT (default: build/calibrate-out)
# Several words run in order. Stops starting work when LIMIT_S (default 540) is nearly spent.
set -u -o pipefail
cd "$(dirname "$0")/.."
start=$SECONDS
out=${OUT:-build/calibrate-out}
limit=${LIMIT_S:-540}
build=${BUILD_DIR:-build/device}
jobs=$(nproc)
mkdir -p "$out" "$build"
left() { echo $((limit - (SECONDS - start))); }
say() { printf '[%3d s] %s\n' $((SECONDS - start)) "$*"; }

find_first() { for f in "$@"; do [ -e "$f" ] && { echo "$f"; return 0; }; done; return 1; }
cuda=$(find_first "${CUDA_HOME:-/nonexistent}" /usr/local/cuda /usr/local/cuda-13.0 || echo /usr/local/cuda)
wheels=$(python3 -c 'import nvidia, os; print(list(nvidia.__path__)[0])' 2>/dev/null || true)
# The toolkit's headers, else those of Python wheels.
header_of() { find_first "$cuda/include/$1" /usr/include/"$1" /usr/include/x86_64-linux-gnu/"$1" $wheels/*/include/"$1" $wheels/*/*/include/"$1"; }
library_of() {
  find_first "$cuda"/lib64/$1 "$cuda"/lib/$1 "$cuda"/targets/x86_64-linux/lib/$1 /usr/lib/x86_64-linux-gnu/$1 \
    $wheels/*/lib/$1 $wheels/*/*/lib/$1
}
runtime_path() {
  local dirs="" lib
  for name in libcublasLt.so.13 libcublas.so.13 libnccl.so.2 libcudnn.so.9 libcudnn_graph.so.9; do
    lib=$(library_of $name) && dirs="$dirs:$(dirname "$lib")"
  done
  echo "${dirs#:}:${LD_LIBRARY_PATH:-}"
}

pack() {
  mkdir -p .deps/include
  cp -rL /usr/include/nlohmann /usr/include/fmt .deps/include/
  # A program built here runs there when its glibc is not older: it saves the build.
  [ -x "$build/trifold_calibrate" ] && cp "$build/trifold_calibrate" .deps/
  grep -qx '/.deps/' .git/info/exclude 2>/dev/null || echo '/.deps/' >> .git/info/exclude
  du -sh .deps
}

cmake_ready() {
  for h in nlohmann/json.hpp fmt/format.h eigen3/Eigen/Core boost/graph/adjacency_list.hpp CLI/CLI.hpp; do
    [ -e /usr/include/$h ] || return 1
  done
}

build_with_cmake() {
  cmake -S . -B "$build/cmake" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTRIFOLD_WITH_CUDA=ON -DTRIFOLD_TESTS=OFF \
        -DTRIFOLD_BENCHMARKS=OFF -DCMAKE_CUDA_COMPILER="$cuda/bin/nvcc" \
        -DCMAKE_CXX_FLAGS="$quiet" > "$build/configure.log" 2>&1 || return 1
  ninja -C "$build/cmake" trifold_calibrate_driver > "$build/build.log" 2>&1 || return 1
  cp "$build/cmake/bin/trifold_calibrate" "$build/trifold_calibrate"
}

# Newer compilers warn where ours do not; that must not stop a measurement.
quiet="-Wno-error=dangling-reference -Wno-error=maybe-uninitialized -Wno-error=array-bounds -Wno-error=restrict"
quiet="$quiet -Wno-error=stringop-overflow -Wno-error=dangling-pointer"

# Without the packages that the whole project wants: this folder's sources and two header-only libraries.
build_directly() {
  local include="-isystem .deps/include"
  [ -e /usr/include/nlohmann/json.hpp ] && [ -e /usr/include/fmt/format.h ] && include=""
  [ -z "$include" ] || [ -e .deps/include/nlohmann/json.hpp ] || { echo "no nlohmann/json.hpp: run '$0 pack' where it is installed"; return 1; }
  local nccl cudnn="" flags libs
  nccl=$(header_of nccl.h) || { echo "no nccl.h"; return 1; }
  flags="-std=c++20 -O2 -ffp-contract=off -Isrc -I. $include -isystem $cuda/include -I$(dirname "$nccl") -DFMT_HEADER_ONLY"
  flags="$flags -DTRIFOLD_VERSION='\"0.1.0\"' -DTRIFOLD_SOURCE_DIR='\"$PWD\"'"
  libs="$(library_of 'libcublasLt.so*') $(library_of 'libcublas.so*') $(library_of 'libnccl.so*')"
  if cudnn=$(header_of cudnn_graph.h) && library_of 'libcudnn_graph.so*' > /dev/null; then
    flags="$flags -DTRIFOLD_WITH_CUDNN=1 -I$(dirname "$cudnn")"
    libs="$libs $(library_of 'libcudnn_graph.so*') $(library_of 'libcudnn.so*')"
  fi
  mkdir -p "$build/o"
  : > "$build/commands"
  for f in calibrate/kernels/*.cu; do
    echo "$cuda/bin/nvcc -std=c++20 -O2 -I. -gencode arch=compute_90,code=sm_90 -c $f -o $build/o/$(basename $f).o" >> "$build/commands"
  done
  for f in src/base/*.cc calibrate/fit/points.cc calibrate/{harness,kernels,collectives,lab}/*.cc \
           calibrate/layer/{moe_layer,layer_test}.cc; do
    echo "${CXX:-g++} $flags -c $f -o $build/o/$(echo $f | tr / _).o" >> "$build/commands"
  done
  xargs -d '\n' -P "$jobs" -I{} sh -c '{}' < "$build/commands" > "$build/build.log" 2>&1 || return 1
  ${CXX:-g++} -o "$build/trifold_calibrate" "$build"/o/*.o $libs -L"$(dirname "$(library_of libcudart_static.a)")" \
    -lcudart_static -lpthread -ldl -lrt >> "$build/build.log" 2>&1
}

build() {
  if cmake_ready && command -v ninja > /dev/null && build_with_cmake; then say "built with CMake"; return 0; fi
  if build_directly; then say "built directly"; return 0; fi
  say "build failed"; tail -40 "$build"/build.log "$build"/configure.log 2>/dev/null; return 1
}

export LD_LIBRARY_PATH=$(runtime_path)
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
exe="$build/trifold_calibrate"
commit=$(git rev-parse --short HEAD 2>/dev/null || echo "")

# What was built here before, else the packed program, else a build.
ready() {
  "$exe" --bootstrap > /dev/null 2>&1 && return 0
  if .deps/trifold_calibrate --bootstrap > /dev/null 2>&1; then exe=.deps/trifold_calibrate; say "packed program"; return 0; fi
  build || exit 1
}

sanitize() {
  local tool
  tool=$(command -v compute-sanitizer || find_first "$cuda/bin/compute-sanitizer") || { say "no compute-sanitizer"; return 0; }
  for mode in memcheck racecheck; do
    timeout 150 "$tool" --tool $mode --error-exitcode 9 "$exe" --check-kernels > "$out/sanitizer_$mode.log" 2>&1
    say "compute-sanitizer $mode: exit $? ($(tail -1 "$out/sanitizer_$mode.log"))"
  done
}

points() {
  local file="$out/points_$1.jsonl" budget
  shift
  budget=$(( $(left) - 20 )); [ "$budget" -gt 460 ] && budget=460
  if [ "$budget" -lt 30 ]; then say "no time left for points"; return 0; fi
  case "$file" in *quick*) [ "$budget" -gt 110 ] && budget=110;; esac
  "$exe" -o "$file" --budget $budget --commit "$commit" "$@" > "$out/points.log" 2>&1
  say "points exit $?: $(wc -l < "$file") lines in $file"
  grep -v '^skipped' "$out/points.log" | tail -8
  echo "skipped: $(grep -c '^skipped' "$out/points.log")"; grep '^skipped' "$out/points.log" | sed 's/.*}: //' | cut -c1-150 | sort | uniq -c | sort -rn | head -12
}

table() {
  python3 - "$1" <<'PY'
import json, sys, collections
n = collections.Counter(); flags = collections.Counter(); spread = collections.defaultdict(list)
for line in open(sys.argv[1]):
    try: p = json.loads(line)
    except ValueError: continue
    if 'family' not in p: continue
    n[p['family']] += 1
    for f in p.get('flags', []): flags[p['family'], f] += 1
    if p['us'] > 0: spread[p['family']].append((p['us_p90'] - p['us_p10']) / p['us'])
print(f"{'family':14} points  spread  bad throttled unstable unchecked")
for f in n:
    s = sorted(spread[f]) or [0]
    print(f"{f:14} {n[f]:6} {100*s[len(s)//2]:6.1f}% {flags[f,'bad']:4} {flags[f,'throttled']:9} {flags[f,'unstable']:8} {flags[f,'unchecked']:9}")
def show(title, keep):
    for line in open(sys.argv[1]):
        p = json.loads(line)
        if 'family' in p and keep(p): print(f"  {p['family']} {p['op']} {p.get('variant','')} {p['dtype']} {list(p['shape'].values())}: {p['us']:.1f} us {p.get('clock_mhz','')} {p.get('flags','')}")
show('', lambda p: 'anchor' in p.get('flags', []) or p['family'] == 'host' and p['shape'].get('count') in (1, 100) or p['op'] == 'copy' and p['us'] > 1000 or p.get('variant') == 'sustained' or p['family'] == 'attention' and p['shape'].get('sequence') == 8192 or p['family'] == 'collective' and p['shape']['bytes'] in (1024, 268435456) and p.get('variant') == 'stream' and p['shape']['ctas'] == 0)
PY
}

[ $# -gt 0 ] || set -- quick
for word in "$@"; do
  case "$word" in
    pack) pack;;
    build) build || exit 1;;
    check) ready; "$exe" --check-kernels; say "kernel checks: exit $?"; sanitize;;
    quick) ready; points quick --quick; table "$out/points_quick.jsonl";;
    full) ready; points full; table "$out/points_full.jsonl";;
    layer) ready; if [ "$(left)" -gt 40 ]; then timeout $(( $(left) - 10 )) "$exe" --layer -o "$out/layer.jsonl" --commit "$commit" 2>&1 | tee "$out/layer.log" | tail -60; fi; say "layer test done";;
    lab) ready; timeout 120 "$exe" --lab 2>&1 | tee "$out/lab.log"; say "lab done";;
    *) echo "unknown word '$word'"; sed -n 2,9p "$0"; exit 2;;
  esac
done
say "done; $(left) s of $limit left"

#!/usr/bin/env bash
# gpu_test.sh CASE TRIFOLD_CALIBRATE: one case on a GPU machine, or exit 77 with the reason.
set -u
case=$1 exe=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$exe" --check-kernels > "$tmp/first" 2>&1
if [ $? -eq 5 ]; then echo "skipped: $(cat "$tmp/first")"; exit 77; fi
case $case in
  kernels)
    cat "$tmp/first"; grep -q ' checked, 0 wrong' "$tmp/first";;
  sanitizer)
    tool=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
    [ -x "$tool" ] || { echo "skipped: no compute-sanitizer"; exit 77; }
    "$tool" --tool memcheck --error-exitcode 9 "$exe" --check-kernels > "$tmp/log" 2>&1 || { tail -40 "$tmp/log"; exit 1; }
    "$tool" --tool racecheck --error-exitcode 9 "$exe" --check-kernels > "$tmp/log" 2>&1 || { tail -40 "$tmp/log"; exit 1; };;
  quick)
    # A first run inside its budget, then a second that has nothing left but the anchors.
    "$exe" --quick -o "$tmp/points" 2> "$tmp/log" || { cat "$tmp/log"; exit 1; }
    tail -1 "$tmp/log"
    grep -q '"schema":"trifold.points/1"' "$tmp/points" || exit 1
    ! grep -q '"bad"' "$tmp/points" || { echo "a reference check failed:"; grep '"bad"' "$tmp/points"; exit 1; }
    "$exe" --quick -o "$tmp/points" 2> "$tmp/log" || { cat "$tmp/log"; exit 1; }
    tail -1 "$tmp/log"; grep -Eq ' [1-9][0-9]* resumed' "$tmp/log";;
  layer)
    "$exe" --layer --tokens 512 -o "$tmp/layer" > "$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
    cat "$tmp/log"; grep -q 'EP 1 agrees' "$tmp/log" && ! grep -q DISAGREES "$tmp/log";;
  lab)
    "$exe" --lab || exit 1;;
esac

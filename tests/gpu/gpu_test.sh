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
  resume)
    # Killed in the middle: what is there is whole, and the next run measures the rest alone.
    "$exe" --quick --gpus 1 -o "$tmp/points" > "$tmp/log" 2>&1 & pid=$!
    for _ in $(seq 100); do sleep 0.2; [ "$(wc -l < "$tmp/points" 2> /dev/null || echo 0)" -gt 40 ] && break; done
    kill -9 $pid; wait $pid 2> /dev/null
    before=$(wc -l < "$tmp/points"); [ "$before" -gt 40 ] || { echo "only $before lines before the kill"; exit 1; }
    "$exe" --quick --gpus 1 -o "$tmp/points" 2> "$tmp/log" || { cat "$tmp/log"; exit 1; }
    tail -1 "$tmp/log"; echo "$before lines before the kill, $(wc -l < "$tmp/points") at the end"
    resumed=$(grep -o '[0-9]* resumed' "$tmp/log" | cut -d' ' -f1)
    [ "$resumed" -ge $((before - 6)) ] && [ "$(sort "$tmp/points" | uniq -d | wc -l)" -eq 0 ];;
  processes)
    # One rank a GPU, as torchrun starts them; then one of them is lost: the other names it and ends.
    [ "$(nvidia-smi -L | wc -l)" -ge 2 ] || { echo "skipped: one GPU"; exit 77; }
    export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 9000))
    rank() { RANK=$1 LOCAL_RANK=$1 timeout 150 "$exe" --families collective --budget "$2" -o "$3" > "$tmp/log.$1" 2>&1; }
    rank 1 20 "$tmp/points" & other=$!
    rank 0 20 "$tmp/points" || { cat "$tmp"/log.*; exit 1; }
    wait $other || { cat "$tmp/log.1"; exit 1; }
    grep -q 'a process a GPU' "$tmp/points" && [ "$(wc -l < "$tmp/points")" -gt 40 ] && ! grep -q '"bad"' "$tmp/points" || exit 1
    tail -1 "$tmp/log.0"
    export MASTER_PORT=$((MASTER_PORT + 3))
    RANK=1 LOCAL_RANK=1 "$exe" --families collective --budget 60 -o "$tmp/lost" > "$tmp/log.1" 2>&1 & other=$!
    (sleep 9; kill -9 $other) &
    rank 0 60 "$tmp/lost"; code=$?
    echo "with a lost rank: exit $code: $(tail -1 "$tmp/log.0")"
    [ $code -ne 0 ] && [ $code -ne 124 ] && grep -q 'rank' "$tmp/log.0" && [ "$(wc -l < "$tmp/lost")" -gt 1 ];;
  memory)
    # More than the GPU holds is skipped with its reason, and the rest is measured.
    timeout 200 "$exe" --layer --gpus 1 --tokens 131072 -o "$tmp/layer" > "$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
    grep skipped "$tmp/log" | head -3; grep -q '^skipped .*memory' "$tmp/log";;
  hidden)
    # A driver, but no GPU to use.
    output=$(CUDA_VISIBLE_DEVICES= "$exe" -o "$tmp/points" 2>&1); code=$?
    echo "exit $code: $output"
    [ $code -eq 5 ] && [ "$(echo "$output" | wc -l)" -eq 1 ] && [ ! -e "$tmp/points" ];;
  layer)
    "$exe" --layer --tokens 512 -o "$tmp/layer" > "$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
    cat "$tmp/log"; grep -q 'EP 1 agrees' "$tmp/log" && ! grep -q DISAGREES "$tmp/log";;
  lab)
    "$exe" --lab || exit 1;;
esac

#!/usr/bin/env bash
# Four mpirun processes and four torchrun-like ones connect and agree; a missing rank is noticed.
set -u
exe=$1
fail() { echo "FAILED: $*"; exit 1; }
port=$((20000 + $$ % 10000))

launch_by_environment() {  # as torchrun sets it
  local world=$1 started=$2 pids=() status=0
  for rank in $(seq 0 $((started - 1))); do
    RANK=$rank WORLD_SIZE=$world LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$world MASTER_ADDR=127.0.0.1 \
      MASTER_PORT=$port "$exe" --bootstrap > "$tmp/env.$rank" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
  return $status
}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
launch_by_environment 4 4 || fail "torchrun variables: $(cat "$tmp"/env.*)"
for rank in 0 1 2 3; do
  grep -q "rank $rank of 4 by torchrun: id agreed, highest rank 3" "$tmp/env.$rank" || fail "$(cat "$tmp/env.$rank")"
done

command -v mpirun > /dev/null || { echo "no mpirun: that half is skipped"; exit 77; }
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
output=$(TRIFOLD_PORT=$((port + 7)) mpirun --allow-run-as-root --oversubscribe -x TRIFOLD_PORT -n 4 "$exe" --bootstrap 2>&1) ||
  fail "mpirun: $output"
for rank in 0 1 2 3; do
  echo "$output" | grep -q "rank $rank of 4 by mpirun: id agreed, highest rank 3" || fail "mpirun: $output"
done

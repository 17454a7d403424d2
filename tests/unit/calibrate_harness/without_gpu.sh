#!/usr/bin/env bash
# One clear line and exit 5, and no points file, where nothing can be measured.
set -u
exe=$1
command -v nvidia-smi > /dev/null && { echo "this machine has a GPU"; exit 77; }
file=$(mktemp -u)
output=$("$exe" -o "$file" --quick 2>&1)
code=$?
[ $code -eq 5 ] || { echo "exit $code, not 5: $output"; exit 1; }
[ "$(echo "$output" | wc -l)" -eq 1 ] || { echo "more than a line: $output"; exit 1; }
echo "$output" | grep -Eq 'built without CUDA|no usable NVIDIA GPU' || { echo "unclear: $output"; exit 1; }
[ ! -e "$file" ] || { echo "left a file"; exit 1; }

#!/usr/bin/env bash
# Counts the instructions of 1,000 calls with gate 1 shut, for a pack that opted in to the cache and for one that did not, in
# one binary. The difference must be zero: a shut gate is the absence of a layer. Needs valgrind.
#
# The C library is counted apart: what malloc and memcmp do depends on where memory lies, and varies a little between two runs
# of the very same stack.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --quiet --profile profiling -p helmdeck-bench
binary="${CARGO_TARGET_DIR:-target}/profiling/helmdeck-bench"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

count() {
    setarch --addr-no-randomize valgrind --tool=callgrind --callgrind-out-file="$folder/$1" \
        --collect-atstart=no --toggle-collect='*calls::measured*' "$binary" callgrind "$1" 2>/dev/null
    callgrind_annotate --threshold=100 --show-percs=no --auto=no "$folder/$1" 2>/dev/null |
        awk '/^ *[0-9][0-9,]* +[^=>* ]/ && !/PROGRAM TOTALS/ { n = $1; gsub(",", "", n); if (/\/libc\.so|\/ld-linux|\.\/malloc\//) c += n; else ours += n }
             END { print ours, c }'
}

read -r opted_in opted_in_libc <<<"$(count opted-in)"
read -r plain plain_libc <<<"$(count plain)"
echo "opted in, no key: $opted_in instructions in 1,000 calls, and $opted_in_libc in the C library"
echo "not opted in:     $plain instructions in 1,000 calls, and $plain_libc in the C library"
echo "difference:       $((opted_in - plain)), and $((opted_in_libc - plain_libc)) in the C library"
[[ $opted_in -gt 0 && $opted_in -eq $plain ]]

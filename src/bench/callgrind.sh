#!/usr/bin/env bash
# Counts the instructions of 1,000 calls with gate 1 shut, for a pack that opted in to the cache and for one that did not.
# The difference must be zero: a shut gate is the absence of a layer. Needs valgrind.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --quiet --profile profiling -p helmdeck-bench
binary="${CARGO_TARGET_DIR:-target}/profiling/helmdeck-bench"
count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no --toggle-collect='*calls::measured*' \
        "$binary" callgrind "$1" 2>&1 | awk '/Collected/ { print $4 }'
}
opted_in=$(count opted-in)
plain=$(count plain)
echo "opted in, no key: $opted_in instructions in 1,000 calls"
echo "not opted in:     $plain instructions in 1,000 calls"
echo "difference:       $((opted_in - plain))"

#!/usr/bin/env bash
# Merges many random pairs of branches with a plain git, without our driver and without attributes: additions must never conflict.
# The tests merge 25 pairs. Argument: the number of pairs [1000].
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export HELMDECK_TEST_MERGE_PAIRS="${1:-1000}"
exec cargo test --package helmdeck-forge --lib -- --exact merge::tests::plain::random_additions_merge_without_our_driver

#!/usr/bin/env bash
# Measures how long ten servers on one PostgreSQL take to see a purge at one of them, also around a restart and a crash of
# PostgreSQL. Prints p50 and p99, and fails if p99 is 250 ms or more. The programs are those of a test build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/need.sh
source scripts/need.sh
# shellcheck source=scripts/postgres.sh
source scripts/postgres.sh

need postgres_programs postgresql
need "psql --version" postgresql-client
cargo test --workspace --test helmdeck purge_reaches_ten_servers -- --ignored --nocapture </dev/null

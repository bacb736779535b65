#!/usr/bin/env bash
# Measures which pages of tables and indexes each statement on PostgreSQL touches, in stores of 10^4 to 10^7 rows, and prints them
# as the table of docs/scale.md. Fails if a statement grows with the rows. It takes minutes and about 8 GB of disk.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/need.sh
source scripts/need.sh
# shellcheck source=scripts/postgres.sh
source scripts/postgres.sh

if [[ -z "${HELMDECK_TEST_POSTGRES_URL:-}" ]]; then
    start_postgres
fi
cargo test --workspace --lib statements_touch_as_much_in_ten_million_rows -- --ignored --nocapture </dev/null

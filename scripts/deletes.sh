#!/usr/bin/env bash
# Measures how much the outbox of deletes costs: commits a second of 32 clients with a plain row, and with the row of the outbox
# beside it, in turns, on a server of its own that writes to disk. Prints both rates and their ratio; the target is 70 %.
# `scripts/deletes.sh SECONDS` measures longer than 5 s a turn.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/need.sh
source scripts/need.sh
# shellcheck source=scripts/postgres.sh
source scripts/postgres.sh

seconds="${1:-5}"
export postgres_fsync=on
start_postgres
url="$HELMDECK_TEST_POSTGRES_URL"
schema="$(
    sed -n '/^CREATE TABLE memory_generation/,/;$/p' src/memory/migrations/postgres/0001_entries.sql
    cat src/memory/migrations/postgres/0002_changes.sql
)"
psql -qX -v ON_ERROR_STOP=1 -d "$url" -c "CREATE TABLE plain (id BIGINT GENERATED ALWAYS AS IDENTITY, payload TEXT); $schema"

payload='[{"k":[["local","local",null],"cache","test.echo/abcdef0123456789abcdef0123456789"]}]'
script() {
    printf '%s\n' '\startpipeline' 'BEGIN;' "INSERT INTO plain (payload) VALUES ('$payload');" "$@" 'COMMIT;' '\endpipeline'
}
rate() {
    "$postgres_bin/pgbench" -n -M extended -c 32 -j 2 -T "$seconds" -f "$1" "$url" 2>/dev/null | sed -n 's/^tps = \([0-9]*\).*/\1/p'
}
folder="$(mktemp -d)"
script >"$folder/plain"
script "INSERT INTO memory_changes (origin, payload) VALUES (1, '$payload');" >"$folder/outbox"
for turn in 1 2 3; do
    plain="$(rate "$folder/plain")"
    outbox="$(rate "$folder/outbox")"
    printf 'turn %s: %s/s plain, %s/s with the outbox: %s %%\n' "$turn" "$plain" "$outbox" "$((100 * outbox / plain))"
done
rm -rf "$folder"

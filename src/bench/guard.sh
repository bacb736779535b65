#!/usr/bin/env bash
# Counts what no noise of a machine changes, and compares it with src/bench/guard.txt: the instructions of a call on each path of
# src/bench/paths.rs (all threads; callgrind), the size of the program, and the number of third-party crates in it.
#   usage: src/bench/guard.sh [--accept]     --accept writes what was counted as the new table
# Fails if a figure is more than 2 % above its row. A figure that is more than 2 % below is told too: accept it, so that it stays.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/need.sh
source scripts/need.sh
need "valgrind --version" valgrind
table="src/bench/guard.txt"
accept="${1:-}"
cargo build --release -p helmdeck -p helmdeck-bench
target="${CARGO_TARGET_DIR:-target}/release"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# instructions NAME COUNT
instructions() {
    setarch --addr-no-randomize valgrind --tool=callgrind --callgrind-out-file=/dev/null --fair-sched=yes \
        "$target/helmdeck-bench" path "$1" "$2" 2>&1 | sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

# per_call NAME
per_call() {
    local few many
    few=$(instructions "$1" 200)
    many=$(instructions "$1" 600)
    [[ -n "$few" && -n "$many" ]] || fail "the path $1 could not be counted"
    echo "$1 $(((many - few) / 400))" >"$folder/$1"
}

names=$("$target/helmdeck-bench" path --list)
running=0
for name in $names; do
    per_call "$name" &
    running=$((running + 1))
    if ((running >= $(nproc))); then
        wait -n
        running=$((running - 1))
    fi
done
wait
for name in $names; do
    [[ -s "$folder/$name" ]] || fail "the path $name could not be counted"
    cat "$folder/$name"
done >"$folder/now"
{
    echo "program-bytes $(stat -c %s "$target/helmdeck")"
    echo "third-party-crates $(cargo tree --package helmdeck --edges normal --prefix none --format '{p}' | grep -v '(/' | cut -d' ' -f1,2 | sort -u | wc -l)"
} >>"$folder/now"

if [[ "$accept" == --accept ]]; then
    cp "$folder/now" "$table"
    say "accepted: $table"
    exit
fi
awk -v table="$table" '
    BEGIN { while ((getline line < table) > 0) { split(line, part, " "); was[part[1]] = part[2] } }
    {
        if (!($1 in was)) { printf "%-24s %12d  has no row\n", $1, $2; bad = 1; next }
        change = ($2 / was[$1] - 1) * 100
        word = change > 2 ? "MORE" : change < -2 ? "less" : ""
        if (change > 2) bad = 1
        printf "%-24s %12d %12d %+7.1f %% %s\n", $1, was[$1], $2, change, word
        seen[$1] = 1
    }
    END { for (name in was) if (!(name in seen)) { print name, "was not counted"; bad = 1 }; exit bad }
' "$folder/now" || fail "a figure grew by more than 2 %, or a row is missing: make it smaller, or accept it (src/bench/guard.sh --accept) and say why in the commit"

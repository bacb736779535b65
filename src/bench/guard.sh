#!/usr/bin/env bash
# Counts what no noise of a machine changes, and compares it with src/bench/guard.txt: the instructions of a call on each path of
# src/bench/paths.rs (all threads; callgrind), the size of the program, the memory of an idle `serve`, and the number of
# third-party crates in the program and in the README's first command.
#   usage: src/bench/guard.sh [--accept]     --accept writes what was counted as the new table
# Fails if a figure is more than 2 % above its row (memory: 5 %). A figure that is as much below is told too: accept it, so that
# it stays.
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
# idle COLUMN...: memory of an idle server in KiB, from /proc/PID/smaps_rollup, the median of three.
idle() {
    local home="$folder/home$1" pid
    mkdir -p "$home"
    env -i PATH="$PATH" HOME="$home" HELMDECK_MEMORY_KEY="$(printf '0%.0s' {1..63})1" HELMDECK_DATA_DIR="$home" \
        "$target/helmdeck" serve --listen 127.0.0.1:0 2>"$home/log" &
    pid=$!
    for _ in {1..100}; do
        grep -q "listening on" "$home/log" && break
        sleep 0.05
    done
    sleep 1
    awk '/^(Rss|Anonymous):/ { print $1, $2 }' "/proc/$pid/smaps_rollup" >>"$folder/idle"
    kill "$pid"
    wait "$pid" || true
}
for round in 1 2 3; do idle "$round"; done
median_of() { awk -v name="$1:" '$1 == name { print $2 }' "$folder/idle" | sort -n | sed -n 2p; }
crates() { cargo tree --package helmdeck --prefix none --format '{p}' "$@" | grep -v '(/' | cut -d' ' -f1,2 | sort -u | wc -l; }
{
    echo "idle-rss-kib $(median_of Rss)"
    echo "idle-anonymous-kib $(median_of Anonymous)"
    echo "program-bytes $(stat -c %s "$target/helmdeck")"
    echo "third-party-crates $(crates --edges normal)"
    echo "first-command-crates $(crates --edges normal,build --no-default-features --features repo-map)"
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
        limit = $1 ~ /^idle/ ? 5 : 2
        word = change > limit ? "MORE" : change < -limit ? "less" : ""
        if (change > limit) bad = 1
        printf "%-24s %12d %12d %+7.1f %% %s\n", $1, was[$1], $2, change, word
        seen[$1] = 1
    }
    END { for (name in was) if (!(name in seen)) { print name, "was not counted"; bad = 1 }; exit bad }
' "$folder/now" || fail "a figure grew by more than its limit, or a row is missing: make it smaller, or accept it (src/bench/guard.sh --accept) and say why in the commit"

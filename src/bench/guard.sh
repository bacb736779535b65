#!/usr/bin/env bash
# Counts what no noise of a machine changes, and compares it with a committed table: the instructions of a call on each path of
# src/bench/paths.rs (all threads; callgrind), the memory of an idle `serve`, the size of the program, and the number of
# third-party crates in the program and in the README's first command.
#   usage: src/bench/guard.sh [--release] [--accept]
# Without --release it counts the programs that the tests use, against src/bench/guard.txt.
# They are not optimised, so the figures are no costs; but a look-up, a copy or an allocation too many shows all the same.
# With --release it counts the release programs, ordered by scripts/ordered.sh, against src/bench/guard-release.txt, and the
# processor time of the README's first build.
#   --accept     writes what was counted as the new table
# Fails if a figure is more than 2 % above its row (memory: 10 %, processor time: 20 %). A figure that is as much below is told too: accept it, so that
# it stays. Instructions depend on the compiler, the C library and the processor: the table says which it was counted with, and
# with others only the number of crates is compared, which is said.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/need.sh
source scripts/need.sh
need "valgrind --version" valgrind
need "strip --version" binutils
table="src/bench/guard.txt"
accept=""
profile=test
for argument in "$@"; do
    case "$argument" in
        --accept) accept=yes ;;
        --release) profile=release table="src/bench/guard-release.txt" ;;
        *) fail "usage: src/bench/guard.sh [--release] [--accept]" ;;
    esac
done
# The whole workspace with its tests, so that features of crates are those of the tests, and what those have built is used.
if [[ "$profile" == test ]]; then
    cargo build --workspace --bins --tests --profile test
else
    cargo build --workspace --bins --profile release
    scripts/ordered.sh release
fi
target="${CARGO_TARGET_DIR:-target}/${profile/test/debug}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# instructions NAME COUNT
instructions() {
    setarch --addr-no-randomize valgrind --tool=callgrind --callgrind-out-file=/dev/null --fair-sched=yes \
        "$target/helmdeck-bench" path "$1" "$2" 2>&1 | sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

# per_call NAME: counts it with two numbers of repetitions. Cheap paths need many: what runs beside them (the housekeeping of
# caches, timers) is then a small share, and the same each time.
per_call() {
    local few=20 many=120 less more
    case "$1" in
        shut | shut-opted-in | hit) few=500 many=2500 ;;
        context) few=200 many=1000 ;;
        shut-output-schema | rest-hit | get-sealed) few=50 many=250 ;;
        context-sealed-sqlite) many=60 ;;
    esac
    if [[ "$profile" == release ]]; then few=$((4 * few)) many=$((4 * many)); fi
    less=$(instructions "$1" "$few")
    more=$(instructions "$1" "$many")
    [[ -n "$less" && -n "$more" ]] || fail "the path $1 could not be counted"
    echo "$1 $(((more - less) / (many - few)))" >"$folder/$1"
}

processor() { grep -m1 '^flags' /proc/cpuinfo | tr ' ' '\n' | grep -xE 'aes|avx2|avx512f|bmi2|erms' | sort | paste -sd+; }
with="rustc-$(rustc --version | cut -d' ' -f2),$(ldd --version | sed -n '1s/.* /libc-/p'),$(valgrind --version),$(uname -m),$(processor)"

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
done >"$folder/counted"
# idle COLUMN...: memory of an idle server in KiB, from /proc/PID/smaps_rollup, the median of three.
idle() {
    local home="$folder/home$1" pid
    mkdir -p "$home"
    env -i PATH="$PATH" HOME="$home" HELMDECK_MEMORY_KEY="$(printf '0%.0s' {1..63})1" HELMDECK_DATA_DIR="$home" \
        "$target/helmdeck" serve --listen 127.0.0.1:0 2>"$home/log" &
    pid=$!
    for _ in {1..100}; do
        grep -qs "listening on" "$home/log" && break
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
    strip -o "$folder/program" "$target/helmdeck"
    echo "program-bytes $(stat -c %s "$folder/program")"
    echo "third-party-crates $(crates --edges normal)"
    echo "first-command-crates $(crates --edges normal,build --no-default-features --features repo-map)"
} >>"$folder/counted"
if [[ "$profile" == release ]]; then
    TIMEFORMAT='%U %S'
    spent=$({ time CARGO_TARGET_DIR="$folder/first" cargo build -q --no-default-features --features repo-map; } 2>&1 | tail -1)
    echo "first-build-cpu-s $(awk '{ print int($1 + $2) }' <<<"$spent")" >>"$folder/counted"
fi
{
    echo "with $with"
    cat "$folder/counted"
} >"$folder/now"

if [[ -n "$accept" ]]; then
    cp "$folder/now" "$table"
    say "accepted: $table"
    exit
fi
counted_with="$(sed -n 's/^with //p' "$table")"
if [[ "$counted_with" != "$with" ]]; then
    say "$table was counted with $counted_with, this is $with: only the number of crates is compared. Accept the table here to compare all."
fi
awk -v table="$table" -v same="$([[ "$counted_with" == "$with" ]] && echo 1 || echo 0)" '
    BEGIN { while ((getline line < table) > 0) { split(line, part, " "); was[part[1]] = part[2] } }
    $1 == "with" { seen[$1] = 1; next }
    {
        if (!($1 in was)) { printf "%-24s %12d  has no row\n", $1, $2; bad = 1; next }
        change = ($2 / was[$1] - 1) * 100
        limit = $1 ~ /^idle/ ? 10 : $1 ~ /cpu-s$/ ? 20 : 2
        counts = same || $1 ~ /crates$/
        word = !counts ? "not compared" : change > limit ? "MORE" : change < -limit ? "less" : ""
        if (counts && change > limit) bad = 1
        printf "%-24s %12d %12d %+7.1f %% %s\n", $1, was[$1], $2, change, word
        seen[$1] = 1
    }
    END { for (name in was) if (!(name in seen)) { print name, "was not counted"; bad = 1 }; exit bad }
' "$folder/now" || fail "a figure grew by more than its limit, or a row is missing: make it smaller, or accept it with --accept and say why in the commit"

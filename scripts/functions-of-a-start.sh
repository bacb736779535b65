#!/usr/bin/env bash
# Lists the functions that a program runs for the seam, then those of a start of the server and a few seconds of rest, then those of
# a first health check, call and list, each one once. Counts with callgrind, in an empty home.
#   usage: scripts/functions-of-a-start.sh PROGRAM      PROGRAM: a helmdeck with symbols
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/need.sh
source scripts/need.sh
{
    need "valgrind --version" valgrind
    need "nm --version" binutils
    need "curl --version" curl
    need "git --version" git
} >&2
program="$(realpath "${1:?usage: scripts/functions-of-a-start.sh PROGRAM}")"
folder="$(mktemp -d)"
server=""
finish() {
    if [[ -n "$server" ]]; then kill "$server" 2>/dev/null || true; fi
    wait || true
    rm -rf "$folder"
}
trap finish EXIT
mkdir "$folder/home" "$folder/repository"

# traced NAME WORD...: runs the program, and keeps what callgrind saw.
traced() {
    local name="$1"
    shift
    exec env -i PATH="$PATH" HOME="$folder/home" HELMDECK_DATA_DIR="$folder/home" \
        HELMDECK_MEMORY_KEY="$(printf '0%.0s' {1..63})1" \
        valgrind --tool=callgrind --demangle=no --callgrind-out-file="$folder/$name" "$program" "$@"
}

# served NAME [COMMAND]: starts the server, runs the command with its address after some rest, and stops it.
served() {
    local address=""
    # The server may open it later than it is first read.
    : >"$folder/$1.log"
    traced "$1" serve --listen 127.0.0.1:0 2>"$folder/$1.log" &
    server=$!
    for _ in {1..600}; do
        address="$(sed -n 's/.*listening on \(http:[^ "]*\).*/\1/p' "$folder/$1.log")"
        if [[ -n "$address" ]]; then break; fi
        sleep 0.1
    done
    [[ -n "$address" ]] || fail "the server did not start: $(tail -3 "$folder/$1.log")"
    sleep 3
    "${2:-true}" "$address"
    kill "$server"
    wait "$server" || true
    server=""
}

calls() {
    local ask=(curl --silent --show-error --fail --output "$folder/answer")
    "${ask[@]}" "$1/healthz"
    for _ in 1 2; do
        "${ask[@]}" --header "Content-Type: application/json" --data '{}' "$1/api/v1/packs/memory.list"
    done
    "${ask[@]}" "$1/api/v1/packs"
}

git -C "$folder/repository" init --quiet
git -C "$folder/repository" remote add origin https://example.com/o/r.git
(cd "$folder/repository" && traced 1-seam seam state-path plan) >"$folder/answer" 2>"$folder/log" || fail "$(tail -3 "$folder/log")"
served 2-rest
served 3-calls calls

nm "$program" | awk '{ print $3 }' | sort -u >"$folder/names"
for name in 1-seam 2-rest 3-calls; do
    # Names are defined as "fn=(number) name", and a function inside itself has "'2" after it.
    sed -nE "s/^c?fn=\([0-9]+\) ([^']+).*/\1/p" "$folder/$name" | LC_ALL=C sort -u
done | awk 'NR == FNR { known[$0]; next } $0 in known && !seen[$0]++' "$folder/names" - >"$folder/functions"
[[ -s "$folder/functions" ]] || fail "no function was seen: has $program symbols?"
cat "$folder/functions"

#!/usr/bin/env bash
# Races a cache hit of this program against Varnish (the same 4 KiB from the same origin, by HTTP, with wrk) and against FastMCP's
# response cache (in one process, memory and disk with Fernet), and shows how fast a server is that answers with the same bytes and
# reads nothing. Installs what is missing, and starts everything on loopback.
# Runs take turns, so that what else the machine does concerns both; each figure is the median.
#   usage: src/bench/race.sh [PROGRAM]      PROGRAM: a release build; without it, one is built
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/need.sh
source scripts/need.sh
# shellcheck source=src/bench/race_tools.sh
source src/bench/race_tools.sh
wrk_runs() { command -v wrk; }
need "varnish -V" varnish
need wrk_runs wrk
program="${1:-}"
if [[ -z "$program" ]]; then
    cargo build --release -p helmdeck -p helmdeck-bench
    program="${CARGO_TARGET_DIR:-target}/release/helmdeck"
fi
program="$(realpath "$program")"
python="$(fastmcp_python)"
folder="$(mktemp -d)"
pids=()
finish() {
    kill "${pids[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
origin_port="$(free_port)"
varnish_port="$(free_port)"
our_port="$(free_port)"

# An origin that answers 4 KiB, which both may keep for an hour.
python3 - "$origin_port" <<'PYTHON' &
import http.server, json, sys
items = [{"number": n, "text": "x" * 70} for n in range(38)]
body = json.dumps({"items": items, "pad": ""}).encode()
body = json.dumps({"items": items, "pad": "x" * (4096 - len(body))}).encode()
class Origin(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        for name, value in [("Content-Type", "application/json"), ("Cache-Control", "max-age=3600"), ("Content-Length", str(len(body)))]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Origin).serve_forever()
PYTHON
pids+=($!)

cat >"$folder/vcl" <<VCL
vcl 4.1;
backend default { .host = "127.0.0.1"; .port = "$origin_port"; }
VCL
# Without the jail, which could not read the folder.
varnish -j none -F -n "$folder/varnish" -a "127.0.0.1:$varnish_port" -f "$folder/vcl" -s malloc,64m >"$folder/varnish.log" 2>&1 &
pids+=($!)

mkdir -p "$folder/home/packs"
cat >"$folder/home/packs/race.items.toml" <<TOML
name = "race.items"
version = "v1"
description = "Items of the origin"
read_only = true
[handler.http]
url = "http://127.0.0.1:$origin_port/items"
[memory]
cache = true
ttl = "1h"
TOML
cat >"$folder/home/helmdeck.toml" <<TOML
packs_dir = "$folder/home/packs"
data_dir = "$folder/home"
[egress]
allow = ["127.0.0.1/32"]
[server]
rate_per_second = 0
TOML
env -i PATH="$PATH" HOME="$folder/home" HELMDECK_MEMORY_KEY="$(printf '0%.0s' {1..63})1" HELMDECK_LOG=warn \
    "$program" --config "$folder/home/helmdeck.toml" serve --listen "127.0.0.1:$our_port" &
pids+=($!)
cat >"$folder/post.lua" <<'LUA'
wrk.method = "POST"
wrk.body = "{}"
wrk.headers["Content-Type"] = "application/json"
LUA
ours="http://127.0.0.1:$our_port/api/v1/packs/race.items"
theirs="http://127.0.0.1:$varnish_port/items"
wait_for_answer() {
    for _ in {1..200}; do
        curl -sf -o "$folder/answer" "$@" && return
        sleep 0.05
    done
    fail "no answer: $*"
}
need "curl --version" curl
wait_for_answer "$theirs"
wait_for_answer -X POST -H 'Content-Type: application/json' -d '{}' "$ours"
sleep 1
curl -sf -D - -o "$folder/ours" -X POST -H 'Content-Type: application/json' -d '{}' "$ours" | grep -qi '^cache-status: helmdeck; hit' ||
    fail "the call is no hit"
curl -sf -D - -o "$folder/theirs" "$theirs" | grep -qi '^x-varnish: [0-9]* [0-9]' || fail "Varnish has no hit"
say "answers: ours $(stat -c %s "$folder/ours") bytes, Varnish $(stat -c %s "$folder/theirs") bytes"

bench="$(dirname "$program")/helmdeck-bench"
if [[ -x "$bench" ]]; then
    "$bench" answer-anything "$(stat -c %s "$folder/ours")" >"$folder/floor" &
    pids+=($!)
    for _ in {1..200}; do
        if [[ -s "$folder/floor" ]]; then break; fi
        sleep 0.05
    done
    [[ -s "$folder/floor" ]] || fail "$bench does not answer: build it with the program"
fi

rate() { wrk -t1 "-c$1" -d3s "${@:2}" | awk '/Requests\/sec/ { printf "%.0f\n", $2 }'; }
median() { sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
for connections in ${CONNECTIONS:-1 16 64}; do
    : >"$folder/a"
    : >"$folder/b"
    : >"$folder/c"
    for _ in 1 2 3 4 5; do
        rate "$connections" -s "$folder/post.lua" "$ours" >>"$folder/a"
        rate "$connections" "$theirs" >>"$folder/b"
        if [[ -x "$bench" ]]; then rate "$connections" -s "$folder/post.lua" "http://$(cat "$folder/floor")/" >>"$folder/c"; fi
    done
    a="$(median <"$folder/a")"
    b="$(median <"$folder/b")"
    say "$connections connections: ours $a/s, Varnish $b/s: $(awk -v a="$a" -v b="$b" 'BEGIN { printf "%.2f", a / b }') x; reading nothing $(median <"$folder/c")/s"
done
kill "${pids[@]}" 2>/dev/null || true
if [[ -x "$bench" ]]; then "$bench" hit cold || true; fi
"$python" src/bench/race_fastmcp.py

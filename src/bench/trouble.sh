#!/usr/bin/env bash
# Shows what callers and an upstream see while the upstream is in trouble: this program, Varnish (grace and saint mode) and FastMCP's
# response cache side by side, each with an upstream of its own that does the same. Installs what is missing; all is on loopback.
#   usage: src/bench/trouble.sh [PROGRAM]      PROGRAM: a build of this program; without it, a release is built
# Ends with an error if this program asks more often, or keeps callers waiting longer, than it may.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/need.sh
source scripts/need.sh
# shellcheck source=src/bench/race_tools.sh
source src/bench/race_tools.sh
saint_mode() { test -e /usr/lib/*/varnish/vmods/libvmod_saintmode.so; }
need "varnish -V" varnish
need saint_mode varnish-modules
program="${1:-}"
if [[ -z "$program" ]]; then
    cargo build --release -p helmdeck
    program="${CARGO_TARGET_DIR:-target}/release/helmdeck"
fi
program="$(realpath "$program")"
python="$(fastmcp_python)"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
PATH="$PATH:/usr/sbin" "$python" src/bench/trouble.py "$program" "$folder"

#!/usr/bin/env bash
# Builds the program with the functions that a start runs side by side. The kernel maps a program in pieces of 64 KiB around what is
# used: scattered over 40 MB of code, these 3 MB bring most of it into memory.
#   usage: scripts/ordered.sh [PROFILE]        PROFILE: release (the default) or dist
# The program is where cargo puts it, and beside it helmdeck.order, the list of functions, most of whose names depend on the
# compiler and on Cargo.lock. With HELMDECK_ORDER_FILE=helmdeck.order cargo builds the same program again.
# Builds without an order where the linker is not lld, which is said.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/need.sh
source scripts/need.sh
exec </dev/null
profile="${1:-release}"
built="$(realpath -m "${CARGO_TARGET_DIR:-target}")/$profile"
unset HELMDECK_ORDER_FILE
rm -f "$built/helmdeck.order"

# A program with the names of its functions.
cargo rustc --locked --profile "$profile" --bin helmdeck -- -C strip=none
need "readelf --version" binutils
if ! readelf --string-dump=.comment "$built/helmdeck" | grep -q "Linker: LLD"; then
    say "this machine does not link with lld: the program is built without an order of its functions"
    cargo build --locked --profile "$profile" --bin helmdeck
    exit
fi
scripts/functions-of-a-start.sh "$built/helmdeck" >"$built/helmdeck.order.new"
mv "$built/helmdeck.order.new" "$built/helmdeck.order"
HELMDECK_ORDER_FILE="$built/helmdeck.order" cargo build --locked --profile "$profile" --bin helmdeck
say "$built/helmdeck: $(wc -l <"$built/helmdeck.order") functions come first"

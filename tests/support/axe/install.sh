#!/usr/bin/env bash
# Installs axe-core, which finds what keeps people from using a page, as package-lock.json beside this file pins it, from npm.
#   usage: install.sh [FOLDER]     (default: $HELMDECK_TEST_CACHE/axe)
# Prints one line for the shell, and nothing else on stdout:
#   HELMDECK_TEST_AXE=...      the script
# Nothing after the first time. Safe to run twice at once, and all or nothing.
set -euo pipefail

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
base=$(realpath -m "${1:-${HELMDECK_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/helmdeck}/axe}")
pinned=$(cat "$here/package-lock.json" "$here/install.sh" | sha256sum | cut -c1-16)
folder="$base/$pinned"

install() {
    mkdir -p "$base"
    exec 9>"$base/lock"
    flock 9
    if [ -e "$folder/complete" ]; then return; fi
    rm -rf "$folder"
    mkdir "$folder"
    cp "$here/package.json" "$here/package-lock.json" "$folder"
    (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error </dev/null) >&2
    touch "$folder/complete"
    # What other pins left behind, and nobody used for a week.
    find "$base" -mindepth 1 -maxdepth 1 -type d ! -name "$pinned" -mtime +7 -exec rm -rf {} + || true
}

if ! [ -e "$folder/complete" ]; then install; fi
touch "$folder"
printf 'HELMDECK_TEST_AXE=%q\n' "$folder/node_modules/axe-core/axe.min.js"

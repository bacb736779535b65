#!/usr/bin/env bash
# Installs what the tests of swe.solve run beside it: pytest for the packages that are mended, mini-swe-agent to compare with, and
# the packages themselves, as two releases of each (see task.sh). All of it comes from PyPI, as the requirements beside this file pin it.
#   usage: install.sh [FOLDER]     (default: $HELMDECK_TEST_CACHE/swe)
# Prints three lines for the shell, and nothing else on stdout:
#   HELMDECK_TEST_SWE_PYTEST=...   the environment that has pytest; its interpreter is one of /usr, which a sandbox can see
#   HELMDECK_TEST_SWE_MINI=...     the program `mini`
#   HELMDECK_TEST_SWE_TASKS=...    a folder with a task each: parse, sqlparse
# About 40 seconds and 70 MB the first time, nothing after that. Safe to run twice at once, and all or nothing: what is pinned
# names the folder, and the folder has its name only once it is complete.
set -euo pipefail
# Sandboxed commands run as another user, who must be able to read what is installed.
umask 022

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
base=$(realpath -m "${1:-${HELMDECK_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/helmdeck}/swe}")
pinned=$(cat "$here"/requirements-*.txt "$here/install.sh" "$here/task.sh" | sha256sum | cut -c1-16)
folder="$base/$pinned"

complete() { [ -e "$folder/complete" ] && [ -x "$folder/pytest/bin/python" ]; }

# environment NAME: a Python environment with the packages of requirements-NAME.txt. Its interpreter is that of the system:
# another one may live where a sandbox does not look.
environment() {
    /usr/bin/python3 -m venv --without-pip "$folder/$1" >&2
    /usr/bin/python3 -m venv "$folder/pip" >&2
    "$folder/pip/bin/python" -m pip --python "$folder/$1/bin/python" install -q --disable-pip-version-check --no-deps \
        --only-binary :all: -r "$here/requirements-$1.txt" </dev/null >&2
    rm -rf "$folder/pip"
}

install() {
    mkdir -p "$base"
    exec 9>"$base/lock"
    flock 9
    if complete; then return; fi
    # A Python environment cannot be moved, so everything is made in its own place, and the marker comes last.
    rm -rf "$folder"
    mkdir "$folder"
    environment pytest
    environment mini
    "$here/task.sh" parse 1.20.0 1.20.1 "$folder/pytest/bin/python" "$folder/tasks/parse" >&2
    "$here/task.sh" sqlparse 0.5.1 0.5.2 "$folder/pytest/bin/python" "$folder/tasks/sqlparse" >&2
    touch "$folder/complete"
    # What other pins left behind, and nobody used for a week.
    find "$base" -mindepth 1 -maxdepth 1 -type d ! -name "$pinned" -mtime +7 -exec rm -rf {} + || true
}

if ! complete; then install; fi
touch "$folder"

printf 'HELMDECK_TEST_SWE_PYTEST=%q\nHELMDECK_TEST_SWE_MINI=%q\nHELMDECK_TEST_SWE_TASKS=%q\n' \
    "$folder/pytest" "$folder/mini/bin/mini" "$folder/tasks"

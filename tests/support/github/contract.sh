#!/usr/bin/env bash
# Checks the request bodies in a log of replay.py against GitHub's own OpenAPI description.
#   usage: contract.sh FOLDER LOG.jsonl     (fetches the description and PyPI's jsonschema into FOLDER once)
# Prints what is wrong with each bad body and a count; ends with 1 if any is bad or none was checked.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=$(realpath -m "$1")
log=$(realpath "$2")
marker="$folder/complete-1"
mkdir -p "$folder"

(
    exec 9>"$folder/lock"
    flock 9
    [ -e "$marker" ] && exit 0
    work=$(mktemp -d "$folder/fetching.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    cd "$work"
    npm pack --silent @octokit/openapi@23.0.2 >&2
    tar xzf octokit-openapi-23.0.2.tgz package/generated/api.github.com.json
    python3 "$here/openapi_slice.py" package/generated/api.github.com.json slice.json \
        '^/repos/\{owner\}/\{repo\}/(issues|issues/\{issue_number\}/comments|pulls|releases)$' >&2
    python3 -m pip install -q --disable-pip-version-check --root-user-action ignore --target "$work/python" jsonschema==4.26.0 >&2
    rm -rf "$folder/python"
    mv slice.json "$folder/slice.json"
    mv python "$folder/python"
    touch "$marker"
)

PYTHONPATH="$folder/python" python3 "$here/body_check.py" "$folder/slice.json" "$log"

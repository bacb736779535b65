#!/usr/bin/env bash
# Fetches the recorded GitHub exchanges that replay.py serves, from PyPI and npm, into a folder.
#   usage: fetch.sh FOLDER
# They are published by others (PyGithub is LGPL-3), so they are fetched at test time and never committed.
# Idempotent, safe to run twice at once, and all or nothing: the folder is complete when the marker is there.
set -euo pipefail

folder=$(realpath -m "$1")
marker="$folder/complete-1"
[ -e "$marker" ] && exit 0
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
[ -e "$marker" ] && exit 0

work=$(mktemp -d "$folder/fetching.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"

# --no-binary NAME, never ':all:': that would build every build dependency from source as well.
python3 -m pip download -q --disable-pip-version-check --no-deps --no-binary PyGithub PyGithub==2.10.0 >&2
python3 -m pip download -q --disable-pip-version-check --no-deps --no-binary github3.py github3.py==4.0.1 >&2
npm pack --silent @octokit/fixtures@23.1.2 >&2

tar xzf pygithub-2.10.0.tar.gz pygithub-2.10.0/tests/ReplayData
tar xzf github3.py-4.0.1.tar.gz github3.py-4.0.1/tests/cassettes
tar xzf octokit-fixtures-23.1.2.tgz package/scenarios/api.github.com

rm -rf "$folder/pygithub" "$folder/github3" "$folder/octokit"
mv pygithub-2.10.0/tests/ReplayData "$folder/pygithub"
mv github3.py-4.0.1/tests/cassettes "$folder/github3"
mv package/scenarios/api.github.com "$folder/octokit"
touch "$marker"

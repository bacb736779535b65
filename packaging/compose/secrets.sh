#!/usr/bin/env bash
# Writes the secrets of compose.yaml to secrets/, unless they exist: the memory key, the password of PostgreSQL, and the
# URL with it (without TLS, because the network is the project's own). A file is readable by one user only: helmdeck's in
# the container (10001), or the caller for PostgreSQL, whose container starts as root. Keep a copy of memory_key: without
# it, the stored entries cannot be read.
set -euo pipefail
umask 077
folder="${1:-"$(dirname "${BASH_SOURCE[0]}")/../../secrets"}"
user=10001
mkdir -p "$folder"
cd "$folder"

random() { head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }

own() {
    if [[ "$(id -u)" -eq 0 ]]; then chown "$user" "$1"; else sudo chown "$user" "$1"; fi
}

if [[ ! -e memory_key ]]; then
    random >memory_key
    own memory_key
fi
if [[ ! -e postgres_password ]]; then random >postgres_password; fi
if [[ ! -e memory_url ]]; then
    printf 'postgres://helmdeck:%s@postgres:5432/helmdeck?sslmode=disable' "$(cat postgres_password)" >memory_url
    own memory_url
fi
printf 'secrets are in %s\n' "$PWD"

#!/usr/bin/env bash
# Writes the secrets of compose.yaml to secrets/ beside it (or to the folder of the first argument), unless they exist:
# the memory key, the vault key, the passwords of PostgreSQL and of the S3 store. Keep a copy of deck.env: without its
# keys, stored entries and credentials cannot be read.
set -euo pipefail
umask 077
folder="${1:-"$(dirname "${BASH_SOURCE[0]}")/secrets"}"
mkdir -p "$folder"
cd "$folder"

random() { head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }

if [[ ! -e postgres_password ]]; then random >postgres_password; fi
password="$(cat postgres_password)"
if [[ ! -e pgbouncer_users ]]; then printf '"helmdeck" "%s"\n' "$password" >pgbouncer_users; fi
if [[ ! -e deck.env ]]; then
    s3="$(random)"
    printf '{"identities": [{"name": "helmdeck", "credentials": [{"accessKey": "helmdeck", "secretKey": "%s"}],
  "actions": ["Read", "Write", "List"]}]}\n' "$s3" >s3_identities
    {
        printf 'HELMDECK_MEMORY_KEY=%s\n' "$(random)"
        printf 'HELMDECK_VAULT_KEY=%s\n' "$(random)"
        # Without TLS, because the network is the project's own.
        printf 'HELMDECK_MEMORY_URL=postgres://helmdeck:%s@pgbouncer:6432/helmdeck?sslmode=disable\n' "$password"
        printf 'HELMDECK_S3_ACCESS_KEY_ID=helmdeck\n'
        printf 'HELMDECK_S3_SECRET_ACCESS_KEY=%s\n' "$s3"
    } >deck.env
fi
# Programs in the containers read these as their own users.
chmod 644 pgbouncer_users s3_identities
printf 'secrets are in %s\n' "$PWD"

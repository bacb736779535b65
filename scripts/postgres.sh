# Functions for the other scripts: a PostgreSQL server that tests share, on a loopback port of its own, in a folder that goes with
# it. Sourced by bash after need.sh, run by nobody.

# The folder with the programs of the newest server that is installed; nothing if there is none.
postgres_programs() {
    local initdb
    initdb="$(printf '%s\n' /usr/lib/postgresql/*/bin/initdb | sort -V | tail -n 1)"
    if [[ -x "$initdb" ]]; then
        dirname "$initdb"
    elif command -v initdb >/dev/null; then
        dirname "$(command -v initdb)"
    else
        return 1
    fi
}

# Runs a program as somebody who is not root: PostgreSQL refuses to run as root.
as_postgres() {
    if [[ "$(id -u)" -eq 0 ]]; then
        runuser -u postgres -- "$@"
    else
        "$@"
    fi
}

# start_postgres: starts a server, exports HELMDECK_TEST_POSTGRES_URL, and stops it when the script ends. It waits for the disk
# with postgres_fsync=on only.
start_postgres() {
    need postgres_programs postgresql
    need "psql --version" postgresql-client
    postgres_bin="$(postgres_programs)"
    postgres_folder="$(mktemp -d)"
    trap stop_postgres EXIT
    if [[ "$(id -u)" -eq 0 ]]; then chown postgres "$postgres_folder"; fi
    cd "$postgres_folder"
    as_postgres "$postgres_bin/initdb" --no-sync -U postgres -A trust -E UTF8 --locale=C -D data >initdb.log
    # The port of the first try may be taken by somebody between asking for it and using it.
    local try port=""
    for try in 1 2 3 4 5; do
        port=$((20000 + RANDOM % 12000))
        # Nothing that tests write has to survive a power cut. The file is for who looks after a failure.
        if as_postgres "$postgres_bin/pg_ctl" start -w -s -D data -l "$postgres_folder/log" -o "-p $port -k $postgres_folder \
            -c listen_addresses=127.0.0.1 -c fsync=${postgres_fsync:-off} -c max_connections=300 -c dynamic_shared_memory_type=mmap"; then
            break
        fi
        if [[ "$try" -eq 5 ]]; then fail "PostgreSQL does not start: $(tail -n 5 "$postgres_folder/log")"; fi
    done
    cd - >/dev/null
    export HELMDECK_TEST_POSTGRES_URL="postgres://postgres@127.0.0.1:$port/postgres"
}

stop_postgres() {
    (cd "$postgres_folder" && as_postgres "$postgres_bin/pg_ctl" stop -s -m immediate -D data) || true
    rm -rf "$postgres_folder"
}

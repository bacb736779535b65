# Functions for the other scripts: PgBouncer, of which each test that wants one starts its own, in transaction mode. Sourced by
# bash after need.sh, run by nobody.

# The program: the one that HELMDECK_TEST_PGBOUNCER names, or the one of the path, which need not hold Debian's place for it.
pgbouncer_program() {
    if [[ -n "${HELMDECK_TEST_PGBOUNCER:-}" ]]; then
        printf '%s\n' "$HELMDECK_TEST_PGBOUNCER"
    else
        PATH="$PATH:/usr/sbin" command -v pgbouncer
    fi
}

pgbouncer_version() {
    "$(pgbouncer_program)" --version
}

# need_pgbouncer: installs the pooler where it is missing, and exports HELMDECK_TEST_PGBOUNCER.
need_pgbouncer() {
    need pgbouncer_version pgbouncer
    HELMDECK_TEST_PGBOUNCER="$(pgbouncer_program)"
    export HELMDECK_TEST_PGBOUNCER
}

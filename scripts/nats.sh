# Functions for the other scripts: a NATS server, of which each test that wants one starts its own. Sourced by bash after need.sh,
# run by nobody.

# The program: the one that HELMDECK_TEST_NATS_SERVER names, or the one of the path, which need not hold Debian's place for it.
nats_program() {
    if [[ -n "${HELMDECK_TEST_NATS_SERVER:-}" ]]; then
        printf '%s\n' "$HELMDECK_TEST_NATS_SERVER"
    else
        PATH="$PATH:/usr/sbin" command -v nats-server
    fi
}

nats_version() {
    "$(nats_program)" --version
}

# need_nats: installs the server where it is missing, and exports HELMDECK_TEST_NATS_SERVER.
need_nats() {
    need nats_version nats-server
    HELMDECK_TEST_NATS_SERVER="$(nats_program)"
    export HELMDECK_TEST_NATS_SERVER
}

# Functions for the other scripts: they see to it that a program is there. Sourced by bash, run by nobody.
# Nothing here asks a question, and nothing is installed that is already there.

# Where what takes long to build or fetch is kept between runs, outside any clone.
cache="${XDG_CACHE_HOME:-$HOME/.cache}/helmdeck"

say() { printf '\n== %s\n' "$*"; }

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# need 'COMMAND' DEBIAN_PACKAGE...: installs the packages if the command, which only asks for a version, does not succeed.
need() {
    local check="$1"
    shift
    if $check >/dev/null 2>&1; then return; fi
    command -v apt-get >/dev/null || fail "\"$check\" fails; install what it needs (Debian: $*)"
    local -a root=()
    if [[ "$(id -u)" -ne 0 ]]; then
        command -v sudo >/dev/null || fail "\"$check\" fails; as root: apt-get install $*"
        root=(sudo -n)
    fi
    say "installing $*"
    "${root[@]}" apt-get update -q </dev/null
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@" </dev/null
    $check >/dev/null || fail "\"$check\" still fails after installing $*"
}

# need_component SUBCOMMAND COMPONENT: adds a part of the Rust toolchain if it is missing.
need_component() {
    if cargo "$1" --version >/dev/null 2>&1; then return; fi
    command -v rustup >/dev/null || fail "cargo $1 is missing; install it with your Rust toolchain"
    rustup component add "$2"
}

# need_cargo_tool SUBCOMMAND CRATE@VERSION: builds a tool of cargo if it is missing. Its own build folder is kept, so that an
# interrupted build goes on where it stopped.
need_cargo_tool() {
    export PATH="$cache/tools/bin:$PATH"
    if cargo "$1" --version >/dev/null 2>&1; then return; fi
    say "building $2 (once)"
    CARGO_TARGET_DIR="$cache/target-tools" cargo install --locked --root "$cache/tools" "$2"
}

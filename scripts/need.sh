# Functions for the other scripts: they see to it that a program is there. Sourced by bash, run by nobody.
# Nothing here asks a question, and nothing is installed that is already there.

# Builds and downloads that take long are kept here between runs, outside any clone.
cache="${HELMDECK_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/helmdeck}"

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
    # What is installed is for every user of the machine, whatever files the caller makes.
    local mask
    mask="$(umask)"
    umask 022
    "${root[@]}" apt-get update -q </dev/null
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@" </dev/null
    umask "$mask"
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

# use_empty_home FOLDER: makes FOLDER the home, with nothing in it, so that no test reads the settings of the user or the machine
# (git identity, helmdeck's own files, caches). Toolchains and package clients go on to use what they have.
use_empty_home() {
    export HELMDECK_TEST_CACHE="$cache"
    export CARGO_HOME="${CARGO_HOME:-$HOME/.cargo}" RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}"
    if [[ -d "${PYENV_ROOT:-$HOME/.pyenv}" ]]; then export PYENV_ROOT="${PYENV_ROOT:-$HOME/.pyenv}"; fi
    if [[ -e "$HOME/.npmrc" ]]; then export NPM_CONFIG_USERCONFIG="${NPM_CONFIG_USERCONFIG:-$HOME/.npmrc}"; fi
    if [[ -e "$HOME/.config/pip/pip.conf" ]]; then export PIP_CONFIG_FILE="${PIP_CONFIG_FILE:-$HOME/.config/pip/pip.conf}"; fi
    export NPM_CONFIG_CACHE="$cache/npm" PIP_CACHE_DIR="$cache/pip"
    export HOME="$1"
    export XDG_CONFIG_HOME="$HOME/.config" XDG_DATA_HOME="$HOME/.local/share" XDG_STATE_HOME="$HOME/.local/state" \
        XDG_CACHE_HOME="$HOME/.cache"
    export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
    unset XDG_RUNTIME_DIR EMAIL
    local name
    for name in "${!HELMDECK_@}" "${!GIT_AUTHOR_@}" "${!GIT_COMMITTER_@}"; do
        [[ "$name" == HELMDECK_TEST_* ]] || unset "$name"
    done
}

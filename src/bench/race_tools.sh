# Functions for race.sh and trouble.sh: what they race against. Sourced by bash after need.sh, run by nobody.

varnish() { PATH="$PATH:/usr/sbin" varnishd "$@"; }

# Prints the Python that has FastMCP, which is installed if it is missing.
fastmcp_python() {
    need "python3 -m venv --help" python3-venv
    local venv="$cache/race"
    if [[ ! -x "$venv/bin/python" ]]; then
        python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet 'fastmcp==4.1.2' 'py-key-value-aio[disk,memory]' cryptography
    fi
    echo "$venv/bin/python"
}

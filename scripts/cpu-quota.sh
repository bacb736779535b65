#!/usr/bin/env bash
# usage: scripts/cpu-quota.sh PERCENT COMMAND...
# Runs a command with a part of this machine's processors: 50% of two processors is the time of one. It uses a control group
# (version 2 or 1), which root can make where the file system is writable, or else systemd.
set -euo pipefail
# shellcheck source=scripts/need.sh
source "$(dirname "${BASH_SOURCE[0]}")/need.sh"

percent="${1%\%}"
if [[ ! "$percent" =~ ^[1-9][0-9]?$|^100$ ]] || (($# < 2)); then
    fail "usage: scripts/cpu-quota.sh PERCENT COMMAND..., with a PERCENT from 1% to 100% of all processors"
fi
shift
# In microseconds of all processors, for each tenth of a second.
period=100000
quota=$((period * $(nproc) * percent / 100))
name="helmdeck-tests-$$"

# Makes a group with the quota and prints its folder; fails where that is not allowed.
make_group() {
    local root="$1" group="$1/$name"
    if [[ -e "$root/cgroup.controllers" ]]; then
        grep -qw cpu "$root/cgroup.controllers" || return 1
        grep -qw cpu "$root/cgroup.subtree_control" || echo +cpu >"$root/cgroup.subtree_control" || return 1
    elif [[ ! -e "$root/cpu.cfs_quota_us" ]]; then
        return 1
    fi
    mkdir "$group" || return 1
    if [[ -e "$group/cpu.max" ]]; then
        echo "$quota $period" >"$group/cpu.max"
    else
        echo "$period" >"$group/cpu.cfs_period_us" && echo "$quota" >"$group/cpu.cfs_quota_us"
    fi || { rmdir "$group"; return 1; }
    echo "$group"
}

# What the command left behind goes on without a quota.
leave_group() {
    while read -r process; do echo "$process" >"$root/cgroup.procs"; done <"$group/cgroup.procs" 2>/dev/null || true
    rmdir "$group" 2>/dev/null || true
}

for root in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/cpu /sys/fs/cgroup/cpu,cpuacct; do
    if group="$(make_group "$root" 2>/dev/null)"; then
        trap leave_group EXIT
        say "$percent % of $(nproc) processors (control group $group)"
        status=0
        # shellcheck disable=SC2016
        bash -c 'echo "$$" >"$0/cgroup.procs"; exec "$@"' "$group" "$@" || status=$?
        say "the command had to wait for processor time in $(awk '/^nr_periods/ { all = $2 } /^nr_throttled/ { late = $2 }
            END { print late " of " all " tenths of a second" }' "$group/cpu.stat")"
        exit "$status"
    fi
done

mode=()
if [[ "$(id -u)" -ne 0 ]]; then mode=(--user); fi
if command -v systemd-run >/dev/null && systemd-run "${mode[@]}" --scope --quiet true 2>/dev/null; then
    say "$percent % of $(nproc) processors (systemd)"
    exec systemd-run "${mode[@]}" --scope --quiet -p "CPUQuota=$((percent * $(nproc)))%" "$@"
fi
fail "no CPU quota can be set: run it as root where /sys/fs/cgroup is writable and has the controller \"cpu\", or under systemd"

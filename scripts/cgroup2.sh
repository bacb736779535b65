#!/usr/bin/env bash
# Runs tests under a kernel that mounts cgroups of version 2 only, in an emulated machine whose disk is this one, read-only:
# what limits commands where the machine itself cannot show it. Needs root, and minutes: the machine is emulated.
#   usage: scripts/cgroup2.sh COMMAND...      for example the test program that `cargo test --no-run` names, with `limits::`
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/need.sh
source scripts/need.sh
(($#)) || fail "usage: scripts/cgroup2.sh COMMAND..."
kernels() { compgen -G "/lib/modules/*/kernel/fs/9p/9p.ko"; }
need "qemu-system-x86_64 --version" qemu-system-x86
need "/bin/busybox true" busybox-static
need "cpio --version" cpio
need "modprobe --version" kmod
need kernels linux-image-amd64
kernel="$(kernels | head -n 1 | cut -d/ -f4)"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/root/modules"
cp /bin/busybox "$folder/root/busybox"
modprobe --set-version "$kernel" --show-depends --all virtio_pci 9pnet_virtio 9p overlay loop 2>/dev/null |
    sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' >"$folder/modules"
number=100
while read -r module; do
    cp "$module" "$folder/root/modules/$((number++))-$(basename "$module")"
done <"$folder/modules"
{
    printf '#!/bin/bash\ncd %q\nexport HOME=/tmp/home PATH=%q\nmkdir -p "$HOME"\nulimit -n 65536\n' "$PWD" "$PATH"
    printf '%q ' "$@"
    printf '\necho "ended with $?"\nsync\necho o >/proc/sysrq-trigger\nsleep 60\n'
} >"$folder/root/command"
cat >"$folder/root/init" <<'INIT'
#!/busybox sh
/busybox mkdir /proc /sys /disk /over /new
/busybox mount -t proc proc /proc
for module in /modules/*; do /busybox insmod "$module"; done
/busybox mount -t 9p -o trans=virtio,version=9p2000.L,msize=1048576,cache=loose,ro disk /disk
/busybox mount -t tmpfs tmpfs /over
/busybox mkdir /over/upper /over/work
/busybox mount -t overlay -o lowerdir=/disk,upperdir=/over/upper,workdir=/over/work overlay /new
/busybox cp /command /new/command
for kind in proc:proc sysfs:sys devtmpfs:dev tmpfs:tmp tmpfs:run; do /busybox mount -t "${kind%:*}" none "/new/${kind#*:}"; done
/busybox mkdir -p /new/dev/pts /new/dev/shm
/busybox mount -t devpts -o ptmxmode=666 none /new/dev/pts
/busybox mount -t tmpfs none /new/dev/shm
/busybox mount -t cgroup2 none /new/sys/fs/cgroup
/busybox ip link set lo up
exec /busybox switch_root /new /bin/bash /command
INIT
chmod +x "$folder/root/init"
(cd "$folder/root" && find . | cpio --quiet -o -H newc) >"$folder/initrd"
qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m "${HELMDECK_TEST_VM_MEMORY:-6G}" -nographic -no-reboot -nodefaults -serial stdio -monitor none \
    -kernel "/boot/vmlinuz-$kernel" -initrd "$folder/initrd" -append "console=ttyS0 quiet panic=-1 rdinit=/init" \
    -fsdev local,id=disk,path=/,security_model=none,readonly=on,multidevs=remap -device virtio-9p-pci,fsdev=disk,mount_tag=disk \
    </dev/null | tee "$folder/said"
code="$(sed -n 's/^ended with \([0-9]*\).*/\1/p' "$folder/said" | tail -n 1)"
exit "${code:-1}"

//! What the sandbox of sessions refuses, and what it must not take for an attack; by the real
//! program.

use std::process::Command;
use std::sync::Arc;

use helmdeck_core::{Call, Code, Identity, PackName};
use helmdeck_engine::{Config, Engine};
use serde_json::json;

use crate::support::program::{Home, Run};
use crate::support::sessions::{SessionFixture, end_running, is_running, place, runs};
use crate::support::{KEY, wait_for};

/// Makes each system call in the sandbox, and prints what is not refused.
///
/// It uses the numbers of the other ABI of x86-64, too.
const CALLS: &str = r#"
import ctypes, errno, platform, sys
calls = {
    "x86_64": dict(shmget=29, shmat=30, semget=64, msgget=68, add_key=248, request_key=249, keyctl=250, perf_event_open=298,
                   bpf=321, userfaultfd=323, io_uring_setup=425, io_uring_enter=426, io_uring_register=427, memfd_secret=447),
    "aarch64": dict(shmget=194, shmat=196, semget=190, msgget=186, add_key=217, request_key=218, keyctl=219, perf_event_open=241,
                    bpf=280, userfaultfd=282, io_uring_setup=425, io_uring_enter=426, io_uring_register=427, memfd_secret=447),
}[platform.machine()]
system = ctypes.CDLL(None, use_errno=True)
for name, number in calls.items():
    for number in {number, number | (0x40000000 if platform.machine() == "x86_64" else 0)}:
        ctypes.set_errno(0)
        came = system.syscall(number, 0, 4096, 0o1600, 0, 0)
        if came != -1 or ctypes.get_errno() != errno.EPERM:
            print(name, number, came, errno.errorcode.get(ctypes.get_errno()))
# Process 1 ends the sandbox and may not be traced; others may.
import os, time
trace = {"x86_64": 101, "aarch64": 117}[platform.machine()]
ctypes.set_errno(0)
if system.syscall(trace, 16, 1, 0, 0) != -1 or ctypes.get_errno() != errno.EPERM:
    print("ptrace of process 1", errno.errorcode.get(ctypes.get_errno()))
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
if system.syscall(trace, 16, child, 0, 0) != 0:
    print("ptrace of a child", errno.errorcode.get(ctypes.get_errno()))
os.kill(child, 9)
from multiprocessing import Pool, shared_memory
shared = shared_memory.SharedMemory(create=True, size=4096)
shared.buf[:2] = b"ok"
with Pool(2) as pool:
    print(sum(pool.map(abs, [-1, 2])), bytes(shared.buf[:2]).decode())
shared.unlink()
"#;

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_system_calls_are_refused() {
    let fixture = SessionFixture::new();
    let came = fixture
        .once(json!({"argv": ["python3", "-c", CALLS]}))
        .await;
    assert_eq!(
        (came.ended.as_str(), came.stdout.as_str()),
        ("0", "3 ok\n"),
        "{came:?}"
    );
    fixture.engine.shutdown().await;
}

/// Tries to read and change the first process of the sandbox, and prints what is not refused; then
/// what is refused of another process of the same user, which a debugger may read and change.
const FIRST: &str = r#"
import ctypes, errno, os, platform, subprocess, time
system = ctypes.CDLL(None, use_errno=True)
readv, writev, getfd = {"x86_64": (310, 311, 438), "aarch64": (270, 271, 438)}[platform.machine()]
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(8)
local = Part(ctypes.addressof(buffer), 8)
def moves(number, pid, address):
    remote = Part(address, 8)
    # The last argument is passed on the stack, where an int would leave half of its word as it was.
    return system.syscall(number, pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, ctypes.c_ulong(0)) == 8
def opens(path, flags):
    try:
        os.close(os.open(path, flags))
        return True
    except PermissionError:
        return False
for name in "mem", "environ", "auxv", "maps", "smaps", "pagemap", "clear_refs", "timers", "oom_score_adj", "coredump_filter":
    for flags in os.O_RDONLY, os.O_WRONLY, os.O_RDWR:
        path = f"/proc/1/{name}"
        # Some are readable by everybody, or writable by nobody, as their mode says.
        if name in ("mem", "environ", "auxv", "pagemap") or flags != os.O_RDONLY:
            if opens(path, flags): print(path, flags)
for name in "exe", "root", "cwd", "ns/user", "ns/mnt", "ns/pid", "ns/net", "fd/0":
    try:
        os.readlink(f"/proc/1/{name}")
        print("link", name)
    except PermissionError:
        pass
for name in "fd", "fdinfo", "map_files", "task/1/fd":
    try:
        os.listdir(f"/proc/1/{name}")
        print("list", name)
    except PermissionError:
        pass
for number in readv, writev:
    # Every mapping of this program: its own copy lies at another address, but one of these would be there.
    for address in 0x400000, id(buffer), ctypes.addressof(buffer):
        ctypes.set_errno(0)
        if moves(number, 1, address) or ctypes.get_errno() != errno.EPERM:
            print("process_vm", number, errno.errorcode.get(ctypes.get_errno()))
pidfd = os.pidfd_open(1)
if system.syscall(getfd, pidfd, 0, 0) != -1: print("pidfd_getfd")
for signal in 9, 19, 15, 2, 11:
    os.kill(1, signal)
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
if not opens(f"/proc/{child}/mem", os.O_RDWR): print("memory of a child")
if not moves(readv, child, ctypes.addressof(buffer)): print("readv of a child", errno.errorcode.get(ctypes.get_errno()))
os.kill(child, 9)
print("ok")
"#;

#[tokio::test(flavor = "multi_thread")]
async fn first_process_is_closed_to_commands() {
    let fixture = SessionFixture::new();
    let came = fixture
        .once(json!({"argv": ["python3", "-c", FIRST]}))
        .await;
    assert_eq!(
        (came.ended.as_str(), came.stdout.as_str()),
        ("0", "ok\n"),
        "{came:?}"
    );
    // It collects what a command leaves behind, and is gone with the command.
    let script = "for n in 1 2 3; do (sleep 0.0$n &) ; done; while grep -qx sleep /proc/[0-9]*/comm; do :; done; echo gone";
    assert_eq!(
        fixture
            .once(json!({"sh": script, "merge": true}))
            .await
            .stdout
            .lines()
            .last(),
        Some("gone")
    );
    fixture.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn host_is_not_described_in_proc() {
    let fixture = SessionFixture::new();
    let script = "for f in cmdline config.gz kallsyms kcore kmsg keys key-users modules iomem ioports interrupts timer_list \
                  slabinfo vmallocinfo partitions diskstats kpageflags; do \
                  if [ -e /proc/$f ] && head -c 1 /proc/$f >/dev/null 2>&1; then echo $f; fi; done; \
                  for d in acpi asound fs scsi driver; do [ -d /proc/$d ] && ls /proc/$d; done; \
                  touch /proc/fs/x 2>/dev/null && echo written; umount /proc/cmdline 2>/dev/null && echo unmounted; \
                  cat /proc/1/cmdline /proc/self/cgroup | tr '\\0' ' '; \
                  for f in meminfo cpuinfo stat uptime loadavg version filesystems self/status; do cat /proc/$f >/dev/null || echo $f; done";
    let came = fixture.sh(script).await;
    let host = std::fs::read_to_string("/proc/cmdline").unwrap();
    assert!(!came.stdout.contains(host.trim()), "{came:?}");
    let lines: Vec<&str> = came
        .stdout
        .lines()
        .filter(|line| !line.contains(":/"))
        .collect();
    assert!(
        lines
            .iter()
            .all(|line| line.starts_with("/run/helmdeck __sandbox limits")),
        "{lines:?}"
    );
    fixture.engine.shutdown().await;
}

/// Makes every system call that there can be, with bad arguments, in a child each, and prints those
/// that came through: `number error`. Calls that would end or block the child are left out.
const EVERY: &str = r#"
import ctypes, errno, os, signal, sys
system = ctypes.CDLL(None, use_errno=True)
skip = set(map(int, sys.argv[1].split(",")))
for number in [*range(0, 600), *range(1024, 1100)]:
    if number in skip: continue
    r, w = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(2)
        ctypes.set_errno(0)
        came = system.syscall(number, -1, -1, -1, -1, -1, -1)
        os.write(w, f"{number} {0 if came != -1 else ctypes.get_errno()}\n".encode())
        os._exit(0)
    os.close(w)
    os.waitpid(child, 0)
    sys.stdout.write(os.read(r, 100).decode())
    os.close(r)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn unlisted_system_calls_do_not_exist() {
    let fixture = SessionFixture::new();
    let list = include_str!("../src/sandbox/calls.txt");
    let column = if cfg!(target_arch = "aarch64") { 3 } else { 2 };
    let listed = |word: &str| -> std::collections::BTreeSet<u32> {
        let lines = list
            .lines()
            .filter(|line| line.split(' ').next() == Some(word));
        lines
            .filter_map(|line| line.split(' ').nth(column)?.parse().ok())
            .collect()
    };
    let (allowed, refused) = (listed("allow"), listed("refuse"));
    // The kernel passes these two on without a filter: they only work where it put them itself
    // (`uretprobe`, `uprobe`).
    let probes: &[u32] = if cfg!(target_arch = "x86_64") {
        &[335, 336]
    } else {
        &[]
    };
    let skip: Vec<String> = allowed
        .iter()
        .chain(probes)
        .map(ToString::to_string)
        .collect();
    let came = fixture
        .once(json!({"argv": ["python3", "-c", EVERY, skip.join(",")]}))
        .await;
    assert_eq!(came.ended, "0", "{came:?}");
    let mut seen = 0;
    for line in came.stdout.lines() {
        let (number, error) = line.split_once(' ').unwrap();
        let (number, error): (u32, i32) = (number.parse().unwrap(), error.parse().unwrap());
        let expected = if refused.contains(&number) {
            libc_error::EPERM
        } else {
            libc_error::ENOSYS
        };
        assert_eq!(error, expected, "system call {number}");
        seen += 1;
    }
    assert!(seen > 300, "{came:?}");
    fixture.engine.shutdown().await;
}

mod libc_error {
    pub(super) const EPERM: i32 = 1;
    pub(super) const ENOSYS: i32 = 38;
}

/// Calls of which only some arguments are refused.
const ARGUMENTS: &str = r#"
import ctypes, errno, os, platform, threading
system = ctypes.CDLL(None, use_errno=True)
clone, clone3, personality, unshare = {"x86_64": (56, 435, 135, 272), "aarch64": (220, 435, 92, 97)}[platform.machine()]
def error(*call):
    ctypes.set_errno(0)
    came = system.syscall(*(ctypes.c_ulong(a & 2**64 - 1) for a in call))
    if came == 0 and call[0] == clone: os._exit(0)
    return 0 if came != -1 else ctypes.get_errno()
for flag in 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x7e020000, 0x10020000:
    for more in 17, 17 | 0x100 << 32:
        if error(clone, flag | more, 0, 0, 0, 0) != errno.EPERM: print("clone", hex(flag | more))
if error(clone, 17, 0, 0, 0, 0) != 0: print("fork by clone")
if error(clone3, 0, 88) != errno.ENOSYS: print("clone3")
mmap, memfd = {"x86_64": (9, 319), "aarch64": (222, 279)}[platform.machine()]
for size in 0, 21 << 26, 30 << 26:
    if error(mmap, 0, 1 << 21, 3, 0x40022 | size, -1, 0) != errno.EPERM: print("mmap", size)
    name = ctypes.create_string_buffer(b"x")
    if error(memfd, ctypes.addressof(name), 4 | size) != errno.EPERM: print("memfd_create", size)
for which in 0x1, 0x5, 0x400, 0x100000, 0x400000, 0x800000, 0x2000000, 0x8000000:
    if error(personality, which) != errno.EPERM: print("personality", hex(which))
for which in 0xffffffff, 0, 0x40000, 0:
    if error(personality, which) != 0: print("personality", hex(which), "is refused")
threads = [threading.Thread(target=lambda: None) for _ in range(20)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("ok")
"#;

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_and_other_domains_are_refused() {
    let fixture = SessionFixture::new();
    let came = fixture
        .once(json!({"argv": ["python3", "-c", ARGUMENTS]}))
        .await;
    assert_eq!(
        (came.ended.as_str(), came.stdout.as_str()),
        ("0", "ok\n"),
        "{came:?}"
    );
    fixture.engine.shutdown().await;
}

/// Opens a socket and a pair of each family, as either ABI, and prints what is not as it should be:
/// the four families of the network namespace open, all others are `EPERM`.
const FAMILIES: &str = r#"
import ctypes, errno, platform
socket, pair = {"x86_64": (41, 53), "aarch64": (198, 199)}[platform.machine()]
system = ctypes.CDLL(None, use_errno=True)
two = (ctypes.c_int * 2)()
for x32 in {0, 0x40000000 if platform.machine() == "x86_64" else 0}:
    for family in [*range(0, 65), 2**31 - 1, 2**32 + 40]:
        for number, arguments in ((socket, (family, 1, 0)), (pair, (family, 1, 0, two))):
            ctypes.set_errno(0)
            came = system.syscall(number | x32, *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
            refused = came == -1 and ctypes.get_errno() == errno.EPERM
            if refused == (family in (1, 2, 10, 16)):
                print(hex(number | x32), family, came, errno.errorcode.get(ctypes.get_errno()))
import socket
for family in socket.AF_UNIX, socket.AF_INET, socket.AF_INET6:
    socket.socket(family).close()
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()
for pair in socket.socketpair():
    pair.close()
print("ok")
"#;

#[tokio::test(flavor = "multi_thread")]
async fn sockets_outside_the_network_namespace_are_refused() {
    let fixture = SessionFixture::new();
    let came = fixture
        .once(json!({"argv": ["python3", "-c", FAMILIES]}))
        .await;
    assert_eq!(
        (came.ended.as_str(), came.stdout.as_str()),
        ("0", "ok\n"),
        "{came:?}"
    );
    fixture.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_variables_stay_out_of_process_lists() {
    let fixture = SessionFixture::new();
    // The linker writes to stderr about every program that it starts.
    let came = fixture
        .once(json!({"argv": ["/usr/bin/env"], "env": {"LD_DEBUG": "files", "PATH": "/nowhere"}}))
        .await;
    assert_eq!(came.ended, "0", "{came:?}");
    assert!(
        came.stderr.contains("transferring control: /usr/bin/env"),
        "{came:?}"
    );
    assert_eq!(
        came.stderr.matches("transferring control").count(),
        1,
        "{came:?}"
    );
    assert!(came.stdout.contains("PATH=/nowhere\n"), "{came:?}");
    // One that is longer than a pipe holds, and an input after it.
    let long = "x".repeat(100_000);
    let input = json!({"sh": "echo ${#LONG}; cat", "env": {"LONG": long}, "stdin": "the input"});
    assert_eq!(fixture.once(input).await.stdout, "100000\nthe input");
    let script = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo; [ -n \"$WHAT\" ] && sleep 198712";
    let call = fixture.once(json!({"sh": script, "env": {"WHAT": "the-value-of-a-variable"}}));
    let mut call = std::pin::pin!(call);
    let began = async {
        while !is_running("sleep\u{0}198712") {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let seen = is_running("the-value-of-a-variable");
        end_running("sleep\u{0}198712");
        seen
    };
    let seen = tokio::select! { came = &mut call => panic!("{came:?}"), seen = began => seen };
    assert!(!seen, "seen from outside");
    let came = call.await;
    assert!(
        came.stdout.contains("sleep 198712") && !came.stdout.contains("the-value-of"),
        "{came:?}"
    );
    fixture.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_lines_inside_show_no_host_path() {
    let fixture = SessionFixture::new();
    let came = fixture
        .sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '; readlink /proc/[0-9]*/fd/*")
        .await;
    let data = fixture.data.path().to_str().unwrap();
    assert!(
        came.stdout.contains("/run/helmdeck") && !came.stdout.contains(data),
        "{came:?}"
    );
    assert!(
        !came.stdout.contains(env!("CARGO_BIN_EXE_helmdeck")) && !came.stdout.contains("memfd"),
        "{came:?}"
    );
    fixture.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_forked_processes_share_counts_once() {
    let fixture = SessionFixture::with(|config| config.sessions.memory = 400 << 20);
    let script = "import os, time\n\
         held = bytearray(os.urandom(1)) * (100 << 20)\n\
         for _ in range(8):\n\
         \x20   if os.fork() == 0:\n\
         \x20       time.sleep(1); os._exit(0)\n\
         for _ in range(8): os.wait()\n\
         print(sum(held[::1 << 20]) == 100 * held[0])\n";
    let came = fixture
        .once(json!({"argv": ["python3", "-c", script]}))
        .await;
    assert_eq!(
        (came.ended.as_str(), came.stdout.as_str()),
        ("0", "True\n"),
        "{came:?}"
    );
    // As soon as each has its own, it counts for each.
    let script = script.replace(
        "time.sleep(1)",
        "held[:] = bytes(100 << 20); time.sleep(1000)",
    );
    let came = fixture
        .once(json!({"argv": ["python3", "-c", script]}))
        .await;
    assert_eq!(came.ended, "OutOfMemory", "{came:?}");
    fixture.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_sandbox_is_reported_as_killed() {
    let fixture = SessionFixture::new();
    let call = fixture.sh("cat /proc/self/oom_score_adj; sleep 287612");
    let killed = async {
        let supervisor = loop {
            let running = is_running("sleep\u{0}287612");
            if let (true, Some(pid)) = (running, supervisor("287612")) {
                break pid;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        let own = std::fs::read_to_string(format!("/proc/{supervisor}/oom_score_adj")).unwrap();
        assert!(
            Command::new("kill")
                .args(["-9", &supervisor])
                .status()
                .unwrap()
                .success()
        );
        own
    };
    let (came, own) = tokio::join!(call, killed);
    assert_eq!(
        (came.ended.as_str(), came.stdout.as_str()),
        ("Signalled(9)", "1000\n"),
        "{came:?}"
    );
    assert_eq!(
        own,
        std::fs::read_to_string("/proc/self/oom_score_adj").unwrap()
    );
    wait_for("the command to be gone", || !is_running("sleep\u{0}287612"));
    fixture.engine.shutdown().await;
}

/// Returns the process that waits for a command with this in its line.
fn supervisor(marker: &str) -> Option<String> {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().into_string().unwrap());
    let matches = |pid: &String| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.split('\0').nth(2) == Some("supervise") && line.contains(marker)
    };
    pids.into_iter().find(matches)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_session_has_no_network_either() {
    let data = tempfile::tempdir().unwrap();
    let builtins = vec![
        runs("keep", "preserve = true"),
        runs("net", "network = true"),
    ];
    let engine = Engine::builder(Config::default())
        .builtins(builtins)
        .sessions(place(data.path()))
        .build();
    let call = |pack: &str, input: serde_json::Value| {
        engine.call(Call::new(
            PackName::new(pack).unwrap(),
            input.to_string(),
            Arc::new(Identity::local()),
        ))
    };
    let id = call("test.keep", json!({"sh": "true"}))
        .await
        .unwrap()
        .session_id
        .unwrap();
    let error = call("test.net", json!({"sh": "true", "_session_id": &*id}))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::SessionUnavailable);
    assert!(error.message().contains("network"), "{}", error.message());
    assert!(
        call("test.keep", json!({"sh": "true", "_session_id": &*id}))
            .await
            .is_ok()
    );
    engine.shutdown().await;
}

#[test]
fn data_folder_cannot_be_mounted_for_commands() {
    let home = Home::new();
    let data = home.data();
    std::fs::create_dir_all(&data).unwrap();
    let refused = |name: &str, value: &std::path::Path| {
        let mut command = home.command(KEY, &["session", "list"]);
        Run::of(command.env(name, value).output().unwrap())
    };
    for path in [
        &data,
        &data.join("helmdeck.db"),
        &data.parent().unwrap().to_owned(),
    ] {
        let run = refused("HELMDECK_SESSIONS__READ_ONLY_PATHS", path);
        assert_ne!(run.code, 0, "{}", path.display());
        assert!(
            run.stderr.contains("sessions: read_only_paths"),
            "{}",
            run.stderr
        );
    }
    assert_eq!(
        refused("HELMDECK_SESSIONS__READ_ONLY_PATHS", "/opt".as_ref()).code,
        0
    );
    let run = refused(
        "HELMDECK_DATA_DIR",
        "/usr/share/no-such-folder-of-helmdeck".as_ref(),
    );
    assert!(
        run.code != 0 && run.stderr.contains("/usr"),
        "{}",
        run.stderr
    );
}

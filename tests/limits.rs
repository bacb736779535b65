//! Limits of commands that the kernel keeps: memory, swap and processes by a cgroup, the folder by
//! a file system.
//!
//! Where this machine offers neither, the tests check that `helmdeck check` says so, and that
//! `sessions.require_limits` refuses to run.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use helmdeck_core::{Code, Identity};
use helmdeck_testkit::wait_for;
use serde_json::json;

use crate::support::KEY;
use crate::support::program::Home;
use crate::support::sessions::{Came, SessionFixture, cgroup_of, is_running};

/// What this machine enforces, by what the engine says of it.
struct Enforced {
    memory: bool,
    disk: bool,
}

impl Enforced {
    async fn of(fixture: &SessionFixture) -> Self {
        let said = fixture.engine.probe_sessions().await.unwrap();
        let enforced = Self {
            memory: !said.contains("have no cgroup"),
            disk: !said.contains("no file system of their own"),
        };
        assert_eq!(
            said.contains("limits are enforced"),
            enforced.memory && enforced.disk,
            "{said}"
        );
        assert_eq!(
            said.contains("best effort"),
            !(enforced.memory && enforced.disk),
            "{said}"
        );
        enforced
    }
}

/// Python that takes 600 MiB, one way for each line: name, and what takes one of 12 parts of 50
/// MiB.
///
/// `size` is the size of a part, `keep` holds what has to live on.
const MEMORY: &[(&str, &str)] = &[
    ("anonymous", "keep.append(bytearray(b'x') * size)"),
    (
        "anonymous_mapping",
        "m = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m.write(b'x' * size); keep.append(m)",
    ),
    (
        "shared_mapping",
        "m = mmap.mmap(-1, size); m.write(b'x' * size); keep.append(m)",
    ),
    (
        "forked",
        "\nif os.fork() == 0:\n    keep.append(bytearray(b'x') * size); time.sleep(1000)",
    ),
    ("memfd_open", "keep.append(memfd())"),
    (
        "memfd_in_flight",
        "f = memfd(); socket.send_fds(near, [b'x'], [f]); os.close(f)",
    ),
    (
        "memfd_in_nested_flight",
        "a, b = socket.socketpair(); f = memfd(); socket.send_fds(a, [b'x'], [f]); os.close(f)\n\
         socket.send_fds(near, [b'x'], [b.fileno()]); b.close(); keep.append(a)",
    ),
    (
        "memfd_mapped_untouched",
        "f = memfd(); keep.append(mmap.mmap(f, size)); os.close(f)",
    ),
    (
        "memfd_mapped_one_page",
        "f = memfd(); m = mmap.mmap(f, size); os.close(f); os.ftruncate; m[0]; keep.append(m)",
    ),
    (
        "memfd_sealed",
        "f = memfd(os.MFD_ALLOW_SEALING); fcntl.fcntl(f, 1033, 14); keep.append(f)",
    ),
    (
        "memfd_in_a_child",
        "f = memfd()\nif os.fork() == 0: time.sleep(1000)\nos.close(f)",
    ),
    ("tmpfs_file", "open(f'/tmp/{n}', 'wb').write(b'x' * size)"),
    (
        "tmpfs_unlinked_in_flight",
        "f = unlinked('/tmp'); socket.send_fds(near, [b'x'], [f]); os.close(f)",
    ),
    (
        "tmpfs_unlinked_mapped",
        "f = unlinked('/dev/shm'); keep.append(mmap.mmap(f, size)); os.close(f)",
    ),
    ("shm_file", "open(f'/dev/shm/{n}', 'wb').write(b'x' * size)"),
    (
        "socket_buffers",
        "\nfor _ in range(280):\n    a, b = socket.socketpair(); a.setblocking(False); keep += [a, b]\n    fill(a)",
    ),
    // What a user holds in pipes is bounded by the kernel itself (fs.pipe-user-pages-soft, 64 MiB).
];

/// Python that takes 240 MiB of the session's folder, as [`MEMORY`] does of memory.
const DISK: &[(&str, &str)] = &[
    ("named", "open(f'file-{n}', 'wb').write(b'x' * size)"),
    (
        "sparse_then_filled",
        "f = open(f'file-{n}', 'wb'); f.truncate(size); f.write(b'x' * size); f.flush(); keep.append(f)",
    ),
    (
        "allocated",
        "f = os.open(f'file-{n}', os.O_CREAT | os.O_RDWR); os.posix_fallocate(f, 0, size)",
    ),
    ("unlinked_open", "keep.append(unlinked('.'))"),
    (
        "unlinked_in_flight",
        "f = unlinked('.'); socket.send_fds(near, [b'x'], [f]); os.close(f)",
    ),
    (
        "unlinked_mapped_untouched",
        "f = unlinked('.'); keep.append(mmap.mmap(f, size)); os.close(f)",
    ),
    (
        "unlinked_in_a_child",
        "f = unlinked('.')\nif os.fork() == 0: time.sleep(1000)\nos.close(f)",
    ),
    (
        "tmpfile",
        "f = os.open('.', os.O_TMPFILE | os.O_RDWR); write(f); socket.send_fds(near, [b'x'], [f]); os.close(f)",
    ),
    (
        "removed_folder",
        "os.mkdir('d'); f = os.open('d/x', os.O_CREAT | os.O_RDWR); os.unlink('d/x'); os.rmdir('d'); write(f)\nsocket.send_fds(near, [b'x'], [f]); os.close(f)",
    ),
];

/// Returns the script of a case. It prints `held` when it holds everything, and then stays.
fn script(part: &str, mebibytes: u32) -> String {
    format!(
        "import fcntl, mmap, os, socket, sys, time\n\
         size, keep = {mebibytes} << 20, []\n\
         near, far = socket.socketpair()\n\
         def write(f):\n\
         \x20   left = memoryview(b'x' * size)\n\
         \x20   while left: left = left[os.write(f, left):]\n\
         def memfd(flags=0):\n\
         \x20   f = os.memfd_create('x', flags); write(f); return f\n\
         def unlinked(folder):\n\
         \x20   f = os.open(folder + '/gone', os.O_CREAT | os.O_EXCL | os.O_RDWR); os.unlink(folder + '/gone'); write(f); return f\n\
         def fill(f):\n\
         \x20   block = b'x' * (1 << 16)\n\
         \x20   try:\n\
         \x20       while True: f.send(block) if hasattr(f, 'send') else os.write(f, block)\n\
         \x20   except BlockingIOError: pass\n\
         for n in range(12):\n\
         {}\n\
         print('held', flush=True)\n\
         time.sleep(1000)\n",
        part.lines()
            .map(|line| format!("    {line}\n"))
            .collect::<String>()
    )
}

/// Runs a case, at most this long.
async fn take(fixture: &SessionFixture, part: &str, mebibytes: u32, seconds: u32) -> Came {
    let input = json!({"argv": ["python3", "-c", script(part, mebibytes), "marker-of-limits"], "timeout_ms": seconds * 1000});
    fixture.once(input).await
}

/// Cases that the counting from outside sees, with or without a cgroup.
const SEEN: &[&str] = &[
    "anonymous",
    "anonymous_mapping",
    "shared_mapping",
    "forked",
    "memfd_open",
    "memfd_in_a_child",
];

#[tokio::test(flavor = "multi_thread")]
async fn memory_limit_holds_however_memory_is_held() {
    let fixture = SessionFixture::with(|config| {
        config.sessions.memory = 200 << 20;
        config.sessions.tmp = 1 << 30;
        config.sessions.open_files = 8192;
    });
    let enforced = Enforced::of(&fixture).await;
    for (name, part) in MEMORY {
        if !enforced.memory && !SEEN.contains(name) {
            continue;
        }
        // Long enough to be no reason for the end.
        let came = take(&fixture, part, 50, 300).await;
        assert_eq!(came.ended, "OutOfMemory", "{name}: {came:?}");
        wait_for(name, || !is_running("marker-of-limits"));
    }
    // Below the limit each of them works.
    for (name, part) in MEMORY.iter().filter(|(name, _)| !name.ends_with("buffers")) {
        let script = script(part, 5).replace("time.sleep(1000)\n", "os._exit(0)\n");
        let came = fixture
            .once(json!({"argv": ["python3", "-c", script]}))
            .await;
        assert_eq!(
            (came.ended.as_str(), came.stdout.as_str()),
            ("0", "held\n"),
            "{name}: {came:?}"
        );
    }
    fixture.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disk_limit_holds_however_room_is_held() {
    let fixture = SessionFixture::with(|config| config.sessions.disk = 60 << 20);
    let enforced = Enforced::of(&fixture).await;
    for (name, part) in DISK {
        if !enforced.disk
            && name.contains("flight")
                | name.contains("mapped")
                | (*name == "tmpfile" || *name == "removed_folder")
        {
            continue;
        }
        let came = take(&fixture, part, 20, 300).await;
        // The kernel refuses the write, or the command is killed because its folder is full.
        let refused = came.ended == "1" && came.stderr.contains("No space left on device");
        assert!(came.ended == "OutOfDisk" || refused, "{name}: {came:?}");
        assert!(!came.stdout.contains("held"), "{name}: {came:?}");
        assert!(enforced.disk || !refused, "{name}: {came:?}");
    }
    for (name, part) in DISK {
        let script = script(part, 2).replace("time.sleep(1000)\n", "os._exit(0)\n");
        let came = fixture
            .once(json!({"argv": ["python3", "-c", script]}))
            .await;
        assert_eq!(
            (came.ended.as_str(), came.stdout.as_str()),
            ("0", "held\n"),
            "{name}: {came:?}"
        );
    }
    fixture.engine.shutdown().await;
    assert!(fixture.folders().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn required_limits_refuse_to_run_without() {
    let fixture = SessionFixture::new();
    let enforced = Enforced::of(&fixture).await;
    let required = SessionFixture::with(|config| config.sessions.require_limits = true);
    let call = required
        .call_as(&Identity::local(), "once", json!({"sh": "echo ran"}))
        .await;
    if enforced.memory && enforced.disk {
        assert_eq!(call.unwrap().0.stdout, "ran\n");
        required.engine.probe_sessions().await.unwrap();
    } else {
        let error = call.unwrap_err();
        assert_eq!(error.code(), Code::SessionUnavailable);
        assert!(
            error.message().contains("sessions.require_limits"),
            "{}",
            error.message()
        );
        let error = required.engine.probe_sessions().await.unwrap_err();
        assert!(
            error.message().contains("sessions.require_limits"),
            "{}",
            error.message()
        );
        assert!(required.folders().is_empty(), "no session is made");
        // A session that was made without the setting runs nothing with it, either.
        let session = fixture.kept(&Identity::local(), "true").await;
        let strict = SessionFixture::engine(fixture.data.path(), |config| {
            config.sessions.require_limits = true
        });
        let session = strict
            .session(&Identity::local(), session.id())
            .await
            .unwrap();
        let error = session
            .exec(helmdeck_core::session::Exec::new(["true"]))
            .await
            .unwrap_err();
        assert_eq!(error.code(), Code::SessionUnavailable);
        strict.shutdown().await;
    }
    required.engine.shutdown().await;
    fixture.engine.shutdown().await;
}

#[test]
fn check_says_how_limits_are_kept() {
    let home = Home::new();
    let run = home.run(KEY, &["check"]);
    assert!(
        run.stdout.contains("limits are enforced")
            || run.stdout.contains("limits are best effort ("),
        "{}",
        run.stdout
    );
    let required = home
        .command(KEY, &["check"])
        .env("HELMDECK_SESSIONS__REQUIRE_LIMITS", "true")
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&required.stdout),
        String::from_utf8_lossy(&required.stderr)
    );
    match run.stdout.contains("limits are enforced") {
        true => assert!(text.contains("limits are enforced"), "{text}"),
        false => assert!(text.contains("sessions.require_limits is set"), "{text}"),
    }
    // It changes nothing: no folder, no cgroup.
    assert!(!home.data().join("sessions").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn session_folder_is_read_and_written_from_outside() {
    let fixture = SessionFixture::with(|config| config.sessions.disk = 30 << 20);
    let enforced = Enforced::of(&fixture).await;
    let session = fixture
        .kept(&Identity::local(), "mkdir in; echo inside > in/file; ls -A")
        .await;
    let folder = session.folder().to_owned();
    assert_eq!(
        std::fs::read_to_string(folder.join("in/file")).unwrap(),
        "inside\n"
    );
    std::fs::write(folder.join("out"), "outside\n").unwrap();
    let run = |argv: &[&str]| {
        let exec = helmdeck_core::session::Exec::new(argv.iter().copied());
        let session = &session;
        async move { session.exec(exec).await.unwrap() }
    };
    let executed = run(&["sh", "-c", "cat out; echo more >> out; ls -A"]).await;
    assert_eq!(
        String::from_utf8_lossy(&executed.stdout.head),
        "outside\nin\nout\n"
    );
    assert_eq!(
        std::fs::read_to_string(folder.join("out")).unwrap(),
        "outside\nmore\n"
    );
    let device = |path: &std::path::Path| std::fs::metadata(path).unwrap().dev();
    let own = device(&folder) != device(folder.parent().unwrap());
    // A folder that all sessions share is enforced, too.
    assert!(!own || enforced.disk);
    if own {
        // helmdeck's own writes are limited as well.
        let error = std::fs::write(folder.join("big"), vec![1; 60 << 20]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert_eq!(mounts().contains(folder.to_str().unwrap()), own);
    // One engine sees what another has made.
    let other = SessionFixture::engine(fixture.data.path(), |_| {});
    let same = other
        .session(&Identity::local(), session.id())
        .await
        .unwrap();
    assert_eq!(
        std::fs::read_to_string(same.folder().join("in/file")).unwrap(),
        "inside\n"
    );
    other.shutdown().await;
    fixture
        .engine
        .end_session(Some(&Identity::local()), session.id())
        .await
        .unwrap();
    assert!(
        fixture.folders().is_empty() && !mounts().contains(folder.to_str().unwrap()),
        "nothing stays mounted"
    );
    fixture.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_whose_mount_is_gone_is_mounted_again() {
    let fixture = SessionFixture::new();
    let session = fixture.kept(&Identity::local(), "echo here > file").await;
    let folder = session.folder().to_owned();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    if !mounts.contains(folder.to_str().unwrap()) {
        assert!(folder.join("file").exists());
        fixture.engine.shutdown().await;
        return;
    }
    // As after a restart of a container.
    assert!(
        Command::new("umount")
            .arg(&folder)
            .status()
            .unwrap()
            .success()
    );
    // Sandboxes of other tests have a copy of the mount, until they end.
    let other = SessionFixture::engine(fixture.data.path(), |_| {});
    let same = async || {
        other
            .session(&Identity::local(), session.id())
            .await
            .is_ok()
    };
    helmdeck_testkit::until("the image to be free", same).await;
    let same = other
        .session(&Identity::local(), session.id())
        .await
        .unwrap();
    let executed = same
        .exec(helmdeck_core::session::Exec::new(["cat", "file"]))
        .await
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&executed.stdout.head), "here\n");
    other.shutdown().await;
    fixture
        .engine
        .end_session(Some(&Identity::local()), session.id())
        .await
        .unwrap();
    assert!(fixture.folders().is_empty());
    fixture.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_is_in_its_cgroup_from_the_start() {
    let fixture = SessionFixture::with(|config| config.sessions.memory = 300 << 20);
    let enforced = Enforced::of(&fixture).await;
    let session = fixture
        .kept(&Identity::local(), "cat /proc/self/cgroup")
        .await;
    let running = {
        let exec = helmdeck_core::session::Exec::new(["sleep", "409281"]);
        let session = std::sync::Arc::clone(&session);
        tokio::spawn(async move { session.exec(exec).await })
    };
    while !is_running("sleep\u{0}409281") {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    // What starts the command has its words too, and enters the cgroup before it.
    let own = || cgroup_of("sleep\u{0}409281");
    wait_for("the cgroup", || own().is_some() || !enforced.memory);
    let own = own();
    if let Some(own) = &own {
        let read = |name: &str| {
            std::fs::read_to_string(own.join(name))
                .unwrap()
                .trim()
                .to_owned()
        };
        assert_eq!(read("memory.max"), (300 << 20).to_string());
        assert_eq!(read("memory.oom.group"), "1");
        assert_eq!(read("pids.max"), "264");
        if own.join("memory.swap.max").exists() {
            assert_eq!(read("memory.swap.max"), "0");
        }
        // Everything of the command is in there: the processes around it, too.
        let lines: Vec<String> = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| {
                let path = entry.unwrap().path();
                let line = String::from_utf8_lossy(&std::fs::read(path.join("cmdline")).ok()?)
                    .into_owned();
                line.contains("409281")
                    .then(|| std::fs::read_to_string(path.join("cgroup")).unwrap_or_default())
            })
            .collect();
        let name = own.file_name().unwrap().to_str().unwrap();
        assert!(
            lines.len() > 1 && lines.iter().all(|line| line.contains(name)),
            "{lines:?}"
        );
    }
    fixture
        .engine
        .end_session(Some(&Identity::local()), session.id())
        .await
        .unwrap();
    assert_eq!(
        running.await.unwrap().unwrap_err().code(),
        Code::SessionUnavailable
    );
    assert!(
        own.is_none_or(|own| !own.exists()),
        "the cgroup goes with its command"
    );
    fixture.engine.shutdown().await;
}

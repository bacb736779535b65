//! Tests of what commands of a session see, reach and take.
//!
//! Everything here runs in the real sandbox, by the real program.

use std::io::Read;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use helmdeck_core::Identity;
use serde_json::json;

use crate::support::sessions::{Came, SessionFixture, folders, is_running};
use crate::support::wait_for;

#[tokio::test(flavor = "multi_thread")]
async fn command_sees_only_its_folder_and_environment() {
    let fixture = SessionFixture::new();
    let came = fixture
        .sh("pwd; echo $HOME; id -u; cat; touch here && ls; test -w /tmp; echo out >&2; exit 3")
        .await;
    assert_eq!((came.ended.as_str(), came.stderr.as_str()), ("3", "out\n"));
    assert_eq!(came.stdout, "/workspace\n/workspace\n1000\nhere\n");
    let came = fixture
        .sh("env; tr '\\0' '\\n' < /proc/1/environ; cat /proc/[0-9]*/environ | tr '\\0' '\\n'")
        .await;
    for line in came.stdout.lines() {
        let name = line.split('=').next().unwrap_or_default();
        let known = [
            "PATH",
            "HOME",
            "PWD",
            "TMPDIR",
            "USER",
            "LOGNAME",
            "SHELL",
            "LANG",
            "TZ",
            "TERM",
            "PAGER",
            "PYTHONDONTWRITEBYTECODE",
            "GIT_CONFIG_NOSYSTEM",
            "GIT_TERMINAL_PROMPT",
            "OLDPWD",
            "SHLVL",
            "_",
        ];
        assert!(known.contains(&name), "{line}");
    }
    assert!(came.stdout.contains("TERM=dumb"));
    fixture.engine.shutdown().await;
    assert!(fixture.folders().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn input_output_folder_and_variables_are_as_asked() {
    let fixture = SessionFixture::new();
    let came = fixture
        .once(json!({"argv": ["cat"], "stdin": "x".repeat(1 << 20)}))
        .await;
    assert_eq!(
        (came.ended.as_str(), came.stdout.len(), came.left_out),
        ("0", 1 << 20, 0)
    );
    // A command that does not read does not hang.
    let came = fixture
        .once(json!({"argv": ["true"], "stdin": "x".repeat(1 << 20)}))
        .await;
    assert_eq!(came.ended, "0");
    let input =
        json!({"sh": "echo a; echo b >&2; echo c; echo $WHO", "merge": true, "env": {"WHO": "me"}});
    let came = fixture.once(input).await;
    assert_eq!(
        (came.stdout.as_str(), came.stderr.as_str()),
        ("a\nb\nc\nme\n", "")
    );
    let came = fixture.once(json!({"argv": ["no-such-program"]})).await;
    assert_eq!(came.ended, "127");
    assert!(came.stderr.contains("no-such-program"), "{came:?}");
    let came = fixture
        .once(json!({"argv": ["true"], "cwd": "not/there"}))
        .await;
    assert_eq!(came.ended, "126", "{came:?}");
    let came = fixture.sh("kill -9 $$").await;
    assert_eq!(came.ended, "137", "{came:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "a test has no `Env`")]
async fn nothing_of_this_machine_is_seen_but_programs() {
    let fixture = SessionFixture::new();
    std::fs::write(fixture.data.path().join("helmdeck.db"), "the vault").unwrap();
    let data = fixture.data.path().display();
    let home = std::env::var("HOME").unwrap();
    let came = fixture
        .sh(&format!(
            "for p in /etc/shadow /etc/hostname {data} {data}/helmdeck.db {home} /root /home /var/log /sys /boot \
             /run/systemd /tmp/helmdeck-not-there; do if [ -e $p ]; then echo $p; fi; done; \
             cat /etc/shadow {data}/helmdeck.db 2>/dev/null; ls /run /supplies; cat /etc/passwd"
        ))
        .await;
    assert_eq!(
        came.stdout,
        "/run:\nhelmdeck\n\n/supplies:\nroot:x:0:0:root:/nonexistent:/usr/sbin/nologin\n\
         agent:x:1000:1000:agent:/workspace:/bin/sh\n"
    );
    let came = fixture
        .sh("for p in / /usr /usr/bin /etc /dev /supplies /run /proc/sys/kernel/hostname; do \
             if touch $p/x 2>/dev/null || ( : > $p ) 2>/dev/null; then echo $p; fi; done; \
             ln -s / up && ls up/ >/dev/null; mount -t tmpfs x /tmp 2>/dev/null && echo mounted; \
             unshare -U true 2>/dev/null && echo namespaces; grep -h ^CapEff /proc/self/status; grep NoNewPrivs /proc/self/status")
        .await;
    assert_eq!(
        came.stdout, "CapEff:\t0000000000000000\nNoNewPrivs:\t1\n",
        "{came:?}"
    );
    fixture.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_socket_leads_out() {
    let fixture = SessionFixture::new();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let path = folder.path().join("socket");
    let _unix = UnixListener::bind(&path).unwrap();
    let port = tcp.local_addr().unwrap().port();
    let script = format!(
        "import socket\n\
         for family, address in [(socket.AF_INET, ('127.0.0.1', {port})), (socket.AF_UNIX, {path:?}), \
         (socket.AF_INET, ('1.1.1.1', 53)), (socket.AF_INET6, ('::1', {port}))]:\n\
         \x20   try:\n\
         \x20       s = socket.socket(family); s.settimeout(5); s.connect(address); print('reached', address)\n\
         \x20   except OSError as error:\n\
         \x20       print('closed')\n"
    );
    let came = fixture
        .once(json!({"argv": ["python3", "-c", script]}))
        .await;
    assert_eq!(came.stdout, "closed\n".repeat(4), "{came:?}");
    tcp.set_nonblocking(true).unwrap();
    assert!(tcp.accept().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_output_costs_little_memory() {
    let fixture = SessionFixture::new();
    let came = fixture
        .sh("head -c 1073741824 /dev/zero | tr '\\0' 'x'; echo end")
        .await;
    assert_eq!(came.ended, "0");
    assert_eq!(came.stdout.len() as u64 + came.left_out, (1 << 30) + 4);
    assert!(
        came.stdout.len() <= 1 << 20 && came.stdout.ends_with("xend\n"),
        "{}",
        came.stdout.len()
    );
    let mut status = String::new();
    std::fs::File::open("/proc/self/status")
        .unwrap()
        .read_to_string(&mut status)
        .unwrap();
    let peak: u64 = status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmHWM:")?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .unwrap();
    assert!(peak < 512 << 10, "{peak} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_is_stopped_at_its_limit() {
    let fixture = SessionFixture::with(|config| config.sessions.processes = 64);
    // Counts how many it can start, says so, and leaves them all running.
    let script = "import os, time\n\
         count = 0\n\
         while count < 5000:\n\
         \x20   try:\n\
         \x20       pid = os.fork()\n\
         \x20   except OSError:\n\
         \x20       break\n\
         \x20   if pid == 0:\n\
         \x20       time.sleep(1000)\n\
         \x20   count += 1\n\
         print(count, flush=True)\n";
    let came = fixture
        .once(json!({"argv": ["python3", "-c", script, "marker-of-the-bomb"]}))
        .await;
    let count: u32 = came.stdout.trim().parse().unwrap();
    assert!((10..64).contains(&count), "{count}");
    wait_for("the bomb to be gone", || !is_running("marker-of-the-bomb"));
    let came = fixture
        .once(json!({"argv": ["bash", "-c", ":(){ :|:& };: ; sleep 1000 # marker-of-the-bomb"], "timeout_ms": 1500}))
        .await;
    assert_eq!(came.ended, "TimedOut", "{came:?}");
    assert!(!is_running("marker-of-the-bomb"));
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_hog_is_killed() {
    let fixture = SessionFixture::with(|config| config.sessions.memory = 200 << 20);
    let hogs = [
        "a = []\nwhile True: a.append(bytearray(8 << 20))",
        // Shared by processes that are each small.
        "import os, time\nfor _ in range(8):\n if os.fork() == 0:\n  a = bytearray(os.urandom(1)) * (40 << 20); time.sleep(1000)\ntime.sleep(1000)",
        // In no process's own memory.
        "import os, time\nf = os.memfd_create('x')\nfor _ in range(400): os.write(f, bytes(1 << 20))\ntime.sleep(1000)",
    ];
    for hog in hogs {
        let came = fixture
            .once(json!({"argv": ["python3", "-c", hog, "marker-of-the-hog"]}))
            .await;
        assert_eq!(came.ended, "OutOfMemory", "{hog}: {came:?}");
        assert!(!is_running("marker-of-the-hog"));
    }
    // What is in these folders counts towards the memory, where a cgroup limits it.
    let fixture = SessionFixture::with(|config| config.sessions.memory = 2 << 30);
    let came = fixture
        .sh("head -c 2G /dev/zero > /tmp/x; head -c 2G /dev/zero > /dev/shm/x; du -cm /tmp /dev/shm | tail -1")
        .await;
    let megabytes: u32 = came
        .stdout
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!((500..=520).contains(&megabytes), "{came:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_cannot_be_filled_beyond_its_limit() {
    let fixture = SessionFixture::with(|config| config.sessions.disk = 50 << 20);
    let fills = [
        "for n in $(seq 100); do head -c 10M /dev/zero > $(mktemp -p .) || exit; done; sleep 1000",
        // Files without a name take room as well.
        "import os, time\nfor n in range(40):\n f = os.open('x', os.O_CREAT | os.O_WRONLY); os.unlink('x'); os.write(f, bytes(2 << 20))\ntime.sleep(1000)",
    ];
    // A file system of its own refuses the write.
    let full = |came: &Came| came.stderr.contains("No space left on device");
    let came = fixture.sh(fills[0]).await;
    assert!(came.ended == "OutOfDisk" || full(&came), "{came:?}");
    let came = fixture
        .once(json!({"argv": ["python3", "-c", fills[1]]}))
        .await;
    assert!(came.ended == "OutOfDisk" || full(&came), "{came:?}");
    let came = fixture
        .sh("head -c 200M /dev/zero > big; echo $?; ls -s big")
        .await;
    assert!(
        came.ended == "OutOfDisk" || came.stdout.starts_with("153") || full(&came),
        "{came:?}"
    );
    // A full folder runs nothing more; one that is a file system of its own can be emptied.
    let session = fixture.kept(&Identity::local(), "true").await;
    let own = std::fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .contains(session.folder().to_str().unwrap());
    let put = std::fs::write(session.folder().join("put"), vec![1; 60 << 20]);
    assert!(
        put.as_ref()
            .err()
            .is_none_or(|error| error.kind() == std::io::ErrorKind::StorageFull),
        "{put:?}"
    );
    let executed = session
        .exec(helmdeck_core::session::Exec::new(["rm", "put"]))
        .await
        .unwrap();
    assert_eq!(
        executed.ended == helmdeck_core::session::Ended::OutOfDisk,
        !own,
        "{executed:?}"
    );
    assert_eq!(session.folder().join("put").exists(), !own);
    // So does one with full supplies, and one with many small files.
    let session = fixture.kept(&Identity::local(), "true").await;
    std::fs::write(session.supplies().join("put"), vec![1; 60 << 20]).unwrap();
    let executed = session
        .exec(helmdeck_core::session::Exec::new(["true"]))
        .await
        .unwrap();
    assert_eq!(executed.ended, helmdeck_core::session::Ended::OutOfDisk);
    let came = fixture
        .sh("for n in $(seq 20000); do : > $n || exit; done; sleep 1000")
        .await;
    assert!(came.ended == "OutOfDisk" || full(&came), "{came:?}");
    fixture.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_its_command() {
    let fixture = SessionFixture::new();
    let came = fixture
        .sh("sleep 987654 & setsid sleep 987654 & (sleep 987654 >/dev/null 2>&1 &) ; echo done")
        .await;
    assert_eq!((came.ended.as_str(), came.stdout.as_str()), ("0", "done\n"));
    assert!(!is_running("987654"));
    // It may take long until there is any output.
    let (mut timeout, mut said) = (1_000, String::new());
    while said.is_empty() {
        let script = "echo first; trap '' TERM INT HUP; setsid sleep 876543 & sleep 876543";
        let came = fixture
            .once(json!({"sh": script, "timeout_ms": timeout}))
            .await;
        assert_eq!(came.ended, "TimedOut");
        (timeout, said) = (2 * timeout, came.stdout);
    }
    assert_eq!(said, "first\n");
    assert!(!is_running("876543"));
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_command_is_killed_with_its_session() {
    let fixture = SessionFixture::new();
    {
        let call = fixture.sh("sleep 765432");
        let mut call = std::pin::pin!(call);
        let began = async {
            while !is_running("765432") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! { _ = &mut call => panic!("it ended"), () = began => {} }
    }
    wait_for("the command to be killed", || !is_running("765432"));
    wait_for("the session to be removed", || fixture.folders().is_empty());
    fixture.engine.shutdown().await;
    assert!(folders(fixture.data.path()).is_empty());
}

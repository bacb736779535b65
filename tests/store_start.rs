//! A store that is in trouble when the program starts costs the cache, never the call: the reply
//! says what is wrong, a server says so and recovers by itself. A lost key, or a damaged file, has
//! a way out.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::program::{Home, Run, Server};
use crate::support::{KEY, OTHER_KEY, outside, wait_for};

/// A home with a pack that is not cached, besides those of [`Home::hasty`].
fn home() -> Home {
    let home = Home::hasty();
    std::fs::write(
        home.packs().join("test.free.sh"),
        "#!/bin/sh\nprintf '{\"free\":true}'\n",
    )
    .unwrap();
    let manifest = "name = \"test.free\"\nversion = \"v1\"\ndescription = \"For tests\"\nread_only = true\n\
                    [handler]\ncommand = [\"sh\", \"./test.free.sh\"]\n";
    std::fs::write(home.packs().join("test.free.toml"), manifest).unwrap();
    home
}

/// Calls a pack with `--json` and returns its outcome.
#[track_caller]
fn outcome(home: &Home, pack: &str, pairs: &[&str]) -> (Value, Run) {
    let run = home.run(KEY, &[&["run", pack, "--json"], pairs].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    (serde_json::from_str(&run.stdout).unwrap(), run)
}

/// A cached pack runs and says what is wrong; one that is not cached runs as ever.
#[track_caller]
fn goes_on(home: &Home, word: &str) {
    let (cached, _) = outcome(home, "test.echo", &["repo=new"]);
    assert_eq!(
        (&cached["cache"]["status"], &cached["cache"]["store_error"]),
        (&json!("miss"), &json!(word))
    );
    assert_eq!(cached["output"]["input"]["repo"], "new");
    let run = home.run(KEY, &["run", "test.echo", "repo=new"]);
    assert!(
        run.code == 0 && run.stderr.contains("going on without memory"),
        "{}",
        run.stderr
    );
    let (free, _) = outcome(home, "test.free", &[]);
    assert_eq!(
        (&free["output"]["free"], &free["cache"]),
        (&json!(true), &Value::Null)
    );
}

/// A server starts, says what is wrong, answers, and caches once the trouble is over.
fn serves_and_recovers(home: &Home, word: &str, end: impl FnOnce()) {
    let server = Server::start(home, KEY);
    let ready = server.ask("GET /readyz", "");
    assert_eq!(
        (ready.code, &ready.json()["status"]),
        (200, &json!("degraded")),
        "{}",
        ready.body
    );
    assert!(
        ready.json()["checks"]["store"]
            .as_str()
            .unwrap()
            .contains(word),
        "{}",
        ready.body
    );
    let input = json!({"repo": "served"});
    let answer = server.ask("POST /api/v1/packs/test.echo", &input.to_string());
    assert_eq!(
        (
            answer.status().as_str(),
            &answer.json()["cache"]["store_error"]
        ),
        ("miss", &json!(word))
    );
    assert!(
        answer
            .header("cache-status")
            .unwrap()
            .ends_with(&format!("; detail={word}")),
        "{}",
        answer.head
    );
    assert_eq!(server.ask("POST /api/v1/packs/test.free", "{}").code, 200);
    end();
    wait_for("the server to open its store", || {
        server.ask("GET /readyz", "").json()["status"] == "ready"
    });
    wait_for("an answer to be stored", || {
        let run = server.ask(
            "POST /api/v1/packs/test.echo\nCache-Control: no-cache",
            &input.to_string(),
        );
        assert_eq!(run.code, 200, "{}", run.body);
        outside(&home.store())
            .query_row(
                "SELECT count(*) FROM memory_spaces WHERE kind = 'cache'",
                [],
                |row| row.get::<_, i64>(0),
            )
            .is_ok_and(|count| count > 0)
    });
    assert_eq!(server.call("test.echo", &input).0, "hit");
}

#[test]
fn locked_store_is_read_but_not_written() {
    let home = home();
    home.call(KEY, &["test.echo", "repo=stored"]);
    let other = outside(&home.store());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(home.call(KEY, &["test.echo", "repo=stored"]).0, "hit");
    goes_on(&home, "locked");
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(
        home.call(KEY, &["test.echo", "repo=new"]).0,
        "miss",
        "it was not stored"
    );
    let (cached, run) = outcome(&home, "test.echo", &["repo=new"]);
    assert_eq!(
        (&cached["cache"]["status"], run.stderr.as_str()),
        (&json!("hit"), "")
    );
}

#[test]
fn locked_store_does_not_stop_a_server() {
    let home = home();
    home.call(KEY, &["test.echo", "repo=stored"]);
    let other = outside(&home.store());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let server = Server::start(&home, KEY);
    assert_eq!(
        server.call("test.echo", &json!({"repo": "stored"})).0,
        "hit"
    );
    let answer = server.ask("POST /api/v1/packs/test.echo", "{\"repo\":\"new\"}");
    assert_eq!(
        (
            answer.status().as_str(),
            &answer.json()["cache"]["store_error"]
        ),
        ("miss", &json!("locked"))
    );
    other.execute_batch("COMMIT").unwrap();
    wait_for("writes to work again", || {
        let fresh = server.ask(
            "POST /api/v1/packs/test.echo\nCache-Control: no-cache",
            "{\"repo\":\"new\"}",
        );
        fresh.json()["cache"]["store_error"].is_null()
    });
}

#[test]
fn damaged_store_costs_the_cache_only() {
    let home = home();
    std::fs::create_dir_all(home.data()).unwrap();
    let noise: Vec<u8> = (0..20_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    std::fs::write(home.store(), &noise).unwrap();
    goes_on(&home, "damaged");
    let run = home.run(KEY, &["run", "test.echo", "repo=b"]);
    assert!(run.stderr.contains("move the file away"), "{}", run.stderr);
    let status = home.run(KEY, &["memory", "status"]);
    assert!(
        status.code == 8 && status.stderr.contains("helmdeck memory reset"),
        "{}",
        status.stderr
    );
    assert_eq!(
        std::fs::read(home.store()).unwrap(),
        noise,
        "nobody touches it unasked"
    );
    serves_and_recovers(&home, "damaged", || {
        std::fs::remove_file(home.store()).unwrap()
    });
}

#[test]
fn damaged_store_is_removed_by_reset() {
    let home = home();
    std::fs::create_dir_all(home.data()).unwrap();
    std::fs::write(home.store(), vec![7; 20_000]).unwrap();
    assert_eq!(
        home.run(KEY, &["memory", "reset"]).code,
        2,
        "nobody can be asked"
    );
    let reset = home.run(KEY, &["memory", "reset", "--yes"]);
    assert_eq!(reset.code, 0, "{}", reset.stderr);
    assert_eq!(home.call(KEY, &["test.echo", "repo=a"]).0, "miss");
    assert_eq!(home.call(KEY, &["test.echo", "repo=a"]).0, "hit");
}

/// A separate file system, unmounted at the end.
struct Disk(PathBuf);

impl Disk {
    /// Mounts one; `None` if this is not root's to do.
    #[expect(
        clippy::print_stderr,
        reason = "whoever runs the tests is told what was not tried"
    )]
    fn mount(path: &Path) -> Option<Self> {
        std::fs::create_dir_all(path).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=128k", "tmpfs"])
            .arg(path)
            .status();
        if mount.is_ok_and(|status| status.success()) {
            return Some(Self(path.to_owned()));
        }
        let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
        assert!(
            !root,
            "no file system could be mounted, so this was not tried"
        );
        eprintln!("not tried: only root can mount a file system");
        None
    }

    fn remount(&self, how: &str) {
        let option = format!("remount,{how}");
        let done = Command::new("mount")
            .args(["-o", &option])
            .arg(&self.0)
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(done.success(), "{option}");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn read_only_folder_costs_the_cache_only() {
    let home = home();
    let Some(disk) = Disk::mount(&home.data()) else {
        return;
    };
    disk.remount("ro");
    goes_on(&home, "read_only");
    serves_and_recovers(&home, "read_only", || disk.remount("rw,size=4m"));
    assert_eq!(home.call(KEY, &["test.echo", "repo=served"]).0, "hit");
    disk.remount("ro");
    let (cached, _) = outcome(&home, "test.echo", &["repo=other"]);
    assert_eq!(cached["cache"]["status"], "miss");
    assert!(cached["cache"]["store_error"].is_string(), "{cached}");
}

#[test]
fn full_disk_costs_the_cache_only() {
    let home = home();
    let Some(disk) = Disk::mount(&home.data()) else {
        return;
    };
    let filler = home.data().join("filler");
    // As much as there is room for; then not even a folder can be made.
    let _ = std::fs::write(&filler, vec![0; 1 << 20]);
    goes_on(&home, "full");
    serves_and_recovers(&home, "full", || {
        std::fs::remove_file(&filler).unwrap();
        disk.remount("size=4m");
    });
}

#[test]
fn wrong_key_stops_only_what_needs_the_store() {
    let home = home();
    home.call(KEY, &["test.echo", "repo=a"]);
    let cached = home.run(OTHER_KEY, &["run", "test.echo", "repo=a"]);
    assert_eq!(cached.code, 78, "{}", cached.stderr);
    assert!(
        cached.stderr.contains("HELMDECK_MEMORY_KEY_PREVIOUS")
            && cached.stderr.contains("helmdeck memory reset")
    );
    assert_eq!(home.run(OTHER_KEY, &["run", "memory.list"]).code, 78);
    assert_eq!(
        home.run(OTHER_KEY, &["serve", "--listen", "127.0.0.1:0"])
            .code,
        78
    );
    let free = home.run(OTHER_KEY, &["run", "test.free"]);
    assert_eq!(free.code, 0, "{}", free.stderr);
}

#[test]
fn empty_store_takes_the_next_key() {
    let home = home();
    home.call(KEY, &["test.echo", "repo=a"]);
    assert_eq!(
        home.run(OTHER_KEY, &["run", "test.echo", "repo=a"]).code,
        78
    );
    let purge = home.run(OTHER_KEY, &["memory", "purge", "--all", "--yes"]);
    assert_eq!(purge.code, 0, "{}", purge.stderr);
    assert_eq!(home.call(OTHER_KEY, &["test.echo", "repo=a"]).0, "miss");
    assert_eq!(home.call(OTHER_KEY, &["test.echo", "repo=a"]).0, "hit");
    assert_eq!(
        home.run(KEY, &["run", "test.echo", "repo=a"]).code,
        78,
        "it belongs to the other key now"
    );
}

#[test]
fn reset_leads_out_of_a_lost_key() {
    let home = home();
    home.call(KEY, &["test.echo", "repo=a"]);
    let asked = home.run(OTHER_KEY, &["memory", "reset"]);
    assert!(
        asked.code == 2 && asked.stderr.contains("lost for good"),
        "{}",
        asked.stderr
    );
    assert_eq!(
        home.call(KEY, &["test.echo", "repo=a"]).0,
        "hit",
        "nothing is lost without a yes"
    );
    let mut without_key = home.command(KEY, &["memory", "reset", "--yes", "--json"]);
    let reset = Run::of(
        without_key
            .env_remove("HELMDECK_MEMORY_KEY")
            .output()
            .unwrap(),
    );
    assert_eq!(reset.code, 0, "{}", reset.stderr);
    assert!(
        serde_json::from_str::<Value>(&reset.stdout).unwrap()["removed"]
            .as_u64()
            .unwrap()
            >= 1
    );
    assert_eq!(home.call(OTHER_KEY, &["test.echo", "repo=a"]).0, "miss");
}

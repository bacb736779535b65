//! Several processes on the same files, and processes that are killed.
//!
//! Each process is this test program, which gets its folder from the test.

use std::process::{Child, Command, Stdio};

use super::*;
use crate::json::{Json, Members};
use crate::layout::{LOCAL, QUARANTINE};

const PROCESSES: usize = 8;
/// Of each.
const EDITS: usize = 200;
const WHOLE: &str = ".forge/count.txt";
const LINES: &str = ".forge/lines.jsonl";

#[derive(Debug, Clone, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Count {
    schema_version: String,
    count: usize,
    fill: String,
    #[serde(flatten)]
    other: Members,
}

impl Document for Count {
    const PATH: &'static str = ".forge/count.json";

    fn skeleton() -> Self {
        Self {
            schema_version: "1.0".into(),
            count: 0,
            fill: String::new(),
            other: Members::default(),
        }
    }

    fn check(&self) -> std::result::Result<(), String> {
        let mut bytes = self.fill.bytes();
        let first = bytes.next();
        if bytes.all(|byte| Some(byte) == first) {
            Ok(())
        } else {
            Err("it is torn".into())
        }
    }
}

fn place() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    std::fs::create_dir_all(folder.path().join(LOCAL)).unwrap();
    folder
}

fn here() -> Files {
    Files::new(
        &std::env::current_dir().unwrap(),
        Writer::default(),
        MAX_FILE,
        None,
    )
}

fn start(folder: &Path, worker: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            &format!("files::concurrency_tests::{worker}"),
        ])
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Tries again as long as others hold the lock: on a busy machine that may take more than five
/// seconds.
fn patiently<T>(mut attempt: impl FnMut() -> Result<T>) -> T {
    loop {
        match attempt() {
            Err(error) if error.code == "E_LOCKED" => {}
            other => return other.unwrap(),
        }
    }
}

#[test]
#[ignore = "a process of another test"]
fn edits() {
    let files = here();
    for n in 0..EDITS {
        patiently(|| {
            files.edit::<Count, _>(None, |count| {
                count.count += 1;
                Ok(())
            })
        });
        patiently(|| {
            files.append(
                LINES,
                &format!("{{\"pid\":{},\"n\":{n}}}", std::process::id()),
            )
        });
        patiently(|| {
            let _guard = files.lock()?;
            let count = files.read(WHOLE)?.map_or(0, |bytes| {
                String::from_utf8(bytes).unwrap().parse::<usize>().unwrap()
            });
            files.write(WHOLE, (count + 1).to_string().as_bytes())
        });
    }
}

#[test]
fn of_the_edits_of_eight_processes_none_is_lost() {
    let folder = place();
    let children: Vec<Child> = (0..PROCESSES)
        .map(|_| start(folder.path(), "edits"))
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let files = Files::new(folder.path(), Writer::default(), MAX_FILE, None);
    let all = PROCESSES * EDITS;
    assert_eq!(files.load::<Count>().unwrap().unwrap().value.count, all);
    assert_eq!(
        files.read(WHOLE).unwrap().unwrap(),
        all.to_string().as_bytes()
    );
    let lines = String::from_utf8(files.read(LINES).unwrap().unwrap()).unwrap();
    let lines: std::collections::BTreeSet<&str> = lines.lines().collect();
    assert_eq!(lines.len(), all);
    assert!(
        lines
            .iter()
            .all(|line| serde_json::from_str::<Json>(line).is_ok())
    );
}

#[test]
#[ignore = "a process of another test"]
fn never_stops() {
    let files = here();
    loop {
        patiently(|| {
            files.edit::<Count, _>(None, |count| {
                count.count += 1;
                count.fill = if count.count.is_multiple_of(2) {
                    "a"
                } else {
                    "b"
                }
                .repeat(count.count % 7 * 9_000);
                Ok(())
            })
        });
        patiently(|| files.append(LINES, "{\"a\":1}"));
    }
}

#[test]
fn a_killed_process_leaves_whole_files_and_a_free_lock() {
    let folder = place();
    let files = Files::new(folder.path(), Writer::default(), MAX_FILE, None);
    let count = || {
        files
            .load::<Count>()
            .unwrap()
            .map_or(0, |loaded| loaded.value.count)
    };
    for round in 0..12 {
        let before = count();
        let mut child = start(folder.path(), "never_stops");
        // Each time at another moment.
        let mut reads = 0;
        while count() < before + 2 || reads < round * 7 {
            reads += 1;
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let found = count();
        files
            .edit::<Count, _>(None, |count| {
                count.count += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(count(), found + 1);
    }
    assert!(
        files.list(QUARANTINE).unwrap().is_empty(),
        "no reader ever saw a damaged file"
    );
}

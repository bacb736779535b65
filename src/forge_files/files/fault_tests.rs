//! Fault injection: a failure or crash at any step of a write leaves the old file or the new one.

use std::process::{Command, Stdio};

use super::atomic::Step;
use super::atomic::fault::{self, Failure};
use super::*;
use crate::json::Members;

const STEPS: [Step; 6] = [
    Step::Create,
    Step::Half,
    Step::Whole,
    Step::Flushed,
    Step::Named,
    Step::Folder,
];
const FAILURES: [Failure; 3] = [Failure::Killed, Failure::NoSpace, Failure::Disk];

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Notes {
    schema_version: String,
    notes: Vec<String>,
    #[serde(flatten)]
    other: Members,
}

impl Document for Notes {
    const PATH: &'static str = ".forge/notes.json";

    fn skeleton() -> Self {
        Self {
            schema_version: "1.0".into(),
            notes: Vec::new(),
            other: Members::default(),
        }
    }
}

fn add(files: &Files, note: &str) -> Result<()> {
    files.edit::<Notes, _>(None, |notes| {
        notes.notes.push(note.to_owned());
        Ok(())
    })
}

/// A file operation.
struct Deed {
    name: &'static str,
    /// How it is before; none, and there is nothing.
    before: fn(&Files),
    does: fn(&Files) -> Result<()>,
    /// The files it is about.
    about: &'static [&'static str],
    /// The steps that it goes through.
    steps: &'static [Step],
}

const WRITES: &[Step] = &STEPS;
const NAMES: &[Step] = &[Step::Named, Step::Folder];
const ADDS: &[Step] = &[Step::Create, Step::Half, Step::Whole, Step::Flushed];
const BEGINS: &[Step] = &[
    Step::Create,
    Step::Half,
    Step::Whole,
    Step::Flushed,
    Step::Folder,
];

const DEEDS: &[Deed] = &[
    Deed {
        name: "write",
        before: |files| files.write("a", b"old").unwrap(),
        does: |files| files.write("a", b"new and longer"),
        about: &["a"],
        steps: WRITES,
    },
    Deed {
        name: "write anew",
        before: |_| (),
        does: |files| files.write("a", b"new"),
        about: &["a"],
        steps: WRITES,
    },
    Deed {
        name: "create",
        before: |_| (),
        does: |files| files.create("a", b"new").map(drop),
        about: &["a"],
        steps: WRITES,
    },
    Deed {
        name: "edit",
        before: |files| add(files, "one").unwrap(),
        does: |files| add(files, "two"),
        about: &[Notes::PATH],
        steps: WRITES,
    },
    Deed {
        name: "edit anew",
        before: |_| (),
        does: |files| add(files, "one"),
        about: &[Notes::PATH],
        steps: WRITES,
    },
    Deed {
        name: "append",
        before: |files| files.append("a", "one").unwrap(),
        does: |files| files.append("a", "two"),
        about: &["a"],
        steps: ADDS,
    },
    Deed {
        name: "append anew",
        before: |_| (),
        does: |files| files.append("a", "one"),
        about: &["a"],
        steps: BEGINS,
    },
    Deed {
        name: "rename",
        before: |files| {
            files.write("x/a", b"new").unwrap();
            files.write("y/b", b"old").unwrap();
        },
        does: |files| files.rename("x/a", "y/b"),
        about: &["x/a", "y/b"],
        steps: NAMES,
    },
    Deed {
        name: "link",
        before: |files| files.write("a", b"new").unwrap(),
        does: |files| files.link("a", "b"),
        about: &["a", "b"],
        steps: NAMES,
    },
    Deed {
        name: "remove",
        before: |files| files.write("a", b"old").unwrap(),
        does: |files| files.remove("a").map(drop),
        about: &["a"],
        steps: NAMES,
    },
];

fn place() -> (tempfile::TempDir, Files) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".forge")).unwrap();
    let files = Files::new(folder.path(), Writer::default(), MAX_FILE, None);
    (folder, files)
}

fn state(files: &Files, deed: &Deed) -> Vec<Option<Vec<u8>>> {
    deed.about
        .iter()
        .map(|path| files.read(path).unwrap())
        .collect()
}

/// How many files lie about that are not whole.
fn unfinished(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let count = |path: PathBuf| match path.is_dir() {
        true => unfinished(&path),
        false => usize::from(path.to_string_lossy().ends_with(atomic::UNFINISHED)),
    };
    entries.map(count).sum()
}

#[test]
fn whatever_fails_at_whatever_step_leaves_the_old_file_or_the_new_one() {
    for deed in DEEDS {
        let (_folder, files) = place();
        (deed.before)(&files);
        let old = state(&files, deed);
        (deed.does)(&files).unwrap();
        let new = state(&files, deed);
        assert_ne!(old, new);
        for step in STEPS {
            for failure in FAILURES {
                let what = format!("{} {step:?} {failure:?}", deed.name);
                let (folder, files) = place();
                (deed.before)(&files);
                fault::set(Some((step, failure)));
                let done = (deed.does)(&files);
                let came = !fault::pending();
                fault::set(None);
                assert_eq!(came, deed.steps.contains(&step), "{what}");
                let found = state(&files, deed);
                if !came {
                    assert!(done.is_ok() && found == new, "{what}");
                    continue;
                }
                let error = done.unwrap_err();
                assert_eq!(
                    (error.code, error.category.exit_code()),
                    ("E_IO", 1),
                    "{what}"
                );
                let killed = failure == Failure::Killed;
                let adds = deed.name.starts_with("append");
                if adds && killed && step == Step::Create {
                    // Nothing was added to it.
                    assert_eq!(
                        found[0].clone().unwrap_or_default(),
                        old[0].clone().unwrap_or_default(),
                        "{what}"
                    );
                } else if adds && killed && step == Step::Half {
                    let (found, new) = (found[0].as_ref().unwrap(), new[0].as_ref().unwrap());
                    assert!(
                        new.starts_with(found) && !found.ends_with(b"\n"),
                        "{what}: the line is torn"
                    );
                } else if adds && killed {
                    assert_eq!(found, new, "{what}");
                } else {
                    let named = matches!(step, Step::Named | Step::Folder);
                    assert_eq!(&found, if named { &new } else { &old }, "{what}");
                }
                if !killed {
                    assert_eq!(
                        unfinished(folder.path()),
                        0,
                        "{what}: what is not whole takes room"
                    );
                }
                // The next process goes on as if nothing had happened.
                let next = (deed.does)(&files);
                if adds {
                    next.unwrap();
                    let text = String::from_utf8(files.read("a").unwrap().unwrap()).unwrap();
                    let last = if deed.name == "append" { "two" } else { "one" };
                    assert_eq!(text.lines().last(), Some(last), "{what}: a line of its own");
                    assert!(
                        deed.name != "append" || text.lines().next() == Some("one"),
                        "{what}: {text:?}"
                    );
                } else if found == old {
                    next.unwrap();
                    assert_eq!(state(&files, deed), new, "{what}");
                    assert_eq!(
                        unfinished(folder.path()),
                        0,
                        "{what}: the next one tidies up"
                    );
                }
            }
        }
    }
}

#[test]
fn what_is_not_whole_is_not_listed() {
    let (folder, files) = place();
    fault::set(Some((Step::Half, Failure::Killed)));
    files.write("x/a", b"long enough").unwrap_err();
    fault::set(None);
    assert_eq!(
        (unfinished(folder.path()), files.list("x").unwrap().len()),
        (1, 0)
    );
}

#[test]
fn leftovers_of_killed_processes_are_removed() {
    let (folder, files) = place();
    for path in [".forge/a.json", ".forge/memory/long-term/b.json"] {
        fault::set(Some((Step::Half, Failure::Killed)));
        files.write(path, b"long enough").unwrap_err();
        fault::set(None);
    }
    files.write(".forge/memory/kept.json", b"{}").unwrap();
    assert_eq!(unfinished(folder.path()), 2);
    files.remove_unfinished().unwrap();
    assert_eq!(unfinished(folder.path()), 0);
    assert_eq!(
        files.read(".forge/memory/kept.json").unwrap().unwrap(),
        b"{}"
    );
}

#[test]
fn a_change_counts_though_no_copy_of_it_can_be_kept() {
    let (_folder, files) = place();
    files
        .write(crate::layout::LAST_GOOD, b"in the way")
        .unwrap();
    add(&files, "one").unwrap();
    assert_eq!(files.load::<Notes>().unwrap().unwrap().value.notes, ["one"]);
}

/// A disk that takes only a part of a file.
///
/// A limit on the file size stands for a full disk, because the system treats both alike.
#[test]
fn a_disk_that_takes_half_of_a_write_leaves_the_old_file() {
    let (folder, _files) = place();
    let status = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "--nocapture",
            "files::fault_tests::fills_the_disk",
        ])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(unfinished(folder.path()), 0);
}

#[test]
#[ignore = "a process of another test"]
fn fills_the_disk() {
    let files = Files::new(
        &std::env::current_dir().unwrap(),
        Writer::default(),
        MAX_FILE,
        None,
    );
    let note = "n".repeat(300);
    let mut kept = 0;
    let full = loop {
        match add(&files, &note) {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
    };
    assert!(
        full.message.contains("File too large") && kept > 5,
        "{full} after {kept}"
    );
    assert_eq!(
        files.load::<Notes>().unwrap().unwrap().value.notes.len(),
        kept
    );
    let mut lines = 0;
    while files.append("lines", &note).is_ok() {
        lines += 1;
    }
    assert_eq!(
        files.read("lines").unwrap().unwrap(),
        format!("{note}\n").repeat(lines).as_bytes()
    );
    assert_eq!(
        files.write("whole", &[b'w'; 64 << 10]).unwrap_err().code,
        "E_IO"
    );
    assert!(files.create("made", &[b'w'; 64 << 10]).is_err());
    assert_eq!(
        (files.read("whole").unwrap(), files.read("made").unwrap()),
        (None, None)
    );
}

//! Eight processes read, change and write every kind of file: no change of any process is lost.
//!
//! Each kind has a separate project. Each process goes from one project to the next, so that all
//! meet at one file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use helmdeck_events::{Message, Receipt, Sink, SinkError};

use crate::checkpoints::Manifest;
use crate::config::Config;
use crate::documents::KINDS;
use crate::environment::ProjectEnvironment;
use crate::events::{self, Events, Replay};
use crate::features::FeaturesFile;
use crate::files::{Document, Files};
use crate::fixture::{in_turn, start, worker_input};
use crate::focus::Focus;
use crate::git::Branches;
use crate::health::{self, Health, Inputs};
use crate::issues::{Active, Comment, Issue};
use crate::json::{Json, Members};
use crate::knowledge::KnowledgeFile;
use crate::layout::{CONFIG, EVENTS_OUTBOX, EXCEPTIONS};
use crate::progress::Progress;
use crate::project::Project;
use crate::recovery::{Acknowledged, Paused};
use crate::repair;
use crate::sessions::{ActiveSessions, Session};
use crate::subjects::Subject;
use crate::time::Time;

const PROCESSES: usize = 8;
/// Of each, for each kind of file.
const CHANGES: usize = 60;
const MANIFEST: &str = ".forge/git/checkpoints/SX9-123-v1.json";
const ISSUE: &str = ".forge/linear/issues/SX9-123.json";
const COMMENT: &str = ".forge/linear/comments/SX9-123/c.json";
/// The files of a session that is not the primary one.
const SECOND_FOCUS: &str = ".forge/memory/short-term/sessions/2025-12-24-session-002/focus.json";
const SECOND_SESSION: &str =
    ".forge/memory/short-term/sessions/2025-12-24-session-002/session.json";
/// Settings without git, with an event server: events wait in the outbox.
///
/// With git, each event would query it, and that would take most of the time.
const SETTINGS: &str = "[git]\nenabled = false\n[events]\nuse = \"team\"\n";

/// A kind of file.
struct Kind {
    name: &'static str,
    /// Makes one change: the process, and which of its changes it is.
    change: fn(&Project, usize, usize),
    /// How many changes the file shows.
    count: fn(&Project) -> usize,
}

/// A document counts in a member that its type does not know.
trait Counted: Document {
    fn members(&mut self) -> &mut Members;
}

macro_rules! counted {
    ($($type:ty),+ $(,)?) => {
        $(impl Counted for $type {
            fn members(&mut self) -> &mut Members {
                &mut self.other
            }
        })+
    };
}

counted!(
    KnowledgeFile,
    FeaturesFile,
    Manifest,
    Acknowledged,
    Paused,
    Focus,
    Active,
    Issue,
    Comment,
    Session,
    ActiveSessions,
    Branches
);

fn number(members: &Members) -> u64 {
    match members.0.get("count") {
        Some(Json::Number(number)) => number.as_u64().unwrap(),
        Some(other) => panic!("{other:?} is no count"),
        None => 0,
    }
}

fn add_one<D: Counted>(project: &Project, path: &str) {
    in_turn(|| {
        project.files().edit_at::<D, _>(path, None, |document| {
            let members = document.members();
            let next = number(members) + 1;
            members
                .0
                .insert("count".to_owned(), Json::Number(next.into()));
            Ok(())
        })
    });
}

fn counts<D: Counted>(project: &Project, path: &str) -> usize {
    let mut loaded = project.files().load_at::<D>(path).unwrap().unwrap();
    usize::try_from(number(loaded.value.members())).unwrap()
}

macro_rules! document {
    ($name:literal, $type:ty, $path:expr) => {
        Kind {
            name: $name,
            change: |project, _, _| add_one::<$type>(project, $path),
            count: |project| counts::<$type>(project, $path),
        }
    };
}

fn lines(project: &Project, path: &str) -> BTreeSet<String> {
    let bytes = project.files().read(path).unwrap().unwrap_or_default();
    let all: Vec<String> = String::from_utf8(bytes)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    let distinct: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(distinct.len(), all.len(), "{path} has a line twice");
    distinct
}

/// Every kind of file that is changed after its creation.
///
/// Not here: `config.toml`, `architecture.md` and the files of artifacts, which are made once;
/// `commits.log`, which is rewritten from git; notes in `scratch/`, which this program does not
/// write.
const ALL: &[Kind] = &[
    document!("knowledge", KnowledgeFile, KnowledgeFile::PATH),
    document!("features", FeaturesFile, FeaturesFile::PATH),
    document!("checkpoint", Manifest, MANIFEST),
    document!("recovery", Acknowledged, Acknowledged::PATH),
    document!("paused", Paused, Paused::PATH),
    document!("focus", Focus, Focus::PATH),
    document!("focus of a second session", Focus, SECOND_FOCUS),
    document!("active", Active, Active::PATH),
    document!("issue", Issue, ISSUE),
    document!("comment", Comment, COMMENT),
    document!("session", Session, SECOND_SESSION),
    document!("sessions", ActiveSessions, ActiveSessions::PATH),
    document!("branches", Branches, Branches::PATH),
    Kind {
        name: "progress.txt",
        change: |project, process, n| {
            drop(in_turn(|| {
                Progress::new(project).log(&format!("{process} did {n}"))
            }))
        },
        count: |project| {
            let log = Progress::new(project).read().unwrap().unwrap();
            assert_eq!(log.malformed_lines, 0);
            log.entries
                .iter()
                .map(|entry| &entry.text)
                .collect::<BTreeSet<_>>()
                .len()
        },
    },
    Kind {
        name: "journal.jsonl and outbox.events.jsonl",
        change: |project, process, n| {
            in_turn(|| {
                let _guard = project.files().lock()?;
                events::emit(project, Subject::Learning, format!("{process}-{n}"));
                Ok(())
            });
            if process == 0 {
                let connected = Project::open(project.root(), ProjectEnvironment::default())
                    .unwrap()
                    .unwrap();
                let connected = connected.sending(Arc::new(Kept(project.files().clone())));
                in_turn(|| {
                    Events::new(&connected)
                        .drain(Duration::from_secs(60))
                        .map(drop)
                });
            }
        },
        count: |project| {
            let replayed = Events::new(project).replay(&Replay::default()).unwrap();
            let places: BTreeSet<u64> = replayed.events.iter().map(|event| event.seq).collect();
            assert_eq!(
                places.last(),
                Some(&(places.len() as u64)),
                "no number twice, and none left out"
            );
            assert_eq!(replayed.events.len(), places.len());
            let waiting = lines(project, EVENTS_OUTBOX);
            let sent = lines(project, SENT);
            assert!(
                !sent.is_empty() && waiting.is_disjoint(&sent),
                "what was sent waits no more"
            );
            assert_eq!(waiting.len() + sent.len(), places.len());
            places.len()
        },
    },
    Kind {
        name: "exceptions.jsonl",
        change: |project, process, n| {
            let token = format!("{}{}", concat!("gh", "p_"), "a1B2".repeat(9));
            let files = project.files().allowing("github-token");
            in_turn(|| files.check_secrets(&format!("{process}-{n}"), token.as_bytes()));
        },
        count: |project| lines(project, EXCEPTIONS).len(),
    },
    Kind {
        name: "health.jsonl",
        // Each entry is three days after the one before, so that the old ones go.
        change: |project, _, _| {
            in_turn(|| {
                let _guard = project.files().lock()?;
                let last = health::history(project)?
                    .last()
                    .map_or(START, |last| last.at.0.as_second());
                health::record(project, &health(last + THREE_DAYS)).map(drop)
            });
        },
        count: |project| {
            let history = health::history(project).unwrap();
            assert_eq!(history.len(), 31, "of 90 days");
            usize::try_from((history[30].at.0.as_second() - START) / THREE_DAYS).unwrap()
        },
    },
];

/// What the first process sent to its server.
const SENT: &str = ".forge/sent.jsonl";
const START: i64 = 1_000_000_000;
const THREE_DAYS: i64 = 3 * 24 * 60 * 60;

/// A server that keeps what it is sent in a file, each message once.
#[derive(Debug)]
struct Kept(Files);

static KNOWN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

impl Sink for Kept {
    fn publish(&self, message: &Message, _: Duration) -> Result<Receipt, SinkError> {
        let mut known = KNOWN.lock().unwrap();
        let duplicate = !known.insert(message.id.clone());
        if !duplicate {
            in_turn(|| {
                self.0
                    .append(SENT, std::str::from_utf8(&message.body).unwrap())
            });
        }
        Ok(Receipt {
            sequence: known.len() as u64,
            duplicate,
        })
    }
}

/// A measurement at a time.
fn health(second: i64) -> Health {
    let at = Time(jiff::Timestamp::from_second(second).unwrap());
    health::judge(Inputs::default(), &Config::default().health, at)
}

fn root(folder: &Path, kind: &Kind) -> PathBuf {
    folder.join(kind.name.replace(' ', "-"))
}

fn open(folder: &Path, kind: &Kind) -> Project {
    Project::open(&root(folder, kind), ProjectEnvironment::default())
        .unwrap()
        .unwrap()
}

#[test]
fn of_what_eight_processes_do_to_any_kind_of_file_nothing_is_lost() {
    // Hundreds of disk writes for each kind would take minutes, so the files are in memory where
    // that is possible.
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    for kind in ALL {
        let write = |path: &str, text: &str| {
            let path = root(folder.path(), kind).join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(CONFIG, SETTINGS);
        write(
            MANIFEST,
            include_str!("../../forge_documents/fixtures/checkpoint.json"),
        );
        write(
            ISSUE,
            include_str!("../../forge_documents/fixtures/issue.json"),
        );
        write(COMMENT, "{\"id\": \"c\", \"text\": \"t\"}\n");
    }
    let workers: Vec<_> = (0..PROCESSES)
        .map(|number| start(folder.path(), WORKER, number))
        .collect();
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    for kind in ALL {
        let project = open(folder.path(), kind);
        assert_eq!((kind.count)(&project), PROCESSES * CHANGES, "{}", kind.name);
        assert_eq!(repair::damaged(&project).unwrap(), [""; 0]);
    }
    // Entries are written with their documents.
    for kind in KINDS
        .iter()
        .filter(|kind| !["learning", "feature"].contains(&kind.name))
    {
        assert!(
            ALL.iter().any(|tried| tried.name == kind.name),
            "{} is not tried",
            kind.name
        );
    }
}

const WORKER: &str = "tests::together::a_worker_changes_each_kind";

#[test]
#[ignore = "a worker of another test"]
fn a_worker_changes_each_kind() {
    let Some((folder, process)) = worker_input() else {
        return;
    };
    // A thread that waits for a lock polls it: more threads would only poll.
    std::thread::scope(|scope| {
        for kinds in ALL.chunks(ALL.len().div_ceil(4)) {
            let folder = &folder;
            scope.spawn(move || {
                for kind in kinds {
                    let project = open(folder, kind);
                    for n in 0..CHANGES {
                        (kind.change)(&project, process, n);
                    }
                }
            });
        }
    });
}

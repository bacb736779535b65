//! Every kind of file, damaged in every way: the error is clear, a copy is kept, nothing overwrites
//! it.

use std::path::PathBuf;

use crate::checkpoints::Manifest;
use crate::config::Config;
use crate::documents::KINDS;
use crate::environment::ProjectEnvironment;
use crate::error::{Error, Result};
use crate::events::{self, Events};
use crate::features::{FeatureEntry, FeaturesFile};
use crate::files::Document;
use crate::focus::Focus;
use crate::git::Branches;
use crate::health;
use crate::issues::{Active, Comment, Issue};
use crate::knowledge::{KnowledgeFile, LearningEntry};
use crate::layout::{CONFIG, EVENTS_OUTBOX, EXCEPTIONS, HEALTH, JOURNAL, PROGRESS, QUARANTINE};
use crate::progress::Progress;
use crate::project::Project;
use crate::recovery::{Acknowledged, Paused};
use crate::repair;
use crate::sessions::{ActiveSessions, Session};
use crate::subjects::Subject;

/// A type of document.
struct Type {
    name: &'static str,
    path: &'static str,
    /// A good one; none for what a new project begins with.
    good: Option<&'static str>,
    load: fn(&Project, &str) -> Result<bool>,
    edit: fn(&Project, &str) -> Result<()>,
}

macro_rules! document {
    ($name:literal, $type:ty, $path:expr, $good:expr) => {
        Type {
            name: $name,
            path: $path,
            good: $good,
            load: |project, path| {
                project
                    .files()
                    .load_at::<$type>(path)
                    .map(|loaded| loaded.is_some())
            },
            edit: |project, path| project.files().edit_at::<$type, _>(path, None, |_| Ok(())),
        }
    };
}

const ALL: &[Type] = &[
    document!(
        "knowledge",
        KnowledgeFile,
        KnowledgeFile::PATH,
        Some(include_str!(
            "../../forge_documents/fixtures/knowledge.json"
        ))
    ),
    document!(
        "features",
        FeaturesFile,
        FeaturesFile::PATH,
        Some(include_str!("../../forge_documents/fixtures/features.json"))
    ),
    document!(
        "learning",
        LearningEntry,
        ".forge/memory/long-term/knowledge/a.json",
        Some(
            "{\"context\": \"c\", \"approach\": \"a\", \"learned_at\": \"2025-12-24T10:00:00Z\"}\n"
        )
    ),
    document!(
        "feature",
        FeatureEntry,
        ".forge/memory/long-term/features/A-001-a.json",
        Some("{\"id\": \"A-001\", \"name\": \"a\", \"status\": \"failing\"}\n")
    ),
    document!(
        "checkpoint",
        Manifest,
        ".forge/git/checkpoints/SX9-123-v1.json",
        Some(include_str!(
            "../../forge_documents/fixtures/checkpoint.json"
        ))
    ),
    document!("recovery", Acknowledged, Acknowledged::PATH, None),
    document!("paused", Paused, Paused::PATH, None),
    document!(
        "focus",
        Focus,
        Focus::PATH,
        Some(include_str!("../fixtures/focus.json"))
    ),
    document!("active", Active, Active::PATH, None),
    document!(
        "issue",
        Issue,
        ".forge/linear/issues/SX9-123.json",
        Some(include_str!("../../forge_documents/fixtures/issue.json"))
    ),
    document!(
        "comment",
        Comment,
        ".forge/linear/comments/SX9-123/c.json",
        Some("{\"id\": \"c\", \"text\": \"t\"}\n")
    ),
    document!(
        "session",
        Session,
        ".forge/memory/short-term/sessions/2025-12-24-session-001/session.json",
        None
    ),
    document!("sessions", ActiveSessions, ActiveSessions::PATH, None),
    document!("branches", Branches, Branches::PATH, None),
];

struct Fixture {
    folder: tempfile::TempDir,
    project: Project,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        std::fs::create_dir(folder.path().join(".forge")).unwrap();
        std::fs::write(folder.path().join(CONFIG), "[git]\nenabled = false\n").unwrap();
        let project = Project::open(folder.path(), ProjectEnvironment::default())
            .unwrap()
            .unwrap();
        Self { folder, project }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        std::fs::write(self.at(path), bytes).unwrap();
    }

    fn bytes(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.at(path)).unwrap()
    }

    fn copies(&self) -> Vec<Vec<u8>> {
        let all = self.project.files().list(QUARANTINE).unwrap();
        all.into_iter()
            .map(|copy| self.bytes(&format!("{QUARANTINE}/{}", copy.name)))
            .collect()
    }
}

/// Every way in which a good file is damaged.
fn corpus(good: &[u8]) -> Vec<Vec<u8>> {
    let text = std::str::from_utf8(good).unwrap();
    let end = text.trim_end().len();
    let mut all: Vec<Vec<u8>> = (0..end).map(|end| good[..end].to_vec()).collect();
    let mut nul = good.to_vec();
    nul[end / 2..].fill(0);
    let marks = ["<<<<<<< ours", "=======", ">>>>>>> theirs"].map(|mark| format!("{mark}\n"));
    let mut invalid = good.to_vec();
    invalid.insert(end / 2, 0xff);
    let doubled = |members: &str| text.replacen('{', &format!("{{{members},"), 1).into_bytes();
    all.extend([
        nul,
        vec![0; 4096],
        [b"\xef\xbb\xbf", good].concat(),
        format!("{}{text}{}{text}{}", marks[0], marks[1], marks[2]).into_bytes(),
        invalid,
        format!("{{\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000)).into_bytes(),
        format!("{text}{text}").into_bytes(),
        b"[1]".to_vec(),
        b"\"text\"".to_vec(),
        b"null".to_vec(),
        b"7".to_vec(),
    ]);
    if text.starts_with('{') {
        all.push(doubled("\"zz\":1,\"zz\":2"));
        all.push(doubled("\"zz\":{\"a\":1,\"a\":2}"));
    }
    all
}

fn is_loud(error: &Error, path: &str, what: &str) {
    assert_eq!(
        (error.code, error.category.exit_code()),
        ("E_CORRUPT", 8),
        "{what}: {error}"
    );
    assert!(
        error.message.starts_with(path) && error.next.is_some(),
        "{what}: {error}"
    );
}

#[test]
fn no_damaged_document_of_any_kind_is_written_over() {
    for kind in KINDS {
        assert!(
            ALL.iter().any(|tried| tried.name == kind.name),
            "{} is not tried",
            kind.name
        );
    }
    for kind in ALL {
        let skeleton = KINDS
            .iter()
            .find(|known| known.name == kind.name)
            .unwrap()
            .skeleton();
        let good = kind.good.map_or(skeleton, |good| good.as_bytes().to_vec());
        let place = Fixture::new();
        place.put(kind.path, &good);
        assert!(
            (kind.load)(&place.project, kind.path).unwrap(),
            "{}",
            kind.name
        );
        let mut kept = 0;
        for (at, bytes) in corpus(&good).into_iter().enumerate() {
            let what = format!("{} {at}", kind.name);
            // First with room for copies, then with ten copies.
            let place = if at % 97 == 0 {
                &Fixture::new()
            } else {
                &place
            };
            place.put(kind.path, &bytes);
            is_loud(
                &(kind.load)(&place.project, kind.path).unwrap_err(),
                kind.path,
                &what,
            );
            is_loud(
                &(kind.edit)(&place.project, kind.path).unwrap_err(),
                kind.path,
                &what,
            );
            assert_eq!(place.bytes(kind.path), bytes, "{what}");
            assert_eq!(
                repair::damaged(&place.project).unwrap(),
                [kind.path],
                "{what}"
            );
            if kind.name == "paused" {
                assert_eq!(
                    place
                        .project
                        .check_not_paused()
                        .unwrap_err()
                        .category
                        .exit_code(),
                    4,
                    "{what}"
                );
            }
            let copies = place.copies();
            kept += usize::from(copies.contains(&bytes));
            assert!(copies.contains(&bytes) || copies.len() == 10, "{what}");
        }
        assert!(kept >= 10, "{}", kind.name);
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(place.at(kind.path))
            .unwrap();
        file.set_len(64 << 20).unwrap();
        for error in [
            (kind.load)(&place.project, kind.path).unwrap_err(),
            (kind.edit)(&place.project, kind.path).unwrap_err(),
        ] {
            assert_eq!(
                (error.code, error.category.exit_code()),
                ("E_TOO_LARGE", 8),
                "{}",
                kind.name
            );
        }
        assert_eq!(file.metadata().unwrap().len(), 64 << 20);
    }
}

/// Contents of a list of lines that is damaged in the middle.
const BROKEN: &[&[u8]] = &[
    b"{\"a\":1}\n{\"a\":\xff}\n{\"b\":2}\n",
    b"\0\0\0\0\n",
    b"{}\n<<<<<<< ours\n",
    b"[[[[\n",
    b"{\"a\":",
];

#[test]
fn of_a_damaged_list_of_lines_every_byte_stays() {
    for bytes in BROKEN {
        let what = String::from_utf8_lossy(bytes);
        let place = Fixture::new();
        let project = &place.project;
        for path in [JOURNAL, EVENTS_OUTBOX, EXCEPTIONS, HEALTH] {
            place.put(path, bytes);
        }
        events::emit(project, Subject::Learning, "one");
        let token = format!("{}{}", concat!("gh", "p_"), "a1B2".repeat(9));
        project
            .files()
            .allowing("github-token")
            .check_secrets("a", token.as_bytes())
            .unwrap();
        let health = health::judge(
            Default::default(),
            &Config::default().health,
            project.environment().now(),
        );
        health::record(project, &health).unwrap();
        for path in [JOURNAL, EXCEPTIONS, HEALTH] {
            let now = place.bytes(path);
            assert!(
                now.starts_with(bytes) && now.len() > bytes.len(),
                "{path}: {what}"
            );
            let last = now
                .trim_ascii_end()
                .rsplit(|byte| *byte == b'\n')
                .next()
                .unwrap();
            assert!(
                serde_json::from_slice::<serde_json::Value>(last).is_ok(),
                "{path}: a line of its own"
            );
        }
        assert_eq!(place.bytes(EVENTS_OUTBOX), *bytes);
        let replayed = Events::new(project).replay(&Default::default()).unwrap();
        assert_eq!(replayed.events.len(), 1, "{what}");
        assert!(replayed.damaged > 0, "{what}");
        assert!(
            repair::damaged(project)
                .unwrap()
                .contains(&JOURNAL.to_owned()),
            "{what}"
        );
    }
}

#[test]
fn damaged_lines_are_kept_aside_before_they_go() {
    #[derive(Debug)]
    struct Takes;
    impl helmdeck_events::Sink for Takes {
        fn publish(
            &self,
            _: &helmdeck_events::Message,
            _: std::time::Duration,
        ) -> std::result::Result<helmdeck_events::Receipt, helmdeck_events::SinkError> {
            Ok(helmdeck_events::Receipt {
                sequence: 1,
                duplicate: false,
            })
        }
    }
    let place = Fixture::new();
    let broken = b"{\"a\":1}\nno event\n";
    place.put(EVENTS_OUTBOX, broken);
    let project = Project::open(place.folder.path(), ProjectEnvironment::default())
        .unwrap()
        .unwrap();
    let done = Events::new(&project.sending(std::sync::Arc::new(Takes)))
        .drain(std::time::Duration::from_secs(60))
        .unwrap();
    assert_eq!((done.waiting, done.dropped), (0, 2));
    assert_eq!(place.copies(), [broken]);
}

#[test]
fn a_damaged_text_takes_no_line() {
    let log = |place: &Fixture| Progress::new(&place.project).log("Done").map(drop);
    type Does<'a> = &'a dyn Fn(&Fixture) -> Result<()>;
    let cases: [(&str, &[u8], Does<'_>); 2] = [
        (PROGRESS, b"[10:00] a\n\0\0\0", &log),
        (PROGRESS, b"[10:00] \xff\n", &log),
    ];
    for (path, bytes, does) in cases {
        let what = String::from_utf8_lossy(bytes);
        let place = Fixture::new();
        place.put(path, bytes);
        is_loud(&does(&place).unwrap_err(), path, &what);
        assert_eq!(place.bytes(path), bytes, "{what}");
        assert_eq!(place.copies(), [bytes], "{what}");
    }
    for bytes in [
        b"[git\n".as_slice(),
        b"\0\0",
        b"\xff",
        b"[git]\nenabled = \"maybe\"\n",
    ] {
        let place = Fixture::new();
        place.put(CONFIG, bytes);
        let error = Project::open(place.folder.path(), ProjectEnvironment::default()).unwrap_err();
        is_loud(&error, CONFIG, &String::from_utf8_lossy(bytes));
        assert_eq!(
            (place.bytes(CONFIG), place.copies()),
            (bytes.to_vec(), vec![bytes.to_vec()])
        );
    }
}

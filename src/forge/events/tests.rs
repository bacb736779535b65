use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use helmdeck_core::ManualClock;
use helmdeck_events::{Message, Receipt, Sink, SinkError, Stored};
use uuid::Uuid;

use super::*;
use crate::environment::ProjectEnvironment;
use crate::events::{self, Events};
use crate::git::Git;
use crate::health;
use crate::init;
use crate::layout::{EVENTS_OUTBOX, JOURNAL};

/// Fake event server: it knows ids, and fails or loses an acknowledgement on request.
#[derive(Debug, Default)]
struct Server {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stored: Vec<Message>,
    asked: Vec<Duration>,
    /// Number of calls that still succeed; later ones fail.
    left: usize,
    /// Whether a failed call stores its event all the same.
    silent: bool,
    /// Sequence numbers of refused events.
    unwanted: Vec<u64>,
}

impl Server {
    fn up() -> Arc<Self> {
        let server = Arc::new(Self::default());
        server.answers(usize::MAX);
        server
    }

    fn answers(&self, calls: usize) {
        self.state.lock().unwrap().left = calls;
    }

    fn seqs(&self) -> Vec<u64> {
        self.state
            .lock()
            .unwrap()
            .stored
            .iter()
            .map(|message| Envelope::parse(&message.body).unwrap().seq)
            .collect()
    }

    fn stored(&self) -> Vec<Stored> {
        let state = self.state.lock().unwrap();
        state
            .stored
            .iter()
            .zip(1..)
            .map(|(message, sequence)| Stored {
                sequence,
                message: message.clone(),
            })
            .collect()
    }
}

impl Sink for Server {
    fn publish(
        &self,
        message: &Message,
        within: Duration,
    ) -> std::result::Result<Receipt, SinkError> {
        let mut state = self.state.lock().unwrap();
        state.asked.push(within);
        if state
            .unwanted
            .contains(&Envelope::parse(&message.body).unwrap().seq)
        {
            return Err(SinkError::Refused("it is not wanted".to_owned()));
        }
        let fails = state.left == 0;
        if fails && !state.silent {
            return Err(SinkError::Unreachable("it is away".to_owned()));
        }
        state.left = state.left.saturating_sub(1);
        let duplicate = state.stored.iter().any(|stored| stored.id == message.id);
        if !duplicate {
            state.stored.push(message.clone());
        }
        if fails {
            Err(SinkError::Elapsed(within))
        } else {
            Ok(Receipt {
                sequence: 1,
                duplicate,
            })
        }
    }

    fn stored(
        &self,
        from: u64,
        most: usize,
        _: Duration,
    ) -> std::result::Result<Vec<Stored>, SinkError> {
        Ok(Self::stored(self)
            .into_iter()
            .filter(|stored| stored.sequence >= from)
            .take(most)
            .collect())
    }
}

fn project(root: &Path, sink: Option<Arc<dyn Sink>>) -> Project {
    std::fs::create_dir_all(root.join(".forge")).unwrap();
    Project::open(
        root,
        ProjectEnvironment {
            sink,
            ..ProjectEnvironment::default()
        },
    )
    .unwrap()
    .unwrap()
}

fn say(project: &Project, count: u64) {
    for count in 0..count {
        events::emit(
            project,
            Subject::Learning,
            data::Learned {
                id: format!("l-{count}"),
                ..data::Learned::default()
            },
        );
    }
}

fn tail(project: &Project, last: usize) -> Result<Replayed> {
    Events::new(project).replay(&Replay {
        last: Some(last),
        ..Replay::default()
    })
}

fn seqs(replayed: &Replayed) -> Vec<u64> {
    replayed.events.iter().map(|event| event.seq).collect()
}

#[test]
fn without_a_server_events_stand_in_the_journal_only() {
    let folder = tempfile::tempdir().unwrap();
    let project = project(folder.path(), None);
    say(&project, 3);
    events::emit(&project, Subject::SessionStart, data::Started::default());
    let replayed = tail(&project, 2).unwrap();
    assert_eq!(seqs(&replayed), [3, 4]);
    assert_eq!(replayed.events[1].about(), Some(Subject::SessionStart));
    assert_eq!(replayed.events[1].agent, "Forge");
    assert!(!folder.path().join(EVENTS_OUTBOX).exists());
    assert_eq!(Events::new(&project).drain(CAP).unwrap().sent, 0);
}

#[test]
fn events_reach_the_server_in_order_and_none_waits_then() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::up();
    let project = project(folder.path(), Some(server.clone()));
    say(&project, 3);
    assert_eq!(server.seqs(), [1, 2, 3]);
    assert!(!folder.path().join(EVENTS_OUTBOX).exists());
    let read = Replay::default().stored(&server.stored());
    assert_eq!(
        read,
        Events::new(&project).replay(&Replay::default()).unwrap(),
        "the server has what the journal has"
    );
    assert!(
        server
            .state
            .lock()
            .unwrap()
            .asked
            .iter()
            .all(|within| *within <= CAP)
    );
}

#[test]
fn what_the_server_missed_reaches_it_first_and_with_the_same_ids() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::up();
    let project = project(folder.path(), Some(server.clone()));
    say(&project, 2);
    server.answers(0);
    say(&project, 3);
    assert_eq!(Events::new(&project).waiting().unwrap(), 3);
    server.answers(2);
    assert_eq!(
        Events::new(&project).drain(CAP).unwrap(),
        Drained {
            sent: 2,
            waiting: 1,
            dropped: 0,
            error: Some("no event server: it is away".to_owned())
        }
    );
    server.answers(usize::MAX);
    say(&project, 1);
    assert_eq!(server.seqs(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(Events::new(&project).waiting().unwrap(), 0);
    let ids: Vec<_> = tail(&project, 6)
        .unwrap()
        .events
        .iter()
        .map(|event| event.id.to_string())
        .collect();
    assert_eq!(
        server
            .stored()
            .into_iter()
            .map(|stored| stored.message.id)
            .collect::<Vec<_>>(),
        ids
    );
}

#[test]
fn an_event_whose_answer_was_lost_is_sent_again_and_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::up();
    let project = project(folder.path(), Some(server.clone()));
    server.answers(0);
    server.state.lock().unwrap().silent = true;
    say(&project, 1);
    assert_eq!(
        (
            server.seqs().len(),
            Events::new(&project).waiting().unwrap()
        ),
        (1, 1)
    );
    server.answers(usize::MAX);
    assert_eq!(Events::new(&project).drain(CAP).unwrap().sent, 1);
    assert_eq!(server.seqs(), [1]);
}

#[test]
fn many_at_once_count_without_a_gap_and_the_server_has_each_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::up();
    project(folder.path(), None);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let project = project(folder.path(), Some(server.clone()));
            scope.spawn(move || say(&project, 25));
        }
    });
    let project = project(folder.path(), Some(server.clone()));
    Events::new(&project).drain(CAP).unwrap();
    let replayed = Events::new(&project).replay(&Replay::default()).unwrap();
    assert_eq!(seqs(&replayed), (1..=100).collect::<Vec<_>>());
    assert!(replayed.gaps.is_empty());
    assert_eq!(
        server.seqs(),
        (1..=100).collect::<Vec<_>>(),
        "in order, however many send"
    );
    assert_eq!(Events::new(&project).waiting().unwrap(), 0);
}

#[test]
fn a_torn_line_costs_that_event_only_and_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::up();
    let project = project(folder.path(), Some(server.clone()));
    server.answers(0);
    say(&project, 3);
    for path in [JOURNAL, EVENTS_OUTBOX] {
        let path = folder.path().join(path);
        let text = std::fs::read(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 30]).unwrap();
    }
    server.answers(usize::MAX);
    say(&project, 1);
    let replayed = Events::new(&project).replay(&Replay::default()).unwrap();
    assert_eq!(
        (seqs(&replayed), replayed.damaged),
        (vec![1, 2, 3], 1),
        "the number of the torn one is given again"
    );
    assert_eq!(server.seqs(), [1, 2, 3]);
    assert_eq!(Events::new(&project).waiting().unwrap(), 0);
}

#[test]
fn an_event_whose_writer_died_before_the_journal_had_it_is_added_before_it_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::up();
    let project = project(folder.path(), Some(server.clone()));
    server.answers(0);
    say(&project, 3);
    let path = folder.path().join(JOURNAL);
    let text = std::fs::read_to_string(&path).unwrap();
    let cut = text.trim_end().rfind('\n').unwrap() + 1;
    std::fs::write(&path, &text[..cut]).unwrap();
    server.answers(usize::MAX);
    Events::new(&project).drain(CAP).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    assert_eq!(server.seqs(), [1, 2, 3]);
    server.answers(0);
    say(&project, 1);
    std::fs::write(&path, &text).unwrap();
    say(&project, 1);
    assert_eq!(
        seqs(&Events::new(&project).replay(&Replay::default()).unwrap()),
        [1, 2, 3, 4, 5]
    );
}

#[test]
fn what_is_missing_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let project = project(folder.path(), None);
    say(&project, 8);
    let path = folder.path().join(JOURNAL);
    let text = std::fs::read_to_string(&path).unwrap();
    let left: Vec<_> = text
        .lines()
        .enumerate()
        .filter(|(at, _)| ![2, 3, 6].contains(at))
        .map(|(_, line)| line)
        .collect();
    std::fs::write(&path, left.join("\n")).unwrap();
    let replayed = Events::new(&project).replay(&Replay::default()).unwrap();
    assert_eq!(seqs(&replayed), [1, 2, 5, 6, 8]);
    assert_eq!(
        replayed
            .gaps
            .iter()
            .map(|gap| (gap.from, gap.to))
            .collect::<Vec<_>>(),
        [(3, 4), (7, 7)]
    );
    let later = Events::new(&project)
        .replay(&Replay {
            after: 5,
            ..Replay::default()
        })
        .unwrap();
    assert_eq!((seqs(&later), later.gaps.len()), (vec![6, 8], 1));
}

#[test]
fn a_large_journal_becomes_the_older_one_and_the_count_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let project = project(folder.path(), None);
    say(&project, 2);
    let path = folder.path().join(JOURNAL);
    let first = std::fs::read_to_string(&path).unwrap();
    // Padding is no event, and no damage.
    std::fs::write(&path, first + &" ".repeat(4 << 20) + "\n").unwrap();
    say(&project, 2);
    assert!(std::fs::metadata(&path).unwrap().len() < 4_096);
    let replayed = Events::new(&project).replay(&Replay::default()).unwrap();
    assert_eq!((seqs(&replayed), replayed.damaged), (vec![1, 2, 3, 4], 0));
}

#[test]
fn events_are_chosen_by_what_they_are_about_when_and_how_many() {
    let folder = tempfile::tempdir().unwrap();
    let project = project(folder.path(), None);
    say(&project, 2);
    events::emit(
        &project,
        Subject::Health,
        serde_json::json!({"colour": "green"}),
    );
    let chosen = |replay: Replay| seqs(&Events::new(&project).replay(&replay).unwrap());
    assert_eq!(
        chosen(Replay {
            about: vec![Subject::Health],
            ..Replay::default()
        }),
        [3]
    );
    assert_eq!(
        chosen(Replay {
            last: Some(1),
            about: vec![Subject::Learning],
            ..Replay::default()
        }),
        [2]
    );
    let third = tail(&project, 1).unwrap().events.remove(0);
    assert_eq!(
        chosen(Replay {
            since: Some(third.ts),
            ..Replay::default()
        }),
        [3]
    );
    assert!(
        chosen(Replay {
            session: Some("other".to_owned()),
            ..Replay::default()
        })
        .is_empty()
    );
}

#[test]
fn an_event_of_another_session_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let project = project(folder.path(), None);
    events::emit_of(
        &project,
        "2025-12-24-session-001",
        Subject::SessionAbandoned,
        data::Ended::default(),
    );
    say(&project, 1);
    let of_it = Replay {
        session: Some("2025-12-24-session-001".to_owned()),
        ..Replay::default()
    };
    assert_eq!(seqs(&Events::new(&project).replay(&of_it).unwrap()), [1]);
}

#[test]
fn an_event_never_fails_whatever_is_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let project = project(folder.path(), None);
    // JSON has no map with such keys, so this payload cannot be serialised.
    events::emit(&project, Subject::Health, BTreeMap::from([((1, 2), 3)]));
    assert_eq!(tail(&project, 1).unwrap().events[0].data, Json::Null);
    std::fs::remove_file(folder.path().join(JOURNAL)).unwrap();
    std::fs::create_dir(folder.path().join(JOURNAL)).unwrap();
    say(&project, 1);
}

#[test]
fn an_event_outlasts_a_lock_that_is_held_for_long() {
    let root = tempfile::tempdir().unwrap();
    let (held, other) = (project(root.path(), None), project(root.path(), None));
    say(&held, 1);
    let guard = held.files().lock().unwrap();
    let saying = std::thread::spawn(move || {
        assert!(other.files().lock().is_err(), "other work gives up");
        say(&other, 1);
    });
    std::thread::sleep(Duration::from_secs(11));
    drop(guard);
    saying.join().unwrap();
    assert_eq!(seqs(&tail(&held, 9).unwrap()), [1, 2]);
}

#[test]
fn another_prefix_is_used_and_one_that_makes_no_sense_is_not() {
    for (configured, subject) in [
        ("acme.team", "acme.team.forge.memory.learning"),
        ("a b", "sx9.forge.memory.learning"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        project(folder.path(), None);
        let text = format!("[events]\nprefix = \"{configured}\"\n");
        std::fs::write(folder.path().join(crate::layout::CONFIG), text).unwrap();
        let project = project(folder.path(), None);
        say(&project, 1);
        let event = tail(&project, 1).unwrap().events.remove(0);
        assert_eq!(
            (event.subject.as_str(), event.kind.as_str()),
            (subject, "forge/memory/learning")
        );
    }
}

#[test]
fn with_a_server_configured_but_none_to_talk_to_events_wait() {
    let folder = tempfile::tempdir().unwrap();
    project(folder.path(), None);
    std::fs::write(
        folder.path().join(crate::layout::CONFIG),
        "[events]\nuse = \"team\"\n",
    )
    .unwrap();
    let project = project(folder.path(), None);
    say(&project, 2);
    assert_eq!(Events::new(&project).drain(CAP).unwrap().waiting, 2);
    assert_eq!(
        Events::new(&project)
            .replay_stored(&Replay::default(), CAP)
            .unwrap_err()
            .code,
        "E_NOT_BUILT"
    );
    let wrong = Events::new(&project).wrong_settings().unwrap();
    assert!(
        wrong.contains("built without") && wrong.contains("outbox"),
        "{wrong}"
    );
    let reasons = health::measure(&project).short_term.reasons;
    assert!(
        reasons
            .iter()
            .any(|reason| reason.code.as_str() == "events_settings"),
        "{reasons:?}"
    );
}

#[test]
fn an_event_says_where_it_happened() {
    let folder = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| {
        let run = Command::new("git")
            .args(args)
            .current_dir(folder.path())
            .envs([
                ("GIT_CONFIG_GLOBAL", "/dev/null"),
                ("GIT_CONFIG_SYSTEM", "/dev/null"),
            ])
            .envs([
                ("GIT_AUTHOR_NAME", "a"),
                ("GIT_AUTHOR_EMAIL", "a@b"),
                ("GIT_COMMITTER_NAME", "a"),
                ("GIT_COMMITTER_EMAIL", "a@b"),
            ])
            .output()
            .unwrap();
        assert!(run.status.success());
    };
    git(&["init", "--quiet", "--initial-branch=main"]);
    git(&["commit", "--quiet", "--allow-empty", "-m", "first"]);
    git(&["commit", "--quiet", "--allow-empty", "-m", "second"]);
    let project = project(folder.path(), None);
    say(&project, 2);
    let events = tail(&project, 2).unwrap().events;
    let repository = Git::find(folder.path()).unwrap().unwrap();
    for event in &events {
        assert_eq!(event.branch.as_deref(), Some("main"));
        assert_eq!(
            event.head,
            repository.head().unwrap().map(|head| head.to_string())
        );
        assert_eq!(
            event.repo,
            repository
                .root_commit()
                .unwrap()
                .map(|first| first.to_string())
        );
        assert_ne!(event.head, event.repo);
    }
    assert!(
        !events[0].worktree.contains('/') && events[0].worktree.len() > 8,
        "{}",
        events[0].worktree
    );
    let ids: Vec<Uuid> = events.iter().map(|event| event.id).collect();
    assert!(ids[0] != ids[1] && ids.iter().all(|id| id.get_version_num() == 7));
}

#[test]
fn a_server_that_let_one_wait_is_not_waited_for_again_by_the_events_that_follow() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::up();
    let clock = Arc::new(ManualClock::default());
    std::fs::create_dir_all(folder.path().join(".forge")).unwrap();
    let environment = ProjectEnvironment {
        sink: Some(server.clone()),
        clock: clock.clone(),
        ..ProjectEnvironment::default()
    };
    let project = Project::open(folder.path(), environment).unwrap().unwrap();
    server.state.lock().unwrap().silent = true;
    server.answers(0);
    say(&project, 3);
    let asked = || server.state.lock().unwrap().asked.len();
    assert_eq!(asked(), 1, "the other two were put away without a word");
    assert_eq!(Events::new(&project).waiting().unwrap(), 3);
    server.answers(usize::MAX);
    clock.advance(REST - Duration::from_millis(1));
    say(&project, 1);
    assert_eq!(asked(), 1);
    clock.advance(Duration::from_millis(1));
    say(&project, 1);
    assert_eq!(server.seqs(), [1, 2, 3, 4, 5]);
    assert_eq!(Events::new(&project).waiting().unwrap(), 0);
}

#[test]
fn an_event_that_the_server_refuses_holds_up_none_behind_it_and_is_not_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::up();
    let project = project(folder.path(), Some(server.clone()));
    server.state.lock().unwrap().unwanted = vec![1, 3];
    say(&project, 5);
    assert_eq!(server.seqs(), [2, 4, 5]);
    let drained = Events::new(&project).drain(CAP).unwrap();
    assert_eq!((drained.sent, drained.waiting, drained.dropped), (0, 2, 0));
    assert!(drained.error.unwrap().contains("not wanted"));
    server.state.lock().unwrap().unwanted.clear();
    assert_eq!(Events::new(&project).drain(CAP).unwrap().sent, 2);
    assert_eq!(server.seqs(), [2, 4, 5, 1, 3]);
}

#[test]
fn what_the_server_kept_is_read_again_without_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::up();
    let project = project(folder.path(), Some(server));
    say(&project, 5);
    let before = Events::new(&project).replay(&Replay::default()).unwrap();
    std::fs::remove_file(folder.path().join(JOURNAL)).unwrap();
    for page in 1..=6 {
        let after = Events::new(&project)
            .replay_pages(&Replay::default(), CAP, page)
            .unwrap();
        assert_eq!(after, before, "by pages of {page}");
    }
    let few = Events::new(&project)
        .replay_stored(
            &Replay {
                last: Some(2),
                ..Replay::default()
            },
            CAP,
        )
        .unwrap();
    assert_eq!(seqs(&few), [4, 5]);
    let without = Project::open(folder.path(), ProjectEnvironment::default())
        .unwrap()
        .unwrap();
    let error = Events::new(&without)
        .replay_stored(&Replay::default(), CAP)
        .unwrap_err();
    assert_eq!(error.code, "E_NO_SERVER");
}

/// A misconfigured server.
#[derive(Debug)]
struct Wrong;

impl Sink for Wrong {
    fn publish(&self, _: &Message, _: Duration) -> std::result::Result<Receipt, SinkError> {
        self.check().map(|()| Receipt {
            sequence: 1,
            duplicate: false,
        })
    }

    fn check(&self) -> std::result::Result<(), SinkError> {
        Err(SinkError::Settings("the URL names no host".to_owned()))
    }
}

#[test]
fn settings_that_make_no_sense_are_told_by_the_doctor_and_the_health() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = |project: &Project| {
        let found = init::doctor(project, false).unwrap().found;
        let found = found
            .into_iter()
            .filter(|found| found.problem == crate::init::Problem::WrongSetting);
        let reasons = health::measure(project).short_term.reasons;
        let reasons = reasons
            .into_iter()
            .filter(|reason| reason.code == crate::health::Code::EventsSettings);
        (
            found.map(|found| found.detail).collect::<Vec<_>>(),
            reasons.map(|reason| reason.detail).collect::<Vec<_>>(),
        )
    };
    let (found, reasons) = outcome(&project(folder.path(), Some(Arc::new(Wrong))));
    assert!(
        found.len() == 1 && found[0].contains("names no host"),
        "{found:?}"
    );
    assert!(
        reasons.len() == 1 && reasons[0].contains("names no host"),
        "{reasons:?}"
    );
    assert_eq!(
        outcome(&project(folder.path(), Some(Server::up()))),
        (Vec::new(), Vec::new())
    );
    std::fs::write(
        folder.path().join(crate::layout::CONFIG),
        "[events]\nprefix = \"a b\"\n",
    )
    .unwrap();
    let (found, reasons) = outcome(&project(folder.path(), None));
    assert!(
        found.len() == 1 && found[0].contains("sx9 stands in its place"),
        "{found:?}"
    );
    assert_eq!(reasons.len(), 1);
}

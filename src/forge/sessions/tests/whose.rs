//! Session ownership, and what happens to unfinished ends.

use super::*;
use crate::events::Events;
use crate::fixture::made;
use crate::knowledge::KnowledgeFile;
use crate::sessions::Sessions;

fn log(project: &Project, text: &str) -> crate::Result<Logged> {
    Sessions::new(project).log(&Log {
        text: text.to_owned(),
        next: None,
    })
}

fn over(project: &Project, id: &str) -> Session {
    let folder = Sessions::new(project).folder_of(id).unwrap();
    Sessions::new(project).archived(&folder).unwrap().unwrap()
}

fn join(project: &Project) -> Session {
    Sessions::new(project)
        .start(&Start {
            join: true,
            ..Start::default()
        })
        .unwrap()
        .session
}

#[test]
fn unnamed_callers_never_use_another_agents_session() {
    let fixture = Fixture::new();
    let project = fixture.open();
    let theirs = start(&project).session.id;
    let before = fixture.read(".forge/memory/short-term/progress.txt");
    let other = fixture.as_agent("Axiom");
    let sessions = Sessions::new(&other);
    let refused = [
        log(&other, "Mine").unwrap_err(),
        sessions.focus_to_change().unwrap_err(),
        sessions.required().unwrap_err(),
        sessions.end(&End::default()).unwrap_err(),
        sessions.start(&Start::default()).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(
            (error.category, error.code),
            (Category::Locked, "E_SESSION_LIVE"),
            "{error}"
        );
        assert!(
            error.message.contains(&theirs) && error.message.contains("Forge"),
            "{error}"
        );
    }
    // Operations without a session still work, and read-only commands list the active sessions.
    sessions.learn(learned()).unwrap();
    assert!(!made::<KnowledgeFile>(project.root()).contains(&theirs));
    assert_eq!(
        (
            sessions.current().unwrap(),
            sessions.shown().unwrap().unwrap().id
        ),
        (None, theirs)
    );
    assert_eq!(
        fixture.read(".forge/memory/short-term/progress.txt"),
        before
    );
    assert_eq!(
        Sessions::new(&project).current().unwrap().unwrap().state,
        State::Live
    );
}

#[test]
fn joined_agents_use_their_own_session() {
    let fixture = Fixture::new();
    let project = fixture.open();
    let first = start(&project).session.id;
    let other = fixture.as_agent("Axiom");
    let second = join(&other).id;
    assert_eq!(log(&other, "Beside").unwrap().session, Some(second.clone()));
    assert_eq!(
        log(&project, "Before").unwrap().session,
        Some(first.clone())
    );
    let again = Sessions::new(&other).start(&Start::default()).unwrap();
    assert_eq!((again.session.id, again.again), (second.clone(), true));
    let ended = Sessions::new(&other).end(&End::default()).unwrap();
    assert_eq!(
        (ended.session.as_str(), ended.again),
        (second.as_str(), false)
    );
    let ended = Sessions::new(&other).end(&End::default()).unwrap();
    assert_eq!(
        (ended.session, ended.again),
        (second, true),
        "it is over, and nobody else's is ended for it"
    );
    assert_eq!(
        Sessions::new(&project).current().unwrap().unwrap().id,
        first
    );
    let replayed = Events::new(&other)
        .replay(&Replay {
            about: vec![Subject::SessionEnd],
            ..Replay::default()
        })
        .unwrap();
    assert_eq!(replayed.events.len(), 1);
}

#[test]
fn two_sessions_of_one_name_must_be_named() {
    let fixture = Fixture::new();
    let project = fixture.open();
    let first = start(&project).session.id;
    let second = join(&project).id;
    for error in [
        log(&project, "Whose").unwrap_err(),
        Sessions::new(&project).end(&End::default()).unwrap_err(),
    ] {
        assert_eq!(
            (error.category, error.code),
            (Category::Locked, "E_SESSION_LIVE"),
            "{error}"
        );
        assert!(
            error.message.contains(&first) && error.message.contains(&second),
            "{error}"
        );
    }
    assert_eq!(
        log(&fixture.in_session(&first), "Here").unwrap().session,
        Some(first)
    );
    let begun = Events::new(&project)
        .replay(&Replay {
            about: vec![Subject::SessionStart],
            ..Replay::default()
        })
        .unwrap();
    assert_eq!(
        begun.events.last().unwrap().session.as_deref(),
        Some(second.as_str()),
        "it began, not the first"
    );
}

#[test]
fn next_start_finishes_an_interrupted_end() {
    for take_over in [false, true] {
        let fixture = Fixture::new();
        let project = fixture.open();
        let id = start(&project).session.id;
        let ending = Ending {
            since: Some(fixture.environment().now()),
            next: Some("Wire it".to_owned()),
            learned: vec![learned()],
            ..Ending::default()
        };
        Sessions::new(&project)
            .change(&id, |session| {
                session.state = State::Ending;
                session.ending = Some(ending);
            })
            .unwrap();
        if !take_over {
            fixture.minutes(61);
        }
        let begin = Start {
            take_over,
            ..Start::default()
        };
        let begun = Sessions::new(&fixture.as_agent("Axiom"))
            .start(&begin)
            .unwrap();
        assert_eq!(
            (begun.session.agent.as_str(), begun.abandoned.len()),
            ("Axiom", 0),
            "{:?}",
            begun.warnings
        );
        let knowledge = made::<KnowledgeFile>(project.root());
        assert!(
            knowledge.contains("Adding a subject") && knowledge.contains(&id),
            "{knowledge}"
        );
        assert_eq!(over(&project, &id).state, State::Ended);
        assert_eq!(
            (
                count_events(&project, Subject::SessionEnd),
                count_events(&project, Subject::SessionAbandoned)
            ),
            (1, 0)
        );
        assert!(begun.prime.text.contains("Wire it"), "{}", begun.prime.text);
    }
}

#[test]
fn newer_knowledge_file_does_not_block_the_end() {
    let path = ".forge/memory/long-term/knowledge.json";
    let fixture = Fixture::new();
    let project = fixture.open();
    let id = start(&project).session.id;
    fixture
        .repository
        .write(path, "{\"schema_version\": \"2.0\"}\n");
    let error = Sessions::new(&project)
        .end(&End {
            learned: vec![learned()],
            ..End::default()
        })
        .unwrap_err();
    assert_eq!(
        (error.category, error.code),
        (Category::Refused, "E_SCHEMA_NEWER"),
        "{error}"
    );
    assert_eq!(
        Sessions::new(&project).current().unwrap().unwrap().state,
        State::Live
    );
    // An earlier interrupted end finishes too, and reports what was not stored.
    let ending = Ending {
        since: Some(fixture.environment().now()),
        learned: vec![learned()],
        ..Ending::default()
    };
    Sessions::new(&project)
        .change(&id, |session| {
            session.state = State::Ending;
            session.ending = Some(ending);
        })
        .unwrap();
    let ended = Sessions::new(&project).end(&End::default()).unwrap();
    assert!(
        ended
            .warnings
            .iter()
            .any(|warning| warning.contains("newer")),
        "{:?}",
        ended.warnings
    );
    assert_eq!(over(&project, &id).ending.unwrap().learned, [learned()]);
}

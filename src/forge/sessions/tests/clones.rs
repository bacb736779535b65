//! Two clones of a repository that give the same name to two sessions of a day.

use super::*;
use crate::focus::Focused;
use crate::git::fixture::run_at;
use crate::layout::SESSIONS;
use crate::sessions::Sessions;

fn day(project: &Project, text: &str) -> Session {
    let session = start(project).session;
    Sessions::new(project)
        .log(&Log {
            text: text.to_owned(),
            next: None,
        })
        .unwrap();
    Sessions::new(project)
        .end(&End {
            next: Some(format!("After {text}")),
            ..End::default()
        })
        .unwrap();
    session
}

#[test]
fn equally_named_sessions_merge_without_conflict() {
    let fixture = Fixture::new();
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("clone");
    let clone = [
        "clone",
        "--quiet",
        &fixture.path().display().to_string(),
        &there.display().to_string(),
    ]
    .map(str::to_owned);
    run_at(
        folder.path(),
        &clone.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    let (here, other) = (
        fixture.open(),
        open(
            &there,
            ProjectEnvironment {
                agent: "Axiom".to_owned(),
                ..fixture.environment()
            },
        ),
    );
    let sessions = [
        (day(&here, "Work here"), "Work here"),
        (day(&other, "Work there"), "Work there"),
    ];
    assert_eq!(sessions[0].0.id, sessions[1].0.id);
    assert_ne!(sessions[0].0.uuid, sessions[1].0.uuid);

    run_at(&there, &["pull", "--quiet", "--no-rebase", "--no-edit"]);
    let read = |path: String| std::fs::read_to_string(there.join(path)).unwrap();
    for (session, text) in &sessions {
        let folder = format!("{SESSIONS}/{}", session.folder());
        let log = read(format!("{folder}/progress.txt"));
        assert_eq!(
            sessions
                .iter()
                .filter(|(_, other)| log.contains(other))
                .count(),
            1,
            "{log}"
        );
        assert!(log.contains(text), "{log}");
    }
    // A repeated end reports the caller's own session, and the next session gets a name that
    // neither had.
    let again = Sessions::new(&other).end(&End::default()).unwrap();
    assert_eq!(
        (again.again, again.next.as_deref()),
        (true, Some("After Work there"))
    );
    let next = start(&other);
    assert_eq!(next.session.id, "2025-12-24-session-002");
    assert_eq!(
        run_at(&there, &["status", "--porcelain"]),
        "",
        "nothing of what was put away is put away again"
    );
}

#[test]
fn folders_of_earlier_versions_are_read() {
    for kept in [true, false] {
        let fixture = Fixture::new();
        let project = fixture.open();
        let session = start(&project).session;
        let set = crate::focus::SetFocus {
            task: Some("Wire it".to_owned()),
            ..Default::default()
        };
        Focused::new(&project).set(&set).unwrap();
        Sessions::new(&project)
            .end(&End {
                next: Some("Go on".to_owned()),
                ..End::default()
            })
            .unwrap();
        let at = |folder: &str| fixture.path().join(SESSIONS).join(folder);
        let record = Sessions::new(&project)
            .archived(&session.folder())
            .unwrap()
            .unwrap();
        let record = crate::json::print(&Session {
            schema_version: Some("1.0".to_owned()),
            ..record
        })
        .unwrap();
        std::fs::write(at(&session.folder()).join("session.json"), record).unwrap();
        std::fs::rename(at(&session.folder()), at(&session.id)).unwrap();
        fixture.repository.commit("As it was");
        if !kept {
            std::fs::remove_file(fixture.path().join(crate::layout::ENDED)).unwrap();
        }
        let again = Sessions::new(&project).end(&End::default()).unwrap();
        assert_eq!(
            (again.session.as_str(), again.again),
            (session.id.as_str(), true)
        );
        let named = Sessions::new(&fixture.in_session(&session.id))
            .end(&End::default())
            .unwrap();
        assert_eq!(named.session, session.id);
        assert_eq!(
            Sessions::new(&project).folder_of(&session.id).unwrap(),
            session.id
        );
        let next = start(&project);
        assert_eq!(next.session.id, "2025-12-24-session-002");
        assert!(next.prime.text.contains("Go on"), "{}", next.prime.text);
        assert_eq!(
            fixture.repository.run(&["status", "--porcelain"]),
            "",
            "{kept}: it is not put away once more"
        );
    }
}

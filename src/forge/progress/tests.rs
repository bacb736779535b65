use super::*;
use crate::fixture::Fixture;
use crate::layout::QUARANTINE;
use crate::layout::SESSIONS;
use crate::progress::Progress;

const SAMPLE: &str = include_str!("../../forge_documents/fixtures/progress.txt");

#[test]
fn a_session_is_logged_as_the_rfc_shows_it() {
    let fixture = Fixture::new();
    let progress = Progress::new(&fixture.project);
    assert_eq!(progress.read().unwrap(), None);
    let sample = Log::parse(SAMPLE, &fixture.project.environment().zone);
    for entry in &sample.entries {
        fixture.at(&entry.at.unwrap().to_string());
        if entry.checkpoint {
            progress.checkpoint(&entry.text).unwrap();
        } else {
            assert_eq!(
                progress.log(&entry.text).unwrap().line,
                format!("[{}] {}", entry.time, entry.text)
            );
        }
    }
    for _ in 0..2 {
        progress
            .next("Wire ATLAS daemon to NATS (see Linear SX9-xxx)")
            .unwrap();
        assert_eq!(
            fixture.text(PROGRESS),
            SAMPLE,
            "said again, it is not written again"
        );
    }
    assert_eq!(progress.read().unwrap(), Some(sample));
}

#[test]
fn a_new_session_puts_the_old_file_away_and_begins_only_once() {
    let fixture = Fixture::new();
    fixture.repository.write(PROGRESS, SAMPLE);
    let progress = Progress::new(&fixture.project);
    let begun = progress.begin("2025-12-24-session-002").unwrap();
    let archived = begun.archived.unwrap();
    assert!(
        archived.session.starts_with("2025-12-24-unnamed-"),
        "{}",
        archived.session
    );
    assert_eq!(
        (archived.entries, fixture.text(&archived.path)),
        (6, SAMPLE.to_owned())
    );
    let opening =
        "=== FORGE Session 2025-12-24 ===\n# session: 2025-12-24-session-002\n# zone: UTC\n\n";
    assert_eq!(fixture.text(PROGRESS), opening);
    progress.log("Started").unwrap();
    assert_eq!(
        progress.begin("2025-12-24-session-002").unwrap(),
        Begun {
            already: true,
            archived: None,
            removed: vec![]
        }
    );
    assert_eq!(
        fixture.text(PROGRESS),
        format!("{opening}[12:00] Started\n")
    );

    let archived = progress
        .begin("2025-12-24-session-003")
        .unwrap()
        .archived
        .unwrap();
    assert_eq!(
        archived.path,
        format!("{SESSIONS}/2025-12-24-session-002/progress.txt")
    );
    assert_eq!(
        fixture.text(&archived.path),
        format!("{opening}[12:00] Started\n")
    );
    assert_eq!(progress.archives().unwrap().len(), 2);
    assert!(progress.begin("../out").is_err());
}

#[test]
fn the_end_of_a_session_and_the_start_of_the_next_archive_it_once() {
    let fixture = Fixture::new();
    let progress = Progress::new(&fixture.project);
    assert_eq!(progress.archive().unwrap(), None);
    progress.begin("s-1").unwrap();
    progress.log("Session ending").unwrap();
    assert_eq!(progress.archive().unwrap(), None, "it says nothing");
    progress.log("One thing").unwrap();
    let first = progress.archive().unwrap().unwrap();
    assert_eq!(progress.archive().unwrap().unwrap(), first);
    progress.log("One thing more").unwrap();
    let whole = fixture.text(PROGRESS);
    assert_eq!(progress.archive().unwrap().unwrap().path, first.path);
    assert_eq!(fixture.text(&first.path), whole);
    assert_eq!(
        progress.begin("s-2").unwrap().archived.unwrap().path,
        first.path
    );
    assert_eq!(
        fixture
            .project
            .files()
            .list(&format!("{SESSIONS}/s-1"))
            .unwrap()
            .len(),
        1
    );

    // Another log of the same session is not written over.
    fixture
        .repository
        .write(PROGRESS, "# session: s-1\n[13:00] Again\n");
    assert_eq!(
        progress.begin("s-3").unwrap().archived.unwrap().path,
        format!("{SESSIONS}/s-1/progress-2.txt")
    );
    assert_eq!(fixture.text(&first.path), whole);
}

#[test]
fn killed_between_moving_the_old_file_and_writing_the_new_one_it_begins_again() {
    let fixture = Fixture::new();
    let progress = Progress::new(&fixture.project);
    progress.begin("s-1").unwrap();
    progress.log("Work").unwrap();
    let whole = fixture.text(PROGRESS);
    let archive = format!("{SESSIONS}/s-1/progress.txt");
    fixture.project.files().rename(PROGRESS, &archive).unwrap();
    assert_eq!(progress.begin("s-2").unwrap().archived, None);
    assert_eq!(fixture.text(&archive), whole);
    assert_eq!(
        progress.read().unwrap().unwrap().session.as_deref(),
        Some("s-2")
    );
}

#[test]
fn a_torn_line_stays_and_the_next_begins_on_its_own() {
    let fixture = Fixture::new();
    fixture
        .repository
        .write(PROGRESS, "=== FORGE Session 2025-12-24 ===\n\n[11:0");
    Progress::new(&fixture.project).log("Goes on").unwrap();
    assert_eq!(
        fixture.text(PROGRESS),
        "=== FORGE Session 2025-12-24 ===\n\n[11:0\n[12:00] Goes on\n"
    );
    let log = Progress::new(&fixture.project).read().unwrap().unwrap();
    assert_eq!((log.entries.len(), log.malformed_lines), (1, 1));
}

#[test]
fn a_file_that_is_no_text_is_loud_and_nothing_is_added() {
    for bytes in [
        &b"[11:00] a\n\0\0\0\0"[..],
        b"\xff\xfe[11:00] a",
        b"[11:00] \xc3",
    ] {
        let fixture = Fixture::new();
        fixture.repository.write(PROGRESS, bytes);
        let progress = Progress::new(&fixture.project);
        for error in [
            progress.read().unwrap_err(),
            progress.log("a").unwrap_err(),
            progress.next("a").unwrap_err(),
            progress.begin("s-1").unwrap_err(),
            progress.archive().unwrap_err(),
        ] {
            assert_eq!(error.code, "E_CORRUPT");
        }
        assert_eq!(
            std::fs::read(fixture.project.root().join(PROGRESS)).unwrap(),
            bytes
        );
        assert_eq!(fixture.project.files().list(QUARANTINE).unwrap().len(), 1);
    }
    let fixture = Fixture::new();
    fixture.repository.write(PROGRESS, "");
    assert_eq!(
        Progress::new(&fixture.project).read().unwrap(),
        Some(Log::default())
    );
    Progress::new(&fixture.project).log("a").unwrap();
    assert_eq!(
        fixture.text(PROGRESS),
        "=== FORGE Session 2025-12-24 ===\n\n[12:00] a\n"
    );
}

#[test]
fn no_secret_is_written_or_put_where_git_sees_it() {
    let fixture = Fixture::new();
    let progress = Progress::new(&fixture.project);
    let token = format!("{}_{}", "ghp", "16C7e42F292c6912E7710c838347Ae178B4a");
    for error in [
        progress.log(&token).unwrap_err(),
        progress.next(&token).unwrap_err(),
        progress.checkpoint(&token).unwrap_err(),
    ] {
        assert_eq!(error.category.exit_code(), 7);
        assert!(!format!("{error:?}").contains(&token));
    }
    assert!(!fixture.has(PROGRESS), "not even begun");
    fixture
        .repository
        .write(PROGRESS, format!("# session: s-1\n[11:00] {token}\n"));
    assert_eq!(progress.begin("s-2").unwrap_err().category.exit_code(), 7);
    assert!(fixture.has(PROGRESS) && progress.archives().unwrap().is_empty());
}

#[test]
fn a_second_session_has_a_file_of_its_own() {
    let fixture = Fixture::new();
    let progress = Progress::new(&fixture.project);
    progress.begin("s-1").unwrap();
    let second = progress.clone().of("s-2").unwrap();
    second.begin("s-2").unwrap();
    second.log("Beside").unwrap();
    assert_eq!(second.path(), format!("{SESSIONS}/s-2/progress.txt"));
    assert_eq!(second.archive().unwrap(), None, "it is where it belongs");
    assert_eq!(progress.read().unwrap().unwrap().entries.len(), 0);
    assert_eq!(second.read().unwrap().unwrap().entries.len(), 1);
    for bad in ["", "..", "a/b", ".a", "a b", &"x".repeat(65)] {
        assert!(progress.clone().of(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn old_archives_go_only_if_git_has_them_exactly_so() {
    let fixture = Fixture::with_config("[session]\narchives = 3\n");
    let at = |n: usize| format!("{SESSIONS}/2025-12-{n:02}-session-001/progress.txt");
    for n in 1..=6 {
        fixture.repository.write(&at(n), format!("[10:00] {n}\n"));
    }
    let progress = Progress::new(&fixture.project);
    assert!(
        progress
            .begin("2025-12-24-session-001")
            .unwrap()
            .removed
            .is_empty(),
        "git has none of them"
    );
    progress.log("Read").unwrap();
    fixture.repository.run(&["add", "-A"]);
    assert!(
        progress
            .begin("2025-12-24-session-002")
            .unwrap()
            .removed
            .is_empty(),
        "there is no commit"
    );
    progress.log("Write").unwrap();
    fixture.repository.commit("Archive");
    fixture.repository.write(&at(2), "[10:00] 2, and more\n");
    let removed = progress.begin("2025-12-24-session-003").unwrap().removed;
    // Now there are eight: 1 to 6, and those of two sessions.
    assert_eq!(
        removed,
        [
            "2025-12-01-session-001",
            "2025-12-03-session-001",
            "2025-12-04-session-001",
            "2025-12-05-session-001"
        ]
    );
    assert!(fixture.has(&at(2)) && fixture.has(&at(6)) && !fixture.has(&at(1)));
    assert_eq!(
        fixture
            .repository
            .run(&["show", &format!("HEAD:{}", at(1))]),
        "[10:00] 1"
    );
}

#[test]
fn nothing_is_logged_while_work_is_paused() {
    let fixture = Fixture::new();
    fixture.repository.write(
        crate::layout::PAUSED,
        r#"{"reason":"why","since":"2025-12-24T12:00:00Z"}"#,
    );
    let progress = Progress::new(&fixture.project);
    assert_eq!(progress.log("a").unwrap_err().category.exit_code(), 4);
    assert_eq!(progress.next("a").unwrap_err().category.exit_code(), 4);
    assert_eq!(progress.begin("s").unwrap_err().category.exit_code(), 4);
    assert!(!fixture.has(PROGRESS));
}

#[test]
fn the_archive_of_a_session_that_lives_stays_and_so_does_what_was_changed() {
    let fixture = Fixture::with_config("[session]\narchives = 1\n");
    let at = |n: usize| format!("{SESSIONS}/2025-12-{n:02}-session-001/progress.txt");
    for n in 1..=4 {
        fixture.repository.write(&at(n), format!("[10:00] {n}\n"));
    }
    fixture.repository.commit("archives");
    let files = fixture.project.files();
    files
        .edit::<crate::sessions::ActiveSessions, _>(None, |living| {
            let mut session = <crate::sessions::Session as crate::files::Document>::skeleton();
            session.id = "2025-12-01-session-001".into();
            session.state = crate::sessions::State::Live;
            living.sessions.push(session);
            Ok(())
        })
        .unwrap();
    fixture
        .repository
        .write(&at(3), "[10:00] 3\n[10:01] more\n");
    let begun = Progress::new(&fixture.project)
        .begin("2025-12-05-session-001")
        .unwrap();
    assert_eq!(begun.removed, ["2025-12-02-session-001"]);
    assert!(
        fixture.has(&at(1)) && !fixture.has(&at(2)) && fixture.has(&at(3)) && fixture.has(&at(4))
    );
}

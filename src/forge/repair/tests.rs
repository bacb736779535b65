use std::process::Command;

use super::*;
use crate::checkpoints::Checkpoints;
use crate::environment::ProjectEnvironment;
use crate::init::{self, Init};
use crate::layout::{CONFIG, FEATURES, PROGRESS, QUARANTINE};
use crate::progress::Progress;
use crate::repair;

fn project() -> (tempfile::TempDir, Project) {
    let folder = tempfile::tempdir().unwrap();
    git(&folder, &["init", "-q", "-b", "main"]);
    let (project, _) = init::init(
        folder.path(),
        ProjectEnvironment::default(),
        &Init::default(),
    )
    .unwrap();
    (folder, project)
}

fn git(folder: &tempfile::TempDir, args: &[&str]) {
    let output = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@a"])
        .args(args)
        .current_dir(folder.path())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn names(project: &Project) -> Vec<String> {
    repair::damaged(project).unwrap()
}

fn sources(repair: &Repair) -> Vec<Source> {
    repair
        .candidates
        .iter()
        .map(|candidate| candidate.source)
        .collect()
}

const FEATURE: &str = ".forge/memory/long-term/features/A-001-a.json";

#[test]
fn good_versions_are_offered_in_order() {
    let (folder, project) = project();
    let path = folder.path().join(FEATURE);
    let first =
        "{\n  \"id\": \"A-001\",\n  \"name\": \"a\",\n  \"status\": \"failing\"\n}\n".to_owned();
    std::fs::write(&path, &first).unwrap();
    git(&folder, &["add", "-A"]);
    git(&folder, &["commit", "-qm", "good"]);
    std::fs::write(&path, "{ damaged in git too").unwrap();
    git(&folder, &["commit", "-qam", "bad"]);
    std::fs::write(&path, &first).unwrap();
    // An edit keeps the version it wrote as the last good one.
    let good = first.replace("\"id\"", "\"mine\": 1,\n  \"id\"");
    project
        .files()
        .write(&last_good(FEATURE), good.as_bytes())
        .unwrap();
    let damaged = "{ \"schema_version\": \"1.0\", ";
    std::fs::write(&path, damaged).unwrap();

    assert_eq!(names(&project), [FEATURE]);
    let shown = repair::repair(&project, FEATURE, RepairRequest::default()).unwrap();
    assert_eq!(sources(&shown), [Source::LastGood, Source::Git]);
    assert!(
        shown
            .damage
            .as_ref()
            .unwrap()
            .starts_with("line 1, column "),
        "{shown:?}"
    );
    assert!(
        shown.candidates[0].diff.contains("\n-{ \"schema_version\"")
            && shown.candidates[0].diff.contains("\n+  \"mine\": 1,")
    );
    assert!(shown.applied.is_none());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), damaged);

    let repaired = repair::repair(
        &project,
        FEATURE,
        RepairRequest {
            yes: true,
            from: Some(Source::Git),
        },
    )
    .unwrap();
    assert_eq!(repaired.applied, Some(Source::Git));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), first);
    assert_eq!(
        std::fs::read_to_string(folder.path().join(repaired.copy.unwrap())).unwrap(),
        damaged
    );
    let nothing = repair::repair(
        &project,
        FEATURE,
        RepairRequest {
            yes: true,
            from: None,
        },
    )
    .unwrap();
    assert!(nothing.damage.is_none() && nothing.applied.is_none());
}

#[test]
fn valid_lines_of_a_list_are_kept() {
    let (folder, project) = project();
    let path = folder.path().join(crate::layout::EVENTS_OUTBOX);
    std::fs::write(&path, b"{\"a\":1}\n{\"b\":\n\xff\n{\"c\":3}\n{\"d\"").unwrap();
    let shown = repair::repair(
        &project,
        crate::layout::EVENTS_OUTBOX,
        RepairRequest::default(),
    )
    .unwrap();
    assert_eq!(sources(&shown), [Source::Salvage]);
    assert!(shown.candidates[0].detail.contains("3 damaged"));
    repair::repair(
        &project,
        crate::layout::EVENTS_OUTBOX,
        RepairRequest {
            yes: true,
            from: None,
        },
    )
    .unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"{\"a\":1}\n{\"c\":3}\n");
}

#[test]
fn valid_lines_of_a_progress_are_kept() {
    let (folder, project) = project();
    let path = folder.path().join(PROGRESS);
    std::fs::write(
        &path,
        b"=== FORGE Session 2025-12-24 ===\n\n[11:00] one\n[11:01] t\0wo\n\xff\n[11:02] three\n",
    )
    .unwrap();
    let error = Progress::new(&project).log("four").unwrap_err();
    assert_eq!(
        error.next.as_deref(),
        Some(&*format!("helmdeck forge repair {PROGRESS}"))
    );
    let shown = repair::repair(&project, PROGRESS, RepairRequest::default()).unwrap();
    assert_eq!(sources(&shown), [Source::Salvage, Source::Skeleton]);
    repair::repair(
        &project,
        PROGRESS,
        RepairRequest {
            yes: true,
            from: None,
        },
    )
    .unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        text,
        "=== FORGE Session 2025-12-24 ===\n\n[11:00] one\n[11:02] three\n"
    );
    Progress::new(&project).log("four").unwrap();
}

#[test]
fn uncopied_file_stays_until_it_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".forge")).unwrap();
    let project = Project::open(folder.path(), crate::ProjectEnvironment::default())
        .unwrap()
        .unwrap();
    std::fs::write(folder.path().join(".forge/a.json"), "{").unwrap();
    let copy = keep(&project, ".forge/a.json", b"", true).unwrap().unwrap();
    for path in [".forge/a.json", &copy] {
        assert_eq!(
            std::fs::read_to_string(folder.path().join(path)).unwrap(),
            "{",
            "{path}"
        );
    }
}

#[test]
fn damaged_bytes_are_kept_beyond_ten_copies() {
    let (folder, project) = project();
    let path = folder.path().join(FEATURES);
    for n in 0..10 {
        std::fs::write(&path, format!("{{{n}")).unwrap();
        project
            .files()
            .quarantine(FEATURES, format!("{{{n}").as_bytes())
            .unwrap();
    }
    std::fs::write(&path, "{the eleventh").unwrap();
    let repaired = repair::repair(
        &project,
        FEATURES,
        RepairRequest {
            yes: true,
            from: None,
        },
    )
    .unwrap();
    assert_eq!(
        std::fs::read_to_string(folder.path().join(repaired.copy.unwrap())).unwrap(),
        "{the eleventh"
    );
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(64 << 20).unwrap();
    let repaired = repair::repair(
        &project,
        FEATURES,
        RepairRequest {
            yes: true,
            from: None,
        },
    )
    .unwrap();
    assert_eq!(
        std::fs::metadata(folder.path().join(repaired.copy.unwrap()))
            .unwrap()
            .len(),
        64 << 20
    );
    assert!(repair::damaged(&project).unwrap().is_empty());
    assert_eq!(project.files().list(QUARANTINE).unwrap().len(), 12);
}

#[test]
fn damaged_settings_are_repaired_without_opening_them() {
    let (folder, project) = project();
    let path = folder.path().join(CONFIG);
    let first = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, "[files\n").unwrap();
    assert!(Project::open(folder.path(), ProjectEnvironment::default()).is_err());
    drop(project);
    let project = Project::open_anyway(folder.path(), ProjectEnvironment::default())
        .unwrap()
        .unwrap();
    assert_eq!(names(&project), [CONFIG]);
    let shown = repair::repair(&project, CONFIG, RepairRequest::default()).unwrap();
    assert!(
        shown.hint.unwrap().contains("line 1, column"),
        "one may mend it by hand"
    );
    repair::repair(
        &project,
        CONFIG,
        RepairRequest {
            yes: true,
            from: None,
        },
    )
    .unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), first);
}

#[test]
fn only_our_own_files_are_repaired() {
    let (folder, project) = project();
    std::fs::write(folder.path().join("package.json"), "{").unwrap();
    for (path, code) in [
        ("package.json", "E_USAGE"),
        ("../a.json", "E_PATH"),
        (".forge/none.jsonl", "E_NOT_FOUND"),
    ] {
        assert_eq!(
            repair::repair(
                &project,
                path,
                RepairRequest {
                    yes: true,
                    from: None
                }
            )
            .unwrap_err()
            .code,
            code,
            "{path}"
        );
    }
    std::fs::write(
        folder.path().join(FEATURES),
        "{\"schema_version\":\"2.0\",\"features\":1}",
    )
    .unwrap();
    assert_eq!(
        repair::repair(
            &project,
            FEATURES,
            RepairRequest {
                yes: true,
                from: None
            }
        )
        .unwrap_err()
        .code,
        "E_SCHEMA_NEWER"
    );
}

#[test]
fn checkpoint_file_is_repaired_from_its_tag() {
    let fixture = crate::recovery::tests::fixture::Fixture::new();
    let asked = crate::checkpoints::Create {
        key: Some("A-1".into()),
        ..Default::default()
    };
    let made = Checkpoints::new(&fixture.project()).create(&asked).unwrap();
    let whole = fixture.read(&made.path);
    fixture.write(&made.path, "{\"tag\": ");
    let project = fixture.project();
    assert_eq!(repair::damaged(&project).unwrap(), [made.path.as_str()]);
    let repaired = repair::repair(
        &project,
        &made.path,
        RepairRequest {
            yes: true,
            from: None,
        },
    )
    .unwrap();
    assert_eq!(repaired.applied, Some(Source::Tag));
    assert_eq!(fixture.read(&made.path), whole);
    assert!(
        Checkpoints::new(&project)
            .newest_usable()
            .unwrap()
            .is_some()
    );
}

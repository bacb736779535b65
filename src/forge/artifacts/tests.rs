use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::artifacts::Artifacts;
use crate::fixture::{Fixture, given, in_turn};
use crate::focus::{Focused, SetFocus};

const MAIN: &[u8] = b"fn main() {}\n";

fn code(name: &str) -> Put {
    Put::new(Kind::Code, name)
}

/// Returns the state of each file that the index names, by its name.
fn states(fixture: &Fixture) -> Vec<(String, State)> {
    let entries = index::read(&fixture.project).unwrap();
    let state = |entry: &ProjectArtifact| rebuild::state(&fixture.project, entry).unwrap();
    let name = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    let newest: BTreeMap<_, _> = entries
        .iter()
        .map(|entry| (name(&entry.path), state(entry)))
        .collect();
    newest.into_iter().collect()
}

#[test]
fn an_artifact_lies_under_a_name_of_its_content_and_the_index_knows_where_it_came_from() {
    let fixture = Fixture::new();
    let head = fixture.repository.commit("First");
    let focus = SetFocus {
        linear_issue: Some("SX9-123".into()),
        active_skill: Some("code-generation".into()),
        session: Some("2025-12-24-session-001".into()),
        ..SetFocus {
            task: Some("T".into()),
            ..SetFocus::default()
        }
    };
    Focused::new(&fixture.project).set(&focus).unwrap();
    let stored = Artifacts::new(&fixture.project)
        .put(MAIN, &code("Feature.rs"))
        .unwrap();
    let entry = stored.entry;
    assert_eq!(
        entry.path,
        ".forge/memory/artifacts/code/triv_2d74j8qqmvtr_feature.rs"
    );
    assert_eq!(
        (
            fixture.text(&entry.path).as_bytes(),
            stored.same,
            stored.warnings.len()
        ),
        (MAIN, false, 0)
    );
    assert_eq!(entry.triv.sch(), "2d74j8qqmvtroxz0ax7jdli74");
    let context = Context {
        kind: "code",
        session: "2025-12-24-session-001",
        agent: "Forge",
        key: Some("SX9-123"),
        head: Some(head.as_str()),
        name: "Feature.rs",
    };
    assert_eq!(entry.triv.cuid(), triv::cuid(&context).unwrap());
    let line: serde_json::Value = serde_json::from_str(&fixture.text(ARTIFACT_INDEX)).unwrap();
    let expected = serde_json::json!({
        "triv": entry.triv.to_string(), "path": entry.path, "kind": "code", "name": "Feature.rs", "media_type": "text/x-rust",
        "bytes": 13, "created_at": "2025-12-24T12:00:00Z", "session": "2025-12-24-session-001", "agent": "Forge",
        "linear": "SX9-123", "skill": "code-generation", "commit": head.as_str(), "produced_from": [],
        "sha256": "536e506bb90914c243a12b397b9a998f85ae2cbd9ba02dfd03a9e155ca5ca0f4",
    });
    assert_eq!(line, expected);
    let mode = std::fs::metadata(fixture.project.root().join(&entry.path))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o111, 0, "nobody may run it");
    let journal = fixture.text(crate::layout::JOURNAL);
    let event: serde_json::Value = serde_json::from_str(journal.lines().last().unwrap()).unwrap();
    assert_eq!(event["subject"], "sx9.forge.memory.artifact");
    assert_eq!(
        event["data"],
        serde_json::json!({"triv": entry.triv, "kind": "code", "bytes": 13, "same": false})
    );
}

#[test]
fn a_second_session_stores_for_itself() {
    let fixture = Fixture::new();
    let set = |session: &str, key: &str| SetFocus {
        task: Some("T".into()),
        session: Some(session.to_owned()),
        linear_issue: Some(key.to_owned()),
        ..SetFocus::default()
    };
    Focused::new(&fixture.project)
        .set(&set("s-1", "SX9-1"))
        .unwrap();
    Focused::new(&fixture.project)
        .of("s-2")
        .unwrap()
        .set(&set("s-2", "SX9-2"))
        .unwrap();
    for (session, linear) in [
        (None, Some("SX9-1")),
        (Some("s-1"), Some("SX9-1")),
        (Some("s-2"), Some("SX9-2")),
        (Some("s-3"), None),
    ] {
        let environment = crate::environment::ProjectEnvironment {
            session: session.map(str::to_owned),
            ..fixture.project.environment().clone()
        };
        let project = Project::open(fixture.project.root(), environment)
            .unwrap()
            .unwrap();
        let entry = Artifacts::new(&project)
            .put(MAIN, &code("a.rs"))
            .unwrap()
            .entry;
        assert_eq!(
            (entry.session.as_deref(), entry.linear.as_deref()),
            (session.or(Some("s-1")), linear)
        );
    }
}

#[test]
fn the_same_bytes_of_a_kind_are_one_file_and_one_line_each_time() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    let first = artifacts.put(MAIN, &code("a.rs")).unwrap();
    fixture.at("2025-12-24T12:01:00Z");
    let second = artifacts.put(MAIN, &code("b.rs")).unwrap();
    assert!(second.same && first.entry.triv != second.entry.triv);
    assert_eq!(first.entry.path, second.entry.path);
    let docs = artifacts.put(MAIN, &Put::new(Kind::Docs, "a.rs")).unwrap();
    assert!(!docs.same);
    let listed = artifacts
        .list(&Filter {
            kind: Some(Kind::Code),
            limit: 1,
            ..Filter::default()
        })
        .unwrap();
    assert_eq!(
        (
            listed.total,
            listed.artifacts.len(),
            listed.artifacts[0].name.as_str()
        ),
        (2, 1, "b.rs")
    );
    let got = artifacts.get(&first.entry.path).unwrap();
    assert_eq!(
        (got.made, got.entry.name.as_str(), got.state),
        (2, "b.rs", State::Ok)
    );
    assert_eq!(artifacts.bytes(&got.entry).unwrap(), MAIN);
}

#[test]
fn an_artifact_is_found_by_any_of_its_names() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    let entry = artifacts.put(MAIN, &code("a.rs")).unwrap().entry;
    artifacts.put(b"other", &code("b.rs")).unwrap();
    let triv = entry.triv.to_string();
    let short = format!(
        "triv:{}_{}_{}",
        &entry.triv.sch()[..3],
        &entry.triv.cuid()[..3],
        &triv[45..60]
    );
    for name in [
        triv.as_str(),
        &short,
        &entry.path,
        "triv_2d74j8qqmvtr_a.rs",
        "code/triv_2d74j8qqmvtr_a.rs",
        "2d74j8",
    ] {
        assert_eq!(artifacts.get(name).unwrap().entry, entry, "{name}");
    }
    for name in [
        "triv:abc_def_ghi",
        "triv_abc123_feature.rs",
        "2d74j",
        "a.rs",
        "",
        "../a",
    ] {
        assert_eq!(
            artifacts.get(name).unwrap_err().code,
            "E_DANGLING",
            "{name}"
        );
    }
    let docs = artifacts
        .put(MAIN, &Put::new(Kind::Docs, "a.rs"))
        .unwrap()
        .entry;
    assert_eq!(artifacts.get("2d74j8").unwrap_err().code, "E_AMBIGUOUS");
    assert_eq!(artifacts.get(&docs.triv.to_string()).unwrap().entry, docs);
}

#[test]
fn a_reference_that_stands_for_nothing_is_only_a_warning() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    let from = Reference::parse("triv:abc_def_ghi").unwrap();
    let stored = artifacts
        .put(
            MAIN,
            &Put {
                produced_from: vec![from.clone()],
                ..code("a.rs")
            },
        )
        .unwrap();
    assert!(
        stored.warnings[0].starts_with("dangling: triv:abc_def_ghi"),
        "{:?}",
        stored.warnings
    );
    let real = Reference::from(&stored.entry.triv);
    let next = artifacts
        .put(
            b"made of it",
            &Put {
                produced_from: vec![real],
                ..code("b.rs")
            },
        )
        .unwrap();
    assert!(next.warnings.is_empty());
    assert_eq!(
        artifacts
            .list(&Filter::default())
            .unwrap()
            .artifacts
            .last()
            .unwrap()
            .produced_from,
        [from]
    );
}

#[test]
fn a_short_name_that_another_content_has_is_made_longer() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    let folder = Kind::Code.folder();
    fixture.repository.write(
        &format!("{folder}/triv_2d74j8qqmvtr_a.rs"),
        "something else",
    );
    let path = artifacts.put(MAIN, &code("a.rs")).unwrap().entry.path;
    assert_eq!(path, format!("{folder}/triv_2d74j8qqmvtro_a.rs"));
    assert!(artifacts.put(MAIN, &code("a.rs")).unwrap().same);
    // A changed file is not overwritten: the content is stored again under a new name.
    fixture.repository.write(&path, "changed");
    let again = artifacts.put(MAIN, &code("a.rs")).unwrap();
    assert_eq!(
        (again.same, again.entry.path),
        (false, format!("{folder}/triv_2d74j8qqmvtrox_a.rs"))
    );
    assert_eq!(
        states(&fixture),
        [
            ("triv_2d74j8qqmvtro_a.rs".to_owned(), State::Changed),
            ("triv_2d74j8qqmvtrox_a.rs".to_owned(), State::Ok),
        ]
    );
    assert_eq!(
        artifacts
            .bytes(&artifacts.get(&path).unwrap().entry)
            .unwrap_err()
            .code,
        "E_CORRUPT"
    );
}

#[test]
fn every_way_in_which_a_file_can_be_is_told() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    for name in ["a.md", "b.md", "c.md"] {
        artifacts
            .put(name.as_bytes(), &Put::new(Kind::Docs, name))
            .unwrap();
    }
    let path = |name: &str| {
        let all = artifacts.list(&Filter::default()).unwrap().artifacts;
        all.into_iter()
            .find(|entry| entry.name == name)
            .unwrap()
            .path
    };
    fixture.repository.write(&path("b.md"), "B.md");
    std::fs::remove_file(fixture.project.root().join(path("c.md"))).unwrap();
    fixture.repository.write(
        &format!("{}/triv_abc123_feature.rs", Kind::Code.folder()),
        "of the RFC",
    );
    fixture.repository.write(
        &format!("{}/note.txt", Kind::Reports.folder()),
        "no artifact",
    );
    assert_eq!(artifacts.total().unwrap(), 4 + 4 + 10 + 11);
    let find = |text: &str| {
        states(&fixture)
            .into_iter()
            .find(|(name, _)| name.contains(text))
            .unwrap()
            .1
    };
    assert_eq!(
        ["a.md", "b.md", "c.md"].map(find),
        [State::Ok, State::Changed, State::Missing]
    );
    assert_eq!(
        artifacts.list(&Filter::default()).unwrap().total,
        3,
        "neither of the others is what its name says"
    );
}

#[test]
fn file_without_a_line_has_an_entry() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    let old = artifacts.put(MAIN, &code("a.rs")).unwrap().entry;
    artifacts
        .put(b"text", &Put::new(Kind::Reports, "b.txt"))
        .unwrap();
    // As in another clone: git does not have the index.
    std::fs::remove_file(fixture.project.root().join(ARTIFACT_INDEX)).unwrap();
    let new = artifacts.get(&old.path).unwrap().entry;
    assert!(new.rebuilt && new.session.is_none());
    assert_eq!(
        (new.triv.sch(), &new.path, new.bytes),
        (old.triv.sch(), &old.path, old.bytes)
    );
    for name in [old.triv.to_string(), new.triv.to_string()] {
        assert_eq!(artifacts.get(&name).unwrap().entry, new, "{name}");
    }
    assert!(
        states(&fixture)
            .iter()
            .all(|(_, state)| *state == State::Ok)
    );
    let from = Reference::parse(&format!("triv:{}_000_000", old.triv.sch())).unwrap();
    let stored = artifacts
        .put(
            b"new",
            &Put {
                supersedes: Some(from),
                ..code("c.rs")
            },
        )
        .unwrap();
    assert!(stored.warnings.is_empty(), "{stored:?}");
    assert_eq!(artifacts.list(&Filter::default()).unwrap().total, 3);
}
#[test]
fn unreadable_line_costs_only_what_it_said() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    artifacts.put(MAIN, &code("a.rs")).unwrap();
    let good = fixture.text(ARTIFACT_INDEX);
    artifacts.put("é".as_bytes(), &code("é.rs")).unwrap();
    let whole = fixture.text(ARTIFACT_INDEX).into_bytes();
    let list = || artifacts.list(&Filter::default()).unwrap().artifacts;
    for end in good.len()..whole.len() {
        std::fs::write(fixture.project.root().join(ARTIFACT_INDEX), &whole[..end]).unwrap();
        // Only the line feed is missing.
        let rebuilt = list().iter().filter(|entry| entry.rebuilt).count();
        assert_eq!(
            (list().len(), rebuilt),
            (2, usize::from(end < whole.len() - 1)),
            "cut at {end}"
        );
    }
    let outside = good.replace(".forge/memory/artifacts/code/", "../../");
    for bad in [
        "<<<<<<< ours\n",
        "\0\0\0\0\n",
        "[]\n",
        "{\"triv\":1}\n",
        "\u{feff}{\n",
        &outside,
    ] {
        fixture
            .repository
            .write(ARTIFACT_INDEX, format!("{good}{bad}{good}"));
        assert_eq!(list().len(), 2, "{bad:?}");
        assert!(
            artifacts.put("é".as_bytes(), &code("é.rs")).unwrap().same,
            "{bad:?}"
        );
        assert!(list().iter().all(|entry| !entry.rebuilt), "{bad:?}");
    }
}
#[test]
fn only_a_file_is_stored() {
    let fixture = Fixture::new();
    let (artifacts, root) = (
        Artifacts::new(&fixture.project),
        fixture.project.root().to_owned(),
    );
    assert_eq!(
        artifacts
            .put_file(&root.join("none"), &code("a"))
            .unwrap_err()
            .category,
        Category::NotFound
    );
    assert_eq!(
        artifacts.put_file(&root, &code("a")).unwrap_err().category,
        Category::Usage
    );
    let pipe = root.join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(
        artifacts.put_file(&pipe, &code("a")).unwrap_err().category,
        Category::Usage,
        "nobody waits for it"
    );
}

#[test]
fn too_large_is_refused_and_too_much_is_told() {
    let fixture = Fixture::with_config("[artifacts]\nmax_bytes = 10\ntotal_bytes = 15\n");
    let artifacts = Artifacts::new(&fixture.project);
    assert!(
        artifacts
            .put(&[b'a'; 10], &code("a"))
            .unwrap()
            .warnings
            .is_empty()
    );
    let error = artifacts.put(&[b'b'; 11], &code("b")).unwrap_err();
    assert_eq!((error.code, error.category.exit_code()), ("E_TOO_LARGE", 9));
    fixture.repository.write("big", [b'c'; 11]);
    assert_eq!(
        artifacts
            .put_file(&fixture.project.root().join("big"), &code("c"))
            .unwrap_err()
            .code,
        "E_TOO_LARGE"
    );
    let stored = artifacts.put(b"dddddd", &code("d")).unwrap();
    assert!(
        stored.warnings[0].contains("16 bytes, more than 15"),
        "{:?}",
        stored.warnings
    );
}

#[test]
fn bytes_of_any_kind_are_stored_as_they_are_but_no_secret() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    let all: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let entry = artifacts
        .put(&all, &Put::new(Kind::Reports, "picture.png"))
        .unwrap()
        .entry;
    assert_eq!(
        (artifacts.bytes(&entry).unwrap(), entry.media_type.as_str()),
        (all.clone(), "image/png")
    );
    assert_eq!(
        artifacts.put(&all, &code("x")).unwrap().entry.media_type,
        "application/octet-stream"
    );
    assert_eq!(
        artifacts.put(b"", &code("empty")).unwrap().entry.media_type,
        "text/plain"
    );

    fixture.repository.write("file.sh", "#!/bin/sh\nexit 1\n");
    let script = fixture.project.root().join("file.sh");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let stored = artifacts.put_file(&script, &code("file.sh")).unwrap().entry;
    assert_eq!(
        std::fs::metadata(fixture.project.root().join(stored.path))
            .unwrap()
            .permissions()
            .mode()
            & 0o111,
        0
    );

    let token = format!(
        "token = {}_{}\n",
        "ghp", "16C7e42F292c6912E7710c838347Ae178B4a"
    );
    let before = fixture.text(ARTIFACT_INDEX);
    for bytes in [
        token.clone().into_bytes(),
        [&[0], token.as_bytes()].concat(),
    ] {
        assert_eq!(
            artifacts
                .put(&bytes, &code("t.txt"))
                .unwrap_err()
                .category
                .exit_code(),
            7
        );
    }
    assert_eq!(fixture.text(ARTIFACT_INDEX), before);
    for bad in ["", " ", "a\nb", &"x".repeat(256)] {
        assert_eq!(
            artifacts
                .put(b"x", &code(bad))
                .unwrap_err()
                .category
                .exit_code(),
            2,
            "{bad:?}"
        );
    }
}

#[test]
fn a_snapshot_says_in_which_state_everything_was() {
    let fixture = Fixture::new();
    let head = fixture.repository.commit("First");
    Focused::new(&fixture.project)
        .set(&SetFocus {
            task: Some("One".into()),
            ..SetFocus::default()
        })
        .unwrap();
    let artifacts = Artifacts::new(&fixture.project);
    let first = artifacts.snapshot().unwrap();
    assert_eq!(
        (first.entry.kind, first.entry.name.as_str()),
        (Kind::Reports, "context_snapshot.json")
    );
    let snapshot: Snapshot =
        serde_json::from_slice(&artifacts.bytes(&first.entry).unwrap()).unwrap();
    assert_eq!(
        (snapshot.head, snapshot.branch.as_deref()),
        (Some(head.to_string()), Some("main"))
    );
    assert_eq!(
        snapshot.etags["focus"],
        Some(triv::sch(fixture.text(crate::layout::FOCUS).as_bytes()))
    );
    assert_eq!(snapshot.etags["knowledge"], None);
    assert_eq!(snapshot.focus.unwrap().task.as_deref(), Some("One"));
    assert!(artifacts.snapshot().unwrap().same);
    Focused::new(&fixture.project)
        .set(&SetFocus {
            phase: Some("BUILD".into()),
            ..SetFocus::default()
        })
        .unwrap();
    assert!(!artifacts.snapshot().unwrap().same);
    assert_eq!(
        artifacts.get(&first.entry.triv.to_string()).unwrap().entry,
        first.entry
    );
}

#[test]
fn reading_changes_nothing() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    assert_eq!(artifacts.list(&Filter::default()).unwrap().total, 0);
    assert_eq!(states(&fixture), []);
    assert!(!fixture.has(crate::layout::ARTIFACTS) && !fixture.has(crate::layout::LOCAL));
}

#[test]
fn eight_processes_lose_no_artifact() {
    let fixture = Fixture::new();
    fixture.eight("artifacts::tests::a_worker_stores");
    let artifacts = Artifacts::new(&fixture.project);
    let listed = artifacts.list(&Filter::default()).unwrap();
    assert_eq!(listed.total, 200);
    let states = states(&fixture);
    assert!(states.iter().all(|(_, state)| *state == State::Ok));
    assert_eq!(states.len(), 20, "they stored the same twenty");
}

#[test]
#[ignore = "a worker of another test"]
fn a_worker_stores() {
    let Some((project, number)) = given() else {
        return;
    };
    for n in 0..25 {
        let put = Put {
            session: Some(format!("s-{number}")),
            ..code("a.rs")
        };
        in_turn(|| {
            Artifacts::new(&project).put(format!("fn f{}() {{}}\n", n % 20).as_bytes(), &put)
        });
    }
}

#[test]
fn a_pipe_that_nobody_writes_into_is_no_artifact() {
    let fixture = Fixture::new();
    let pipe = fixture.project.root().join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let error = Artifacts::new(&fixture.project)
        .put_file(&pipe, &code("a.rs"))
        .unwrap_err();
    assert!(error.message.contains("it is no file"), "{error}");
}

#[test]
fn an_index_that_grows_for_ever_is_read_for_ever() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    let first = artifacts.put(MAIN, &code("a.rs")).unwrap().entry;
    let part = |n: usize| format!(".forge/.local/artifacts.{n}.jsonl");
    // As if two parts had been filled; in the second one, something was removed.
    let padding = format!("\"pad\":\"{}\"", "x".repeat(4 << 10));
    let line = |triv: &Triv| {
        let entry = ProjectArtifact {
            triv: triv.clone(),
            name: "old.rs".into(),
            ..first.clone()
        };
        serde_json::to_string(&entry)
            .unwrap()
            .replacen('{', &format!("{{{padding},"), 1)
    };
    let context = Context {
        kind: "code",
        session: "-",
        agent: "-",
        key: None,
        head: None,
        name: "old.rs",
    };
    let fill = || {
        let trivs = (0..1_100)
            .map(|_| Triv::new(MAIN, &context, fixture.project.environment().uuid()).unwrap());
        trivs.map(|triv| line(&triv) + "\n").collect::<String>()
    };
    for n in 1..=2 {
        fixture.repository.write(ARTIFACT_INDEX, fill());
        artifacts
            .put(format!("{n}").as_bytes(), &code("b.rs"))
            .unwrap();
        assert!(fixture.has(&part(n)) && !fixture.has(&part(n + 1)));
        assert_eq!(
            fixture.text(ARTIFACT_INDEX).lines().count(),
            1,
            "a new part"
        );
    }
    assert_eq!(
        artifacts.list(&Filter::default()).unwrap().total,
        2 * 1_100 + 2,
        "the line of one artifact was overwritten"
    );
    assert_eq!(
        artifacts
            .get(&line_of(&fixture.text(&part(1))))
            .unwrap()
            .entry
            .name,
        "old.rs"
    );
}

fn line_of(text: &str) -> String {
    let entry: ProjectArtifact = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    entry.triv.to_string()
}

#[test]
fn a_name_that_looks_like_a_credential_leaves_no_file_behind() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    let name = format!("{}{}.txt", concat!("gh", "p_"), "aB3x".repeat(9));
    let error = artifacts
        .put(b"harmless", &Put::new(Kind::Docs, &name))
        .unwrap_err();
    assert_eq!((error.code, error.category.exit_code()), ("E_SECRET", 7));
    assert!(
        !error.message.contains("aB3x") && !error.message.contains("ab3x"),
        "{error}"
    );
    let left = fixture.project.files().list(&Kind::Docs.folder()).unwrap();
    assert!(left.is_empty() && !fixture.has(ARTIFACT_INDEX), "{left:?}");
    let environment = fixture.project.environment().clone();
    let allowing = Project::open(fixture.project.root(), environment)
        .unwrap()
        .unwrap()
        .allowing("github-token");
    assert!(
        !Artifacts::new(&allowing)
            .put(b"harmless", &Put::new(Kind::Docs, &name))
            .unwrap()
            .same
    );
    let logged = fixture.text(crate::layout::EXCEPTIONS);
    assert!(
        logged.lines().all(|line| line.contains("github-token")) && logged.lines().count() <= 2,
        "{logged}"
    );
}

#[test]
fn what_could_not_be_read_again_is_not_stored() {
    let config = "[files]\nmax_bytes = 2048\n[artifacts]\nmax_bytes = 1000000\n";
    let fixture = Fixture::with_config(config);
    let error = Artifacts::new(&fixture.project)
        .put(&[b'x'; 2049], &code("a.rs"))
        .unwrap_err();
    assert_eq!(
        (error.code, error.category),
        ("E_TOO_LARGE", Category::Refused)
    );
    assert!(error.hint.unwrap().contains("[files]"));
    let stored = Artifacts::new(&fixture.project)
        .put(&[b'x'; 2048], &code("a.rs"))
        .unwrap();
    assert_eq!(
        Artifacts::new(&fixture.project)
            .bytes(&stored.entry)
            .unwrap()
            .len(),
        2048
    );
}

#[test]
fn reports_that_newer_evidence_replaces_are_removed() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    let remove = || crate::features::remove_superseded_reports(&fixture.project).unwrap();
    let put = |day: u32, ids: &[&str]| {
        let passes: BTreeMap<_, _> = ids
            .iter()
            .map(|id| (*id, serde_json::json!({"executed": 1})))
            .collect();
        let report = serde_json::json!({"at": format!("2025-12-{day}T12:00:00Z"), "code_tree": null, "features": passes});
        artifacts
            .put(
                report.to_string().as_bytes(),
                &Put::new(Kind::Reports, VERIFICATION),
            )
            .unwrap()
            .entry
    };
    let (both, old) = (
        put(20, &["FORGE-001", "FORGE-002"]),
        put(21, &["FORGE-001"]),
    );
    let newest = put(22, &["FORGE-001"]);
    assert_eq!(
        remove(),
        std::slice::from_ref(&old.path),
        "nothing else shows FORGE-002"
    );
    fixture.repository.write(
        &format!("{}/A-1-v1.json", crate::layout::CHECKPOINTS),
        r#"{"timestamp": "2025-12-22T12:00:00Z", "code_tree": "0", "passes": {"FORGE-001": {"executed": 1}}}"#,
    );
    assert_eq!(
        remove(),
        std::slice::from_ref(&newest.path),
        "the checkpoint shows it"
    );
    assert_eq!(remove(), [""; 0]);
    assert_eq!(
        artifacts.get(&old.triv.to_string()).unwrap().state,
        State::Missing
    );
    assert!(fixture.has(&both.path));
}

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::artifacts::Artifacts;
use crate::fixture::{Fixture, given, in_turn};
use crate::focus::{Focused, SetFocus};
use crate::init;
use crate::repair;

const MAIN: &[u8] = b"fn main() {}\n";
const DAY: std::time::Duration = std::time::Duration::from_secs(86_400);

fn code(name: &str) -> Put {
    Put::new(Kind::Code, name)
}

fn states(fixture: &Fixture) -> Vec<(String, State)> {
    let verified = Artifacts::new(&fixture.project).verify(None).unwrap();
    let name = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    verified.artifacts.iter().map(|checked| (name(&checked.path), checked.state)).collect()
}

#[test]
fn an_artifact_lies_under_a_name_of_its_content_and_the_index_knows_where_it_came_from() {
    let fixture = Fixture::new();
    let head = fixture.repository.commit("First");
    let focus = SetFocus {
        linear_issue: Some("SX9-123".into()),
        active_skill: Some("code-generation".into()),
        session: Some("2025-12-24-session-001".into()),
        ..SetFocus { task: Some("T".into()), ..SetFocus::default() }
    };
    Focused::new(&fixture.project).set(&focus).unwrap();
    let stored = Artifacts::new(&fixture.project).put(MAIN, &code("Feature.rs")).unwrap();
    let entry = stored.entry;
    assert_eq!(entry.path, ".forge/memory/artifacts/code/triv_2d74j8qqmvtr_feature.rs");
    assert_eq!((fixture.text(&entry.path).as_bytes(), stored.same, stored.warnings.len()), (MAIN, false, 0));
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
    let mode = std::fs::metadata(fixture.project.root().join(&entry.path)).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0, "nobody may run it");
    let journal = fixture.text(crate::layout::JOURNAL);
    let event: serde_json::Value = serde_json::from_str(journal.lines().last().unwrap()).unwrap();
    assert_eq!(event["subject"], "sx9.forge.memory.artifact");
    assert_eq!(event["data"], serde_json::json!({"triv": entry.triv, "kind": "code", "bytes": 13, "same": false}));
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
    Focused::new(&fixture.project).set(&set("s-1", "SX9-1")).unwrap();
    Focused::new(&fixture.project).of("s-2").unwrap().set(&set("s-2", "SX9-2")).unwrap();
    for (session, linear) in
        [(None, Some("SX9-1")), (Some("s-1"), Some("SX9-1")), (Some("s-2"), Some("SX9-2")), (Some("s-3"), None)]
    {
        let environment = crate::environment::ProjectEnvironment {
            session: session.map(str::to_owned),
            ..fixture.project.environment().clone()
        };
        let project = Project::open(fixture.project.root(), environment).unwrap().unwrap();
        let entry = Artifacts::new(&project).put(MAIN, &code("a.rs")).unwrap().entry;
        assert_eq!((entry.session.as_deref(), entry.linear.as_deref()), (session.or(Some("s-1")), linear));
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
    let listed = artifacts.list(&Filter { kind: Some(Kind::Code), limit: 1, ..Filter::default() }).unwrap();
    assert_eq!((listed.total, listed.artifacts.len(), listed.artifacts[0].name.as_str()), (2, 1, "b.rs"));
    let got = artifacts.get(&first.entry.path).unwrap();
    assert_eq!((got.made, got.entry.name.as_str(), got.state), (2, "b.rs", State::Ok));
    assert_eq!(artifacts.bytes(&got.entry).unwrap(), MAIN);
}

#[test]
fn an_artifact_is_found_by_any_of_its_names() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    let entry = artifacts.put(MAIN, &code("a.rs")).unwrap().entry;
    artifacts.put(b"other", &code("b.rs")).unwrap();
    let triv = entry.triv.to_string();
    let short = format!("triv:{}_{}_{}", &entry.triv.sch()[..3], &entry.triv.cuid()[..3], &triv[45..60]);
    for name in [triv.as_str(), &short, &entry.path, "triv_2d74j8qqmvtr_a.rs", "code/triv_2d74j8qqmvtr_a.rs", "2d74j8"]
    {
        assert_eq!(artifacts.get(name).unwrap().entry, entry, "{name}");
    }
    for name in ["triv:abc_def_ghi", "triv_abc123_feature.rs", "2d74j", "a.rs", "", "../a"] {
        assert_eq!(artifacts.get(name).unwrap_err().code, "E_DANGLING", "{name}");
    }
    let docs = artifacts.put(MAIN, &Put::new(Kind::Docs, "a.rs")).unwrap().entry;
    assert_eq!(artifacts.get("2d74j8").unwrap_err().code, "E_AMBIGUOUS");
    assert_eq!(artifacts.get(&docs.triv.to_string()).unwrap().entry, docs);
}

#[test]
fn a_reference_that_stands_for_nothing_is_only_a_warning() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    let from = Reference::parse("triv:abc_def_ghi").unwrap();
    let stored = artifacts.put(MAIN, &Put { produced_from: vec![from.clone()], ..code("a.rs") }).unwrap();
    assert!(stored.warnings[0].starts_with("dangling: triv:abc_def_ghi"), "{:?}", stored.warnings);
    let real = Reference::from(&stored.entry.triv);
    let next = artifacts.put(b"made of it", &Put { produced_from: vec![real], ..code("b.rs") }).unwrap();
    assert!(next.warnings.is_empty());
    assert_eq!(artifacts.list(&Filter::default()).unwrap().artifacts.last().unwrap().produced_from, [from]);
}

#[test]
fn a_short_name_that_another_content_has_is_made_longer() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    let folder = Kind::Code.folder();
    fixture.repository.write(&format!("{folder}/triv_2d74j8qqmvtr_a.rs"), "something else");
    let path = artifacts.put(MAIN, &code("a.rs")).unwrap().entry.path;
    assert_eq!(path, format!("{folder}/triv_2d74j8qqmvtro_a.rs"));
    assert!(artifacts.put(MAIN, &code("a.rs")).unwrap().same);
    // A changed file is not overwritten: the content is stored again under a new name.
    fixture.repository.write(&path, "changed");
    let again = artifacts.put(MAIN, &code("a.rs")).unwrap();
    assert_eq!((again.same, again.entry.path), (false, format!("{folder}/triv_2d74j8qqmvtrox_a.rs")));
    assert_eq!(
        states(&fixture),
        [
            ("triv_2d74j8qqmvtr_a.rs".to_owned(), State::Unindexed),
            ("triv_2d74j8qqmvtro_a.rs".to_owned(), State::Changed),
            ("triv_2d74j8qqmvtrox_a.rs".to_owned(), State::Ok),
        ]
    );
    assert_eq!(artifacts.bytes(&artifacts.get(&path).unwrap().entry).unwrap_err().code, "E_CORRUPT");
}

#[test]
fn every_way_in_which_a_file_can_be_is_told() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    assert!(artifacts.verify(None).unwrap().ok, "nothing is fine");
    for name in ["a.md", "b.md", "c.md"] {
        artifacts.put(name.as_bytes(), &Put::new(Kind::Docs, name)).unwrap();
    }
    assert!(artifacts.verify(None).unwrap().ok);
    let path = |name: &str| {
        let all = artifacts.list(&Filter::default()).unwrap().artifacts;
        all.into_iter().find(|entry| entry.name == name).unwrap().path
    };
    fixture.repository.write(&path("b.md"), "B.md");
    std::fs::remove_file(fixture.project.root().join(path("c.md"))).unwrap();
    fixture.repository.write(&format!("{}/triv_abc123_feature.rs", Kind::Code.folder()), "of the RFC");
    fixture.repository.write(&format!("{}/note.txt", Kind::Reports.folder()), "no artifact");
    let verified = artifacts.verify(None).unwrap();
    assert!(!verified.ok && !verified.over);
    assert_eq!(verified.bytes, 4 + 4 + 10 + 11);
    let find = |text: &str| verified.artifacts.iter().find(|checked| checked.path.contains(text)).unwrap().state;
    assert_eq!(
        ["a.md", "b.md", "c.md", "abc123", "note.txt"].map(find),
        [State::Ok, State::Changed, State::Missing, State::Unindexed, State::Unindexed]
    );
    assert_eq!(artifacts.verify(Some("a.md")).unwrap().artifacts.len(), 1);
    let rebuilt = artifacts.rebuild().unwrap();
    assert_eq!((rebuilt.added, rebuilt.left.len()), (0, 2), "neither is what its name says");
}

#[test]
fn a_lost_index_is_made_again_from_the_files() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    let old = artifacts.put(MAIN, &code("a.rs")).unwrap().entry;
    artifacts.put(b"text", &Put::new(Kind::Reports, "b.txt")).unwrap();
    let index = fixture.project.root().join(ARTIFACT_INDEX);
    std::fs::remove_file(&index).unwrap();
    let rebuilt = artifacts.rebuild().unwrap();
    assert_eq!((rebuilt.added, rebuilt.left.len()), (2, 0));
    assert_eq!(artifacts.rebuild().unwrap().added, 0);
    let new = artifacts.get(&old.path).unwrap().entry;
    assert!(new.rebuilt && new.session.is_none());
    assert_eq!((new.triv.sch(), &new.path, new.bytes), (old.triv.sch(), &old.path, old.bytes));
    assert_ne!(new.triv.uuid(), old.triv.uuid());
    assert!(artifacts.verify(None).unwrap().ok);

    // The next `put` rebuilds a lost index too.
    std::fs::remove_file(&index).unwrap();
    let from = Reference::parse(&format!("triv:{}_000_000", old.triv.sch())).unwrap();
    artifacts.put(b"new", &Put { supersedes: Some(from), ..code("c.rs") }).unwrap();
    assert_eq!(artifacts.list(&Filter::default()).unwrap().total, 3);
}

#[test]
fn an_index_cut_at_any_byte_loses_at_most_the_line_that_was_being_written() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    artifacts.put(MAIN, &code("a.rs")).unwrap();
    let first = fixture.text(ARTIFACT_INDEX);
    artifacts.put("é".as_bytes(), &code("é.rs")).unwrap();
    let whole = fixture.text(ARTIFACT_INDEX).into_bytes();
    for end in first.len()..whole.len() {
        let index = Index::parse(&whole[..end]);
        // Only the line feed is missing.
        let both = end == whole.len() - 1;
        assert_eq!(index.entries.len(), if both { 2 } else { 1 }, "cut at {end}");
        let torn = index.bad.iter().filter(|bad| bad.torn).count();
        assert_eq!((torn, index.bad.len()), if both || end == first.len() { (0, 0) } else { (1, 1) }, "cut at {end}");
    }
    std::fs::write(fixture.project.root().join(ARTIFACT_INDEX), &whole[..whole.len() - 20]).unwrap();
    assert_eq!(
        artifacts.verify(None).unwrap().bad_lines,
        [BadLine { line: 2, torn: true, what: "the line is torn".into() }]
    );
    let stored = artifacts.put(b"three", &code("c.rs")).unwrap();
    assert_eq!(stored.warnings, [format!("{ARTIFACT_INDEX}:2: the line is torn")]);
    let listed = artifacts.list(&Filter::default()).unwrap();
    assert_eq!((listed.total, listed.bad_lines.len()), (2, 1));
    // The file of the torn line exists, and the index gets its line again.
    assert_eq!(artifacts.rebuild().unwrap().added, 1);
}

#[test]
fn a_damaged_index_is_loud_and_nothing_is_added() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    artifacts.put(MAIN, &code("a.rs")).unwrap();
    let good = fixture.text(ARTIFACT_INDEX);
    let twice = good.replacen('{', "{\"kind\":\"code\",", 1);
    let outside = good.replace(".forge/memory/artifacts/code/", "../../");
    for bad in ["<<<<<<< ours\n", "\0\0\0\0\n", "[]\n", "{\"triv\":1}\n", "\u{feff}{\n", &twice, &outside] {
        let text = format!("{good}{bad}{good}");
        fixture.repository.write(ARTIFACT_INDEX, &text);
        let error = artifacts.put(b"b", &code("b.rs")).unwrap_err();
        assert_eq!((error.code, error.category.exit_code()), ("E_CORRUPT", 8), "{bad:?}");
        assert!(error.message.contains("index.jsonl:2:"), "{error}");
        assert_eq!(fixture.text(ARTIFACT_INDEX), text);
        assert_eq!(artifacts.list(&Filter::default()).unwrap().total, 1, "what can be read is read");
        assert!(!artifacts.verify(None).unwrap().ok);
    }
    assert_eq!(fixture.project.files().list(&Kind::Code.folder()).unwrap().len(), 1);
}

#[test]
fn only_a_file_is_stored() {
    let fixture = Fixture::new();
    let (artifacts, root) = (Artifacts::new(&fixture.project), fixture.project.root().to_owned());
    assert_eq!(artifacts.put_file(&root.join("none"), &code("a")).unwrap_err().category, Category::NotFound);
    assert_eq!(artifacts.put_file(&root, &code("a")).unwrap_err().category, Category::Usage);
    let pipe = root.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert_eq!(artifacts.put_file(&pipe, &code("a")).unwrap_err().category, Category::Usage, "nobody waits for it");
}

#[test]
fn too_large_is_refused_and_too_much_is_told() {
    let fixture = Fixture::with_config("[artifacts]\nmax_bytes = 10\ntotal_bytes = 15\n");
    let artifacts = Artifacts::new(&fixture.project);
    assert!(artifacts.put(&[b'a'; 10], &code("a")).unwrap().warnings.is_empty());
    let error = artifacts.put(&[b'b'; 11], &code("b")).unwrap_err();
    assert_eq!((error.code, error.category.exit_code()), ("E_TOO_LARGE", 9));
    fixture.repository.write("big", [b'c'; 11]);
    assert_eq!(artifacts.put_file(&fixture.project.root().join("big"), &code("c")).unwrap_err().code, "E_TOO_LARGE");
    let stored = artifacts.put(b"dddddd", &code("d")).unwrap();
    assert!(stored.warnings[0].contains("16 bytes, more than 15"), "{:?}", stored.warnings);
    assert!(artifacts.verify(None).unwrap().over);
}

#[test]
fn bytes_of_any_kind_are_stored_as_they_are_but_no_secret() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    let all: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let entry = artifacts.put(&all, &Put::new(Kind::Reports, "picture.png")).unwrap().entry;
    assert_eq!((artifacts.bytes(&entry).unwrap(), entry.media_type.as_str()), (all.clone(), "image/png"));
    assert_eq!(artifacts.put(&all, &code("x")).unwrap().entry.media_type, "application/octet-stream");
    assert_eq!(artifacts.put(b"", &code("empty")).unwrap().entry.media_type, "text/plain");

    fixture.repository.write("file.sh", "#!/bin/sh\nexit 1\n");
    let script = fixture.project.root().join("file.sh");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let stored = artifacts.put_file(&script, &code("file.sh")).unwrap().entry;
    assert_eq!(std::fs::metadata(fixture.project.root().join(stored.path)).unwrap().permissions().mode() & 0o111, 0);

    let token = format!("token = {}_{}\n", "ghp", "16C7e42F292c6912E7710c838347Ae178B4a");
    let before = fixture.text(ARTIFACT_INDEX);
    for bytes in [token.clone().into_bytes(), [&[0], token.as_bytes()].concat()] {
        assert_eq!(artifacts.put(&bytes, &code("t.txt")).unwrap_err().category.exit_code(), 7);
    }
    assert_eq!(fixture.text(ARTIFACT_INDEX), before);
    for bad in ["", " ", "a\nb", &"x".repeat(256)] {
        assert_eq!(artifacts.put(b"x", &code(bad)).unwrap_err().category.exit_code(), 2, "{bad:?}");
    }
}

#[test]
fn only_what_nothing_names_goes_and_only_if_git_has_it() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    let put = |text: &str, put: Put| artifacts.put(text.as_bytes(), &put).unwrap().entry;
    let report = |name: &str| Put::new(Kind::Reports, name);
    let old = put("old", report("old.txt"));
    let source = put("source", report("source.txt"));
    let evidence = put("evidence", report("evidence.txt"));
    let replaced = put("replaced", report("replaced.txt"));
    put("made", Put { produced_from: vec![(&source.triv).into()], ..report("made.txt") });
    put("new", Put { supersedes: Some((&replaced.triv).into()), ..report("new.txt") });
    fixture.repository.write(crate::layout::FEATURES, format!("{{\"evidence\": \"{}\"}}", evidence.triv));
    let ask = Gc::default();
    assert!(artifacts.gc(&ask).unwrap().removed.is_empty(), "git has none of them");
    assert_eq!(artifacts.gc(&ask).unwrap().uncommitted[0].path, replaced.path);
    fixture.repository.commit("Artifacts");
    fixture.at("2026-01-24T12:00:00Z");
    put("young", report("young.txt"));

    let asked = artifacts.gc(&ask).unwrap();
    assert_eq!(asked.removed, [Candidate { path: replaced.path.clone(), bytes: 8, reason: "superseded".into() }]);
    assert!(fixture.has(&replaced.path), "it was only asked");
    let by_age = Gc { older: Some(7 * DAY), ..Gc::default() };
    let asked = artifacts.gc(&by_age).unwrap();
    assert_eq!((asked.removed.len(), asked.needed), (4, 2), "{asked:?}");
    assert!(artifacts.gc(&Gc { kind: Some(Kind::Docs), ..by_age }).unwrap().removed.is_empty());

    let done = artifacts.gc(&Gc { apply: true, ..Gc::default() }).unwrap();
    assert_eq!((done.removed.len(), done.bytes, done.applied), (1, 8, true));
    assert!(!fixture.has(&replaced.path) && fixture.has(&old.path));
    assert_eq!(artifacts.get(&replaced.triv.to_string()).unwrap().state, State::Removed);
    assert!(artifacts.verify(None).unwrap().ok);
    assert!(artifacts.gc(&Gc::default()).unwrap().removed.is_empty());
    // It may come back.
    let again = put("replaced", report("replaced.txt"));
    assert_eq!((again.path.as_str(), artifacts.get(&again.path).unwrap().state), (replaced.path.as_str(), State::Ok));
}

#[test]
fn a_snapshot_says_in_which_state_everything_was() {
    let fixture = Fixture::new();
    let head = fixture.repository.commit("First");
    Focused::new(&fixture.project).set(&SetFocus { task: Some("One".into()), ..SetFocus::default() }).unwrap();
    let artifacts = Artifacts::new(&fixture.project);
    let first = artifacts.snapshot().unwrap();
    assert_eq!((first.entry.kind, first.entry.name.as_str()), (Kind::Reports, "context_snapshot.json"));
    let snapshot: Snapshot = serde_json::from_slice(&artifacts.bytes(&first.entry).unwrap()).unwrap();
    assert_eq!((snapshot.head, snapshot.branch.as_deref()), (Some(head.to_string()), Some("main")));
    assert_eq!(snapshot.etags["focus"], Some(triv::sch(fixture.text(crate::layout::FOCUS).as_bytes())));
    assert_eq!(snapshot.etags["knowledge"], None);
    assert_eq!(snapshot.focus.unwrap().task.as_deref(), Some("One"));
    assert!(artifacts.snapshot().unwrap().same);
    Focused::new(&fixture.project).set(&SetFocus { phase: Some("BUILD".into()), ..SetFocus::default() }).unwrap();
    assert!(!artifacts.snapshot().unwrap().same);
    assert_eq!(artifacts.get(&first.entry.triv.to_string()).unwrap().entry, first.entry);
}

#[test]
fn reading_changes_nothing() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    assert_eq!(artifacts.list(&Filter::default()).unwrap().total, 0);
    assert!(artifacts.verify(None).unwrap().ok && artifacts.gc(&Gc::default()).unwrap().removed.is_empty());
    assert!(!fixture.has(ARTIFACTS) && !fixture.has(crate::layout::LOCAL));
}

#[test]
fn eight_processes_lose_no_artifact() {
    let fixture = Fixture::new();
    fixture.eight("artifacts::tests::a_worker_stores");
    let artifacts = Artifacts::new(&fixture.project);
    let listed = artifacts.list(&Filter::default()).unwrap();
    assert_eq!((listed.total, listed.bad_lines.len()), (200, 0));
    let verified = artifacts.verify(None).unwrap();
    assert!(verified.ok);
    assert_eq!(verified.artifacts.len(), 20, "they stored the same twenty");
}

#[test]
#[ignore = "a worker of another test"]
fn a_worker_stores() {
    let Some((project, number)) = given() else { return };
    for n in 0..25 {
        let put = Put { session: Some(format!("s-{number}")), ..code("a.rs") };
        in_turn(|| Artifacts::new(&project).put(format!("fn f{}() {{}}\n", n % 20).as_bytes(), &put));
    }
}

#[test]
fn a_pipe_that_nobody_writes_into_is_no_artifact() {
    let fixture = Fixture::new();
    let pipe = fixture.project.root().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let error = Artifacts::new(&fixture.project).put_file(&pipe, &code("a.rs")).unwrap_err();
    assert!(error.message.contains("it is no file"), "{error}");
}

#[test]
fn an_index_that_grows_for_ever_is_read_for_ever() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    let first = artifacts.put(MAIN, &code("a.rs")).unwrap().entry;
    let part = |n: usize| format!(".forge/memory/artifacts/index.{n}.jsonl");
    // As if two parts had been filled; in the second one, something was removed.
    let padding = format!("\"pad\":\"{}\"", "x".repeat(4 << 10));
    let line = |triv: &Triv| {
        let entry = ProjectArtifact { triv: triv.clone(), name: "old.rs".into(), ..first.clone() };
        serde_json::to_string(&entry).unwrap().replacen('{', &format!("{{{padding},"), 1)
    };
    let context = Context { kind: "code", session: "-", agent: "-", key: None, head: None, name: "old.rs" };
    let fill = || {
        let trivs = (0..1_100).map(|_| Triv::new(MAIN, &context, fixture.project.environment().uuid()).unwrap());
        trivs.map(|triv| line(&triv) + "\n").collect::<String>()
    };
    for n in 1..=2 {
        fixture.repository.write(ARTIFACT_INDEX, fill());
        artifacts.put(format!("{n}").as_bytes(), &code("b.rs")).unwrap();
        assert!(fixture.has(&part(n)) && !fixture.has(&part(n + 1)));
        assert_eq!(fixture.text(ARTIFACT_INDEX).lines().count(), 1, "a new part");
    }
    assert_eq!(artifacts.list(&Filter::default()).unwrap().total, 2 * 1_100 + 1);
    assert_eq!(artifacts.get(&line_of(&fixture.text(&part(1)))).unwrap().entry.name, "old.rs");
    let doctor = init::doctor(&fixture.project, false).unwrap();
    assert!(!doctor.found.iter().any(|found| found.path.contains("index.")), "{doctor:?}");

    // Damage in an older part is damage.
    let damaged = fixture.text(&part(1)).replacen("{\"pad\"", "{pad", 1);
    fixture.repository.write(&part(1), &damaged);
    let error = artifacts.put(b"c", &code("c.rs")).unwrap_err();
    assert!(error.category.exit_code() == 8 && error.message.starts_with(&part(1)), "{error}");
    assert_eq!(repair::damaged(&fixture.project).unwrap(), [part(1)]);
    repair::repair(&fixture.project, &part(1), crate::repair::RepairRequest { yes: true, from: None }).unwrap();
    artifacts.put(b"c", &code("c.rs")).unwrap();
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
    let error = artifacts.put(b"harmless", &Put::new(Kind::Docs, &name)).unwrap_err();
    assert_eq!((error.code, error.category.exit_code()), ("E_SECRET", 7));
    assert!(!error.message.contains("aB3x") && !error.message.contains("ab3x"), "{error}");
    let left = fixture.project.files().list(&Kind::Docs.folder()).unwrap();
    assert!(left.is_empty() && !fixture.has(ARTIFACT_INDEX), "{left:?}");
    let environment = fixture.project.environment().clone();
    let allowing = Project::open(fixture.project.root(), environment).unwrap().unwrap().allowing("github-token");
    assert!(!Artifacts::new(&allowing).put(b"harmless", &Put::new(Kind::Docs, &name)).unwrap().same);
    let logged = fixture.text(crate::layout::EXCEPTIONS);
    assert!(logged.lines().all(|line| line.contains("github-token")) && logged.lines().count() <= 2, "{logged}");
}

#[test]
fn what_could_not_be_read_again_is_not_stored() {
    let config = "[files]\nmax_bytes = 2048\n[artifacts]\nmax_bytes = 1000000\n";
    let fixture = Fixture::with_config(config);
    let error = Artifacts::new(&fixture.project).put(&[b'x'; 2049], &code("a.rs")).unwrap_err();
    assert_eq!((error.code, error.category), ("E_TOO_LARGE", Category::Refused));
    assert!(error.hint.unwrap().contains("[files]"));
    let stored = Artifacts::new(&fixture.project).put(&[b'x'; 2048], &code("a.rs")).unwrap();
    assert_eq!(Artifacts::new(&fixture.project).bytes(&stored.entry).unwrap().len(), 2048);
}

#[test]
fn gc_removes_older_verify_reports_but_those_that_are_named() {
    let fixture = Fixture::new();
    let artifacts = Artifacts::new(&fixture.project);
    let put = |day: u32, text: &str| {
        fixture.at(&format!("2025-12-{day}T12:00:00Z"));
        artifacts.put(text.as_bytes(), &Put::new(Kind::Reports, "verify_forge-001.json")).unwrap().entry
    };
    let (named, old, newest) = (put(20, "one"), put(21, "two"), put(22, "three"));
    fixture.at("2025-12-23T12:00:00Z");
    artifacts.put(b"other", &Put::new(Kind::Reports, "verify_forge-002.json")).unwrap();
    fixture
        .repository
        .write(&format!("{}/A-1-v1.json", crate::layout::CHECKPOINTS), format!("{{\"report\": \"{}\"}}", named.triv));
    fixture.repository.run(&["config", "user.name", "Ann"]);
    fixture.repository.run(&["config", "user.email", "ann@example.com"]);
    fixture.repository.commit("Reports");
    let gone = artifacts.gc(&Gc { apply: true, ..Gc::default() }).unwrap();
    assert_eq!(gone.removed.iter().map(|one| &one.path).collect::<Vec<_>>(), [&old.path]);
    assert_eq!(gone.needed, 1, "a checkpoint names the first");
    assert!(fixture.has(&named.path) && fixture.has(&newest.path));
}

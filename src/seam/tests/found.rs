//! Where things are found: whose they are, how far up is looked, where links may lead.

use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use serde_json::json;

use super::fixture::{Fixture, SLUG};
use crate::{Context, StateFault, Which};

const NOBODY: Context = Context {
    cwd: None,
    phase: None,
    plan: None,
};

fn plan(fixture: &Fixture) -> PathBuf {
    fixture.seam().state_path(&NOBODY, Which::Plan).unwrap()
}

fn told(fixture: &Fixture) -> Vec<String> {
    fixture
        .seam()
        .recall(&NOBODY, None, None)
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// A repository with a plan, rules and a folder below, in which the process works.
fn planted() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    fixture.write(
        "repo/.git/config",
        "[remote \"origin\"]\n\turl = https://host/o/planted.git\n",
    );
    fixture.write("repo/.harness/active-plan", "foo");
    fixture.write("repo/.harness/PLAN-foo.md", "planted");
    fixture.write(
        "repo/.forge/memory/long-term/knowledge.json",
        r#"{"schema_version":"1.0","invariants":[{"text":"PLANTED","learned_at":"2025-12-10T10:00:00Z"}]}"#,
    );
    fixture.write("repo/mine/work/file", "");
    fixture.config.cwd = fixture.path("repo/mine/work");
    fixture
}

#[test]
fn what_belongs_to_another_user_is_not_there() {
    let fixture = planted();
    assert_eq!(plan(&fixture), fixture.path("repo/.harness/PLAN-foo.md"));
    assert!(fixture.recall("work").contains("PLANTED"));
    assert_eq!(told(&fixture), Vec::<String>::new());
    // As git: the work tree, or its repository, belongs to another user.
    for theirs in ["repo", "repo/.git"] {
        let fixture = planted();
        fixture.look.give_away(fixture.path(theirs));
        std::fs::remove_dir_all(fixture.path("repo/.harness")).unwrap();
        assert_eq!(
            plan(&fixture),
            fixture.path("repo/mine/work/.harness/PLAN.md"),
            "{theirs}"
        );
        assert_eq!(
            fixture.seam().recall(&NOBODY, None, None).text,
            "",
            "{theirs}"
        );
        assert!(fixture.seam().plans(&NOBODY).plans.is_empty(), "{theirs}");
        let told = told(&fixture);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("warning[memory-unreadable]: ") && told[0].contains("another user"),
            "{told:?}"
        );
    }
    // Only what lies in the repository belongs to another user.
    let fixture = planted();
    fixture.look.give_away(fixture.path("repo/.harness"));
    assert_eq!(
        plan(&fixture),
        fixture.path("repo/.harness/PLAN.md"),
        "the marker is passed over"
    );
    assert!(fixture.seam().plans(&NOBODY).plans.is_empty());
    assert_eq!(
        fixture.seam().doctor(&NOBODY).project.as_deref(),
        Some("planted"),
        "that is from origin"
    );
    assert_eq!(told(&fixture).len(), 1);
    let fixture = planted();
    fixture.look.give_away(fixture.path("repo/.forge"));
    assert_eq!(
        (
            plan(&fixture),
            fixture.seam().recall(&NOBODY, None, None).entries
        ),
        (fixture.path("repo/.harness/PLAN-foo.md"), 0)
    );
    assert_eq!(told(&fixture).len(), 1);
}

#[test]
fn a_folder_that_is_named_is_taken_as_it_is() {
    let fixture = planted();
    fixture.look.give_away(fixture.path("repo"));
    assert_eq!(
        fixture.state(Which::Plan).unwrap(),
        fixture.path("repo/.harness/PLAN-foo.md")
    );
    assert!(fixture.recall("work").contains("PLANTED"));
    // Not what lies above it.
    let context = Context {
        cwd: Some(fixture.path("repo/mine")),
        ..Context::default()
    };
    assert_eq!(
        fixture.seam().state_path(&context, Which::Plan).unwrap(),
        fixture.path("repo/mine/.harness/PLAN.md")
    );
    let recall = fixture.seam().recall(&context, None, None);
    assert_eq!(
        (recall.entries, recall.warnings.len()),
        (0, 1),
        "{recall:?}"
    );
}

#[test]
fn a_work_tree_whose_repository_is_anothers_is_none() {
    let fixture = planted();
    std::fs::rename(fixture.path("repo/.git"), fixture.path("theirs")).unwrap();
    fixture.write(
        "repo/.git",
        format!("gitdir: {}\n", fixture.path("theirs").display()),
    );
    assert_eq!(plan(&fixture), fixture.path("repo/.harness/PLAN-foo.md"));
    fixture.look.give_away(fixture.path("theirs"));
    std::fs::remove_dir_all(fixture.path("repo/.harness")).unwrap();
    assert_eq!(
        plan(&fixture),
        fixture.path("repo/mine/work/.harness/PLAN.md")
    );
}

#[test]
fn outside_of_a_repository_the_nearest_state_of_ones_own_counts() {
    let outside = || {
        let mut fixture = Fixture::new();
        fixture.write("home/a/.harness/active-plan", "foo");
        fixture.write("home/a/.harness/PLAN-foo.md", "a");
        fixture.write("home/a/b/c/file", "");
        fixture.config.cwd = fixture.path("home/a/b/c");
        fixture
    };
    let (fixture, literal) = (outside(), "home/a/b/c/.harness/PLAN.md");
    assert_eq!(plan(&fixture), fixture.path("home/a/.harness/PLAN-foo.md"));
    assert_eq!(told(&fixture), Vec::<String>::new());
    let named = Context {
        cwd: Some(fixture.path("home/a/b/c")),
        ..Context::default()
    };
    assert_eq!(
        fixture.seam().state_path(&named, Which::Plan).unwrap(),
        fixture.path(literal)
    );
    // That of another user does not count, and nothing is looked for above a folder of another
    // user.
    fixture.look.give_away(fixture.path("home/a/.harness"));
    assert_eq!(
        (plan(&fixture), told(&fixture).len()),
        (fixture.path(literal), 1)
    );
    let fixture = outside();
    fixture.look.give_away(fixture.path("home/a"));
    assert_eq!(plan(&fixture), fixture.path(literal));
    let mut fixture = outside();
    fixture.write("home/.harness/PLAN.md", "a");
    fixture.look.give_away(fixture.path("home/a/.harness"));
    assert_eq!(
        plan(&fixture),
        fixture.path("home/.harness/PLAN.md"),
        "the home folder itself is asked"
    );
    // What lies above the home folder is not.
    std::fs::remove_dir_all(fixture.path("home/.harness")).unwrap();
    fixture.write(".harness/PLAN.md", "a");
    assert_eq!(plan(&fixture), fixture.path(literal));
    fixture.config.home = None;
    assert_eq!(plan(&fixture), fixture.path(".harness/PLAN.md"));
}

#[test]
fn nothing_is_looked_for_above_what_cannot_be_looked_at() {
    let mut fixture = planted();
    fixture.write("repo/mine/.harness/file", "");
    fixture.config.cwd = fixture.path("repo/mine/work");
    fixture.look.refuse(fixture.path("repo/mine/work"));
    let error = fixture.seam().state(&NOBODY).unwrap_err();
    assert_eq!(
        (error.fault, error.path),
        (
            StateFault::CorruptState,
            fixture.path("repo/mine/work/.harness")
        )
    );
    let mut fixture = planted();
    fixture.config.cwd = fixture.path("repo/mine");
    fixture.look.refuse(fixture.path("repo/mine/.harness"));
    fixture.write("repo/mine/.harness/file", "");
    let error = fixture.seam().state(&NOBODY).unwrap_err();
    assert!(
        error.fault == StateFault::CorruptState
            && error.path.starts_with(fixture.path("repo/mine/.harness")),
        "{error}"
    );
}

#[test]
fn nothing_outside_of_the_vault_is_recalled() {
    let fixture = Fixture::with_vault();
    fixture.write("secret.md", "SECRET");
    fixture.write("secrets/one.md", "SECRET");
    fixture.always("rule", "ALWAYS");
    fixture.note("decisions/real.md", "DECIDED");
    fixture.link(
        "real.md",
        &format!("vault/projects/{SLUG}/decisions/again.md"),
    );
    fixture.link(
        "../../../../secret.md",
        &format!("vault/projects/{SLUG}/decisions/out.md"),
    );
    fixture.link(
        "../../../secret.md",
        "vault/personal-private/_always-load/out.md",
    );
    fixture.link(
        "../../../secret.md",
        &format!("vault/projects/{SLUG}/_index.md"),
    );
    fixture.link(
        "../../../secrets",
        &format!("vault/projects/{SLUG}/known-issues"),
    );
    for phase in ["work", "plan", "bugfix", "documenter"] {
        let context = Context {
            phase: Some(phase.into()),
            ..fixture.context()
        };
        let recall = fixture.seam().recall(&context, None, None);
        assert!(
            recall.text.contains("ALWAYS") && !recall.text.contains("SECRET"),
            "{phase}: {}",
            recall.text
        );
        assert!(
            recall
                .warnings
                .iter()
                .all(|warning| warning.code == "memory-unreadable"),
            "{recall:?}"
        );
        assert!(
            recall
                .warnings
                .iter()
                .any(|warning| warning.message.contains("leads out of")),
            "{recall:?}"
        );
    }
    let text = fixture.recall("work");
    assert_eq!(
        text.matches("DECIDED").count(),
        2,
        "links within the vault are followed: {text}"
    );
    let offer = fixture
        .seam()
        .offer_save_here(
            &fixture.context(),
            &json!({"kind": "fix", "body": "SECRET"}),
        )
        .remove(0);
    assert_eq!(offer.get("duplicate_of"), Some(&json!(null)));
    // The vault itself may lie anywhere.
    std::fs::rename(fixture.path("vault"), fixture.path("elsewhere")).unwrap();
    fixture.link("elsewhere", "vault");
    assert_eq!(fixture.recall("work"), text);
}

#[test]
fn nothing_outside_of_it_stands_in_the_list_of_plans() {
    for vault in [false, true] {
        let (fixture, folder) = match vault {
            false => (Fixture::new(), "repo/.harness".to_owned()),
            true => (
                Fixture::with_vault(),
                format!("vault/projects/{SLUG}/_harness"),
            ),
        };
        fixture.write("secret", "Status: SECRET");
        fixture.write(&format!("{folder}/PLAN.md"), "Status: fine");
        fixture.write(&format!("{folder}/progress-foo.md"), "last");
        let up = fixture.path("secret").display().to_string();
        fixture.link(&up, &format!("{folder}/progress.md"));
        fixture.link(&up, &format!("{folder}/PLAN-foo.md"));
        fixture.link("PLAN.md", &format!("{folder}/PLAN-link.md"));
        let plans = fixture.seam().plans(&fixture.context());
        assert!(!format!("{plans:?}").contains("SECRET"), "{plans:?}");
        let rows: Vec<_> = plans
            .plans
            .iter()
            .map(|plan| (plan.name.as_deref(), plan.status.as_deref()))
            .collect();
        assert_eq!(
            rows,
            [
                (None, Some("fine")),
                (Some("foo"), None),
                (Some("link"), Some("fine"))
            ]
        );
        assert_eq!(plans.warnings.len(), 2, "{plans:?}");
        assert!(
            plans
                .warnings
                .iter()
                .all(|warning| warning.message.contains("leads out of")),
            "{plans:?}"
        );
    }
    let fixture = Fixture::with_vault();
    fixture.write("outside/001-secret/plan.md", "Status: SECRET");
    fixture.link("../../../outside", &format!("vault/projects/{SLUG}/tasks"));
    let plans = fixture.seam().plans(&fixture.context());
    assert!(
        plans.plans.is_empty() && plans.warnings.len() == 1,
        "{plans:?}"
    );
}

#[test]
fn a_working_folder_that_is_gone_binds_to_nothing() {
    let mut fixture = Fixture::with_vault();
    fixture.always("rule", "ALWAYS");
    fixture.config.cwd = PathBuf::new();
    let seam = fixture.seam();
    for cwd in [None, Some("sub"), Some("..")] {
        let context = Context {
            cwd: cwd.map(Into::into),
            ..Context::default()
        };
        let error = seam.state(&context).unwrap_err();
        assert_eq!(
            (error.fault, error.fault.exit_code()),
            (StateFault::Usage, 2)
        );
        assert!(
            error
                .to_string()
                .contains("the working folder does not exist"),
            "{error}"
        );
        let recall = seam.recall(&context, None, None);
        assert_eq!(
            (recall.text.as_str(), recall.warnings.len()),
            ("", 1),
            "{recall:?}"
        );
        assert!(
            seam.offer_save_here(&context, &json!({"body": "b"}))
                .is_empty()
        );
        let plans = seam.plans(&context);
        assert_eq!(
            (plans.plans.len(), plans.warnings.len()),
            (0, 1),
            "{plans:?}"
        );
        assert!(!seam.doctor(&context).ok);
    }
    assert!(
        fixture.state(Which::Plan).is_ok(),
        "a folder with a whole path is still found"
    );
    assert!(fixture.recall("work").contains("ALWAYS"));
}

#[test]
fn a_mark_before_a_text_changes_nothing() {
    const MARK: &str = "\u{feff}";
    let fixture = Fixture::with_vault();
    fixture.write(
        "repo/.harness/project.json",
        format!("{MARK}{{\"vault_project\": \"{SLUG}\"}}"),
    );
    fixture.write("repo/.harness/active-plan", format!("{MARK}foo\n"));
    fixture.note("_harness/PLAN-foo.md", "a");
    fixture.write("repo/.harness/PLAN-foo.md", "a");
    let state = fixture.seam().state(&fixture.context()).unwrap();
    assert_eq!(
        (state.warnings.len(), state.name.as_deref()),
        (0, Some("foo"))
    );
    assert_eq!(
        state.plan,
        fixture.path(&format!("vault/projects/{SLUG}/_harness/PLAN-foo.md"))
    );
    fixture.write("repo/.harness/.project-mode", format!("{MARK}local"));
    let state = fixture.seam().state(&fixture.context()).unwrap();
    assert_eq!(
        (state.warnings.len(), state.plan),
        (0, fixture.path("repo/.harness/PLAN-foo.md"))
    );
    for (mode, warnings) in [("backend", 0), ("VAULT", 0), (" ", 0), ("locl", 1)] {
        fixture.write("repo/.harness/.project-mode", mode);
        let state = fixture.seam().state(&fixture.context()).unwrap();
        assert_eq!(state.warnings.len(), warnings, "{mode}: {state:?}");
        assert!(
            state
                .warnings
                .iter()
                .all(|warning| warning.message.contains(".project-mode: 'locl' is no mode"))
        );
    }
}

#[test]
fn an_address_that_is_no_text_names_no_project() {
    let fixture = planted();
    fixture.remove("repo/.harness/project.json");
    for (config, project) in [
        (
            &b"[user]\n\tname = J\xf6rg\n[remote \"origin\"]\n\turl = https://host/o/one.git\n"[..],
            Some("one"),
        ),
        (
            b"[remote \"origin\"]\n\turl = https://host/o/on\xe9.git\n",
            None,
        ),
    ] {
        fixture.write("repo/.git/config", config);
        assert_eq!(fixture.seam().doctor(&NOBODY).project.as_deref(), project);
    }
}

#[test]
fn whatever_its_path_an_answer_can_be_written_as_json() {
    let mut fixture = Fixture::with_vault();
    fixture.config.vaults.clear();
    let odd = fixture
        .path("")
        .join(std::ffi::OsString::from_vec(b"q\xff  \n".to_vec()));
    std::fs::create_dir_all(odd.join(".harness/active-plan")).unwrap();
    std::fs::create_dir_all(odd.join(".forge")).unwrap();
    std::fs::write(odd.join(".harness/PLAN.md"), "Status: a").unwrap();
    let context = Context {
        cwd: Some(odd.clone()),
        plan: Some("foo".into()),
        ..Context::default()
    };
    let shown = odd.to_string_lossy();
    let plan = |name: &str| json!(format!("{shown}/.harness/{name}"));
    let state = serde_json::to_value(fixture.seam().state(&context).unwrap()).unwrap();
    assert_eq!(
        (&state["plan"], &state["tracker"]),
        (&plan("PLAN-foo.md"), &plan("tracker-foo.md"))
    );
    let plans = serde_json::to_value(fixture.seam().plans(&context)).unwrap();
    assert_eq!(
        (&plans["plans"][0]["path"], &plans["store"]),
        (&plan("PLAN.md"), &json!("project"))
    );
    let error = fixture
        .seam()
        .state(&Context {
            plan: None,
            ..context.clone()
        })
        .unwrap_err();
    assert_eq!(
        serde_json::to_value(&error).unwrap()["path"],
        plan("active-plan")
    );
    // On a line, nothing of it is squeezed.
    assert!(
        error
            .to_string()
            .contains("q\u{fffd}  \\n/.harness/active-plan: "),
        "{error}"
    );
    let doctor = serde_json::to_value(fixture.seam().doctor(&context)).unwrap();
    assert_eq!(
        (&doctor["root"], &doctor["forge"], &doctor["vault"]),
        (&json!(shown), &json!(shown), &json!(null))
    );
}

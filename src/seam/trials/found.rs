//! Where things are found: whose they are, how far up is looked, where links may lead.

use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use serde_json::json;

use super::place::{Place, SLUG};
use crate::{Context, StateFault, Which};

const NOBODY: Context = Context { cwd: None, phase: None, plan: None };

fn plan(place: &Place) -> PathBuf {
    place.seam().state_path(&NOBODY, Which::Plan).unwrap()
}

fn told(place: &Place) -> Vec<String> {
    place.seam().recall(&NOBODY, None, None).warnings.iter().map(ToString::to_string).collect()
}

/// A repository with a plan, rules and a folder below, in which the process works.
fn planted() -> Place {
    let mut place = Place::new();
    place.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    place.write("repo/.git/config", "[remote \"origin\"]\n\turl = https://host/o/planted.git\n");
    place.write("repo/.harness/active-plan", "foo");
    place.write("repo/.harness/PLAN-foo.md", "planted");
    place.write(
        "repo/.forge/memory/long-term/knowledge.json",
        r#"{"schema_version":"1.0","invariants":[{"text":"PLANTED","learned_at":"2025-12-10T10:00:00Z"}]}"#,
    );
    place.write("repo/mine/work/file", "");
    place.config.cwd = place.path("repo/mine/work");
    place
}

#[test]
fn what_belongs_to_another_user_is_not_there() {
    let place = planted();
    assert_eq!(plan(&place), place.path("repo/.harness/PLAN-foo.md"));
    assert!(place.recall("work").contains("PLANTED"));
    assert_eq!(told(&place), Vec::<String>::new());
    // As git: the work tree, or its repository, belongs to somebody else.
    for theirs in ["repo", "repo/.git"] {
        let place = planted();
        place.look.give_away(place.path(theirs));
        std::fs::remove_dir_all(place.path("repo/.harness")).unwrap();
        assert_eq!(plan(&place), place.path("repo/mine/work/.harness/PLAN.md"), "{theirs}");
        assert_eq!(place.seam().recall(&NOBODY, None, None).text, "", "{theirs}");
        assert!(place.seam().plans(&NOBODY).plans.is_empty(), "{theirs}");
        let told = told(&place);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("warning[memory-unreadable]: ") && told[0].contains("another user"), "{told:?}");
    }
    // Only what lies in the repository belongs to somebody else.
    let place = planted();
    place.look.give_away(place.path("repo/.harness"));
    assert_eq!(plan(&place), place.path("repo/.harness/PLAN.md"), "the marker is passed over");
    assert!(place.seam().plans(&NOBODY).plans.is_empty());
    assert_eq!(place.seam().doctor(&NOBODY).project.as_deref(), Some("planted"), "that is from origin");
    assert_eq!(told(&place).len(), 1);
    let place = planted();
    place.look.give_away(place.path("repo/.forge"));
    assert_eq!(
        (plan(&place), place.seam().recall(&NOBODY, None, None).entries),
        (place.path("repo/.harness/PLAN-foo.md"), 0)
    );
    assert_eq!(told(&place).len(), 1);
}

#[test]
fn a_folder_that_is_named_is_taken_as_it_is() {
    let place = planted();
    place.look.give_away(place.path("repo"));
    assert_eq!(place.state(Which::Plan).unwrap(), place.path("repo/.harness/PLAN-foo.md"));
    assert!(place.recall("work").contains("PLANTED"));
    // Not what lies above it.
    let context = Context { cwd: Some(place.path("repo/mine")), ..Context::default() };
    assert_eq!(place.seam().state_path(&context, Which::Plan).unwrap(), place.path("repo/mine/.harness/PLAN.md"));
    let recall = place.seam().recall(&context, None, None);
    assert_eq!((recall.entries, recall.warnings.len()), (0, 1), "{recall:?}");
}

#[test]
fn a_work_tree_whose_repository_is_anothers_is_none() {
    let place = planted();
    std::fs::rename(place.path("repo/.git"), place.path("theirs")).unwrap();
    place.write("repo/.git", format!("gitdir: {}\n", place.path("theirs").display()));
    assert_eq!(plan(&place), place.path("repo/.harness/PLAN-foo.md"));
    place.look.give_away(place.path("theirs"));
    std::fs::remove_dir_all(place.path("repo/.harness")).unwrap();
    assert_eq!(plan(&place), place.path("repo/mine/work/.harness/PLAN.md"));
}

#[test]
fn outside_of_a_repository_the_nearest_state_of_ones_own_counts() {
    let outside = || {
        let mut place = Place::new();
        place.write("home/a/.harness/active-plan", "foo");
        place.write("home/a/.harness/PLAN-foo.md", "a");
        place.write("home/a/b/c/file", "");
        place.config.cwd = place.path("home/a/b/c");
        place
    };
    let (place, literal) = (outside(), "home/a/b/c/.harness/PLAN.md");
    assert_eq!(plan(&place), place.path("home/a/.harness/PLAN-foo.md"));
    assert_eq!(told(&place), Vec::<String>::new());
    let named = Context { cwd: Some(place.path("home/a/b/c")), ..Context::default() };
    assert_eq!(place.seam().state_path(&named, Which::Plan).unwrap(), place.path(literal));
    // That of somebody else is none, and nothing is looked for above a folder of somebody else.
    place.look.give_away(place.path("home/a/.harness"));
    assert_eq!((plan(&place), told(&place).len()), (place.path(literal), 1));
    let place = outside();
    place.look.give_away(place.path("home/a"));
    assert_eq!(plan(&place), place.path(literal));
    let mut place = outside();
    place.write("home/.harness/PLAN.md", "a");
    place.look.give_away(place.path("home/a/.harness"));
    assert_eq!(plan(&place), place.path("home/.harness/PLAN.md"), "the home folder itself is asked");
    // What lies above the home folder is not.
    std::fs::remove_dir_all(place.path("home/.harness")).unwrap();
    place.write(".harness/PLAN.md", "a");
    assert_eq!(plan(&place), place.path(literal));
    place.config.home = None;
    assert_eq!(plan(&place), place.path(".harness/PLAN.md"));
}

#[test]
fn nothing_is_looked_for_above_what_cannot_be_looked_at() {
    let mut place = planted();
    place.write("repo/mine/.harness/file", "");
    place.config.cwd = place.path("repo/mine/work");
    place.look.refuse(place.path("repo/mine/work"));
    let error = place.seam().state(&NOBODY).unwrap_err();
    assert_eq!((error.fault, error.path), (StateFault::CorruptState, place.path("repo/mine/work/.harness")));
    let mut place = planted();
    place.config.cwd = place.path("repo/mine");
    place.look.refuse(place.path("repo/mine/.harness"));
    place.write("repo/mine/.harness/file", "");
    let error = place.seam().state(&NOBODY).unwrap_err();
    assert!(
        error.fault == StateFault::CorruptState && error.path.starts_with(place.path("repo/mine/.harness")),
        "{error}"
    );
}

#[test]
fn nothing_outside_of_the_vault_is_recalled() {
    let place = Place::with_vault();
    place.write("secret.md", "SECRET");
    place.write("secrets/one.md", "SECRET");
    place.always("rule", "ALWAYS");
    place.note("decisions/real.md", "DECIDED");
    place.link("real.md", &format!("vault/projects/{SLUG}/decisions/again.md"));
    place.link("../../../../secret.md", &format!("vault/projects/{SLUG}/decisions/out.md"));
    place.link("../../../secret.md", "vault/personal-private/_always-load/out.md");
    place.link("../../../secret.md", &format!("vault/projects/{SLUG}/_index.md"));
    place.link("../../../secrets", &format!("vault/projects/{SLUG}/known-issues"));
    for phase in ["work", "plan", "bugfix", "documenter"] {
        let context = Context { phase: Some(phase.into()), ..place.context() };
        let recall = place.seam().recall(&context, None, None);
        assert!(recall.text.contains("ALWAYS") && !recall.text.contains("SECRET"), "{phase}: {}", recall.text);
        assert!(recall.warnings.iter().all(|warning| warning.code == "memory-unreadable"), "{recall:?}");
        assert!(recall.warnings.iter().any(|warning| warning.message.contains("leads out of")), "{recall:?}");
    }
    let text = place.recall("work");
    assert_eq!(text.matches("DECIDED").count(), 2, "links within the vault are followed: {text}");
    let offer = place.seam().offer_save_here(&place.context(), &json!({"kind": "fix", "body": "SECRET"})).remove(0);
    assert_eq!(offer.get("duplicate_of"), Some(&json!(null)));
    // The vault itself may lie anywhere.
    std::fs::rename(place.path("vault"), place.path("elsewhere")).unwrap();
    place.link("elsewhere", "vault");
    assert_eq!(place.recall("work"), text);
}

#[test]
fn nothing_outside_of_it_stands_in_the_list_of_plans() {
    for vault in [false, true] {
        let (place, folder) = match vault {
            false => (Place::new(), "repo/.harness".to_owned()),
            true => (Place::with_vault(), format!("vault/projects/{SLUG}/_harness")),
        };
        place.write("secret", "Status: SECRET");
        place.write(&format!("{folder}/PLAN.md"), "Status: fine");
        place.write(&format!("{folder}/progress-foo.md"), "last");
        let up = place.path("secret").display().to_string();
        place.link(&up, &format!("{folder}/progress.md"));
        place.link(&up, &format!("{folder}/PLAN-foo.md"));
        place.link("PLAN.md", &format!("{folder}/PLAN-link.md"));
        let plans = place.seam().plans(&place.context());
        assert!(!format!("{plans:?}").contains("SECRET"), "{plans:?}");
        let rows: Vec<_> = plans.plans.iter().map(|plan| (plan.name.as_deref(), plan.status.as_deref())).collect();
        assert_eq!(rows, [(None, Some("fine")), (Some("foo"), None), (Some("link"), Some("fine"))]);
        assert_eq!(plans.warnings.len(), 2, "{plans:?}");
        assert!(plans.warnings.iter().all(|warning| warning.message.contains("leads out of")), "{plans:?}");
    }
    let place = Place::with_vault();
    place.write("outside/001-secret/plan.md", "Status: SECRET");
    place.link("../../../outside", &format!("vault/projects/{SLUG}/tasks"));
    let plans = place.seam().plans(&place.context());
    assert!(plans.plans.is_empty() && plans.warnings.len() == 1, "{plans:?}");
}

#[test]
fn a_working_folder_that_is_gone_binds_to_nothing() {
    let mut place = Place::with_vault();
    place.always("rule", "ALWAYS");
    place.config.cwd = PathBuf::new();
    let seam = place.seam();
    for cwd in [None, Some("sub"), Some("..")] {
        let context = Context { cwd: cwd.map(Into::into), ..Context::default() };
        let error = seam.state(&context).unwrap_err();
        assert_eq!((error.fault, error.fault.exit_code()), (StateFault::Usage, 2));
        assert!(error.to_string().contains("the working folder does not exist"), "{error}");
        let recall = seam.recall(&context, None, None);
        assert_eq!((recall.text.as_str(), recall.warnings.len()), ("", 1), "{recall:?}");
        assert!(seam.offer_save_here(&context, &json!({"body": "b"})).is_empty());
        let plans = seam.plans(&context);
        assert_eq!((plans.plans.len(), plans.warnings.len()), (0, 1), "{plans:?}");
        assert!(!seam.doctor(&context).ok);
    }
    assert!(place.state(Which::Plan).is_ok(), "a folder with a whole path is still found");
    assert!(place.recall("work").contains("ALWAYS"));
}

#[test]
fn a_mark_before_a_text_changes_nothing() {
    const MARK: &str = "\u{feff}";
    let place = Place::with_vault();
    place.write("repo/.harness/project.json", format!("{MARK}{{\"vault_project\": \"{SLUG}\"}}"));
    place.write("repo/.harness/active-plan", format!("{MARK}foo\n"));
    place.note("_harness/PLAN-foo.md", "a");
    place.write("repo/.harness/PLAN-foo.md", "a");
    let state = place.seam().state(&place.context()).unwrap();
    assert_eq!((state.warnings.len(), state.name.as_deref()), (0, Some("foo")));
    assert_eq!(state.plan, place.path(&format!("vault/projects/{SLUG}/_harness/PLAN-foo.md")));
    place.write("repo/.harness/.project-mode", format!("{MARK}local"));
    let state = place.seam().state(&place.context()).unwrap();
    assert_eq!((state.warnings.len(), state.plan), (0, place.path("repo/.harness/PLAN-foo.md")));
    for (mode, warnings) in [("backend", 0), ("VAULT", 0), (" ", 0), ("locl", 1)] {
        place.write("repo/.harness/.project-mode", mode);
        let state = place.seam().state(&place.context()).unwrap();
        assert_eq!(state.warnings.len(), warnings, "{mode}: {state:?}");
        assert!(state.warnings.iter().all(|warning| warning.message.contains(".project-mode: 'locl' is no mode")));
    }
}

#[test]
fn an_address_that_is_no_text_names_no_project() {
    let mut place = planted();
    place.remove("repo/.harness/project.json");
    for (config, project) in [
        (&b"[user]\n\tname = J\xf6rg\n[remote \"origin\"]\n\turl = https://host/o/one.git\n"[..], Some("one")),
        (b"[remote \"origin\"]\n\turl = https://host/o/on\xe9.git\n", None),
    ] {
        place.write("repo/.git/config", config);
        assert_eq!(place.seam().doctor(&NOBODY).project.as_deref(), project);
    }
    place.config.cwd = place.path("repo");
}

#[test]
fn whatever_its_path_an_answer_can_be_written_as_json() {
    let mut place = Place::with_vault();
    place.config.vaults.clear();
    let odd = place.path("").join(std::ffi::OsString::from_vec(b"q\xff  \n".to_vec()));
    std::fs::create_dir_all(odd.join(".harness/active-plan")).unwrap();
    std::fs::create_dir_all(odd.join(".forge")).unwrap();
    std::fs::write(odd.join(".harness/PLAN.md"), "Status: a").unwrap();
    let context = Context { cwd: Some(odd.clone()), plan: Some("foo".into()), ..Context::default() };
    let shown = odd.to_string_lossy();
    let plan = |name: &str| json!(format!("{shown}/.harness/{name}"));
    let state = serde_json::to_value(place.seam().state(&context).unwrap()).unwrap();
    assert_eq!((&state["plan"], &state["tracker"]), (&plan("PLAN-foo.md"), &plan("tracker-foo.md")));
    let plans = serde_json::to_value(place.seam().plans(&context)).unwrap();
    assert_eq!((&plans["plans"][0]["path"], &plans["store"]), (&plan("PLAN.md"), &json!("project")));
    let error = place.seam().state(&Context { plan: None, ..context.clone() }).unwrap_err();
    assert_eq!(serde_json::to_value(&error).unwrap()["path"], plan("active-plan"));
    // On a line, nothing of it is squeezed.
    assert!(error.to_string().contains("q\u{fffd}  \\n/.harness/active-plan: "), "{error}");
    let doctor = serde_json::to_value(place.seam().doctor(&context)).unwrap();
    assert_eq!((&doctor["root"], &doctor["forge"], &doctor["vault"]), (&json!(shown), &json!(shown), &json!(null)));
}

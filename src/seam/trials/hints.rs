//! What is not wrong by itself, and most often a slip: it is told, and changes no answer.

use super::place::Place;
use crate::{Context, Which};

fn told(place: &Place, context: &Context) -> Vec<String> {
    place.seam().state(context).unwrap().warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_plan_that_a_new_vault_hides_is_told() {
    let place = Place::with_vault();
    assert!(told(&place, &place.context()).is_empty(), "there is none");
    place.write("repo/.harness/PLAN.md", "# Plan");
    let vault = place.state(Which::Plan).unwrap();
    assert!(vault.starts_with(place.path("vault")));
    let said = told(&place, &place.context());
    assert!(said.len() == 1 && said[0].starts_with("warning[plan-misplaced]: "), "{said:?}");
    assert!(said[0].contains("repo/.harness/PLAN.md") && said[0].contains("local"), "{said:?}");
    place.note("_harness/PLAN.md", "# Plan");
    assert!(told(&place, &place.context()).is_empty(), "the vault has one");
}

#[test]
fn nobody_is_told_to_move_a_plan_onto_another_one() {
    let place = Place::with_vault();
    place.write("repo/.harness/active-plan", "foo");
    place.write("repo/.harness/PLAN-foo.md", "# Plan");
    let moved = told(&place, &place.context());
    assert!(moved.len() == 1 && moved[0].ends_with("move it"), "{moved:?}");
    place.note("_harness/PLAN-foo.md", "# The real plan");
    place.look.refuse(place.path(&format!("vault/{}/_harness/PLAN-foo.md", place.project)));
    let said = told(&place, &place.context());
    assert!(said.len() == 1 && said[0].contains("cannot be read") && !said[0].contains("move it"), "{said:?}");
}

#[test]
fn a_folder_that_holds_nothing_of_a_vault_is_told() {
    for (folder, odd) in [("vault", false), ("empty", false), ("home", true)] {
        let place = Place::new().given(folder);
        place.write("home/notes.txt", "");
        std::fs::create_dir(place.path("empty")).unwrap();
        let said = told(&place, &place.context());
        assert_eq!(said.iter().any(|line| line.contains("nothing that a vault has")), odd, "{folder}: {said:?}");
    }
}

#[test]
fn a_named_folder_below_the_marker_is_told() {
    let place = Place::new();
    place.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    for needed in ["objects", "refs", "../src/deep"] {
        std::fs::create_dir_all(place.path("repo/.git").join(needed)).unwrap();
    }
    let below = Context { cwd: Some(place.path("repo/src/deep")), ..Context::default() };
    let said = told(&place, &below);
    assert!(said.len() == 1 && said[0].starts_with("warning[cwd-below-project]: "), "{said:?}");
    assert!(said[0].contains("repo/.harness is not asked"), "{said:?}");
    assert_eq!(place.seam().state_path(&below, Which::Plan).unwrap(), place.path("repo/src/deep/.harness/PLAN.md"));
    place.write("repo/src/deep/.harness/PLAN.md", "");
    assert!(told(&place, &below).is_empty(), "it has a marker's folder of its own");
    assert!(told(&place, &place.context()).is_empty());
}

#[test]
fn settings_of_git_that_cannot_be_read_are_told() {
    let place = Place::with_vault();
    place.remove("repo/.harness/project.json");
    place.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    place.write("repo/.git/config", "[remote \"origin\"]\n\turl = a/seam-fixture\n");
    for needed in ["objects", "refs"] {
        std::fs::create_dir_all(place.path("repo/.git").join(needed)).unwrap();
    }
    assert!(place.state(Which::Plan).unwrap().starts_with(place.path("vault")));
    place.look.refuse(place.path("repo/.git/config"));
    let said = told(&place, &place.context());
    assert!(said.len() == 1 && said[0].contains(".git/config"), "{said:?}");
}

#[test]
fn a_phase_in_other_letters_is_told_and_counts_as_work() {
    let place = Place::with_vault();
    place.note("decisions/one.md", "DECIDED");
    let recall = |phase: &str| {
        let context = Context { phase: Some(phase.into()), ..place.context() };
        (place.seam().recall(&context, None, None), place.seam().doctor(&context))
    };
    let (work, _) = recall("work");
    for phase in ["PLAN", " review"] {
        let (said, doctor) = recall(phase);
        assert_eq!(said.text, work.text, "{phase}: the answer is that of work");
        assert_eq!(said.warnings.len(), 1, "{said:?}");
        let line = said.warnings[0].to_string();
        assert!(line.starts_with("warning[unknown-phase]: ") && line.contains("write "), "{line}");
        assert_eq!((doctor.ok, doctor.warnings), (false, said.warnings));
    }
    for phase in ["work", "WORK", "not-a-real-phase", ""] {
        assert!(recall(phase).0.warnings.is_empty(), "{phase}");
    }
}

#[test]
fn a_name_that_is_no_task_is_told_in_a_project_with_tasks() {
    let place = Place::with_vault();
    let asked = |plan: &str| {
        let context = Context { plan: Some(plan.into()), ..place.context() };
        let state = place.seam().state(&context).unwrap();
        (state.plan, state.warnings.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let at = |path: &str| place.path(&format!("vault/{}/{path}", place.project));
    assert_eq!(asked("parsr"), (at("_harness/PLAN-parsr.md"), vec![]), "there are no tasks");
    place.note("tasks/001-parser/plan.md", "# Plan");
    for typo in ["parsr", "1", "001"] {
        let (plan, said) = asked(typo);
        assert_eq!(plan, at(&format!("_harness/PLAN-{typo}.md")), "the answer stays");
        assert!(said.len() == 1 && said[0].starts_with("warning[no-such-task]: "), "{said:?}");
        assert!(said[0].contains("001-parser"), "{said:?}");
    }
    for task in ["parser", "001-parser"] {
        assert_eq!(asked(task), (at("tasks/001-parser/plan.md"), vec![]));
    }
    place.note("tasks/002-empty/notes.md", "");
    assert_eq!(asked("empty"), (at("tasks/002-empty/plan.md"), vec![]), "a task need not have a plan");
    place.note("_harness/PLAN-foo.md", "# Plan");
    assert_eq!(
        asked("foo").1.len() + asked("PLAN").1.len(),
        0,
        "there is such a plan; the one without a name is no task"
    );
}

#[test]
fn settings_in_objects_count_as_those_with_dots() {
    let place = Place::new();
    let vault = place.path("vault");
    let nested = serde_json::json!({"plugins": {"obsidian-vault": {"vault_path": vault}}});
    place.write("home/.claude/.agentm-config.json", nested.to_string());
    assert!(told(&place, &place.context()).is_empty());
    assert!(place.state(Which::Plan).unwrap().starts_with(vault));
}

#[test]
fn a_member_that_makes_no_sense_is_told_and_stops_nobody() {
    let place = Place::with_vault();
    for (settings, said) in
        [("{\"vault_path\": 42}", "vault_path is a number"), ("{\"state_mode\": []}", "state_mode is a list")]
    {
        place.write("home/.claude/.agentm-config.json", settings);
        let all = told(&place, &place.context());
        assert!(all.len() == 1 && all[0].contains(".agentm-config.json: ") && all[0].contains(said), "{all:?}");
    }
    place.remove("home/.claude/.agentm-config.json");
    for (project, said) in [
        ("{\"vault_project\": 5}", "vault_project is a number"),
        ("[]", "no JSON object"),
        ("{\"github\": \"acme/other\"}", "github is a text"),
        ("{\"github\": {\"repo\": [1]}}", "github.repo is a list"),
        ("{\"github\": {\"repo\": \"https://host/acme/other/\"}}", "github.repo has no name at its end"),
    ] {
        place.write("repo/.harness/project.json", project);
        let all = told(&place, &place.context());
        assert!(all.len() == 1 && all[0].starts_with("warning[memory-unreadable]: "), "{project}: {all:?}");
        assert!(all[0].contains("project.json: ") && all[0].contains(said), "{project}: {all:?}");
    }
    for quiet in
        ["{}", "{\"vault_project\": null, \"github\": null}", "{\"github\": {\"repo\": \" \"}}", "{\"other\": 5}"]
    {
        place.write("repo/.harness/project.json", quiet);
        assert!(told(&place, &place.context()).is_empty(), "{quiet}");
    }
}

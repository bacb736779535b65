//! Hints: settings that are valid and most often a mistake. A hint is reported and changes no
//! answer.

use super::fixture::Fixture;
use crate::{Context, Which};

fn told(fixture: &Fixture, context: &Context) -> Vec<String> {
    fixture
        .seam()
        .state(context)
        .unwrap()
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn a_plan_that_a_new_vault_hides_is_told() {
    let fixture = Fixture::with_vault();
    assert!(
        told(&fixture, &fixture.context()).is_empty(),
        "there is none"
    );
    fixture.write("repo/.harness/PLAN.md", "# Plan");
    let vault = fixture.state(Which::Plan).unwrap();
    assert!(vault.starts_with(fixture.path("vault")));
    let said = told(&fixture, &fixture.context());
    assert!(
        said.len() == 1 && said[0].starts_with("warning[plan-misplaced]: "),
        "{said:?}"
    );
    assert!(
        said[0].contains("repo/.harness/PLAN.md") && said[0].contains("local"),
        "{said:?}"
    );
    fixture.note("_harness/PLAN.md", "# Plan");
    assert!(
        told(&fixture, &fixture.context()).is_empty(),
        "the vault has one"
    );
}

#[test]
fn nobody_is_told_to_move_a_plan_onto_another_one() {
    let fixture = Fixture::with_vault();
    fixture.write("repo/.harness/active-plan", "foo");
    fixture.write("repo/.harness/PLAN-foo.md", "# Plan");
    let moved = told(&fixture, &fixture.context());
    assert!(
        moved.len() == 1 && moved[0].ends_with("move it"),
        "{moved:?}"
    );
    fixture.note("_harness/PLAN-foo.md", "# The real plan");
    fixture
        .look
        .refuse(fixture.path(&format!("vault/{}/_harness/PLAN-foo.md", fixture.project)));
    let said = told(&fixture, &fixture.context());
    assert!(
        said.len() == 1 && said[0].contains("cannot be read") && !said[0].contains("move it"),
        "{said:?}"
    );
}

#[test]
fn a_folder_that_holds_nothing_of_a_vault_is_told() {
    for (folder, odd) in [("vault", false), ("empty", false), ("home", true)] {
        let fixture = Fixture::new().given(folder);
        fixture.write("home/notes.txt", "");
        std::fs::create_dir(fixture.path("empty")).unwrap();
        let said = told(&fixture, &fixture.context());
        assert_eq!(
            said.iter()
                .any(|line| line.contains("nothing that a vault has")),
            odd,
            "{folder}: {said:?}"
        );
    }
}

#[test]
fn a_named_folder_below_the_marker_is_told() {
    let fixture = Fixture::new();
    fixture.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    for needed in ["objects", "refs", "../src/deep"] {
        std::fs::create_dir_all(fixture.path("repo/.git").join(needed)).unwrap();
    }
    let below = Context {
        cwd: Some(fixture.path("repo/src/deep")),
        ..Context::default()
    };
    let said = told(&fixture, &below);
    assert!(
        said.len() == 1 && said[0].starts_with("warning[cwd-below-project]: "),
        "{said:?}"
    );
    assert!(said[0].contains("repo/.harness is not asked"), "{said:?}");
    assert_eq!(
        fixture.seam().state_path(&below, Which::Plan).unwrap(),
        fixture.path("repo/src/deep/.harness/PLAN.md")
    );
    fixture.write("repo/src/deep/.harness/PLAN.md", "");
    assert!(
        told(&fixture, &below).is_empty(),
        "it has a marker's folder of its own"
    );
    assert!(told(&fixture, &fixture.context()).is_empty());
}

#[test]
fn settings_of_git_that_cannot_be_read_are_told() {
    let fixture = Fixture::with_vault();
    fixture.remove("repo/.harness/project.json");
    fixture.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    fixture.write(
        "repo/.git/config",
        "[remote \"origin\"]\n\turl = a/seam-fixture\n",
    );
    for needed in ["objects", "refs"] {
        std::fs::create_dir_all(fixture.path("repo/.git").join(needed)).unwrap();
    }
    assert!(
        fixture
            .state(Which::Plan)
            .unwrap()
            .starts_with(fixture.path("vault"))
    );
    fixture.look.refuse(fixture.path("repo/.git/config"));
    let said = told(&fixture, &fixture.context());
    assert!(
        said.len() == 1 && said[0].contains(".git/config"),
        "{said:?}"
    );
}

#[test]
fn a_phase_in_other_letters_is_told_and_counts_as_work() {
    let fixture = Fixture::with_vault();
    fixture.note("decisions/one.md", "DECIDED");
    let recall = |phase: &str| {
        let context = Context {
            phase: Some(phase.into()),
            ..fixture.context()
        };
        (
            fixture.seam().recall(&context, None, None),
            fixture.seam().doctor(&context),
        )
    };
    let (work, _) = recall("work");
    for phase in ["PLAN", " review"] {
        let (said, doctor) = recall(phase);
        assert_eq!(said.text, work.text, "{phase}: the answer is that of work");
        assert_eq!(said.warnings.len(), 1, "{said:?}");
        let line = said.warnings[0].to_string();
        assert!(
            line.starts_with("warning[unknown-phase]: ") && line.contains("write "),
            "{line}"
        );
        assert_eq!((doctor.ok, doctor.warnings), (false, said.warnings));
    }
    for phase in ["work", "WORK", "not-a-real-phase", ""] {
        assert!(recall(phase).0.warnings.is_empty(), "{phase}");
    }
}

#[test]
fn a_name_that_is_no_task_is_told_in_a_project_with_tasks() {
    let fixture = Fixture::with_vault();
    let asked = |plan: &str| {
        let context = Context {
            plan: Some(plan.into()),
            ..fixture.context()
        };
        let state = fixture.seam().state(&context).unwrap();
        (
            state.plan,
            state
                .warnings
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
        )
    };
    let at = |path: &str| fixture.path(&format!("vault/{}/{path}", fixture.project));
    assert_eq!(
        asked("parsr"),
        (at("_harness/PLAN-parsr.md"), vec![]),
        "there are no tasks"
    );
    fixture.note("tasks/001-parser/plan.md", "# Plan");
    for typo in ["parsr", "1", "001"] {
        let (plan, said) = asked(typo);
        assert_eq!(
            plan,
            at(&format!("_harness/PLAN-{typo}.md")),
            "the answer stays"
        );
        assert!(
            said.len() == 1 && said[0].starts_with("warning[no-such-task]: "),
            "{said:?}"
        );
        assert!(said[0].contains("001-parser"), "{said:?}");
    }
    for task in ["parser", "001-parser"] {
        assert_eq!(asked(task), (at("tasks/001-parser/plan.md"), vec![]));
    }
    fixture.note("tasks/002-empty/notes.md", "");
    assert_eq!(
        asked("empty"),
        (at("tasks/002-empty/plan.md"), vec![]),
        "a task need not have a plan"
    );
    fixture.note("_harness/PLAN-foo.md", "# Plan");
    assert_eq!(
        asked("foo").1.len() + asked("PLAN").1.len(),
        0,
        "there is such a plan; the one without a name is no task"
    );
}

#[test]
fn settings_in_objects_count_as_those_with_dots() {
    let fixture = Fixture::new();
    let vault = fixture.path("vault");
    let nested = serde_json::json!({"plugins": {"obsidian-vault": {"vault_path": vault}}});
    fixture.write("home/.claude/.agentm-config.json", nested.to_string());
    assert!(told(&fixture, &fixture.context()).is_empty());
    assert!(fixture.state(Which::Plan).unwrap().starts_with(vault));
}

#[test]
fn a_member_that_makes_no_sense_is_told_and_stops_nobody() {
    let fixture = Fixture::with_vault();
    for (settings, said) in [
        ("{\"vault_path\": 42}", "vault_path is a number"),
        ("{\"state_mode\": []}", "state_mode is a list"),
    ] {
        fixture.write("home/.claude/.agentm-config.json", settings);
        let all = told(&fixture, &fixture.context());
        assert!(
            all.len() == 1 && all[0].contains(".agentm-config.json: ") && all[0].contains(said),
            "{all:?}"
        );
    }
    fixture.remove("home/.claude/.agentm-config.json");
    for (project, said) in [
        ("{\"vault_project\": 5}", "vault_project is a number"),
        ("[]", "no JSON object"),
        ("{\"github\": \"acme/other\"}", "github is a text"),
        ("{\"github\": {\"repo\": [1]}}", "github.repo is a list"),
        (
            "{\"github\": {\"repo\": \"https://host/acme/other/\"}}",
            "github.repo has no name at its end",
        ),
    ] {
        fixture.write("repo/.harness/project.json", project);
        let all = told(&fixture, &fixture.context());
        assert!(
            all.len() == 1 && all[0].starts_with("warning[memory-unreadable]: "),
            "{project}: {all:?}"
        );
        assert!(
            all[0].contains("project.json: ") && all[0].contains(said),
            "{project}: {all:?}"
        );
    }
    for quiet in [
        "{}",
        "{\"vault_project\": null, \"github\": null}",
        "{\"github\": {\"repo\": \" \"}}",
        "{\"other\": 5}",
    ] {
        fixture.write("repo/.harness/project.json", quiet);
        assert!(told(&fixture, &fixture.context()).is_empty(), "{quiet}");
    }
}

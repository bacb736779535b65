//! The cases of the original's tests of what stands below the seam: which plan, where state is
//! kept, where the vault is, what the project is called, what is recalled, which plans there are.

use std::ffi::OsString;

use super::fixture::{Fixture, SLUG};
use crate::{Context, Given, Phase, StateFault, Store, Which};

const MARKER: &str = "repo/.harness/active-plan";
const CONFIG: &str = "home/.claude/.agentm-config.json";

// Which plan.

#[test]
fn a_plan_is_named_in_any_form() {
    let fixture = Fixture::new();
    for plan in ["foo", "PLAN-foo", "PLAN-foo.md", "  PLAN-foo.md  "] {
        assert_eq!(
            fixture.plan(plan).unwrap(),
            fixture.path("repo/.harness/PLAN-foo.md"),
            "{plan}"
        );
    }
    for plan in ["", "   ", "PLAN", "PLAN.md", "PLAN-PLAN", "PLAN-PLAN.md"] {
        assert_eq!(
            fixture.plan(plan).unwrap(),
            fixture.path("repo/.harness/PLAN.md"),
            "{plan:?}"
        );
    }
    assert_eq!(
        fixture.plan("v2.1 a:b").unwrap(),
        fixture.path("repo/.harness/PLAN-v2.1 a:b.md")
    );
}

#[test]
fn what_is_asked_for_comes_before_the_marker_and_need_not_be_there() {
    let fixture = Fixture::new();
    fixture.write(MARKER, b"\xff");
    assert_eq!(
        fixture.plan("foo").unwrap(),
        fixture.path("repo/.harness/PLAN-foo.md")
    );
    assert_eq!(
        fixture.plan("PLAN").unwrap(),
        fixture.path("repo/.harness/PLAN.md")
    );
    assert!(fixture.state(Which::Plan).is_err());
}

#[test]
fn a_marker_binds_to_a_plan_that_is_there() {
    for marker in ["foo", "foo\n", "PLAN-foo", " PLAN-foo.md \n"] {
        let fixture = Fixture::new();
        fixture.write("repo/.harness/PLAN-foo.md", "- [ ] a");
        fixture.write(MARKER, marker);
        let state = fixture.seam().state(&fixture.context()).unwrap();
        assert_eq!(
            state.plan,
            fixture.path("repo/.harness/PLAN-foo.md"),
            "{marker:?}"
        );
        assert_eq!(state.name.as_deref(), Some("foo"));
    }
}

#[test]
fn large_and_small_letters_of_a_marker_are_kept() {
    let fixture = Fixture::new();
    fixture.write("repo/.harness/PLAN-Foo.md", "a");
    fixture.write(MARKER, "Foo");
    assert_eq!(
        fixture.state(Which::Progress).unwrap(),
        fixture.path("repo/.harness/progress-Foo.md")
    );
}

#[test]
fn without_a_marker_it_is_the_plan_without_a_name() {
    let fixture = Fixture::new();
    assert_eq!(
        fixture.state(Which::Progress).unwrap(),
        fixture.path("repo/.harness/progress.md")
    );
    let bare = Context {
        cwd: Some(fixture.path("nowhere")),
        ..Context::default()
    };
    assert_eq!(
        fixture.seam().state_path(&bare, Which::Plan).unwrap(),
        fixture.path("nowhere/.harness/PLAN.md")
    );
}

#[test]
fn a_bound_plan_of_a_vault_is_looked_for_there_then_in_the_project() {
    let fixture = Fixture::with_vault();
    fixture.write(MARKER, "foo");
    assert_eq!(
        fixture.state(Which::Plan).unwrap_err().fault,
        StateFault::CorruptState
    );
    fixture.write("repo/.harness/PLAN-foo.md", "a");
    let state = fixture.seam().state(&fixture.context()).unwrap();
    assert_eq!(
        state.plan,
        fixture.path(&format!("vault/projects/{SLUG}/_harness/PLAN-foo.md"))
    );
    assert_eq!(
        state
            .warnings
            .iter()
            .map(|warning| warning.code)
            .collect::<Vec<_>>(),
        ["plan-misplaced"]
    );
    fixture.note("_harness/PLAN-foo.md", "a");
    assert!(
        fixture
            .seam()
            .state(&fixture.context())
            .unwrap()
            .warnings
            .is_empty()
    );
    // In local mode, the vault is not asked.
    fixture.remove("repo/.harness/PLAN-foo.md");
    fixture.write("repo/.harness/.project-mode", "local");
    assert!(fixture.state(Which::Plan).is_err());
}

#[test]
fn a_task_is_found_with_and_without_its_number() {
    let fixture = Fixture::with_vault();
    for task in ["001-build-it", "002-test-it", "010-build-it-again"] {
        fixture.note(&format!("tasks/{task}/plan.md"), "a");
    }
    fixture.note("tasks/README.md", "no task");
    fixture.note("tasks/notes/plan.md", "no task");
    let at = |task: &str, file: &str| {
        fixture.path(&format!("vault/projects/{SLUG}/tasks/{task}/{file}"))
    };
    for plan in ["build-it", "001-build-it", "PLAN-build-it.md"] {
        assert_eq!(
            fixture.plan(plan).unwrap(),
            at("001-build-it", "plan.md"),
            "{plan}"
        );
    }
    let asked = Context {
        plan: Some("test-it".into()),
        ..fixture.context()
    };
    assert_eq!(
        fixture.seam().state_path(&asked, Which::Tracker).unwrap(),
        at("002-test-it", "tracker.md")
    );
    let error = fixture.state(Which::Plan).unwrap_err();
    assert_eq!(
        (error.fault, error.fault.exit_code(), error.fault.code()),
        (StateFault::TaskNameRequired, 4, "task-name-required")
    );
    assert!(
        error.to_string().contains("001-build-it, 002-test-it"),
        "{error}"
    );
    // Who names the plan without a name, or one that is no task, gets it.
    assert!(fixture.plan("PLAN").unwrap().ends_with("_harness/PLAN.md"));
    assert!(
        fixture
            .plan("other")
            .unwrap()
            .ends_with("_harness/PLAN-other.md")
    );
    fixture.write(MARKER, "test-it\n");
    assert_eq!(
        fixture.state(Which::Progress).unwrap(),
        at("002-test-it", "progress.md")
    );
    fixture.write(MARKER, "other");
    assert_eq!(
        fixture.state(Which::Plan).unwrap_err().fault,
        StateFault::CorruptState
    );
}

#[test]
fn two_tasks_of_one_name_are_both_named() {
    let fixture = Fixture::with_vault();
    for task in ["001-fix-it", "002-fix-it"] {
        fixture.note(&format!("tasks/{task}/plan.md"), "a");
    }
    let error = fixture.plan("fix-it").unwrap_err();
    assert_eq!(error.fault, StateFault::CorruptState);
    assert!(
        error.to_string().contains("001-fix-it, 002-fix-it"),
        "{error}"
    );
    assert!(
        fixture
            .plan("002-fix-it")
            .unwrap()
            .ends_with("tasks/002-fix-it/plan.md")
    );
}

// Where state is kept.

#[test]
fn a_mode_of_the_project_comes_before_that_of_the_machine() {
    let store = |own: Option<&str>, machine: &str| {
        let fixture = Fixture::with_vault();
        fixture.write(CONFIG, machine);
        if let Some(own) = own {
            fixture.write("repo/.harness/.project-mode", own);
        }
        fixture.seam().state(&fixture.context()).unwrap().store
    };
    assert_eq!(store(None, "{}"), Store::Vault);
    assert_eq!(store(None, r#"{"state_mode": "local"}"#), Store::Project);
    assert_eq!(store(None, r#"{"state_mode": " LOCAL "}"#), Store::Project);
    assert_eq!(
        store(Some("backend"), r#"{"state_mode": "local"}"#),
        Store::Vault
    );
    assert_eq!(
        store(Some("vault\n"), r#"{"state_mode": "local"}"#),
        Store::Vault
    );
    assert_eq!(store(Some("LoCaL "), "{}"), Store::Project);
    assert_eq!(
        store(Some(" \n"), r#"{"state_mode": "local"}"#),
        Store::Project,
        "a blank one is none"
    );
    assert_eq!(
        store(Some("whatever"), r#"{"state_mode": "local"}"#),
        Store::Vault
    );
    for machine in [r#"{"state_mode": 1}"#, "{", "[]", ""] {
        assert_eq!(store(None, machine), Store::Vault, "{machine}");
    }
}

#[test]
fn a_project_without_a_name_keeps_its_state_itself() {
    let fixture = Fixture::with_vault();
    fixture.remove("repo/.harness/project.json");
    let state = fixture.seam().state(&fixture.context()).unwrap();
    assert_eq!(
        (state.store, state.plan),
        (Store::Project, fixture.path("repo/.harness/PLAN.md"))
    );
}

// Where the vault is.

#[test]
fn a_vault_is_given_or_set() {
    let store = |fixture: &Fixture| fixture.seam().state(&fixture.context()).unwrap().store;
    let set = |fixture: &Fixture, key: &str, path: &str| {
        fixture.write(CONFIG, format!("{{\"{key}\": \"{path}\"}}"))
    };

    assert_eq!(store(&Fixture::with_vault()), Store::Vault);
    for key in ["vault_path", "plugins.obsidian-vault.vault_path"] {
        let fixture = Fixture::new();
        set(&fixture, key, fixture.path("vault").to_str().unwrap());
        assert_eq!(store(&fixture), Store::Vault, "{key}");
        // What is given and broken hides what is set.
        let fixture = fixture.given("absent");
        assert_eq!(store(&fixture), Store::Project, "{key}");
    }
    for config in [
        "{}",
        r#"{"other": 1}"#,
        r#"{"vault_path": "/nowhere/at/all"}"#,
        r#"{"vault_path": 1}"#,
        "{",
        "[1]",
    ] {
        let fixture = Fixture::new();
        fixture.write(CONFIG, config);
        assert_eq!(store(&fixture), Store::Project, "{config}");
    }
    let fixture = Fixture::new();
    fixture.write(CONFIG, b"{\"vault_path\": \"\xff\"}");
    assert_eq!(store(&fixture), Store::Project);
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.path(CONFIG)).unwrap();
    assert_eq!(store(&fixture), Store::Project);
    // The new name comes before the old one.
    let fixture = Fixture::new();
    let vault = fixture.path("vault");
    fixture.write(
        CONFIG,
        format!(
            "{{\"vault_path\": \"/nowhere\", \"plugins.obsidian-vault.vault_path\": {vault:?}}}"
        ),
    );
    assert_eq!(store(&fixture), Store::Vault);
    // Another prefix, and none.
    let mut fixture = Fixture::new();
    let vault = fixture.path("vault");
    fixture.write(
        "prefix/.agentm-config.json",
        format!("{{\"vault_path\": {vault:?}}}"),
    );
    assert_eq!(store(&fixture), Store::Project);
    fixture.config.prefix = Some(fixture.path("prefix"));
    assert_eq!(store(&fixture), Store::Vault);
    fixture.config.prefix = None;
    fixture.config.home = None;
    assert_eq!(store(&fixture), Store::Project);
}

#[test]
fn a_tilde_is_the_home() {
    let mut fixture = Fixture::new();
    std::fs::rename(fixture.path("vault"), fixture.path("home/vault")).unwrap();
    for path in ["~/vault", "  ~/vault/ "] {
        fixture.config.vaults = vec![Given {
            by: "MEMORY_ROOT".into(),
            path: path.into(),
        }];
        assert_eq!(
            fixture.seam().state(&fixture.context()).unwrap().store,
            Store::Vault,
            "{path}"
        );
    }
    fixture.config.vaults.clear();
    fixture.write(CONFIG, r#"{"vault_path": "~/vault"}"#);
    assert_eq!(
        fixture.seam().state(&fixture.context()).unwrap().store,
        Store::Vault
    );
}

#[test]
fn the_first_variable_that_is_not_blank_counts() {
    let mut fixture = Fixture::new();
    let given = |by: &str, path: OsString| Given {
        by: by.into(),
        path,
    };
    let vault = OsString::from(fixture.path("vault"));
    fixture.config.vaults = vec![
        given("HELMDECK_MEMORY", " ".into()),
        given("MEMORY_ROOT", "".into()),
        given("MEMORY_VAULT_PATH", vault.clone()),
    ];
    let doctor = fixture.seam().doctor(&fixture.context());
    assert_eq!(doctor.vault_from.as_deref(), Some("MEMORY_VAULT_PATH"));
    fixture.config.vaults = vec![
        given("MEMORY_ROOT", "/nowhere/at/all".into()),
        given("MEMORY_VAULT_PATH", vault),
    ];
    let doctor = fixture.seam().doctor(&fixture.context());
    assert_eq!(doctor.vault, None, "a wrong setting must show");
    assert!(
        doctor
            .warnings
            .iter()
            .any(|warning| warning.code == "memory-unreadable"
                && warning.message.contains("MEMORY_ROOT: /nowhere")),
        "{doctor:?}"
    );
}

#[test]
fn settings_move_the_root_and_the_spaces_of_a_vault() {
    let fixture = Fixture::new();
    fixture.write("vault/inner/mem/_always-load/rule.md", "Always test.");
    std::fs::create_dir_all(fixture.path(&format!("vault/inner/work/{SLUG}"))).unwrap();
    let vault = fixture.path("vault");
    let config = |root: &str| {
        format!(
            r#"{{"vault_path": {vault:?}, "plugins.obsidian-vault.memory_root": "{root}",
                "plugins.obsidian-vault.spaces": {{"memory": "mem", "projects": "work", "briefs": "b"}}}}"#
        )
    };
    fixture.write(CONFIG, config("inner"));
    assert_eq!(
        fixture.state(Which::Plan).unwrap(),
        vault.join(format!("inner/work/{SLUG}/_harness/PLAN.md"))
    );
    assert!(fixture.recall("work").contains("Always test."));
    for bad in ["/etc", "../up", "c:x", "absent"] {
        fixture.write(CONFIG, config(bad));
        let state = fixture.seam().state(&fixture.context()).unwrap();
        assert_eq!(
            (state.store, state.warnings.len()),
            (Store::Project, 1),
            "{bad}"
        );
    }
    // What is given is the root already.
    fixture.write(CONFIG, config("inner"));
    let fixture = fixture.given("vault/inner");
    assert!(fixture.recall("work").contains("Always test."));
}

// What the project is called.

#[test]
fn a_project_is_called_what_it_says_or_what_its_origin_says() {
    let name = |json: Option<&str>, origin: Option<&str>| {
        let fixture = Fixture::new();
        fixture.remove("repo/.harness/project.json");
        if let Some(json) = json {
            fixture.write("repo/.harness/project.json", json);
        }
        if let Some(origin) = origin {
            fixture.write("repo/.git/HEAD", "ref: refs/heads/main\n");
            fixture.write(
                "repo/.git/config",
                format!("[remote \"origin\"]\n\turl = {origin}\n"),
            );
        }
        let doctor = fixture.seam().doctor(&fixture.context());
        doctor
            .project
            .map(|name| format!("{name} ({})", doctor.project_from.unwrap_or_default()))
    };
    for (json, expected) in [
        (r#"{"vault_project": "  Mine "}"#, "Mine (vault_project)"),
        (
            r#"{"vault_project": "mine", "github": {"repo": "o/other"}}"#,
            "mine (vault_project)",
        ),
        (
            r#"{"vault_project": " ", "github": {"repo": "o/other.git"}}"#,
            "other (github.repo)",
        ),
        (
            r#"{"vault_project": 7, "github": {"repo": "other"}}"#,
            "other (github.repo)",
        ),
        (r#"{"github": {"repo": " "}}"#, "name (origin)"),
        (r#"{"github": "o/x"}"#, "name (origin)"),
        ("{}", "name (origin)"),
        ("[]", "name (origin)"),
        ("{ damaged", "name (origin)"),
    ] {
        assert_eq!(
            name(Some(json), Some("https://host/o/name.git")).as_deref(),
            Some(expected),
            "{json}"
        );
    }
    for origin in [
        "git@host:o/name.git",
        "ssh://git@host/o/name",
        "file:///srv/name.git/",
        "https://host/o/name/",
    ] {
        assert_eq!(
            name(None, Some(origin)).as_deref(),
            Some("name (origin)"),
            "{origin}"
        );
    }
    assert_eq!(name(None, None), None);
    assert_eq!(name(Some("{ damaged"), None), None);
    assert_eq!(name(None, Some("")), None);
}

#[test]
fn real_repositories_and_work_trees_have_the_name_of_their_origin() {
    let fixture = Fixture::new();
    fixture.remove("repo/.harness/project.json");
    let git = |folder: &str, args: &[&str]| {
        let mut command = std::process::Command::new("git");
        command
            .args(args)
            .current_dir(fixture.path(folder))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1");
        for (name, value) in [("NAME", "a"), ("EMAIL", "a@b.c")] {
            command
                .env(format!("GIT_AUTHOR_{name}"), value)
                .env(format!("GIT_COMMITTER_{name}"), value);
        }
        assert!(command.output().unwrap().status.success(), "git {args:?}");
    };
    git("repo", &["init", "--quiet"]);
    git(
        "repo",
        &["remote", "add", "origin", "git@host:o/Real-Name.git"],
    );
    git(
        "repo",
        &["commit", "--quiet", "--allow-empty", "--message", "a"],
    );
    git("repo", &["worktree", "add", "--quiet", "../tree"]);
    git("", &["clone", "--quiet", "--bare", "repo", "bare.git"]);
    std::fs::create_dir_all(fixture.path("repo/sub/deep")).unwrap();
    std::fs::create_dir_all(fixture.path("tree/sub")).unwrap();
    let name = |folder: &str| {
        fixture
            .seam()
            .doctor(&Context {
                cwd: Some(fixture.path(folder)),
                ..Context::default()
            })
            .project
    };
    for folder in ["repo", "repo/sub/deep", "repo/.git", "tree", "tree/sub"] {
        assert_eq!(name(folder).as_deref(), Some("Real-Name"), "{folder}");
    }
    assert_eq!(
        name("bare.git").as_deref(),
        Some("repo"),
        "its origin is the folder it was cloned from"
    );
    assert_eq!(name("home"), None);
}

// What is recalled.

#[test]
fn each_phase_recalls_what_it_needs_in_every_layout() {
    for projects in super::fixture::PROJECTS {
        let fixture = Fixture::in_layout(projects).given("vault");
        fixture.always("rule", "ALWAYS");
        fixture.note("_index.md", "INDEX");
        for folder in ["decisions", "open-questions", "known-issues", "wiki-style"] {
            fixture.note(&format!("{folder}/one.md"), folder.to_uppercase());
            fixture.note(&format!("{folder}/deep/two.md"), "DEEP");
        }
        for (phase, order) in [
            ("setup", &["ALWAYS", "INDEX"][..]),
            ("plan", &["ALWAYS", "INDEX", "DECISIONS", "OPEN-QUESTIONS"]),
            ("work", &["ALWAYS", "DECISIONS", "KNOWN-ISSUES"]),
            ("review", &["ALWAYS"]),
            ("release", &["ALWAYS", "DECISIONS"]),
            ("bugfix", &["ALWAYS", "KNOWN-ISSUES"]),
            (
                "documenter",
                &["INDEX", "DECISIONS", "WIKI-STYLE", "ALWAYS"],
            ),
        ] {
            let text = fixture.recall(phase);
            let bodies: Vec<&str> = text
                .lines()
                .filter(|line| {
                    !line.is_empty() && line.chars().all(|c| c.is_uppercase() || c == '-')
                })
                .collect();
            assert_eq!(bodies, order, "{phase}: {text}");
            let budget = Phase::of(phase).budget();
            assert!(
                text.contains(&format!(
                    "(budget: ~{budget} tokens, entries: {})",
                    order.len()
                )),
                "{text}"
            );
        }
        assert!(fixture.recall("plan").contains(&format!(
            "### {SLUG}/_index.md\n\nINDEX\n\n### {SLUG}/decisions/one\n\nDECISIONS\n"
        )));
    }
}

#[test]
fn a_small_budget_holds() {
    let mut fixture = Fixture::with_vault();
    for n in 0..20 {
        fixture.always(&format!("rule-{n}"), "Always test. ".repeat(30));
    }
    fixture.config.budgets.insert(Phase::Plan, 30);
    assert!(fixture.recall("plan").len() < 600);
    assert!(
        fixture.recall("work").len() > 600,
        "another phase has its own"
    );
    fixture.config.budgets.insert(Phase::Plan, 0);
    assert!(fixture.recall("plan").len() > 600, "zero counts as none");
    let context = Context {
        phase: Some("plan".into()),
        ..fixture.context()
    };
    assert!(
        fixture.seam().recall_here(&context, None, Some(30)).len() < 600,
        "a limit comes before the budget"
    );
    assert_eq!(
        fixture.seam().recall_here(&context, None, Some(0)),
        fixture.recall("plan")
    );
}

#[test]
fn without_a_project_what_is_always_loaded_is_recalled() {
    let fixture = Fixture::with_vault();
    fixture.always("rule", "Always test.");
    fixture.remove("repo/.harness/project.json");
    let text = fixture.recall("work");
    assert!(
        text.contains("project: (unknown)") && text.contains("Always test."),
        "{text}"
    );
}

// Which plans there are.

#[test]
fn plans_are_listed_without_copies_and_archives() {
    for (fixture, folder) in [
        (Fixture::new(), "repo/.harness".to_owned()),
        (
            Fixture::with_vault(),
            format!("vault/projects/{SLUG}/_harness"),
        ),
    ] {
        for name in [
            "PLAN-b",
            "PLAN",
            "PLAN-a",
            "PLAN.archive.20260101",
            "PLAN (1)",
            "Copy of PLAN",
            "PLAN-a (conflicted copy)",
            "notes",
        ] {
            fixture.write(
                &format!("{folder}/{name}.md"),
                "# Plan\n\n**Status:** in work\n",
            );
        }
        fixture.write(
            &format!("{folder}/progress-a.md"),
            format!("first\n{}\n\n", "x".repeat(200)),
        );
        fixture.write(MARKER, "a");
        let plans = fixture.seam().plans(&fixture.context());
        let names: Vec<Option<&str>> = plans
            .plans
            .iter()
            .map(|plan| plan.name.as_deref())
            .collect();
        assert_eq!(names, [None, Some("a"), Some("b")]);
        assert_eq!(
            plans
                .plans
                .iter()
                .map(|plan| plan.active)
                .collect::<Vec<_>>(),
            [false, true, false]
        );
        assert_eq!(plans.active.as_deref(), Some("a"));
        assert!(
            plans
                .plans
                .iter()
                .all(|plan| plan.path.is_absolute() && plan.path.exists())
        );
        assert_eq!(plans.plans[0].status.as_deref(), Some("in work"));
        assert_eq!(
            (&plans.plans[0].last_progress, &plans.plans[1].last_progress),
            (&None, &Some("x".repeat(120)))
        );
        assert!(plans.warnings.is_empty(), "{plans:?}");
    }
}

#[test]
fn a_list_of_plans_never_fails() {
    let fixture = Fixture::new();
    assert!(fixture.seam().plans(&fixture.context()).plans.is_empty());
    fixture.write("repo/.harness/PLAN.md", b"Status: \xff");
    fixture.write(MARKER, "absent");
    let plans = fixture.seam().plans(&fixture.context());
    assert_eq!((plans.plans.len(), plans.active), (1, None));
    assert_eq!(
        plans
            .warnings
            .iter()
            .map(|warning| warning.code)
            .collect::<Vec<_>>(),
        ["corrupt-state"]
    );
    let nowhere = Context {
        cwd: Some("/nowhere/at/all".into()),
        ..Context::default()
    };
    assert!(fixture.seam().plans(&nowhere).plans.is_empty());
}

#[test]
fn tasks_are_plans() {
    let fixture = Fixture::with_vault();
    fixture.note("tasks/001-a/plan.md", "Status: done");
    fixture.note("tasks/002-b/plan.md", "x");
    let plans = fixture.seam().plans(&fixture.context());
    assert_eq!(
        plans
            .plans
            .iter()
            .map(|plan| plan.name.as_deref())
            .collect::<Vec<_>>(),
        [Some("001-a"), Some("002-b")]
    );
    assert_eq!(plans.plans[0].status.as_deref(), Some("done"));
    assert!(
        plans.warnings.is_empty(),
        "who looks them over need not name one: {plans:?}"
    );
}

//! Cases of the original's own tests that fit nowhere else: a guard, and `.git` files.

use super::fixture::Fixture;
use crate::{Context, Store};

#[test]
fn a_vault_that_is_given_makes_the_setting_that_asks_for_one_quiet() {
    let ask = |fixture: Fixture| {
        fixture.write(
            "home/.claude/.agentm-config.json",
            "{\"storage.backend\": \"vault\"}",
        );
        let state = fixture.seam().state(&fixture.context()).unwrap();
        (state.store, state.warnings.len())
    };
    assert_eq!(ask(Fixture::new()), (Store::Project, 1));
    assert_eq!(ask(Fixture::with_vault()), (Store::Vault, 0));
}

/// Makes what a repository is known by, and the address it comes from.
fn repository(fixture: &Fixture, folder: &str, origin: &str) {
    fixture.write(&format!("{folder}/HEAD"), "ref: refs/heads/main\n");
    for needed in ["objects", "refs"] {
        std::fs::create_dir_all(fixture.path(&format!("{folder}/{needed}"))).unwrap();
    }
    fixture.write(
        &format!("{folder}/config"),
        format!("[remote \"origin\"]\n\turl = https://host/o/{origin}.git\n"),
    );
}

fn project(fixture: &Fixture, folder: &str) -> Option<String> {
    fixture
        .seam()
        .doctor(&Context {
            cwd: Some(fixture.path(folder)),
            ..Context::default()
        })
        .project
}

#[test]
fn a_git_file_leads_to_the_repository_it_names_and_to_no_other() {
    let fixture = Fixture::with_vault();
    fixture.remove("repo/.harness/project.json");
    repository(&fixture, "repo/.git", "outer");
    // A submodule: its own repository lies in that of the outer one, and shares nothing with it.
    repository(&fixture, "repo/.git/modules/sub", "inner");
    fixture.write("repo/sub/.git", "gitdir: ../.git/modules/sub\n");
    fixture.write("repo/sub/deep/file", "");
    assert_eq!(project(&fixture, "repo").as_deref(), Some("outer"));
    assert_eq!(project(&fixture, "repo/sub").as_deref(), Some("inner"));
    assert_eq!(project(&fixture, "repo/sub/deep").as_deref(), Some("inner"));
    for damaged in [
        "gitdir: /nowhere/at/all\n",
        "gitdir: \n",
        "gitdir",
        "",
        "words",
    ] {
        fixture.write("repo/lost/.git", damaged);
        assert_eq!(project(&fixture, "repo/lost"), None, "{damaged:?}");
    }
}

#[test]
fn a_work_tree_whose_commondir_is_damaged_has_no_name() {
    let fixture = Fixture::with_vault();
    fixture.remove("repo/.harness/project.json");
    repository(&fixture, "repo/.git", "outer");
    fixture.write("repo/.git/worktrees/t/HEAD", "ref: refs/heads/t\n");
    fixture.write(
        "tree/.git",
        format!(
            "gitdir: {}\n",
            fixture.path("repo/.git/worktrees/t").display()
        ),
    );
    let shared = "repo/.git/worktrees/t/commondir";
    fixture.write(shared, "../..\n");
    assert_eq!(project(&fixture, "tree").as_deref(), Some("outer"));
    for damaged in [&b""[..], b"\n", b"\xff\xfe", b"/nowhere", &[b'a'; 9_000]] {
        fixture.write(shared, damaged);
        assert_eq!(project(&fixture, "tree"), None, "{damaged:?}");
    }
}

//! Cases of the original's own tests that fit nowhere else: a guard, and `.git` files.

use super::place::Place;
use crate::{Context, Store};

#[test]
fn a_vault_that_is_given_makes_the_setting_that_asks_for_one_quiet() {
    let ask = |place: Place| {
        place.write("home/.claude/.agentm-config.json", "{\"storage.backend\": \"vault\"}");
        let state = place.seam().state(&place.context()).unwrap();
        (state.store, state.warnings.len())
    };
    assert_eq!(ask(Place::new()), (Store::Project, 1));
    assert_eq!(ask(Place::with_vault()), (Store::Vault, 0));
}

/// Makes what a repository is known by, and the address it comes from.
fn repository(place: &Place, folder: &str, origin: &str) {
    place.write(&format!("{folder}/HEAD"), "ref: refs/heads/main\n");
    for needed in ["objects", "refs"] {
        std::fs::create_dir_all(place.path(&format!("{folder}/{needed}"))).unwrap();
    }
    place.write(&format!("{folder}/config"), format!("[remote \"origin\"]\n\turl = https://host/o/{origin}.git\n"));
}

fn project(place: &Place, folder: &str) -> Option<String> {
    place.seam().doctor(&Context { cwd: Some(place.path(folder)), ..Context::default() }).project
}

#[test]
fn a_git_file_leads_to_the_repository_it_names_and_to_no_other() {
    let place = Place::with_vault();
    place.remove("repo/.harness/project.json");
    repository(&place, "repo/.git", "outer");
    // A submodule: its own repository lies in that of the outer one, and shares nothing with it.
    repository(&place, "repo/.git/modules/sub", "inner");
    place.write("repo/sub/.git", "gitdir: ../.git/modules/sub\n");
    place.write("repo/sub/deep/file", "");
    assert_eq!(project(&place, "repo").as_deref(), Some("outer"));
    assert_eq!(project(&place, "repo/sub").as_deref(), Some("inner"));
    assert_eq!(project(&place, "repo/sub/deep").as_deref(), Some("inner"));
    for damaged in ["gitdir: /nowhere/at/all\n", "gitdir: \n", "gitdir", "", "words"] {
        place.write("repo/lost/.git", damaged);
        assert_eq!(project(&place, "repo/lost"), None, "{damaged:?}");
    }
}

#[test]
fn a_work_tree_whose_commondir_is_damaged_has_no_name() {
    let place = Place::with_vault();
    place.remove("repo/.harness/project.json");
    repository(&place, "repo/.git", "outer");
    place.write("repo/.git/worktrees/t/HEAD", "ref: refs/heads/t\n");
    place.write("tree/.git", format!("gitdir: {}\n", place.path("repo/.git/worktrees/t").display()));
    let shared = "repo/.git/worktrees/t/commondir";
    place.write(shared, "../..\n");
    assert_eq!(project(&place, "tree").as_deref(), Some("outer"));
    for damaged in [&b""[..], b"\n", b"\xff\xfe", b"/nowhere", &[b'a'; 9_000]] {
        place.write(shared, damaged);
        assert_eq!(project(&place, "tree"), None, "{damaged:?}");
    }
}

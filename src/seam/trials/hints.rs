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

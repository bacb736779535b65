//! How few files calls open.

use super::fixture::{Fixture, SLUG};
use crate::{Context, Which};

/// Maximum number of files that a path of state opens.
///
/// They are the settings, the mode, the name of the project or the address of origin, the marker,
/// and the plan that it binds.
const MOST_FILES: usize = 5;

#[test]
fn a_path_of_state_opens_few_files_and_lists_the_tasks_only() {
    let fixture = Fixture::with_vault();
    for n in 0..5_000 {
        fixture.note(&format!("decisions/d-{n:04}.md"), "x");
    }
    fixture.always("rule", "ALWAYS");
    fixture.write("home/.claude/.agentm-config.json", "{}");
    fixture.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    fixture.write(
        "repo/.git/config",
        format!("[remote \"origin\"]\n\turl = https://host/o/{SLUG}.git\n"),
    );
    fixture.write("repo/.harness/.project-mode", "backend");
    fixture.write("repo/.forge/memory/long-term/knowledge.json", "{}");
    fixture.write("repo/.harness/active-plan", "foo");
    fixture.note("_harness/PLAN-foo.md", "Status: open");
    fixture.note("tasks/001-a/plan.md", "x");
    let tasks = fixture.path(&format!("vault/{}/tasks", fixture.project));
    let seam = fixture.seam();
    let look = |what: &str, context: &Context| {
        let mut listed = 0;
        for which in Which::ALL {
            let (reads, lists) = (fixture.look.reads().len(), fixture.look.lists().len());
            let _ = seam.state_path(context, which);
            let (reads, lists) = (
                fixture.look.reads().split_off(reads),
                fixture.look.lists().split_off(lists),
            );
            assert!(
                !reads.is_empty() && reads.len() <= MOST_FILES,
                "{what}: {reads:?}"
            );
            assert!(
                reads.iter().all(|(_, bytes)| *bytes < 1_000),
                "{what}: {reads:?}"
            );
            assert!(
                !reads
                    .iter()
                    .any(|(path, _)| path.ends_with("knowledge.json")),
                "{what}: {reads:?}"
            );
            assert!(
                lists.iter().all(|folder| *folder == tasks),
                "{what}: {lists:?}"
            );
            listed += lists.len();
        }
        listed
    };
    let bound = look("bound", &fixture.context());
    fixture.remove("repo/.harness/project.json");
    look("bound, the name of origin", &fixture.context());
    let named = look(
        "named",
        &Context {
            plan: Some("a".into()),
            ..fixture.context()
        },
    );
    fixture.remove("repo/.harness/active-plan");
    let nothing = look("nothing", &fixture.context());
    assert!(
        bound + named + nothing > 0,
        "a list is seen if there is one"
    );
}

//! How long calls take. It only prints: machines differ, and a test must not depend on how busy one is.

use std::time::Instant;

use super::place::{Place, SLUG};
use crate::{Context, Which};

#[test]
#[ignore = "prints how long things take"]
fn a_path_of_state_and_a_recall_over_many_notes() {
    let place = Place::with_vault();
    for n in 0..30 {
        place.always(&format!("rule-{n}"), format!("---\nkind: convention\n---\n\n{}\n", "word ".repeat(60)));
    }
    for n in 0..5_000 {
        place.note(
            &format!("decisions/d-{n:04}.md"),
            format!("---\nkind: decision\nstatus: active\n---\n\n{}\n", "word ".repeat(80)),
        );
    }
    place.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    place.write("repo/.git/config", format!("[remote \"origin\"]\n\turl = https://host/o/{SLUG}.git\n"));
    let seam = place.seam();
    let median = |what: &str, call: &dyn Fn()| {
        let mut took: Vec<_> = (0..21)
            .map(|_| {
                let begin = Instant::now();
                call();
                begin.elapsed()
            })
            .collect();
        took.sort();
        println!("{what}: median {:?}, best {:?}", took[10], took[0]);
    };
    let context = Context { plan: Some("foo".into()), ..place.context() };
    median("state path, its own name", &|| drop(seam.state_path(&context, Which::Plan).unwrap()));
    place.remove("repo/.harness/project.json");
    median("state path, the name of origin", &|| drop(seam.state_path(&context, Which::Plan).unwrap()));
    median("recall over 5,000 notes", &|| drop(seam.recall_here(&context, None, None)));
    println!("a recall reads {} files", {
        let before = place.look.reads().len();
        let _ = seam.recall_here(&context, None, None);
        place.look.reads().len() - before
    });
}

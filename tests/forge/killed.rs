//! Sessions whose process was killed are seen as such.

use super::fixture::Fixture;
use crate::support::wait_for;

#[test]
fn killed_session_run_reads_abandoned() {
    let fixture = Fixture::light("");
    fixture.forge(&["session", "start"]);
    // What it starts outlives it, as long as there is a project.
    let script = format!("while [ -e '{}' ]; do sleep 0.1; done", fixture.root().display());
    let mut run = fixture.command(&fixture.root(), &["session", "run", "--", "sh", "-c", &script]).spawn().unwrap();
    let session = || fixture.forge(&["session", "status"])["sessions"][0].clone();
    wait_for("the session to have a holder", || !session()["holder"].is_null());
    assert_eq!(session()["state"], "live");
    assert_eq!(fixture.forge(&["health"])["short_term"]["inputs"]["active"], true);
    run.kill().unwrap();
    run.wait().unwrap();
    assert_eq!(session()["state"], "abandoned");
    assert!(session()["abandoned"].as_str().unwrap().contains("died"), "{}", session());
    let short_term = fixture.forge(&["health"])["short_term"].clone();
    assert_eq!((&short_term["colour"], &short_term["inputs"]["active"]), (&"yellow".into(), &false.into()));
    let codes: Vec<&str> =
        short_term["reasons"].as_array().unwrap().iter().map(|reason| reason["code"].as_str().unwrap()).collect();
    assert!(codes.contains(&"abandoned_session"), "{codes:?}");
}

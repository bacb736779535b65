//! Sessions whose process was killed are seen as such.

use std::time::{Duration, Instant};

use super::fixture::Fixture;

#[test]
fn killed_session_run_reads_abandoned() {
    let fixture = Fixture::light("");
    fixture.forge(&["session", "start"]);
    // What it starts outlives it, for a short time.
    let mut run = fixture.command(&fixture.root(), &["session", "run", "--", "sleep", "20"]).spawn().unwrap();
    let session = || fixture.forge(&["session", "status"])["sessions"][0].clone();
    let began = Instant::now();
    while session()["holder"].is_null() {
        assert!(began.elapsed() < Duration::from_secs(60), "the session has no holder");
        std::thread::sleep(Duration::from_millis(20));
    }
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

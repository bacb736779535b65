//! Needs of packs: what is missing hides a pack from the lists, and never from calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use helmdeck_core::{Builtin, Clock, Json, Need, Reply};
use helmdeck_engine::Engine;
use helmdeck_events::EventKind;
use helmdeck_testkit::{ManualClock, call, function, manifest, memory, patient};

const MISSING: &str = "a project: make one";

fn pack(name: &str, need: Need) -> Builtin {
    let run = |_, _| async { Ok(Reply::json(Json::parse("{}").unwrap())) };
    Builtin {
        need,
        ..function(&manifest(name, "", ""), run).0
    }
}

fn listed(engine: &Engine) -> Vec<String> {
    engine
        .packs()
        .iter()
        .map(|pack| pack.name.to_string())
        .collect()
}

/// Packs with each kind of need, and what meets the check.
fn packs() -> (Vec<Builtin>, Arc<AtomicBool>) {
    let there = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&there);
    let check = Need::check(move || (!seen.load(Ordering::SeqCst)).then_some(MISSING));
    let packs = vec![
        pack("a.always", Need::Nothing),
        pack("m.memory", Need::Memory),
    ];
    let checked = ["p.one", "p.two"].map(|name| pack(name, check.clone()));
    (packs.into_iter().chain(checked).collect(), there)
}

#[tokio::test]
async fn unmet_needs_hide_packs_but_not_from_calls() {
    let engine = Engine::builder(patient()).builtins(packs().0).build();
    assert_eq!(listed(&engine), ["a.always"]);
    let all = engine.all_packs();
    let waits: Vec<_> = all
        .iter()
        .map(|pack| (pack.family(), pack.waits_for.is_some()))
        .collect();
    assert_eq!(waits, [("a", false), ("m", true), ("p", true), ("p", true)]);
    assert!(all[1].waits_for.unwrap().contains("HELMDECK_MEMORY_KEY"));
    assert_eq!(engine.pack("p.two", None).unwrap().waits_for, Some(MISSING));
    for name in ["m.memory", "p.one"] {
        engine.call(call(name, "{}")).await.unwrap();
    }
}

#[tokio::test]
async fn gate_one_lists_packs_that_need_memory() {
    let clock = Arc::new(ManualClock::default());
    let memory = memory(Arc::clone(&clock) as Arc<dyn Clock>).await;
    let open = Engine::builder(patient())
        .builtins(packs().0)
        .memory(memory)
        .clock(clock)
        .build();
    assert_eq!(listed(&open), ["a.always", "m.memory"]);
    // The key is set, and the store is not open.
    let shut = Engine::builder(patient())
        .builtins(packs().0)
        .memory_unavailable("shut")
        .build();
    assert_eq!(listed(&shut), ["a.always", "m.memory"]);
}

#[tokio::test]
async fn reload_lists_packs_whose_need_is_met() {
    let (packs, there) = packs();
    let engine = Engine::builder(patient()).builtins(packs).build();
    let (before, mut events) = (engine.revision(), engine.events().subscribe());
    there.store(true, Ordering::SeqCst);
    assert_eq!(listed(&engine), ["a.always"], "a list checks nothing");
    engine.reload();
    assert_eq!(listed(&engine), ["a.always", "p.one", "p.two"]);
    assert!(engine.revision() > before);
    for name in ["p.one", "p.two"] {
        let event = events.next().await.unwrap().unwrap();
        assert!(
            matches!(&event.kind, EventKind::PackRegistered { pack, .. } if pack.as_str() == name),
            "{event:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn server_notices_a_met_need() {
    let (packs, there) = packs();
    let engine = Engine::builder(patient())
        .builtins(packs)
        .watch(true)
        .build();
    let mut events = engine.events().subscribe();
    there.store(true, Ordering::SeqCst);
    let event = events.next().await.unwrap().unwrap();
    assert!(
        matches!(event.kind, EventKind::PackRegistered { .. }),
        "{event:?}"
    );
    assert_eq!(listed(&engine).len(), 3);
    there.store(false, Ordering::SeqCst);
    while !matches!(
        events.next().await.unwrap().unwrap().kind,
        EventKind::PackRemoved { .. }
    ) {}
    assert_eq!(listed(&engine), ["a.always"]);
    engine.shutdown().await;
}

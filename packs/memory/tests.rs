//! Tests of the contracts, and of each pack without a memory.
//!
//! The tests with a memory are where there is an engine.

use std::sync::Arc;

use helmdeck_core::clock::SystemClock;
use helmdeck_core::manifest::HandlerSpec;
use helmdeck_core::memory::NoMemory;
use helmdeck_core::{Builtin, Clock, Code, Context, Error, Identity, Json, Manifest, RunId};
use serde_json::json;

fn manifest(builtin: &Builtin) -> Manifest {
    Manifest::check_builtin(builtin.file, builtin.manifest, builtin.schemas).unwrap()
}

fn context(builtin: &Builtin, memory: NoMemory) -> Context {
    let manifest = manifest(builtin);
    let run = RunId::next(SystemClock::default().now());
    let context = Context::new(
        manifest.name,
        manifest.version,
        Arc::new(Identity::local()),
        run,
    );
    Context {
        memory: Err(memory),
        ..context
    }
}

#[test]
fn every_manifest_is_understood_and_keeps_no_trace() {
    let mut reading = Vec::new();
    for builtin in super::packs() {
        let manifest = manifest(&builtin);
        assert_eq!(
            manifest.handler,
            HandlerSpec::Builtin(manifest.name.to_string())
        );
        assert_eq!(
            builtin.file,
            format!("packs/{}.toml", manifest.name.as_str().replace('.', "/"))
        );
        assert!(
            manifest.no_audit && manifest.memory.is_none() && !manifest.examples.is_empty(),
            "{}",
            manifest.name
        );
        assert_eq!(
            manifest.input.source()["additionalProperties"],
            json!(false),
            "{}",
            manifest.name
        );
        if manifest.read_only {
            reading.push(manifest.name.to_string());
        }
    }
    assert_eq!(reading, ["memory.recall", "memory.list"]);
}

#[tokio::test]
async fn without_a_memory_every_pack_says_why_in_the_same_words() {
    for builtin in super::packs() {
        let input = Json::from(manifest(&builtin).examples[0].input.clone());
        for (why, code) in [
            (NoMemory::Off, Code::NotFound),
            (NoMemory::Anonymous, Code::Unauthenticated),
            (NoMemory::Shared, Code::Forbidden),
        ] {
            let error = builtin
                .handler
                .run(context(&builtin, why.clone()), input.clone())
                .await
                .unwrap_err();
            assert_eq!(
                (error.code(), error.message()),
                (code, Error::from(why).message()),
                "{}",
                builtin.file
            );
        }
    }
}

//! The contracts, and what the packs answer over real files.

use std::path::Path;
use std::sync::Arc;

use helmdeck_core::clock::SystemClock;
use helmdeck_core::{
    Builtin, Clock, Code, Context, Error, Identity, Json, Manifest, Result, RunId,
};
use helmdeck_seam::{Given, SeamConfig};
use serde_json::{Value, json};

use super::Config;

fn manifest(builtin: &Builtin) -> Manifest {
    Manifest::check_builtin(builtin.file, builtin.manifest, builtin.schemas).unwrap()
}

async fn call_as(
    packs: &[Builtin],
    identity: Identity,
    verb: &str,
    input: Value,
) -> Result<Value, Error> {
    let file = format!("packs/seam/{verb}.toml");
    let builtin = packs.iter().find(|pack| pack.file == file).unwrap();
    let manifest = manifest(builtin);
    let run = RunId::next(SystemClock::default().now());
    let context = Context::new(manifest.name, manifest.version, Arc::new(identity), run);
    let reply = builtin
        .handler
        .run(context, Json::parse(input.to_string()).unwrap())
        .await?;
    Ok(serde_json::from_str(reply.output.unwrap().as_str()).unwrap())
}

async fn call(packs: &[Builtin], verb: &str, input: Value) -> Result<Value, Error> {
    call_as(packs, Identity::local(), verb, input).await
}

fn write(path: &Path, contents: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, contents).unwrap();
}

/// A project and a vault that knows it, and the packs over both.
fn desk() -> (tempfile::TempDir, Vec<Builtin>) {
    let folder = tempfile::tempdir().unwrap();
    let (repo, vault) = (folder.path().join("repo"), folder.path().join("vault"));
    write(
        &repo.join(".harness/project.json"),
        "{\"vault_project\": \"one\"}",
    );
    write(&vault.join("personal/_always-load/rule.md"), "ALWAYS\n");
    write(
        &vault.join("projects/one/_harness/PLAN.md"),
        "Status: open\n",
    );
    let mut seam = SeamConfig::new(&repo);
    seam.vaults = vec![Given {
        by: "test".to_owned(),
        path: vault.into(),
    }];
    let packs = super::packs(&Config { seam: Some(seam) });
    (folder, packs)
}

#[test]
fn every_manifest_is_sound_and_says_that_it_only_reads() {
    for builtin in super::packs(&Config::of_project("/")) {
        assert!(manifest(&builtin).read_only, "{}", builtin.file);
    }
}

#[tokio::test]
async fn the_calls_are_those_of_the_seam() {
    let (_folder, packs) = desk();
    let recalled = call(&packs, "recall_here", json!({"phase": "review"}))
        .await
        .unwrap();
    assert!(
        recalled["text"].as_str().unwrap().contains("ALWAYS") && recalled["entries"] == 1,
        "{recalled}"
    );
    let offer = call(
        &packs,
        "offer_save_here",
        json!({"candidate": {"kind": "fix", "body": "x"}}),
    )
    .await
    .unwrap();
    assert_eq!(
        (
            &offer["candidates"][0]["project"],
            &offer["candidates"][0]["body"]
        ),
        (&json!("one"), &json!("x"))
    );
    let state = call(&packs, "state_path", json!({})).await.unwrap();
    assert!(
        state["plan"]
            .as_str()
            .unwrap()
            .ends_with("projects/one/_harness/PLAN.md"),
        "{state}"
    );
    let plans = call(&packs, "plans", json!({})).await.unwrap();
    assert_eq!(plans["plans"][0]["status"], "open", "{plans}");
}

#[tokio::test]
async fn what_is_corrupt_or_unsafe_is_an_error_with_its_code() {
    let (folder, packs) = desk();
    let error = call(&packs, "state_path", json!({"plan": "../x"}))
        .await
        .unwrap_err();
    assert!(
        error.code() == Code::InvalidInput && error.message().starts_with("unsafe-name: "),
        "{error}"
    );
    write(&folder.path().join("repo/.harness/active-plan"), "gone");
    let error = call(&packs, "state_path", json!({})).await.unwrap_err();
    assert!(
        error.code() == Code::Conflict && error.message().starts_with("corrupt-state: "),
        "{error}"
    );
    assert!(call(&packs, "recall_here", json!({})).await.is_ok());
}

#[tokio::test]
async fn nobody_unknown_and_no_unknown_project_is_served() {
    let (_folder, packs) = desk();
    let error = call_as(&packs, Identity::anonymous(), "recall_here", json!({}))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Unauthenticated);
    let error = call(&super::packs(&Config::default()), "plans", json!({}))
        .await
        .unwrap_err();
    assert!(
        error.code() == Code::NotFound && error.message().contains("[forge] root"),
        "{error}"
    );
}

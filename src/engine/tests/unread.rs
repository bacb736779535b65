//! Built-in packs that nobody has needed yet: known by name, read by the first call or list.

use helmdeck_core::{Builtin, Code, Json, Reply};
use helmdeck_engine::{Config, Engine};
use helmdeck_events::EventKind;
use helmdeck_testkit::{call, function, manifest};

fn pack(manifest: &str) -> Builtin {
    function(manifest, |_, _| async {
        Ok(Reply::json(Json::parse("{}").unwrap()))
    })
    .0
}

#[tokio::test]
async fn manifest_with_a_mistake_is_refused_when_it_is_needed() {
    let bad = manifest("a.bad", "colour = \"red\"", "");
    let packs = vec![pack(&bad), pack(&manifest("a.good", "", ""))];
    let engine = Engine::builder(Config::default()).builtins(packs).build();
    assert_eq!((engine.pack_count(), engine.refused().len()), (2, 0));
    let error = engine.call(call("a.bad", "{}")).await.unwrap_err();
    assert_eq!(error.code(), Code::Internal);
    assert!(
        error.to_string().contains("test.toml:4") && error.to_string().contains("colour"),
        "{error}"
    );
    engine.call(call("a.good", "{}")).await.unwrap();
    let names: Vec<_> = engine
        .packs()
        .into_iter()
        .map(|pack| pack.name.to_string())
        .collect();
    assert_eq!(names, ["a.good"]);
    assert_eq!(engine.refused()[0].line, Some(4));
}

#[tokio::test]
async fn same_name_or_version_is_refused_without_reading() {
    let packs = ["a.b", "a.b", "a.c__d", "a.c.d"].map(|name| pack(&manifest(name, "", "")));
    let engine = Engine::builder(Config::default())
        .builtins(packs.to_vec())
        .build();
    let reasons: Vec<_> = engine
        .refused()
        .into_iter()
        .map(|error| error.message)
        .collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(
        reasons[0].contains("\"a.b\" v1 is already defined by test.toml"),
        "{reasons:?}"
    );
    assert!(reasons[1].contains("a__c__d"), "{reasons:?}");
    assert_eq!(engine.pack_count(), 2);
}

#[tokio::test]
async fn reload_reports_no_built_in_pack_as_new() {
    let folder = tempfile::tempdir().unwrap();
    let builtins = vec![
        pack(&manifest("a.read", "", "")),
        pack(&manifest("a.unread", "", "")),
    ];
    let engine = Engine::builder(Config::default())
        .builtins(builtins)
        .packs_dir(folder.path())
        .build();
    engine.call(call("a.read", "{}")).await.unwrap();
    let mut events = engine.events().subscribe();
    let added = "name = \"z.added\"\nversion = \"v1\"\ndescription = \"x\"\n[handler]\ncommand = [\"cat\"]\n";
    std::fs::write(folder.path().join("added.toml"), added).unwrap();
    engine.reload();
    loop {
        match &events.next().await.unwrap().unwrap().kind {
            EventKind::PackRegistered { pack, .. } if pack.as_str() == "z.added" => break,
            EventKind::PackRegistered { pack, .. } => panic!("{pack} is not new"),
            _ => {}
        }
    }
}

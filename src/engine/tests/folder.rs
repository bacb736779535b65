//! The packs folder while an engine runs: it may come late, be replaced, and hold half-written
//! files.

use std::path::Path;

use helmdeck_core::Code;
use helmdeck_engine::{Config, Engine};
use helmdeck_testkit::call;

const GOOD: &str = "name = \"team.one\"\nversion = \"v1\"\ndescription = \"first\"\n[handler]\ncommand = [\"cat\"]\n";

fn write(folder: &Path, file: &str, text: &str) {
    std::fs::write(folder.join(file), text).unwrap();
}

fn engine(folder: &Path, watch: bool) -> Engine {
    Engine::builder(Config::default())
        .packs_dir(folder)
        .watch(watch)
        .build()
}

async fn until(what: &str, done: impl Fn() -> bool) {
    helmdeck_testkit::until(what, async || done()).await;
}

#[tokio::test]
async fn a_folder_made_after_the_start_is_followed() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("config/packs");
    let engine = engine(&folder, true);
    assert!(engine.packs().is_empty());
    std::fs::create_dir_all(&folder).unwrap();
    write(&folder, "one.toml", GOOD);
    until("the pack of a late folder", || {
        engine.pack("team.one", None).is_ok()
    })
    .await;
    // Its changes are seen from then on, and another folder in its place too.
    write(&folder, "two.toml", &GOOD.replace("team.one", "team.two"));
    until("the second pack", || engine.pack("team.two", None).is_ok()).await;
    std::fs::rename(&folder, home.path().join("old")).unwrap();
    until("the packs of a folder that is gone to go", || {
        engine.packs().is_empty()
    })
    .await;
    std::fs::create_dir(&folder).unwrap();
    write(
        &folder,
        "three.toml",
        &GOOD.replace("team.one", "team.three"),
    );
    until("the pack of the new folder", || {
        engine.pack("team.three", None).is_ok()
    })
    .await;
    engine.shutdown().await;
}

#[tokio::test]
async fn broken_manifest_keeps_last_good_version() {
    let home = tempfile::tempdir().unwrap();
    write(home.path(), "one.toml", GOOD);
    let engine = engine(home.path(), false);
    let ready = async || {
        engine
            .ready()
            .await
            .into_iter()
            .find(|(name, _)| *name == "manifests")
            .unwrap()
            .1
    };
    assert_eq!(ready().await, Ok(()));
    for wrong in [
        GOOD.replace("description", "descriptoin"),
        GOOD[..30].to_owned(),
        String::new(),
    ] {
        write(home.path(), "one.toml", &wrong);
        engine.reload();
        let output = engine
            .call(call("team.one", "{\"a\":1}"))
            .await
            .unwrap()
            .output;
        assert_eq!(output.as_str(), "{\"a\":1}");
        let pack = engine.pack("team.one", None).unwrap();
        assert!(
            pack.outdated
                .as_deref()
                .is_some_and(|why| why.starts_with("one.toml:")),
            "{:?}",
            pack.outdated
        );
        assert_eq!(engine.refused().len(), 1);
        assert!(ready().await.unwrap_err().contains("refused: 1"));
    }
    write(home.path(), "one.toml", &GOOD.replace("first", "second"));
    engine.reload();
    let pack = engine.pack("team.one", None).unwrap();
    assert_eq!(
        (
            pack.description.as_str(),
            pack.outdated,
            engine.refused().len()
        ),
        ("second", None, 0)
    );
    std::fs::remove_file(home.path().join("one.toml")).unwrap();
    engine.reload();
    assert_eq!(
        engine.pack("team.one", None).unwrap_err().code(),
        Code::NotFound
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn pack_can_move_to_another_file() {
    let home = tempfile::tempdir().unwrap();
    write(home.path(), "a.toml", GOOD);
    let engine = engine(home.path(), false);
    write(home.path(), "a.toml", "half of");
    write(home.path(), "b.toml", &GOOD.replace("first", "moved"));
    engine.reload();
    let pack = engine.pack("team.one", None).unwrap();
    assert_eq!((pack.description.as_str(), pack.outdated), ("moved", None));
    engine.shutdown().await;
}

#[tokio::test]
async fn unknown_pack_error_names_refused_manifest() {
    let home = tempfile::tempdir().unwrap();
    write(home.path(), "one.toml", &GOOD.replace("command", "comand"));
    let engine = engine(home.path(), false);
    let error = engine.call(call("team.one", "{}")).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(
        error.message().contains(
            "its manifest was refused: one.toml:5: unknown key `comand`; did you mean `command`?"
        ),
        "{error}"
    );
    engine.shutdown().await;
}

//! Changes of the tools: only the callers concerned are notified.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use helmdeck_core::{Builtin, Json, Need, Reply};
use helmdeck_engine::{Config, Engine};
use helmdeck_testkit::STUCK;

use super::*;
use crate::mcp::state::McpState;
use crate::mcp::table::Tables;
use crate::mcp::watch;
use crate::validity::Validity;

fn add(folder: &Path, name: &str) {
    let text = format!(
        "name = \"{name}\"\nversion = \"v1\"\ndescription = \"x\"\nread_only = true\n[handler]\ncommand = [\"true\"]\n[input]\ntype = \"object\"\n[output]\ntype = \"object\"\n"
    );
    std::fs::write(folder.join(format!("{name}.toml")), text).unwrap();
}

fn engine(folder: &Path) -> Engine {
    Engine::builder(Config::default())
        .packs_dir(folder.to_owned())
        .build()
}

fn door_of(engine: &Engine) -> Arc<McpState> {
    Arc::new(McpState {
        engine: engine.clone(),
        config: McpConfig::default(),
        tables: Tables::new(engine.clone(), Vec::new()),
        place: None,
        extra: None,
        tracer: None,
        deadline: STUCK,
        drain: tokio_util::sync::CancellationToken::new(),
    })
}

#[tokio::test]
async fn only_who_sees_a_change_hears_of_it_and_only_while_its_token_holds() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    let mcp = door_of(&engine);
    let (all, all_told) = tokio::sync::mpsc::unbounded_channel();
    let (some, mut some_told) = tokio::sync::mpsc::unbounded_channel();
    let mut all_told = all_told;
    let holds = Arc::new(AtomicBool::new(true));
    let own = Arc::clone(&holds);
    let listen = |caller, validity, heard: tokio::sync::mpsc::UnboundedSender<()>| {
        tokio::spawn(watch::changes(
            Arc::clone(&mcp),
            caller,
            validity,
            mcp.tables.current(),
            || false,
            move || {
                let heard = heard.clone();
                async move { heard.send(()).is_ok() }
            },
        ))
    };
    let everything = listen(
        caller("t", "u", "packs:run"),
        Validity::new(move || std::future::ready(super::standing(own.load(Ordering::SeqCst)))),
        all,
    );
    listen(caller("t", "v", "packs:run:b.*"), Validity::default(), some);
    tokio::task::yield_now().await;

    add(folder.path(), "a.x");
    engine.reload();
    all_told.recv().await.unwrap();
    add(folder.path(), "b.x");
    engine.reload();
    all_told.recv().await.unwrap();
    some_told.recv().await.unwrap();
    // The second listener was not notified of the first change.
    assert!(some_told.try_recv().is_err());

    holds.store(false, Ordering::SeqCst);
    add(folder.path(), "b.y");
    engine.reload();
    some_told.recv().await.unwrap();
    everything.await.unwrap();
    assert!(all_told.recv().await.is_none());
}

#[tokio::test]
async fn met_need_lists_the_tool_and_is_announced() {
    let there = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&there);
    let need = Need::check(move || (!seen.load(Ordering::SeqCst)).then_some("a project: make one"));
    let run = |_, _| async { Ok(Reply::json(Json::parse("{}").unwrap())) };
    let text = helmdeck_testkit::manifest("p.one", "", "[input]\ntype = \"object\"");
    let pack = Builtin {
        need,
        ..helmdeck_testkit::function(&text, run).0
    };
    let engine = Engine::builder(Config::default())
        .builtins(vec![pack])
        .build();
    let mcp = door_of(&engine);
    let local = Caller::local();
    let visible = || mcp.tables.current().visible(&local).count();
    assert_eq!(
        (visible(), mcp.tool(&local, "p__one").is_ok()),
        (0, true),
        "it is hidden, and can be called"
    );
    let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(watch::changes(
        Arc::clone(&mcp),
        local.clone(),
        Validity::default(),
        mcp.tables.current(),
        || false,
        move || std::future::ready(sender.send(()).is_ok()),
    ));
    tokio::task::yield_now().await;
    there.store(true, Ordering::SeqCst);
    engine.reload();
    told.recv().await.unwrap();
    assert_eq!(visible(), 1);
}

#[tokio::test]
async fn listeners_of_both_kinds_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    let mcp = Mcp::new(
        engine.clone(),
        &ServerConfig::default(),
        McpConfig::default(),
        Arc::new(helmdeck_core::SystemClock::default()),
        None,
        None,
        None,
    );
    let local = Caller::local();
    let session = begin_as(&mcp, &local).await.unwrap();
    let stream = send_as(&mcp, &local, Method::GET, Some(&session), String::new()).await;
    let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    assert_eq!(
        send_as(&mcp, &local, Method::POST, Some(&session), told)
            .await
            .status(),
        202
    );
    let params = json!({"notifications": {"toolsListChanged": true}, "_meta": {
        "io.modelcontextprotocol/protocolVersion": NEWEST, "io.modelcontextprotocol/clientCapabilities": {}}});
    let request = Request::builder()
        .method(Method::POST)
        .uri("/mcp")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", NEWEST)
        .header("mcp-method", "subscriptions/listen")
        .body(Body::from(request("subscriptions/listen", &params)))
        .unwrap();
    let subscription = mcp.handle(local, None, request).await;
    assert_eq!(subscription.status(), 200);
    let seen = async |response: Response| {
        let mut body = response.into_body();
        let mut text = String::new();
        while !text.contains("notifications/tools/list_changed") {
            let frame = http_body_util::BodyExt::frame(&mut body)
                .await
                .expect("the stream goes on")
                .unwrap();
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    };
    let adding = async {
        for number in 0.. {
            add(folder.path(), &format!("a.x{number}"));
            engine.reload();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let both = futures_util::future::join(seen(stream), seen(subscription));
    tokio::select! {
        _ = helmdeck_testkit::ends("word of a change", both) => {}
        () = adding => {}
    }
}

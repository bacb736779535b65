//! Pages over a store of 100,000 rows: what they weigh, and how soon they are painted (printed,
//! never asserted).

use std::time::Duration;

use helmdeck_memory::{Kind, Namespace, Op, Put};
use serde_json::json;

use super::chromium::Browser;
use crate::support::program::{Home, Server};
use crate::support::{KEY, store};

const ROWS: usize = 100_000;
const BATCH: usize = 1_000;
/// What a page may weigh, in bytes.
const MOST_BYTES: usize = 160 << 10;

/// Returns a cached answer of a pack, as the cache stores it.
fn row(namespace: &Namespace, number: usize) -> Op {
    Op::Put(Put {
        namespace: namespace.clone(),
        kind: Kind::Cache,
        key: format!("test.echo/v1/{number:064x}"),
        value: vec![b'x'; 100].into(),
        category: String::new(),
        tags: vec!["repo:many".to_owned()],
        attributes: std::collections::BTreeMap::new(),
        ttl: Some(Duration::from_secs(3600)),
        expect_version: None,
        restore: None,
    })
}

#[test]
fn pages_stay_small_over_many_rows() {
    let home = Home::new();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    std::fs::create_dir_all(home.data()).unwrap();
    runtime.block_on(async {
        let store = store(&home.store(), &[KEY]).await;
        let namespace = Namespace::new("local", "local", None);
        for from in (0..ROWS).step_by(BATCH) {
            store
                .write(
                    (from..from + BATCH)
                        .map(|number| row(&namespace, number))
                        .collect(),
                )
                .await
                .unwrap();
        }
        store.close().await.unwrap();
    });
    let server = Server::start(&home, KEY);
    let browser = Browser::start();
    let tab = browser.tab();
    tab.open(&server.url("/ui"));
    for path in [
        "/ui",
        "/ui/packs",
        "/ui/calls",
        "/ui/jobs",
        "/ui/cache",
        "/ui/memory",
        "/ui/conversations",
        "/ui/files",
        "/ui/tokens",
        "/ui/operate",
    ] {
        let bytes = server.ask(&format!("GET {path}"), "").body.len();
        assert!(bytes < MOST_BYTES, "{path} has {bytes} bytes");
        tab.open(&server.url(path));
        let paint = tab.eval(
            "new Promise(done => new PerformanceObserver(list => done(list.getEntries()[0].startTime))\
             .observe({ type: 'paint', buffered: true }))",
        );
        println!("{path}: {bytes} bytes, first paint after {paint} ms");
    }
    let listed = server.ask("GET /ui/memory", "").body;
    assert!(
        listed.contains(&ROWS.to_string()),
        "the page about memory counts the rows: {}",
        json!(listed)
    );
}

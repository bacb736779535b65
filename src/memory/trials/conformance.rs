//! The suite on every driver, plain and sealed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::drivers::memory::Memory;
use crate::drivers::sqlite::Sqlite;
use crate::{KeyRing, Store, Stored, conformance};

fn ring() -> KeyRing {
    KeyRing::parse(("K", &"ab".repeat(32)), None).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_plain_conforms() {
    conformance::run(|config, clock| {
        Box::pin(async move { Arc::new(Stored::plain(Memory::new(), &config, clock)) as Arc<dyn Store> })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_sealed_conforms() {
    conformance::run(|config, clock| {
        Box::pin(async move {
            Arc::new(Stored::sealed(Memory::new(), ring(), &config, clock).await.unwrap()) as Arc<dyn Store>
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_plain_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let count = AtomicU32::new(0);
    conformance::run(|config, clock| {
        let path = folder.path().join(count.fetch_add(1, Ordering::SeqCst).to_string());
        Box::pin(async move {
            Arc::new(Stored::plain(Sqlite::open(path, &config).unwrap(), &config, clock)) as Arc<dyn Store>
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_sealed_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let count = AtomicU32::new(0);
    conformance::run(|config, clock| {
        let path = folder.path().join(count.fetch_add(1, Ordering::SeqCst).to_string());
        Box::pin(async move {
            let driver = Sqlite::open(path, &config).unwrap();
            Arc::new(Stored::sealed(driver, ring(), &config, clock).await.unwrap()) as Arc<dyn Store>
        })
    })
    .await;
}

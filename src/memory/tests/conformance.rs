//! Conformance suite on every driver, plain and sealed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::drivers::memory::Memory;
use crate::drivers::sqlite::Sqlite;
use crate::{Config, DriverStore, KeyRing, Store, conformance};

fn ring() -> KeyRing {
    KeyRing::parse(("K", &"ab".repeat(32)), None).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_plain_conforms() {
    conformance::run(|config, clock| {
        Box::pin(async move {
            Arc::new(DriverStore::plain(Memory::new(), &config, clock)) as Arc<dyn Store>
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_sealed_conforms() {
    conformance::run(|config, clock| {
        Box::pin(async move {
            Arc::new(
                DriverStore::sealed(Memory::new(), ring(), &config, clock)
                    .await
                    .unwrap(),
            ) as Arc<dyn Store>
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_plain_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let count = AtomicU32::new(0);
    conformance::run(|config, clock| {
        let path = folder
            .path()
            .join(count.fetch_add(1, Ordering::SeqCst).to_string());
        Box::pin(async move {
            Arc::new(DriverStore::plain(
                Sqlite::open(path, &config).unwrap(),
                &config,
                clock,
            )) as Arc<dyn Store>
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_sealed_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let count = AtomicU32::new(0);
    conformance::run(|config, clock| {
        let path = folder
            .path()
            .join(count.fetch_add(1, Ordering::SeqCst).to_string());
        Box::pin(async move {
            let driver = Sqlite::open(path, &config).unwrap();
            Arc::new(
                DriverStore::sealed(driver, ring(), &config, clock)
                    .await
                    .unwrap(),
            ) as Arc<dyn Store>
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_changes_its_key() {
    let all = Arc::new(Mutex::new(HashMap::<u32, Memory>::new()));
    conformance::rotation::run(|number, ring, clock| {
        let memory = all.lock().unwrap().entry(number).or_default().clone();
        Box::pin(async move {
            Ok(
                Arc::new(DriverStore::sealed(memory, ring, &Config::default(), clock).await?)
                    as Arc<dyn Store>,
            )
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_changes_its_key() {
    let folder = tempfile::tempdir().unwrap();
    conformance::rotation::run(|number, ring, clock| {
        let path = folder.path().join(number.to_string());
        Box::pin(async move {
            let config = Config::default();
            Ok(Arc::new(
                DriverStore::sealed(Sqlite::open(path, &config)?, ring, &config, clock).await?,
            ) as Arc<dyn Store>)
        })
    })
    .await;
}

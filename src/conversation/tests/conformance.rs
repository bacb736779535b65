//! Conformance suite of conversations over real stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use helmdeck_memory::drivers::memory::Memory;
use helmdeck_memory::drivers::postgres::Postgres;
use helmdeck_memory::drivers::sqlite::Sqlite;
use helmdeck_memory::{Config, DriverStore, Store};
use helmdeck_testkit::{Postgres as Server, keyring};

use crate::config::Strategy;
use crate::conformance::{self, StoreUnderTest};

async fn in_memory(strategy: Strategy, sealed: bool) {
    conformance::run(
        |clock| {
            Box::pin(async move {
                let config = Config::default();
                if sealed {
                    Arc::new(
                        DriverStore::sealed(Memory::new(), keyring(), &config, clock)
                            .await
                            .unwrap(),
                    ) as Arc<dyn Store>
                } else {
                    Arc::new(DriverStore::plain(Memory::new(), &config, clock)) as Arc<dyn Store>
                }
            })
        },
        StoreUnderTest::InMemory,
        strategy,
    )
    .await;
}

async fn in_a_file(strategy: Strategy, sealed: bool) {
    let folder = tempfile::tempdir().unwrap();
    let count = AtomicU32::new(0);
    conformance::run(
        |clock| {
            let path = folder
                .path()
                .join(count.fetch_add(1, Ordering::SeqCst).to_string());
            Box::pin(async move {
                let config = Config::default();
                let driver = Sqlite::open(path, &config).unwrap();
                if sealed {
                    Arc::new(
                        DriverStore::sealed(driver, keyring(), &config, clock)
                            .await
                            .unwrap(),
                    ) as Arc<dyn Store>
                } else {
                    Arc::new(DriverStore::plain(driver, &config, clock)) as Arc<dyn Store>
                }
            })
        },
        StoreUnderTest::Real,
        strategy,
    )
    .await;
}

async fn in_postgres(strategy: Strategy, sealed: bool) {
    let server = Server::shared();
    let (url, count) = (server.database(), AtomicU32::new(0));
    conformance::run(
        |clock| {
            let name = format!("case{}", count.fetch_add(1, Ordering::SeqCst));
            server.sql(&url, &format!("CREATE SCHEMA {name}"));
            let url = format!("{url}?options=-csearch_path%3D{name}");
            Box::pin(async move {
                let config = Config::default();
                let driver = Postgres::open(&url, &config).await.unwrap();
                if sealed {
                    Arc::new(
                        DriverStore::sealed(driver, keyring(), &config, clock)
                            .await
                            .unwrap(),
                    ) as Arc<dyn Store>
                } else {
                    Arc::new(DriverStore::plain(driver, &config, clock)) as Arc<dyn Store>
                }
            })
        },
        StoreUnderTest::Real,
        strategy,
    )
    .await;
}

macro_rules! conforms {
    ($($name:ident: $store:ident $strategy:ident $sealed:literal;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $store(Strategy::$strategy, $sealed).await;
            }
        )*
    };
}

// Seven of 18 combinations. The conformance suite of the store proves that all drivers, plain and
// sealed, behave alike. Here each strategy runs in memory and on a real file, the one with the most
// background work on a real server, and one store is plain. On a file and a server only those cases
// run that the store has a part in.
conforms! {
    none_in_memory_conforms: in_memory None true;
    truncation_in_memory_conforms: in_memory Truncation true;
    rolling_summary_in_memory_plain_conforms: in_memory RollingSummary false;
    none_in_a_file_conforms: in_a_file None true;
    truncation_in_a_file_conforms: in_a_file Truncation true;
    rolling_summary_in_a_file_conforms: in_a_file RollingSummary true;
    rolling_summary_in_postgres_conforms: in_postgres RollingSummary true;
}

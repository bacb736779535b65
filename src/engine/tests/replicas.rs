//! Several engines on one store: a delete by one holds for all, and no deleted entry comes back.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{CacheStatus, Clock, Code, Directive, Identity};
use helmdeck_engine::{AuditConfig, CacheConfig, Config, Engine, Memory, Selector};
use helmdeck_memory::{Change, Delete, Kind, Namespace, Reach, Store};
use helmdeck_testkit::{
    Counted, ManualClock, ReplicaStore, call, keyring, patient, sealed_memory, until,
};

use crate::support::{echo, status};

/// One engine on a store that others share.
struct Replica {
    engine: Engine,
    store: Arc<ReplicaStore>,
    counted: Counted,
    clock: Arc<ManualClock>,
}

impl Replica {
    fn new(store: Arc<ReplicaStore>, clock: &Arc<ManualClock>) -> Self {
        let (pack, counted) = echo("tags = [\"repo:{repo}\"]");
        let cache = CacheConfig {
            watch_interval: Duration::from_millis(1),
            ..patient().cache
        };
        // The audit reads its head before it writes: not during a test that counts reads.
        let audit = AuditConfig {
            linger: Duration::from_secs(3600),
            ..AuditConfig::default()
        };
        let engine = Engine::builder(Config {
            cache,
            audit,
            ..Config::default()
        })
        .builtins(vec![pack])
        .memory(Memory {
            store: Arc::clone(&store) as _,
            keyring: Arc::new(keyring()),
            system: None,
        })
        .clock(Arc::clone(clock) as _)
        .build();
        Self {
            engine,
            store,
            counted,
            clock: Arc::clone(clock),
        }
    }

    async fn run(&self, repo: &str) -> CacheStatus {
        status(
            &self
                .engine
                .call(call("t.echo", &format!("{{\"repo\":\"{repo}\"}}")))
                .await
                .unwrap(),
        )
    }

    /// Says whether there is an answer.
    async fn has(&self, repo: &str) -> bool {
        let mut look = call("t.echo", &format!("{{\"repo\":\"{repo}\"}}"));
        look.directive = Directive::OnlyIfCached;
        match self.engine.call(look).await {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.code(), Code::CacheMiss);
                false
            }
        }
    }

    async fn settle(&self) {
        self.engine.memory().unwrap().flush().await;
    }

    fn counts(&self, line: &str) -> bool {
        self.engine
            .metrics()
            .lines()
            .any(|of_metrics| of_metrics == line)
    }
}

async fn shared() -> (Arc<dyn Store>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    (
        sealed_memory(Arc::clone(&clock) as Arc<dyn Clock>).await,
        clock,
    )
}

async fn live(store: &Arc<dyn Store>) -> u64 {
    store
        .stats()
        .await
        .unwrap()
        .rows_by_kind
        .get("cache")
        .copied()
        .unwrap_or(0)
}

fn all(kind: Kind) -> Delete {
    Delete::Prefix {
        namespace: None,
        kind: Some(kind),
        prefix: String::new(),
    }
}

fn tagged(tag: &str) -> Delete {
    Delete::Tagged {
        whose: Reach::Everybody,
        kind: Kind::Cache,
        tag: tag.to_owned(),
    }
}

fn written_by(tenant: &str, subject: &str, kind: Kind) -> Delete {
    let whose = Reach::Caller {
        tenant: tenant.into(),
        subject: subject.into(),
    };
    Delete::Tagged {
        whose,
        kind,
        tag: "repo:a".to_owned(),
    }
}

#[tokio::test]
async fn notified_replica_drops_exactly_what_was_deleted() {
    let (store, clock) = shared().await;
    let replica = Replica::new(ReplicaStore::announcing(&store), &clock);
    let mine = Namespace::of_caller(&Identity::local());
    let page = || store.list(&mine, Kind::Cache, "", helmdeck_memory::Page::default());
    for repo in ["a", "b", "other"] {
        replica.run(repo).await;
        replica.settle().await;
        clock.advance(Duration::from_micros(1));
    }
    let oldest = page().await.unwrap().entries.pop().unwrap().key;
    let prefix = |namespace: Option<&Namespace>, kind, prefix: &str| Delete::Prefix {
        namespace: namespace.cloned(),
        kind,
        prefix: prefix.to_owned(),
    };
    let nobody = Namespace::new("local", "nobody", None);
    let of_no_concern = [
        all(Kind::Note),
        all(Kind::Fact),
        prefix(Some(&nobody), None, ""),
        prefix(None, None, "t.ech/"),
        prefix(None, None, "t.echo/v1/x"),
        Delete::Key {
            namespace: nobody.clone(),
            kind: Kind::Cache,
            key: oldest.clone(),
        },
        Delete::Key {
            namespace: mine.clone(),
            kind: Kind::Fact,
            key: oldest.clone(),
        },
        written_by("local", "nobody", Kind::Note),
        written_by("elsewhere", "local", Kind::Cache),
        written_by("local", "nobody", Kind::Cache),
        Delete::Tagged {
            whose: Reach::One(nobody),
            kind: Kind::Cache,
            tag: "repo:a".to_owned(),
        },
        Delete::Tagged {
            whose: Reach::Everybody,
            kind: Kind::Note,
            tag: "repo:a".to_owned(),
        },
    ];
    let concern = [
        Delete::Key {
            namespace: mine.clone(),
            kind: Kind::Cache,
            key: oldest,
        },
        tagged("repo:a"),
        written_by("local", "local", Kind::Cache),
        prefix(Some(&mine), Some(Kind::Cache), "t.echo/"),
        prefix(None, None, ""),
        prefix(None, Some(Kind::Cache), "t.echo/v1/"),
    ];
    for (n, delete) in concern.into_iter().enumerate() {
        for nothing in &of_no_concern {
            replica.store.announce(Change::Deleted(nothing.clone()));
        }
        // Dropped last: then all earlier notifications have arrived.
        replica
            .store
            .announce(Change::Deleted(tagged("repo:other")));
        until("the news", async || !replica.has("other").await).await;
        assert!(replica.has("a").await && replica.has("b").await, "{n}");
        let whole = matches!(delete, Delete::Prefix { .. });
        replica.store.announce(Change::Deleted(delete));
        until("the delete", async || !replica.has("a").await).await;
        assert_eq!(replica.has("b").await, !whole, "{n}");
        clock.advance(Duration::from_secs(11));
        for repo in ["a", "b", "other"] {
            let mut fresh = call("t.echo", &format!("{{\"repo\":\"{repo}\"}}"));
            fresh.directive = Directive::Refresh;
            replica.engine.call(fresh).await.unwrap();
        }
        replica.settle().await;
    }
}

#[tokio::test]
async fn lost_notifications_drop_everything_then_polling() {
    let (store, clock) = shared().await;
    let replica = Replica::new(ReplicaStore::announcing(&store), &clock);
    replica.run("a").await;
    replica.settle().await;
    replica.store.announce(Change::Anything);
    until("the loss", async || !replica.has("a").await).await;
    clock.advance(Duration::from_secs(61));

    assert_eq!(replica.run("a").await, CacheStatus::Miss);
    // More at once than the channel holds: a subscriber that lags does not know what it missed.
    for _ in 0..40 {
        replica.store.announce(Change::Deleted(all(Kind::Note)));
    }
    until("the lag", async || !replica.has("a").await).await;
    clock.advance(Duration::from_secs(61));

    assert_eq!(replica.run("a").await, CacheStatus::Miss);
    replica.store.fall_silent();
    until("the end of news", async || !replica.has("a").await).await;
    clock.advance(Duration::from_secs(61));
    assert_eq!(
        (replica.run("a").await, replica.run("a").await),
        (CacheStatus::Miss, CacheStatus::Hit)
    );
    replica.settle().await;
    // The first reading after the end cannot know what was before it: deletes until one is noticed.
    until("a delete to be noticed", async || {
        store.delete(all(Kind::Cache)).await.unwrap();
        !replica.has("a").await
    })
    .await;
}

#[tokio::test]
async fn queued_answer_from_before_remote_purge_is_dropped() {
    for told in [true, false] {
        let (store, clock) = shared().await;
        let way = if told {
            ReplicaStore::announcing(&store)
        } else {
            ReplicaStore::silent(&store)
        };
        let replica = Replica::new(way, &clock);
        // Warm the hot tier, so that the arrival of the notification shows.
        replica.run("known").await;
        replica.settle().await;
        clock.advance(Duration::from_secs(1));
        until("a reading of the generation", async || {
            told || replica.store.reads() > 0
        })
        .await;
        replica.store.before_write.shut();
        replica.run("being written").await;
        replica.store.before_write.reached().await;
        replica.run("queued").await;
        tokio::time::sleep(Duration::from_millis(if told { 0 } else { 20 })).await;

        store.delete(all(Kind::Cache)).await.unwrap();
        replica.store.announce(Change::Deleted(all(Kind::Cache)));
        until("the news", async || !replica.has("known").await).await;
        replica.store.before_write.open();
        replica.settle().await;
        assert_eq!(live(&store).await, 0, "told: {told}");
        assert!(
            replica.counts("helmdeck_cache_refused_total{reason=\"purged\"} 1"),
            "the queued one: {told}"
        );
        assert!(!replica.has("being written").await && !replica.has("queued").await);
        // Taking rows back does not notify processes that only see that a delete happened.
        assert_eq!(store.generation().await.unwrap(), if told { 2 } else { 1 });
        assert_eq!(replica.run("queued").await, CacheStatus::Miss);
        assert_eq!(replica.run("queued").await, CacheStatus::Hit);
        replica.settle().await;
        assert_eq!(live(&store).await, 1, "what ran after the purge is kept");
    }
}

#[tokio::test]
async fn row_written_before_notification_is_taken_back() {
    let (store, clock) = shared().await;
    let replica = Replica::new(ReplicaStore::announcing(&store), &clock);
    replica.store.before_write.shut();
    replica.run("a").await;
    replica.store.before_write.reached().await;
    store.delete(all(Kind::Cache)).await.unwrap();
    replica.store.before_write.open();
    replica.settle().await;
    assert_eq!(live(&store).await, 1, "nobody knew better");
    replica.store.announce(Change::Deleted(all(Kind::Cache)));
    until("the news", async || !replica.has("a").await).await;
    until("the row to go", async || live(&store).await == 0).await;

    // A row that another replica wrote meanwhile is its own affair.
    clock.advance(Duration::from_secs(61));
    replica.run("b").await;
    replica.settle().await;
    let newer = Replica::new(ReplicaStore::silent(&store), &clock);
    let mut refresh = call("t.echo", "{\"repo\":\"b\"}");
    refresh.directive = Directive::Refresh;
    newer.engine.call(refresh).await.unwrap();
    newer.settle().await;
    replica.store.announce(Change::Deleted(tagged("repo:b")));
    until("the news", async || {
        replica.run("b").await == CacheStatus::Miss
    })
    .await;
    replica.settle().await;
    assert_eq!(live(&store).await, 1);
}

/// Both rows are at version 1: a version alone does not tell them apart.
#[tokio::test]
async fn newer_row_is_not_taken_back_for_older() {
    let folder = tempfile::tempdir().unwrap();
    for url in [
        "memory:".to_owned(),
        format!("sqlite:{}", folder.path().join("memory.db").display()),
    ] {
        let clock = Arc::new(ManualClock::default());
        let config = helmdeck_memory::Config::default();
        let store = helmdeck_memory::open(&url, keyring(), config, Arc::clone(&clock) as _)
            .await
            .unwrap();
        for heard_while_writing in [true, false] {
            let place = format!("{url}, heard while writing: {heard_while_writing}");
            let slow = Replica::new(ReplicaStore::announcing(&store), &clock);
            if heard_while_writing {
                slow.store.after_write.shut();
            }
            slow.run("a").await;
            if heard_while_writing {
                slow.store.after_write.reached().await;
            } else {
                slow.settle().await;
            }
            assert_eq!(live(&store).await, 1, "{place}");
            store.delete(all(Kind::Cache)).await.unwrap();
            clock.advance(Duration::from_micros(1));
            let quick = Replica::new(ReplicaStore::silent(&store), &clock);
            assert_eq!(quick.run("a").await, CacheStatus::Miss, "{place}");
            quick.settle().await;
            slow.store.announce(Change::Deleted(all(Kind::Cache)));
            until("the news", async || !slow.has("a").await).await;
            slow.store.after_write.open();
            slow.settle().await;
            assert_eq!(live(&store).await, 1, "the newer row stays: {place}");
            let third = Replica::new(ReplicaStore::silent(&store), &clock);
            assert_eq!(
                (third.run("a").await, third.counted.runs()),
                (CacheStatus::Hit, 0),
                "{place}"
            );
            // For the next round.
            store.delete(all(Kind::Cache)).await.unwrap();
            clock.advance(Duration::from_secs(61));
        }
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn notified_replica_doubts_rows_of_unnotified_one() {
    let (store, clock) = shared().await;
    let slow = Replica::new(ReplicaStore::announcing(&store), &clock);
    let quick = Replica::new(ReplicaStore::announcing(&store), &clock);
    slow.store.before_write.shut();
    slow.run("a").await;
    slow.store.before_write.reached().await;
    store.delete(all(Kind::Cache)).await.unwrap();
    quick.run("known").await;
    quick.settle().await;
    quick.store.announce(Change::Deleted(all(Kind::Cache)));
    until("the news", async || !quick.has("known").await).await;
    slow.store.before_write.open();
    slow.settle().await;
    quick.settle().await;
    assert_eq!(live(&store).await, 1, "the outdated row is there");
    assert_eq!(
        (quick.run("a").await, quick.counted.runs()),
        (CacheStatus::Miss, 2)
    );
    quick.settle().await;
    clock.advance(Duration::from_secs(1));
    assert_eq!(quick.run("a").await, CacheStatus::Hit);
}

#[tokio::test]
async fn own_deletes_invalidate_only_cached_answers() {
    for told in [true, false] {
        let (store, clock) = shared().await;
        let way = if told {
            ReplicaStore::announcing(&store)
        } else {
            ReplicaStore::silent(&store)
        };
        let replica = Replica::new(way, &clock);
        replica.run("a").await;
        replica.run("b").await;
        replica.settle().await;
        let beside = Arc::clone(replica.engine.memory().unwrap().store());
        for _ in 0..5 {
            beside.delete(all(Kind::Note)).await.unwrap();
            beside.delete(all(Kind::Fact)).await.unwrap();
            // Time for several looks at the generation.
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert_eq!(
                (replica.run("a").await, replica.run("b").await),
                (CacheStatus::Hit, CacheStatus::Hit)
            );
        }
        assert_eq!(
            replica.store.reads(),
            2,
            "from the hot tier, which forgot nothing"
        );
        beside.delete(tagged("repo:a")).await.unwrap();
        assert!(
            !replica.has("a").await && replica.has("b").await,
            "told: {told}"
        );
        // Whatever namespaces a person has: all kinds at once.
        beside
            .delete(Delete::Prefix {
                namespace: None,
                kind: None,
                prefix: String::new(),
            })
            .await
            .unwrap();
        assert!(!replica.has("b").await);
    }
}

#[tokio::test]
async fn purging_replica_doubts_rows_of_unnotified_one() {
    let (store, clock) = shared().await;
    let slow = Replica::new(ReplicaStore::announcing(&store), &clock);
    let quick = Replica::new(ReplicaStore::announcing(&store), &clock);
    slow.store.before_write.shut();
    slow.run("a").await;
    slow.store.before_write.reached().await;
    clock.advance(Duration::from_secs(1));
    quick
        .engine
        .memory()
        .unwrap()
        .purge(Selector::Tag("repo:a".to_owned()))
        .await;
    slow.store.before_write.open();
    slow.settle().await;
    assert_eq!(live(&store).await, 1, "the outdated row is there");
    assert_eq!(
        (quick.run("a").await, quick.counted.runs()),
        (CacheStatus::Miss, 1)
    );
}

#[tokio::test]
async fn polling_engine_sees_remote_purge() {
    let (store, clock) = shared().await;
    let [here, there] = [(); 2].map(|()| Replica::new(ReplicaStore::silent(&store), &clock));
    here.run("a").await;
    here.settle().await;
    assert_eq!(there.run("a").await, CacheStatus::Hit);
    until("the purge to be noticed", async || {
        here.engine.memory().unwrap().purge(Selector::All).await;
        !there.has("a").await
    })
    .await;
    assert_eq!(
        (there.run("a").await, there.counted.runs()),
        (CacheStatus::Miss, 1)
    );
    assert_eq!(there.clock.now(), here.clock.now());
}

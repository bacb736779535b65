//! Two replicas on one PostgreSQL database: each reads what the other has acknowledged.

use std::sync::Arc;

use helmdeck_core::SystemClock;
use helmdeck_events::Bus;
use helmdeck_memory::{Config as StoreConfig, open};
use helmdeck_testkit::{Postgres as Server, keyring};

use crate::{Config, ConversationMemory, Dependencies, Identity, NewTurn, Strategy};

async fn replica(url: &str) -> ConversationMemory {
    let clock = Arc::new(SystemClock::default());
    let store = open(url, keyring(), StoreConfig::default(), clock.clone())
        .await
        .unwrap();
    let dependencies = Dependencies {
        store,
        events: Bus::new(16, clock.clone()),
        clock,
        summarizer: None,
    };
    let config = Config {
        strategy: Strategy::Truncation,
        budget_tokens: 0,
        ..Config::default()
    };
    ConversationMemory::open(config, dependencies).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn context_has_the_turn_another_replica_acknowledged() {
    let server = Server::shared();
    let url = server.database();
    let replicas = [replica(&url).await, replica(&url).await];
    let identity = Identity::new("t", "u", "s");
    for round in 0..20 {
        let [here, there] =
            if round % 2 == 0 { [0, 1] } else { [1, 0] }.map(|index: usize| &replicas[index]);
        here.add_turn(
            &identity,
            NewTurn::new(format!("question {round}"), "answer"),
        )
        .await
        .unwrap();
        let context = there.context(&identity).await.unwrap();
        let last = context.recent_turns.last().unwrap();
        assert_eq!(last.turn.user_message, format!("question {round}"));
    }
    replicas[0].forget(&identity).await.unwrap();
    assert!(
        replicas[1]
            .context(&identity)
            .await
            .unwrap()
            .recent_turns
            .is_empty()
    );
}

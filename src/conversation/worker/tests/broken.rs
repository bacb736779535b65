//! Answers of the store that are lost.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_memory::Store;

use super::summarizer::Action;
use super::{Fixture, add, id, names, rolling, shown, until};
use crate::conformance::faulty_store::FaultyStore;
use crate::health::Health;
use crate::memory::{ConversationMemory, Dependencies};
use crate::summarizer::Failure;

#[tokio::test(start_paused = true)]
async fn lost_store_reply_breaks_no_event_chain() {
    // The store tells at the next backlog, or not before the attempt was given up.
    for blind in [0, 6] {
        let fixture = Fixture::new(rolling()).await;
        fixture
            .summarizer
            .next((0..3).map(|_| Action::Fail(Failure::Unavailable)));
        let faults = FaultyStore::new(&(Arc::clone(&fixture.store) as Arc<dyn Store>));
        let dependencies = Dependencies {
            store: faults.store(),
            events: fixture.bus.clone(),
            clock: Arc::clone(&fixture.clock) as _,
            summarizer: Some(Arc::clone(&fixture.summarizer) as _),
        };
        let memory = ConversationMemory::open(fixture.config.clone(), dependencies).unwrap();
        let me = id("s");
        add(&memory, &me, 0..6).await;
        until("degraded", async || {
            fixture.rows(&me).await.1.health == Health::Degraded
        })
        .await;
        faults.lose_answers(1);
        while fixture.rows(&me).await.1.health != Health::Recovering {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        faults.fail_reads(blind);
        fixture.until_settled(&memory, &me).await;
        // The chain is looked at there.
        let moves = fixture.moves("s").await;
        assert_eq!(moves.last().unwrap().0, "healthy", "{moves:?}");
        assert_eq!(shown(&memory, &me).await, names(0..6));
    }
}

//! The sweep: what has ended goes, what was left behind goes, and quiet conversations cost nothing.

use std::time::Duration;

use super::summarizer::Action;
use super::{Fixture, add, id, names, rolling, shown, truncating, until};
use crate::config::{Config, Strategy};
use crate::error::ConversationError;

const DAY: Duration = Duration::from_secs(86_400);

async fn rows_of(fixture: &Fixture, session: &str) -> usize {
    fixture.scan(&id(session), "").await.len()
}

#[tokio::test(start_paused = true)]
async fn expired_conversation_loses_all_rows() {
    for config in [rolling(), truncating()] {
        let fixture = Fixture::new(Config {
            ttl: 10 * DAY,
            ..config
        })
        .await;
        let memory = fixture.open();
        for session in ["old", "young"] {
            add(&memory, &id(session), 0..5).await;
        }
        fixture.clock.advance(6 * DAY);
        add(&memory, &id("young"), [5]).await;
        fixture.clock.advance(5 * DAY);
        until("gone", async || rows_of(&fixture, "old").await == 0).await;
        assert_eq!(fixture.scan(&id("young"), "turn/").await.len(), 6);
        assert!(shown(&memory, &id("old")).await.is_empty());
        add(&memory, &id("old"), [7]).await;
        assert_eq!(shown(&memory, &id("old")).await, names([7]));
    }
}

#[tokio::test(start_paused = true)]
async fn expired_unhealthy_conversation_reports_healthy() {
    let fixture = Fixture::new(Config {
        ttl: DAY,
        ..rolling()
    })
    .await;
    fixture
        .summarizer
        .always(Action::Fail(crate::summarizer::Failure::Credential));
    let memory = fixture.open();
    add(&memory, &id("s"), 0..5).await;
    until("degraded", async || {
        fixture.rows(&id("s")).await.1.failures > 3
    })
    .await;
    fixture.clock.advance(2 * DAY);
    until("gone", async || rows_of(&fixture, "s").await == 0).await;
    let last = fixture.moves("s").await.pop().unwrap();
    assert_eq!(last, ("healthy".to_owned(), "flushed".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn sweep_removes_orphans_only() {
    let fixture = Fixture::new(truncating()).await;
    let (memory, me) = (
        fixture.open_with(Config {
            sweep_interval: 9 * DAY,
            ..truncating()
        }),
        id("s"),
    );
    let namespace = me.namespace().unwrap();
    add(&memory, &me, 0..5).await;
    memory.flush(&me).await.unwrap();
    add(&memory, &me, 5..8).await;
    let far = 1_u64 << 33;
    // Of a flush that was cut off, and of a restore that was.
    for seq in [1, 3, far, far + 1] {
        fixture
            .put_row(&namespace, &format!("turn/{seq:020}"), b"remains")
            .await;
    }
    // Of a restore of a conversation that was not there.
    let fresh = id("fresh");
    fixture
        .put_row(
            &fresh.namespace().unwrap(),
            &format!("turn/{far:020}"),
            b"remains",
        )
        .await;
    let _sweeping = fixture.open();
    until("the dead are gone", async || {
        fixture.scan(&me, "turn/").await.len() == 5
    })
    .await;
    tokio::time::sleep(10 * truncating().sweep_interval).await;
    assert_eq!(
        fixture.scan(&me, "turn/").await.len(),
        5,
        "a restore may be under way"
    );
    assert_eq!(rows_of(&fixture, "fresh").await, 1);
    fixture.clock.advance(2 * DAY);
    until("all gone", async || {
        fixture.scan(&me, "turn/").await.len() == 3 && rows_of(&fixture, "fresh").await == 0
    })
    .await;
    assert_eq!(shown(&memory, &me).await, names(5..8));
}

#[tokio::test(start_paused = true)]
async fn quiet_conversations_are_not_read_again() {
    let fixture = Fixture::new(rolling()).await;
    let writer = fixture.open();
    for number in 0..300 {
        add(&writer, &id(&format!("s{number}")), 0..2).await;
    }
    writer.close(Duration::from_secs(1)).await;
    let asked = || fixture.store.scans();
    let before = asked();
    let _memory = fixture.open();
    until("swept", async || asked() - before >= 300).await;
    tokio::time::sleep(3 * rolling().sweep_interval).await;
    let swept = asked();
    tokio::time::sleep(10 * rolling().sweep_interval).await;
    assert_eq!(asked() - swept, 0);
    // But for one backlog an hour: the same number of rows and bytes may be other rows.
    fixture.clock.advance(Duration::from_secs(3601));
    until("looked at again", async || asked() - swept >= 300).await;
}

#[tokio::test(start_paused = true)]
async fn full_budget_with_few_turns_is_found() {
    let fixture = Fixture::new(Config {
        budget_tokens: 100,
        recent_turns: 50,
        ..rolling()
    })
    .await;
    let writer = fixture.open_with(truncating());
    for name in 0..6 {
        writer
            .add_turn(
                &id("s"),
                crate::turn::NewTurn::new(format!("u{name}"), "x".repeat(120)),
            )
            .await
            .unwrap();
    }
    writer.close(Duration::from_secs(1)).await;
    let _memory = fixture.open();
    until("folded", async || {
        fixture.rows(&id("s")).await.1.covers_through >= 3
    })
    .await;
    assert!(
        fixture.rows(&id("s")).await.1.covers_through < 6,
        "the newest turn is never folded"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_done_under_none() {
    let fixture = Fixture::new(Config {
        ttl: DAY,
        ..truncating()
    })
    .await;
    let writer = fixture.open();
    add(&writer, &id("s"), 0..5).await;
    writer.close(Duration::from_secs(1)).await;
    fixture.clock.advance(5 * DAY);
    let none = fixture.open_with(Config {
        strategy: Strategy::None,
        ..fixture.config.clone()
    });
    tokio::time::sleep(DAY).await;
    assert_eq!(rows_of(&fixture, "s").await, 7);
    none.close(Duration::from_secs(1)).await;
    assert!(matches!(
        none.summarise(&id("s"), DAY).await,
        Err(ConversationError::Closed)
    ));
}

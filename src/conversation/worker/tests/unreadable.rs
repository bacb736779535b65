//! Rows that do not open.

use helmdeck_memory::StoreError;

use super::{Fixture, add, id, names, rolling, shown, until};
use crate::error::ConversationError;

#[tokio::test(start_paused = true)]
async fn summarising_skips_unreadable_turns_once() {
    let fixture = Fixture::new(rolling()).await;
    let (memory, me) = (fixture.open_with(super::truncating()), id("s"));
    add(&memory, &me, 0..20).await;
    let namespace = me.namespace().unwrap();
    // One at the start, a whole batch in the middle, and the last one that is due.
    for seq in [1, 6, 7, 8, 9, 10, 18] {
        fixture
            .put_row(&namespace, &format!("turn/{seq:020}"), b"\xffgarbage")
            .await;
    }
    let memory = fixture.open();
    until("folded", async || {
        fixture.rows(&me).await.1.covers_through >= 18
    })
    .await;
    let good: Vec<_> = names(
        (1..=20)
            .filter(|seq| ![1, 6, 7, 8, 9, 10, 18].contains(seq))
            .map(|seq| seq - 1),
    );
    assert_eq!(shown(&memory, &me).await, good);
    assert_eq!(
        fixture.dropped().await.into_iter().collect::<Vec<_>>(),
        [("unreadable".to_owned(), 7)]
    );
    until("quiet", async || memory.metrics().backlog == 0).await;
    assert!(fixture.moves("s").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn fully_damaged_conversation_is_skipped() {
    let fixture = Fixture::new(rolling()).await;
    let (memory, me) = (fixture.open_with(super::truncating()), id("s"));
    add(&memory, &me, 0..10).await;
    let namespace = me.namespace().unwrap();
    for seq in 1..=10 {
        fixture
            .put_row(&namespace, &format!("turn/{seq:020}"), b"\xffgarbage")
            .await;
    }
    let memory = fixture.open();
    add(&memory, &me, 10..13).await;
    until("past them", async || {
        fixture.rows(&me).await.1.covers_through >= 10
    })
    .await;
    until("quiet", async || memory.metrics().backlog == 0).await;
    assert_eq!(shown(&memory, &me).await, names(10..13));
    assert_eq!(fixture.dropped().await["unreadable"], 10);
}

#[tokio::test(start_paused = true)]
async fn unreadable_checkpoint_stops_its_conversation_only() {
    let fixture = Fixture::new(rolling()).await;
    let (memory, me, other) = (fixture.open(), id("s"), id("other"));
    add(&memory, &me, 0..2).await;
    fixture
        .put_row(&me.namespace().unwrap(), "~checkpoint", b"\xffgarbage")
        .await;
    let memory = fixture.open();
    assert!(matches!(
        memory.summarise(&me, super::LONG).await,
        Err(ConversationError::Corrupt(_))
    ));
    add(&memory, &other, 0..6).await;
    fixture.until_settled(&memory, &other).await;
    let error = memory.context(&me).await.unwrap_err();
    assert!(
        !matches!(
            error,
            ConversationError::Store(StoreError::Unavailable { .. })
        ),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn lost_checkpoint_is_rebuilt_by_one_summary() {
    use helmdeck_memory::{Delete, Kind, Op, Store as _};
    let fixture = Fixture::new(rolling()).await;
    let (writer, me) = (fixture.open_with(super::truncating()), id("s"));
    add(&writer, &me, 0..6).await;
    let key = "~checkpoint".to_owned();
    let gone = Delete::Key {
        namespace: me.namespace().unwrap(),
        kind: Kind::Conversation,
        key,
    };
    fixture.store.write(vec![Op::Delete(gone)]).await.unwrap();
    let memory = fixture.open();
    until("folded", async || {
        fixture.scan(&me, "~checkpoint").await.len() == 1
            && fixture.rows(&me).await.1.covers_through == 4
    })
    .await;
    assert_eq!(
        fixture.summarizer.calls().len(),
        1,
        "each request costs money"
    );
    assert_eq!(memory.metrics().summaries_discarded, 0);
    assert_eq!(
        fixture.rows(&me).await.1.strategy,
        crate::config::Strategy::RollingSummary
    );
    assert_eq!(shown(&memory, &me).await, names(0..6));
}

#[tokio::test(start_paused = true)]
async fn discarded_summary_is_not_retried_at_once() {
    let config = crate::config::Config {
        hot_for: std::time::Duration::ZERO,
        ..rolling()
    };
    let fixture = Fixture::new(config).await;
    fixture.summarizer.next([super::summarizer::Action::Held]);
    let (memory, other, me) = (
        fixture.open(),
        fixture.open_with(super::truncating()),
        id("s"),
    );
    add(&memory, &me, 0..6).await;
    until("asked", async || fixture.summarizer.is_asked()).await;
    let first = other
        .list_turns(&me, &crate::views::TurnFilter::default())
        .await
        .unwrap()
        .items[0]
        .key;
    other.delete_turn(&me, &first.to_string()).await.unwrap();
    let before = tokio::time::Instant::now();
    fixture.summarizer.release(1);
    until("asked again", async || {
        fixture.summarizer.calls().len() == 2
    })
    .await;
    assert_eq!(memory.metrics().summaries_discarded, 1);
    let wait = fixture.summarizer.calls()[1].at - before;
    assert!(wait >= std::time::Duration::from_millis(500), "{wait:?}");
}

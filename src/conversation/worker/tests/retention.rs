//! What is too much goes, oldest first, and nothing goes unsummarised without a word.

use super::summarizer::Action;
use super::{Fixture, add, id, names, rolling, shown, truncating, until};
use crate::config::Config;

#[tokio::test(start_paused = true)]
async fn the_oldest_turns_over_the_number_go() {
    let fixture = Fixture::new(Config {
        max_turns: 50,
        ..truncating()
    })
    .await;
    let (memory, me) = (fixture.open(), id("s"));
    for name in 0..200 {
        add(&memory, &me, [name]).await;
        tokio::task::yield_now().await;
    }
    until("pruned", async || fixture.rows(&me).await.0.turns <= 53).await;
    let (head, _) = fixture.rows(&me).await;
    let rows = fixture.scan(&me, "turn/").await;
    assert_eq!(rows.len() as u64, head.turns);
    let bytes: usize = rows.iter().map(|(_, value)| value.len()).sum();
    assert_eq!(head.bytes, bytes as u64, "what is counted is what is there");
    assert_eq!((head.seq, head.first), (200, 201 - head.turns));
    let first = usize::try_from(head.first).unwrap() - 1;
    assert_eq!(shown(&memory, &me).await, names(first..200));
    assert!(
        fixture.dropped().await.is_empty(),
        "truncation promises no summary"
    );
}

#[tokio::test(start_paused = true)]
async fn oldest_turns_over_bytes_are_pruned() {
    let fixture = Fixture::new(Config {
        max_bytes: 4000,
        ..truncating()
    })
    .await;
    let (memory, me) = (fixture.open(), id("s"));
    for name in 0..40 {
        memory
            .add_turn(
                &me,
                crate::turn::NewTurn::new(format!("u{name}"), "x".repeat(500)),
            )
            .await
            .unwrap();
    }
    until("pruned", async || fixture.rows(&me).await.0.bytes <= 4250).await;
    let huge = crate::turn::NewTurn::new("huge", "x".repeat(50_000));
    memory.add_turn(&me, huge).await.unwrap();
    until("pruned", async || fixture.rows(&me).await.0.turns == 1).await;
    assert_eq!(shown(&memory, &me).await, ["huge"]);
}

#[tokio::test(start_paused = true)]
async fn unsummarised_turns_are_counted_when_pruned() {
    let fixture = Fixture::new(Config {
        max_turns: 30,
        ..rolling()
    })
    .await;
    fixture.summarizer.always(Action::Hang);
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..60).await;
    until("pruned", async || fixture.rows(&me).await.0.turns == 30).await;
    let (head, _) = fixture.rows(&me).await;
    assert_eq!(
        fixture.dropped().await.into_iter().collect::<Vec<_>>(),
        [("max_turns".to_owned(), head.first - 1)]
    );
    assert_eq!(memory.metrics().turns_dropped, head.first - 1);
    let first = usize::try_from(head.first).unwrap() - 1;
    assert_eq!(shown(&memory, &me).await, names(first..60));
}

#[tokio::test(start_paused = true)]
async fn summary_survives_pruned_turns() {
    let fixture = Fixture::new(Config {
        max_turns: 30,
        ..rolling()
    })
    .await;
    let (memory, me) = (fixture.open(), id("s"));
    for name in 0..100 {
        add(&memory, &me, [name]).await;
        fixture.until_settled(&memory, &me).await;
    }
    until("pruned", async || fixture.rows(&me).await.0.turns <= 31).await;
    let (head, checkpoint) = fixture.rows(&me).await;
    assert!(head.first > 60);
    assert!(
        fixture.dropped().await.is_empty(),
        "nothing went that no summary holds"
    );
    assert_eq!(shown(&memory, &me).await, names(0..100));
    let base = checkpoint.base.unwrap();
    assert!(
        base.through >= head.first - 1,
        "the summary of what went cannot be made anew"
    );
    let held = usize::try_from(base.through).unwrap();
    assert_eq!(
        base.summary.split_whitespace().collect::<Vec<_>>(),
        names(0..held)
    );
}

#[tokio::test(start_paused = true)]
async fn unreadable_turn_is_pruned_too() {
    let fixture = Fixture::new(Config {
        max_turns: 10,
        ..truncating()
    })
    .await;
    let (memory, me) = (fixture.open_with(truncating()), id("s"));
    add(&memory, &me, 0..40).await;
    let namespace = me.namespace().unwrap();
    for seq in [1, 5, 6, 33] {
        fixture
            .put_row(&namespace, &format!("turn/{seq:020}"), b"\xffgarbage")
            .await;
    }
    let _memory = fixture.open();
    until("pruned", async || fixture.rows(&me).await.0.turns == 10).await;
    let (head, _) = fixture.rows(&me).await;
    assert_eq!(
        (head.first, fixture.scan(&me, "turn/").await.len()),
        (31, 10)
    );
}

#[tokio::test(start_paused = true)]
async fn turns_pruned_while_summarised_stay_in_base() {
    let fixture = Fixture::new(Config {
        max_turns: 8,
        ..rolling()
    })
    .await;
    fixture.summarizer.next([Action::Held]);
    fixture.summarizer.always(Action::Hang);
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..3).await;
    until("asked", async || fixture.summarizer.is_asked()).await;
    add(&memory, &me, 3..12).await;
    until("pruned", async || fixture.rows(&me).await.0.first > 1).await;
    fixture.summarizer.release(1);
    until("folded", async || {
        fixture.rows(&me).await.1.covers_through == 1
    })
    .await;
    let base = fixture.rows(&me).await.1.base.unwrap();
    assert_eq!((base.summary.trim(), base.through, base.gone), ("u0", 1, 1));
}

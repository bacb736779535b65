use super::*;

#[tokio::test]
async fn expired_cached_copy_shows_other_writes() {
    let place = Fixture::new().await;
    for strategy in [Strategy::Truncation, Strategy::RollingSummary] {
        let (one, two) = (place.open(config(strategy)), place.open(config(strategy)));
        one.forget(&alice()).await.unwrap();
        let later = async || {
            place.clock.advance(Duration::from_millis(250));
            seen(&one).await
        };
        add(&one, 0..2).await;
        for number in 2..40 {
            add(&two, number..number + 1).await;
        }
        assert_eq!(seen(&one).await, [0, 1], "it is taken for true for a while");
        assert_eq!(later().await, (0..40).collect::<Vec<_>>());
        add(&two, 40..42).await;
        assert_eq!(later().await, (0..42).collect::<Vec<_>>());
        if strategy == Strategy::RollingSummary {
            fold(&two, 30, |_| {}).await;
            assert_eq!(later().await, (30..42).collect::<Vec<_>>());
            assert_eq!(
                one.context(&alice()).await.unwrap().summary,
                "summary of all through 30"
            );
        }
        two.flush(&alice()).await.unwrap();
        assert_eq!(later().await, [0_usize; 0]);
        add(&two, 50..51).await;
        two.forget(&alice()).await.unwrap();
        assert_eq!(later().await, [0_usize; 0]);
        add(&two, 60..62).await;
        assert_eq!(later().await, [60, 61]);
        // Begun anew with as many turns as before.
        two.forget(&alice()).await.unwrap();
        add(&two, 70..72).await;
        assert_eq!(later().await, [70, 71]);
    }
}

/// Whatever is done, what is held shows the same as what is stored.
#[tokio::test]
async fn what_is_held_is_what_is_stored() {
    for seed in 1..=6_u64 {
        let strategy = if seed % 2 == 0 {
            Strategy::Truncation
        } else {
            Strategy::RollingSummary
        };
        let budget_tokens = [0, 60, 400][(seed % 3) as usize];
        let settings = Config {
            budget_tokens,
            ..config(strategy)
        };
        let place = Fixture::new().await;
        let memory = place.open(settings.clone());
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut chance = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        for step in 0..250 {
            match chance(20) {
                0 if chance(3) == 0 => memory.flush(&alice()).await.unwrap(),
                0 => drop(memory.forget(&alice()).await.unwrap()),
                1 | 2 => {
                    let items = memory
                        .list_turns(&alice(), &Default::default())
                        .await
                        .unwrap()
                        .items;
                    if let Some(item) = items.get(chance(1 + items.len() as u64) as usize) {
                        memory
                            .delete_turn(&alice(), &item.key.to_string())
                            .await
                            .unwrap();
                    }
                }
                3 | 4 if strategy == Strategy::RollingSummary => {
                    let state = state(&memory).await;
                    let from = state.checkpoint.covers_through;
                    if state.head.turns > 0 && from < state.head.seq {
                        fold(&memory, from + 1 + chance(state.head.seq - from), |_| {}).await;
                    }
                }
                5 => {
                    let snapshot = memory.snapshot(&alice()).await.unwrap();
                    memory.restore(&alice(), &snapshot).await.unwrap();
                }
                _ => {
                    let text = "x".repeat(chance(60) as usize);
                    memory
                        .add_turn(&alice(), NewTurn::new("q", text))
                        .await
                        .unwrap();
                }
            }
            let patch = memory.context(&alice()).await.unwrap();
            let fresh = place.open(settings.clone());
            assert_eq!(
                patch,
                fresh.context(&alice()).await.unwrap(),
                "seed {seed}, step {step}"
            );
            let (held, stored) = (
                memory.trace(&alice()).await.unwrap(),
                fresh.trace(&alice()).await.unwrap(),
            );
            assert_eq!(held, stored, "seed {seed}, step {step}");
            let filter = crate::TurnFilter {
                limit: Some(200),
                ..Default::default()
            };
            let kept = memory.list_turns(&alice(), &filter).await.unwrap();
            let unsummarised = kept.items.iter().filter(|item| !item.folded).count() as u64;
            assert!(kept.items.len() as u64 == kept.total && kept.total == held.kept_turns);
            assert_eq!(
                unsummarised,
                patch.recent_turns.len() as u64 + patch.omitted_turns,
                "seed {seed}, step {step}"
            );
        }
    }
}

#[tokio::test]
async fn conversations_in_use_stay_within_their_bytes() {
    let place = Fixture::new().await;
    let memory = place.open(Config {
        hot_bytes: 100_000,
        ..config(Strategy::Truncation)
    });
    for number in 0..500 {
        let identity = Identity::new("t", "alice", &format!("s{number}"));
        memory
            .add_turn(&identity, NewTurn::new("q", "x".repeat(1000)))
            .await
            .unwrap();
        memory.context(&identity).await.unwrap();
    }
    let bytes = memory.metrics().hot_bytes;
    assert!(bytes > 10_000 && bytes <= 100_000, "{bytes}");
    for number in 0..500 {
        let identity = Identity::new("t", "alice", &format!("s{number}"));
        assert_eq!(
            memory.context(&identity).await.unwrap().recent_turns.len(),
            1
        );
    }
}

use super::*;
use crate::rows::Head;

fn config(recent_turns: usize, budget_tokens: u64) -> Config {
    Config {
        strategy: Strategy::RollingSummary,
        recent_turns,
        budget_tokens,
        ..Config::default()
    }
}

#[test]
fn turns_over_limits_are_due() {
    let due = |recent, budget, fixed, turns: &[u64]| {
        backlog(
            &config(recent, budget),
            fixed,
            turns.len() as u64,
            turns.iter().rev().copied(),
        )
    };
    assert_eq!(due(4, 0, 0, &[]), 0);
    assert_eq!(due(4, 0, 9999, &[10; 4]), 0);
    assert_eq!(due(4, 0, 0, &[10; 7]), 3);
    assert_eq!(due(4, 40, 0, &[10; 4]), 0);
    assert_eq!(due(4, 39, 0, &[10; 4]), 1);
    assert_eq!(due(4, 40, 15, &[10; 4]), 2);
    assert_eq!(due(4, 40, 500, &[10; 4]), 3, "never the newest");
    assert_eq!(due(1, 40, 0, &[10, 500]), 1);
    assert_eq!(due(4, 40, 0, &[500]), 0);
}

#[test]
fn pruning_waits_until_worth_a_write() {
    let config = Config {
        max_turns: 100,
        max_bytes: 1600,
        ..Config::default()
    };
    let head = |turns, bytes| Head {
        turns,
        bytes,
        ..Head::default()
    };
    assert!(!prune_due(&config, &head(106, 1700)));
    assert!(prune_due(&config, &head(107, 0)));
    assert!(prune_due(&config, &head(1, 1701)));
    let small = Config {
        max_turns: 3,
        ..config
    };
    assert!(prune_due(&small, &head(4, 0)) && !prune_due(&small, &head(3, 0)));
}

//! Health transitions of an attempt.

use crate::health::{Health, Reason};

/// A transition: from, to, reason.
pub(super) type Move = (Health, Health, Reason);

/// Returns the transition when an attempt starts.
pub(super) fn started(health: Health) -> Option<Move> {
    match health {
        Health::Degraded => Some((health, Health::Recovering, Reason::RecoveryLoopAttempt)),
        // An earlier attempt died: this one holds the lock.
        Health::Recovering => Some((health, health, Reason::RecoveryLoopAttempt)),
        Health::Healthy | Health::Retry => None,
    }
}

/// Returns the transitions after a summary; `more` means that more turns wait.
pub(super) fn succeeded(health: Health, more: bool) -> Vec<Move> {
    let (new, reason) = match health {
        Health::Healthy => return Vec::new(),
        Health::Retry => (Health::Healthy, Reason::SummarizerSucceeded),
        // Only if another process wrote meanwhile; the summary is valid anyway.
        Health::Degraded => {
            let mut moves = vec![(health, Health::Recovering, Reason::RecoveryLoopAttempt)];
            moves.extend(succeeded(Health::Recovering, more));
            return moves;
        }
        Health::Recovering if more => (Health::Degraded, Reason::RecoveryBatchDrained),
        Health::Recovering => (Health::Healthy, Reason::RecoveryLoopDrained),
    };
    vec![(health, new, reason)]
}

/// Returns the transitions after a failure, the `failures`th in a row.
pub(super) fn failed(health: Health, failures: u32, max_attempts: u32) -> Vec<Move> {
    let exhausted = (Health::Retry, Health::Degraded, Reason::RetriesExhausted);
    match health {
        Health::Healthy => {
            let first = (health, Health::Retry, Reason::SummarizerFailed);
            if failures >= max_attempts {
                vec![first, exhausted]
            } else {
                vec![first]
            }
        }
        Health::Retry if failures >= max_attempts => vec![exhausted],
        Health::Retry => vec![(health, health, Reason::SummarizerFailed)],
        Health::Recovering => vec![(health, Health::Degraded, Reason::RecoveryBatchFailed)],
        Health::Degraded => vec![(health, health, Reason::RetriesExhausted)],
    }
}

/// Returns the transitions after a summary that stayed over its limit and was cut.
pub(super) fn exhausted(health: Health) -> Vec<Move> {
    failed(health, 1, 1)
}

/// Returns the transition when a recovery ends because its process does.
pub(super) fn gave_up(health: Health) -> Option<Move> {
    (health == Health::Recovering).then_some((
        health,
        Health::Degraded,
        Reason::RecoveryBatchFailed,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_move_follows_the_one_before() {
        for health in Health::ALL {
            for failures in 1..5 {
                for more in [false, true] {
                    let all = [
                        started(health).into_iter().collect::<Vec<_>>(),
                        succeeded(health, more),
                        failed(health, failures, 3),
                        exhausted(health),
                        gave_up(health).into_iter().collect(),
                    ];
                    for moves in all {
                        let mut at = health;
                        for (prior, new, reason) in moves {
                            assert_eq!(prior, at, "the chain is broken");
                            assert!(prior.allows(new, reason), "{prior} to {new}");
                            at = new;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn one_attempt_may_be_all_there_is() {
        let moves = failed(Health::Healthy, 1, 1);
        assert_eq!(moves.last().unwrap().1, Health::Degraded);
        assert_eq!(
            failed(Health::Healthy, 1, 2).last().unwrap().1,
            Health::Retry
        );
    }

    #[test]
    fn conversation_recovers_only_without_backlog() {
        assert_eq!(
            succeeded(Health::Recovering, true),
            [(
                Health::Recovering,
                Health::Degraded,
                Reason::RecoveryBatchDrained
            )]
        );
        assert_eq!(succeeded(Health::Recovering, false)[0].1, Health::Healthy);
        assert!(
            succeeded(Health::Healthy, true).is_empty(),
            "all is well: nothing to tell"
        );
    }
}

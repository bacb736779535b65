//! Runs of schedules: one job for each due time, however many processes try.

use std::time::Duration;

use helmdeck_core::Timestamp;

use super::jobs::{ended, find, row, save};
use super::{DAY, Fixture, NOW};
use crate::queue::{JobLimits, QueuedCall};
use crate::replica::Replica;
use crate::schedules::{DueRun, RUNS_KEPT, Scheduled};

const LIMITS: JobLimits = JobLimits {
    of_caller: 9,
    waiting: 9,
};

/// The n-th due time of a pack, with a job of that number.
fn due(replica: &Replica, pack: &str, n: u32) -> DueRun {
    let due_at = at(n);
    let row = crate::jobs::JobRow {
        due_at: Some(due_at),
        ..row(replica, "a", n)
    };
    DueRun {
        pack: pack.to_owned(),
        due_at,
        row,
        call: None,
        limits: LIMITS,
        unclaimed: "{}".to_owned(),
    }
}

fn at(n: u32) -> Timestamp {
    NOW.saturating_add(Duration::from_secs(60) * n)
}

pub(super) async fn each_due_time_is_taken_once(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    let (here, there) = (one.replica().await.unwrap(), two.replica().await.unwrap());
    let run = async |run| one.run_schedule(run).await.unwrap();
    assert_eq!(run(due(&here, "a.b", 1)).await, Scheduled::First);
    assert_eq!(run(due(&here, "a.b", 1)).await, Scheduled::Taken);
    let trying: Vec<_> = (0..12)
        .map(|n| {
            let (system, replica) = if n % 2 == 0 {
                (one.clone(), &here)
            } else {
                (two.clone(), &there)
            };
            // Each brings a job of its own.
            let job = row(replica, "a", 100 + n);
            let run = DueRun {
                row: job,
                ..due(replica, "a.b", 3)
            };
            tokio::spawn(async move { system.run_schedule(run).await.unwrap() })
        })
        .collect();
    let mut became = Vec::new();
    for one in trying {
        became.push(one.await.unwrap());
    }
    assert_eq!(
        became
            .iter()
            .filter(|became| **became == Scheduled::Added)
            .count(),
        1,
        "{became:?}"
    );
    assert_eq!(
        became
            .iter()
            .filter(|became| **became == Scheduled::Taken)
            .count(),
        11,
        "{became:?}"
    );
    let jobs = two
        .jobs(crate::jobs::JobFilter::default(), 99, NOW)
        .await
        .unwrap();
    assert_eq!(jobs.len(), 1);
    assert_eq!(
        run(due(&here, "a.b", 2)).await,
        Scheduled::Taken,
        "a later one was taken"
    );
    assert_eq!(
        run(due(&here, "a.c", 2)).await,
        Scheduled::First,
        "of another pack"
    );
    if one.has_queue() {
        let call = QueuedCall {
            label: "label".to_owned(),
            sealed: b"sealed".to_vec(),
        };
        let old = DueRun {
            call: Some(QueuedCall {
                label: "old".to_owned(),
                ..call.clone()
            }),
            ..due(&here, "a.c", 4)
        };
        assert_eq!(run(old.clone()).await, Scheduled::Added);
        assert_eq!(
            run(old.clone()).await,
            Scheduled::Added,
            "a try whose answer was lost"
        );
        let first = old.row;
        let same = DueRun {
            call: Some(QueuedCall {
                label: "old".to_owned(),
                ..call.clone()
            }),
            row: row(&here, "a", 90),
            ..due(&here, "a.c", 4)
        };
        assert_eq!(run(same).await, Scheduled::Taken, "with another job");
        let waits = DueRun {
            call: Some(call),
            ..due(&here, "a.c", 5)
        };
        let job = waits.row.clone();
        assert_eq!(
            run(waits).await,
            Scheduled::Added,
            "nobody may be left who can run the one that waits"
        );
        let replaced = find(&one, &first).await.unwrap();
        assert_eq!(
            (replaced.state.as_str(), replaced.error.as_deref()),
            ("failed", Some("{}"))
        );
        let claimed = super::queue::claim(&two, &there, 9, 9).await;
        assert_eq!(
            (claimed[0].row.id.clone(), claimed[0].row.due_at),
            (job.id, Some(at(5)))
        );
    }
}

pub(super) async fn a_run_that_goes_on_skips_the_next(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    let here = one.replica().await.unwrap();
    let run = async |run| two.run_schedule(run).await.unwrap();
    run(due(&here, "a.b", 1)).await;
    let first = due(&here, "a.b", 2);
    let job = first.row.clone();
    assert_eq!(run(first).await, Scheduled::Added);
    assert_eq!(
        (
            run(due(&here, "a.b", 3)).await,
            run(due(&here, "a.b", 4)).await
        ),
        (Scheduled::StillRunning, Scheduled::StillRunning)
    );
    assert_eq!(
        run(due(&here, "a.b", 3)).await,
        Scheduled::Taken,
        "it is skipped for good"
    );
    save(&one, &[ended(&job)]).await;
    let full = DueRun {
        limits: JobLimits {
            of_caller: 0,
            ..LIMITS
        },
        ..due(&here, "a.b", 5)
    };
    assert_eq!(run(full).await, Scheduled::Refused);
    let next = due(&here, "a.b", 6);
    let job = next.row.clone();
    assert_eq!(run(next).await, Scheduled::Added);
    assert_eq!(find(&one, &job).await.unwrap().due_at, Some(at(6)));
}

pub(super) async fn old_runs_are_swept_but_the_last(fixture: Fixture) {
    let system = fixture.one;
    let here = system.replica().await.unwrap();
    for n in 1..=3 {
        let limits = JobLimits {
            of_caller: 0,
            ..LIMITS
        };
        system
            .run_schedule(DueRun {
                limits,
                ..due(&here, "a.b", n)
            })
            .await
            .unwrap();
    }
    let later = at(3).saturating_add(RUNS_KEPT).saturating_add(DAY);
    assert_eq!(
        (
            system.sweep(NOW).await.unwrap(),
            system.sweep(later).await.unwrap()
        ),
        (0, 2)
    );
    assert_eq!(
        system.run_schedule(due(&here, "a.b", 3)).await.unwrap(),
        Scheduled::Taken
    );
}

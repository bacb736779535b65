//! The queue that replicas share: who gets a job, in which order, and what becomes of it when its
//! replica is lost.
//!
//! A driver without a queue refuses, and is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use helmdeck_core::Timestamp;

use super::jobs::{cancel, ended, find, look_for_lost, row, save, until_gone};
use super::{DAY, Fixture, NOW};
use crate::jobs::{JobRow, LostJobs};
use crate::queue::{Accepted, Claim, ClaimId, ClaimedJob, JobLimits, QueuedCall};
use crate::replica::Replica;
use crate::system::System;

/// When released jobs end that no replica takes.
const LATER: Timestamp = Timestamp(NOW.micros() + 9 * 86_400_000_000);

const LIMITS: JobLimits = JobLimits {
    of_caller: 5000,
    waiting: 5000,
};

fn call(label: &str) -> QueuedCall {
    QueuedCall {
        label: label.to_owned(),
        sealed: b"sealed".to_vec(),
    }
}

/// Queues a job with a label and a number of retries.
async fn queue_with(
    system: &System,
    replica: &Replica,
    subject: &str,
    number: u32,
    label: &str,
    retries: u32,
) -> JobRow {
    let row = JobRow {
        retries,
        ..row(replica, subject, number)
    };
    assert_eq!(
        system
            .queue_job(row.clone(), call(label), LIMITS)
            .await
            .unwrap(),
        Accepted::Added
    );
    JobRow {
        owner: "queue".to_owned(),
        ..row
    }
}

pub(crate) async fn queue(
    system: &System,
    replica: &Replica,
    subject: &str,
    number: u32,
) -> JobRow {
    queue_with(system, replica, subject, number, "label", 0).await
}

/// A claim with a number of its own.
pub(crate) fn wish(owner: Arc<str>, labels: &[&str], places: u64, per_caller: u64) -> Claim {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let labels = labels
        .iter()
        .map(|label| (*label).to_owned())
        .collect::<Vec<_>>();
    let id = ClaimId {
        owner,
        number: LAST.fetch_add(1, Ordering::Relaxed),
    };
    Claim {
        id,
        labels: labels.into(),
        places,
        per_caller,
        now: NOW,
    }
}

async fn claim_of(
    system: &System,
    owner: Arc<str>,
    places: u64,
    per_caller: u64,
) -> Vec<ClaimedJob> {
    system
        .claim_jobs(wish(owner, &["label"], places, per_caller))
        .await
        .unwrap()
}

pub(crate) async fn claim(
    system: &System,
    replica: &Replica,
    places: u64,
    per_caller: u64,
) -> Vec<ClaimedJob> {
    claim_of(system, replica.id(), places, per_caller).await
}

fn numbers(claimed: &[ClaimedJob]) -> Vec<u32> {
    let mut numbers: Vec<_> = claimed
        .iter()
        .map(|job| u32::from_str_radix(&job.row.id, 16).unwrap())
        .collect();
    numbers.sort_unstable();
    numbers
}

pub(super) async fn only_a_driver_with_a_queue_takes_jobs(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    assert!(
        claim_of(&one, "nobody".into(), 9, 9).await.is_empty(),
        "there is no database"
    );
    let (here, there) = (one.replica().await.unwrap(), two.replica().await.unwrap());
    if !one.has_queue() {
        one.queue_job(row(&here, "a", 1), call("label"), LIMITS)
            .await
            .unwrap_err();
        assert!(claim(&one, &here, 9, 9).await.is_empty());
        return;
    }
    let waits = queue(&one, &here, "a", 1).await;
    assert_eq!(find(&two, &waits).await, Some(waits.clone()));
    let got = claim(&two, &there, 9, 9).await;
    let running = JobRow {
        owner: there.id().to_string(),
        state: "running".into(),
        started_at: Some(NOW),
        revision: 2,
        ..waits.clone()
    };
    assert_eq!(
        got,
        [ClaimedJob {
            row: running.clone(),
            sealed: b"sealed".to_vec(),
            cancelled: false
        }]
    );
    assert_eq!(find(&one, &waits).await, Some(running.clone()));
    assert!(
        save(
            &one,
            &[JobRow {
                owner: here.id().to_string(),
                ..ended(&running)
            }]
        )
        .await
    );
    assert_eq!(
        find(&one, &waits).await,
        Some(running.clone()),
        "it is not the job of the replica that took it in"
    );
    assert!(save(&two, &[ended(&running)]).await);
    assert_eq!(find(&one, &waits).await, Some(ended(&running)));
    assert!(claim(&one, &here, 9, 9).await.is_empty());
}

pub(super) async fn claims_are_fair_and_limited_over_replicas(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    if !one.has_queue() {
        return;
    }
    let (here, there) = (one.replica().await.unwrap(), two.replica().await.unwrap());
    for number in 1..=1000 {
        queue(&one, &here, "many", number).await;
    }
    queue(&one, &here, "few", 2000).await;
    assert_eq!(
        numbers(&claim(&one, &here, 2, 3).await),
        [1, 2000],
        "everybody gets one first"
    );
    let rest = claim(&two, &there, 9, 3).await;
    assert_eq!(numbers(&rest), [2, 3], "three of a caller run, wherever");
    assert!(claim(&one, &here, 9, 3).await.is_empty());
    save(&two, &[ended(&rest[0].row)]).await;
    queue(&one, &here, "few", 2001).await;
    queue(&one, &here, "new", 3000).await;
    assert_eq!(
        numbers(&claim(&one, &here, 1, 3).await),
        [3000],
        "who has none running comes first"
    );
    assert_eq!(numbers(&claim(&one, &here, 1, 3).await), [2001]);
    assert_eq!(numbers(&claim(&one, &here, 9, 3).await), [4]);
}

pub(super) async fn concurrent_claims_give_each_job_once(fixture: Fixture) {
    if !fixture.one.has_queue() {
        return;
    }
    let replicas = [
        fixture.one.replica().await.unwrap(),
        fixture.two.replica().await.unwrap(),
    ];
    for number in 0..40 {
        queue(
            &fixture.one,
            &replicas[0],
            ["a", "b"][number as usize % 2],
            number,
        )
        .await;
    }
    let claiming: Vec<_> = (0..16)
        .map(|n| {
            let system = if n % 2 == 0 {
                fixture.one.clone()
            } else {
                fixture.two.clone()
            };
            let owner = replicas[n % 2].id();
            tokio::spawn(async move { claim_of(&system, owner, 3, 7).await })
        })
        .collect();
    let mut got = Vec::new();
    for one in claiming {
        got.extend(one.await.unwrap());
    }
    let mut all = numbers(&got);
    all.dedup();
    assert_eq!(
        (got.len(), all.len()),
        (14, 14),
        "seven of each caller, none twice: {all:?}"
    );
}

pub(super) async fn only_able_live_replicas_get_jobs(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    if !one.has_queue() {
        return;
    }
    let (here, there) = (one.replica().await.unwrap(), two.replica().await.unwrap());
    queue_with(&one, &here, "a", 1, "other", 0).await;
    queue(&one, &here, "a", 2).await;
    assert!(
        one.claim_jobs(wish("nobody".into(), &["label", "other"], 9, 9))
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        numbers(&claim(&one, &here, 9, 9).await),
        [2],
        "what it cannot run stays"
    );
    let able = two
        .claim_jobs(wish(there.id(), &["label", "other"], 9, 9))
        .await
        .unwrap();
    assert_eq!(numbers(&able), [1]);
}

pub(super) async fn waiting_jobs_outlive_every_replica(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    if !one.has_queue() {
        return;
    }
    let here = one.replica().await.unwrap();
    let bound = super::jobs::add(&one, &here, "a", 1).await;
    let waits = queue(&one, &here, "a", 2).await;
    assert_eq!(
        one.live_replicas().await.unwrap(),
        1,
        "the queue is no server"
    );
    drop(here);
    until_gone(async || {
        look_for_lost(&two).await
            == LostJobs {
                failed: 1,
                queued: 0,
            }
    })
    .await;
    assert_eq!(find(&two, &bound).await.unwrap().state, "failed");
    assert_eq!(find(&two, &waits).await, Some(waits.clone()));
    let there = two.replica().await.unwrap();
    assert_eq!(numbers(&claim(&two, &there, 9, 9).await), [2]);
}

pub(super) async fn lost_runs_are_queued_again_while_they_may(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    if !one.has_queue() {
        return;
    }
    let here = one.replica().await.unwrap();
    let soon = Timestamp(NOW.micros() + 1);
    let again = JobRow {
        retries: 1,
        expires_at: soon,
        ..row(&here, "a", 1)
    };
    assert_eq!(
        one.queue_job(again.clone(), call("label"), LIMITS)
            .await
            .unwrap(),
        Accepted::Added
    );
    let once = queue_with(&one, &here, "a", 2, "label", 0).await;
    let wanted = queue_with(&one, &here, "a", 3, "label", 1).await;
    let mut got = claim(&one, &here, 9, 9).await;
    assert_eq!(numbers(&got), [1, 2, 3]);
    got.sort_by(|one, other| one.row.id.cmp(&other.row.id));
    assert!(
        cancel(&two, &wanted.id).await,
        "its owner lives, and would see it"
    );
    let former = here.id();
    drop(here);
    until_gone(async || {
        look_for_lost(&two).await
            == LostJobs {
                failed: 2,
                queued: 1,
            }
    })
    .await;
    assert_eq!(find(&two, &once).await.unwrap().state, "failed");
    assert_eq!(
        find(&two, &wanted).await.unwrap().state,
        "failed",
        "nobody wants it any more"
    );
    let queued = find(&two, &again).await.unwrap();
    assert_eq!(
        (queued.state.as_str(), queued.attempt, queued.started_at),
        ("queued", 2, None)
    );
    assert!(queued.revision > got[0].row.revision);
    assert_eq!(
        queued.expires_at,
        NOW.saturating_add(DAY),
        "it waits as long as a new one"
    );

    let there = two.replica().await.unwrap();
    let second = claim(&two, &there, 9, 9).await;
    assert_eq!((numbers(&second), second[0].row.attempt), (vec![1], 2));
    // What the former owner still writes is refused, by its id and by its lease.
    assert!(
        !save(
            &one,
            &[JobRow {
                owner: former.to_string(),
                revision: 99_999,
                ..ended(&got[0].row)
            }]
        )
        .await
    );
    assert_eq!(find(&one, &again).await, Some(second[0].row.clone()));
    drop(there);
    until_gone(async || {
        look_for_lost(&one).await
            == LostJobs {
                failed: 1,
                queued: 0,
            }
    })
    .await;
    assert_eq!(
        find(&one, &again).await.unwrap().state,
        "failed",
        "it had one more try"
    );
}

pub(super) async fn released_jobs_are_fenced(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    if !one.has_queue() {
        return;
    }
    let (here, there) = (one.replica().await.unwrap(), two.replica().await.unwrap());
    let again = queue_with(&one, &here, "a", 1, "label", 1).await;
    let once = queue_with(&one, &here, "a", 2, "label", 0).await;
    let got = claim(&one, &here, 9, 9).await;
    let named = vec![(again.id.clone(), 7), (once.id.clone(), 7)];
    assert!(
        two.release_jobs(there.id(), named.clone(), LATER)
            .await
            .unwrap()
            .is_empty(),
        "they are of another replica"
    );
    assert_eq!(
        one.release_jobs(here.id(), named.clone(), LATER)
            .await
            .unwrap(),
        std::slice::from_ref(&again.id)
    );
    assert!(
        one.release_jobs(here.id(), named, LATER)
            .await
            .unwrap()
            .is_empty()
    );
    let queued = find(&two, &again).await.unwrap();
    assert_eq!(
        (queued.state.as_str(), queued.attempt, queued.revision),
        ("queued", 2, 8)
    );
    assert_eq!(
        queued.expires_at, LATER,
        "it may have run for longer than it would have waited"
    );
    save(
        &one,
        &[JobRow {
            revision: 99,
            ..ended(&got[0].row)
        }],
    )
    .await;
    assert_eq!(find(&two, &again).await, Some(queued));
    assert_eq!(numbers(&claim(&two, &there, 9, 9).await), [1]);
    assert!(
        two.release_jobs(there.id(), vec![(again.id, 9)], LATER)
            .await
            .unwrap()
            .is_empty(),
        "it had its retry"
    );
}

pub(super) async fn waiting_jobs_end_when_cancelled_or_expired(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    if !one.has_queue() {
        return;
    }
    let here = one.replica().await.unwrap();
    let wanted = queue(&one, &here, "a", 1).await;
    let late = JobRow {
        expires_at: NOW,
        ..row(&here, "a", 2)
    };
    assert_eq!(
        one.queue_job(late.clone(), call("unknown"), LIMITS)
            .await
            .unwrap(),
        Accepted::Added
    );
    assert!(cancel(&two, &wanted.id).await && !cancel(&two, &wanted.id).await);
    let row = find(&one, &wanted).await.unwrap();
    assert_eq!(
        (row.state.as_str(), row.ended_at, row.revision),
        ("cancelled", Some(NOW), 2)
    );
    assert_eq!(
        look_for_lost(&two).await,
        LostJobs {
            failed: 1,
            queued: 0
        }
    );
    let row = find(&one, &late).await.unwrap();
    assert_eq!(
        (row.state.as_str(), row.error.as_deref()),
        ("failed", Some("{\"unclaimed\":1}"))
    );
    assert!(claim(&one, &here, 9, 9).await.is_empty());
    assert_eq!(one.sweep(NOW.saturating_add(DAY)).await.unwrap(), 2);
}

pub(super) async fn claims_whose_answer_was_lost_return(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    if !one.has_queue() {
        return;
    }
    let (here, there) = (one.replica().await.unwrap(), two.replica().await.unwrap());
    let (known, unknown) = (
        queue(&one, &here, "a", 1).await,
        queue(&one, &here, "a", 2).await,
    );
    let bound = super::jobs::add(&one, &here, "a", 3).await;
    assert_eq!(numbers(&claim(&one, &here, 1, 9).await), [1]);
    let lost = wish(here.id(), &["label"], 9, 9);
    let id = lost.id.clone();
    let early = ClaimId {
        number: id.number + 1_000_000,
        ..id.clone()
    };
    assert_eq!(one.return_claims(vec![early]).await.unwrap(), 0);
    one.claim_jobs(lost).await.unwrap();
    assert_eq!(
        one.return_claims(vec![ClaimId {
            owner: there.id(),
            ..id.clone()
        }])
        .await
        .unwrap(),
        0
    );
    assert_eq!(one.return_claims(vec![id.clone()]).await.unwrap(), 1);
    assert_eq!(one.return_claims(vec![id.clone()]).await.unwrap(), 0);
    assert_eq!(find(&one, &bound).await, Some(bound));
    assert_eq!(find(&one, &known).await.unwrap().state, "running");
    let row = find(&one, &unknown).await.unwrap();
    assert_eq!(
        (row.state.as_str(), row.attempt),
        ("queued", 1),
        "it never began"
    );
    assert_eq!(numbers(&claim(&two, &there, 9, 9).await), [2]);
    assert_eq!(
        one.return_claims(vec![id]).await.unwrap(),
        0,
        "it is of another claim by now"
    );
}

pub(super) async fn limits_of_the_queue_hold(fixture: Fixture) {
    let system = fixture.one;
    if !system.has_queue() {
        return;
    }
    let here = system.replica().await.unwrap();
    let limits = JobLimits {
        of_caller: 2,
        waiting: 3,
    };
    let add = async |subject, number| {
        system
            .queue_job(row(&here, subject, number), call("label"), limits)
            .await
            .unwrap()
    };
    assert_eq!(
        (add("a", 1).await, add("a", 2).await, add("a", 3).await),
        (Accepted::Added, Accepted::Added, Accepted::CallerFull)
    );
    assert_eq!(
        (add("b", 4).await, add("b", 5).await),
        (Accepted::Added, Accepted::QueueFull)
    );
    // A try whose answer was lost.
    assert_eq!(
        (add("a", 1).await, add("b", 4).await),
        (Accepted::Added, Accepted::Added)
    );
    claim(&system, &here, 1, 9).await;
    assert_eq!(add("b", 5).await, Accepted::Added);
}

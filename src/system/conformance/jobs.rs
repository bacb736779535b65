//! Jobs: which owner may change them, what makes room, and the end of jobs without an owner.

use super::{DAY, Fixture, NOW};
use crate::ends::CallEnd;
use crate::jobs::{EndedJob, JobFilter, JobRow, LostErrors, LostJobs};
use crate::replica::Replica;
use crate::system::System;

pub(crate) fn row(replica: &Replica, subject: &str, number: u32) -> JobRow {
    JobRow {
        id: format!("{number:032x}"),
        tenant: "t".into(),
        subject: subject.into(),
        pack: "a.b".into(),
        version: 2,
        state: "queued".into(),
        owner: replica.id().to_string(),
        revision: 1,
        percent: None,
        message: None,
        progress_at: None,
        created_at: NOW,
        started_at: None,
        ended_at: None,
        expires_at: NOW.saturating_add(DAY),
        error: None,
        artifacts: None,
        kept: "none".into(),
        attempt: 1,
        retries: 0,
        due_at: None,
    }
}

pub(crate) fn ended(row: &JobRow) -> JobRow {
    JobRow {
        state: "succeeded".into(),
        revision: row.revision + 1,
        ended_at: Some(NOW),
        kept: "sealed".into(),
        ..row.clone()
    }
}

pub(crate) async fn add(system: &System, replica: &Replica, subject: &str, number: u32) -> JobRow {
    let row = row(replica, subject, number);
    assert!(system.add_job(row.clone(), 100).await.unwrap());
    row
}

pub(crate) async fn save(system: &System, rows: &[JobRow]) -> bool {
    let owner = rows[0].owner.as_str().into();
    system
        .save_jobs(owner, rows.iter().map(|row| (row.clone(), None)).collect())
        .await
        .unwrap()
}

pub(crate) async fn find(system: &System, row: &JobRow) -> Option<JobRow> {
    system.find_job(&row.id, NOW).await.unwrap()
}

pub(crate) async fn look_for_lost(system: &System) -> LostJobs {
    let errors = LostErrors {
        stopped: "{}".into(),
        unclaimed: "{\"unclaimed\":1}".into(),
    };
    system
        .end_lost_jobs(&errors, NOW, NOW.saturating_add(DAY))
        .await
        .unwrap()
}

pub(crate) async fn end_lost(system: &System) -> u64 {
    let lost = look_for_lost(system).await;
    assert_eq!(lost.queued, 0);
    lost.failed
}

pub(super) async fn cancel(system: &System, id: &str) -> bool {
    system
        .ask_to_cancel_job(id, NOW, NOW.saturating_add(DAY))
        .await
        .unwrap()
}

/// Waits until a replica that was dropped is known to be gone.
pub(crate) async fn until_gone(gone: impl AsyncFn() -> bool) {
    helmdeck_testkit::until("the end of a replica that was dropped", async || {
        gone().await
    })
    .await;
}

pub(super) async fn reads_find_nothing_without_a_database(fixture: Fixture) {
    let system = fixture.one;
    assert!(system.find_job("00", NOW).await.unwrap().is_none());
    assert!(
        system
            .jobs(JobFilter::default(), 9, NOW)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(!cancel(&system, "00").await);
    assert_eq!(end_lost(&system).await, 0);
    assert_eq!(system.forget_ended_jobs("t", "a").await.unwrap(), (0, 0));
    assert!(!system.exists().await.unwrap());
}

pub(super) async fn only_the_newest_state_of_its_owner_is_kept(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    let (here, there) = (one.replica().await.unwrap(), two.replica().await.unwrap());
    let first = JobRow {
        attempt: 2,
        retries: 3,
        due_at: Some(NOW),
        ..row(&here, "a", 1)
    };
    assert!(one.add_job(first.clone(), 100).await.unwrap());
    let mut running = JobRow {
        state: "running".into(),
        revision: 5,
        started_at: Some(NOW),
        ..first.clone()
    };
    (running.percent, running.message, running.progress_at) =
        (Some(0.5), Some("half".into()), Some(NOW));
    assert!(save(&one, std::slice::from_ref(&running)).await);
    assert!(
        save(
            &one,
            &[JobRow {
                revision: 4,
                ..first.clone()
            }]
        )
        .await,
        "its owner lives, and the row stays"
    );
    assert_eq!(find(&two, &first).await, Some(running.clone()));
    let mut done = ended(&running);
    (done.error, done.artifacts) = (Some("{\"a\":1}".into()), Some("[]".into()));
    one.save_jobs(here.id(), vec![(done.clone(), Some(b"sealed".to_vec()))])
        .await
        .unwrap();
    let late = JobRow {
        revision: 99,
        ..running
    };
    let stranger = JobRow {
        owner: there.id().to_string(),
        ..late.clone()
    };
    save(&one, &[late]).await;
    save(&two, &[stranger]).await;
    assert_eq!(find(&two, &first).await, Some(done));
    assert_eq!(
        two.job_result(&first.id).await.unwrap().as_deref(),
        Some(&b"sealed"[..])
    );
    assert_eq!(two.job_result("00").await.unwrap(), None);
}

pub(super) async fn late_end_needs_no_lease_but_its_own_job(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    let here = one.replica().await.unwrap();
    let rows = [1, 2, 3].map(|number| row(&here, "a", number));
    for row in &rows {
        assert!(one.add_job(row.clone(), 100).await.unwrap());
    }
    let end_late = async |row: &JobRow| {
        let end = EndedJob {
            row: ended(row),
            sealed: Some(b"late".to_vec()),
        };
        two.try_end(&CallEnd::Job(Box::new(end))).await.unwrap();
    };
    // While its owner lives, and after a save of it.
    end_late(&rows[0]).await;
    assert_eq!(find(&two, &rows[0]).await, Some(ended(&rows[0])));
    let failed = JobRow {
        state: "failed".into(),
        error: Some("{\"b\":1}".into()),
        ..ended(&rows[1])
    };
    assert!(save(&one, std::slice::from_ref(&failed)).await);
    end_late(&rows[1]).await;
    assert_eq!(
        find(&two, &rows[1]).await,
        Some(failed),
        "an end of its own stays"
    );
    end_late(&JobRow {
        owner: "other".into(),
        ..rows[2].clone()
    })
    .await;
    assert_eq!(
        find(&two, &rows[2]).await,
        Some(rows[2].clone()),
        "another run's job"
    );

    drop((here, one));
    until_gone(async || end_lost(&two).await == 1).await;
    let lost = find(&two, &rows[2]).await.unwrap();
    end_late(&rows[2]).await;
    // A client may have acted upon it.
    assert_eq!(
        find(&two, &rows[2]).await,
        Some(lost),
        "the end that others gave it stays"
    );
    end_late(&row(&two.replica().await.unwrap(), "a", 9)).await;
}

pub(super) async fn only_ended_jobs_make_room(fixture: Fixture) {
    let system = fixture.one;
    let here = system.replica().await.unwrap();
    let rows = [
        add(&system, &here, "a", 1).await,
        add(&system, &here, "a", 2).await,
        add(&system, &here, "b", 3).await,
    ];
    assert!(!system.add_job(row(&here, "a", 4), 2).await.unwrap());
    assert!(
        system.add_job(row(&here, "b", 5), 2).await.unwrap(),
        "another caller has its own room"
    );
    save(&system, &[ended(&rows[0]), ended(&rows[2])]).await;
    assert!(system.add_job(row(&here, "a", 4), 2).await.unwrap());
    let ids: Vec<_> = system
        .jobs(JobFilter::default(), 10, NOW)
        .await
        .unwrap()
        .into_iter()
        .map(|row| row.id)
        .collect();
    assert_eq!(ids, [5, 4, 3, 2].map(|number| format!("{number:032x}")));
}

pub(super) async fn concurrent_adds_keep_the_limit(fixture: Fixture) {
    let replicas = [
        fixture.one.replica().await.unwrap(),
        fixture.two.replica().await.unwrap(),
    ];
    let adding: Vec<_> = (0..12)
        .map(|number| {
            let system = if number % 2 == 0 {
                fixture.one.clone()
            } else {
                fixture.two.clone()
            };
            let row = row(&replicas[number as usize % 2], "a", number);
            tokio::spawn(async move { system.add_job(row, 5).await.unwrap() })
        })
        .collect();
    let mut added = 0;
    for one in adding {
        added += u32::from(one.await.unwrap());
    }
    assert_eq!(added, 5);
}

pub(super) async fn job_list_filters_and_pages(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    let here = one.replica().await.unwrap();
    for number in 1..=4 {
        add(
            &one,
            &here,
            if number % 2 == 0 { "even" } else { "odd" },
            number,
        )
        .await;
    }
    let list = async |filter: JobFilter, limit| -> Vec<u32> {
        let rows = two.jobs(filter, limit, NOW).await.unwrap();
        rows.into_iter()
            .map(|row| u32::from_str_radix(&row.id, 16).unwrap())
            .collect()
    };
    let of = |subject: &str| JobFilter {
        caller: Some(("t".into(), subject.into())),
        ..JobFilter::default()
    };
    assert_eq!(list(of("even"), 9).await, [4, 2]);
    assert_eq!(list(of("nobody"), 9).await, [0; 0]);
    assert_eq!(list(JobFilter::default(), 3).await, [4, 3, 2]);
    assert_eq!(
        list(
            JobFilter {
                before: Some(format!("{:032x}", 3)),
                ..JobFilter::default()
            },
            9
        )
        .await,
        [2, 1]
    );
    assert_eq!(
        list(
            JobFilter {
                state: Some("running".into()),
                ..of("odd")
            },
            9
        )
        .await,
        [0; 0]
    );
    assert_eq!(
        list(
            JobFilter {
                state: Some("queued".into()),
                ..of("odd")
            },
            9
        )
        .await,
        [3, 1]
    );
}

pub(super) async fn a_cancel_reaches_the_owner_of_a_live_job_only(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    let (here, there) = (one.replica().await.unwrap(), two.replica().await.unwrap());
    let (live, done) = (
        add(&one, &here, "a", 1).await,
        add(&one, &here, "a", 2).await,
    );
    save(&one, &[ended(&done)]).await;
    assert!(cancel(&two, &live.id).await);
    assert!(!cancel(&two, &done.id).await);
    assert_eq!(
        one.jobs_to_cancel(&here.id()).await.unwrap(),
        std::slice::from_ref(&live.id)
    );
    assert!(two.jobs_to_cancel(&there.id()).await.unwrap().is_empty());
    save(&one, &[ended(&live)]).await;
    assert!(one.jobs_to_cancel(&here.id()).await.unwrap().is_empty());
}

pub(super) async fn jobs_end_with_their_owner_and_not_before(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    let (here, there) = (one.replica().await.unwrap(), two.replica().await.unwrap());
    let (mine, theirs) = (
        add(&one, &here, "a", 1).await,
        add(&two, &there, "a", 2).await,
    );
    let done = add(&one, &here, "a", 3).await;
    save(&one, &[ended(&done)]).await;
    assert_eq!(end_lost(&two).await, 0);
    assert!(here.holds(&here.id()) && !here.holds(&there.id()));
    drop(here);
    until_gone(async || end_lost(&two).await == 1).await;
    let lost = find(&two, &mine).await.unwrap();
    assert_eq!(
        (lost.state.as_str(), lost.ended_at, lost.revision),
        ("failed", Some(NOW), 2)
    );
    assert_eq!(find(&one, &theirs).await, Some(theirs.clone()));
    assert_eq!(find(&one, &done).await, Some(ended(&done)));
    assert_eq!(end_lost(&one).await, 0);
}

pub(super) async fn ended_jobs_are_swept_and_forgotten(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    let here = one.replica().await.unwrap();
    let rows = [
        add(&one, &here, "a", 1).await,
        add(&one, &here, "a", 2).await,
        add(&one, &here, "b", 3).await,
    ];
    let sealed = Some(b"sealed-canary".to_vec());
    assert!(
        one.save_jobs(
            here.id(),
            vec![(ended(&rows[0]), sealed), (ended(&rows[2]), None)]
        )
        .await
        .unwrap()
    );
    let later = NOW.saturating_add(DAY);
    assert!(
        two.find_job(&rows[0].id, later).await.unwrap().is_none(),
        "its time is over"
    );
    assert!(
        two.find_job(&rows[1].id, later).await.unwrap().is_some(),
        "it has not ended"
    );
    assert_eq!(two.forget_ended_jobs("t", "a").await.unwrap(), (1, 1));
    assert_eq!(one.job_result(&rows[0].id).await.unwrap(), None);
    assert_eq!(
        (
            one.sweep(NOW).await.unwrap(),
            one.sweep(later).await.unwrap()
        ),
        (0, 1)
    );
    assert!(find(&one, &rows[2]).await.is_none() && find(&one, &rows[1]).await.is_some());
}

pub(super) async fn gone_jobs_returns_missing_ids_only(fixture: Fixture) {
    let system = fixture.one;
    let ids = |numbers: &[u32]| -> Vec<String> {
        numbers
            .iter()
            .map(|number| format!("{number:032x}"))
            .collect()
    };
    assert_eq!(
        system.gone_jobs(ids(&[1])).await.unwrap(),
        ids(&[1]),
        "there is no database"
    );
    let here = system.replica().await.unwrap();
    add(&system, &here, "a", 1).await;
    assert_eq!(
        system.gone_jobs(ids(&[1, 2, 3])).await.unwrap(),
        ids(&[2, 3])
    );
    assert!(system.gone_jobs(Vec::new()).await.unwrap().is_empty());
}

pub(super) async fn any_text_survives_a_save(fixture: Fixture) {
    let system = fixture.one;
    let here = system.replica().await.unwrap();
    let first = add(&system, &here, "a", 1).await;
    let message = "half \u{0} done \u{7} \u{fffe} 🦀 '; --";
    let told = JobRow {
        revision: 2,
        message: Some(message.into()),
        progress_at: Some(NOW),
        ..first.clone()
    };
    assert!(save(&system, &[told]).await);
    let kept = find(&system, &first).await.unwrap().message.unwrap();
    assert_eq!(kept.replace('\u{FFFD}', "\u{0}"), message);
}

//! Copies of a database into another one.

use helmdeck_memory::StoreError;

use super::jobs::{add, row as job_row, save};
use super::{MINUTE, NOW};
use crate::counters::Counter;
use crate::idempotency::{Begun, KeyRequest};
use crate::jobs::JobRow;
use crate::queue::JobLimits;
use crate::schedules::{DueRun, Scheduled};
use crate::statistics::Statistic;
use crate::system::System;
use crate::tokens::NewToken;
use crate::vault::{VaultChange, VaultRow, VaultUse};

fn token(name: &str) -> NewToken {
    NewToken {
        name: name.to_owned(),
        tenant: "t".to_owned(),
        subject: "a".to_owned(),
        scope: "packs:run".to_owned(),
        created_at: NOW,
        expires_at: Some(NOW.saturating_add(MINUTE)),
        ancestors: Vec::new(),
    }
}

/// Puts something of every kind into a database.
async fn fill(system: &System) {
    system
        .add(vec![Counter {
            pack: "p".into(),
            name: "hits".into(),
            value: 3,
        }])
        .await
        .unwrap();
    let calls = Statistic {
        seconds: 60,
        slot: 7,
        pack: "p".into(),
        name: "calls".into(),
        value: 2,
    };
    system
        .add_statistics(vec![calls], Vec::new())
        .await
        .unwrap();
    for number in 0..700 {
        // More than one step.
        let counter = Counter {
            pack: format!("p{number}"),
            name: "n".into(),
            value: number,
        };
        system.add(vec![counter]).await.unwrap();
    }
    let (first, _) = system.create_token(token("first")).await.unwrap();
    let child = NewToken {
        ancestors: vec![first.id],
        ..token("child")
    };
    system.create_token(child).await.unwrap();
    let row = VaultRow {
        name: "c".to_owned(),
        version: 3,
        key_id: "k".to_owned(),
        sealed: vec![0, 1, 255],
        created_at: NOW,
        updated_at: NOW,
    };
    let change = VaultChange {
        key_id: Some("k".to_owned()),
        head: Some(vec![7, 0]),
        put: vec![row],
        remove: Vec::new(),
    };
    system
        .change_vault(true, move |_, _| (Some(change), ()))
        .await
        .unwrap();
    let used = VaultUse {
        name: "c".to_owned(),
        tenant: "t".to_owned(),
        subject: "a".to_owned(),
        pack: "p".to_owned(),
        day: 9,
        granted: 1,
        refused: 2,
        last_at: NOW,
    };
    system.add_vault_uses(vec![used]).await.unwrap();
    let replica = system.replica().await.unwrap();
    for (key, answer) in [("done", Some(b"sealed".to_vec())), ("open", None)] {
        let request = KeyRequest {
            scope: "s/rest",
            key,
            digest: b"d",
            keep: MINUTE,
            repeatable: false,
        };
        let Begun::New(fence) = system.begin(request, &replica, NOW).await.unwrap() else {
            panic!("it is new")
        };
        if answer.is_some() {
            system
                .finish("s/rest", key, fence, answer, NOW.saturating_add(MINUTE))
                .await
                .unwrap();
        }
    }
    let job = add(system, &replica, "a", 1).await;
    let message = Some("half \u{0} \u{1F980}".to_owned());
    let told = JobRow {
        revision: 2,
        message,
        percent: Some(0.1),
        progress_at: Some(NOW),
        ..job
    };
    let done = JobRow {
        state: "succeeded".into(),
        ended_at: Some(NOW),
        kept: "sealed".into(),
        ..told
    };
    system
        .save_jobs(replica.id(), vec![(done, Some(vec![7; 5000]))])
        .await
        .unwrap();
    let row = job_row(&replica, "a", 9);
    let limits = JobLimits {
        of_caller: 9,
        waiting: 9,
    };
    let run = DueRun {
        pack: "p".to_owned(),
        due_at: NOW,
        row,
        call: None,
        limits,
        unclaimed: String::new(),
    };
    assert_eq!(system.run_schedule(run).await.unwrap(), Scheduled::First);
}

/// Copies a filled database into an empty one, again, and reads it there.
pub(crate) async fn a_copy_holds_the_same(source: System, target: System) {
    fill(&source).await;
    let copied = source.copy_to(&target).await.unwrap();
    let rows: Vec<u64> = copied.iter().map(|table| table.rows).collect();
    assert_eq!(rows, [701, 1, 2, 2, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(
        source.copy_to(&target).await.unwrap(),
        copied,
        "a second copy changes nothing"
    );
    assert_eq!(
        target.counters().await.unwrap(),
        source.counters().await.unwrap()
    );
    assert_eq!(
        target.statistics().await.unwrap(),
        source.statistics().await.unwrap()
    );
    assert_eq!(
        target.tokens().await.unwrap(),
        source.tokens().await.unwrap()
    );
    assert_eq!(target.vault().await.unwrap(), source.vault().await.unwrap());
    assert_eq!(
        target.vault_uses(None, 9).await.unwrap(),
        source.vault_uses(None, 9).await.unwrap()
    );
    let id = format!("{:032x}", 1);
    assert_eq!(
        target.find_job(&id, NOW).await.unwrap().unwrap().percent,
        Some(0.1)
    );
    assert_eq!(target.job_result(&id).await.unwrap(), Some(vec![7; 5000]));
    let replica = target.replica().await.unwrap();
    let request = KeyRequest {
        scope: "s/rest",
        key: "open",
        digest: b"d",
        keep: MINUTE,
        repeatable: false,
    };
    let begun = target.begin(request, &replica, NOW).await.unwrap();
    assert_eq!(
        begun,
        Begun::Lost {
            digest: b"d".into()
        },
        "its process does not use this database"
    );

    // Part of the rows is there, as after a copy that was stopped.
    target.forget_vault_uses("t", "a").await.unwrap();
    assert_eq!(source.copy_to(&target).await.unwrap(), copied);
    let replica = source.replica().await.unwrap();
    let open = add(&source, &replica, "a", 2).await;
    assert!(
        matches!(source.copy_to(&target).await, Err(StoreError::Invalid(why)) if why.contains("not ended"))
    );
    assert!(
        save(
            &source,
            &[JobRow {
                state: "failed".into(),
                revision: 2,
                ended_at: Some(NOW),
                ..open
            }]
        )
        .await
    );
    // What the target has of its own is not mixed with the copy.
    target.create_token(token("second")).await.unwrap();
    assert!(
        matches!(source.copy_to(&target).await, Err(StoreError::Invalid(why)) if why.contains("rows of its own"))
    );
    assert_eq!(target.tokens().await.unwrap().len(), 3);
}

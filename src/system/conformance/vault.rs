//! The vault: state, credentials, and the use log.

use helmdeck_core::Timestamp;

use super::{Fixture, NOW};
use crate::vault::{VaultChange, VaultRow, VaultState, VaultUse};

fn row(name: &str, version: u64) -> VaultRow {
    VaultRow {
        name: name.to_owned(),
        version,
        key_id: "k".to_owned(),
        sealed: vec![1, 2],
        created_at: Timestamp(1),
        updated_at: Timestamp(2),
    }
}

fn put(rows: Vec<VaultRow>) -> VaultChange {
    VaultChange {
        key_id: Some("k".to_owned()),
        head: Some(vec![9]),
        put: rows,
        remove: Vec::new(),
    }
}

fn used(tenant: &str, subject: &str, day: i64) -> VaultUse {
    VaultUse {
        name: "n".to_owned(),
        tenant: tenant.to_owned(),
        subject: subject.to_owned(),
        pack: "p".to_owned(),
        day,
        granted: 1,
        refused: 0,
        last_at: Timestamp(day * 86_400_000_000),
    }
}

pub(super) async fn nothing_is_made_by_reading(fixture: Fixture) {
    let system = fixture.one;
    assert_eq!(system.vault_generation().await.unwrap(), 0);
    assert_eq!(system.vault().await.unwrap(), Default::default());
    assert_eq!(
        system.change_vault(false, |_, _| (None, ())).await.unwrap(),
        None
    );
    system.add_vault_uses(Vec::new()).await.unwrap();
    assert!(system.vault_uses(None, 10).await.unwrap().is_empty());
    assert_eq!(system.forget_vault_uses("t", "a").await.unwrap(), 0);
    assert_eq!(system.sweep(NOW).await.unwrap(), 0);
    assert!(!system.exists().await.unwrap());
}

pub(super) async fn changes_are_counted_and_seen_by_another_handle(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    one.change_vault(true, move |_, _| {
        (Some(put(vec![row("a", 1), row("b", 1)])), ())
    })
    .await
    .unwrap();
    let seen = two
        .change_vault(false, |state, rows| {
            let seen = (state.clone(), rows.len());
            (
                Some(VaultChange {
                    remove: vec!["a".to_owned()],
                    put: vec![row("b", 2)],
                    ..VaultChange::default()
                }),
                seen,
            )
        })
        .await
        .unwrap();
    let state = |generation| VaultState {
        generation,
        key_id: Some("k".to_owned()),
        head: Some(vec![9]),
    };
    assert_eq!(seen, Some((state(1), 2)));
    assert_eq!(one.vault().await.unwrap(), (state(2), vec![row("b", 2)]));
    one.change_vault(true, |_, _| (None, ())).await.unwrap();
    assert_eq!(
        two.vault_generation().await.unwrap(),
        2,
        "no change is not counted"
    );
}

pub(super) async fn concurrent_changes_see_each_other(fixture: Fixture) {
    let changing: Vec<_> = (0..12)
        .map(|number| {
            let system = if number % 2 == 0 {
                fixture.one.clone()
            } else {
                fixture.two.clone()
            };
            tokio::spawn(async move {
                let change = system.change_vault(true, |_, rows| {
                    let version = rows.first().map_or(0, |row| row.version) + 1;
                    (Some(put(vec![row("a", version)])), ())
                });
                change.await.unwrap();
            })
        })
        .collect();
    for change in changing {
        change.await.unwrap();
    }
    let (state, rows) = fixture.one.vault().await.unwrap();
    assert_eq!((state.generation, rows), (12, vec![row("a", 12)]));
}

pub(super) async fn uses_add_up_by_day_latest_first(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    let of = |subject: &str, granted, refused, last_at| VaultUse {
        granted,
        refused,
        last_at: Timestamp(last_at),
        ..used("t", subject, 7)
    };
    one.add_vault_uses(vec![of("a", 1, 0, 5), of("b", 0, 1, 4)])
        .await
        .unwrap();
    two.add_vault_uses(vec![of("a", 1, 1, 3), of("a", 1, 0, 2)])
        .await
        .unwrap();
    assert_eq!(
        one.vault_uses(None, 10).await.unwrap(),
        [of("a", 3, 1, 5), of("b", 0, 1, 4)]
    );
    assert_eq!(
        one.vault_uses(Some("n".to_owned()), 1).await.unwrap().len(),
        1
    );
    assert!(
        one.vault_uses(Some("other".to_owned()), 9)
            .await
            .unwrap()
            .is_empty()
    );
    let caller = Some(("t".to_owned(), "b".to_owned()));
    assert_eq!(
        two.vault_uses_of(None, caller, 9).await.unwrap(),
        [of("b", 0, 1, 4)]
    );
}

pub(super) async fn uses_are_swept_and_forgotten(fixture: Fixture) {
    let system = fixture.one;
    system
        .add_vault_uses(vec![
            used("t", "a", 1),
            used("t", "a", 2),
            used("t", "b", 2),
            used("u", "a", 2),
        ])
        .await
        .unwrap();
    let at = |day: i64, micros: i64| Timestamp(day * 86_400_000_000 + micros);
    assert_eq!(
        system.sweep(at(401, 0)).await.unwrap(),
        0,
        "400 days are not more than 400 days"
    );
    assert_eq!(system.sweep(at(401, 1)).await.unwrap(), 1);
    assert_eq!(system.forget_vault_uses("t", "a").await.unwrap(), 1);
    assert_eq!(
        system.vault_uses(None, 10).await.unwrap(),
        [used("t", "b", 2), used("u", "a", 2)]
    );
}

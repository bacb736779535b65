//! Counters and statistics.

use super::Fixture;
use crate::counters::Counter;
use crate::statistics::Statistic;

fn counter(pack: &str, name: &str, value: u64) -> Counter {
    Counter {
        pack: pack.into(),
        name: name.into(),
        value,
    }
}

pub(super) async fn counters_add_up_over_handles(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    assert!(one.counters().await.unwrap().is_empty());
    one.add(Vec::new()).await.unwrap();
    assert!(
        !one.exists().await.unwrap(),
        "nothing to add makes no database"
    );
    one.add(vec![
        counter("p", "hits", 1),
        counter("", "all", 1),
        counter("p", "hits", 1),
    ])
    .await
    .unwrap();
    two.add(vec![counter("p", "hits", 3), counter("P", "hits", 7)])
        .await
        .unwrap();
    let all = [
        counter("", "all", 1),
        counter("P", "hits", 7),
        counter("p", "hits", 5),
    ];
    assert_eq!(one.counters().await.unwrap(), all, "in the order of bytes");
}

pub(super) async fn statistics_add_up_and_old_ones_are_deleted(fixture: Fixture) {
    let system = fixture.one;
    let row = |slot, value| Statistic {
        seconds: 60,
        slot,
        pack: "p.q".into(),
        name: "calls".into(),
        value,
    };
    system
        .add_statistics(vec![row(1, 1)], Vec::new())
        .await
        .unwrap();
    assert!(
        system.statistics().await.unwrap().is_empty(),
        "they make no database"
    );
    system.add(vec![counter("p.q", "hit", 1)]).await.unwrap();
    system
        .add_statistics(vec![row(1, 1), row(2, 2)], Vec::new())
        .await
        .unwrap();
    system
        .add_statistics(vec![row(2, 3), row(2, 1)], vec![(60, 2), (900, 9)])
        .await
        .unwrap();
    assert_eq!(fixture.two.statistics().await.unwrap(), [row(2, 6)]);
}

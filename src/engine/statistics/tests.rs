//! Tests of the rings, their bounds, and what is stored of them.

use helmdeck_testkit::ManualClock;

use super::*;

fn numbers(calls: u64, errors: u64) -> Numbers {
    let mut numbers = Numbers {
        calls,
        errors,
        ..Numbers::default()
    };
    numbers.answers[CacheStatus::Hit as usize] = calls - errors;
    numbers.durations[20] = calls;
    numbers
}

fn counted(pack: &str, calls: u64) -> Vec<(String, Numbers)> {
    vec![(pack.to_owned(), numbers(calls, 0))]
}

#[test]
fn each_reading_adds_what_is_new() {
    let clock = Arc::new(ManualClock::default());
    let statistics = Statistics::new(None, Arc::clone(&clock) as _);
    statistics.add(counted("a.b", 3));
    statistics.add(counted("a.b", 5));
    clock.advance(Duration::from_secs(60));
    statistics.add(counted("a.b", 6));
    let report = statistics.report(Window::Hour, |_| true);
    assert_eq!(
        (report.slots.len(), report.total.calls, report.packs.len()),
        (60, 6, 1)
    );
    let last: Vec<u64> = report
        .slots
        .iter()
        .rev()
        .take(3)
        .map(|slot| slot.numbers.calls)
        .collect();
    assert_eq!(last, [1, 5, 0]);
    assert_eq!(report.total.answered(CacheStatus::Hit), 6);
    assert!(report.total.quantile_us(0.5).is_some());
    assert_eq!(
        statistics
            .report(Window::Week, |pack| pack == "other")
            .total,
        Numbers::default()
    );
}

#[test]
fn rings_forget_what_is_older() {
    let clock = Arc::new(ManualClock::default());
    let statistics = Statistics::new(None, Arc::clone(&clock) as _);
    statistics.add(counted("a.b", 1));
    clock.advance(Duration::from_secs(2 * 3_600));
    statistics.add(counted("a.b", 2));
    let calls = |window| statistics.report(window, |_| true).total.calls;
    assert_eq!(Window::ALL.map(calls), [1, 2, 2]);
    clock.advance(Duration::from_secs(8 * 86_400));
    statistics.add(Vec::new());
    assert!(statistics.state.lock().rows.is_empty());
}

#[test]
fn packs_above_the_limit_are_counted_together() {
    let statistics = Statistics::new(None, Arc::new(ManualClock::default()));
    let many = (0..PACKS + 3)
        .map(|number| (format!("a.p{number:03}"), numbers(1, 1)))
        .collect();
    statistics.add(many);
    let report = statistics.report(Window::Hour, |_| true);
    assert_eq!(
        (report.packs.len(), report.total.errors),
        (PACKS + 1, PACKS as u64 + 3)
    );
    assert!(
        report
            .packs
            .iter()
            .any(|(pack, numbers)| pack == OTHERS && numbers.calls == 3)
    );
}

#[tokio::test]
async fn next_process_finds_what_was_stored() {
    let folder = tempfile::tempdir().unwrap();
    let system = System::at(folder.path().join("helmdeck.db"));
    let clock = Arc::new(ManualClock::default());
    let first = Statistics::new(Some(system.clone()), Arc::clone(&clock) as _);
    first.add(counted("a.b", 4));
    first.save().await;
    assert!(
        !folder.path().join("helmdeck.db").exists(),
        "statistics alone make no file"
    );
    system
        .add(vec![helmdeck_system::Counter {
            pack: String::new(),
            name: "n".into(),
            value: 1,
        }])
        .await
        .unwrap();
    first.add(counted("a.b", 5));
    first.save().await;
    let second = Statistics::new(Some(system), clock);
    second.load().await;
    second.load().await;
    second.add(counted("a.b", 10));
    assert_eq!(second.report(Window::Day, |_| true).total.calls, 11);
}

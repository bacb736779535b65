//! Tests that the hot tier stays under its limit, measured by the memory of the process.

use std::process::Command;

use bytes::Bytes;
use helmdeck_core::outcome::Remark;
use helmdeck_core::{
    CacheStatus, Identity, Json, Outcome, PackName, SystemClock, Timestamp, Version,
};
use helmdeck_memory::Namespace;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::cache::answer::Times;
use crate::cache::hot::Alias;
use crate::cache::key::Key;

/// Environment variable that is set in the measured process, so that nothing else runs in it.
const MEASURED: &str = "HELMDECK_TEST_HOT_TIER";
/// Default limit with a million keys; in debug builds a smaller one, with fewer keys.
///
/// Without optimisation a million would take minutes. The keys are still many times what fits.
const CAP: u64 = if cfg!(debug_assertions) {
    16 << 20
} else {
    64 << 20
};
const KEYS: u64 = if cfg!(debug_assertions) {
    60_000
} else {
    1_000_000
};

/// Returns the resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

async fn hub(hot_bytes: u64) -> Arc<Hub> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let parts = HubDependencies {
        store: helmdeck_testkit::sealed_memory(Arc::clone(&clock)).await,
        keyring: Arc::new(helmdeck_testkit::keyring()),
        system: None,
        events: Bus::new(1, Arc::clone(&clock)),
        clock,
        config: CacheConfig {
            hot_bytes,
            ..CacheConfig::default()
        },
        metrics: Arc::new(Metrics::new()),
        changes: None,
        trouble: None,
    };
    crate::cache::start(parts, &CancellationToken::new())
}

/// Simulates a miss: makes an answer for key number `n`, and stores the call as an alias.
fn miss(hub: &Hub, n: u64, size: usize) -> (Arc<Answer>, Alias) {
    let mut key = Key([0; 32]);
    key.0[..8].copy_from_slice(&n.to_be_bytes());
    let namespace = Namespace::new("tenant", "somebody", None);
    let tags = [format!("repo:owner/{n}")].into();
    let (pack, version) = (PackName::new("t.echo").unwrap(), Version::new(1).unwrap());
    let location = Arc::new(Location {
        key,
        pack: pack.clone(),
        version,
        namespace,
        tags,
    });
    let mut output = format!("{{\"n\":{n}}}");
    output.push_str(&" ".repeat(size.saturating_sub(output.len())));
    let outcome = Outcome {
        pack,
        version,
        output: Json::from_trusted(Bytes::copy_from_slice(output.as_bytes())),
        artifacts: Arc::new([]),
        duration: Duration::ZERO,
        session_id: None,
        cache: None,
        pending: false,
        remark: Remark::default(),
    };
    let times = Times {
        made_at: Timestamp(0),
        fresh_until: Timestamp::MAX,
        hard_until: Timestamp::MAX,
    };
    let answer = Arc::new(Answer::new(location, &outcome, times, Duration::ZERO, 0));
    // Served, which shares its bytes.
    drop(
        answer
            .outcome(CacheStatus::Miss, Timestamp(0), Timestamp(0))
            .unwrap(),
    );
    hub.hot.warm(&answer);
    let input = Bytes::from(format!("{{\"repo\":\"owner/{n}\"}}"));
    let identity = Identity::new("tenant", "somebody").unwrap();
    let alias = Alias::new(0, 0, &identity, &input).unwrap();
    hub.hot.remember(alias.clone(), answer.location.key);
    (answer, alias)
}

/// Runs one test alone in a separate process.
fn alone(name: &str) {
    let run = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &format!("cache::hub::tests::{name}"),
            "--nocapture",
        ])
        .env(MEASURED, "1")
        .output()
        .unwrap();
    println!("{}", String::from_utf8_lossy(&run.stdout));
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
}

#[tokio::test]
async fn evicted_answer_is_not_recalled() {
    let hub = hub(64 << 10).await;
    let (small, of_small) = miss(&hub, 1, 100);
    assert!(Arc::ptr_eq(&hub.hot.recall(&of_small).unwrap(), &small));
    // Larger than the whole tier: no purge would find it.
    let (large, of_large) = miss(&hub, 2, 100 << 10);
    assert!(hub.hot.get(&large.location.key).is_none());
    assert!(hub.hot.recall(&of_large).is_none() && large.is_invalid());
    assert!(hub.hot.recall(&of_small).is_some());

    let (replacement, _) = miss(&hub, 1, 200);
    assert!(small.is_invalid() && !replacement.is_invalid());
    assert!(
        !hub.hot.warm(&small) && hub.hot.warm(&replacement),
        "an invalidated answer does not come back, and none replaces itself"
    );
    assert!(Arc::ptr_eq(
        &hub.hot.recall(&of_small).unwrap(),
        &replacement
    ));
    hub.invalidate(|location| *location == *replacement.location, |_| ());
    assert!(hub.hot.recall(&of_small).is_none() && replacement.is_invalid());
}

#[tokio::test]
async fn answer_of_7_mib_fits_whatever_the_limit_is() {
    for limit in [10, 16, 64, 90, 300, 1024] {
        let hub = hub(limit << 20).await;
        let (answer, _) = miss(&hub, 1, 7 << 20);
        assert!(hub.hot.get(&answer.location.key).is_some(), "{limit} MiB");
    }
}

#[tokio::test]
async fn answer_takes_at_most_500_bytes_besides_itself() {
    let (first, second) = (hub(1 << 20).await, hub(1 << 20).await);
    let (answer, _) = miss(&first, 1, 42);
    let location = Arc::new(Location {
        tags: [].into(),
        ..(*answer.location).clone()
    });
    let without_tags = Answer::decode(location, "", &answer.encode("")).unwrap();
    second.hot.warm(&Arc::new(without_tags));
    let (with_call, alone) = (first.hot.bytes() - 42, second.hot.bytes() - 42);
    println!("{alone} bytes; {with_call} with a tag and the call that leads to it");
    assert!(alone <= 500 && with_call <= 800, "{alone} {with_call}");
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a test that starts itself has no other way to know"
)]
fn many_keys_stay_within_memory_limit() {
    if std::env::var_os(MEASURED).is_none() {
        return alone("many_keys_stay_within_memory_limit");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let hub = hub(CAP).await;
        miss(&hub, 0, 100);
        let before = resident();
        let mut most = 0;
        for n in 1..=KEYS {
            // Mostly small answers, where the tier's overhead counts most, with some larger ones.
            miss(&hub, n, if n % 50 == 0 { 8 << 10 } else { 100 });
            if n % 1000 == 0 {
                most = most.max(resident() - before);
            }
        }
        hub.drop_expired();
        let (held, (answers, aliases)) = (hub.hot.bytes(), hub.hot.counts());
        println!(
            "{KEYS} keys, cap {} MiB: {:.1} MiB more at most, {:.1} now; weighed {:.1}, {answers} answers, {aliases} aliases",
            CAP >> 20,
            most as f64 / 1_048_576.0,
            (resident() - before) as f64 / 1_048_576.0,
            held as f64 / 1_048_576.0,
        );
        assert!(most <= CAP + CAP / 10, "{most} bytes");
        assert!(held > CAP / 10 * 9 && held <= CAP, "the tier is full: {held} bytes");
    });
}

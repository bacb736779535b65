//! Plans of every statement of calls: what they touch must not grow with the rows of the database.
//!
//! The server explains each statement as it runs it, with its real parameters (`auto_explain`).
//! Rows come from SQL.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_memory::Config;
use helmdeck_memory::drivers::postgres::session::Connections;
use helmdeck_testkit::{Postgres as Server, StatementRecorder};

use crate::conformance::NOW;
use crate::conformance::jobs::row;
use crate::counters::Counter;
use crate::idempotency::{Begun, KeyRequest};
use crate::jobs::{JobFilter, JobRow, LostErrors};
use crate::queue::{Accepted, Claim, ClaimId, JobLimits, QueuedCall};
use crate::system::System;
use crate::tokens::{TokenQuery, TokenReach};

/// Buffers of a statement in a large database, at most this many times those in a small one, ...
const TIMES: u64 = 2;
/// ... and so many more: a few indexes, each up to three levels deeper.
const MORE: u64 = 24;

/// Statements that grow with something. Their end.
const GROWING: &[&str] = &[
    // Jobs of everybody in one state, newest first: an operator's page looks at the jobs that are
    // newer, too.
    "AND ($5::text IS NULL OR id < $5) ORDER BY id DESC LIMIT $6",
];

#[tokio::test(flavor = "multi_thread")]
async fn statements_touch_as_much_in_a_large_database() {
    let server = Server::shared();
    let (small, large) = (
        measure(&server, 1_000).await,
        measure(&server, 100_000).await,
    );
    assert!(small.len() >= 15, "there are more statements: {small:#?}");
    let worse: Vec<String> = large
        .iter()
        .filter_map(|(sql, buffers)| Some((sql, *buffers, *small.get(sql)?)))
        .filter(|(sql, buffers, before)| {
            *buffers > TIMES * before + MORE && !GROWING.iter().any(|of| sql.ends_with(of))
        })
        .map(|(sql, buffers, before)| format!("{before} -> {buffers} buffers: {sql}"))
        .collect();
    assert!(
        worse.is_empty(),
        "statements grow with the rows:\n{}",
        worse.join("\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_touches_as_much_with_many_waiting_jobs() {
    let server = Server::shared();
    for label in ["able", "unable"] {
        let (few, many) = (
            claim_buffers(&server, 1_000, label).await,
            claim_buffers(&server, 100_000, label).await,
        );
        assert!(
            many <= TIMES * few + MORE,
            "a claim of a replica that is {label}: {few} -> {many} buffers"
        );
    }
}

/// Lets jobs of 50 callers wait, and returns the buffers of a claim.
async fn claim_buffers(server: &Server, waiting: u64, label: &str) -> u64 {
    let url = server.database();
    System::connect(&url, &Config::default())
        .unwrap()
        .replica()
        .await
        .unwrap();
    let (now, later) = (
        NOW.micros(),
        NOW.saturating_add(Duration::from_secs(86_400)).micros(),
    );
    server.sql(
        &url,
        &format!(
            "INSERT INTO system_jobs (id, tenant, subject, pack, version, state, owner, revision, created_at, expires_at, label)
             SELECT lpad(n::text, 26, '0'), 't', 'user' || (n % 50), 'p', 1, 'queued', 'queue', 1, {now}, {later}, 'able'
               FROM generate_series(1, {waiting}) n;
             INSERT INTO system_job_calls SELECT id, '\\x00' FROM system_jobs"
        ),
    );
    server.sql(&url, "VACUUM ANALYZE");
    let recorder = StatementRecorder::start(server);
    StatementRecorder::explain(server, &url);
    let (url, mut config) = (recorder.url(&url), Config::default());
    config.connections = Some(Connections::new(&url, 1, &config).unwrap());
    let system = System::connect(&url, &config).unwrap();
    let replica = system.replica().await.unwrap();
    let owner = replica.id();
    for number in 1..=2 {
        let _ = recorder.take_plans();
        let id = ClaimId {
            owner: Arc::clone(&owner),
            number,
        };
        let claim = Claim {
            id,
            labels: Arc::from([label.to_owned()]),
            places: 4,
            per_caller: 4,
            now: NOW,
        };
        assert_eq!(
            system.claim_jobs(claim).await.unwrap().len(),
            if label == "able" { 4 } else { 0 }
        );
    }
    let plans = recorder.take_plans();
    plans
        .iter()
        .filter(|plan| plan.sql.contains("system_claim_jobs"))
        .map(|plan| plan.buffers)
        .max()
        .unwrap()
}

/// Fills a database and runs the statements of calls in it. Returns the most buffers of each.
async fn measure(server: &Server, rows: u64) -> BTreeMap<String, u64> {
    let url = server.database();
    let system = System::connect(&url, &Config::default()).unwrap();
    system
        .add(vec![Counter {
            pack: "p".into(),
            name: "n".into(),
            value: 1,
        }])
        .await
        .unwrap();
    drop(system);
    for sql in fill(rows) {
        server.sql(&url, &sql);
    }
    let recorder = StatementRecorder::start(server);
    StatementRecorder::explain(server, &url);
    // One session: the first call of each reads the catalogue.
    let (url, mut config) = (recorder.url(&url), Config::default());
    config.connections = Some(Connections::new(&url, 1, &config).unwrap());
    let system = System::connect(&url, &config).unwrap();
    for (number, name) in [(1, "warm"), (2, "measured")] {
        let _ = recorder.take_plans();
        run(&system, name, number).await;
    }
    let mut most = BTreeMap::new();
    for plan in recorder.take_plans() {
        let text = plan.sql.split_whitespace().collect::<Vec<_>>().join(" ");
        let buffers: &mut u64 = most.entry(text).or_default();
        *buffers = plan.buffers.max(*buffers);
    }
    most
}

/// Rows of many callers, ten of each kind for each of them. Jobs have ended.
fn fill(rows: u64) -> Vec<String> {
    let (now, later) = (
        NOW.micros(),
        NOW.saturating_add(Duration::from_secs(86_400)).micros(),
    );
    vec![
        format!(
            "INSERT INTO system_keys (scope, key, digest, owner, fence, done, answer, expires_at)
             SELECT md5((n / 10)::text) || '/call', n::text, '\\x00', 'gone', '\\x00', TRUE, '\\x00', {later}
               FROM generate_series(1, {rows}) n"
        ),
        format!(
            "INSERT INTO system_jobs (id, tenant, subject, pack, version, state, owner, revision, created_at, ended_at, expires_at)
             SELECT lpad(n::text, 26, '0'), 't', 'user' || (n / 10), 'p', 1, 'succeeded', 'gone', 3, {now}, {now}, {later}
               FROM generate_series(1, {rows}) n"
        ),
        format!(
            "INSERT INTO system_job_results SELECT id, '\\x00' FROM system_jobs WHERE id <= lpad({rows}::text, 26, '0')"
        ),
        format!(
            "INSERT INTO system_tokens (id, digest, name, tenant, subject, scope, created_at)
             SELECT lpad(n::text, 16, '0'), convert_to(n::text, 'UTF8'), 'n', 't', 'user' || (n / 10), 'admin', {now} - n
               FROM generate_series(1, {rows}) n"
        ),
        "VACUUM ANALYZE".to_owned(),
    ]
}

/// Runs what calls need; `name` makes the rows different from those of another run.
async fn run(system: &System, name: &str, number: u32) {
    let replica = system.replica().await.unwrap();
    let request = |key| KeyRequest {
        scope: "scope",
        key,
        digest: b"digest",
        keep: Duration::from_secs(60),
        repeatable: false,
    };
    for (count, key) in [format!("{name}-1"), format!("{name}-2")]
        .iter()
        .enumerate()
    {
        let begun = system.begin(request(key), &replica, NOW).await.unwrap();
        let Begun::New(fence) = begun else {
            panic!("{begun:?}")
        };
        assert!(!matches!(
            system.begin(request(key), &replica, NOW).await.unwrap(),
            Begun::Done { .. }
        ));
        if count == 0 {
            assert!(
                system
                    .finish(
                        "scope",
                        key,
                        fence,
                        Some(vec![1]),
                        NOW.saturating_add(Duration::from_secs(1))
                    )
                    .await
                    .unwrap()
            );
        } else {
            system.abandon("scope", key, fence).await.unwrap();
        }
    }

    let mut job = row(&replica, name, number);
    let id = job.id.clone();
    assert!(system.add_job(job.clone(), 100).await.unwrap());
    for (revision, state, ended) in [(2, "running", None), (3, "succeeded", Some(NOW))] {
        (job.revision, job.state, job.ended_at) = (revision, state.to_owned(), ended);
        let sealed = ended.map(|_| vec![1]);
        assert!(
            system
                .save_jobs(replica.id(), vec![(job.clone(), sealed)])
                .await
                .unwrap()
        );
    }
    system.find_job(&id, NOW).await.unwrap().unwrap();
    system.job_result(&id).await.unwrap().unwrap();
    system.gone_jobs(vec![id.clone()]).await.unwrap();
    system.ask_to_cancel_job(&id, NOW, NOW).await.unwrap();
    system.jobs_to_cancel(&replica.id()).await.unwrap();
    system
        .end_lost_jobs(
            &LostErrors {
                stopped: "{}".to_owned(),
                unclaimed: "{}".to_owned(),
            },
            NOW,
            NOW,
        )
        .await
        .unwrap();
    let (limits, owner) = (
        JobLimits {
            of_caller: 100,
            waiting: 100_000,
        },
        replica.id(),
    );
    let queued = JobRow {
        id: format!("{:032x}", 100 + number),
        retries: 1,
        ..row(&replica, name, number)
    };
    let call = QueuedCall {
        label: "all".to_owned(),
        sealed: vec![1],
    };
    assert_eq!(
        system.queue_job(queued, call, limits).await.unwrap(),
        Accepted::Added
    );
    let claim = |n| {
        let id = ClaimId {
            owner: Arc::clone(&owner),
            number: n,
        };
        Claim {
            id,
            labels: Arc::from(["all".to_owned()]),
            places: 4,
            per_caller: 4,
            now: NOW,
        }
    };
    let claimed = system.claim_jobs(claim(1)).await.unwrap();
    let jobs = claimed
        .iter()
        .map(|job| (job.row.id.clone(), job.row.revision))
        .collect();
    assert_eq!(
        system
            .release_jobs(Arc::clone(&owner), jobs, NOW)
            .await
            .unwrap()
            .len(),
        1
    );
    system
        .return_claims(vec![ClaimId {
            owner: Arc::clone(&owner),
            number: 7,
        }])
        .await
        .unwrap();
    for mut job in system.claim_jobs(claim(2)).await.unwrap() {
        job.row.state = "succeeded".to_owned();
        job.row.ended_at = Some(NOW);
        job.row.revision += 1;
        assert!(
            system
                .save_jobs(replica.id(), vec![(job.row, None)])
                .await
                .unwrap()
        );
    }
    for caller in [None, Some(("t".to_owned(), "user7".to_owned()))] {
        for state in [
            None,
            Some("running".to_owned()),
            Some("succeeded".to_owned()),
        ] {
            let filter = JobFilter {
                caller: caller.clone(),
                state,
                before: None,
            };
            system.jobs(filter, 10, NOW).await.unwrap();
        }
    }
    system.forget_ended_jobs("t", "user9").await.unwrap();
    system
        .add(vec![Counter {
            pack: "p".into(),
            name: name.into(),
            value: 1,
        }])
        .await
        .unwrap();
    for subject in [None, Some("user7".to_owned())] {
        let tenant = subject.as_ref().map(|_| "t".to_owned());
        let query = TokenQuery {
            tenant,
            subject,
            ..TokenQuery::new(TokenReach::all(), 10)
        };
        system.token_page(query).await.unwrap();
    }
    system.token_used(&format!("{:016}", 7), NOW).await.unwrap();
    system
        .revoke_token(&format!("{:016}", 7), &TokenReach::all(), NOW)
        .await
        .unwrap();
    system.forget_ended_tokens("t", "user9", NOW).await.unwrap();
}

//! Jobs from end to end: order, limits, progress, cancels, ends, and jobs of ended processes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use helmdeck_core::{Builtin, Call, Clock, Code, Context, Error, Identity, Json, PackName, Reply};
use helmdeck_engine::{Config, Engine, Job, JobEvent, JobId, JobQuery, JobState};
use helmdeck_memory::KeyRing;
use helmdeck_system::System;
use helmdeck_testkit::{ManualClock, STUCK, ends, function, keyring, manifest};
use serde_json::json;
use tokio::sync::Semaphore;

mod kept;
mod scheduled;
mod shared;

/// State of the pack `t.work`: its runs, and the permits that they wait for.
#[derive(Clone)]
struct Works {
    /// The inputs of the runs, in the order in which they began.
    began: Arc<Mutex<Vec<String>>>,
    /// A run with `wait` continues when it gets a permit.
    gate: Arc<Semaphore>,
}

impl Works {
    fn new() -> Self {
        Self {
            began: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
        }
    }

    fn pack(&self) -> Builtin {
        let text = manifest(
            "t.work",
            "",
            "timeout = \"10m\"\n[input]\ntype = \"object\"\nadditionalProperties = false\n[input.properties]\nname = { type = \"string\" }\nwait = { type = \"boolean\" }\nfail = { type = \"boolean\" }\nsteps = { type = \"integer\" }\nbytes = { type = \"integer\" }\n",
        );
        let works = self.clone();
        function(&text, move |context: Context, input: Json| {
            let works = works.clone();
            async move { works.run(context, input).await }
        })
        .0
    }

    async fn run(&self, context: Context, input: Json) -> helmdeck_core::Result<Reply> {
        let input = input.to_value();
        self.began
            .lock()
            .unwrap()
            .push(input["name"].as_str().unwrap_or_default().to_owned());
        if input["wait"] == true {
            self.gate.acquire().await.unwrap().forget();
        }
        for step in 1..=input["steps"].as_u64().unwrap_or(0) {
            context.report(Some(step as f32), &format!("step {step}"));
        }
        if input["fail"] == true {
            return Err(Error::new(Code::HandlerFailed, "as asked")
                .with_retry_after(Duration::from_millis(1500)));
        }
        let text = "x".repeat(usize::try_from(input["bytes"].as_u64().unwrap_or(0)).unwrap());
        Reply::value(&json!({ "name": input["name"], "text": text }))
    }

    fn began(&self) -> Vec<String> {
        self.began.lock().unwrap().clone()
    }

    async fn until_began(&self, count: usize) {
        until("runs to begin", || self.began().len() >= count).await;
    }
}

async fn until(what: &str, done: impl Fn() -> bool) {
    helmdeck_testkit::until(what, async || done()).await;
}

/// A folder with a system database, and engines on it.
struct Fixture {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
    works: Works,
    config: Config,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            folder,
            clock: Arc::new(ManualClock::default()),
            works: Works::new(),
            config: Config::default(),
        }
    }

    fn system(&self) -> System {
        System::at(self.folder.path().join("helmdeck.db"))
    }

    fn engine(&self, keyring: Option<KeyRing>) -> Engine {
        let builder = Engine::builder(self.config.clone()).builtins(vec![self.works.pack()]);
        let engine = builder
            .jobs(self.system(), keyring.map(Arc::new))
            .clock(Arc::clone(&self.clock) as _)
            .build();
        assert!(engine.refused().is_empty(), "{:?}", engine.refused());
        engine
    }
}

fn who(user: &str) -> Arc<Identity> {
    Arc::new(Identity::new("t", user).unwrap())
}

fn call(user: &str, input: serde_json::Value) -> Call {
    Call::new(
        PackName::new("t.work").unwrap(),
        input.to_string(),
        who(user),
    )
}

async fn ended(engine: &Engine, id: &JobId) -> Job {
    let job = engine.wait_for_job(None, id, STUCK).await.unwrap();
    assert!(job.state.is_final(), "{job:?}");
    job
}

#[tokio::test]
async fn job_runs_without_caller_and_keeps_the_result() {
    let place = Fixture::new();
    for keyring in [None, Some(keyring())] {
        let engine = place.engine(keyring);
        let job = engine
            .submit(call("a", json!({"name": "one", "steps": 2})))
            .await
            .unwrap();
        assert_eq!(
            (job.state, job.user.as_str(), job.has_result),
            (JobState::Queued, "a", false)
        );
        let done = ended(&engine, &job.id).await;
        assert_eq!(
            (done.state, done.has_result, &done.error),
            (JobState::Succeeded, true, &None)
        );
        let progress = done.progress.unwrap();
        assert_eq!(
            (progress.percent, progress.message.as_str()),
            (Some(2.0), "step 2")
        );
        let outcome = engine.job_outcome(Some(&who("a")), &job.id).await.unwrap();
        let called = engine
            .call(call("a", json!({"name": "one"})))
            .await
            .unwrap();
        assert_eq!(outcome.output.as_str(), called.output.as_str());
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn invalid_input_is_refused_without_a_job() {
    let engine = Fixture::new().engine(None);
    let error = engine
        .submit(call("a", json!({"nonsense": 1})))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::InvalidInput);
    let unknown = Call::new(PackName::new("t.wrok").unwrap(), "{}", who("a"));
    assert_eq!(
        engine.submit(unknown).await.unwrap_err().code(),
        Code::NotFound
    );
    let anonymous = Call::new(
        PackName::new("t.work").unwrap(),
        "{}",
        Arc::new(Identity::anonymous()),
    );
    assert_eq!(
        engine.submit(anonymous).await.unwrap_err().code(),
        Code::Unauthenticated
    );
    assert!(
        engine
            .jobs(None, &JobQuery::default())
            .await
            .unwrap()
            .jobs
            .is_empty()
    );
}

#[tokio::test]
async fn failed_job_returns_its_calls_error() {
    let place = Fixture::new();
    let engine = place.engine(None);
    let job = engine
        .submit(call("a", json!({"fail": true})))
        .await
        .unwrap();
    let done = ended(&engine, &job.id).await;
    assert_eq!(done.state, JobState::Failed);
    let called = engine
        .call(call("a", json!({"fail": true})))
        .await
        .unwrap_err();
    for engine in [engine, place.engine(None)] {
        let error = engine.job_outcome(None, &job.id).await.unwrap_err();
        assert_eq!(error.problem(), called.problem());
    }
}

#[tokio::test]
async fn follower_sees_reports_in_order_until_the_end() {
    let place = Fixture::new();
    let engine = place.engine(None);
    let job = engine
        .submit(call("a", json!({"wait": true, "steps": 5})))
        .await
        .unwrap();
    let early = engine.follow_job(None, &job.id, None).await.unwrap();
    place.works.until_began(1).await;
    place.works.gate.add_permits(1);
    let events: Vec<JobEvent> = ends("the events", early.collect()).await;
    assert!(
        events.is_sorted_by(|one, other| one.number < other.number),
        "{events:?}"
    );
    let reports: Vec<_> = events
        .iter()
        .filter(|event| event.job.state == JobState::Running)
        .collect();
    let said: Vec<_> = reports
        .iter()
        .filter_map(|event| Some(event.job.progress.as_ref()?.message.clone()))
        .collect();
    assert_eq!(said, ["step 1", "step 2", "step 3", "step 4", "step 5"]);
    let last = events.last().unwrap();
    assert_eq!(last.job.state, JobState::Succeeded);
    // A late reader gets the end, one that has it gets nothing, a disconnected one continues where
    // it was cut off.
    let collect = async |after| -> Vec<u64> {
        let events = engine.follow_job(None, &job.id, after).await.unwrap();
        ends("the events", events.map(|event| event.number).collect()).await
    };
    assert_eq!(collect(None).await, [last.number]);
    assert_eq!(collect(Some(last.number)).await, [0; 0]);
    let rest = collect(Some(last.number - 2)).await;
    assert_eq!(rest.last(), Some(&last.number), "{rest:?}");
}

#[tokio::test]
async fn no_caller_starves_behind_another() {
    let mut place = Fixture::new();
    (place.config.jobs.concurrency, place.config.jobs.per_caller) = (1, 1);
    let engine = place.engine(None);
    for n in 0..100 {
        engine
            .submit(call(
                "many",
                json!({"name": format!("many{n}"), "wait": true}),
            ))
            .await
            .unwrap();
    }
    place.works.until_began(1).await;
    let one = engine
        .submit(call("one", json!({"name": "one", "wait": true})))
        .await
        .unwrap();
    place.works.gate.add_permits(3);
    assert_eq!(ended(&engine, &one.id).await.state, JobState::Succeeded);
    assert_eq!(
        place.works.began()[..3],
        ["many0", "many1", "one"],
        "it had one turn in between"
    );
    place.works.gate.add_permits(200);
    until("all jobs to end", || {
        engine
            .metrics()
            .contains("helmdeck_jobs_ended_total{state=\"succeeded\"} 101")
    })
    .await;
}

#[tokio::test]
async fn full_queue_and_caller_limit_leave_nothing() {
    let mut place = Fixture::new();
    (
        place.config.jobs.concurrency,
        place.config.jobs.queue,
        place.config.jobs.kept_per_caller,
    ) = (1, 2, 2);
    let engine = place.engine(None);
    let held = engine
        .submit(call("a", json!({"wait": true})))
        .await
        .unwrap();
    place.works.until_began(1).await;
    engine.submit(call("a", json!({}))).await.unwrap();
    let error = engine.submit(call("a", json!({}))).await.unwrap_err();
    assert_eq!(
        (error.code(), error.message().contains("of yours")),
        (Code::Overloaded, true),
        "{error}"
    );
    engine.submit(call("b", json!({}))).await.unwrap();
    let error = engine.submit(call("c", json!({}))).await.unwrap_err();
    assert_eq!(
        (error.code(), error.retry_after().is_some()),
        (Code::Overloaded, true),
        "{error}"
    );
    assert_eq!(
        engine
            .jobs(None, &JobQuery::default())
            .await
            .unwrap()
            .jobs
            .len(),
        3
    );
    place.works.gate.add_permits(1);
    ended(&engine, &held.id).await;
    // The oldest that has ended makes room.
    until("room", || {
        engine
            .metrics()
            .contains("helmdeck_jobs_ended_total{state=\"succeeded\"} 3")
    })
    .await;
    engine.submit(call("a", json!({}))).await.unwrap();
    assert_eq!(
        engine
            .jobs(Some(&who("a")), &JobQuery::default())
            .await
            .unwrap()
            .jobs
            .len(),
        2
    );
}

#[tokio::test]
async fn cancel_ends_waiting_and_running_not_ended_jobs() {
    let mut place = Fixture::new();
    place.config.jobs.concurrency = 1;
    let engine = place.engine(None);
    let running = engine
        .submit(call("a", json!({"wait": true})))
        .await
        .unwrap();
    place.works.until_began(1).await;
    let waiting = engine
        .submit(call("a", json!({"name": "never"})))
        .await
        .unwrap();
    for id in [&waiting.id, &running.id] {
        for _ in 0..2 {
            let job = engine.cancel_job(Some(&who("a")), id).await.unwrap();
            assert_eq!((job.state, job.has_result), (JobState::Cancelled, false));
        }
        assert_eq!(
            engine.job_outcome(None, id).await.unwrap_err().code(),
            Code::Cancelled
        );
    }
    assert_eq!(place.works.began().len(), 1, "what waited never ran");
    let done = engine.submit(call("a", json!({}))).await.unwrap();
    ended(&engine, &done.id).await;
    assert_eq!(
        engine.cancel_job(None, &done.id).await.unwrap().state,
        JobState::Succeeded
    );
}

#[tokio::test]
async fn another_process_sees_follows_and_cancels_a_job() {
    let place = Fixture::new();
    let (here, there) = (place.engine(None), place.engine(None));
    let job = here
        .submit(call("a", json!({"wait": true, "steps": 3})))
        .await
        .unwrap();
    place.works.until_began(1).await;
    let events = there
        .follow_job(Some(&who("a")), &job.id, None)
        .await
        .unwrap();
    assert_eq!(
        there.job_outcome(None, &job.id).await.unwrap_err().code(),
        Code::Conflict
    );
    // The process that runs the job polls for cancels: the reply may come before it has noticed.
    let cancelled = there.cancel_job(Some(&who("a")), &job.id).await.unwrap();
    assert!(
        matches!(cancelled.state, JobState::Cancelled | JobState::Running),
        "{cancelled:?}"
    );
    let events: Vec<JobEvent> = ends("the events", events.collect()).await;
    assert_eq!(
        events.last().unwrap().job.state,
        JobState::Cancelled,
        "{events:?}"
    );
    assert!(
        events.is_sorted_by(|one, other| one.number < other.number),
        "{events:?}"
    );
    assert_eq!(
        here.job(None, &job.id).await.unwrap().state,
        JobState::Cancelled
    );
}

#[tokio::test]
async fn a_job_is_its_callers_own() {
    let place = Fixture::new();
    let (here, there) = (place.engine(Some(keyring())), place.engine(Some(keyring())));
    let job = here.submit(call("a", json!({"wait": true}))).await.unwrap();
    place.works.until_began(1).await;
    let strangers = [
        Identity::new("t", "b").unwrap(),
        Identity::new("u", "a").unwrap(),
        Identity::local(),
        Identity::anonymous(),
    ];
    for stranger in &strangers {
        for engine in [&here, &there] {
            let owner = Some(stranger);
            assert_eq!(
                engine.job(owner, &job.id).await.unwrap_err().code(),
                Code::NotFound
            );
            assert_eq!(
                engine.job_outcome(owner, &job.id).await.unwrap_err().code(),
                Code::NotFound
            );
            assert_eq!(
                engine.cancel_job(owner, &job.id).await.unwrap_err().code(),
                Code::NotFound
            );
            assert_eq!(
                engine
                    .follow_job(owner, &job.id, None)
                    .await
                    .err()
                    .unwrap()
                    .code(),
                Code::NotFound
            );
            assert!(
                engine
                    .jobs(owner, &JobQuery::default())
                    .await
                    .unwrap()
                    .jobs
                    .is_empty()
            );
        }
    }
    assert_eq!(
        here.job(Some(&who("a")), &job.id).await.unwrap().state,
        JobState::Running
    );
    place.works.gate.add_permits(1);
    ended(&here, &job.id).await;
    for stranger in &strangers {
        assert_eq!(
            there
                .job_outcome(Some(stranger), &job.id)
                .await
                .unwrap_err()
                .code(),
            Code::NotFound
        );
    }
    assert!(there.job_outcome(Some(&who("a")), &job.id).await.is_ok());
}

#[tokio::test]
async fn only_sealed_results_outlive_the_process() {
    let place = Fixture::new();
    let finished = async |keyring: Option<KeyRing>| {
        let engine = place.engine(keyring);
        let job = engine
            .submit(call("a", json!({"name": "canary-of-a-result"})))
            .await
            .unwrap();
        ended(&engine, &job.id).await;
        assert!(engine.job_outcome(None, &job.id).await.is_ok());
        engine.shutdown().await;
        job.id
    };
    let (sealed, unsealed) = (finished(Some(keyring())).await, finished(None).await);
    let after = place.engine(Some(keyring()));
    assert_eq!(
        after
            .job_outcome(None, &sealed)
            .await
            .unwrap()
            .output
            .to_value()["name"],
        "canary-of-a-result"
    );
    let job = after.job(None, &unsealed).await.unwrap();
    assert_eq!((job.state, job.has_result), (JobState::Succeeded, false));
    let error = after.job_outcome(None, &unsealed).await.unwrap_err();
    assert_eq!(
        (error.code(), error.message().contains("no memory key")),
        (Code::NotFound, true),
        "{error}"
    );
    let other = KeyRing::parse(("K", &"77".repeat(32)), None).unwrap();
    for (keyring, why) in [
        (None, "sealed with the memory key"),
        (Some(other), "another memory key"),
    ] {
        let error = place
            .engine(keyring)
            .job_outcome(None, &sealed)
            .await
            .unwrap_err();
        assert!(
            error.code() == Code::NotFound && error.message().contains(why),
            "{error}"
        );
    }
    for file in std::fs::read_dir(place.folder.path())
        .unwrap()
        .map(|file| file.unwrap().path())
    {
        let bytes = if file.is_file() {
            std::fs::read(&file).unwrap()
        } else {
            Vec::new()
        };
        assert!(
            !bytes.windows(6).any(|window| window == b"canary"),
            "{} holds a result or an input",
            file.display()
        );
    }
}

#[tokio::test]
async fn missing_large_results_have_a_reason() {
    let mut place = Fixture::new();
    (
        place.config.jobs.max_result_bytes,
        place.config.jobs.memory_bytes,
    ) = (1000, 5000);
    let engine = place.engine(None);
    let run = async |bytes: u64| {
        let job = engine
            .submit(call("a", json!({"bytes": bytes})))
            .await
            .unwrap();
        ended(&engine, &job.id).await;
        job.id
    };
    let large = run(1001).await;
    let error = engine.job_outcome(None, &large).await.unwrap_err();
    assert!(error.message().contains("max_result_bytes"), "{error}");
    assert!(!engine.job(None, &large).await.unwrap().has_result);
    let (first, second) = (run(900).await, run(900).await);
    assert!(engine.job_outcome(None, &second).await.is_ok());
    assert_eq!(
        engine.job_outcome(None, &first).await.unwrap_err().code(),
        Code::NotFound
    );
    assert!(!engine.job(None, &first).await.unwrap().has_result);
}

#[tokio::test]
async fn jobs_of_lost_process_failed_and_are_retryable() {
    let place = Fixture::new();
    let system = place.system();
    let owner = system.replica().await.unwrap();
    let ids: Vec<_> = [("queued", None), ("running", Some(place.clock.now()))]
        .map(|(state, started_at)| helmdeck_system::jobs::JobRow {
            id: format!("{:032x}", state.len()),
            tenant: "t".into(),
            subject: "a".into(),
            pack: "t.work".into(),
            version: 1,
            state: state.into(),
            owner: owner.id().to_string(),
            revision: 3,
            percent: None,
            message: None,
            progress_at: None,
            created_at: place.clock.now(),
            started_at,
            ended_at: None,
            expires_at: place.clock.now(),
            error: None,
            artifacts: None,
            kept: "none".into(),
            attempt: 1,
            retries: 0,
            due_at: None,
        })
        .into();
    for row in &ids {
        assert!(system.add_job(row.clone(), 10).await.unwrap());
    }
    let engine = place.engine(None);
    let ids: Vec<_> = ids
        .iter()
        .map(|row| JobId::parse(&row.id).unwrap())
        .collect();
    for (id, state) in ids.iter().zip([JobState::Queued, JobState::Running]) {
        assert_eq!(
            engine.job(None, id).await.unwrap().state,
            state,
            "its owner lives"
        );
    }
    drop(owner);
    for id in &ids {
        let job = engine.job(Some(&who("a")), id).await.unwrap();
        let error = job.error.clone().unwrap();
        assert_eq!(
            (job.state, error.retry),
            (JobState::Failed, helmdeck_core::error::Retry::Later)
        );
        assert!(
            error.message.contains("start it again") && job.ended_at.is_some() && job.revision == 4,
            "{job:?}"
        );
        assert_eq!(
            engine.job_outcome(None, id).await.unwrap_err().code(),
            Code::Overloaded
        );
    }
}

#[tokio::test]
async fn shutdown_fails_jobs_and_never_cancels() {
    let mut place = Fixture::new();
    place.config.jobs.concurrency = 1;
    let engine = place.engine(None);
    let running = engine
        .submit(call("a", json!({"wait": true})))
        .await
        .unwrap();
    place.works.until_began(1).await;
    let waiting = engine
        .submit(call("a", json!({"name": "never"})))
        .await
        .unwrap();
    engine.drain_jobs().await;
    assert_eq!(
        engine.job(None, &waiting.id).await.unwrap().state,
        JobState::Failed
    );
    assert_eq!(
        engine.job(None, &running.id).await.unwrap().state,
        JobState::Running,
        "it may still end by itself"
    );
    assert_eq!(
        engine
            .submit(call("a", json!({})))
            .await
            .unwrap_err()
            .code(),
        Code::Overloaded
    );
    engine.shutdown().await;
    let after = place.engine(None);
    for id in [&running.id, &waiting.id] {
        let job = after.job(None, id).await.unwrap();
        assert_eq!(
            (job.state, job.error.unwrap().code),
            (JobState::Failed, Code::Overloaded)
        );
    }
    assert_eq!(place.works.began().len(), 1);
}

#[tokio::test]
async fn jobs_list_newest_first_by_page_and_state() {
    let place = Fixture::new();
    for engine in [
        place.engine(None),
        Engine::builder(Config::default())
            .builtins(vec![place.works.pack()])
            .build(),
    ] {
        let mut made = Vec::new();
        for n in 0..5 {
            let job = engine
                .submit(call("a", json!({"fail": n == 1})))
                .await
                .unwrap();
            ended(&engine, &job.id).await;
            made.insert(0, job.id);
        }
        let mut seen = Vec::new();
        let mut query = JobQuery {
            limit: 2,
            ..JobQuery::default()
        };
        loop {
            let page = engine.jobs(Some(&who("a")), &query).await.unwrap();
            seen.extend(page.jobs.into_iter().map(|job| job.id));
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        assert_eq!(seen, made);
        let failed = JobQuery {
            state: Some(JobState::Failed),
            ..JobQuery::default()
        };
        let failed: Vec<_> = engine
            .jobs(None, &failed)
            .await
            .unwrap()
            .jobs
            .into_iter()
            .map(|job| job.id)
            .collect();
        assert_eq!(failed, [made[3].clone()]);
    }
}

#[tokio::test]
async fn jobs_are_deleted_exactly_at_expiry() {
    let place = Fixture::new();
    let engine = place.engine(None);
    let job = engine.submit(call("a", json!({}))).await.unwrap();
    let done = ended(&engine, &job.id).await;
    assert_eq!(
        done.expires_at.since(done.ended_at.unwrap()),
        Duration::from_secs(86_400)
    );
    let held = engine
        .submit(call("a", json!({"wait": true})))
        .await
        .unwrap();
    place.works.until_began(2).await;
    place.clock.advance(Duration::from_secs(86_399));
    assert!(engine.job(None, &job.id).await.is_ok());
    place.clock.advance(Duration::from_secs(1));
    let other = place.engine(None);
    assert_eq!(
        other.job(None, &job.id).await.unwrap_err().code(),
        Code::NotFound
    );
    assert_eq!(place.system().sweep(place.clock.now()).await.unwrap(), 1);
    let state = async || other.job(None, &held.id).await.unwrap().state;
    // The row says so a moment after the call began.
    while state().await == JobState::Queued {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(
        state().await,
        JobState::Running,
        "what runs is kept, however old"
    );
}

#[tokio::test]
async fn malformed_row_is_an_error_and_hides_no_other() {
    let place = Fixture::new();
    let engine = place.engine(None);
    let mut ids = Vec::new();
    for _ in 0..3 {
        let job = engine.submit(call("a", json!({}))).await.unwrap();
        ended(&engine, &job.id).await;
        ids.push(job.id);
    }
    engine.shutdown().await;
    let file = place.folder.path().join("helmdeck.db");
    for (id, change) in [
        (&ids[0], "state = 'dancing'"),
        (&ids[1], "artifacts = '[{]'"),
    ] {
        let status = std::process::Command::new("sqlite3")
            .arg(&file)
            .arg(format!("UPDATE jobs SET {change} WHERE id = '{id}'"))
            .status()
            .unwrap();
        assert!(status.success());
    }
    let after = place.engine(None);
    for id in &ids[..2] {
        assert_eq!(
            after.job(None, id).await.unwrap_err().code(),
            Code::Internal
        );
        assert_eq!(
            after.job(Some(&who("b")), id).await.unwrap_err().code(),
            Code::NotFound
        );
    }
    let listed = after.jobs(None, &JobQuery::default()).await.unwrap().jobs;
    assert_eq!(
        listed.into_iter().map(|job| job.id).collect::<Vec<_>>(),
        [ids[2].clone()]
    );
}

//! Jobs of two servers on one PostgreSQL: what waits for any, and what stays.

use helmdeck_testkit::Postgres;

use super::*;

/// Engines on one database.
struct Shared {
    database: Arc<Postgres>,
    url: String,
    place: Fixture,
}

impl Shared {
    fn new() -> Self {
        let (database, mut place) = (Postgres::shared(), Fixture::new());
        place.config.jobs.concurrency = 1;
        Self {
            url: database.database(),
            database,
            place,
        }
    }

    fn engine(&self, keyring: Option<KeyRing>) -> Engine {
        let system = System::connect(&self.url, &helmdeck_memory::Config::default()).unwrap();
        let builder =
            Engine::builder(self.place.config.clone()).builtins(vec![self.place.works.pack()]);
        let clock = Arc::clone(&self.place.clock) as _;
        builder
            .jobs(system, keyring.map(Arc::new))
            .clock(clock)
            .build()
    }

    fn server(&self, keyring: Option<KeyRing>) -> Engine {
        let engine = self.engine(keyring);
        engine.serve_jobs(None);
        engine
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_waits_runs_on_any_server() {
    let shared = Shared::new();
    let (one, two) = (
        shared.server(Some(keyring())),
        shared.server(Some(keyring())),
    );
    for name in ["first", "second"] {
        one.submit(call("a", json!({"name": name, "wait": true})))
            .await
            .unwrap();
    }
    shared.place.works.until_began(2).await;
    let third = one
        .submit(call("b", json!({"name": "third", "steps": 2})))
        .await
        .unwrap();
    let events = two
        .follow_job(Some(&who("b")), &third.id, None)
        .await
        .unwrap();
    shared.place.works.gate.add_permits(2);
    let events: Vec<JobEvent> = ends("the events", events.collect()).await;
    let states: Vec<_> = events.iter().map(|event| event.job.state).collect();
    assert_eq!(
        (states[0], *states.last().unwrap()),
        (JobState::Queued, JobState::Succeeded),
        "{states:?}"
    );
    assert!(events.is_sorted_by_key(|event| event.number));
    for engine in [&one, &two] {
        let outcome = engine
            .job_outcome(Some(&who("b")), &third.id)
            .await
            .unwrap();
        assert_eq!(outcome.output.to_value()["name"], "third");
    }
    one.shutdown().await;
    two.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn job_without_a_key_or_a_server_stays() {
    let shared = Shared::new();
    for engine in [shared.server(None), shared.engine(Some(keyring()))] {
        let job = engine.submit(call("a", json!({}))).await.unwrap();
        ended(&engine, &job.id).await;
        engine.shutdown().await;
    }
    let shown = shared.database.query(
        &shared.url,
        "SELECT count(*), count(label) FROM system_jobs",
    );
    assert_eq!(shown.trim(), "2|0");
}

#[tokio::test(flavor = "multi_thread")]
async fn swapped_calls_never_run() {
    let shared = Shared::new();
    let server = shared.server(Some(keyring()));
    let held = server
        .submit(call("a", json!({"name": "held", "wait": true})))
        .await
        .unwrap();
    shared.place.works.until_began(1).await;
    let mut swapped = Vec::new();
    for user in ["b", "c"] {
        swapped.push(
            server
                .submit(call(user, json!({"name": "swapped"})))
                .await
                .unwrap()
                .id,
        );
    }
    let (one, other) = (&swapped[0], &swapped[1]);
    let swap = format!(
        "UPDATE system_job_calls c SET sealed = o.sealed FROM system_job_calls o
         WHERE (c.id, o.id) IN (('{one}', '{other}'), ('{other}', '{one}'))"
    );
    shared.database.sql(&shared.url, &swap);
    shared.place.works.gate.add_permits(1);
    ended(&server, &held.id).await;
    for id in &swapped {
        let job = ended(&server, id).await;
        assert_eq!(
            (job.state, job.error.unwrap().code),
            (JobState::Failed, Code::Internal)
        );
    }
    assert_eq!(shared.place.works.began(), ["held"]);
    server.shutdown().await;
}

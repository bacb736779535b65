//! Jobs and results in the memory of a process, and when they are dropped.

use super::*;

#[tokio::test]
async fn forgotten_job_leaves_server_memory_too() {
    let place = Fixture::new();
    let engine = place.engine(None);
    let (theirs, other) = (
        engine
            .submit(call("a", json!({"name": "canary"})))
            .await
            .unwrap(),
        engine.submit(call("b", json!({}))).await.unwrap(),
    );
    ended(&engine, &theirs.id).await;
    ended(&engine, &other.id).await;
    assert!(
        engine
            .job_outcome(Some(&who("a")), &theirs.id)
            .await
            .is_ok()
    );
    assert_eq!(
        place.system().forget_ended_jobs("t", "a").await.unwrap(),
        (1, 0)
    );
    for owner in [None, Some(&*who("a"))] {
        assert_eq!(
            engine
                .job_outcome(owner, &theirs.id)
                .await
                .unwrap_err()
                .code(),
            Code::NotFound
        );
        assert_eq!(
            engine.job(owner, &theirs.id).await.unwrap_err().code(),
            Code::NotFound
        );
        assert_eq!(
            engine
                .follow_job(owner, &theirs.id, None)
                .await
                .err()
                .unwrap()
                .code(),
            Code::NotFound
        );
    }
    assert!(engine.job_outcome(Some(&who("b")), &other.id).await.is_ok());
}

#[tokio::test]
async fn state_list_includes_unsaved_changes() {
    let place = Fixture::new();
    let (here, there) = (place.engine(None), place.engine(None));
    let job = here.submit(call("a", json!({"wait": true}))).await.unwrap();
    let queued = JobQuery {
        state: Some(JobState::Queued),
        ..JobQuery::default()
    };
    let running = JobQuery {
        state: Some(JobState::Running),
        ..JobQuery::default()
    };
    helmdeck_testkit::until("the start", async || {
        !there.jobs(None, &running).await.unwrap().jobs.is_empty()
    })
    .await;
    // As if the row were a moment behind.
    let file = place.folder.path().join("helmdeck.db");
    let status = std::process::Command::new("sqlite3")
        .arg(&file)
        .arg("UPDATE jobs SET state = 'queued'")
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(there.jobs(None, &queued).await.unwrap().jobs.len(), 1);
    assert!(here.jobs(None, &queued).await.unwrap().jobs.is_empty());
    assert!(
        here.jobs(Some(&who("b")), &running)
            .await
            .unwrap()
            .jobs
            .is_empty()
    );
    let listed = here.jobs(Some(&who("a")), &running).await.unwrap().jobs;
    assert_eq!(
        listed.into_iter().map(|job| job.id).collect::<Vec<_>>(),
        [job.id]
    );
    place.works.gate.add_permits(1);
}

#[tokio::test]
async fn small_results_count_their_overhead() {
    let mut place = Fixture::new();
    place.config.jobs.memory_bytes = 3000;
    let engine = place.engine(None);
    let mut ids = Vec::new();
    for _ in 0..2 {
        let job = engine.submit(call("a", json!({}))).await.unwrap();
        ended(&engine, &job.id).await;
        ids.push(job.id);
    }
    let error = engine.job_outcome(None, &ids[0]).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound, "{error}");
    assert_eq!(
        engine.job(None, &ids[0]).await.unwrap().state,
        JobState::Succeeded,
        "that it ended is in the record"
    );
    assert!(engine.job_outcome(None, &ids[1]).await.is_ok());
}

#[tokio::test]
async fn old_reports_are_dropped_last_one_stays() {
    let place = Fixture::new();
    let engine = place.engine(None);
    let job = engine.submit(call("a", json!({"steps": 5}))).await.unwrap();
    ended(&engine, &job.id).await;
    let events = async || -> usize {
        let events = engine.follow_job(None, &job.id, Some(0)).await.unwrap();
        ends("the events", events.count()).await
    };
    assert!(events().await > 5);
    place.clock.advance(Duration::from_secs(60));
    helmdeck_testkit::until("the end of old reports", async || events().await <= 1).await;
    assert_eq!(events().await, 1);
}

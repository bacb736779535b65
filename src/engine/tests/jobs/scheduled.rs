//! Schedules: what a server makes up after a downtime.

use super::*;

/// Makes a server with a pack that is due each hour.
fn server(place: &Fixture) -> Engine {
    let works = place.works.clone();
    let text = manifest(
        "t.hourly",
        "",
        "timeout = \"10m\"\n[schedule]\nevery = \"1h\"\ninput = { name = \"due\" }\n",
    );
    let (pack, _) = function(&text, move |context: Context, input: Json| {
        let works = works.clone();
        async move { works.run(context, input).await }
    });
    let builder = Engine::builder(place.config.clone())
        .builtins(vec![pack])
        .jobs(place.system(), None);
    let engine = builder.clock(Arc::clone(&place.clock) as _).build();
    assert!(engine.refused().is_empty(), "{:?}", engine.refused());
    engine.serve_jobs(Some(Identity::new("t", "robot").unwrap()));
    engine
}

async fn due_times(engine: &Engine) -> Vec<i64> {
    let jobs = engine
        .jobs(Some(&who("robot")), &JobQuery::default())
        .await
        .unwrap()
        .jobs;
    let mut times: Vec<_> = jobs
        .iter()
        .map(|job| job.schedule.unwrap().due_at.micros())
        .collect();
    times.reverse();
    times
}

#[tokio::test]
async fn one_missed_run_is_made_up() {
    const HOUR: Duration = Duration::from_secs(3600);
    let place = Fixture::new();
    let first = server(&place);
    // The first due time is only noted; then each hour is due.
    while place.works.began().is_empty() {
        place.clock.advance(HOUR);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    first.shutdown().await;
    let before = place.works.began().len();
    place.clock.advance(10 * HOUR);
    let now = place.clock.now().micros();
    let second = server(&place);
    place.works.until_began(before + 1).await;
    place.clock.advance(HOUR);
    place.works.until_began(before + 2).await;
    let times = due_times(&second).await;
    let hour = i64::try_from(HOUR.as_micros()).unwrap();
    assert_eq!(
        times[before..],
        [now - now % hour, now - now % hour + hour],
        "one for ten hours, then the next"
    );
    assert!(place.works.began().iter().all(|name| name == "due"));
    let pack = second
        .packs()
        .into_iter()
        .find(|pack| pack.name.as_str() == "t.hourly")
        .unwrap();
    assert_eq!(pack.schedule.unwrap().when, "every 1h");
    second.shutdown().await;
}

//! Rows of jobs: which owner may change them, what makes room, and the end of jobs without an owner.

use std::time::Duration;

use super::*;

const NOW: Timestamp = Timestamp(1_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);

struct Fixture {
    folder: tempfile::TempDir,
    system: System,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let system = System::at(folder.path().join("helmdeck.db"));
        Self { folder, system }
    }

    fn locks(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("jobs")).map_or(0, Iterator::count)
    }

    async fn add(&self, owner: &str, subject: &str, number: u32) -> JobRow {
        let row = row(owner, subject, number);
        assert!(self.system.add_job(row.clone(), 100).await.unwrap());
        row
    }

    async fn find(&self, row: &JobRow) -> Option<JobRow> {
        self.system.find_job(&row.id, NOW).await.unwrap()
    }

    async fn end_lost(&self) -> u64 {
        self.system.end_lost_jobs("{}", NOW, NOW.saturating_add(DAY)).await.unwrap()
    }
}

fn row(owner: &str, subject: &str, number: u32) -> JobRow {
    JobRow {
        id: format!("{number:032x}"),
        tenant: "t".into(),
        subject: subject.into(),
        pack: "a.b".into(),
        version: 2,
        state: "queued".into(),
        owner: owner.into(),
        revision: 1,
        percent: None,
        message: None,
        progress_at: None,
        created_at: NOW,
        started_at: None,
        ended_at: None,
        expires_at: NOW.saturating_add(DAY),
        error: None,
        artifacts: None,
        kept: "none".into(),
    }
}

fn ended(row: &JobRow) -> JobRow {
    JobRow {
        state: "succeeded".into(),
        revision: row.revision + 1,
        ended_at: Some(NOW),
        kept: "sealed".into(),
        ..row.clone()
    }
}

#[tokio::test]
async fn reads_create_no_files() {
    let place = Fixture::new();
    assert!(place.find(&row("o", "a", 1)).await.is_none());
    assert!(place.system.jobs(JobFilter::default(), 10, NOW).await.unwrap().is_empty());
    assert!(!place.system.ask_to_cancel_job("x").await.unwrap());
    assert_eq!(place.end_lost().await, 0);
    assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), 0);
    let owner = place.system.own_jobs().await.unwrap();
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &str| place.folder.path().join(path).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("jobs"), mode(&format!("jobs/{}.lock", owner.name()))), (0o700, 0o600));
    drop(owner);
    assert_eq!(place.locks(), 0);
}

#[tokio::test]
async fn rows_round_trip_and_stale_saves_lose() {
    let place = Fixture::new();
    let first = place.add("o", "a", 1).await;
    assert_eq!(place.find(&first).await, Some(first.clone()));
    let mut running = JobRow { state: "running".into(), revision: 5, started_at: Some(NOW), ..first.clone() };
    (running.percent, running.message, running.progress_at) = (Some(0.5), Some("half".into()), Some(NOW));
    place.system.save_jobs(vec![(running.clone(), None)]).await.unwrap();
    place.system.save_jobs(vec![(JobRow { revision: 4, ..first.clone() }, None)]).await.unwrap();
    assert_eq!(place.find(&first).await, Some(running.clone()));
    let mut done = ended(&running);
    (done.error, done.artifacts) = (Some("{\"a\":1}".into()), Some("[]".into()));
    place.system.save_jobs(vec![(done.clone(), Some(b"sealed".to_vec()))]).await.unwrap();
    let late = JobRow { revision: 99, ..running };
    let stranger = JobRow { owner: "other".into(), ..late.clone() };
    place.system.save_jobs(vec![(late, None), (stranger, None)]).await.unwrap();
    assert_eq!(place.find(&first).await, Some(done));
    assert_eq!(place.system.job_result(&first.id).await.unwrap().as_deref(), Some(&b"sealed"[..]));
}

#[tokio::test]
async fn only_ended_jobs_make_room() {
    let place = Fixture::new();
    let rows = [place.add("o", "a", 1).await, place.add("o", "a", 2).await, place.add("o", "b", 3).await];
    assert!(!place.system.add_job(row("o", "a", 4), 2).await.unwrap());
    assert!(place.system.add_job(row("o", "b", 5), 2).await.unwrap(), "another caller has its own room");
    place.system.save_jobs(vec![(ended(&rows[0]), None), (ended(&rows[2]), None)]).await.unwrap();
    assert!(place.system.add_job(row("o", "a", 4), 2).await.unwrap());
    let ids: Vec<_> =
        place.system.jobs(JobFilter::default(), 10, NOW).await.unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(ids, [5, 4, 3, 2].map(|number| format!("{number:032x}")));
}

#[tokio::test]
async fn job_list_filters_and_pages() {
    let place = Fixture::new();
    for number in 1..=4 {
        place.add("o", if number % 2 == 0 { "even" } else { "odd" }, number).await;
    }
    let list = async |filter: JobFilter, limit| -> Vec<u32> {
        let rows = place.system.jobs(filter, limit, NOW).await.unwrap();
        rows.into_iter().map(|row| u32::from_str_radix(&row.id, 16).unwrap()).collect()
    };
    let of = |subject: &str| JobFilter { caller: Some(("t".into(), subject.into())), ..JobFilter::default() };
    assert_eq!(list(of("even"), 9).await, [4, 2]);
    assert_eq!(list(of("nobody"), 9).await, [0; 0]);
    assert_eq!(list(JobFilter::default(), 3).await, [4, 3, 2]);
    assert_eq!(list(JobFilter { before: Some(format!("{:032x}", 3)), ..JobFilter::default() }, 9).await, [2, 1]);
    assert_eq!(list(JobFilter { state: Some("running".into()), ..of("odd") }, 9).await, [0; 0]);
    assert_eq!(list(JobFilter { state: Some("queued".into()), ..of("odd") }, 9).await, [3, 1]);
}

#[tokio::test]
async fn a_cancel_reaches_the_owner_of_a_live_job_only() {
    let place = Fixture::new();
    let (live, done) = (place.add("o", "a", 1).await, place.add("o", "a", 2).await);
    place.system.save_jobs(vec![(ended(&done), None)]).await.unwrap();
    assert!(place.system.ask_to_cancel_job(&live.id).await.unwrap());
    assert!(!place.system.ask_to_cancel_job(&done.id).await.unwrap());
    assert_eq!(place.system.jobs_to_cancel("o").await.unwrap(), std::slice::from_ref(&live.id));
    assert!(place.system.jobs_to_cancel("other").await.unwrap().is_empty());
    place.system.save_jobs(vec![(ended(&live), None)]).await.unwrap();
    assert!(place.system.jobs_to_cancel("o").await.unwrap().is_empty());
}

#[tokio::test]
async fn jobs_end_with_their_owner_and_not_before() {
    let place = Fixture::new();
    let (one, two) = (place.system.own_jobs().await.unwrap(), place.system.own_jobs().await.unwrap());
    let (mine, theirs) = (place.add(one.name(), "a", 1).await, place.add(two.name(), "a", 2).await);
    let done = place.add(one.name(), "a", 3).await;
    place.system.save_jobs(vec![(ended(&done), None)]).await.unwrap();
    assert_eq!(place.end_lost().await, 0);
    drop(one);
    assert_eq!(place.end_lost().await, 1);
    let lost = place.find(&mine).await.unwrap();
    assert_eq!((lost.state.as_str(), lost.ended_at, lost.revision), ("failed", Some(NOW), 2));
    assert_eq!(place.find(&theirs).await, Some(theirs.clone()));
    assert_eq!(place.find(&done).await, Some(ended(&done)));
    assert_eq!((place.end_lost().await, place.locks()), (0, 1));
}

#[tokio::test]
async fn lock_of_a_killed_process_is_removed() {
    let place = Fixture::new();
    let owner = place.system.own_jobs().await.unwrap();
    for (number, name) in [(1, "00ff"), (2, "00aa"), (3, "../helmdeck"), (4, "")] {
        place.add(name, "a", number).await;
    }
    // A lock file without a holder, as after kill -9; the others have none.
    std::fs::write(place.folder.path().join("jobs/00ff.lock"), "").unwrap();
    assert_eq!(place.end_lost().await, 4);
    assert_eq!(place.locks(), 1);
    std::fs::write(place.folder.path().join("jobs/00ff.lock"), "").unwrap();
    std::fs::write(place.folder.path().join("jobs/notes.txt"), "").unwrap();
    let next = place.system.own_jobs().await.unwrap();
    assert_eq!(place.locks(), 3, "the two owners, and what is none of ours");
    assert_ne!(owner.name(), next.name());
}

#[tokio::test]
async fn ended_jobs_are_swept_and_forgotten() {
    let place = Fixture::new();
    let rows = [place.add("o", "a", 1).await, place.add("o", "a", 2).await, place.add("o", "b", 3).await];
    place
        .system
        .save_jobs(vec![(ended(&rows[0]), Some(b"sealed-canary".to_vec())), (ended(&rows[2]), None)])
        .await
        .unwrap();
    let later = NOW.saturating_add(DAY);
    assert!(place.system.find_job(&rows[0].id, later).await.unwrap().is_none(), "its time is over");
    assert!(place.system.find_job(&rows[1].id, later).await.unwrap().is_some(), "it has not ended");
    assert_eq!(place.system.forget_ended_jobs("t", "a").await.unwrap(), (1, 1));
    for file in ["helmdeck.db", "helmdeck.db-wal"] {
        let bytes = std::fs::read(place.folder.path().join(file)).unwrap_or_default();
        assert!(!bytes.windows(13).any(|window| window == b"sealed-canary"), "{file}");
    }
    assert_eq!((place.system.sweep(NOW).await.unwrap(), place.system.sweep(later).await.unwrap()), (0, 1));
    assert!(place.find(&rows[2]).await.is_none() && place.find(&rows[1]).await.is_some());
}

#[tokio::test]
async fn a_lock_that_cannot_be_looked_at_hides_no_other() {
    let place = Fixture::new();
    let _owner = place.system.own_jobs().await.unwrap();
    let (odd, lost) = (place.add("00aa", "a", 1).await, place.add("00ff", "a", 2).await);
    // A link to itself cannot be opened by any user.
    std::os::unix::fs::symlink("00aa.lock", place.folder.path().join("jobs/00aa.lock")).unwrap();
    assert_eq!(place.end_lost().await, 1);
    assert_eq!(place.find(&lost).await.unwrap().state, "failed");
    assert_eq!(place.find(&odd).await, Some(odd.clone()));
}

#[tokio::test]
async fn gone_jobs_returns_missing_ids_only() {
    let place = Fixture::new();
    let ids = |numbers: &[u32]| -> Vec<String> { numbers.iter().map(|number| format!("{number:032x}")).collect() };
    assert_eq!(place.system.gone_jobs(ids(&[1])).await.unwrap(), ids(&[1]), "there is no database");
    place.add("o", "a", 1).await;
    assert_eq!(place.system.gone_jobs(ids(&[1, 2, 3])).await.unwrap(), ids(&[2, 3]));
    assert!(place.system.gone_jobs(Vec::new()).await.unwrap().is_empty());
}

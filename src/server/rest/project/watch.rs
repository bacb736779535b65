//! Watches the project for those who follow it: one task for all of them, and none while nobody
//! does.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use helmdeck_forge::Project;
use helmdeck_forge::layout::{HEALTH, JOURNAL, PAUSED};
use tokio::sync::watch;

use super::ProjectSettings;

/// Interval of looks.
const LOOK: Duration = Duration::from_secs(2);

/// Tells its followers when something in the project has changed.
#[derive(Debug, Clone)]
pub(crate) struct ProjectWatch(Arc<Watched>);

#[derive(Debug)]
struct Watched {
    settings: Arc<ProjectSettings>,
    /// The files that are looked at, once there is a project.
    paths: OnceLock<Vec<PathBuf>>,
    /// Number of changes that were seen.
    news: watch::Sender<u64>,
    /// Whether the task runs.
    runs: AtomicBool,
}

/// Time and length of each watched file; `None` for one that is not there.
pub(super) type Seen = Vec<Option<(SystemTime, u64)>>;

impl ProjectWatch {
    pub(super) fn new(settings: Arc<ProjectSettings>) -> Self {
        Self(Arc::new(Watched {
            settings,
            paths: OnceLock::new(),
            news: watch::Sender::new(0),
            runs: AtomicBool::new(false),
        }))
    }

    /// Follows the project. The number in it grows with each change.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        let follower = self.0.news.subscribe();
        if !self.0.runs.swap(true, Ordering::SeqCst) {
            tokio::spawn(Arc::clone(&self.0).run());
        }
        follower
    }

    /// Returns the present state of the watched files. Blocks.
    pub(super) fn look(&self) -> Seen {
        self.0.look_now()
    }

    #[cfg(test)]
    pub(crate) fn runs(&self) -> bool {
        self.0.runs.load(Ordering::SeqCst)
    }
}

impl Watched {
    async fn run(self: Arc<Self>) {
        let mut before = self.look().await;
        loop {
            tokio::time::sleep(LOOK).await;
            if self.news.receiver_count() == 0 {
                self.runs.store(false, Ordering::SeqCst);
                // A follower that came in between has seen the task run, and started none.
                if self.news.receiver_count() == 0 || self.runs.swap(true, Ordering::SeqCst) {
                    return;
                }
            }
            let now = self.look().await;
            if now != before {
                before = now;
                self.news.send_modify(|news| *news += 1);
            }
        }
    }

    async fn look(self: &Arc<Self>) -> Seen {
        let watched = Arc::clone(self);
        tokio::task::spawn_blocking(move || watched.look_now())
            .await
            .unwrap_or_default()
    }

    fn look_now(&self) -> Seen {
        let about = |path: &PathBuf| {
            let about = std::fs::metadata(path).ok()?;
            Some((about.modified().ok()?, about.len()))
        };
        self.paths().iter().map(about).collect()
    }

    /// Returns the files that every change touches: the journal, and what git writes for a commit
    /// or a checkout.
    fn paths(&self) -> &[PathBuf] {
        if let Some(paths) = self.paths.get() {
            return paths;
        }
        let Some(root) = &self.settings.root else {
            return &[];
        };
        let Ok(Some(project)) = Project::open_anyway(root, self.settings.environment.clone())
        else {
            return &[];
        };
        let mut paths: Vec<PathBuf> = [JOURNAL, PAUSED, HEALTH]
            .into_iter()
            .map(|path| project.root().join(path))
            .collect();
        if let Ok(git) = project.git() {
            paths.extend(
                ["HEAD", "index", "logs/HEAD"]
                    .into_iter()
                    .map(|path| git.git_dir().join(path)),
            );
        }
        self.paths.get_or_init(|| paths)
    }
}

#[cfg(test)]
mod tests {

    use super::super::tests::fixture::ProjectFixture;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn change_is_told_and_task_ends_without_followers() {
        let fixture = ProjectFixture::new().await;
        let watch = ProjectWatch::new(Arc::new(fixture.settings.clone()));
        assert!(!watch.runs(), "nobody follows");
        let mut follower = watch.follow();
        let quiet = tokio::time::timeout(LOOK * 5, follower.changed()).await;
        assert!(quiet.is_err(), "nothing has changed");
        let comment = "x";
        fixture
            .project
            .issues()
            .comment("LOCAL-1", comment)
            .unwrap();
        tokio::time::timeout(LOOK * 5, follower.changed())
            .await
            .unwrap()
            .unwrap();
        drop(follower);
        tokio::time::sleep(LOOK * 2).await;
        assert!(!watch.runs());
        let mut again = watch.follow();
        tokio::time::sleep(LOOK * 2).await;
        std::fs::write(fixture.path().join(".git/index"), "").unwrap();
        assert!(
            watch.runs()
                && tokio::time::timeout(LOOK * 5, again.changed())
                    .await
                    .is_ok()
        );
    }
}

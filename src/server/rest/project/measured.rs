//! Health of the project, measured once for all who look at the same time: it starts several
//! processes of git.

use std::sync::Arc;
use std::time::{Duration, Instant};

use helmdeck_forge::Project;
use helmdeck_forge::health::{Health, measure};
use parking_lot::Mutex;

use super::watch::{ProjectWatch, Seen};

/// How long a measurement is shared: changes of files that are not watched are seen after this.
const SHARED: Duration = Duration::from_secs(2);

/// The latest measurement. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Measured(Arc<Mutex<Option<Latest>>>);

#[derive(Debug)]
struct Latest {
    at: Instant,
    /// State of the watched files before it was measured.
    seen: Seen,
    health: Arc<Health>,
}

impl Measured {
    /// Returns the health of a project. Who asks while it is measured waits for that. Blocks.
    pub(super) fn of(&self, project: &Project, watch: &ProjectWatch) -> Arc<Health> {
        let mut latest = self.0.lock();
        let seen = watch.look();
        if let Some(known) = latest
            .as_ref()
            .filter(|known| known.at.elapsed() < SHARED && known.seen == seen)
        {
            return Arc::clone(&known.health);
        }
        let (at, health) = (Instant::now(), Arc::new(measure(project)));
        *latest = Some(Latest {
            at,
            seen,
            health: Arc::clone(&health),
        });
        health
    }

    /// Forgets the measurement after a change. Blocks while one is made.
    pub(super) fn forget(&self) {
        *self.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {

    use super::super::tests::fixture::ProjectFixture;
    use super::*;

    #[tokio::test]
    async fn change_ends_a_shared_measurement() {
        let fixture = ProjectFixture::new().await;
        let watch = ProjectWatch::new(Arc::new(fixture.settings.clone()));
        let (measured, project) = (Measured::default(), &fixture.project);
        let first = measured.of(project, &watch);
        let comment = "x";
        project.issues().comment("LOCAL-1", comment).unwrap();
        let second = measured.of(project, &watch);
        assert!(!Arc::ptr_eq(&first, &second), "the journal has changed");
        measured.forget();
        assert!(!Arc::ptr_eq(&second, &measured.of(project, &watch)));
    }
}

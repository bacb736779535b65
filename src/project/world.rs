//! What a project asks of the world besides its files: the time, ids that nobody else has, and who works on it.

use std::fmt;
use std::sync::Arc;

use helmdeck_core::{Clock, SystemClock};
use helmdeck_events::Sink;
use uuid::Uuid;

use crate::project::Project;
use crate::runner::Running;
use crate::time::Time;
use crate::trust::Trust;

/// Who works unless it is said.
pub const AGENT: &str = "Forge";

/// Ids that nobody else has.
pub trait Ids: Send + Sync + fmt::Debug {
    /// Returns a `UUIDv7` of this moment.
    fn uuid(&self, now: Time) -> Uuid;
}

/// Ids made of the time and of chance.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

impl Ids for RandomIds {
    fn uuid(&self, _: Time) -> Uuid {
        Uuid::now_v7()
    }
}

/// Knows the ways to event servers.
pub trait Links: Send + Sync + fmt::Debug {
    /// Returns the way to the server that the settings of a project name; none if they name none. Nothing is connected yet.
    fn link(&self, project: &Project) -> Option<Arc<dyn Sink>>;
}

/// What a project asks of the world. All of it is handed in, so every rule can be tested with a clock that stands.
#[derive(Clone)]
pub struct World {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The zone in which people read times; times in files are UTC but for `[HH:MM]` in `progress.txt`.
    pub zone: jiff::tz::TimeZone,
    /// New ids.
    pub ids: Arc<dyn Ids>,
    /// Who works: the name that stands in events and artifacts. `Forge` unless said otherwise (the persona of the RFC's examples).
    pub agent: String,
    /// The session in which the work is done, if it is said; else the one that lives in the work tree.
    pub session: Option<String>,
    /// Where events go besides the journal; by default where `links` says.
    pub sink: Option<Arc<dyn Sink>>,
    /// The checks that run.
    pub running: Arc<Running>,
    /// The ways to the servers that settings of projects name. None by default: what is to be sent waits.
    pub links: Option<Arc<dyn Links>>,
    /// Whose commands may run. By default nobody's.
    pub trust: Trust,
}

impl World {
    /// Returns the time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.clock.now().into()
    }

    /// Returns a new id.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.ids.uuid(self.now())
    }
}

impl Default for World {
    /// The machine's clock, UTC.
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock::default()),
            zone: jiff::tz::TimeZone::UTC,
            ids: Arc::new(RandomIds),
            agent: AGENT.to_owned(),
            session: None,
            sink: None,
            running: Arc::default(),
            links: None,
            trust: Trust::default(),
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("agent", &self.agent).finish_non_exhaustive()
    }
}

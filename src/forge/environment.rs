//! Environment of a project: clock, id generator, agent, event sinks, running checks, trust.

use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use helmdeck_core::{Clock, SystemClock};
use helmdeck_events::Sink;
use helmdeck_process::Running;
use jiff::tz::TimeZone;
use uuid::Uuid;

use crate::time::Time;

/// Default name of the agent.
pub const AGENT: &str = "Forge";

/// Generator of unique ids.
pub trait Ids: Send + Sync + fmt::Debug {
    /// Returns a `UUIDv7` of this moment.
    fn uuid(&self, now: Time) -> Uuid;
}

/// Ids made of the time and random bits.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

impl Ids for RandomIds {
    fn uuid(&self, _: Time) -> Uuid {
        Uuid::now_v7()
    }
}

/// Factory of event sinks.
pub trait Links: Send + Sync + fmt::Debug {
    /// Returns the sink for the server that the user calls `server`, for subjects that begin with
    /// `prefix`.
    ///
    /// The sink is not connected yet. If the user has no server of this name, the sink fails and
    /// says so.
    fn link(&self, server: &str, prefix: &str) -> Arc<dyn Sink>;
}

/// Whose commands may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Those of every project: for programs that only open projects of their own.
    Everything,
    /// Those that a person agreed to. The agreements are in this folder, one file for each clone.
    Kept(PathBuf),
    /// None.
    Nothing,
}

impl Default for Trust {
    /// Nothing.
    fn default() -> Self {
        // The tests of this crate open projects of their own.
        if cfg!(test) {
            Self::Everything
        } else {
            Self::Nothing
        }
    }
}

/// A time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Zone {
    /// UTC.
    #[default]
    Utc,
    /// The zone of the machine. It is looked up at its first use, because the lookup reads the
    /// whole folder of zones.
    System,
}

impl Deref for Zone {
    type Target = TimeZone;

    fn deref(&self) -> &TimeZone {
        static UTC: TimeZone = TimeZone::UTC;
        static SYSTEM: LazyLock<TimeZone> = LazyLock::new(TimeZone::system);
        match self {
            Self::Utc => &UTC,
            Self::System => &SYSTEM,
        }
    }
}

/// Environment of a project. All of it is injected, so every rule can be tested with a manual
/// clock.
#[derive(Clone)]
pub struct ProjectEnvironment {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The zone in which people read times; times in files are UTC but for `[HH:MM]` in
    /// `progress.txt`.
    pub zone: Zone,
    /// New ids.
    pub ids: Arc<dyn Ids>,
    /// Name of the agent in events and artifacts. Default: `Forge` (the persona of the RFC's
    /// examples).
    pub agent: String,
    /// Id of the work session. Default: the active session of the work tree.
    pub session: Option<String>,
    /// Sink of events besides the journal. Default: what `links` gives for a clone that is trusted.
    pub sink: Option<Arc<dyn Sink>>,
    /// Checks that are running.
    pub running: Arc<Running>,
    /// Factory of event sinks for the servers that the user has.
    ///
    /// Default: none, and events wait in the outbox.
    pub links: Option<Arc<dyn Links>>,
    /// Projects whose commands may run. Default: none.
    pub trust: Trust,
    /// Whether the caller may name tests, which others then run. Default: yes.
    pub may_name_tests: bool,
}

impl ProjectEnvironment {
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

impl Default for ProjectEnvironment {
    /// The machine's clock, UTC.
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock::default()),
            zone: Zone::Utc,
            ids: Arc::new(RandomIds),
            agent: AGENT.to_owned(),
            session: None,
            sink: None,
            running: Arc::default(),
            links: None,
            trust: Trust::default(),
            may_name_tests: true,
        }
    }
}

impl fmt::Debug for ProjectEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProjectEnvironment")
            .field("agent", &self.agent)
            .finish_non_exhaustive()
    }
}

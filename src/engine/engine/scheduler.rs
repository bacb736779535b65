//! Schedules of packs: looks every second whether one is due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{Call, Identity, PackName, Result, Timestamp};

use super::inner::Inner;
use crate::call_runner::JobRunner;
use crate::jobs::{JobId, RunPlan};
use crate::layers::{credentials, validate_input};
use crate::registry::Registered;

/// Interval of looks. They cost nothing unless a time is due.
const EVERY: Duration = Duration::from_secs(1);

/// What a server has done for schedules.
#[derive(Default)]
struct Done {
    /// The last due time of each pack that was taken by any server.
    due: BTreeMap<PackName, Timestamp>,
    /// The due time of each pack that is tried, with the job of its run. Each try has the same one.
    tried: BTreeMap<PackName, (Timestamp, JobId)>,
    /// Whether the missing caller was reported.
    reported: bool,
}

impl Inner {
    /// Runs schedules as jobs of a caller, until the engine ends. Without a caller it says once
    /// that none runs.
    pub(crate) fn run_schedules_in_background(self: &Arc<Self>, caller: Option<Arc<Identity>>) {
        let this = Arc::downgrade(self);
        let work = async move {
            let mut done = Done::default();
            while let Some(inner) = this.upgrade() {
                inner.run_due(caller.as_ref(), &mut done).await;
                drop(inner);
                tokio::time::sleep(EVERY).await;
            }
        };
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(work));
    }

    async fn run_due(self: &Arc<Self>, caller: Option<&Arc<Identity>>, done: &mut Done) {
        let now = self.clock.now();
        for pack in self.scheduled() {
            let Some(caller) = caller else {
                if !done.reported {
                    tracing::warn!(
                        "packs have schedules, and schedule.caller is not set, so none runs"
                    );
                    done.reported = true;
                }
                return;
            };
            let Some(schedule) = &pack.manifest.schedule else {
                continue;
            };
            let (name, due_at) = (&pack.manifest.name, schedule.timing.last(now));
            if done.due.get(name).is_some_and(|done| *done >= due_at) {
                continue;
            }
            let id = match done.tried.get(name) {
                Some((tried, id)) if *tried == due_at => id.clone(),
                _ => JobId::next(now),
            };
            done.tried.insert(name.clone(), (due_at, id.clone()));
            match self
                .run_scheduled(&pack, &schedule.input, caller, due_at, id)
                .await
            {
                Ok(()) => {
                    done.tried.remove(name);
                    done.due.insert(name.clone(), due_at);
                }
                Err(error) => {
                    tracing::debug!(pack = %name, %error, "a scheduled run is tried again")
                }
            }
        }
    }

    /// Returns the packs with a schedule, each in its latest version. A pack that was not read yet
    /// has none.
    pub(crate) fn scheduled(&self) -> Vec<Arc<Registered>> {
        let snapshot = self.registry.snapshot();
        let latest = snapshot
            .packs
            .values()
            .filter_map(|versions| versions.last()?.known());
        latest
            .filter(|pack| pack.manifest.schedule.is_some())
            .cloned()
            .collect()
    }

    async fn run_scheduled(
        self: &Arc<Self>,
        pack: &Arc<Registered>,
        input: &str,
        caller: &Arc<Identity>,
        due_at: Timestamp,
        id: JobId,
    ) -> Result<()> {
        let call = Call::new(
            pack.manifest.name.clone(),
            input.to_owned(),
            Arc::clone(caller),
        );
        let mut checked = call.clone();
        let mut allowed = validate_input::validate(&pack.validate_input, &mut checked).await;
        if let (Ok(_), Some(layer)) = (&allowed, &pack.credentials) {
            allowed = credentials::resolve(layer, &checked).map(drop);
        }
        if let Err(error) = allowed {
            // As a caller's request it would be refused, so that it never becomes a job.
            tracing::warn!(pack = %pack.manifest.name, %error, "a scheduled run is refused");
            self.jobs.refused_due();
            return Ok(());
        }
        let plan = RunPlan {
            bound: checked.stage.pinned_session.is_some(),
            ..pack.plan()
        };
        let runner: Arc<dyn JobRunner> = Arc::clone(self) as _;
        self.jobs.run_due(call, plan, due_at, id, &runner).await
    }
}

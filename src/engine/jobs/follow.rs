//! Event stream of one job.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::{Stream, stream};
use helmdeck_core::Code;
use tokio::sync::watch;

use super::book::LOOK_EVERY;
use super::live::Live;
use super::table::Jobs;
use super::{Job, JobEvent, JobId};

/// Source of events.
pub(super) enum EventSource {
    /// In this process.
    Live(Arc<Live>),
    /// In the database, with the job as it was read.
    Record(Option<Box<Job>>),
}

struct Following {
    jobs: Arc<Jobs>,
    source: EventSource,
    id: JobId,
    /// Number of the last event that was returned.
    after: Option<u64>,
    ready: VecDeque<JobEvent>,
    more: Option<watch::Receiver<u64>>,
    over: bool,
}

/// Returns the events of a job after one of them; without a number, the newest and all that follow.
///
/// A job that waits for any process may begin in this one, and one that ran in this one may go on
/// in another.
pub(super) fn events(
    jobs: Arc<Jobs>,
    source: EventSource,
    id: JobId,
    after: Option<u64>,
) -> impl Stream<Item = JobEvent> + Send + 'static {
    let mut following = Following {
        jobs,
        source,
        id,
        after,
        ready: VecDeque::new(),
        more: None,
        over: false,
    };
    if let EventSource::Live(live) = &following.source {
        // Subscribe now, not at the first poll, so that events in between are not missed.
        let live = Arc::clone(live);
        following.look(&live);
    }
    stream::unfold(following, |mut following| async move {
        let event = following.next().await?;
        Some((event, following))
    })
}

impl Following {
    fn look(&mut self, live: &Live) {
        let (events, ended, more) = live.events(self.after);
        self.ready.extend(events);
        self.more = Some(more);
        // After the last event the stream ends.
        self.over = self.ready.is_empty() && ended;
    }

    async fn next(&mut self) -> Option<JobEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.after = Some(event.number);
                self.over = event.job.state.is_final();
                return Some(event);
            }
            if self.over {
                return None;
            }
            match &mut self.source {
                EventSource::Live(live) => {
                    let live = Arc::clone(live);
                    if let Some(more) = &mut self.more {
                        // The job itself holds the sender, and we hold the job.
                        let _ = more.changed().await;
                    }
                    self.look(&live);
                    if self.ready.is_empty() && live.has_left() {
                        self.source = EventSource::Record(None);
                    }
                }
                EventSource::Record(found) => {
                    let job = found.take();
                    self.read(job).await?;
                }
            }
        }
    }

    /// Reads the row, a moment after the last read; `None` if the job is gone.
    async fn read(&mut self, found: Option<Box<Job>>) -> Option<()> {
        let job = match found {
            Some(job) => job,
            None => {
                let mut begun = self.jobs.claims.begun.subscribe();
                if self.here().is_none() {
                    tokio::select! {
                        () = tokio::time::sleep(LOOK_EVERY) => {}
                        _ = begun.changed() => {}
                    }
                }
                if let Some(live) = self.here() {
                    self.look(&live);
                    self.source = EventSource::Live(live);
                    return Some(());
                }
                match self.jobs.book.as_ref()?.job(None, &self.id).await {
                    Ok(job) => Box::new(job),
                    Err(error) if error.code() == Code::NotFound => return None,
                    // The database may be available at the next read.
                    Err(_) => return Some(()),
                }
            }
        };
        if self.after.is_none_or(|after| job.revision > after) {
            self.ready.push_back(JobEvent {
                number: job.revision,
                job: Arc::new(*job),
            });
        } else {
            self.over = job.state.is_final();
        }
        Some(())
    }

    /// Returns the job if it runs in this process.
    fn here(&self) -> Option<Arc<Live>> {
        self.jobs
            .table()
            .live
            .get(&self.id)
            .filter(|live| !live.has_left())
            .cloned()
    }
}

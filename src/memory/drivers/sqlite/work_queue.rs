//! Work queue of the reader threads.
//!
//! Under steady traffic a thread spins for a few microseconds before it sleeps, so that the next
//! job needs no wake-up: on a machine with idle cores, a wake-up costs several times a point read.
//! A thread spins only while jobs arrive back to back, and backs off when that does not pay: a rare
//! job finds it asleep, and no CPU time is wasted.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, SendError, Sender};

/// How long a thread watches for its next job.
const WATCH: Duration = Duration::from_micros(100);
/// Jobs that come within this time of each other are steady traffic.
const STEADY: Duration = Duration::from_micros(200);
/// A thread that watched in vain this often in a row watches for one job in `2^MAX_DOUBT` only.
const MAX_DOUBT: u32 = 6;

const BUSY: u8 = 0;
const WATCHING: u8 = 1;
const RESERVED: u8 = 2;

/// One queue for all threads, and a mailbox per thread for a job that it is awake for.
pub(super) struct WorkQueue<T> {
    queue: (Sender<T>, Receiver<T>),
    mailboxes: Vec<Mailbox<T>>,
}

struct Mailbox<T> {
    state: AtomicU8,
    job: (Sender<T>, Receiver<T>),
}

impl<T> std::fmt::Debug for WorkQueue<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkQueue")
            .field("threads", &self.mailboxes.len())
            .finish_non_exhaustive()
    }
}

impl<T> WorkQueue<T> {
    pub(super) fn new(threads: usize) -> Self {
        let mailbox = |_| Mailbox {
            state: AtomicU8::new(BUSY),
            job: crossbeam_channel::bounded(1),
        };
        Self {
            queue: crossbeam_channel::unbounded(),
            mailboxes: (0..threads).map(mailbox).collect(),
        }
    }

    /// Hands on a job; `true` if a thread is awake for it, so that the answer is only microseconds
    /// away.
    pub(super) fn send(&self, job: T) -> Result<bool, SendError<T>> {
        let reserve = |mailbox: &&Mailbox<T>| {
            mailbox
                .state
                .compare_exchange(WATCHING, RESERVED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        match self.mailboxes.iter().find(reserve) {
            // A claimed thread takes the job before anything else, so its mailbox is empty.
            Some(mailbox) => mailbox.job.0.send(job).map(|()| true),
            None => self.queue.0.send(job).map(|()| false),
        }
    }

    /// Runs every job that this thread gets, until `work` answers `false`.
    pub(super) fn run(&self, thread: usize, mut work: impl FnMut(T) -> bool) {
        let mailbox = &self.mailboxes[thread];
        // How often watching was in vain since it last paid off, and for how many jobs it is not
        // tried again.
        let (mut doubt, mut pause) = (0_u32, 0_u32);
        let mut steady = false;
        loop {
            let free_since = Instant::now();
            let watched = if steady && pause == 0 {
                let job = self.watch(mailbox);
                doubt = if job.is_some() {
                    0
                } else {
                    (doubt + 1).min(MAX_DOUBT)
                };
                pause = (1 << doubt) - 1;
                job
            } else {
                pause = pause.saturating_sub(1);
                None
            };
            let Some(job) = watched.or_else(|| self.queue.1.recv().ok()) else {
                return;
            };
            steady = free_since.elapsed() < STEADY;
            if !work(job) {
                return;
            }
        }
    }

    fn watch(&self, mailbox: &Mailbox<T>) -> Option<T> {
        let end = Instant::now() + WATCH;
        mailbox.state.store(WATCHING, Ordering::Release);
        while mailbox.state.load(Ordering::Acquire) == WATCHING
            && self.queue.1.is_empty()
            && Instant::now() < end
        {
            std::hint::spin_loop();
        }
        // A caller that claimed this thread in the last moment is about to put a job into its
        // mailbox.
        match mailbox.state.swap(BUSY, Ordering::AcqRel) {
            RESERVED => mailbox.job.1.recv().ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn every_job_is_done_once_awake_or_asleep() {
        const JOBS: usize = 20_000;
        let work_queue = Arc::new(WorkQueue::new(2));
        let done = Arc::new((0..JOBS).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>());
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let (work_queue, done) = (Arc::clone(&work_queue), Arc::clone(&done));
                std::thread::spawn(move || {
                    work_queue.run(thread, |job: Option<usize>| {
                        job.map(|job| done[job].fetch_add(1, Ordering::Relaxed))
                            .is_some()
                    });
                })
            })
            .collect();
        std::thread::scope(|scope| {
            for sender in 0..4 {
                let work_queue = &work_queue;
                scope.spawn(move || {
                    for job in (sender..JOBS).step_by(4) {
                        work_queue.send(Some(job)).unwrap();
                        if job % 997 == 0 {
                            std::thread::sleep(Duration::from_micros(200));
                        }
                    }
                });
            }
        });
        // One end for each thread; a thread that got its own gets no other.
        for _ in 0..2 {
            work_queue.queue.0.send(None).unwrap();
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(done.iter().all(|job| job.load(Ordering::Relaxed) == 1));
    }
}

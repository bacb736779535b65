//! Fair queue of conversations: bounded, each conversation at most once.
//!
//! Tenants take turns, however many conversations each has waiting. Within a tenant the order is
//! first come, first served; unfinished work goes to the end.
//!
//! What does not fit is dropped: the sweep finds it again, because the rows alone say what is due.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use helmdeck_memory::Namespace;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The queue. `N` is the worker's state of a conversation between two attempts.
#[derive(Debug)]
pub(super) struct FairQueue<N> {
    /// Maximum conversations that wait or back off.
    room: usize,
    slots: HashMap<Namespace, QueueEntry<N>>,
    /// The waiting conversations by tenant.
    tenants: HashMap<Arc<str>, VecDeque<Namespace>>,
    /// Tenants with waiting conversations, in order of service.
    turns: VecDeque<Arc<str>>,
    waiting: usize,
    /// Ends of backoffs. Entries may be outdated.
    alarms: BinaryHeap<Reverse<(Instant, Namespace)>>,
}

#[derive(Debug)]
struct QueueEntry<N> {
    phase: Phase,
    /// Whether the next attempt was requested, before its time.
    forced: bool,
    notes: N,
}

#[derive(Debug)]
enum Phase {
    Waiting,
    Running {
        /// Whether it was woken meanwhile.
        again: bool,
        /// Cancelled if the conversation is forgotten meanwhile.
        gone: CancellationToken,
    },
    BackingOff {
        until: Instant,
    },
}

/// A job. Report its end with [`FairQueue::ended`].
#[derive(Debug)]
pub(super) struct Job<N> {
    pub(super) namespace: Namespace,
    /// Whether it was requested, before its time.
    pub(super) forced: bool,
    /// Cancelled if the conversation is forgotten.
    pub(super) gone: CancellationToken,
    pub(super) notes: N,
}

/// Ending of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobEnd {
    /// Nothing is left to do.
    Done,
    /// There is more to do.
    More,
    /// Try again after a wait.
    Rest(Duration),
}

impl<N: Clone + Default> FairQueue<N> {
    pub(super) fn new(room: usize) -> Self {
        Self {
            room: room.max(1),
            slots: HashMap::new(),
            tenants: HashMap::new(),
            turns: VecDeque::new(),
            waiting: 0,
            alarms: BinaryHeap::new(),
        }
    }

    /// Queues a conversation unless it is queued or backs off. Returns whether the worker must be
    /// notified.
    pub(super) fn wake(&mut self, namespace: &Namespace) -> bool {
        match self.slots.get_mut(namespace) {
            Some(QueueEntry {
                phase: Phase::Running { again, .. },
                ..
            }) => {
                *again = true;
                false
            }
            Some(_) => false,
            None => {
                self.make_room(&namespace.tenant)
                    && self.push(namespace.clone(), false, N::default())
            }
        }
    }

    /// Queues a conversation even if it backs off or the queue is full.
    pub(super) fn force(&mut self, namespace: &Namespace) -> bool {
        let Some(slot) = self.slots.get_mut(namespace) else {
            return self.push(namespace.clone(), true, N::default());
        };
        slot.forced = true;
        match &mut slot.phase {
            Phase::Running { again, .. } => {
                *again = true;
                false
            }
            Phase::Waiting => false,
            Phase::BackingOff { .. } => {
                let notes = slot.notes.clone();
                self.push(namespace.clone(), true, notes)
            }
        }
    }

    /// Takes the next job. Without one, returns when the next backoff ends (`None` = no backoff).
    pub(super) fn next(&mut self, now: Instant) -> Result<Job<N>, Option<Instant>> {
        self.ring(now);
        let Some(namespace) = self.pop() else {
            return Err(self.alarms.peek().map(|Reverse((at, _))| *at));
        };
        let gone = CancellationToken::new();
        let phase = Phase::Running {
            again: false,
            gone: gone.clone(),
        };
        let (forced, notes) = match self.slots.get_mut(&namespace) {
            Some(slot) => {
                slot.phase = phase;
                (std::mem::take(&mut slot.forced), slot.notes.clone())
            }
            // Every waiting conversation has a slot.
            None => (false, N::default()),
        };
        Ok(Job {
            namespace,
            forced,
            gone,
            notes,
        })
    }

    /// Ends a job and keeps the notes for the next attempt. Returns whether the worker must be
    /// notified.
    pub(super) fn ended(
        &mut self,
        namespace: &Namespace,
        ended: JobEnd,
        notes: N,
        now: Instant,
    ) -> bool {
        let crowded = self.slots.len() > self.room;
        let Some(slot) = self.slots.get_mut(namespace) else {
            return false;
        };
        let Phase::Running { again, gone } = &slot.phase else {
            return false;
        };
        let (again, forced) = (*again, slot.forced);
        let notes = if gone.is_cancelled() {
            N::default()
        } else {
            notes
        };
        let rest = match ended {
            // A new turn is no reason to ask a failing summarizer again.
            JobEnd::Rest(wait) if !forced && !gone.is_cancelled() => wait,
            JobEnd::Done if !again => {
                self.slots.remove(namespace);
                return false;
            }
            JobEnd::Rest(_) if !again => {
                self.slots.remove(namespace);
                return false;
            }
            _ => return self.push(namespace.clone(), forced, notes),
        };
        if crowded {
            self.slots.remove(namespace);
            return false;
        }
        let until = now
            .checked_add(rest)
            .unwrap_or_else(|| now + Duration::from_secs(86_400));
        slot.phase = Phase::BackingOff { until };
        slot.notes = notes;
        self.alarms.push(Reverse((until, namespace.clone())));
        // A worker that sleeps until another alarm must know of this one.
        true
    }

    /// Removes a conversation, and cancels its job.
    pub(super) fn forget(&mut self, namespace: &Namespace) {
        match self.slots.get(namespace).map(|slot| &slot.phase) {
            Some(Phase::Running { gone, .. }) => gone.cancel(),
            Some(Phase::Waiting) => {
                self.unqueue(namespace);
                self.slots.remove(namespace);
            }
            Some(Phase::BackingOff { .. }) => {
                self.slots.remove(namespace);
            }
            None => {}
        }
    }

    /// Returns whether a conversation neither waits nor runs nor backs off.
    pub(super) fn is_out(&self, namespace: &Namespace) -> bool {
        !self.slots.contains_key(namespace)
    }

    /// Returns the number of conversations that wait, run or back off.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Queues conversations whose backoff has ended.
    fn ring(&mut self, now: Instant) {
        while let Some(Reverse((at, _))) = self.alarms.peek()
            && *at <= now
        {
            let Some(Reverse((at, namespace))) = self.alarms.pop() else {
                return;
            };
            if let Some(slot) = self.slots.get(&namespace)
                && matches!(slot.phase, Phase::BackingOff { until } if until == at)
            {
                let (forced, notes) = (slot.forced, slot.notes.clone());
                self.push(namespace, forced, notes);
            }
        }
    }

    fn push(&mut self, namespace: Namespace, forced: bool, notes: N) -> bool {
        let tenant = Arc::clone(&namespace.tenant);
        let queue = self.tenants.entry(Arc::clone(&tenant)).or_default();
        if queue.is_empty() {
            self.turns.push_back(tenant);
        }
        queue.push_back(namespace.clone());
        self.waiting += 1;
        self.slots.insert(
            namespace,
            QueueEntry {
                phase: Phase::Waiting,
                forced,
                notes,
            },
        );
        true
    }

    fn pop(&mut self) -> Option<Namespace> {
        let tenant = self.turns.pop_front()?;
        let queue = self.tenants.get_mut(&tenant)?;
        let namespace = queue.pop_front();
        if queue.is_empty() {
            self.tenants.remove(&tenant);
        } else {
            self.turns.push_back(tenant);
        }
        self.waiting -= usize::from(namespace.is_some());
        namespace
    }

    fn unqueue(&mut self, namespace: &Namespace) {
        let Some(queue) = self.tenants.get_mut(&namespace.tenant) else {
            return;
        };
        let before = queue.len();
        queue.retain(|other| other != namespace);
        self.waiting -= before - queue.len();
        if queue.is_empty() {
            self.tenants.remove(&namespace.tenant);
            self.turns.retain(|tenant| *tenant != namespace.tenant);
        }
    }

    /// Makes room for a conversation of this tenant, at the cost of the tenant with the longest
    /// queue.
    ///
    /// Returns `false` if it can't.
    fn make_room(&mut self, tenant: &Arc<str>) -> bool {
        if self.slots.len() < self.room {
            return true;
        }
        let own = self.tenants.get(tenant).map_or(0, VecDeque::len);
        let longest = self.tenants.iter().max_by_key(|(_, queue)| queue.len());
        let Some(last) = longest
            .filter(|(_, queue)| queue.len() > own + 1)
            .and_then(|(_, queue)| queue.back())
            .cloned()
        else {
            // No queue is too long: only conversations that back off could go, and their waits
            // would be lost.
            return own == 0 && self.slots.len() < 2 * self.room;
        };
        self.unqueue(&last);
        self.slots.remove(&last);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tenant: &str, session: usize) -> Namespace {
        Namespace::new(tenant, "u", Some(&format!("s{session}")))
    }

    fn name(job: &Job<u32>) -> String {
        format!(
            "{}/{}",
            job.namespace.tenant,
            job.namespace.session.as_deref().unwrap()
        )
    }

    /// Takes and ends all waiting jobs; returns the order.
    fn order(queue: &mut FairQueue<u32>, now: Instant) -> Vec<String> {
        let mut order = Vec::new();
        while let Ok(job) = queue.next(now) {
            queue.ended(&job.namespace, JobEnd::Done, job.notes, now);
            order.push(name(&job));
        }
        order
    }

    #[tokio::test(start_paused = true)]
    async fn other_tenant_waits_for_one_round() {
        let now = Instant::now();
        let mut queue = FairQueue::<u32>::new(20_000);
        for session in 0..10_000 {
            assert!(queue.wake(&of("many", session)));
        }
        assert!(queue.wake(&of("one", 0)));
        let first: Vec<_> = (0..3).map(|_| name(&queue.next(now).unwrap())).collect();
        assert_eq!(first, ["many/s0", "one/s0", "many/s1"]);
        assert_eq!((queue.waiting, queue.len()), (9_998, 10_001));
    }

    #[tokio::test(start_paused = true)]
    async fn unfinished_conversation_is_queued_last() {
        let now = Instant::now();
        let mut queue = FairQueue::<u32>::new(100);
        for session in 0..3 {
            queue.wake(&of("a", session));
        }
        queue.wake(&of("b", 0));
        let job = queue.next(now).unwrap();
        assert!(queue.ended(&job.namespace, JobEnd::More, 7, now));
        assert_eq!(order(&mut queue, now), ["b/s0", "a/s1", "a/s2", "a/s0"]);
        assert!(
            queue.slots.is_empty()
                && queue.tenants.is_empty()
                && queue.turns.is_empty()
                && queue.waiting == 0
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_already_costs_no_place() {
        let now = Instant::now();
        let mut queue = FairQueue::<u32>::new(100);
        assert!(queue.wake(&of("a", 0)));
        for _ in 0..1_000 {
            assert!(!queue.wake(&of("a", 0)));
        }
        assert_eq!(order(&mut queue, now), ["a/s0"]);
    }

    #[tokio::test(start_paused = true)]
    async fn wake_during_job_runs_after_it() {
        let now = Instant::now();
        let mut queue = FairQueue::<u32>::new(100);
        queue.wake(&of("a", 0));
        let job = queue.next(now).unwrap();
        assert!(!queue.wake(&of("a", 0)), "two attempts at once");
        assert!(queue.next(now).is_err());
        assert!(queue.ended(&job.namespace, JobEnd::Done, 0, now));
        assert_eq!(order(&mut queue, now), ["a/s0"]);
    }

    #[tokio::test(start_paused = true)]
    async fn force_ends_rest_but_wake_does_not() {
        let now = Instant::now();
        let later = now + Duration::from_secs(10);
        let mut queue = FairQueue::<u32>::new(100);
        queue.wake(&of("a", 0));
        let job = queue.next(now).unwrap();
        queue.wake(&of("a", 0));
        queue.ended(
            &job.namespace,
            JobEnd::Rest(Duration::from_secs(10)),
            3,
            now,
        );
        assert!(!queue.wake(&of("a", 0)));
        assert_eq!(
            queue.next(later - Duration::from_millis(1)).unwrap_err(),
            Some(later)
        );
        let job = queue.next(later).unwrap();
        assert_eq!(
            (job.notes, job.forced),
            (3, false),
            "what was noted is there again"
        );

        queue.ended(
            &job.namespace,
            JobEnd::Rest(Duration::from_secs(10)),
            4,
            later,
        );
        assert!(queue.force(&of("a", 0)));
        let job = queue.next(later).unwrap();
        assert_eq!((job.notes, job.forced), (4, true));
        queue.ended(&job.namespace, JobEnd::Done, 4, later);
        // The alarm of the rest that was cut short is of no effect.
        queue.wake(&of("a", 0));
        let job = queue.next(later + Duration::from_secs(11)).unwrap();
        assert_eq!((job.notes, job.forced), (0, false));
        assert!(queue.next(later + Duration::from_secs(11)).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_line_takes_from_the_longest() {
        let now = Instant::now();
        let mut queue = FairQueue::<u32>::new(4);
        for session in 0..6 {
            queue.wake(&of("many", session));
        }
        assert_eq!(queue.waiting, 4, "the sweep finds the others");
        assert!(queue.wake(&of("one", 0)));
        assert_eq!(queue.waiting, 4);
        assert_eq!(
            order(&mut queue, now),
            ["many/s0", "one/s0", "many/s1", "many/s2"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_forgotten_leaves_nothing_behind() {
        let now = Instant::now();
        let mut queue = FairQueue::<u32>::new(100);
        for session in 0..2 {
            queue.wake(&of("a", session));
        }
        queue.forget(&of("a", 1));
        let job = queue.next(now).unwrap();
        queue.forget(&of("a", 0));
        assert!(job.gone.is_cancelled());
        queue.ended(&job.namespace, JobEnd::Rest(Duration::from_secs(1)), 9, now);
        assert!(queue.is_out(&of("a", 0)) && queue.is_out(&of("a", 1)));
        assert!(queue.turns.is_empty() && queue.waiting == 0);
    }
}

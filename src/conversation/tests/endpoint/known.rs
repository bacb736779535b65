//! Model of a conversation and what is visible of it. It learns only how the attempts went.

use std::ops::Range;
use std::time::Instant;

use super::faults::Fault;
use super::{BATCH, BUDGET, MAX_ATTEMPTS, RECENT, TURNS};
use crate::conformance::fixture::{numbers, recent};
use crate::conformance::marks;
use crate::{Health, Identity, LlmContextPatch, SummarizeRequest, Trace};

/// Returns the only valid summary of the first turns.
pub(super) fn summary(turns: usize) -> String {
    let marks: String = (0..turns).map(|mark| format!("[{mark}]")).collect();
    if turns == 0 {
        marks
    } else {
        format!("The turns so far: {marks}")
    }
}

/// Returns the answer of a correct model: a summary of all turns in the request.
pub(super) fn good(asked: &str) -> String {
    let told = asked
        .split_once("[Previous summary]\n")
        .map_or("", |(_, told)| told);
    let turns = marks(told)
        .into_iter()
        .filter(|mark| mark.parse::<usize>().is_ok());
    format!(
        "The turns so far: {}",
        turns.map(|mark| format!("[{mark}]")).collect::<String>()
    )
}

/// How an attempt went.
#[derive(Clone, Copy)]
pub(super) enum Went {
    /// A summary came.
    Well,
    /// None came, for this reason.
    Badly(&'static str),
    /// The request was dropped before it ended.
    Dropped,
}

/// A conversation, and what is known of it.
pub(super) struct Case {
    pub(super) identity: Identity,
    pub(super) fault: &'static Fault,
    /// The attempts that the endpoint spoils.
    pub(super) spoilt: Range<usize>,
    /// Whether the user goes on talking at each of them.
    pub(super) talks: bool,
    /// Whether a request may time out although nothing is wrong.
    ///
    /// So it is where the timeout is short, and the machine busy.
    pub(super) hasty: bool,
    pub(super) turns: usize,
    /// How many attempts have begun, and when each did.
    pub(super) started: Vec<Instant>,
    /// What the last attempt was about, and how it went; `None` = what it came to is known.
    pub(super) last: Option<(usize, Went)>,
    /// Whether the memory was closed during it.
    pub(super) closed: bool,
    /// Whether the endpoint hangs with a request.
    pub(super) hung: bool,
    pub(super) known: Expected,
}

/// What is to be seen.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Expected {
    pub(super) health: Health,
    pub(super) failures: u32,
    pub(super) failure: Option<&'static str>,
    pub(super) covers: usize,
    pub(super) moves: Vec<(Health, &'static str)>,
}

impl Expected {
    pub(super) fn goes(&mut self, health: Health, why: &'static str) {
        self.health = health;
        self.moves.push((health, why));
    }

    pub(super) fn begins(&mut self) {
        if matches!(self.health, Health::Degraded | Health::Recovering) {
            self.goes(Health::Recovering, "recovery_loop_attempt");
        }
    }

    pub(super) fn fails(&mut self, word: &'static str) {
        self.failures += 1;
        self.failure = Some(word);
        match self.health {
            Health::Retry if self.failures >= MAX_ATTEMPTS => {
                self.goes(Health::Degraded, "retries_exhausted")
            }
            Health::Healthy | Health::Retry => self.goes(Health::Retry, "summarizer_failed"),
            _ => self.goes(Health::Degraded, "recovery_batch_failed"),
        }
    }

    pub(super) fn succeeds(&mut self, folded: usize, turns: usize) {
        self.covers += folded;
        (self.failures, self.failure) = (0, None);
        match self.health {
            Health::Healthy => {}
            Health::Retry => self.goes(Health::Healthy, "summarizer_succeeded"),
            _ if turns - self.covers > RECENT => {
                self.goes(Health::Degraded, "recovery_batch_drained")
            }
            _ => self.goes(Health::Healthy, "recovery_loop_drained"),
        }
    }
}

impl Case {
    /// Takes in what the last attempt came to; `trace` is how things are.
    pub(super) fn learn(&mut self, trace: &Trace) {
        let timed_out = self.hasty && trace.last_failure.as_deref() == Some("timeout");
        if let Some((folded, went)) = self.last.take() {
            self.take_in(trace, timed_out, folded, went);
        }
        // On a busy machine the time may be over before the summarizer is even watched.
        while timed_out && self.known.failures < trace.failures {
            self.known.begins();
            self.known.fails("timeout");
        }
    }

    fn take_in(&mut self, trace: &Trace, timed_out: bool, folded: usize, went: Went) {
        let before = self.known.clone();
        match went {
            // What came was too late by then.
            Went::Well | Went::Badly(_)
                if timed_out && trace.covers_through == before.covers as u64 =>
            {
                self.known.fails("timeout");
            }
            Went::Well => self.known.succeeds(folded, self.turns),
            Went::Badly(word) => self.known.fails(word),
            Went::Dropped if self.closed => {}
            Went::Dropped => {
                assert!(self.hasty, "a request was dropped");
                self.known.fails("timeout");
            }
        }
        // An attempt that the end came between did not happen.
        let closed = std::mem::take(&mut self.closed);
        if closed
            && (trace.failures, trace.covers_through) == (before.failures, before.covers as u64)
        {
            self.known = before;
        }
    }

    /// Compares all that can be seen with what is known.
    pub(super) fn agrees(&self, trace: &Trace, patch: &LlmContextPatch) {
        let (known, covers, turns) = (&self.known, self.known.covers, self.turns);
        let state = (
            trace.health,
            trace.failures,
            trace.last_failure.as_deref(),
            trace.covers_through,
        );
        assert_eq!(
            state,
            (known.health, known.failures, known.failure, covers as u64)
        );
        assert_eq!(
            (trace.kept_turns, trace.backlog_turns),
            (turns as u64, (turns - covers - RECENT) as u64)
        );
        assert_eq!(
            patch.summary,
            summary(covers),
            "once each, in order, and not a word of the endpoint's"
        );
        let shown = recent(patch);
        assert_eq!(
            patch.goal.is_some(),
            shown.len() < turns,
            "the goal is in sight"
        );
        assert_eq!(shown, numbers(turns - shown.len()..turns), "the newest");
        assert_eq!(
            covers + patch.omitted_turns as usize + shown.len(),
            turns,
            "each turn is in one place"
        );
        assert!(
            shown.len() >= RECENT && patch.tokens <= BUDGET && !patch.over_budget,
            "{} tokens",
            patch.tokens
        );
        assert_eq!(patch.unreadable, 0);
    }

    /// Compares a request with what is known.
    pub(super) fn fits(&self, request: &SummarizeRequest) {
        assert_eq!(request.previous_summary, summary(self.known.covers));
        let sent: Vec<String> = request
            .turns
            .iter()
            .flat_map(|turn| marks(&turn.user_message))
            .collect();
        assert_eq!(
            sent,
            numbers(self.known.covers..self.known.covers + sent.len())
        );
        assert!((1..=BATCH).contains(&sent.len()), "{} turns", sent.len());
        assert!(
            request
                .goal
                .as_deref()
                .is_some_and(|goal| goal.starts_with("[0]"))
        );
    }
}

pub(super) fn case(fault: &'static Fault, spoilt: Range<usize>) -> Case {
    let session = format!("{}-at-{}", fault.name, spoilt.start);
    Case {
        identity: Identity::new(&format!("t{}", spoilt.start), "u", &session),
        fault,
        talks: spoilt.len() > 1,
        spoilt,
        hasty: false,
        turns: TURNS,
        started: Vec::new(),
        last: None,
        closed: false,
        hung: false,
        known: Expected {
            health: Health::Healthy,
            failures: 0,
            failure: None,
            covers: 0,
            moves: Vec::new(),
        },
    }
}

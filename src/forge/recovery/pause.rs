//! Pause work, and end a pause.
//!
//! A person ends it at a terminal, or with a one-time token that was shown to them. An agent has
//! neither.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::paused::{Paused, Token, hash};
use super::report::Report;
use super::unknown::Unknown;
use super::{Assess, FILE, Recovery, memory};
use crate::error::{Category, Error, Result};
use crate::events::{self, Subject};
use crate::files::Document;
use crate::json::Members;
use crate::layout::PAUSED;
use crate::secrets::scan;
use crate::time::Time;

/// How a person proves that they may end a pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// A person at a terminal. The caller has checked that.
    Terminal,
    /// A person who was shown the token.
    Token(String),
}

/// The acknowledgement that ends a pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// Why work may continue: 1 to 1,000 characters.
    pub reason: String,
    /// How the person acknowledges.
    pub by: By,
}

/// An acknowledged pause: `.forge/.local/recovery.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Acknowledged {
    /// The time.
    pub at: Time,
    /// The reason they gave.
    pub reason: String,
    /// The commit of HEAD.
    pub head: Option<String>,
    /// The unknowns.
    pub unknown: Vec<Unknown>,
    /// Members this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

impl Acknowledged {
    /// Says whether this reason was acknowledged.
    #[must_use]
    pub fn covers(&self, reason: &Unknown) -> bool {
        self.unknown
            .iter()
            .any(|known| known.code() == reason.code())
    }
}

impl Document for Acknowledged {
    const PATH: &'static str = FILE;

    fn skeleton() -> Self {
        Self::default()
    }
}

impl Recovery<'_> {
    /// Pauses the project: every change fails with exit code 4 until a person acknowledges.
    ///
    /// An existing pause stays as it is.
    ///
    /// # Errors
    /// Errors from the files.
    pub fn pause(&self, reason: &str, report: Option<&Report>) -> Result<Paused> {
        let now = self.project.environment().now().seconds();
        let files = self.project.files();
        let paused = Paused {
            reason: plain(reason),
            since: now,
            report: report.and_then(redact),
            token: None,
            other: Members::default(),
        };
        let guard = files.lock()?;
        if let Some(there) = files.load::<Paused>()? {
            return Ok(there.value);
        }
        files.edit::<Paused, _>(None, |file| {
            *file = paused.clone();
            Ok(())
        })?;
        // Emit the event without the lock: that may take a while.
        drop(guard);
        let class = report.map(|report| report.class);
        events::emit(
            self.project,
            Subject::Recovery,
            json!({ "what": "paused", "reason": paused.reason, "class": class }),
        );
        Ok(paused)
    }

    /// Returns the pause, if work is paused.
    ///
    /// # Errors
    /// `Corrupt` if the pause file is damaged; work is paused all the same.
    pub fn paused(&self) -> Result<Option<Paused>> {
        Ok(self
            .project
            .files()
            .reading()
            .load::<Paused>()?
            .map(|loaded| loaded.value))
    }

    /// Returns the pause if its only reason is a missing checkpoint to roll back to.
    pub(crate) fn paused_for_want_of_a_checkpoint(&self) -> Result<Option<Paused>> {
        let paused = self
            .project
            .files()
            .reading()
            .load::<Paused>()
            .ok()
            .flatten()
            .map(|loaded| loaded.value);
        Ok(paused.filter(|paused| {
            let report = paused.report.as_ref();
            report.is_some_and(|report| {
                report
                    .unknown
                    .iter()
                    .all(|reason| reason.reason.ends_with_a_checkpoint())
            })
        }))
    }

    /// Assesses again after a pause that an assessment caused, and ends the pause if no reason is
    /// left.
    ///
    /// Returns the ended pause. `verify` allows the verify command to run; without it, a failed
    /// verify command cannot be cleared.
    ///
    /// # Errors
    /// Errors from git and the files.
    pub(crate) fn reassess(&self, verify: bool) -> Result<Option<Paused>> {
        let Ok(Some(paused)) = self.paused() else {
            return Ok(None);
        };
        let Some(before) = &paused.report else {
            return Ok(None);
        };
        let of_verification = before
            .unknown
            .iter()
            .any(|reason| reason.reason.is_of_the_verification());
        if (of_verification && !verify) || self.project.git().is_err() {
            return Ok(None);
        }
        let mut report = self.assess(Assess {
            verify: of_verification,
        })?;
        // The session of the caller explains a detached HEAD.
        report
            .unknown
            .retain(|reason| reason.reason != Unknown::Detached);
        if report.must_pause() {
            return Ok(None);
        }
        self.lift(&paused)?;
        Ok(Some(paused))
    }

    /// Ends a pause whose reason is gone, unless another pause replaced it.
    pub(crate) fn lift(&self, paused: &Paused) -> Result<()> {
        let files = self.project.files();
        let guard = files.lock()?;
        if files.load::<Paused>()?.is_none_or(|there| {
            (&there.value.reason, there.value.since) != (&paused.reason, paused.since)
        }) {
            return Ok(());
        }
        files.remove(PAUSED)?;
        drop(guard);
        events::emit(
            self.project,
            Subject::Recovery,
            json!({ "what": "lifted", "reason": paused.reason }),
        );
        memory::note(
            self.project,
            &format!("Pause lifted, its reason is gone: {}", paused.reason),
        );
        Ok(())
    }

    /// Makes a token that ends the pause once, within 15 minutes. It replaces the token before.
    ///
    /// The caller must be able to show it to a person and to no one else.
    ///
    /// # Errors
    /// `NotFound` if work is not paused.
    pub fn token(&self) -> Result<String> {
        let environment = self.project.environment();
        // A UUIDv7 has 74 random bits; two have more than a token needs.
        let secret =
            hash(&format!("{}{}", environment.uuid(), environment.uuid()))[..32].to_owned();
        let files = self.project.files();
        let _guard = files.lock()?;
        if files.load::<Paused>()?.is_none() {
            return Err(not_paused());
        }
        files.edit::<Paused, _>(None, |paused| {
            paused.token = Some(Token::new(&secret, environment.now()));
            Ok(())
        })?;
        Ok(secret)
    }

    /// Ends a pause.
    ///
    /// The unknowns are remembered as acknowledged, so they do not pause again on this commit or a
    /// later one. An acknowledged unfinished merge or the like counts on this commit alone.
    ///
    /// # Errors
    /// `NotFound` if work is not paused; `Usage` without a reason; `Refused` (`E_TOKEN`) for a
    /// wrong, used or expired token.
    pub fn ack(&self, ack: &Ack) -> Result<Acknowledged> {
        let reason = ack.reason.trim();
        if reason.is_empty() || reason.chars().count() > 1_000 {
            return Err(Error::usage(
                "say why work may go on, in 1 to 1,000 characters",
            ));
        }
        let now = self.project.environment().now();
        let files = self.project.files();
        let guard = files.lock()?;
        let paused = match files.load::<Paused>() {
            Ok(Some(loaded)) => Some(loaded.value),
            Ok(None) => return Err(not_paused()),
            // A damaged pause file pauses too, and only a person at a terminal can end that.
            Err(error) if error.category == Category::Corrupt && ack.by == By::Terminal => None,
            Err(error) => return Err(error),
        };
        if let By::Token(secret) = &ack.by {
            let token = paused.as_ref().and_then(|paused| paused.token.as_ref());
            if !token.is_some_and(|token| token.accepts(secret, now)) {
                return Err(Error::new(
                    Category::Refused,
                    "E_TOKEN",
                    "the token is wrong, used or too old",
                )
                .hint("a person asks for a new one where this one was shown"));
            }
        }
        let report = paused.and_then(|paused| paused.report);
        let answer = Acknowledged {
            at: now.seconds(),
            reason: reason.to_owned(),
            head: report.as_ref().and_then(|report| report.head.clone()),
            unknown: report
                .map(|report| {
                    report
                        .unknown
                        .into_iter()
                        .map(|reason| reason.reason)
                        .collect()
                })
                .unwrap_or_default(),
            other: Members::default(),
        };
        files.edit_at::<Acknowledged, _>(FILE, None, |known| {
            *known = answer.clone();
            Ok(())
        })?;
        files.remove(PAUSED)?;
        drop(guard);
        events::emit(
            self.project,
            Subject::Recovery,
            json!({ "what": "acknowledged", "reason": reason }),
        );
        memory::note(self.project, &format!("Recovery acknowledged: {reason}"));
        Ok(answer)
    }
}

/// Redacts a text that looks like it contains a credential. A pause must not fail on its text.
fn plain(text: &str) -> String {
    // Scan the text in its JSON form too, where line breaks are escaped and two lines become one.
    let written = serde_json::to_string(text).unwrap_or_default();
    let findings = scan(&written).into_iter().chain(scan(text));
    match findings.map(|finding| finding.rule).next() {
        Some(rule) => format!("[withheld: it looks like it holds a credential ({rule})]"),
        None => text.to_owned(),
    }
}

/// Redacts what looks like a credential in a report; `None` if a scan still finds one.
fn redact(report: &Report) -> Option<Report> {
    fn each(value: &mut Value) {
        match value {
            Value::String(text) => *text = plain(text),
            Value::Array(all) => all.iter_mut().for_each(each),
            Value::Object(members) => members.values_mut().for_each(each),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(report).ok()?;
    each(&mut value);
    let report: Report = serde_json::from_value(value).ok()?;
    let written = crate::json::print(&report).ok()?;
    scan(&String::from_utf8_lossy(&written))
        .is_empty()
        .then_some(report)
}

fn not_paused() -> Error {
    Error::not_found("work is not paused")
}

//! Start of a session: steps in a fixed order, each recorded when it is done.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::end::Then;
use super::record::{Session, State};
use super::select::{Choice, Inputs, Unfinished, select_next_task};
use super::{Sessions, announce, checks};
use crate::error::{Category, Result};
use crate::focus::{Focus, Phase, SetFocus};
use crate::issues::{Active, Issue};
use crate::knowledge::{KnowledgeFile, adopt};
use crate::layout::{INIT, INIT_COMMAND};
use crate::local;
use crate::prime::{self, Primed};
use crate::progress::{ISSUES, STARTED};
use crate::recovery::Recovery;
use crate::runner::{self, Line};
use crate::trust;

/// Maximum number of issues in the event.
const TOLD: usize = 100;

/// Request to start a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Start {
    /// Work beside an active session, with a separate focus and progress.
    pub join: bool,
    /// Take over a session that only its lease keeps active, but not one that a process works for.
    pub take_over: bool,
    /// Run `.forge/init.sh`.
    pub bootstrap: bool,
    /// Skip the repeated tests of some passing features.
    pub no_probe: bool,
    /// Maximum size of the briefing, in estimated tokens; none = as configured, 300.
    pub budget: Option<usize>,
}

/// A started or resumed session.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Started {
    /// The session.
    pub session: Session,
    /// Whether it was already active: then no step was repeated.
    pub again: bool,
    /// The sessions that were reaped.
    pub abandoned: Vec<String>,
    /// Features that were tested again.
    pub probed: Vec<Probed>,
    /// The reason of the pause. The session then has no focus yet.
    ///
    /// After a person has acknowledged the pause, the same command continues.
    pub paused: Option<String>,
    /// The class of the assessment: `IN_SYNC`, `MINOR`, ….
    pub recovery: Option<String>,
    /// The chosen focus, if this command chose it.
    pub chosen: Option<Choice>,
    /// Warnings.
    pub warnings: Vec<String>,
    /// The briefing.
    pub prime: Primed,
}

/// A passing feature that was tested again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Probed {
    /// Its id.
    pub id: String,
    /// Whether it still passes.
    pub passing: bool,
    /// Why its tests did not pass, in a word: `tests_failed`, `cannot_start`, ….
    pub problem: Option<String>,
    /// Whether it regressed. If its tests could not be run, the status does not change.
    pub regressed: bool,
}

/// The names of the steps, in their order.
pub(super) mod step {
    /// The long-term memory and the features are readable.
    pub(in super::super) const LONG_TERM: &str = "long_term";
    /// `init.sh` ran.
    pub(in super::super) const BOOTSTRAP: &str = "bootstrap";
    /// Some features were tested again.
    pub(in super::super) const PROBE: &str = "probe";
    /// The code was compared with the last checkpoint.
    pub(in super::super) const ASSESS: &str = "assess";
    /// The progress has its first lines.
    pub(in super::super) const PROGRESS: &str = "progress";
    /// The focus is chosen.
    pub(in super::super) const FOCUS: &str = "focus";
    /// The event was emitted.
    pub(in super::super) const EVENT: &str = "event";
}

impl Sessions<'_> {
    /// Starts a session, or resumes the active one. After an interruption, the same command
    /// resumes.
    ///
    /// A pause that an assessment caused ends first if its reason is gone. Then, in this order:
    /// reap abandoned sessions; read the long-term memory; look at git; look at the issues; run
    /// `init.sh` if requested; test some features again; compare with the last checkpoint; begin
    /// the progress; choose the focus; emit the event; write the briefing.
    ///
    /// # Errors
    /// `Paused`; `Locked` if another agent's session is active here; `Corrupt` if the long-term
    /// memory cannot be read.
    pub fn start(&self, start: &Start) -> Result<Started> {
        local::check(self.project)?;
        let (start, untrusted) = match (start.no_probe, trust::check(self.project)) {
            (false, Err(error)) if error.code == "E_UNTRUSTED" => (
                &Start {
                    no_probe: true,
                    ..start.clone()
                },
                true,
            ),
            _ => (start, false),
        };
        let lifted = Recovery::new(self.project).reassess(!start.no_probe)?;
        self.project.check_not_paused()?;
        let mut warnings = self.finish_left(start)?;
        if untrusted {
            let what = "nothing was tested: nobody has agreed yet to run the commands that this clone's .forge names; \
                        `helmdeck forge trust` shows them and asks";
            warnings.push(what.to_owned());
        }
        warnings.extend(lifted.map(|paused| {
            format!(
                "the pause since {} is over, its reason is gone: {}",
                paused.since, paused.reason
            )
        }));
        let mut session = self.begin(start)?;
        if session.state == State::Ending {
            // Its end was interrupted. Finish it as planned, and start a new session.
            warnings.extend(self.finish(&session.id, Then::GoOn)?.warnings);
            session = self.begin(start)?;
        }
        let again = session.state == State::Live;
        let abandoned = self.reap()?;
        self.project.files().remove_unfinished()?;
        // From here on, changes belong to this session.
        let inside = self.project.within(&session.id);
        let sessions = crate::sessions::Sessions::new(&inside);
        let mut on = StartContext {
            sessions,
            start,
            session,
            warnings,
            probed: Vec::new(),
            recovery: None,
        };
        on.long_term()?;
        on.bootstrap()?;
        on.probe()?;
        let paused = on.assess()?;
        let mut chosen = None;
        if paused.is_none() {
            on.progress()?;
            chosen = on.focus()?;
            on.event()?;
            if !again {
                on.session = self.change(&on.session.id, |session| session.state = State::Live)?;
            }
        }
        let budget = start.budget.unwrap_or_else(|| prime::budget(self.project));
        let prime = prime::gather(self.project, Some(&on.session), &on.warnings).render(budget);
        let StartContext {
            session,
            warnings,
            probed,
            recovery,
            ..
        } = on;
        Ok(Started {
            session,
            again,
            abandoned,
            probed,
            paused,
            recovery,
            chosen,
            warnings,
            prime,
        })
    }
}

impl Sessions<'_> {
    /// Finishes interrupted ends of abandoned sessions as planned, with everything they were to
    /// keep.
    ///
    /// Returns the warnings.
    fn finish_left(&self, start: &Start) -> Result<Vec<String>> {
        let who = self.who(start);
        let left: Vec<String> = {
            let _local = self.project.files().lock()?;
            let ends = self
                .living()?
                .sessions
                .into_iter()
                .filter(|session| session.state == State::Ending);
            let left =
                ends.filter(|session| session.given_up(who.now).is_some() || who.takes(session));
            left.map(|session| session.id).collect()
        };
        let mut warnings = Vec::new();
        for id in left {
            match self.finish(&id, Then::GoOn) {
                Ok(finished) => warnings.extend(finished.warnings),
                // Another process finished it first.
                Err(_) if self.living()?.get(&id).is_none() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(warnings)
    }
}

/// State of a start in progress.
struct StartContext<'a> {
    sessions: Sessions<'a>,
    start: &'a Start,
    session: Session,
    warnings: Vec<String>,
    probed: Vec<Probed>,
    recovery: Option<String>,
}

/// Candidates for the next task, claimed ones included.
struct Checked {
    unfinished: Option<Unfinished>,
    issues: Vec<Issue>,
    done: Vec<String>,
    features: checks::JudgedFeatures,
}

/// Returns the unfinished part of a focus.
fn unfinished(session: &str, focus: Focus) -> Option<Unfinished> {
    Some(Unfinished {
        session: session.to_owned(),
        task: focus.task.filter(|_| focus.phase != Phase::Done)?,
        linear_issue: focus.linear_issue,
        feature_id: focus.feature_id,
        files: focus.files,
    })
}

impl StartContext<'_> {
    fn is_done(&self, step: &str) -> bool {
        self.session.step(step).is_some()
    }

    fn done(&mut self, step: &str, note: Option<String>) -> Result<()> {
        if !self.is_done(step) {
            self.session = self.sessions.note(&self.session.id, step, note)?;
        }
        Ok(())
    }

    /// Reads the long-term memory. Damage stops the start: no work may build on an unreadable
    /// memory.
    fn long_term(&mut self) -> Result<()> {
        let project = self.sessions.project;
        checks::check_long_term(project)?;
        if project.files().load::<KnowledgeFile>()?.is_none() {
            self.warnings
                .push(format!("there is no {}", crate::layout::KNOWLEDGE_ENTRIES));
        }
        if self.session.state == State::Starting && project.check_not_paused().is_ok() {
            self.warnings.extend(adopt::take_over(project)?);
        }
        if self.session.state == State::Starting {
            self.warnings
                .extend(checks::merge_driver(self.sessions.project));
        }
        self.done(step::LONG_TERM, None)
    }

    /// Runs `init.sh` if requested. A failure is a warning and does not stop the start.
    fn bootstrap(&mut self) -> Result<()> {
        if !self.start.bootstrap || self.is_done(step::BOOTSTRAP) {
            return Ok(());
        }
        let project = self.sessions.project;
        let timeout = Duration::from_secs(project.config().session.bootstrap_timeout_s);
        let ran = runner::check(project, Line::Project(INIT_COMMAND, None), timeout);
        let failed = match &ran {
            Ok(ran) if ran.exit == Some(0) => None,
            Ok(ran) if ran.timed_out => {
                Some(format!("{INIT} took more than {} s", timeout.as_secs()))
            }
            Ok(ran) => Some(format!(
                "{INIT} ended with {}",
                ran.exit
                    .map_or_else(|| "a signal".into(), |n| n.to_string())
            )),
            Err(error) => Some(format!("{INIT} could not be run: {error}")),
        };
        self.warnings.extend(failed.clone());
        self.done(step::BOOTSTRAP, failed)
    }

    fn probe(&mut self) -> Result<()> {
        if self.start.no_probe || self.is_done(step::PROBE) || !self.session.primary {
            return Ok(());
        }
        self.probed = match checks::probe(self.sessions.project) {
            // The result could not be stored. Verify them after the file is repaired.
            Err(error) if error.category == Category::Corrupt => {
                self.warnings
                    .push(format!("no feature was tested again: {error}"));
                return self.done(step::PROBE, None);
            }
            probed => probed?,
        };
        for broken in self.probed.iter().filter(|probed| !probed.passing) {
            self.warnings.push(if broken.regressed {
                format!("{} worked and does not any more", broken.id)
            } else {
                let why = broken.problem.as_deref().unwrap_or("unknown");
                format!("nobody can say whether {} still works ({why})", broken.id)
            });
        }
        let ids: Vec<_> = self
            .probed
            .iter()
            .map(|probed| probed.id.as_str())
            .collect();
        let note = Some(ids.join(", ")).filter(|ids| !ids.is_empty());
        self.done(step::PROBE, note)
    }

    /// Compares the code with the last checkpoint.
    ///
    /// If the state is unknown, the work pauses before a focus is chosen.
    fn assess(&mut self) -> Result<Option<String>> {
        if self.is_done(step::ASSESS) {
            return Ok(None);
        }
        let Some(assessed) = checks::assess(self.sessions.project)? else {
            self.done(step::ASSESS, None)?;
            return Ok(None);
        };
        self.recovery = Some(assessed.class.clone());
        self.warnings.extend(assessed.warning);
        if assessed.paused.is_none() {
            self.done(step::ASSESS, Some(assessed.class))?;
        }
        Ok(assessed.paused)
    }

    /// Begins the progress file, with the lines of the RFC.
    fn progress(&mut self) -> Result<()> {
        if self.is_done(step::PROGRESS) {
            return Ok(());
        }
        let progress = self.sessions.progress(&self.session)?;
        progress.begin(&self.session.id)?;
        let issues = self.issues()?;
        let bootstrap = self
            .session
            .step(step::BOOTSTRAP)
            .and_then(|step| step.note.clone());
        let lines = [
            Some(format!(
                "{STARTED}{}",
                self.session.branch.as_deref().unwrap_or("none")
            )),
            Some(format!(
                "{ISSUES}{}",
                issues
                    .issues
                    .iter()
                    .filter(|issue| !issue.is_over())
                    .count()
            )),
            bootstrap.map(|failed| format!("Warning: {failed}")),
            self.session
                .resumes
                .as_ref()
                .map(|old| format!("Takes up abandoned session {old}")),
        ];
        // An interrupted start may have written some of the lines already.
        let there = progress.read()?.map_or_else(Vec::new, |log| log.entries);
        for line in lines.into_iter().flatten() {
            if !there.iter().any(|entry| entry.text == line) {
                progress.log(&line)?;
            }
        }
        self.done(step::PROGRESS, None)
    }

    fn focus(&mut self) -> Result<Option<Choice>> {
        if self.is_done(step::FOCUS) {
            return Ok(None);
        }
        // Do the slow queries before taking the lock.
        let checked = self.checked()?;
        // A concurrent start in another work tree chooses after this claim.
        let _common = self.sessions.project.common_lock()?;
        let choice = self.choose(&checked);
        let focus = self.sessions.focus(&self.session)?;
        let taken = match &choice.task {
            Some(task) => {
                let set = SetFocus {
                    task: Some(task.clone()),
                    linear_issue: choice.linear_issue.clone(),
                    feature_id: choice.feature_id.clone(),
                    files: Some(choice.files.clone()),
                    reason: Some(choice.reason.clone()),
                    ..SetFocus::default()
                };
                focus.begin(&self.session.id, &set)?
            }
            None => focus.clear(Some(&self.session.id), Some(&choice.reason))?,
        };
        if let Err(error) = self.sessions.claim(&self.session, &taken.now.focus) {
            self.warnings
                .push(format!("others are not told what is worked on: {error}"));
        }
        self.done(step::FOCUS, Some(choice.reason.clone()))?;
        Ok(Some(choice))
    }

    /// Collects the candidates.
    fn checked(&mut self) -> Result<Checked> {
        let project = self.sessions.project;
        let done = crate::issues::done(project.files())?;
        let features = checks::JudgedFeatures::read(project)?;
        Ok(Checked {
            unfinished: self.unfinished()?,
            issues: self.issues()?.issues,
            done,
            features,
        })
    }

    /// Chooses among what no other session has claimed. The caller holds the common lock.
    fn choose(&self, checked: &Checked) -> Choice {
        let project = self.sessions.project;
        let claimed = self.sessions.claimed();
        let agent = &project.environment().agent;
        let (regressed, feature) = checked.features.open(agent, &claimed);
        select_next_task(&Inputs {
            unfinished: checked.unfinished.as_ref(),
            regressed: regressed.as_ref(),
            issues: &checked.issues,
            done: &checked.done,
            claimed: &claimed,
            agent: project.config().linear.me.as_deref().unwrap_or(agent),
            feature: feature.as_ref(),
        })
    }

    /// Returns the unfinished focus of the abandoned session that this one resumes.
    ///
    /// `None` if that session was on another branch, or if its work is done.
    fn unfinished(&self) -> Result<Option<Unfinished>> {
        let Some(old) = &self.session.resumes else {
            return Ok(None);
        };
        let folder = self.sessions.folder_of(old)?;
        let record = self
            .sessions
            .archived(&folder)?
            .filter(|record| record.branch == self.session.branch);
        let Some(record) = record else {
            return Ok(None);
        };
        Ok(record.focus.and_then(|focus| unfinished(old, focus)))
    }

    /// Returns the issues. If they cannot be read, adds a warning and returns none: the start
    /// continues.
    fn issues(&mut self) -> Result<Active> {
        match self.sessions.project.issues().read() {
            Ok(active) => Ok(active),
            Err(error) => {
                let warning = format!("the issues cannot be read: {error}");
                if !self.warnings.contains(&warning) {
                    self.warnings.push(warning);
                }
                Ok(Active::empty())
            }
        }
    }

    fn event(&mut self) -> Result<()> {
        if self.is_done(step::EVENT) {
            return Ok(());
        }
        let issues = self
            .issues()?
            .issues
            .into_iter()
            .filter(|issue| !issue.is_over())
            .map(|issue| issue.linear_id);
        let issues = issues.take(TOLD).collect();
        announce::start(self.sessions.project, &self.session, issues);
        self.done(step::EVENT, None)
    }
}

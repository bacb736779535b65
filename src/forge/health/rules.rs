//! Colour rules: pure functions of the inputs, as in the RFC unless configured otherwise.

use super::inputs::{Features, File, Git, Inputs, Last, Linear, LongTerm, ShortTerm};
use super::reason::{Code, Reason, Severity};
use super::{Colour, Component, Health};
use crate::config::{HealthConfig, Softer};
use crate::layout;
use crate::repair::{Damaged, Extent};
use crate::time::Time;

/// Maximum age of the last learning, in seconds.
const LONG_TERM: i64 = 7 * 24 * 60 * 60;
/// Maximum age of the last progress note, in seconds.
const SHORT_TERM: i64 = 60 * 60;
/// Maximum difference between clocks, in seconds.
const SKEW: i64 = 5 * 60;
/// Maximum healthy number of commits after a checkpoint.
const COMMITS: u64 = 10;

/// Judges all five components.
#[must_use]
pub fn judge(inputs: Inputs, config: &HealthConfig, now: Time) -> Health {
    let long_term = component(
        long_term(&inputs.long_term, now),
        inputs.long_term,
        now,
        false,
    );
    let grey = inputs.short_term.not_begun;
    let short_term = component(
        short_term(&inputs.short_term, config, now),
        inputs.short_term,
        now,
        grey,
    );
    let grey = inputs.features.total == 0;
    let features = component(
        features(&inputs.features, config),
        inputs.features,
        now,
        grey,
    );
    let grey = inputs.git.disabled;
    let git = component(git(&inputs.git, config), inputs.git, now, grey);
    let grey = inputs.linear.off || inputs.linear.no_git;
    let linear = component(linear(&inputs.linear), inputs.linear, now, grey);
    let colours = [
        long_term.colour,
        short_term.colour,
        features.colour,
        git.colour,
        linear.colour,
    ];
    let overall = Colour::worst(colours);
    Health {
        overall,
        measured_at: now,
        long_term,
        short_term,
        features,
        git,
        linear,
    }
}

/// Builds a component. The worst reason sets its colour.
///
/// Without a bad reason it is green, or grey if there is nothing to judge.
fn component<I>(mut reasons: Vec<Reason>, inputs: I, now: Time, grey: bool) -> Component<I> {
    // Sort the worst first; reasons of equal severity stay in the order of the rules.
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.severity));
    let colour = match reasons.first().map(|reason| reason.severity) {
        Some(Severity::Error) => Colour::Red,
        Some(Severity::Warning) => Colour::Yellow,
        _ if grey => Colour::Grey,
        _ => Colour::Green,
    };
    Component {
        colour,
        reasons,
        measured_at: now,
        inputs,
    }
}

fn info(code: Code, detail: impl Into<String>) -> Reason {
    Reason::new(Severity::Info, code, detail, None)
}

fn warning(code: Code, detail: impl Into<String>) -> Reason {
    Reason::new(Severity::Warning, code, detail, None)
}

fn error(code: Code, detail: impl Into<String>) -> Reason {
    Reason::new(Severity::Error, code, detail, None)
}

/// Returns the seconds that have passed, rounded up: an age of 3,600.5 s is more than an hour.
fn age(at: Time, now: Time) -> i64 {
    let passed = now.0.duration_since(at.0);
    passed
        .as_secs()
        .saturating_add(i64::from(passed.subsec_nanos() > 0))
}

fn later(at: Time, seconds: i64) -> Option<Time> {
    at.0.checked_add(jiff::SignedDuration::from_secs(seconds))
        .ok()
        .map(Time)
}

fn skew(last: Option<Last>, now: Time) -> Option<Reason> {
    let last = last.filter(|last| age(last.at, now) < -SKEW)?;
    Some(info(
        Code::ClockSkew,
        format!("{} lies in the future", last.at),
    ))
}

/// Reports damaged files that no other reason names.
fn damaged(files: &[Damaged]) -> impl Iterator<Item = Reason> {
    files.iter().map(|file| {
        let severity = match file.extent {
            // The other skills and forms can be used.
            Extent::Whole
                if [layout::SKILLS, layout::TEMPLATES]
                    .iter()
                    .any(|folder| file.path.starts_with(folder)) =>
            {
                Severity::Warning
            }
            Extent::Whole => Severity::Error,
            Extent::Lines => Severity::Warning,
            Extent::Newer | Extent::Harmless => Severity::Info,
        };
        let reason = Reason::new(
            severity,
            Code::FileCorrupt,
            format!("{}: {}", file.path, file.detail),
            None,
        );
        match &file.next {
            Some(next) => Reason {
                next: next.clone(),
                ..reason
            },
            None => reason,
        }
    })
}

fn long_term(given: &LongTerm, now: Time) -> Vec<Reason> {
    let mut reasons = Vec::new();
    match &given.knowledge {
        File::Valid => {}
        File::Absent => reasons.push(error(
            Code::KnowledgeMissing,
            "there is no folder of knowledge",
        )),
        File::Newer(version) => {
            reasons.push(warning(
                Code::SchemaNewer,
                format!("the knowledge has {version} form, and is only read"),
            ));
        }
        File::Damaged(why) => reasons.push(error(Code::KnowledgeCorrupt, why)),
    }
    if let File::Damaged(why) = &given.features {
        reasons.push(error(Code::FeaturesCorrupt, why));
    }
    reasons.extend(damaged(&given.damaged));
    if given.knowledge == File::Valid
        && let Some(last) = given.last.filter(|last| age(last.at, now) > LONG_TERM)
    {
        let detail = format!(
            "nothing was learned or confirmed since {}: confirm what still holds",
            last.at
        );
        reasons.push(Reason::new(
            Severity::Warning,
            Code::Stale,
            detail,
            later(last.at, LONG_TERM),
        ));
    }
    reasons.extend(skew(given.last, now));
    reasons
}

fn short_term(given: &ShortTerm, config: &HealthConfig, now: Time) -> Vec<Reason> {
    let mut reasons = Vec::new();
    match &given.progress {
        File::Valid | File::Newer(_) => {}
        File::Absent if given.not_begun => {
            reasons.push(info(Code::NotBegun, "no session has begun in this clone"))
        }
        File::Absent => reasons.push(error(Code::ProgressMissing, "progress.txt does not exist")),
        File::Damaged(why) => reasons.push(error(Code::ProgressNotText, why)),
    }
    reasons.extend(damaged(&given.damaged));
    if given.progress == File::Valid
        && let Some(last) = given.last.filter(|last| age(last.at, now) > SHORT_TERM)
    {
        let detail = format!("nothing was noted since {}", last.at);
        let (code, severity) = match (given.active, config.idle_ok) {
            (true, _) => (Code::StaleActive, Severity::Warning),
            (false, false) => (Code::StaleIdle, Severity::Warning),
            (false, true) => (Code::StaleIdle, Severity::Info),
        };
        reasons.push(Reason::new(
            severity,
            code,
            detail,
            later(last.at, SHORT_TERM),
        ));
    }
    if let Some((why, since)) = &given.paused {
        reasons.push(Reason::new(
            Severity::Warning,
            Code::Paused,
            format!("work is paused: {why}"),
            *since,
        ));
    }
    if let Some((session, since)) = &given.abandoned {
        let detail = format!("the session {session} stopped without an end");
        reasons.push(Reason::new(
            Severity::Warning,
            Code::AbandonedSession,
            detail,
            Some(*since),
        ));
    }
    if given.malformed_lines > 0 {
        reasons.push(info(
            Code::MalformedLines,
            format!("lines that follow no rule: {}", given.malformed_lines),
        ));
    }
    if let Some(why) = &given.events {
        reasons.push(info(
            Code::EventsSettings,
            format!("events wait, or go elsewhere: {why}"),
        ));
    }
    reasons.extend(skew(given.last, now));
    reasons
}

fn features(given: &Features, config: &HealthConfig) -> Vec<Reason> {
    let mut reasons = Vec::new();
    match &given.file {
        File::Valid | File::Absent => {}
        File::Newer(version) => {
            reasons.push(warning(
                Code::SchemaNewer,
                format!("the features have {version} form, and are only read"),
            ));
        }
        File::Damaged(why) => {
            reasons.push(error(Code::FeaturesCorrupt, why));
            return reasons;
        }
    }
    reasons.extend(damaged(&given.damaged));
    // Without the evidence, the number of working features is unknown.
    if given
        .damaged
        .iter()
        .any(|file| file.extent == Extent::Whole)
    {
        return reasons;
    }
    let (passing, total) = (u128::from(given.passing) * 100, u128::from(given.total));
    let detail = format!("{} of {} features work", given.passing, given.total);
    if total == 0 {
        reasons.push(info(
            Code::NoFeatures,
            "no feature is planned: `helmdeck forge features add NAME --test TEST` adds one",
        ));
    } else if passing < 50 * total {
        reasons.push(error(Code::FewPassing, detail));
    } else if passing <= 80 * total {
        reasons.push(warning(Code::SomePassing, detail));
    }
    if !given.regressed.is_empty() {
        let shown = given
            .regressed
            .iter()
            .take(10)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", ");
        let detail = format!("{} worked before: {shown}", given.regressed.len());
        let severity = if config.regression == Softer::Yellow {
            Severity::Warning
        } else {
            Severity::Info
        };
        let reason = Reason::new(severity, Code::Regression, detail, given.regressed_since);
        reasons.push(verify(reason, &given.regressed));
    }
    if given.unverified > 0 {
        let detail = format!(
            "{} say that they pass, without evidence, and count as failing",
            given.unverified
        );
        reasons.push(verify(
            info(Code::UnverifiedPass, detail),
            &given.unverified_ids,
        ));
    }
    if let Some(stale) = given.stale.filter(|stale| *stale > 0) {
        reasons.push(info(
            Code::StalePass,
            format!(
                "{} of {} that pass were verified on code that has changed since",
                stale, given.passing
            ),
        ));
    }
    reasons
}

/// Returns a number with the words for one or for several.
fn plural(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

/// Sets the command that verifies features, at most ten at a time.
fn verify(reason: Reason, ids: &[String]) -> Reason {
    let ids: Vec<&str> = ids.iter().take(10).map(String::as_str).collect();
    if ids.is_empty() {
        reason
    } else {
        reason.run(format!("helmdeck forge verify {}", ids.join(" ")))
    }
}

fn git(given: &Git, config: &HealthConfig) -> Vec<Reason> {
    if given.disabled {
        return vec![info(
            Code::NoGit,
            "the project was set up without a repository",
        )];
    }
    if given.absent {
        return vec![error(
            Code::RepositoryLost,
            "the project lay in a git repository, and there is none",
        )];
    }
    let mut reasons: Vec<Reason> = damaged(&given.damaged).collect();
    if let Some(why) = &given.failed {
        reasons.push(error(Code::GitFailed, why));
        return reasons;
    }
    if given.unmerged > 0 {
        let reason = error(
            Code::Unmerged,
            format!(
                "{} conflicts",
                plural(given.unmerged, "path has", "paths have")
            ),
        );
        reasons.push(match given.unmerged_memory.first() {
            Some(path) => reason.run(format!("helmdeck forge repair {path}")),
            None => reason,
        });
    }
    let base = given.base.as_deref();
    if let Some(base) = base.filter(|_| given.ahead > 0 && given.behind > 0) {
        let merges = match given.merges_cleanly {
            Some(true) => ", merges cleanly",
            Some(false) => ", with conflicts",
            None => "",
        };
        let detail = format!(
            "diverged from {base}: {} ahead, {} behind{merges}",
            given.ahead, given.behind
        );
        let softer =
            config.clean_divergence == Softer::Yellow && given.merges_cleanly == Some(true);
        reasons.push(if softer {
            warning(Code::Diverged, detail)
        } else {
            error(Code::Diverged, detail)
        });
    }
    if given.uncommitted > 0 {
        let paths = plural(given.uncommitted, "path is", "paths are");
        reasons.push(warning(Code::Uncommitted, format!("{paths} not committed")));
    }
    match &given.checkpoint {
        None => reasons.push(match &given.fetch_checkpoints {
            Some(fetch) => {
                let detail = "the checkpoints are not in this clone: their tags, or the history to them, are missing";
                warning(Code::NoCheckpoint, detail).run(fetch)
            }
            None => warning(Code::NoCheckpoint, "there is no checkpoint to go back to"),
        }),
        Some(name) if given.commits_since > COMMITS => {
            let detail = format!("{} commits came after {name}", given.commits_since);
            reasons.push(Reason::new(Severity::Warning, Code::CheckpointLag, detail, given.checkpoint_at));
        }
        Some(_) => {}
    }
    if let Some(operation) = &given.operation {
        reasons.push(warning(
            Code::Operation,
            format!("{operation} is half done"),
        ));
    }
    if given.merge_driver_missing {
        let detail = "git merges the memory as text in this clone, which conflicts when both sides change the same thing";
        reasons.push(info(Code::MergeDriverMissing, detail));
    }
    if base.is_none() {
        reasons.push(info(
            Code::NoBase,
            "there is no branch to measure against; `git.base` in config.toml names one",
        ));
    }
    reasons
}

fn linear(given: &Linear) -> Vec<Reason> {
    if given.off {
        return vec![info(Code::LinearOff, "issues are switched off")];
    }
    let mut reasons = Vec::new();
    if let File::Damaged(why) = &given.active {
        reasons.push(error(Code::ActiveCorrupt, why));
    }
    if given.outbox_failed > 0 {
        let detail = format!(
            "{} could not be delivered",
            plural(given.outbox_failed, "change", "changes")
        );
        reasons.push(error(Code::OutboxFailed, detail));
    }
    if given.conflicts > 0 {
        reasons.push(error(
            Code::Conflict,
            format!(
                "{} changed on both sides",
                plural(given.conflicts, "issue was", "issues were")
            ),
        ));
    }
    if let Some(since) = given.pull_failed {
        reasons.push(Reason::new(
            Severity::Error,
            Code::PullFailed,
            "issues could not be fetched",
            Some(since),
        ));
    }
    if given.no_git {
        reasons.push(info(
            Code::NoGit,
            "without a repository there are no commits to look at",
        ));
    } else if given.orphans > 0 {
        let shown = given.orphan_commits.join(", ");
        let commits = plural(given.orphans, "commit belongs", "commits belong");
        reasons.push(warning(
            Code::OrphanCommits,
            format!("{commits} to no issue: {shown}"),
        ));
    }
    reasons
}

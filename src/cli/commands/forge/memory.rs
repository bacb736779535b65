//! `helmdeck forge knowledge`, `features`, `verify`, `focus`, `artifact` and `skill`.

use std::collections::BTreeSet;

use helmdeck_core::text::count;
use helmdeck_forge::Error;
use helmdeck_forge::artifacts::{Artifacts, Filter, Kind, Put};
use helmdeck_forge::config::LinearMode;
use helmdeck_forge::features::{
    Add, BlockedBy, Edit, Features, Item, Problem, Status, TestRun, Verified, is_id,
};
use helmdeck_forge::focus::SetFocus;
use helmdeck_forge::invariants::{Checked, State};
use helmdeck_forge::knowledge::{Knowledge, Learning, Search, What};
use helmdeck_forge::sessions::Sessions;
use helmdeck_forge::skills::{Query, Skill, Skills};
use helmdeck_forge::triv::Reference;
use helmdeck_forge::work::{Verify, Work};
use serde_json::Value;

use super::context::{Answer, CommandContext};
use crate::args::forge::{
    ArtifactKind, FeatureEdit, FeaturesCommand, FocusArgs, FocusCommand, ForgeArtifactCommand,
    KnowledgeCommand, LearnArgs, SkillCommand, SkillQuery,
};
use crate::exit::{Exit, Failure};
use helmdeck_core::text::columns;

/// Makes a learning of the arguments.
fn learning(arguments: &LearnArgs) -> helmdeck_forge::Result<Learning> {
    let text = |given: &Option<String>| given.clone().unwrap_or_default();
    let context = text(&arguments.context);
    let what = if arguments.invariant.is_some() {
        What::Invariant {
            text: text(&arguments.invariant),
            check: arguments.check.clone(),
            severity: None,
        }
    } else if arguments.issue.is_some() {
        What::Failed {
            context,
            issue: text(&arguments.issue),
            resolution: text(&arguments.resolution),
        }
    } else if arguments.decision.is_some() {
        What::Decision {
            context,
            decision: text(&arguments.decision),
            rationale: text(&arguments.rationale),
        }
    } else if arguments.approach.is_some() {
        What::Successful {
            context,
            approach: text(&arguments.approach),
        }
    } else {
        return Err(Error::usage(
            "say what was learned: --approach, --issue, --decision or --invariant",
        ));
    };
    Ok(Learning {
        linear: arguments.key.clone(),
        paths: arguments.path.clone(),
        ..Learning::new(what)
    })
}

/// As [`learning`], with the current work session.
fn of_session(
    project: &helmdeck_forge::Project,
    arguments: &LearnArgs,
) -> helmdeck_forge::Result<Learning> {
    let session = Sessions::new(project).mine()?.map(|session| session.id);
    Ok(Learning {
        session,
        ..learning(arguments)?
    })
}

pub(super) fn knowledge(on: &CommandContext, command: &KnowledgeCommand) -> Answer {
    use KnowledgeCommand as C;
    match command {
        C::Add(arguments) => {
            let if_match = arguments.if_match.as_deref();
            let Some(id) = &arguments.replaces else {
                let added = on.change(|project| {
                    Knowledge::new(project).add(&of_session(project, arguments)?, if_match)
                })?;
                return on.show(&added);
            };
            let superseded = on.change(|project| {
                Knowledge::new(project).supersede(id, &of_session(project, arguments)?, if_match)
            })?;
            on.show(&superseded)
        }
        C::Search {
            words,
            limit,
            superseded,
        } => {
            let search = Search {
                query: words.join(" "),
                limit: Some(*limit),
                superseded: *superseded,
                ..Search::default()
            };
            on.show(&Knowledge::new(&on.look()?).search(&search)?)
        }
    }
}

pub(super) fn features(on: &CommandContext, command: &FeaturesCommand) -> Answer {
    use FeaturesCommand as C;
    match command {
        C::List => list_features(on),
        C::Add {
            name,
            id,
            test,
            path,
            step,
            category,
        } => {
            let add = Add {
                id: id.clone(),
                name: name.clone(),
                tests: test.clone(),
                paths: path.clone(),
                steps: step.clone(),
                category: category.clone(),
                blocked_by: None,
            };
            let added = on.change(|project| Features::new(project).add(&add, None))?;
            on.show(&added)
        }
        C::Set(arguments) => set(on, arguments),
    }
}

/// Lists the features, how many pass, and the one to work on next.
fn list_features(on: &CommandContext) -> Answer {
    let project = on.look()?;
    let (listed, next) = (
        Features::new(&project).list()?,
        Features::new(&project).next()?,
    );
    let mut data = serde_json::to_value(&listed).map_err(Failure::internal)?;
    data["next"] = serde_json::to_value(&next).map_err(Failure::internal)?;
    on.print(&data, || {
        let row = |item: &Item| {
            vec![
                item.feature.id.clone(),
                item.standing.to_string(),
                item.feature.name.clone(),
            ]
        };
        let rows: Vec<_> = listed.features.iter().map(row).collect();
        let next = next
            .iter()
            .map(|next| format!("\nnext: {} {}", next.feature.id, next.feature.name));
        format!(
            "{}{}{}",
            columns(&rows),
            listed.counts,
            next.collect::<String>()
        )
    })
}

/// Maximum number of lines of a failed test's output.
const TEST_LINES: usize = 12;

/// Returns what a verification found: a line for each feature, then what ran, with the output of
/// what failed.
fn verified_text(all: &[Verified]) -> String {
    let mut lines = Vec::new();
    let mut runs: Vec<&TestRun> = Vec::new();
    for verified in all {
        let problem = verified.problem.map_or("passes", Problem::as_str);
        lines.push(format!(
            "{} {problem}: {} ran",
            verified.id,
            count(verified.executed, "test")
        ));
        lines.extend(verified.hint.iter().map(|hint| format!("  hint: {hint}")));
        for run in &verified.runs {
            if !runs.contains(&run) {
                runs.push(run);
            }
        }
    }
    for run in runs {
        let end = match run.exit {
            Some(exit) => format!("exit {exit}"),
            None if run.timed_out => "timed out".to_owned(),
            None => "did not run".to_owned(),
        };
        lines.push(format!(
            "{} ({}, {} ms, {end})",
            run.command,
            count(run.executed, "test"),
            run.ms
        ));
        if run.exit != Some(0) {
            let output: Vec<&str> = run.output.lines().collect();
            // What Rust says of a failed assertion comes before its backtrace.
            let panic = output
                .iter()
                .position(|line| line.contains(" panicked at "));
            let from = panic.unwrap_or(output.len().saturating_sub(TEST_LINES));
            lines.extend(
                output[from..]
                    .iter()
                    .take(TEST_LINES)
                    .map(|line| format!("    {line}")),
            );
        }
    }
    let evidence: BTreeSet<&String> = all
        .iter()
        .filter_map(|verified| verified.evidence.as_ref())
        .collect();
    lines.extend(
        evidence
            .into_iter()
            .map(|evidence| format!("evidence {evidence}")),
    );
    lines.join("\n")
}

/// Returns what the checks of the invariants found: the broken ones, and how many hold.
fn invariants_text(checked: &Checked) -> String {
    let broken = checked
        .results
        .iter()
        .filter(|outcome| outcome.state != State::Holds);
    let mut lines: Vec<String> = broken
        .map(|outcome| {
            let end: Vec<String> = outcome
                .output
                .lines()
                .map(|line| format!("\n    {line}"))
                .collect();
            format!(
                "invariant broken ({}): {}\n  {}{}",
                outcome.severity,
                outcome.text,
                outcome.check,
                end.concat()
            )
        })
        .collect();
    lines.push(format!(
        "invariants: {} of {} hold",
        checked.passed, checked.checked
    ));
    lines.join("\n")
}

pub(super) fn verify(on: &CommandContext, verify: &Verify) -> Answer {
    let verification = on.change(|project| Work::new(project).verify(verify))?;
    on.print(&verification, || {
        let features =
            std::iter::once(verified_text(&verification.features)).filter(|text| !text.is_empty());
        features
            .chain(verification.invariants.iter().map(invariants_text))
            .collect::<Vec<_>>()
            .join("\n")
    })?;
    CommandContext::exit(if verification.passed {
        Exit::Ok
    } else {
        Exit::Failed
    })
}

fn set(on: &CommandContext, arguments: &FeatureEdit) -> Answer {
    let status: Option<Status> = match &arguments.status {
        Some(word) => Some(
            serde_json::from_value(Value::from(word.as_str()))
                .map_err(|_| Error::usage(format!("{word:?} is not a status of a feature")))?,
        ),
        None => None,
    };
    let (id, if_match) = (&arguments.id, arguments.if_match.as_deref());
    if arguments.remove {
        let removed = on.change(|project| {
            Features::new(project).remove(id, arguments.reason.as_deref(), if_match)
        })?;
        return on.show(&removed);
    }
    let some = |list: &Vec<String>| Some(list.clone()).filter(|list| !list.is_empty());
    let blocked_by = match arguments.blocked_by.as_slice() {
        [] => None,
        [one] => Some(BlockedBy::One(one.clone())),
        all if all.iter().all(|id| is_id(id)) => Some(BlockedBy::Many(all.to_vec())),
        _ => return Err(Error::usage("--blocked-by takes several ids, or one text").into()),
    };
    let edit = Edit {
        status,
        reason: arguments.reason.clone(),
        blocked_by,
        name: arguments.name.clone(),
        tests: some(&arguments.test),
        paths: some(&arguments.path),
        steps: some(&arguments.step),
        ..Edit::default()
    };
    let changed = on.change(|project| Features::new(project).set(id, &edit, if_match))?;
    on.show(&changed)
}

pub(super) fn focus(on: &CommandContext, command: &FocusCommand) -> Answer {
    match command {
        FocusCommand::Set(arguments) if arguments.clear => {
            let cleared = on.change(|project| {
                Sessions::new(project).clear_focus(arguments.reason.as_deref())
            })?;
            on.show(&cleared)
        }
        FocusCommand::Set(arguments) => set_focus(on, arguments),
    }
}

fn set_focus(on: &CommandContext, arguments: &FocusArgs) -> Answer {
    let some = |list: &Vec<String>| Some(list.clone()).filter(|list| !list.is_empty());
    let change = SetFocus {
        task: arguments.task.clone(),
        linear_issue: arguments.issue.clone(),
        files: some(&arguments.file),
        phase: arguments.phase.clone(),
        blockers: some(&arguments.blocker),
        active_skill: arguments.skill.clone(),
        feature_id: arguments.feature.clone(),
        reason: arguments.reason.clone(),
        session: None,
        if_match: arguments.if_match.clone(),
    };
    let set = on.change(|project| {
        let key = change.linear_issue.as_deref().filter(|key| !key.is_empty());
        if let Some(key) = key.filter(|_| project.config().linear.mode != LinearMode::Off) {
            // An unknown key is refused.
            project.issues().show(key)?;
        }
        Sessions::new(project).set_focus(&change)
    })?;
    on.show(&set)
}

const fn kind(kind: ArtifactKind) -> Kind {
    match kind {
        ArtifactKind::Code => Kind::Code,
        ArtifactKind::Docs => Kind::Docs,
        ArtifactKind::Reports => Kind::Reports,
    }
}

pub(super) fn artifact(on: &CommandContext, command: &ForgeArtifactCommand) -> Answer {
    use ForgeArtifactCommand as C;
    match command {
        C::Put {
            file,
            kind: what,
            name,
            from,
        } => {
            let own = file
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            let mut put = Put::new(kind(*what), name.clone().unwrap_or(own));
            for reference in from {
                put.produced_from
                    .push(Reference::parse(reference).map_err(Error::usage)?);
            }
            let stored = on.change(|project| {
                put.session = Sessions::new(project).mine()?.map(|session| session.id);
                Artifacts::new(project).put_file(file, &put)
            })?;
            on.show(&stored)
        }
        C::Get { name } => on.show(&Artifacts::new(&on.open()?).get(name)?),
        C::List { kind: what, limit } => {
            let filter = Filter {
                kind: what.map(kind),
                limit: *limit,
                ..Filter::default()
            };
            on.show(&Artifacts::new(&on.look()?).list(&filter)?)
        }
    }
}

pub(super) fn skill(on: &CommandContext, command: &SkillCommand) -> Answer {
    use SkillCommand as C;
    match command {
        C::List => {
            let skills = Skills::new(&on.look()?).list()?;
            on.print(&skills, || {
                columns(&skills.iter().flat_map(skill_rows).collect::<Vec<_>>())
            })
        }
        C::Show { name } => {
            let shown = Skills::new(&on.open()?).show(name)?;
            on.print(&shown, || {
                let mut text = shown.instructions.trim_end().to_owned();
                if shown.order.len() > 1 {
                    text.push_str(&format!("\n\norder: {}", shown.order.join(", ")));
                }
                if !shown.files.is_empty() {
                    text.push_str(&format!("\n\nfiles:\n  {}", shown.files.join("\n  ")));
                }
                text
            })
        }
        C::Match(SkillQuery { task, file, label }) => {
            let query = Query {
                task: task.join(" "),
                files: file.clone(),
                labels: label.clone(),
            };
            let found = Skills::new(&on.look()?).matching(&query)?;
            if found.is_empty() {
                return on.print(&found, || "no skill matches".to_owned());
            }
            on.show(&found)
        }
    }
}

/// Returns a skill as rows: its description, or why it cannot be used, and its warnings.
fn skill_rows(skill: &Skill) -> Vec<Vec<String>> {
    let about = match skill.is_valid() {
        true => skill.description.clone(),
        false => format!("invalid: {}: {}", skill.path, skill.why_invalid()),
    };
    let mut rows = vec![vec![skill.name.clone(), about]];
    for warning in &skill.warnings {
        rows.push(vec![
            String::new(),
            format!("warning: {}: {}", skill.path, warning.text()),
        ]);
    }
    rows
}

//! `helmdeck forge knowledge`, `features`, `focus`, `artifact` and `skill`.

use std::path::Path;

use helmdeck_core::text::count;
use helmdeck_forge::Error;
use helmdeck_forge::artifacts::{Artifacts, Filter, Gc, Kind, Put};
use helmdeck_forge::features::{Add, BlockedBy, Edit, Features, Manual, Problem, Status, Verified, Which, is_id};
use helmdeck_forge::focus::SetFocus;
use helmdeck_forge::knowledge::{Format, Knowledge, Learning, Search, What};
use helmdeck_forge::sessions::Sessions;
use helmdeck_forge::skills::{Query, Skills};
use helmdeck_forge::triv::Reference;
use helmdeck_forge::work::Work;
use serde_json::Value;

use super::context::{Answer, CommandContext};
use crate::args::forge::{
    ArtifactKind, ExportFormat, FeatureEdit, FeaturesCommand, FocusArgs, FocusCommand, ForgeArtifactCommand,
    KnowledgeCommand, LearnArgs, SkillCommand, SkillQuery,
};
use crate::exit::Exit;
use crate::output::columns;

/// Limit of a file that is imported, in bytes.
const MAX_TEXT: u64 = 1 << 20;

/// Makes a learning of the arguments.
pub(super) fn learning(arguments: &LearnArgs) -> helmdeck_forge::Result<Learning> {
    let text = |given: &Option<String>| given.clone().unwrap_or_default();
    let context = text(&arguments.context);
    let what = if arguments.invariant.is_some() {
        What::Invariant { text: text(&arguments.invariant), check: arguments.check.clone(), severity: None }
    } else if arguments.issue.is_some() {
        What::Failed { context, issue: text(&arguments.issue), resolution: text(&arguments.resolution) }
    } else if arguments.decision.is_some() {
        What::Decision { context, decision: text(&arguments.decision), rationale: text(&arguments.rationale) }
    } else if arguments.approach.is_some() {
        What::Successful { context, approach: text(&arguments.approach) }
    } else {
        return Err(Error::usage("say what was learned: --approach, --issue, --decision or --invariant"));
    };
    Ok(Learning { linear: arguments.key.clone(), paths: arguments.path.clone(), ..Learning::new(what) })
}

/// As [`learning`], with the current work session.
fn of_session(project: &helmdeck_forge::Project, arguments: &LearnArgs) -> helmdeck_forge::Result<Learning> {
    let session = Sessions::new(project).mine()?.map(|session| session.id);
    Ok(Learning { session, ..learning(arguments)? })
}

pub(super) fn knowledge(on: &CommandContext, command: &KnowledgeCommand) -> Answer {
    use KnowledgeCommand as C;
    match command {
        C::Add(arguments) => {
            let if_match = arguments.if_match.as_deref();
            let added = on.change(|project| Knowledge::new(project).add(&of_session(project, arguments)?, if_match))?;
            on.show(&added)
        }
        C::Confirm { id } => {
            let confirmed = on.change(|project| Knowledge::new(project).confirm(id, None))?;
            on.show(&confirmed)
        }
        C::Supersede { id, by } => {
            let if_match = by.if_match.as_deref();
            let superseded =
                on.change(|project| Knowledge::new(project).supersede(id, &of_session(project, by)?, if_match))?;
            on.show(&superseded)
        }
        C::Search { words, limit, superseded } => {
            let search =
                Search { query: words.join(" "), limit: Some(*limit), superseded: *superseded, ..Search::default() };
            on.show(&Knowledge::new(&on.look()?).search(&search)?)
        }
        C::Export { format } => {
            let format = match format {
                ExportFormat::Markdown => Format::Markdown,
                ExportFormat::Jsonl => Format::Jsonl,
                ExportFormat::Json => Format::Json,
            };
            let text = Knowledge::new(&on.look()?).export(format)?;
            on.print(&text, || text.clone())
        }
        C::Drift => on.show(&Knowledge::new(&on.look()?).drift()?),
        C::Compact { etag: Some(etag), into, .. } => {
            let compacted = on.change(|project| Knowledge::new(project).compact(etag, into))?;
            on.show(&compacted)
        }
        C::Compact { etag: None, .. } => on.show(&Knowledge::new(&on.look()?).propose()?),
    }
}

pub(super) fn features(on: &CommandContext, command: &FeaturesCommand) -> Answer {
    use FeaturesCommand as C;
    match command {
        C::List => {
            let listed = Features::new(&on.look()?).list(true)?;
            on.print(&listed, || {
                let rows: Vec<_> = listed
                    .features
                    .iter()
                    .map(|item| {
                        let standing = serde_json::to_value(item.standing).unwrap_or_default();
                        let standing = standing.as_str().unwrap_or_default().to_owned();
                        vec![item.feature.id.clone(), standing, item.feature.name.clone()]
                    })
                    .collect();
                format!("{}{} of {} pass", columns(&rows), listed.counts.passing, listed.counts.counted)
            })
        }
        C::Add { name, id, test, step, category, manual } => {
            let add = Add {
                id: id.clone(),
                name: name.clone(),
                tests: test.clone(),
                steps: step.clone(),
                category: category.clone(),
                blocked_by: None,
                manual: *manual,
            };
            let added = on.change(|project| Features::new(project).add(&add, None))?;
            on.show(&added)
        }
        C::Set(arguments) => set(on, arguments),
        C::Verify { ids, all, stale } => verify(on, ids, *all, *stale),
        C::Manual { id, evidence, by } => {
            let manual = Manual { evidence: evidence.clone(), by: by.clone() };
            let changed = on.change(|project| Features::new(project).manual(id, &manual))?;
            on.show(&changed)
        }
        C::Next => on.show(&Features::new(&on.look()?).next()?),
        C::Probe { count } => {
            let probed = on.change(|project| Features::new(project).probe(*count))?;
            on.show(&probed)?;
            CommandContext::exit(if probed.iter().all(|feature| feature.passed) { Exit::Ok } else { Exit::Failed })
        }
        C::Audit { since } => on.show(&Features::new(&on.look()?).audit(since.as_deref())?),
        C::Remove { id, amend_contract } => {
            let changed = on.change(|project| Features::new(project).remove(id, amend_contract.as_deref(), None))?;
            on.show(&changed)
        }
    }
}

/// Maximum number of lines of a failed test's output.
const TEST_LINES: usize = 12;

/// Returns what a verification found, with the end of the output of what failed.
fn verified_text(verified: &Verified) -> String {
    let problem = verified.problem.map_or("passes", Problem::as_str);
    let mut lines = vec![format!("{} {problem}: {} ran", verified.id, count(verified.executed, "test"))];
    for run in &verified.runs {
        let end = match run.exit {
            Some(exit) => format!("exit {exit}"),
            None if run.timed_out => "timed out".to_owned(),
            None => "did not run".to_owned(),
        };
        lines.push(format!("  {} ({}, {} ms, {end})", run.command, count(run.executed, "test"), run.ms));
        if run.exit != Some(0) {
            let all: Vec<&str> = run.output.lines().collect();
            lines.extend(all[all.len().saturating_sub(TEST_LINES)..].iter().map(|line| format!("    {line}")));
        }
    }
    lines.extend(verified.evidence.iter().map(|evidence| format!("  evidence {evidence}")));
    lines.extend(verified.hint.iter().map(|hint| format!("  hint: {hint}")));
    lines.join("\n")
}

pub(super) fn verify(on: &CommandContext, ids: &[String], all: bool, stale: bool) -> Answer {
    let which = match (ids, all, stale) {
        (_, true, _) => Which::All,
        (_, _, true) => Which::Stale,
        ([], ..) => Which::Named(Work::new(&on.open()?).features()?),
        (ids, ..) => Which::Named(ids.to_vec()),
    };
    let verified = on.change(|project| Features::new(project).verify_each(&which))?;
    let text = || verified.iter().map(verified_text).collect::<Vec<_>>().join("\n");
    match (&which, verified.as_slice()) {
        (Which::Named(_), [one]) => on.print(one, text)?,
        (_, all) => on.print(&all, text)?,
    }
    CommandContext::exit(if verified.iter().all(|feature| feature.passed) { Exit::Ok } else { Exit::Failed })
}

fn set(on: &CommandContext, arguments: &FeatureEdit) -> Answer {
    let status: Option<Status> = match &arguments.status {
        Some(word) => Some(
            serde_json::from_value(Value::from(word.as_str()))
                .map_err(|_| Error::usage(format!("{word:?} is not a status of a feature")))?,
        ),
        None => None,
    };
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
        steps: some(&arguments.step),
        amend_contract: arguments.amend_contract.clone(),
        ..Edit::default()
    };
    let if_match = arguments.if_match.as_deref();
    let changed = on.change(|project| Features::new(project).set(&arguments.id, &edit, if_match))?;
    on.show(&changed)
}

pub(super) fn focus(on: &CommandContext, command: &FocusCommand) -> Answer {
    match command {
        FocusCommand::Show => {
            let project = on.look()?;
            on.show(&Sessions::new(&project).focus_now()?.show()?)
        }
        FocusCommand::Set(arguments) => set_focus(on, arguments),
        FocusCommand::Clear { reason } => {
            let cleared = on.change(|project| Sessions::new(project).clear_focus(reason.as_deref()))?;
            on.show(&cleared)
        }
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
    let set = on.change(|project| Sessions::new(project).set_focus(&change))?;
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
        C::Put { file, kind: what, name, from } => {
            let own = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let mut put = Put::new(kind(*what), name.clone().unwrap_or(own));
            for reference in from {
                put.produced_from.push(Reference::parse(reference).map_err(Error::usage)?);
            }
            let stored = on.change(|project| {
                put.session = Sessions::new(project).mine()?.map(|session| session.id);
                Artifacts::new(project).put_file(file, &put)
            })?;
            on.show(&stored)
        }
        C::Get { name } => on.show(&Artifacts::new(&on.open()?).get(name)?),
        C::List { kind: what, limit } => {
            let filter = Filter { kind: what.map(kind), limit: *limit, ..Filter::default() };
            on.show(&Artifacts::new(&on.look()?).list(&filter)?)
        }
        C::Verify { name } => {
            let verified = Artifacts::new(&on.look()?).verify(name.as_deref())?;
            on.show(&verified)?;
            CommandContext::exit(if verified.ok { Exit::Ok } else { Exit::Failed })
        }
        C::Gc { older, yes } => {
            let gc = Gc { older: *older, apply: *yes, ..Gc::default() };
            let gone = on.change(|project| Artifacts::new(project).gc(&gc))?;
            on.show(&gone)
        }
        C::Rebuild => {
            let rebuilt = on.change(|project| Artifacts::new(project).rebuild())?;
            on.show(&rebuilt)
        }
        C::Snapshot => {
            let stored = on.change(|project| Artifacts::new(project).snapshot())?;
            on.show(&stored)
        }
    }
}

pub(super) fn skill(on: &CommandContext, command: &SkillCommand) -> Answer {
    use SkillCommand as C;
    let by = || on.agent().to_owned();
    match command {
        C::List => {
            let skills = Skills::new(&on.look()?).list()?;
            on.print(&skills, || {
                let rows: Vec<_> = skills
                    .iter()
                    .map(|skill| {
                        let valid = if skill.valid { "" } else { "invalid: " };
                        vec![skill.name.clone(), format!("{valid}{}", skill.description)]
                    })
                    .collect();
                columns(&rows)
            })
        }
        C::Show { name } => {
            let shown = Skills::new(&on.open()?).show(name)?;
            on.print(&shown, || shown.instructions.clone())
        }
        C::Resource { name, path } => {
            let bytes = Skills::new(&on.open()?).resource(name, path)?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            on.print(&text, || text.clone())
        }
        C::Match(query) => {
            let found = on.change(|project| Skills::new(project).ask(&asked(query), &by()))?;
            if found.is_empty() {
                return on.print(&found, || "no skill matches".to_owned());
            }
            on.show(&found)
        }
        C::Plan { names } => {
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            on.show(&Skills::new(&on.open()?).plan(&names)?)
        }
        C::Activate { name } => {
            let activated = on.change(|project| Skills::new(project).activate(name, &by()))?;
            on.show(&activated)
        }
        C::Stats => on.show(&Skills::new(&on.look()?).stats()?),
        C::Import { file } => {
            let taken = on.change(|project| Skills::new(project).import_path(file))?;
            on.show(&taken)
        }
        C::Export { name, folder: Some(folder) } => {
            let files = Skills::new(&on.open()?).export_to(name, folder)?;
            on.print(&files, || files.join("\n"))
        }
        C::Export { name, folder: None } => {
            let text = Skills::new(&on.open()?).export(name)?;
            on.print(&text, || text.clone())
        }
        C::SyncTriggers { name, file } => {
            let text = read(file)?;
            let synced = on.change(|project| Skills::new(project).sync_triggers(name, &text))?;
            on.show(&synced)
        }
    }
}

fn asked(query: &SkillQuery) -> Query {
    Query { text: query.text.join(" "), files: query.file.clone(), labels: query.label.clone() }
}

fn read(file: &Path) -> helmdeck_forge::Result<String> {
    use std::io::Read as _;

    let io = |error| super::context::unreadable(file, &error);
    let mut text = String::new();
    std::fs::File::open(file).map_err(io)?.take(MAX_TEXT).read_to_string(&mut text).map_err(io)?;
    Ok(text)
}

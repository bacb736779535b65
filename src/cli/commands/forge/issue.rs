//! `helmdeck forge issue`.

use helmdeck_core::text::count;
use helmdeck_forge::artifacts::Artifacts;
use helmdeck_forge::issues::{
    Add, BranchOutcome, BranchState, Changed, Criterion, CriterionDone, Done, Edit, Issue, Item,
    Listed, NewComment, Scope, Shown,
};

use super::context::{Answer, CommandContext};
use crate::args::forge::{IssueCommand, IssueEdit, IssueFields};
use crate::output::columns;

pub(super) fn run(on: &CommandContext, command: &IssueCommand) -> Answer {
    use IssueCommand as C;
    match command {
        C::Add(fields) => add(on, fields),
        C::List {
            ready,
            mine,
            done,
            all,
        } => {
            let scope = match (ready, mine, done, all) {
                (true, ..) => Scope::Ready,
                (_, true, ..) => Scope::Mine,
                (_, _, true, _) => Scope::Done,
                (.., true) => Scope::All,
                _ => Scope::Open,
            };
            list(on, scope)
        }
        C::Show { key } => {
            let shown = on.look()?.issues().show(key)?;
            on.print(&shown, || shown_text(&shown))
        }
        C::Set(arguments) => set(on, arguments),
        C::Done {
            key,
            anyway,
            cancelled,
            what,
            why,
            learned,
        } => {
            let done = Done {
                anyway: anyway.clone(),
                cancelled: *cancelled,
                what: what.clone(),
                why: why.clone(),
                learned: learned.clone(),
                commits: Vec::new(),
            };
            let closed = on.change(|project| project.issues().done(key, &done, None))?;
            on.print(&closed, || {
                let word = if closed.again {
                    "was closed before"
                } else {
                    "is closed"
                };
                format!("{} {word}: {}", closed.key, closed.path)
            })
        }
        C::Reopen { key } => {
            let changed = on.change(|project| project.issues().reopen(key))?;
            on.print(&changed, || changed_text(&changed.issue, &changed.warnings))
        }
    }
}

pub(super) fn list(on: &CommandContext, scope: Scope) -> Answer {
    let listed = on.look()?.issues().list(scope)?;
    on.print(&listed, || list_text(&listed))
}

fn add(on: &CommandContext, fields: &IssueFields) -> Answer {
    let mut add = Add {
        title: fields.title.clone(),
        description: fields.description.clone(),
        kind: fields.kind.clone(),
        priority: fields.priority,
        labels: fields.label.clone(),
        assignee: fields.assignee.clone(),
        blocked_by: fields.blocked_by.clone(),
        parent: fields.parent.clone(),
        milestone: fields.milestone.clone(),
        criteria: fields.criterion.clone(),
        features: fields.feature.clone(),
        persona: fields.persona.clone(),
        mode: fields.mode.clone(),
        complexity: fields.complexity.clone(),
        created_from: fields.from.clone(),
        context_snapshot: None,
    };
    let changed = on.change(|project| {
        if fields.snapshot {
            add.context_snapshot = Some(Artifacts::new(project).snapshot()?.entry.triv.to_string());
        }
        project.issues().add(&add)
    })?;
    on.print(&changed, || changed_text(&changed.issue, &changed.warnings))
}

fn set(on: &CommandContext, arguments: &IssueEdit) -> Answer {
    let some = |list: &Vec<String>| Some(list.clone()).filter(|list| !list.is_empty());
    let mark = |criterion: &String, done: bool| CriterionDone {
        criterion: criterion.clone(),
        done,
        evidence: arguments.evidence.clone().filter(|_| done),
    };
    let checked = arguments.check.iter().map(|one| mark(one, true));
    let edit = Edit {
        title: arguments.title.clone(),
        description: arguments.description.clone(),
        kind: arguments.kind.clone(),
        state: arguments.state.clone(),
        priority: arguments.priority,
        labels: some(&arguments.label),
        assignee: arguments.assignee.clone(),
        blocked_by: some(&arguments.blocked_by),
        parent: arguments.parent.clone(),
        milestone: arguments.milestone.clone(),
        criteria: some(&arguments.criterion),
        features: some(&arguments.feature),
        checked: checked
            .chain(arguments.uncheck.iter().map(|one| mark(one, false)))
            .collect(),
        persona: arguments.persona.clone(),
        mode: arguments.mode.clone(),
        complexity: arguments.complexity.clone(),
    };
    let if_match = arguments.if_match.as_deref();
    let comment = arguments.comment.clone().map(|text| NewComment {
        text,
        by: arguments.by.clone(),
    });
    let changed = on.change(|project| {
        let changed = project.issues().set(&arguments.key, &edit, if_match)?;
        let Some(comment) = &comment else {
            return Ok(changed);
        };
        let commented = project.issues().comment(&arguments.key, comment)?;
        Ok(Changed {
            warnings: changed.warnings,
            ..commented
        })
    })?;
    on.print(&changed, || {
        let text = changed_text(&changed.issue, &changed.warnings);
        let comments = comment
            .as_ref()
            .map(|_| count(changed.issue.comments.len(), "comment"));
        comments.map_or_else(|| text.clone(), |comments| format!("{text}\n  {comments}"))
    })
}

pub(super) fn changed_text(issue: &Issue, warnings: &[String]) -> String {
    let mut lines = vec![line(issue)];
    lines.extend(criteria(issue));
    lines.extend(warnings.iter().map(|warning| format!("warning: {warning}")));
    lines.join("\n")
}

/// Returns an issue on one line: `LOCAL-1 Fix the login (bug, urgent, Open)`.
pub(super) fn line(issue: &Issue) -> String {
    let mut about: Vec<&str> = issue.kind.as_deref().into_iter().collect();
    about.extend(priority(issue));
    about.extend(issue.state.as_deref());
    about.extend(issue.owner());
    let about = if about.is_empty() {
        String::new()
    } else {
        format!(" ({})", about.join(", "))
    };
    format!("{} {}{about}", issue.linear_id, issue.title)
}

const fn priority(issue: &Issue) -> Option<&'static str> {
    match issue.priority {
        Some(1) => Some("urgent"),
        Some(2) => Some("high"),
        Some(3) => Some("normal"),
        Some(4) => Some("low"),
        _ => None,
    }
}

/// Returns the criteria of an issue, a line for each.
pub(super) fn criteria(issue: &Issue) -> Vec<String> {
    let line = |(number, criterion): (usize, &Criterion)| {
        format!(
            "  {number}. [{}] {}",
            if criterion.is_done() { 'x' } else { ' ' },
            criterion.text()
        )
    };
    (1..).zip(&issue.acceptance_criteria).map(line).collect()
}

/// Returns what happened to the branch of an issue.
pub(super) fn branch_line(branch: &BranchState) -> String {
    let from = branch
        .from
        .as_deref()
        .map(|from| format!(" from {from}"))
        .unwrap_or_default();
    match branch.outcome {
        BranchOutcome::Created => format!("branch {}, created{from}", branch.name),
        BranchOutcome::Switched => format!("branch {}, switched{from}", branch.name),
        BranchOutcome::AlreadyThere => format!("branch {}", branch.name),
        BranchOutcome::NotSwitched => {
            let why = branch.why.as_deref().unwrap_or("unknown");
            let here = branch.from.as_deref().unwrap_or("a detached HEAD");
            format!("branch {here}, not switched to {}: {why}", branch.name)
        }
    }
}

fn mark(item: &Item) -> String {
    if item.over {
        "done".to_owned()
    } else if !item.waits_for.is_empty() {
        format!("waits for {}", item.waits_for.join(", "))
    } else if item.claimed {
        "another session".to_owned()
    } else if item.ready {
        "ready".to_owned()
    } else {
        "blocked".to_owned()
    }
}

pub(super) fn list_text(listed: &Listed) -> String {
    let rows: Vec<Vec<String>> = listed
        .issues
        .iter()
        .map(|item| {
            let issue = &item.issue;
            let text = |text: Option<&str>| text.unwrap_or("-").to_owned();
            vec![
                issue.linear_id.clone(),
                text(priority(issue)),
                text(issue.kind.as_deref()),
                text(issue.state.as_deref()),
                mark(item),
                issue.title.clone(),
            ]
        })
        .collect();
    let counts = &listed.counts;
    let total = format!(
        "{} open, {} ready, {} waiting, {} done",
        counts.open, counts.ready, counts.blocked, counts.done
    );
    if rows.is_empty() && counts.open == 0 {
        return format!(
            "{total}\nnext: helmdeck forge start \"TITLE\" begins an issue, helmdeck forge issue add \"TITLE\" only adds it"
        );
    }
    if rows.is_empty() {
        total
    } else {
        format!("{}\n{total}", columns(&rows).trim_end())
    }
}

fn shown_text(shown: &Shown) -> String {
    let issue = &shown.item.issue;
    let mut lines = vec![line(issue)];
    if !shown.item.over {
        lines.push(format!("  {}", mark(&shown.item)));
    }
    let mut list = |name: &str, all: &[String]| {
        if !all.is_empty() {
            lines.push(format!("  {name}: {}", all.join(", ")));
        }
    };
    list("labels", &issue.labels);
    list("features", &issue.features);
    list("blocked by", &issue.blocked_by);
    list(
        "part of",
        &issue
            .parent()
            .map(str::to_owned)
            .into_iter()
            .collect::<Vec<_>>(),
    );
    list(
        "milestone",
        &issue.milestone.clone().into_iter().collect::<Vec<_>>(),
    );
    list(
        "earlier keys",
        &issue.earlier_keys().map(str::to_owned).collect::<Vec<_>>(),
    );
    list("had this number too", &shown.also);
    if let Some(refs) = &issue.git_refs {
        list(
            "branch",
            &refs.branch.clone().into_iter().collect::<Vec<_>>(),
        );
        let short = |oid: &String| oid.get(..12).unwrap_or(oid).to_owned();
        list(
            "commits",
            &refs.commits.iter().map(short).collect::<Vec<_>>(),
        );
    }
    list(
        "seen at",
        &issue.url.clone().into_iter().collect::<Vec<_>>(),
    );
    if let Some(summary) = &shown.summary {
        lines.push(String::new());
        lines.push(summary.trim_end().to_owned());
    } else {
        lines.extend(
            issue
                .description
                .iter()
                .flat_map(|text| [String::new(), text.clone()]),
        );
        if !issue.acceptance_criteria.is_empty() {
            lines.push(String::new());
            lines.extend(criteria(issue));
        }
        for comment in &issue.comments {
            let by = comment.by.as_deref().unwrap_or("somebody");
            let at = comment.at.map(|at| format!(", {at}")).unwrap_or_default();
            lines.push(format!("\n{by}{at}:\n{}", comment.text));
        }
    }
    lines.push(format!("\netag: {}", shown.etag));
    lines.join("\n")
}

//! `helmdeck forge issue`.

use helmdeck_forge::issues::{
    BranchOutcome, BranchState, CANCELLED, DONE, IssueEdit, ListIssues, OPEN, Scope, SetIssue,
};

use super::context::{Answer, CommandContext};
use crate::args::forge::IssueCommand;

pub(super) fn run(on: &CommandContext, command: IssueCommand) -> Answer {
    use IssueCommand as C;
    match command {
        C::Add(add) => on.verb(*add),
        C::List(list) => on.verb(list),
        C::Show(show) => on.verb(show),
        C::Set(set) => on.verb(*set),
        C::Done {
            key,
            close,
            cancelled,
        } => {
            let state = if cancelled { CANCELLED } else { DONE };
            on.verb(SetIssue {
                close,
                ..to_state(key, state)
            })
        }
        C::Reopen { key } => on.verb(to_state(key, OPEN)),
    }
}

pub(super) fn ready(on: &CommandContext) -> Answer {
    on.verb(ListIssues {
        scope: Scope::Ready,
        ..ListIssues::default()
    })
}

fn to_state(key: String, state: &str) -> SetIssue {
    let edit = IssueEdit {
        state: Some(state.to_owned()),
        ..IssueEdit::default()
    };
    SetIssue {
        key,
        edit,
        ..SetIssue::default()
    }
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

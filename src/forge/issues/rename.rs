//! Keys that a tracker gives to issues. The old key stays as an alias, because commits keep it.

use super::IssueChanged;
use super::history;
use super::store::{self, Source};
use super::{Active, Issue, Issues, absent, check_key};
use crate::error::{Error, Result};
use crate::events::{self, Subject, data};
use crate::features::FeaturesFile;
use crate::focus::{Focused, SetFocus};
use crate::project::Project;
use crate::sessions::Sessions;

impl Issues<'_> {
    /// Gives an issue the key of a tracker, everywhere: in the issues, the focus and the features.
    ///
    /// The old key stays as an alias, because commits keep it. Running it again changes nothing.
    ///
    /// # Errors
    /// `NotFound`; `Refused` if another issue has the key; errors from writing.
    pub fn rename(&self, from: &str, to: &str) -> Result<IssueChanged> {
        check_key(from).and(check_key(to)).map_err(Error::usage)?;
        let issue = self.change(Source::Tracker, |active, _| {
            if let Some(there) = active.issues.iter().find(|issue| issue.linear_id == to) {
                if !there.answers_to(from) {
                    return Err(Error::refused(format!("{to} is another issue already")));
                }
                // An interrupted call left the file with the old key.
                active.issues.retain(|issue| issue.linear_id != from);
            } else {
                let old = active
                    .issues
                    .iter_mut()
                    .find(|issue| issue.linear_id == from);
                take(old.ok_or_else(|| absent(from))?, to);
            }
            rename_references(active, from, to);
            let issue = active
                .issues
                .iter()
                .find(|issue| issue.linear_id == to)
                .ok_or_else(|| absent(to))?
                .clone();
            Ok(issue)
        })?;
        renamed(self.project, from, to)?;
        IssueChanged::of(issue, Vec::new())
    }

    /// Gives a closed issue the key of a tracker, everywhere. Its file in the history gets that
    /// name too.
    ///
    /// An open issue with the new key, which git brought, is the same one: it is closed by this.
    /// `note` changes what is noted of the issue. Running it again changes nothing.
    ///
    /// # Errors
    /// `NotFound`; `Refused` if another issue has the key; errors from writing.
    pub fn rename_closed(&self, from: &str, to: &str, note: impl FnOnce(&mut Issue)) -> Result<()> {
        check_key(from).and(check_key(to)).map_err(Error::usage)?;
        let files = self.project.files();
        let found = history::find(files, from)?.ok_or_else(|| absent(from))?;
        if found.issue.linear_id == to {
            return Ok(());
        }
        let mut record = match history::find(files, to)? {
            // It was interrupted before the old file was removed, or git brought this one.
            Some(there) if there.issue.linear_id == to => {
                if !there.issue.answers_to(from) && there.issue.title != found.issue.title {
                    return Err(Error::refused(format!("{to} is another issue already")));
                }
                there
            }
            _ => found,
        };
        let name = record.issue.stem().to_owned();
        take(&mut record.issue, to);
        note(&mut record.issue);
        self.change(Source::Tracker, |active, _| {
            if let Some(at) = active.issues.iter().position(|issue| issue.linear_id == to) {
                let twin = active.issues.remove(at);
                let known: Vec<&str> = record
                    .issue
                    .comments
                    .iter()
                    .map(|comment| comment.id.as_str())
                    .collect();
                let new: Vec<_> = twin
                    .comments
                    .into_iter()
                    .filter(|comment| !known.contains(&comment.id.as_str()))
                    .collect();
                record.issue.comments.extend(new);
            }
            rename_references(active, from, to);
            history::renew(files, &record)?;
            // Its own file has the new name by now.
            store::forget(files, &store::path(&name))
        })?;
        files.remove(&history::path(&name))?;
        renamed(self.project, from, to)
    }

    /// Changes what is noted of a closed issue. Its key stays.
    ///
    /// # Errors
    /// `NotFound` for an issue that is not closed; errors from writing.
    pub fn amend_closed(&self, key: &str, note: impl FnOnce(&mut Issue)) -> Result<()> {
        check_key(key).map_err(Error::usage)?;
        let mut record = history::find(self.project.files(), key)?.ok_or_else(|| absent(key))?;
        let before = record.issue.clone();
        note(&mut record.issue);
        (record.issue.linear_id, record.issue.file) =
            (before.linear_id.clone(), before.file.clone());
        if record.issue == before {
            return Ok(());
        }
        let _guard = self.project.files().lock()?;
        history::renew(self.project.files(), &record)
    }
}

/// Gives an issue a key of a tracker.
fn take(issue: &mut Issue, to: &str) {
    let earlier = issue.stem().to_owned();
    if !issue.aliases.contains(&earlier) {
        issue.aliases.push(earlier);
    }
    to.clone_into(&mut issue.linear_id);
    issue.file = None;
}

/// Renames an issue where others name it.
fn rename_references(active: &mut Active, from: &str, to: &str) {
    for other in &mut active.issues {
        for blocker in other
            .blocked_by
            .iter_mut()
            .filter(|blocker| *blocker == from)
        {
            to.clone_into(blocker);
        }
        if let Some(trace) = &mut other.memory_trace
            && trace.parent_issue.as_deref() == Some(from)
        {
            trace.parent_issue = Some(to.to_owned());
        }
    }
}

/// Renames an issue in the features and the focus, and tells the events.
fn renamed(project: &Project, from: &str, to: &str) -> Result<()> {
    if project.files().load::<FeaturesFile>()?.is_some() {
        project.files().edit(None, |file: &mut FeaturesFile| {
            for blockers in file
                .features
                .iter_mut()
                .filter_map(|feature| feature.blocked_by.as_mut())
            {
                blockers.rename(|name| (name == from).then(|| to.to_owned()));
            }
            Ok(())
        })?;
    }
    let focus = Sessions::new(project)
        .focus_now()
        .unwrap_or_else(|_| Focused::new(project));
    if focus
        .show()?
        .is_some_and(|shown| shown.focus.linear_issue.as_deref() == Some(from))
    {
        let set = SetFocus {
            linear_issue: Some(to.to_owned()),
            ..SetFocus::default()
        };
        Sessions::new(project).set_focus(&set)?;
    }
    let event = data::IssueChanged {
        key: to.to_owned(),
        what: "renamed".to_owned(),
        from: Some(from.to_owned()),
        to: Some(to.to_owned()),
    };
    events::emit(project, Subject::Linear, event);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{AddIssue, CloseIssue, IssueFields};
    use crate::fixture::Fixture;
    use crate::layout::HISTORY;

    #[test]
    fn a_closed_issue_takes_a_key_with_its_file() {
        let fixture = Fixture::new();
        let issues = fixture.project.issues();
        let add = |title: &str| AddIssue {
            title: title.to_owned(),
            ..AddIssue::default()
        };
        issues.add(&add("One")).unwrap();
        issues
            .add(&AddIssue {
                fields: IssueFields {
                    blocked_by: Some(vec!["LOCAL-1".to_owned()]),
                    ..IssueFields::default()
                },
                ..add("Two")
            })
            .unwrap();
        issues
            .done(
                "LOCAL-1",
                &CloseIssue {
                    why: Some("It was asked".to_owned()),
                    ..CloseIssue::default()
                },
                None,
            )
            .unwrap();
        for _ in 0..2 {
            issues
                .rename_closed("LOCAL-1", "SX9-7", |issue| {
                    issue.url = Some("https://x".to_owned())
                })
                .unwrap();
        }
        assert!(!fixture.has(&format!("{HISTORY}/LOCAL-1.md")));
        let shown = issues.show("LOCAL-1").unwrap();
        assert_eq!(
            (
                shown.item.issue.linear_id.as_str(),
                shown.item.issue.url.as_deref()
            ),
            ("SX9-7", Some("https://x"))
        );
        let summary = shown.summary.unwrap();
        assert!(
            summary.starts_with("# SX9-7: One\n") && summary.contains("It was asked"),
            "{summary}"
        );
        assert_eq!(
            issues.show("LOCAL-2").unwrap().item.issue.blocked_by,
            ["SX9-7"]
        );
        assert_eq!(
            issues
                .rename_closed("LOCAL-9", "SX9-8", |_| ())
                .unwrap_err()
                .code,
            "E_NOT_FOUND"
        );
    }

    #[test]
    fn an_open_twin_is_closed_with_it() {
        let fixture = Fixture::new();
        let issues = fixture.project.issues();
        issues
            .add(&AddIssue {
                title: "One".to_owned(),
                ..AddIssue::default()
            })
            .unwrap();
        issues
            .done("LOCAL-1", &CloseIssue::default(), None)
            .unwrap();
        fixture.repository.write(
            ".forge/linear/issues/SX9-7.json",
            r#"{"linear_id": "SX9-7", "title": "One"}"#,
        );
        issues.rename_closed("LOCAL-1", "SX9-7", |_| ()).unwrap();
        assert_eq!(issues.read().unwrap().issues, []);
        assert!(issues.show("SX9-7").unwrap().item.over);
    }
}

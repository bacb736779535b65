//! Collects a briefing from files and git. Only reads; an unreadable part becomes a warning.

use std::cell::OnceCell;

use super::brief::{
    Brief, CommentLine, CommitLine, FeatureLine, FocusLine, IssueLines, Lag, LearningLine, Primed, Section, SkillLine,
};
use crate::checkpoints::Checkpoints;
use crate::error::Result;
use crate::features::{Evidence, Features, Item, Standing};
use crate::focus::{Focus, Focused};
use crate::health::{self, Code, Colour, Severity};
use crate::issues::Scope;
use crate::knowledge::{Invariant, Kind, Knowledge, Search};
use crate::layout::session_folder;
use crate::progress::Progress;
use crate::project::Project;
use crate::sessions::{Session, SessionId, Sessions, session_of};
use crate::skills::{Query, Skills, matching};

/// Maximum number of failing features that are named.
const FAILING: usize = 10;
/// Maximum number of commits that are named.
const COMMITS: usize = 10;
/// Maximum number of invariants that are named.
const INVARIANTS: usize = 20;
/// Maximum number of open criteria and of comments of an issue that are named.
const CRITERIA: usize = 5;
const COMMENTS: usize = 3;
/// Maximum number of learnings that are named.
const LEARNINGS: usize = 5;
/// Maximum number of skills that are named.
const SKILLS: usize = 5;
/// Maximum number of warnings that are named.
const WARNINGS: usize = 20;

/// Returns the briefing for a new session, within a budget of estimated tokens.
///
/// Without a budget, the configured one applies: 2,000. It only reads, and works while work is paused.
///
/// # Errors
/// An unreadable part is a warning of the briefing, not an error.
pub fn prime(project: &Project, budget: Option<usize>) -> Result<Primed> {
    let (session, mut warnings) = match Sessions::new(project).shown() {
        Ok(session) => (session, Vec::new()),
        Err(error) => (None, vec![format!("the sessions cannot be read: {error}")]),
    };
    if let Some(budget) = budget.filter(|budget| *budget < super::LEAST) {
        warnings.push(format!("a brief has room for {} tokens; {budget} are too few", super::LEAST));
    }
    let budget = budget.unwrap_or_else(|| self::budget(project));
    Ok(gather(project, session.as_ref(), &warnings)?.render(budget))
}

/// Returns the configured budget of a briefing, in estimated tokens.
pub(crate) fn budget(project: &Project) -> usize {
    usize::try_from(project.config().session.prime_tokens).unwrap_or(super::BUDGET)
}

/// Collects the briefing of a session. The caller's warnings come first.
pub(crate) fn gather(project: &Project, session: Option<&Session>, warnings: &[String]) -> Result<Brief> {
    let mut on = Context { project, session, warnings: warnings.to_vec(), evidence: OnceCell::new() };
    let focus = on.focus();
    let (checkpoint, commits) = on.history();
    let (invariants, learnings) = on.knowledge(focus.as_ref());
    let mut brief = Brief {
        session: session.map(|session| session.id.clone()),
        abandoned: session.and_then(|session| session.resumes.clone()),
        branch: on.branch(),
        checkpoint,
        paused: project.check_not_paused().err().map(|error| error.message),
        health: on.health(),
        next: on.next(),
        issue: on.issue(focus.as_ref()),
        failing: on.failing(),
        commits,
        invariants,
        learnings,
        skills: on.skills(focus.as_ref()),
        idle: focus.as_ref().filter(|focus| focus.task.is_none()).and_then(|focus| idle(project, focus)),
        focus: focus.as_ref().and_then(line),
        warnings: Section::default(),
    };
    brief.warnings = Section::first(WARNINGS, on.warnings);
    Ok(brief)
}

struct Context<'a> {
    project: &'a Project,
    session: Option<&'a Session>,
    warnings: Vec<String>,
    /// The existing artifacts, read once.
    evidence: OnceCell<Result<Evidence>>,
}

impl Context<'_> {
    /// Returns what was read, or the default and a warning.
    fn or_warn<T: Default>(&mut self, what: &str, read: Result<T>) -> T {
        read.unwrap_or_else(|error| {
            let warning = format!("{what}: {error}");
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
            T::default()
        })
    }

    fn branch(&mut self) -> Option<String> {
        let git = self.project.git().ok()?;
        let branch = git.branch().map_err(Into::into);
        let branch = self.or_warn("the branch cannot be read", branch);
        if branch.as_deref().is_some_and(crate::recovery::is_rollback) {
            self.warnings.push(
                "this branch was made by a rollback: it has the code of its checkpoint and all that was learned. Begin a session here \
                 and go on; once it is good, merge it into the branch one came from"
                    .to_owned(),
            );
        }
        branch
    }

    fn focus(&mut self) -> Option<Focus> {
        let mut focus = Focused::new(self.project);
        if let Some(session) = self.session.filter(|session| !session.primary) {
            focus = focus.of(&session.folder()).ok()?;
        }
        let shown = focus.show();
        let shown = self.or_warn("the focus cannot be read", shown)?;
        self.warnings.extend(shown.warnings.iter().map(|warning| format!("focus: {warning}")));
        Some(shown.focus)
    }

    /// Returns the next step: from this session, or else from the one before it.
    fn next(&mut self) -> Option<String> {
        let read = self.read_next();
        self.or_warn("the progress cannot be read", read)
    }

    fn read_next(&self) -> Result<Option<String>> {
        let mine = self.session.map(Session::folder);
        let progress = Progress::new(self.project);
        let progress = match self.session.filter(|session| !session.primary) {
            Some(session) => progress.of(&session.folder())?,
            None => progress,
        };
        if let Some(next) = progress.read()?.and_then(|log| log.next) {
            return Ok(Some(next));
        }
        let archives = Progress::new(self.project).archives()?;
        let others = archives.iter().filter(|folder| Some(*folder) != mine.as_ref() && session_folder(folder).is_ok());
        let Some(last) = others.max_by_key(|folder| order(folder)) else { return Ok(None) };
        Ok(Progress::new(self.project).of(last)?.read()?.and_then(|log| log.next))
    }

    fn history(&mut self) -> (Option<Lag>, Section<CommitLine>) {
        let Ok(git) = self.project.git() else { return (None, Section::default()) };
        let log = git.log("HEAD", COMMITS).map_err(Into::into);
        let commits = self.or_warn("the commits cannot be read", log);
        let total = git.count("HEAD").ok().and_then(|count| usize::try_from(count).ok()).unwrap_or(commits.len());
        let lines = commits
            .into_iter()
            .map(|commit| CommitLine { commit: commit.oid.short().to_owned(), subject: commit.subject })
            .collect();
        (self.lag(), Section { items: lines, total })
    }

    fn lag(&mut self) -> Option<Lag> {
        let git = self.project.git().ok()?;
        let usable = Checkpoints::new(self.project).newest_usable();
        let checkpoint = self.or_warn("the checkpoints cannot be read", usable)?;
        let since = git.count_work(&format!("{}..HEAD", checkpoint.oid()?)).ok()?;
        Some(Lag { tag: checkpoint.tag, commits: usize::try_from(since).unwrap_or(usize::MAX) })
    }

    /// Returns the worst colour, and the colour and first reason of each component that is not green.
    fn health(&mut self) -> Option<String> {
        let health = health::measure_with(self.project, &self.evidence);
        let mut text = health.overall.as_str().to_owned();
        for (name, colour, reasons) in health.components() {
            let damaged = reasons.iter().filter(|reason| reason.code == Code::FileCorrupt);
            let damaged = damaged.filter(|reason| reason.severity > Severity::Info);
            self.warnings.extend(damaged.map(|reason| format!("damaged: {}; see {}", reason.detail, reason.next)));
            if matches!(colour, Colour::Yellow | Colour::Red) {
                let why = reasons.first().map(|reason| format!(" ({})", reason.code.as_str())).unwrap_or_default();
                text.push_str(&format!(", {name} {}{why}", colour.as_str()));
            }
        }
        Some(text)
    }

    fn failing(&mut self) -> Section<FeatureLine> {
        let evidence = self.evidence.get_or_init(|| Evidence::read(self.project));
        let listed = evidence
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|evidence| Features::new(self.project).list_by(evidence, false));
        let Ok(listed) = listed else {
            self.or_warn("the features cannot be read", listed.map(drop));
            return Section::default();
        };
        let failing = listed.features.into_iter().filter_map(|Item { standing, feature }| {
            let status = match standing {
                Standing::Regressed => "regressed",
                Standing::Failing => "failing",
                Standing::UnverifiedPass => "unverified_pass",
                _ => return None,
            };
            Some(FeatureLine { id: feature.id, name: feature.name, status: status.to_owned() })
        });
        Section::first(FAILING, failing)
    }

    /// Returns the invariants, and the learnings that match the focus.
    fn knowledge(&mut self, focus: Option<&Focus>) -> (Section<String>, Section<LearningLine>) {
        let read = Knowledge::new(self.project).read();
        let Ok(file) = read else {
            self.or_warn("what was learned cannot be read", read.map(drop));
            return Default::default();
        };
        let invariants =
            Section::first(INVARIANTS, file.current_invariants().map(|one| Invariant::text(one).to_owned()));
        let query = focus.map(words).unwrap_or_default();
        // Without a focus, the latest learnings fit best.
        let kinds = vec![Kind::Successful, Kind::Failed, Kind::Decision];
        let found = file.search(&Search { query, limit: Some(LEARNINGS), kinds, superseded: false });
        let lines = found.entries.iter().map(|hit| {
            let text = |name: &str| hit.texts.get(name).map(String::as_str).unwrap_or_default();
            let (kind, said) = match hit.kind {
                Kind::Failed => ("failed", format!("{} - {}", text("issue"), text("resolution"))),
                Kind::Decision => ("decided", format!("{} - {}", text("decision"), text("rationale"))),
                _ => ("worked", text("approach").to_owned()),
            };
            LearningLine { kind: kind.to_owned(), context: text("context").to_owned(), text: said }
        });
        (invariants, Section { items: lines.collect(), total: found.total })
    }

    /// Returns the skills that match the focus.
    fn skills(&mut self, focus: Option<&Focus>) -> Section<SkillLine> {
        let Some(focus) = focus.filter(|focus| focus.task.is_some()) else { return Section::default() };
        let query = Query {
            text: focus.task.clone().unwrap_or_default(),
            files: focus.files.clone(),
            labels: self.labels(focus),
        };
        let all = Skills::new(self.project).list();
        let all = self.or_warn("the skills cannot be read", all);
        let lines = matching(&all, &query).into_iter().filter(|one| one.fires).map(|one| {
            let skill = all.iter().find(|skill| skill.name == one.skill);
            SkillLine { description: skill.map(|skill| skill.description.clone()).unwrap_or_default(), name: one.skill }
        });
        Section::first(SKILLS, lines)
    }

    /// Returns the issue of the focus.
    fn issue(&mut self, focus: Option<&Focus>) -> Option<IssueLines> {
        let key = focus?.linear_issue.as_deref()?;
        let read = crate::issues::read(&self.project.files().reading());
        let active = self.or_warn("the issues cannot be read", read.map(Some))?;
        let issue = active.issues.into_iter().find(|issue| issue.answers_to(key))?;
        let open = issue.acceptance_criteria.iter().filter(|criterion| !criterion.is_done());
        let total = issue.comments.len();
        let newest = issue.comments.into_iter().skip(total.saturating_sub(COMMENTS)).map(|comment| CommentLine {
            by: comment.by.unwrap_or_else(|| "somebody".to_owned()),
            at: comment.at,
            text: comment.text,
        });
        Some(IssueLines {
            from_tracker: issue.remote.as_ref().is_some_and(|remote| remote.0.contains_key("id")),
            criteria: Section::first(CRITERIA, open.map(|criterion| criterion.text().to_owned())),
            comments: Section { items: newest.collect(), total },
            key: issue.linear_id,
            title: issue.title,
            description: issue.description.filter(|text| !text.trim().is_empty()),
        })
    }

    /// Returns the labels of the focus' issue.
    fn labels(&self, focus: &Focus) -> Vec<String> {
        let Some(key) = &focus.linear_issue else { return Vec::new() };
        let active = crate::issues::read(&self.project.files().reading()).ok();
        let issues = active.map(|active| active.issues).unwrap_or_default();
        issues.into_iter().find(|issue| issue.linear_id == *key).map(|issue| issue.labels).unwrap_or_default()
    }
}

/// Returns the sort key of a session folder: its day and its number.
///
/// The names do not sort that way as text. A day's notes without a session come before its sessions,
/// which name the next step.
fn order(folder: &str) -> (&str, u32) {
    let number = session_of(folder).parse::<SessionId>().map_or(0, |id| id.number);
    (folder.get(..10).unwrap_or_default(), number)
}

/// Returns why there is no task; if an issue can be started since, that it can.
fn idle(project: &Project, focus: &Focus) -> Option<String> {
    // Of damaged issues no copy is made here: this only reads.
    let read = crate::issues::read(&project.files().reading()).ok();
    let listed = read.and_then(|_| project.issues().list(Scope::Ready).ok());
    let ready = listed.and_then(|listed| listed.issues.into_iter().next());
    let ready = ready.map(|item| format!("{} can be started: helmdeck forge start", item.issue.linear_id));
    ready.or_else(|| focus.reason.clone())
}

/// Returns the search words of a focus.
fn words(focus: &Focus) -> String {
    let mut words: Vec<&str> =
        focus.task.iter().chain(&focus.feature_id).chain(&focus.linear_issue).map(String::as_str).collect();
    words.extend(focus.files.iter().map(String::as_str));
    words.join(" ")
}

fn line(focus: &Focus) -> Option<FocusLine> {
    Some(FocusLine {
        task: focus.task.clone()?,
        phase: focus.phase.as_str().to_owned(),
        linear_issue: focus.linear_issue.clone(),
        feature_id: focus.feature_id.clone(),
        files: focus.files.clone(),
        blockers: focus.blockers.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::brief::LEAST;
    use super::prime;
    use crate::artifacts::READ;
    use crate::environment::ProjectEnvironment;
    use crate::focus::{Focused, SetFocus};
    use crate::git::fixture::Repository;
    use crate::init::{self, Init};

    #[test]
    fn the_index_of_the_artifacts_is_read_once() {
        let repository = Repository::new();
        let (project, _) = init::init(repository.path(), ProjectEnvironment::default(), &Init::default()).unwrap();
        let before = READ.get();
        prime(&project, None).unwrap();
        assert_eq!(READ.get() - before, 1);
    }

    #[test]
    fn a_brief_names_the_skills_that_fire_for_the_focus_within_its_budget() {
        let repository = Repository::new();
        let (project, _) = init::init(repository.path(), ProjectEnvironment::default(), &Init::default()).unwrap();
        let named = |primed: &super::Primed| {
            primed.brief.skills.items.iter().map(|skill| skill.name.clone()).collect::<Vec<_>>()
        };
        assert!(named(&prime(&project, None).unwrap()).is_empty(), "nothing is done");
        let set = |task: &str, files: &[&str], issue: Option<&str>| {
            let files = Some(files.iter().map(|file| (*file).to_owned()).collect());
            let linear_issue = Some(issue.unwrap_or_default().to_owned());
            Focused::new(&project)
                .set(&SetFocus { task: Some(task.into()), files, linear_issue, ..SetFocus::default() })
                .unwrap();
            prime(&project, None).unwrap()
        };
        let primed = set("Implement the daemon", &["src/main.rs"], None);
        assert_eq!(named(&primed)[0], "code-generation");
        let skill = &primed.brief.skills.items[0];
        assert!(
            primed.text.contains("matching skills (") && primed.text.contains(&skill.description),
            "{}",
            primed.text
        );
        assert!(named(&set("Rest", &[], None)).is_empty(), "nothing fires");
        repository.write(crate::layout::ACTIVE, r#"[{"linear_id":"SX9-7","title":"t","labels":["enhancement"]}]"#);
        assert_eq!(named(&set("Rest", &[], Some("SX9-7"))), ["code-generation"], "the label of its issue");
        for budget in [LEAST, 700, 1_000, 2_000] {
            let primed = prime(&project, Some(budget)).unwrap();
            assert!(primed.tokens <= budget && primed.text.len() <= 4 * budget, "{budget}: {}", primed.tokens);
        }
        assert!(prime(&project, None).unwrap().tokens <= 2_000);
    }
}

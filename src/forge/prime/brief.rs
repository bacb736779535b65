//! Briefing of a new session, with a size limit.

use helmdeck_core::text::count;
use schemars::JsonSchema;
use serde::Serialize;

use crate::time::Time;

use super::fence::{CLOSE, OPEN, RULES, quote};

/// Default budget, in tokens.
pub const BUDGET: usize = 2_000;
/// Minimum budget, in tokens: the head of a briefing needs that much.
pub const LEAST: usize = 600;
/// Maximum length of a quoted text in the head or in a list item, in characters.
const HEAD_TEXT: usize = 160;
const ITEM_TEXT: usize = 240;
/// Maximum number of files of a focus that are named.
const FILES: usize = 5;

/// Content of a briefing, before it is cut to its budget.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Brief {
    /// The session; `null` if none is active.
    pub session: Option<String>,
    /// The session that was abandoned before it.
    pub abandoned: Option<String>,
    /// The branch; `null` if HEAD is detached or there is no git.
    pub branch: Option<String>,
    /// The checkpoint to roll back to.
    pub checkpoint: Option<Lag>,
    /// Why work is paused.
    pub paused: Option<String>,
    /// The health: a colour, and its reasons.
    pub health: Option<String>,
    /// The current focus.
    pub focus: Option<FocusLine>,
    /// Why there is no focus, if there is none.
    pub idle: Option<String>,
    /// The next step, as the last session noted it.
    pub next: Option<String>,
    /// The issue of the focus. Its texts are data, wherever they come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issue: Option<IssueLines>,
    /// Features that do not work.
    pub failing: Section<FeatureLine>,
    /// The last commits.
    pub commits: Section<CommitLine>,
    /// The invariants: what must always hold.
    pub invariants: Section<String>,
    /// Learnings that match the focus; without a focus, the latest ones.
    pub learnings: Section<LearningLine>,
    /// Skills that match the focus.
    pub skills: Section<SkillLine>,
    /// Warnings.
    pub warnings: Section<String>,
}

/// The shown items, and the total number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Section<T> {
    /// The first items.
    pub items: Vec<T>,
    /// Total number.
    pub total: usize,
}

/// A checkpoint, and how far behind it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Lag {
    /// Its tag.
    pub tag: String,
    /// Number of commits since then.
    pub commits: usize,
}

/// The current focus.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct FocusLine {
    /// The task.
    pub task: String,
    /// Its phase.
    pub phase: String,
    /// Its issue.
    pub linear_issue: Option<String>,
    /// Its feature.
    pub feature_id: Option<String>,
    /// Its files.
    pub files: Vec<String>,
    /// Its blockers.
    pub blockers: Vec<String>,
}

/// The issue of the focus.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct IssueLines {
    /// Its key.
    pub key: String,
    /// Whether a tracker has it: then anybody who may write there may have written its texts.
    pub from_tracker: bool,
    /// Its title.
    pub title: String,
    /// The begin of its description.
    pub description: Option<String>,
    /// The acceptance criteria that are open.
    pub criteria: Section<String>,
    /// The newest comments, the oldest first.
    pub comments: Section<CommentLine>,
}

/// A comment on an issue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct CommentLine {
    /// Its author.
    pub by: String,
    /// When it was made.
    pub at: Option<Time>,
    /// What it says.
    pub text: String,
}

/// A feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FeatureLine {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: String,
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CommitLine {
    /// The first 12 digits of its id.
    pub commit: String,
    /// Its first line.
    pub subject: String,
}

/// Something learned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LearningLine {
    /// `worked`, `failed` or `decided`.
    pub kind: String,
    /// When it applies.
    pub context: String,
    /// What was learned.
    pub text: String,
}

/// A skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SkillLine {
    /// Its name.
    pub name: String,
    /// Its purpose.
    pub description: String,
}

/// A rendered briefing within its budget.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Primed {
    /// The text for a model.
    pub text: String,
    /// Estimated number of tokens: one for every four bytes.
    pub tokens: usize,
    /// The items that were cut to stay within the budget.
    pub left_out: Vec<LeftOut>,
    /// The content that the text was rendered from.
    pub brief: Brief,
}

/// The items cut from a section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeftOut {
    /// The section.
    pub section: &'static str,
    /// Number of shown items.
    pub shown: usize,
    /// Total number.
    pub total: usize,
}

impl<T> Default for Section<T> {
    fn default() -> Self {
        Self { items: Vec::new(), total: 0 }
    }
}

impl<T> Section<T> {
    /// Keeps the first `most` items, and the total number.
    pub fn first(most: usize, all: impl IntoIterator<Item = T>) -> Self {
        let mut all = all.into_iter();
        let items: Vec<T> = all.by_ref().take(most).collect();
        Self { total: items.len() + all.count(), items }
    }
}

/// Estimates the tokens of a text: one for every four bytes, rounded up.
#[must_use]
pub const fn estimate(text: &str) -> usize {
    text.len().div_ceil(4)
}

impl Brief {
    /// Renders the briefing within a budget of tokens (at least [`LEAST`]).
    ///
    /// What does not fit is cut from the end, item by item, and counted. All text of other authors is
    /// quoted between two tags.
    #[must_use]
    pub fn render(self, budget: usize) -> Primed {
        let budget = budget.max(LEAST);
        let head = self.head();
        let mut lists = self.lists();
        loop {
            let left_out = left_out(&lists);
            let text = compose(&head, &lists, &left_out);
            let longest = lists.iter_mut().rev().find(|list| !list.lines.is_empty());
            match longest {
                Some(list) if estimate(&text) > budget => drop(list.lines.pop()),
                _ => return Primed { tokens: estimate(&text), text, left_out, brief: self },
            }
        }
    }

    /// Returns the lines that are never cut.
    fn head(&self) -> String {
        let word =
            |text: &Option<String>| text.as_deref().map_or_else(|| "none".to_owned(), |text| quote(text, HEAD_TEXT));
        let mut head = format!("session: {}\nbranch: {}\n", word(&self.session), word(&self.branch));
        if self.abandoned.is_some() {
            head.push_str(&format!("takes up abandoned session: {}\n", word(&self.abandoned)));
        }
        if self.paused.is_some() {
            head.push_str(&format!("PAUSED, nothing may be changed: {}\n", word(&self.paused)));
        }
        head.push_str(&match &self.checkpoint {
            None => "checkpoint: none\n".to_owned(),
            Some(lag) => format!("checkpoint: {}, {} ago\n", quote(&lag.tag, HEAD_TEXT), count(lag.commits, "commit")),
        });
        head.push_str(&format!("health: {}\n", word(&self.health)));
        head.push_str(&match &self.focus {
            None if self.idle.is_some() => format!("focus: none, {}\n", word(&self.idle)),
            None => "focus: none\n".to_owned(),
            Some(focus) => focus.line(),
        });
        if self.next.is_some() {
            head.push_str(&format!("next: {}\n", word(&self.next)));
        }
        head
    }

    fn lists(&self) -> Vec<List> {
        let item = |text: &str| quote(text, ITEM_TEXT);
        vec![
            self.issue.as_ref().map_or_else(|| List::empty("issue of the focus"), IssueLines::list),
            list("failing features", &self.failing, |feature| {
                format!("{} {} {}", item(&feature.id), feature.status, item(&feature.name))
            }),
            list("commits", &self.commits, |commit| format!("{} {}", commit.commit, item(&commit.subject))),
            list("invariants", &self.invariants, |text| item(text)),
            list("learned", &self.learnings, |learning| {
                format!("{} {}: {}", learning.kind, item(&learning.context), item(&learning.text))
            }),
            list("matching skills", &self.skills, |skill| {
                format!("{} {}", item(&skill.name), item(&skill.description))
            }),
            list("warnings", &self.warnings, |text| item(text)),
        ]
    }
}

impl FocusLine {
    fn line(&self) -> String {
        let mut line = format!("focus: {}, phase {}", quote(&self.task, ITEM_TEXT), quote(&self.phase, 16));
        for (name, value) in [("issue", &self.linear_issue), ("feature", &self.feature_id)] {
            if let Some(value) = value {
                line.push_str(&format!(", {name} {}", quote(value, 32)));
            }
        }
        line.push('\n');
        for (name, values) in [("focus files", &self.files), ("focus blockers", &self.blockers)] {
            if !values.is_empty() {
                let shown: Vec<_> = values.iter().take(FILES).map(|value| quote(value, HEAD_TEXT)).collect();
                let more =
                    if values.len() > FILES { format!(" and {} more", values.len() - FILES) } else { String::new() };
                line.push_str(&format!("{name}: {}{more}\n", shown.join(", ")));
            }
        }
        line
    }
}

impl IssueLines {
    fn list(&self) -> List {
        let mut lines = vec![format!("title {}", quote(&self.title, ITEM_TEXT))];
        lines.extend(self.description.iter().map(|text| format!("description {}", quote(text, 2 * ITEM_TEXT))));
        lines.extend(self.criteria.items.iter().map(|text| format!("open criterion {}", quote(text, ITEM_TEXT))));
        lines.extend(self.comments.items.iter().map(|comment| {
            let at = comment.at.map(|at| format!(", {at}")).unwrap_or_default();
            format!("comment of {}{at}: {}", quote(&comment.by, 64), quote(&comment.text, ITEM_TEXT))
        }));
        let hidden =
            (self.criteria.total - self.criteria.items.len()) + (self.comments.total - self.comments.items.len());
        let name = if self.from_tracker { "issue of the focus, from a tracker" } else { "issue of the focus" };
        List { name, offered: lines.len(), total: lines.len() + hidden, lines }
    }
}

/// A section as lines.
struct List {
    name: &'static str,
    lines: Vec<String>,
    total: usize,
    /// Number of items before anything was cut.
    offered: usize,
}

impl List {
    const fn empty(name: &'static str) -> Self {
        Self { name, lines: Vec::new(), total: 0, offered: 0 }
    }
}

fn list<T>(name: &'static str, section: &Section<T>, line: impl Fn(&T) -> String) -> List {
    let lines: Vec<String> = section.items.iter().map(line).collect();
    List { name, offered: lines.len(), lines, total: section.total.max(section.items.len()) }
}

fn left_out(lists: &[List]) -> Vec<LeftOut> {
    let cut = lists.iter().filter(|list| list.lines.len() < list.offered);
    cut.map(|list| LeftOut { section: list.name, shown: list.lines.len(), total: list.total }).collect()
}

fn compose(head: &str, lists: &[List], left_out: &[LeftOut]) -> String {
    let mut text = format!("{RULES}{OPEN}\n{head}");
    for list in lists.iter().filter(|list| !list.lines.is_empty()) {
        text.push_str(&format!("{} ({} of {}):\n", list.name, list.lines.len(), list.total));
        for line in &list.lines {
            text.push_str(&format!("- {line}\n"));
        }
    }
    if !left_out.is_empty() {
        let counts: Vec<_> =
            left_out.iter().map(|cut| format!("{} {} of {} shown", cut.section, cut.shown, cut.total)).collect();
        text.push_str(&format!("left out for want of room: {}\n", counts.join(", ")));
    }
    text.push_str(CLOSE);
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn full(text: &str) -> Brief {
        let some = || Some(text.to_owned());
        Brief {
            session: some(),
            abandoned: some(),
            branch: some(),
            checkpoint: Some(Lag { tag: text.to_owned(), commits: 3 }),
            paused: some(),
            health: some(),
            focus: Some(FocusLine {
                task: text.to_owned(),
                phase: text.to_owned(),
                linear_issue: some(),
                feature_id: some(),
                files: vec![text.to_owned(); 9],
                blockers: vec![text.to_owned(); 9],
            }),
            idle: some(),
            next: some(),
            issue: Some(IssueLines {
                key: text.to_owned(),
                from_tracker: true,
                title: text.to_owned(),
                description: some(),
                criteria: Section::first(5, vec![text.to_owned(); 5]),
                comments: Section::first(
                    3,
                    vec![CommentLine { by: text.to_owned(), at: None, text: text.to_owned() }; 3],
                ),
            }),
            failing: Section::first(
                10,
                vec![FeatureLine { id: text.to_owned(), name: text.to_owned(), status: "failing".to_owned() }; 30],
            ),
            commits: Section::first(10, vec![CommitLine { commit: "abc123".to_owned(), subject: text.to_owned() }; 10]),
            invariants: Section::first(20, vec![text.to_owned(); 20]),
            learnings: Section::first(
                5,
                vec![LearningLine { kind: "worked".to_owned(), context: text.to_owned(), text: text.to_owned() }; 5],
            ),
            skills: Section::first(5, vec![SkillLine { name: text.to_owned(), description: text.to_owned() }; 5]),
            warnings: Section::first(20, vec![text.to_owned(); 2]),
        }
    }

    #[test]
    fn a_brief_says_each_thing_in_its_order() {
        let brief = Brief {
            session: Some("2025-12-24-session-001".to_owned()),
            branch: Some("main".to_owned()),
            checkpoint: Some(Lag { tag: "checkpoint/SX9-123-v1".to_owned(), commits: 3 }),
            health: Some("green".to_owned()),
            focus: Some(FocusLine {
                task: "Wire ATLAS daemon to NATS".to_owned(),
                phase: "PLAN".to_owned(),
                linear_issue: Some("SX9-123".to_owned()),
                files: vec!["src/main.rs".to_owned()],
                ..FocusLine::default()
            }),
            next: Some("Wire it".to_owned()),
            invariants: Section::first(5, ["Never use Blake3".to_owned()]),
            ..Brief::default()
        };
        let primed = brief.render(BUDGET);
        let data = primed.text.strip_prefix(RULES).unwrap();
        assert_eq!(
            data,
            "<project_memory>\nsession: \"2025-12-24-session-001\"\nbranch: \"main\"\n\
             checkpoint: \"checkpoint/SX9-123-v1\", 3 commits ago\nhealth: \"green\"\n\
             focus: \"Wire ATLAS daemon to NATS\", phase \"PLAN\", issue \"SX9-123\"\nfocus files: \"src/main.rs\"\n\
             next: \"Wire it\"\ninvariants (1 of 1):\n- \"Never use Blake3\"\n</project_memory>\n"
        );
        assert_eq!((primed.left_out, primed.tokens), (vec![], primed.text.len().div_ceil(4)));
    }

    #[test]
    fn one_commit_is_singular() {
        let checkpoint = |commits| Some(Lag { tag: "a".to_owned(), commits });
        let line = |commits| Brief { checkpoint: checkpoint(commits), ..Brief::default() }.head();
        assert!(line(1).contains("checkpoint: \"a\", 1 commit ago\n") && line(0).contains(", 0 commits ago\n"));
    }

    #[test]
    fn an_empty_brief_says_that_there_is_nothing() {
        let text = Brief::default().render(BUDGET).text;
        for line in ["session: none", "branch: none", "checkpoint: none", "health: none", "focus: none"] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}");
        }
    }

    #[test]
    fn what_does_not_fit_is_cut_from_the_end_and_counted() {
        let whole = full("some words that take room in every line").render(100_000);
        assert_eq!(whole.left_out, []);
        assert!(whole.text.contains("failing features (10 of 30):"));
        let mut shown_before = usize::MAX;
        for budget in (LEAST..whole.tokens).rev().step_by(37) {
            let primed = full("some words that take room in every line").render(budget);
            assert!(primed.tokens <= budget, "{} of {budget}", primed.tokens);
            assert!(!primed.left_out.is_empty());
            // Once a section lost items, all sections after it are gone.
            let first = primed.left_out.first().unwrap().section;
            let after = primed.text.split_once(&format!("{first} (")).map_or("", |(_, after)| after);
            assert!(!after.lines().skip(1).any(|line| line.ends_with("):")), "{}", primed.text);
            let shown = primed.text.matches("\n- ").count();
            assert!(shown <= shown_before);
            shown_before = shown;
            assert!(
                primed.text.contains("\nleft out for want of room: ") && primed.text.ends_with("</project_memory>\n")
            );
        }
        let least = full("some words that take room in every line").render(0);
        let counts = least.left_out.iter().find(|cut| cut.section == "warnings").unwrap();
        assert_eq!((counts.shown, counts.total), (0, 2));
    }

    proptest! {
        #[test]
        fn no_text_leaves_the_fence(text in proptest::collection::vec(any::<char>(), 0..300).prop_map(String::from_iter)) {
            let all = full(&text).render(100_000).text;
            let inside = all.strip_prefix(RULES).unwrap().strip_prefix(OPEN).unwrap();
            let inside = inside.strip_suffix("</project_memory>\n").unwrap();
            prop_assert!(!inside.contains('<') && !inside.contains('>'));
            // No quoted text starts a line: each line begins with a fixed word.
            prop_assert!(inside.trim().lines().all(|line| line.starts_with("- ") || line.contains(": ") || line.ends_with("):")));
        }

        #[test]
        fn a_brief_stays_within_its_budget(text in "[a-zé☃ ]{0,400}", budget in LEAST..4000usize) {
            let primed = full(&text).render(budget);
            prop_assert!(primed.tokens <= budget || primed.text.matches("\n- ").count() == 0);
        }
    }
}

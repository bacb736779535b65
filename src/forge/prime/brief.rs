//! Briefing of a new session, cut to a size limit.

use schemars::JsonSchema;
use serde::Serialize;

use super::fence::{CLOSE, OPEN, RULES};

/// Default and minimum budget, in estimated tokens. The head of a briefing needs most of it.
pub const BUDGET: usize = 300;

/// Content of a briefing, before it is cut to its budget. Texts of other authors in it are quoted.
#[derive(Debug, Default)]
pub(crate) struct Brief {
    /// The lines that are never cut.
    pub(super) head: String,
    /// The lists that are cut.
    pub(super) lists: Vec<BriefList>,
}

/// A list of a briefing.
#[derive(Debug)]
pub(super) struct BriefList {
    name: &'static str,
    lines: Vec<String>,
    /// Number of lines before anything was cut.
    offered: usize,
    /// Number of items, with those that were not offered.
    total: usize,
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

impl BriefList {
    /// Makes a list of the first of `total` items.
    pub(super) fn new(name: &'static str, lines: Vec<String>, total: usize) -> Self {
        Self {
            name,
            offered: lines.len(),
            lines,
            total,
        }
    }

    /// Makes a list of the first `most` items.
    pub(super) fn first(
        name: &'static str,
        most: usize,
        mut all: impl Iterator<Item = String>,
    ) -> Self {
        let lines: Vec<String> = all.by_ref().take(most).collect();
        let total = lines.len() + all.count();
        Self::new(name, lines, total)
    }
}

/// Estimates the tokens of a text: one for every four bytes, rounded up.
const fn estimate(text: &str) -> usize {
    text.len().div_ceil(4)
}

impl Brief {
    /// Renders the briefing within a budget of tokens (at least [`BUDGET`]).
    ///
    /// What does not fit is cut, an item at a time from the longest list, and counted.
    pub(crate) fn render(mut self, budget: usize) -> Primed {
        let budget = budget.max(BUDGET);
        loop {
            let cut = self
                .lists
                .iter()
                .filter(|list| list.lines.len() < list.offered);
            let left_out: Vec<LeftOut> = cut
                .map(|list| LeftOut {
                    section: list.name,
                    shown: list.lines.len(),
                    total: list.total,
                })
                .collect();
            let text = self.compose(&left_out);
            // Of lists with as many items, the last one.
            let lists = self.lists.iter_mut().filter(|list| !list.lines.is_empty());
            match lists.max_by_key(|list| list.lines.len()) {
                Some(list) if estimate(&text) > budget => drop(list.lines.pop()),
                _ => {
                    return Primed {
                        tokens: estimate(&text),
                        text,
                        left_out,
                    };
                }
            }
        }
    }

    fn compose(&self, left_out: &[LeftOut]) -> String {
        let mut text = format!("{RULES}{OPEN}\n{}", self.head);
        for list in self.lists.iter().filter(|list| !list.lines.is_empty()) {
            text.push_str(&format!(
                "{} ({} of {}):\n",
                list.name,
                list.lines.len(),
                list.total
            ));
            for line in &list.lines {
                text.push_str(&format!("- {line}\n"));
            }
        }
        // The heading of a list that is shown says how many of its items are.
        let gone = left_out.iter().filter(|cut| cut.shown == 0);
        let gone: Vec<_> = gone
            .map(|cut| format!("{} ({})", cut.section, cut.total))
            .collect();
        if !gone.is_empty() {
            text.push_str(&format!("left out: {}\n", gone.join(", ")));
        }
        text.push_str(CLOSE);
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn full(text: &str) -> Brief {
        let list = |name, lines, total| BriefList::new(name, vec![text.to_owned(); lines], total);
        let lists = vec![
            list("failing features", 10, 30),
            list("invariants", 20, 20),
            list("commits", 10, 10),
        ];
        Brief {
            head: "session: none\n".to_owned(),
            lists,
        }
    }

    #[test]
    fn lists_stand_behind_the_head() {
        let lists = vec![BriefList::first(
            "invariants",
            1,
            ["a", "b"].map(str::to_owned).into_iter(),
        )];
        let primed = Brief {
            head: "session: none\n".to_owned(),
            lists,
        }
        .render(BUDGET);
        let data = primed.text.strip_prefix(RULES).unwrap();
        assert_eq!(
            data,
            "<project_memory>\nsession: none\ninvariants (1 of 2):\n- a\n</project_memory>\n"
        );
        assert_eq!(
            (primed.left_out, primed.tokens),
            (vec![], primed.text.len().div_ceil(4))
        );
    }

    #[test]
    fn what_does_not_fit_is_cut_from_the_longest_list_and_counted() {
        let whole = full("some words that take room in every line").render(100_000);
        assert_eq!(whole.left_out, []);
        assert!(whole.text.contains("failing features (10 of 30):"));
        let mut shown_before = usize::MAX;
        for budget in (BUDGET..whole.tokens).rev().step_by(37) {
            let primed = full("some words that take room in every line").render(budget);
            assert!(primed.tokens <= budget, "{} of {budget}", primed.tokens);
            assert!(!primed.left_out.is_empty());
            // A list that lost items is as long as the longest, or one shorter.
            let shown = |text: &str| {
                text.lines()
                    .filter_map(|line| line.strip_suffix("):")?.rsplit_once(" ("))
                    .map(|(_, counts)| counts.split(' ').next().unwrap().parse::<usize>().unwrap())
                    .max()
            };
            let longest = shown(&primed.text).unwrap_or_default();
            assert!(
                primed.left_out.iter().all(|cut| cut.shown + 1 >= longest),
                "{}",
                primed.text
            );
            let shown = primed.text.matches("\n- ").count();
            assert!(shown <= shown_before);
            shown_before = shown;
            assert!(primed.text.ends_with("</project_memory>\n"));
            assert_eq!(
                primed.text.contains("\nleft out: "),
                primed.left_out.iter().any(|cut| cut.shown == 0)
            );
        }
        let least = full(&"words ".repeat(200)).render(0);
        assert!(
            least
                .text
                .contains("left out: failing features (30), invariants (20), commits (10)"),
            "{}",
            least.text
        );
    }

    proptest! {
        #[test]
        fn a_brief_stays_within_its_budget(text in "[a-zé☃ ]{0,400}", budget in BUDGET..4000usize) {
            let primed = full(&text).render(budget);
            prop_assert!(primed.tokens <= budget || primed.text.matches("\n- ").count() == 0);
        }
    }
}

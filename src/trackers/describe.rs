//! The description of an issue in a tracker: what people wrote, the list of criteria, and the mark
//! of its creation.
//!
//! Criteria are a list of `- [ ]` under a heading "Acceptance criteria". Nothing else of the text
//! is touched.

use helmdeck_forge_documents::tracking::CheckItem;

use crate::mark;

const HEADING: &str = "Acceptance criteria";

/// A description in parts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Parts {
    /// What people wrote, without the list.
    pub(crate) text: String,
    /// The criteria.
    pub(crate) criteria: Vec<CheckItem>,
}

/// The lines of a list: from the heading to its last item, as byte offsets.
fn section(text: &str) -> Option<(usize, usize, Vec<CheckItem>)> {
    let (mut at, mut begin, mut end) = (0, None, 0);
    let mut items = Vec::new();
    let mut fenced = false;
    for line in text.split_inclusive('\n') {
        let bare = line.trim();
        if bare.starts_with("```") {
            fenced = !fenced;
        }
        match begin {
            None if !fenced && is_heading(bare) => (begin, end) = (Some(at), at + line.len()),
            Some(_) if bare.is_empty() => {}
            Some(_) => match item(bare) {
                Some(item) => {
                    items.push(item);
                    end = at + line.len();
                }
                None => break,
            },
            None => {}
        }
        at += line.len();
    }
    begin.map(|begin| (begin, end, items))
}

fn is_heading(line: &str) -> bool {
    let rest = line.trim_start_matches('#');
    rest.len() < line.len()
        && rest
            .trim()
            .trim_end_matches(':')
            .eq_ignore_ascii_case(HEADING)
}

fn item(line: &str) -> Option<CheckItem> {
    let rest = line
        .strip_prefix("- ")
        .or_else(|| line.strip_prefix("* "))?
        .trim_start();
    let (done, text) = match rest.strip_prefix("[ ]").or_else(|| rest.strip_prefix("[]")) {
        Some(text) => (false, text),
        None => (
            true,
            rest.strip_prefix("[x]")
                .or_else(|| rest.strip_prefix("[X]"))?,
        ),
    };
    let text = text.trim();
    (!text.is_empty()).then(|| CheckItem {
        text: text.to_owned(),
        done,
    })
}

/// Splits a description.
pub(crate) fn split(description: &str) -> Parts {
    let (text, _) = mark::split(description);
    let Some((begin, end, criteria)) = section(text) else {
        return Parts {
            text: text.trim().to_owned(),
            criteria: Vec::new(),
        };
    };
    let (before, after) = (text[..begin].trim(), text[end..].trim());
    let gap = if before.is_empty() || after.is_empty() {
        ""
    } else {
        "\n\n"
    };
    Parts {
        text: format!("{before}{gap}{after}"),
        criteria,
    }
}

/// Returns a description with another text or other criteria. `None` leaves a part as it is.
pub(crate) fn put(description: &str, text: Option<&str>, criteria: Option<&[CheckItem]>) -> String {
    let (body, mark) = mark::split(description);
    let old = section(body);
    let mut body = match (text, &old) {
        (None, _) => body.to_owned(),
        (Some(text), None) => text.trim().to_owned(),
        // The list comes after a new text.
        (Some(text), Some((begin, end, _))) => join(text.trim(), body[*begin..*end].trim()),
    };
    if let Some(items) = criteria {
        let list = print(items);
        body = match section(&body) {
            Some((begin, end, _)) => {
                let tail = if body[..end].ends_with('\n') && !list.is_empty() {
                    "\n"
                } else {
                    ""
                };
                format!("{}{list}{tail}{}", &body[..begin], &body[end..])
            }
            None => join(body.trim_end(), &list),
        };
    }
    let body = body.trim_end();
    // A list must not end in the mark: what people add below it would be another item.
    let gap = if body.is_empty() || mark.is_empty() || mark.starts_with(char::is_whitespace) {
        ""
    } else {
        "\n\n"
    };
    format!("{body}{gap}{mark}")
}

fn join(before: &str, after: &str) -> String {
    let gap = if before.is_empty() || after.is_empty() {
        ""
    } else {
        "\n\n"
    };
    format!("{before}{gap}{after}")
}

fn print(items: &[CheckItem]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let line =
        |item: &CheckItem| format!("- [{}] {}", if item.done { 'x' } else { ' ' }, item.text);
    format!(
        "## {HEADING}\n\n{}",
        items.iter().map(line).collect::<Vec<_>>().join("\n")
    )
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn items(all: &[(&str, bool)]) -> Vec<CheckItem> {
        all.iter()
            .map(|(text, done)| CheckItem {
                text: (*text).to_owned(),
                done: *done,
            })
            .collect()
    }

    const PEOPLE: &str = "Intro, *kept*.\n\n### Acceptance Criteria:\n\n* [x] one\n- [ ] two\n\nMore text\n- [ ] no criterion\n";

    #[test]
    fn the_list_is_found_under_its_heading() {
        let parts = split(PEOPLE);
        assert_eq!(parts.criteria, items(&[("one", true), ("two", false)]));
        assert_eq!(
            parts.text,
            "Intro, *kept*.\n\nMore text\n- [ ] no criterion"
        );
        assert_eq!(
            split("- [ ] a"),
            Parts {
                text: "- [ ] a".into(),
                criteria: Vec::new()
            }
        );
        assert_eq!(
            split("```\n## Acceptance criteria\n- [ ] a\n```").criteria,
            Vec::new()
        );
    }

    #[test]
    fn text_around_the_list_is_not_touched() {
        let put_in = put(
            PEOPLE,
            None,
            Some(&items(&[("one", true), ("two", true), ("three", false)])),
        );
        assert!(put_in.starts_with(
            "Intro, *kept*.\n\n## Acceptance criteria\n\n- [x] one\n- [x] two\n- [ ] three\n"
        ));
        assert!(
            put_in.ends_with("\nMore text\n- [ ] no criterion"),
            "{put_in}"
        );
        assert_eq!(put(PEOPLE, None, None), PEOPLE.trim_end());
        assert_eq!(split(&put(PEOPLE, None, Some(&[]))).criteria, Vec::new());
    }

    #[test]
    fn mark_stands_apart_from_the_list() {
        let mark = mark::of(Uuid::from_u128(3));
        let made = put(&mark, None, Some(&items(&[("a", false)])));
        assert!(made.ends_with(&format!("- [ ] a\n\n{mark}")), "{made}");
    }

    #[test]
    fn what_is_put_in_is_read_again() {
        let marked = mark::add("old", Uuid::from_u128(3));
        for before in ["", "old", PEOPLE, &marked] {
            for text in ["", "new\n\ntext", "# a\n- b"] {
                for criteria in [items(&[]), items(&[("a", false), ("b", true)])] {
                    let made = put(before, Some(text), Some(&criteria));
                    assert_eq!(
                        split(&made),
                        Parts {
                            text: text.to_owned(),
                            criteria
                        },
                        "{made}"
                    );
                    assert_eq!(
                        mark::split(&made).1.is_empty(),
                        mark::split(before).1.is_empty()
                    );
                }
            }
        }
    }
}

//! Hidden marks in descriptions: a comment of Markdown with the id that an issue was created with.

use uuid::Uuid;

const BEGIN: &str = "<!-- helmdeck:";
const END: &str = " -->";

/// Returns the mark of an id.
pub(crate) fn of(id: Uuid) -> String {
    format!("{BEGIN}{id}{END}")
}

/// Returns a text with a mark at its end.
pub(crate) fn add(text: &str, id: Uuid) -> String {
    let text = text.trim_end();
    if text.is_empty() {
        of(id)
    } else {
        format!("{text}\n\n{}", of(id))
    }
}

/// Returns the id in the mark of a text.
pub(crate) fn id(text: &str) -> Option<Uuid> {
    let (_, mark) = split(text);
    Uuid::parse_str(mark.trim().strip_prefix(BEGIN)?.strip_suffix(END)?).ok()
}

/// Splits a text into what people wrote, and the line of the mark with the white space before it.
pub(crate) fn split(text: &str) -> (&str, &str) {
    let found = text.rfind(BEGIN).filter(|at| {
        let rest = &text[at + BEGIN.len()..];
        rest.split_once(END)
            .is_some_and(|(id, after)| Uuid::parse_str(id).is_ok() && after.trim().is_empty())
    });
    match found {
        Some(at) => text.split_at(text[..at].trim_end().len()),
        None => (text, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_comes_off_again() {
        let id = Uuid::from_u128(7);
        for text in ["", "one", "one\n\ntwo"] {
            assert_eq!(split(&add(text, id)).0, text);
        }
        for text in [
            "<!-- helmdeck: x -->",
            "a <!-- helmdeck:00000000-0000-0000-0000-000000000007 --> b",
            "",
        ] {
            assert_eq!(split(text), (text, ""));
        }
    }
}

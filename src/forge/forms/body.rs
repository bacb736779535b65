//! Description of an issue from the values of a form.

use std::fmt::Write as _;

use super::{FieldType, Form, TITLE, Values};

/// Writes the description. The title is not in it.
pub(super) fn write(form: &Form, values: &Values) -> String {
    let mut text = String::new();
    for field in form.fields.iter().filter(|field| field.name != TITLE) {
        let given = values
            .get(&field.name)
            .into_iter()
            .flatten()
            .map(|value| value.trim());
        let given: Vec<&str> = given.filter(|value| !value.is_empty()).collect();
        if given.is_empty() {
            continue;
        }
        let said = match field.kind {
            FieldType::MultiSelect => items("- ", &given),
            FieldType::Checklist => items("- [ ] ", &given),
            _ => given.join("\n"),
        };
        let apart = if text.is_empty() { "" } else { "\n" };
        let _ = write!(text, "{apart}## {}\n\n{said}\n", heading(&field.name));
    }
    text
}

fn items(mark: &str, all: &[&str]) -> String {
    all.iter()
        .map(|one| format!("{mark}{one}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns a name as a heading: `affected_crates` is `Affected crates`.
fn heading(name: &str) -> String {
    let words = name.replace(['_', '-'], " ");
    let mut letters = words.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).collect())
        .unwrap_or_default()
}

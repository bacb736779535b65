//! Description of an issue from the values of a form, and back.
//!
//! Hidden comments say which form and which field a part is, so that people can write around them.

use std::fmt::Write as _;

use super::{Field, FieldType, Form, TITLE, Values};

/// What the mark of the form begins with.
const FORM: &str = "<!-- form: ";
/// What the mark of a field begins with.
const FIELD: &str = "<!-- field: ";
/// What a text of a person has in the place of a mark.
const ESCAPED: &str = "<!-- \u{200b}";
const END: &str = " -->";

/// Writes the description. The title is not in it.
pub(super) fn write(form: &Form, values: &Values) -> String {
    let mut text = format!("{FORM}{}{END}\n", form.template);
    for field in form.fields.iter().filter(|field| field.name != TITLE) {
        let given: Vec<String> = values
            .get(&field.name)
            .into_iter()
            .flatten()
            .map(|value| value.trim().replace(FORM, &escaped(FORM)).replace(FIELD, &escaped(FIELD)))
            .filter(|value| !value.is_empty())
            .collect();
        if given.is_empty() {
            continue;
        }
        let said = match field.kind {
            FieldType::MultiSelect => items("- ", &given),
            FieldType::Checklist => items("- [ ] ", &given),
            _ => given.join("\n"),
        };
        let _ = write!(text, "\n## {}\n{FIELD}{}{END}\n\n{said}\n", heading(&field.name), field.name);
    }
    text
}

fn escaped(mark: &str) -> String {
    mark.replacen("<!-- ", ESCAPED, 1)
}

fn items(mark: &str, all: &[String]) -> String {
    all.iter().map(|one| format!("{mark}{one}")).collect::<Vec<_>>().join("\n")
}

/// Returns a name as a heading: `affected_crates` is `Affected crates`.
fn heading(name: &str) -> String {
    let words = name.replace(['_', '-'], " ");
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Returns the name of the form that wrote a description.
pub(super) fn form_of(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.trim().strip_prefix(FORM)?.strip_suffix(END))
}

/// Reads the values from a description. Text around the fields is left out.
pub(super) fn read(form: &Form, text: &str) -> Values {
    let mut values = Values::new();
    let mut current: Option<(&Field, Vec<&str>)> = None;
    let mut done = |field: Option<(&Field, Vec<&str>)>| {
        let Some((field, mut lines)) = field else { return };
        // The heading of the next field belongs to that field.
        while lines.last().is_some_and(|line| line.trim().is_empty()) {
            lines.pop();
        }
        let value = said(field, &lines);
        if !value.is_empty() {
            values.insert(field.name.clone(), value);
        }
    };
    for line in text.lines() {
        let line = line.trim_end_matches('\r');
        if let Some(name) = line.trim().strip_prefix(FIELD).and_then(|rest| rest.strip_suffix(END)) {
            if let Some((_, lines)) = &mut current {
                while lines.last().is_some_and(|line| line.trim().is_empty()) {
                    lines.pop();
                }
                if lines.last().is_some_and(|line| line.starts_with("## ")) {
                    lines.pop();
                }
            }
            done(current.take());
            current = form.fields.iter().find(|field| field.name == name).map(|field| (field, Vec::new()));
        } else if let Some((_, lines)) = &mut current {
            lines.push(line);
        }
    }
    done(current);
    values
}

fn said(field: &Field, lines: &[&str]) -> Vec<String> {
    let plain = |text: &str| text.trim().replace(ESCAPED, "<!-- ");
    if field.is_list() {
        let items = lines.iter().filter_map(|line| {
            let item = line.trim().strip_prefix("- ").or_else(|| line.trim().strip_prefix("* "))?;
            let boxes = ["[ ] ", "[x] ", "[X] "];
            let item = match field.kind {
                FieldType::Checklist => boxes.into_iter().find_map(|mark| item.strip_prefix(mark)).unwrap_or(item),
                _ => item,
            };
            Some(plain(item))
        });
        return items.filter(|item| !item.is_empty()).collect();
    }
    let text = plain(&lines.join("\n"));
    if text.is_empty() { Vec::new() } else { vec![text] }
}

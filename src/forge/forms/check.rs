//! Checks of forms and of their values.

use std::collections::BTreeSet;

use regex::Regex;

use super::{Choice, Field, FieldType, Form, PatternKind, Shown, TITLE, Values, body};

/// Maximum length of the description of an issue, in characters. Linear refuses more.
const LONGEST: usize = 250_000;

/// What a check of values found.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// All errors, each with its field.
    pub(super) errors: Vec<String>,
    /// What should be looked at.
    pub(super) warnings: Vec<String>,
}

impl Field {
    /// Returns how its pattern is read.
    pub(super) fn pattern_kind(&self) -> PatternKind {
        self.pattern_kind.unwrap_or_else(|| {
            let pattern = self.pattern.as_deref().unwrap_or_default();
            let word = pattern
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix("] *"));
            // The RFC's form of a bug says `[BUG] *`, which as a regular expression matches nothing
            // sensible.
            if word.is_some_and(|word| {
                !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase())
            }) {
                PatternKind::Wildcard
            } else {
                PatternKind::Regex
            }
        })
    }

    /// Returns the expression that its whole value must match.
    fn expression(&self) -> Result<Option<Regex>, String> {
        let Some(pattern) = &self.pattern else {
            return Ok(None);
        };
        let inner = match self.pattern_kind() {
            PatternKind::Regex => pattern.clone(),
            PatternKind::Wildcard => pattern
                .split('*')
                .map(regex::escape)
                .collect::<Vec<_>>()
                .join("(?s:.+)"),
        };
        Regex::new(&format!("^(?:{inner})$"))
            .map(Some)
            .map_err(|error| format!("pattern {pattern:?}: {error}"))
    }

    /// Says whether it is a list.
    pub(super) const fn is_list(&self) -> bool {
        matches!(self.kind, FieldType::MultiSelect | FieldType::Checklist)
    }
}

/// Checks a form.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check_form(form: &Form) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for field in &form.fields {
        let name = &field.name;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
            return Err(format!(
                "the field {name:?} has a name of other than letters, digits, _ and -"
            ));
        }
        if !seen.insert(name) {
            return Err(format!("the field {name} stands there twice"));
        }
        field
            .expression()
            .map_err(|what| format!("the field {name}: {what}"))?;
        let choices = matches!(field.kind, FieldType::Select | FieldType::MultiSelect);
        if choices && field.options.is_empty() {
            return Err(format!("the field {name} has no options"));
        }
    }
    if seen.iter().any(|name| *name == TITLE) {
        Ok(())
    } else {
        Err("a form has a field title".to_owned())
    }
}

/// Checks values.
pub(super) fn check(shown: &Shown, values: &Values) -> Checked {
    let mut checked = Checked::default();
    let form = &shown.form;
    let mut error = |field: &str, reason: String| checked.errors.push(format!("{field} {reason}"));
    for name in values
        .keys()
        .filter(|name| !form.fields.iter().any(|field| field.name == **name))
    {
        let known: Vec<&str> = form
            .fields
            .iter()
            .map(|field| field.name.as_str())
            .collect();
        error(
            name,
            format!("is no field of this form: {}", known.join(", ")),
        );
    }
    for field in &form.fields {
        let name = &field.name;
        let given: Vec<&String> = values
            .get(name)
            .into_iter()
            .flatten()
            .filter(|value| !value.trim().is_empty())
            .collect();
        let options = shown
            .options
            .get(name)
            .map(Vec::as_slice)
            .unwrap_or_default();
        // Nothing can be chosen where the project has nothing.
        let empty = options.is_empty()
            && field
                .options
                .iter()
                .any(|choice| matches!(choice, Choice::From { .. }));
        if empty {
            checked.warnings.push(format!(
                "{name} has no options in this project: it may stay empty"
            ));
        }
        let required = (field.required || name == TITLE) && !empty;
        let least = field.min_items.unwrap_or(0).max(usize::from(required));
        if given.len() < least && !empty {
            error(
                name,
                if least == 1 {
                    "is required".to_owned()
                } else {
                    format!("needs {least} items")
                },
            );
        }
        if given.len() > 1 && !field.is_list() {
            error(name, "has one value, not several".to_owned());
        }
        let expression = field.expression().ok().flatten();
        for value in given {
            let line = !matches!(field.kind, FieldType::Markdown);
            if value
                .chars()
                .any(|c| c.is_control() && (line || !matches!(c, '\n' | '\t')))
            {
                error(name, "has control characters, or several lines".to_owned());
            } else if expression
                .as_ref()
                .is_some_and(|expression| !expression.is_match(value))
            {
                let pattern = field.pattern.as_deref().unwrap_or_default();
                error(name, format!("{value:?} does not match {pattern:?}"));
            } else if !options.is_empty() && !options.contains(value) {
                error(name, format!("{value:?} is none of {}", options.join(", ")));
            }
        }
    }
    let length = body::write(form, values).chars().count();
    if length > LONGEST {
        let reason = format!(
            "has {length} characters together with the others, and at most {LONGEST} are taken"
        );
        checked.errors.push(format!("description {reason}"));
    }
    checked
}

//! The report of `helmdeck check`.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::exit::Failure;
use helmdeck_core::text::columns;

/// What was found: facts for people, warnings, and errors with their places.
#[derive(Default)]
pub(super) struct Report {
    facts: Vec<(Cow<'static, str>, String)>,
    pub(super) warnings: Vec<String>,
    pub(super) errors: Vec<String>,
}

impl Report {
    pub(super) fn fact(&mut self, part: impl Into<Cow<'static, str>>, text: impl Into<String>) {
        self.facts.push((part.into(), text.into()));
    }

    pub(super) fn failed(&mut self, part: &'static str, failure: &Failure) {
        self.fact(part, "wrong");
        self.errors.push(failure.message().to_owned());
    }

    pub(super) fn value(&self) -> Value {
        let facts: serde_json::Map<String, Value> = self
            .facts
            .iter()
            .map(|(part, text)| (part.to_string(), Value::from(text.as_str())))
            .collect();
        json!({"ok": self.errors.is_empty(), "parts": facts, "warnings": self.warnings, "errors": self.errors})
    }

    pub(super) fn text(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .facts
            .iter()
            .map(|(part, text)| vec![part.to_string(), text.clone()])
            .collect();
        let mut text = columns(&rows);
        text.extend(
            self.warnings
                .iter()
                .map(|warning| format!("warning: {warning}\n")),
        );
        text.extend(self.errors.iter().map(|error| format!("error: {error}\n")));
        text
    }
}

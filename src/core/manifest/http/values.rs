//! The values of an input, looked up without losing a digit of a number.

use serde_json::value::RawValue;

use crate::json::members;
use crate::template::{Template, TemplatePart};

/// The members of an input in canonical form.
pub(super) struct Values<'a> {
    whole: &'a str,
    members: Vec<(String, &'a RawValue)>,
}

impl<'a> Values<'a> {
    /// Reads the members of a canonical text; anything but an object has none.
    pub(super) fn of(whole: &'a str) -> Self {
        Self {
            whole,
            members: owned(whole),
        }
    }

    /// Returns the whole input.
    pub(super) const fn whole(&self) -> &'a str {
        self.whole
    }

    /// Returns the names of the members.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the JSON text at a path, `None` if there is none.
    pub(super) fn json(&self, path: &[String]) -> Option<&'a str> {
        let (first, rest) = path.split_first()?;
        let mut found = self.members.iter().find(|(name, _)| name == first)?.1.get();
        for name in rest {
            found = owned(found)
                .into_iter()
                .find(|(member, _)| member == name)?
                .1
                .get();
        }
        Some(found)
    }

    /// Returns the texts at a path.
    ///
    /// A text, a number or a boolean gives one, a list of them one each, and anything else none.
    pub(super) fn texts(&self, path: &[String]) -> Vec<String> {
        let Some(json) = self.json(path) else {
            return Vec::new();
        };
        if json.starts_with('[') {
            let items: Vec<&RawValue> = serde_json::from_str(json).unwrap_or_default();
            return items
                .into_iter()
                .filter_map(|item| scalar(item.get()))
                .collect();
        }
        scalar(json).into_iter().collect()
    }

    /// Returns whether a list is at a path.
    pub(super) fn is_list(&self, path: &[String]) -> bool {
        self.json(path).is_some_and(|json| json.starts_with('['))
    }

    /// Fills a template, and passes each value through `write`.
    ///
    /// `None` if a placeholder has neither a value nor a fallback.
    pub(super) fn text(
        &self,
        template: &Template,
        mut write: impl FnMut(&str, &mut String),
    ) -> Option<String> {
        let mut out = String::new();
        for part in template.parts() {
            match part {
                TemplatePart::Text(text) => out.push_str(text),
                TemplatePart::Place { path, fallback } => {
                    let value = self
                        .json(path)
                        .and_then(scalar)
                        .or_else(|| fallback.clone())?;
                    write(&value, &mut out);
                }
            }
        }
        Some(out)
    }
}

fn owned(text: &str) -> Vec<(String, &RawValue)> {
    if !text.starts_with('{') {
        return Vec::new();
    }
    members(text).unwrap_or_default()
}

fn scalar(json: &str) -> Option<String> {
    match json.as_bytes().first()? {
        b'"' => serde_json::from_str(json).ok(),
        b'{' | b'[' | b'n' => None,
        _ => Some(json.to_owned()),
    }
}

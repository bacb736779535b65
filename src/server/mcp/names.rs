//! Replaces names of packs by names of tools, in text that a model reads.

use std::borrow::Cow;
use std::collections::HashSet;

use helmdeck_core::PackName;
use serde_json::Value;

/// Names of the packs that are tools.
#[derive(Debug, Default)]
pub(crate) struct Names(HashSet<Box<str>>);

impl Names {
    pub(crate) fn new<'a>(packs: impl Iterator<Item = &'a PackName>) -> Self {
        Self(packs.map(|pack| pack.as_str().into()).collect())
    }

    /// Replaces each pack in the text by its tool: `github.search` becomes `github__search`.
    pub(crate) fn in_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut out = String::new();
        let (mut done, mut at) = (0, 0);
        while let Some(start) = text[at..].find(is_of_name).map(|found| at + found) {
            let end = text[start..]
                .find(|c| !is_of_name(c))
                .map_or(text.len(), |found| start + found);
            let word = text[start..end].trim_end_matches(['.', '-']);
            // `a/b.c` is a path, and `x@b.c` an address.
            let alone =
                !text[..start].ends_with(['/', '@', '~']) && !text[end..].starts_with(['/', '@']);
            if alone && word.contains('.') && self.0.contains(word) {
                out.push_str(&text[done..start]);
                out.push_str(&word.replace('.', "__"));
                done = start + word.len();
            }
            at = end;
        }
        if done == 0 {
            return Cow::Borrowed(text);
        }
        out.push_str(&text[done..]);
        Cow::Owned(out)
    }

    /// Does the same in every `description` of a schema.
    pub(crate) fn in_schema(&self, schema: &mut Value) {
        match schema {
            Value::Object(object) => {
                for (key, value) in object {
                    match value {
                        Value::String(text) if key == "description" => {
                            if let Cow::Owned(new) = self.in_text(text) {
                                *text = new;
                            }
                        }
                        other => self.in_schema(other),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.in_schema(item)),
            _ => {}
        }
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_pack_names_are_replaced() {
        let packs = ["github.search", "repo.map"].map(|name| PackName::new(name).unwrap());
        let names = Names::new(packs.iter());
        for (text, expected) in [
            (
                "use github.search for that.",
                "use github__search for that.",
            ),
            (
                "github.search, `repo.map`; repo.map.",
                "github__search, `repo__map`; repo__map.",
            ),
            (
                "see x/repo.map, repo.mapper, a.repo.map, repo.map@v1 and repo.",
                "",
            ),
        ] {
            let expected = if expected.is_empty() { text } else { expected };
            assert_eq!(names.in_text(text), expected);
        }
        let mut schema = json!({"description": "of repo.map", "properties": {"description": {"const": "repo.map"}}});
        names.in_schema(&mut schema);
        assert_eq!(
            schema,
            json!({"description": "of repo__map", "properties": {"description": {"const": "repo.map"}}})
        );
    }
}

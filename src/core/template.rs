//! Templates over a call's input, as in manifests: `github:{repo}`,
//! `{input.credential|github-token}`.

use serde_json::Value;

/// Text with placeholders filled from the input.
///
/// A placeholder is `{a.b}` or `{input.a.b}`; `{a|fallback}` has a fallback for an absent value.
/// Double a literal brace: `{{`, `}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    source: String,
    parts: Vec<TemplatePart>,
}

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplatePart {
    /// Literal text.
    Text(String),
    /// A placeholder: the path to a value, and the fallback if it is absent.
    Place {
        path: Vec<String>,
        fallback: Option<String>,
    },
}

/// A template that was filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filled {
    /// The text.
    pub text: String,
    /// Whether any place took its value from the input (and none of them its fallback).
    pub from_input: bool,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// A message that names the template and what is wrong with it.
    pub fn parse(source: &str) -> Result<Self, String> {
        let (mut parts, mut text) = (Vec::new(), String::new());
        let mut rest = source;
        while let Some(at) = rest.find(['{', '}']) {
            text.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if rest.starts_with(brace) || brace == "}" {
                text.push_str(brace);
                rest = rest.strip_prefix(brace).unwrap_or(rest);
                continue;
            }
            let close = rest
                .find('}')
                .ok_or_else(|| format!("template \"{source}\" has a {{ without a }}"))?;
            let (path, fallback) = match rest[..close].split_once('|') {
                Some((path, fallback)) => (path, Some(fallback.to_owned())),
                None => (&rest[..close], None),
            };
            let path = path.strip_prefix("input.").unwrap_or(path);
            let path: Vec<String> = path.split('.').map(|part| part.trim().to_owned()).collect();
            if path.iter().any(String::is_empty) {
                return Err(format!("template \"{source}\" has an empty place"));
            }
            if !text.is_empty() {
                parts.push(TemplatePart::Text(std::mem::take(&mut text)));
            }
            parts.push(TemplatePart::Place { path, fallback });
            rest = &rest[close + 1..];
        }
        text.push_str(rest);
        if !text.is_empty() {
            parts.push(TemplatePart::Text(text));
        }
        Ok(Self {
            source: source.to_owned(),
            parts,
        })
    }

    /// Returns the template as it was written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Makes a template of pieces; `source` is what it shows as its text.
    pub(crate) const fn of(source: String, parts: Vec<TemplatePart>) -> Self {
        Self { source, parts }
    }

    /// Returns the pieces.
    pub(crate) fn parts(&self) -> &[TemplatePart] {
        &self.parts
    }

    /// Returns the first member of every place's path, to be checked against a schema.
    pub fn roots(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Place { path, .. } => path.first().map(String::as_str),
            TemplatePart::Text(_) => None,
        })
    }

    /// Returns the text before the first place.
    #[must_use]
    pub fn beginning(&self) -> &str {
        match self.parts.first() {
            Some(TemplatePart::Text(text)) => text,
            _ => "",
        }
    }

    /// Fills the placeholders from the input.
    ///
    /// Values can be text, numbers and booleans. `None` if a placeholder has neither a value nor a
    /// fallback.
    #[must_use]
    pub fn fill(&self, input: &Value) -> Option<Filled> {
        let mut filled = Filled {
            text: String::new(),
            from_input: false,
        };
        let mut fell_back = false;
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => filled.text.push_str(text),
                TemplatePart::Place { path, fallback } => {
                    let value = path.iter().try_fold(input, |value, name| value.get(name));
                    match (value, fallback) {
                        (Some(Value::String(text)), _) => filled.text.push_str(text),
                        (Some(value @ (Value::Number(_) | Value::Bool(_))), _) => {
                            filled.text.push_str(&value.to_string())
                        }
                        (_, Some(fallback)) => {
                            fell_back = true;
                            filled.text.push_str(fallback);
                            continue;
                        }
                        (_, None) => return None,
                    }
                    filled.from_input = true;
                }
            }
        }
        filled.from_input &= !fell_back;
        Some(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn places_are_filled_from_the_input_or_their_fallback() {
        let tag = Template::parse("github:{repo}#{n}").unwrap();
        assert_eq!(
            tag.fill(&json!({"repo": "a/b", "n": 7})).unwrap().text,
            "github:a/b#7"
        );
        assert_eq!(tag.fill(&json!({"repo": "a/b"})), None);

        let credential = Template::parse("{input.credential|github-token}").unwrap();
        let filled = credential.fill(&json!({})).unwrap();
        assert_eq!(
            (filled.text.as_str(), filled.from_input),
            ("github-token", false)
        );
        let filled = credential.fill(&json!({"credential": "mine"})).unwrap();
        assert_eq!((filled.text.as_str(), filled.from_input), ("mine", true));
    }

    #[test]
    fn a_brace_that_is_written_twice_is_a_brace() {
        let query = Template::parse("query {{ item(id: {id}) {{ name }} }}").unwrap();
        assert_eq!(
            query.fill(&json!({"id": 7})).unwrap().text,
            "query { item(id: 7) { name } }"
        );
        assert_eq!(
            Template::parse("{a}}")
                .unwrap()
                .fill(&json!({"a": 1}))
                .unwrap()
                .text,
            "1}"
        );
        assert_eq!(
            Template::parse("{{{a}}}")
                .unwrap()
                .fill(&json!({"a": 1}))
                .unwrap()
                .text,
            "{1}"
        );
    }

    #[test]
    fn broken_templates_are_refused() {
        assert!(Template::parse("a{b").is_err());
        assert!(Template::parse("a{}").is_err());
        assert!(Template::parse("a{b..c}").is_err());
    }
}

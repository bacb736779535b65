//! URL templates: a filled-in value stays inside its path segment or query value.

use ::url::Url;

use super::values::Values;
use crate::error::{Code, Error, Result};
use crate::template::{Template, TemplatePart};

/// The longest URL that is made, in bytes; longer ones are refused by common servers.
const MAX_BYTES: usize = 8 << 10;

/// URL template: placeholders in its path and in the values of its query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlTemplate {
    source: String,
    /// Scheme, host and port, with the slash behind them.
    origin: String,
    host: String,
    segments: Vec<Template>,
    /// A parameter without `=` has no value.
    query: Vec<(String, Option<Template>)>,
}

impl UrlTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// A message that says which part of the URL cannot be.
    pub(super) fn parse(source: &str) -> Result<Self, String> {
        let (scheme, rest) = source
            .split_once("://")
            .ok_or("url must be in full: \"https://host/path\"")?;
        if !matches!(scheme, "http" | "https") {
            return Err(
                "url must begin with https:// or http://; a scheme cannot come from the input"
                    .to_owned(),
            );
        }
        let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let origin = origin(scheme, authority)?;
        let host = origin.host_str().unwrap_or_default().to_owned();
        if let Some(bad) = rest
            .chars()
            .find(|c| matches!(c, '#' | '\\') || !c.is_ascii() || c.is_ascii_control())
        {
            return Err(format!(
                "url has a {bad:?}, which has no place there; write it percent-encoded if it is meant"
            ));
        }
        let (segments, query) = split(Template::parse(rest)?.parts())?;
        let url = Self {
            source: source.to_owned(),
            origin: origin.into(),
            host,
            segments,
            query,
        };
        for segment in &url.segments {
            if let [TemplatePart::Text(text)] = segment.parts()
                && is_dots(text)
            {
                return Err(
                    "url has a segment `.` or `..`; write the path that is meant".to_owned(),
                );
            }
        }
        Ok(url)
    }

    /// Returns the template as it was written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the host, which is always the same: a name in lower case, or an address.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the origin with a slash behind it: scheme, host, and port where it is not the usual
    /// one.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the number of path segments, which is always the same.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments.len().max(1)
    }

    /// Returns all templates in it.
    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        self.segments
            .iter()
            .chain(self.query.iter().filter_map(|(_, value)| value.as_ref()))
    }

    /// Fills the template, and adds more parameters to the query.
    ///
    /// # Errors
    /// `invalid_input`.
    pub(super) fn fill(&self, values: &Values<'_>, more: &[(String, Template)]) -> Result<Url> {
        let mut text = self.origin.clone();
        for (index, segment) in self.segments.iter().enumerate() {
            if index > 0 {
                text.push('/');
            }
            let filled = values
                .text(segment, encode)
                .ok_or_else(|| lacks(segment, values))?;
            if is_dots(&filled) || filled.is_empty() && !segment.parts().is_empty() {
                let message = format!(
                    "a part of the path would be \"{filled}\", which names another resource"
                );
                return Err(Error::new(Code::InvalidInput, message));
            }
            text.push_str(&filled);
        }
        let mut begun = false;
        let mut add = |name: &str, value: Option<&str>| {
            text.push(if begun { '&' } else { '?' });
            begun = true;
            text.push_str(name);
            if let Some(value) = value {
                text.push('=');
                text.push_str(value);
            }
        };
        for (name, value) in &self.query {
            match value {
                Some(value) => all(value, values, false)
                    .iter()
                    .for_each(|value| add(name, Some(value))),
                None => add(name, None),
            }
        }
        for (name, value) in more {
            let mut encoded = String::new();
            encode(name, &mut encoded);
            all(value, values, true)
                .iter()
                .for_each(|value| add(&encoded, Some(value)));
        }
        if text.len() > MAX_BYTES {
            let message = format!(
                "the URL would be {} bytes long, the limit is {MAX_BYTES}",
                text.len()
            );
            return Err(Error::new(Code::TooLarge, message));
        }
        // The text was made of parts that cannot change its structure; a parser that reads it
        // otherwise is not asked again.
        match Url::parse(&text) {
            Ok(url) if url.as_str() == text => Ok(url),
            _ => Err(Error::new(
                Code::Internal,
                "the filled URL is not read as it was written",
            )),
        }
    }
}

/// Reads scheme, host and port.
fn origin(scheme: &str, authority: &str) -> Result<Url, String> {
    if authority.contains(['{', '}']) {
        return Err("url has a template in its host; a host cannot come from the input".to_owned());
    }
    if authority.contains('@') {
        return Err(
            "url has a user name; credentials belong into a header: \"Bearer {credential:name}\""
                .to_owned(),
        );
    }
    let odd =
        |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']'));
    if authority.contains(odd) {
        return Err(
            "url has a host with odd characters; write the name in ASCII (xn--...)".to_owned(),
        );
    }
    match Url::parse(&format!("{scheme}://{authority}/")) {
        Ok(url) if url.has_host() => Ok(url),
        _ => Err("url has no host that can be read".to_owned()),
    }
}

type UrlParts = (Vec<Template>, Vec<(String, Option<Template>)>);

/// Splits the text after the host into segments and parameters.
///
/// Only text outside placeholders separates them.
fn split(parts: &[TemplatePart]) -> Result<UrlParts, String> {
    let (mut path, mut query): (Vec<Vec<TemplatePart>>, Vec<Vec<TemplatePart>>) =
        (Vec::new(), Vec::new());
    for part in parts {
        let TemplatePart::Text(text) = part else {
            match if query.is_empty() {
                path.last_mut()
            } else {
                query.last_mut()
            } {
                Some(open) => open.push(part.clone()),
                None => {
                    return Err(
                        "url has a template in its host; a host cannot come from the input"
                            .to_owned(),
                    );
                }
            }
            continue;
        };
        let mut rest = text.as_str();
        while let Some(first) = rest.chars().next() {
            let in_path = query.is_empty();
            match first {
                '?' if in_path => query.push(Vec::new()),
                '/' if in_path => path.push(Vec::new()),
                '&' if !in_path => query.push(Vec::new()),
                _ => {
                    let stops: &[char] = if in_path { &['/', '?'] } else { &['&'] };
                    let end = rest.find(stops).unwrap_or(rest.len());
                    let literal = literal(&rest[..end], in_path)?;
                    if let Some(open) = if in_path {
                        path.last_mut()
                    } else {
                        query.last_mut()
                    } {
                        open.push(TemplatePart::Text(literal));
                    }
                    rest = &rest[end..];
                    continue;
                }
            }
            rest = &rest[1..];
        }
    }
    let segments = path
        .into_iter()
        .map(|parts| Template::of(String::new(), parts))
        .collect();
    let query = query
        .into_iter()
        .filter(|parts| !parts.is_empty())
        .map(parameter)
        .collect::<Result<_, _>>()?;
    Ok((segments, query))
}

/// Splits `name=value`.
fn parameter(mut parts: Vec<TemplatePart>) -> Result<(String, Option<Template>), String> {
    let named = match parts.first() {
        Some(TemplatePart::Text(text)) => text.clone(),
        _ => {
            return Err(
                "url has a template in the name of a query parameter; write \"name={value}\""
                    .to_owned(),
            );
        }
    };
    match named.split_once('=') {
        Some((name, value)) => {
            match value {
                "" => drop(parts.remove(0)),
                value => parts[0] = TemplatePart::Text(value.to_owned()),
            }
            Ok((name.to_owned(), Some(Template::of(String::new(), parts))))
        }
        None if parts.len() == 1 => Ok((named, None)),
        None => Err(
            "url has a template in the name of a query parameter; write \"name={value}\""
                .to_owned(),
        ),
    }
}

/// Checks text of a path or a query (RFC 3986 sections 3.3 and 3.4).
///
/// Returns it as the URL parser would write it.
fn literal(text: &str, in_path: bool) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        let allowed = match c {
            '%' => bytes
                .get(at + 1..at + 3)
                .is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)),
            '/' | '?' => !in_path,
            _ => c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@".contains(c),
        };
        if !allowed {
            return Err(format!(
                "url has a {c:?}, which has no place there; write it percent-encoded if it is meant"
            ));
        }
        match c {
            '\'' if !in_path => out.push_str("%27"),
            _ => out.push(c),
        }
    }
    Ok(out)
}

/// Returns the values of a parameter.
///
/// A template that is a single placeholder gives every value of a list; any other gives one value.
/// None if a placeholder has no value.
fn all(template: &Template, values: &Values<'_>, encode_text: bool) -> Vec<String> {
    let encoded = |text: &str| {
        let mut out = String::new();
        encode(text, &mut out);
        out
    };
    if let [TemplatePart::Place { path, fallback }] = template.parts() {
        let texts = values.texts(path);
        if !texts.is_empty() || fallback.is_none() {
            return texts.iter().map(|text| encoded(text)).collect();
        }
    }
    match encode_text {
        true => values
            .text(template, |value, out| out.push_str(value))
            .map(|text| encoded(&text)),
        false => values.text(template, encode),
    }
    .into_iter()
    .collect()
}

/// Percent-encodes everything but the unreserved characters of RFC 3986 section 2.3.
pub(super) fn encode(text: &str, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

/// Returns whether a URL parser treats a segment as `.` or `..` (WHATWG URL).
///
/// Percent-encoded dots count too.
fn is_dots(segment: &str) -> bool {
    segment.len() <= 6
        && matches!(
            segment.to_ascii_lowercase().replace("%2e", ".").as_str(),
            "." | ".."
        )
}

fn lacks(segment: &Template, values: &Values<'_>) -> Error {
    let missing = segment.parts().iter().find_map(|part| match part {
        TemplatePart::Place {
            path,
            fallback: None,
        } if values.texts(path).is_empty() || values.is_list(path) => Some(path.join(".")),
        _ => None,
    });
    let missing = missing.unwrap_or_default();
    Error::new(
        Code::InvalidInput,
        format!("the URL needs \"{missing}\" as a text, a number or a boolean"),
    )
}

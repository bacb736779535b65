//! Parser of `[handler.http]`. Errors name the line.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::Deserialize;
use toml::Spanned;

use super::super::ManifestError;
use super::super::parse::{SourceText, declared, suggest, to_json};
use super::{
    BodyTemplate, BodyType, HeaderPart, HeaderTemplate, HttpMethod, HttpOutput, HttpSpec,
    UrlTemplate, credential_of,
};
use crate::duration::parse_size;
use crate::schema::{self, Schema};
use crate::template::{Template, TemplatePart};

const DEFAULT_MAX_BYTES: u64 = 4 << 20;
/// Upper bound of `max_response_bytes`: a response is held in memory.
const MAX_MAX_BYTES: u64 = 64 << 20;
const MAX_HEADERS: usize = 64;

/// Headers that belong to the connection, to the engine, or that say how a body is framed.
const OURS: &[&str] = &[
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "if-modified-since",
    "if-none-match",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// `[handler.http]` as TOML spells it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::manifest) struct Raw {
    /// `GET`, `HEAD`, `POST`, `PUT`, `PATCH` or `DELETE`. Default `GET`.
    method: Option<Spanned<String>>,
    /// Full URL. `{input}` placeholders are allowed behind the host.
    url: Spanned<String>,
    /// More parameters: texts, integers, booleans; `{input}` placeholders are allowed.
    #[serde(default)]
    query: BTreeMap<String, Spanned<toml::Value>>,
    /// Headers, by name; `{input}` and `{credential:name}` are allowed.
    #[serde(default)]
    headers: BTreeMap<String, Spanned<String>>,
    /// Any value; its texts may have `{input}` placeholders.
    body: Option<Spanned<toml::Value>>,
    /// `json` or `form`. Default `json`.
    body_type: Option<Spanned<String>>,
    /// `body`, or `full` for `{status, headers, body}`. Default `body`.
    output: Option<Spanned<String>>,
    /// Statuses that count as an answer: `[200, "202-204", 404]`. Default: 200 to 299.
    ok: Option<Spanned<toml::Value>>,
    /// Size limit of the answer, at most `64MiB`. Default `4MiB`.
    max_response_bytes: Option<Spanned<String>>,
    /// Requests of the upstream's quota that are left for other uses, if it tells what is left.
    /// Default 0.
    #[serde(default)]
    keep_quota: u64,
}

/// The rest of the manifest.
pub(in crate::manifest) struct Around<'a> {
    pub(in crate::manifest) input: &'a Schema,
    pub(in crate::manifest) credentials: &'a [Template],
    pub(in crate::manifest) read_only: bool,
    pub(in crate::manifest) revalidate: bool,
}

impl Around<'_> {
    /// Checks a template outside a header.
    fn plain(&self, template: Template) -> Result<Template, String> {
        match template.parts().iter().find_map(credential_of) {
            Some(name) => Err(format!(
                "the credential \"{name}\" can stand in a header only: a URL is logged, and a body can be echoed"
            )),
            None => declared(template, self.input),
        }
    }
}

/// Reads a request.
///
/// # Errors
/// The first problem, with its line.
pub(in crate::manifest) fn read(
    source: &SourceText<'_>,
    value: &Spanned<Raw>,
    around: &Around<'_>,
) -> Result<HttpSpec, ManifestError> {
    let raw = value.get_ref();
    let method = match &raw.method {
        Some(method) => source.read(method, |name| method_of(name))?,
        None => HttpMethod::Get,
    };
    let changes = matches!(
        method,
        HttpMethod::Put | HttpMethod::Patch | HttpMethod::Delete
    );
    if around.read_only && changes {
        let span = raw.method.as_ref().map(Spanned::span);
        let message = format!(
            "method {} changes something, and the pack says read_only = true; only GET, HEAD and POST (a search, say) can be read-only",
            method.as_str()
        );
        return Err(source.error(span, message));
    }
    if around.revalidate && !method.is_safe() {
        let message = format!(
            "revalidate needs method GET or HEAD; a {} has no validator",
            method.as_str()
        );
        return Err(source.error(raw.method.as_ref().map(Spanned::span), message));
    }
    let url = source.read(&raw.url, |text| {
        let url = UrlTemplate::parse(text)?;
        url.templates()
            .try_for_each(|template| around.plain(template.clone()).map(drop))?;
        Ok(url)
    })?;
    let query = raw
        .query
        .iter()
        .map(|(name, value)| {
            source.read(value, |value| {
                Ok((name.clone(), around.plain(parameter(value)?)?))
            })
        })
        .collect::<Result<_, _>>()?;
    let headers = headers_of(source, value, around)?;
    let body_type = match &raw.body_type {
        Some(body_type) => source.read(body_type, |name| {
            one_of(
                name,
                &[("json", BodyType::Json), ("form", BodyType::Form)],
                "a body type",
            )
        })?,
        None => BodyType::Json,
    };
    let body = match &raw.body {
        None => None,
        Some(body) if method.is_safe() => {
            return Err(source.error(
                Some(body.span()),
                format!("a {} has no body", method.as_str()),
            ));
        }
        Some(body) => Some(source.read(body, |value| body_of(value, body_type, around))?),
    };
    if let (Some(body_type), None) = (&raw.body_type, &body) {
        return Err(source.error(
            Some(body_type.span()),
            "body_type has no meaning without a body",
        ));
    }
    let output = match &raw.output {
        Some(output) => source.read(output, |name| {
            one_of(
                name,
                &[("body", HttpOutput::Body), ("full", HttpOutput::Full)],
                "an output",
            )
        })?,
        None => HttpOutput::Body,
    };
    if method == HttpMethod::Head && output == HttpOutput::Body {
        let message =
            "the answer to a HEAD has no body; say output = \"full\" for its status and headers";
        return Err(source.error(Some(value.span()), message));
    }
    let ok = raw
        .ok
        .as_ref()
        .map_or_else(|| Ok(vec![200..=299]), |ok| source.read(ok, statuses))?;
    let max_response_bytes = match &raw.max_response_bytes {
        Some(size) => source.read(size, |text| match parse_size(text)? {
            0 => Err("max_response_bytes is 0; an answer needs some room".to_owned()),
            size if size > MAX_MAX_BYTES => {
                Err("max_response_bytes is over 64MiB, the most there is".to_owned())
            }
            size => Ok(size),
        })?,
        None => DEFAULT_MAX_BYTES,
    };
    let keep_quota = raw.keep_quota;
    Ok(HttpSpec {
        method,
        url,
        query,
        headers,
        body,
        body_type,
        output,
        ok,
        max_response_bytes,
        keep_quota,
    })
}

fn method_of(name: &str) -> Result<HttpMethod, String> {
    HttpMethod::ALL
        .into_iter()
        .find(|method| method.as_str() == name)
        .ok_or_else(|| {
            let hint = suggest(
                &name.to_ascii_uppercase(),
                HttpMethod::ALL.into_iter().map(HttpMethod::as_str),
            );
            format!(
                "\"{name}\" is not a method; it is one of GET, HEAD, POST, PUT, PATCH, DELETE{hint}"
            )
        })
}

fn one_of<T: Copy>(name: &str, known: &[(&str, T)], what: &str) -> Result<T, String> {
    known
        .iter()
        .find(|(word, _)| *word == name)
        .map(|(_, value)| *value)
        .ok_or_else(|| {
            let words: Vec<String> = known
                .iter()
                .map(|(word, _)| format!("\"{word}\""))
                .collect();
            format!("\"{name}\" is not {what}; it is {}", words.join(" or "))
        })
}

/// Reads the value of a query parameter; a number or a boolean is taken as it is.
fn parameter(value: &toml::Value) -> Result<Template, String> {
    match value {
        toml::Value::String(text) => Template::parse(text),
        toml::Value::Integer(_) | toml::Value::Boolean(_) => Template::parse(&value.to_string()),
        _ => Err("a query parameter is a text, an integer or a boolean".to_owned()),
    }
}

fn headers_of(
    source: &SourceText<'_>,
    value: &Spanned<Raw>,
    around: &Around<'_>,
) -> Result<Vec<(String, HeaderTemplate)>, ManifestError> {
    let raw = &value.get_ref().headers;
    if raw.len() > MAX_HEADERS {
        return Err(source.error(
            Some(value.span()),
            format!("there are more than {MAX_HEADERS} headers"),
        ));
    }
    let mut headers: Vec<(String, HeaderTemplate)> = Vec::with_capacity(raw.len());
    for (name, template) in raw {
        let header = source.read(template, |text| {
            let lower = name.to_ascii_lowercase();
            // RFC 9110 section 5.6.2.
            let token =
                |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            if lower.is_empty() || !lower.bytes().all(token) {
                return Err(format!("{name:?} is not the name of a header"));
            }
            if OURS.contains(&lower.as_str()) {
                return Err(format!("the header \"{name}\" is set by the engine"));
            }
            if headers.iter().any(|(known, _)| *known == lower) {
                return Err(format!("the header \"{name}\" is there twice"));
            }
            Ok((lower, header_of(text, around)?))
        })?;
        headers.push(header);
    }
    Ok(headers)
}

fn header_of(text: &str, around: &Around<'_>) -> Result<HeaderTemplate, String> {
    if !text
        .bytes()
        .all(|byte| byte == b' ' || byte.is_ascii_graphic())
    {
        return Err("a header can hold visible ASCII characters and spaces only".to_owned());
    }
    let template = Template::parse(text)?;
    let mut parts = Vec::new();
    for part in template.parts() {
        match credential_of(part) {
            Some(name) => parts.push(HeaderPart::Credential(credential_index(
                &name,
                part,
                around.credentials,
            )?)),
            None => {
                let piece = Template::of(String::new(), vec![part.clone()]);
                parts.push(HeaderPart::Text(declared(piece, around.input)?));
            }
        }
    }
    Ok(HeaderTemplate(parts))
}

/// Finds a credential that the manifest declares, by its name or by the name that is its fallback.
fn credential_index(
    name: &str,
    part: &TemplatePart,
    credentials: &[Template],
) -> Result<usize, String> {
    if matches!(
        part,
        TemplatePart::Place {
            fallback: Some(_),
            ..
        }
    ) {
        return Err(format!("the credential \"{name}\" can have no fallback"));
    }
    let names: Vec<&str> = credentials
        .iter()
        .map(|template| match template.parts() {
            [
                TemplatePart::Place {
                    fallback: Some(fallback),
                    ..
                },
            ] => fallback.as_str(),
            _ => template.source(),
        })
        .collect();
    names.iter().position(|known| *known == name).ok_or_else(|| {
        let hint = suggest(name, names.iter().copied());
        format!(
            "the credential \"{name}\" is not declared; add credentials = [\"{name}\"] at the top of the file{hint}"
        )
    })
}

fn body_of(
    value: &toml::Value,
    body_type: BodyType,
    around: &Around<'_>,
) -> Result<BodyTemplate, String> {
    let declared = schema::properties(around.input.source()).contains_key("input");
    let body = BodyTemplate::parse(
        &to_json(value),
        &|template| around.plain(template),
        declared,
    )?;
    match body.no_form() {
        Some(why) if body_type == BodyType::Form => Err(why.to_owned()),
        _ => Ok(body),
    }
}

/// Reads `[200, "202-204"]`.
fn statuses(value: &toml::Value) -> Result<Vec<RangeInclusive<u16>>, String> {
    let bad = || {
        "ok is a list of statuses and ranges from 200 to 599, for example [200, \"202-204\", 404]"
            .to_owned()
    };
    let status = |text: &str| {
        text.trim()
            .parse::<u16>()
            .ok()
            .filter(|status| (200..600).contains(status))
    };
    let items = value
        .as_array()
        .filter(|items| !items.is_empty())
        .ok_or_else(bad)?;
    items
        .iter()
        .map(|item| {
            let text = match item {
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::String(text) => text.clone(),
                _ => return Err(bad()),
            };
            let (first, last) = text.split_once('-').unwrap_or((&text, &text));
            match (status(first), status(last)) {
                (Some(first), Some(last)) if first <= last => Ok(first..=last),
                _ => Err(bad()),
            }
        })
        .collect()
}

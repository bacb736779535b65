//! `[handler.http]`: an HTTP request as a template over the input.
//!
//! This module parses and fills the template; it sends nothing.
//!
//! The input cannot change the scheme, the host or the number of path segments. It cannot add a
//! header or a query parameter, and it cannot reach a credential.

mod body;
mod parse;
mod url;
mod values;

use std::ops::RangeInclusive;

use ::url::Url;
use bytes::Bytes;

use crate::error::{Code, Error, Result};
use crate::template::{Template, TemplatePart};

pub use body::BodyTemplate;
pub(super) use parse::{Around, Raw, read};
pub use url::UrlTemplate;
use values::Values;

/// The HTTP request of a pack, as its manifest describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSpec {
    /// The method. Default GET.
    pub method: HttpMethod,
    /// The URL; scheme, host and port are fixed.
    pub url: UrlTemplate,
    /// Query parameters besides those of the URL, by name. One whose value is absent is left out.
    pub query: Vec<(String, Template)>,
    /// Headers, by name in lower case. One whose value is absent is left out.
    pub headers: Vec<(String, HeaderTemplate)>,
    /// The body.
    pub body: Option<BodyTemplate>,
    /// Encoding of the body. Default JSON.
    pub body_type: BodyType,
    /// The part of the response that is the output. Default: the body.
    pub output: HttpOutput,
    /// The statuses that are an answer; all others are errors. Default 200 to 299.
    pub ok: Vec<RangeInclusive<u16>>,
    /// Limit of the response size in bytes. Default 4 MiB.
    pub max_response_bytes: u64,
    /// Number of requests of the upstream's quota that are left for other uses. Default 0.
    pub keep_quota: u64,
}

/// A request method (RFC 9110 section 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "UPPERCASE")]
pub enum HttpMethod {
    /// Reads.
    Get,
    /// Reads the headers only.
    Head,
    /// Processes the request body by the rules of the resource.
    Post,
    /// Replaces.
    Put,
    /// Changes in part.
    Patch,
    /// Removes.
    Delete,
}

impl HttpMethod {
    /// Every method that a manifest can name.
    pub const ALL: [Self; 6] = [
        Self::Get,
        Self::Head,
        Self::Post,
        Self::Put,
        Self::Patch,
        Self::Delete,
    ];

    /// Returns the name on the wire (`GET`).
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether the method only reads by definition (RFC 9110 section 9.2.1).
    #[must_use]
    pub const fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head)
    }

    /// Returns whether sending it twice is the same as once by definition (RFC 9110 section 9.2.2).
    #[must_use]
    pub const fn is_idempotent(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Put | Self::Delete)
    }
}

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BodyType {
    /// `application/json`.
    #[default]
    Json,
    /// `application/x-www-form-urlencoded`.
    Form,
}

/// What the pack answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HttpOutput {
    /// The body: JSON as it is, text as a JSON string, nothing as `null`.
    #[default]
    Body,
    /// `{status, headers, body}`.
    Full,
}

/// Value of a header: text, placeholders and credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderTemplate(Vec<HeaderPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum HeaderPart {
    Text(Template),
    /// A credential, by its index in the manifest's `credentials`.
    Credential(usize),
}

/// Part of a header's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderPiece {
    /// Visible ASCII characters and spaces.
    Text(String),
    /// A credential, by its index in the manifest's `credentials`.
    Credential(usize),
}

/// Request made from an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// The full URL.
    pub url: Url,
    /// Headers by name in lower case, with credentials not yet filled in.
    pub headers: Vec<(String, Vec<HeaderPiece>)>,
    /// The body with its media type.
    pub body: Option<(&'static str, Bytes)>,
}

impl HttpSpec {
    /// Returns whether a status counts as an answer.
    #[must_use]
    pub fn accepts(&self, status: u16) -> bool {
        self.ok.iter().any(|range| range.contains(&status))
    }

    /// Fills the template from an input (JSON text). All spellings of one value make the same
    /// request.
    ///
    /// # Errors
    /// `invalid_input` if the input lacks what the path needs, or has a value that cannot stand
    /// where the template puts it.
    pub fn request(&self, input: &str) -> Result<HttpRequest> {
        let canonical = crate::canonical::canonical(input).map_err(|error| {
            Error::new(
                Code::InvalidInput,
                format!("the input cannot be used: {error}"),
            )
        })?;
        let canonical = String::from_utf8_lossy(&canonical);
        let values = Values::of(&canonical);
        let url = self.url.fill(&values, &self.query)?;
        let mut headers = Vec::with_capacity(self.headers.len());
        for (name, template) in &self.headers {
            if let Some(value) = template.fill(name, &values)? {
                headers.push((name.clone(), value));
            }
        }
        let body = match (&self.body, self.body_type) {
            (None, _) => None,
            (Some(body), BodyType::Json) => {
                body.json(&values).map(|bytes| ("application/json", bytes))
            }
            (Some(body), BodyType::Form) => {
                Some(("application/x-www-form-urlencoded", body.form(&values)?))
            }
        };
        Ok(HttpRequest { url, headers, body })
    }
}

impl HeaderTemplate {
    /// Returns whether a credential is part of the value.
    #[must_use]
    pub fn has_credential(&self) -> bool {
        self.0
            .iter()
            .any(|part| matches!(part, HeaderPart::Credential(_)))
    }

    fn fill(&self, name: &str, values: &Values<'_>) -> Result<Option<Vec<HeaderPiece>>> {
        let mut pieces = Vec::with_capacity(self.0.len());
        for part in &self.0 {
            match part {
                HeaderPart::Credential(index) => pieces.push(HeaderPiece::Credential(*index)),
                HeaderPart::Text(template) => {
                    let Some(text) = values.text(template, |value, out| out.push_str(value)) else {
                        return Ok(None);
                    };
                    // RFC 9110 section 5.5; bytes beyond ASCII are obsolete there.
                    if !text
                        .bytes()
                        .all(|byte| byte == b' ' || byte.is_ascii_graphic())
                    {
                        let message = format!(
                            "the header \"{name}\" can hold visible ASCII characters and spaces only; the input has others"
                        );
                        return Err(Error::new(Code::InvalidInput, message));
                    }
                    pieces.push(HeaderPiece::Text(text));
                }
            }
        }
        Ok(Some(pieces))
    }
}

/// Returns the name in a placeholder `{credential:name}`.
fn credential_of(part: &TemplatePart) -> Option<String> {
    match part {
        TemplatePart::Place { path, .. } => path
            .join(".")
            .strip_prefix("credential:")
            .map(str::to_owned),
        TemplatePart::Text(_) => None,
    }
}

#[cfg(test)]
mod tests;

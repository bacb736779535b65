//! Takes secrets out of whatever leaves a handler: output, error, progress, files.
//!
//! A secret is looked for as it is, as JSON escapes it, and as a URL encodes it. Secrets shorter than 6 bytes are left alone:
//! taking out every `a` would destroy more than it protects.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use helmdeck_core::context::{CallSecrets, ProgressSink};
use helmdeck_core::{Error, Secret};
use memchr::memmem;
use regex::bytes::Regex;

/// What stands in a secret's place.
const MARK: &[u8] = b"[secret]";
const MIN_BYTES: usize = 6;

/// Returns the bytes without the secrets; `Cow::Borrowed` if none was found.
pub(crate) fn bytes<'a>(bytes: &'a [u8], secrets: &[Secret]) -> Cow<'a, [u8]> {
    let mut clean = Cow::Borrowed(bytes);
    for secret in secrets.iter().filter(|secret| secret.expose().len() >= MIN_BYTES) {
        let plain = secret.expose();
        let escaped = serde_json::to_string(plain).unwrap_or_default();
        let mut forms = vec![plain.to_owned(), escaped.trim_matches('"').to_owned(), percent_encoded(plain)];
        forms.dedup();
        for form in forms {
            if let Some(replaced) = replace(&clean, form.as_bytes()) {
                clean = Cow::Owned(replaced);
            }
        }
    }
    clean
}

/// Returns the text without the secrets.
pub(crate) fn text<'a>(text: &'a str, secrets: &[Secret]) -> Cow<'a, str> {
    match bytes(text.as_bytes(), secrets) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(clean) => Cow::Owned(String::from_utf8_lossy(&clean).into_owned()),
    }
}

/// Returns the error without the secrets: message, violations and cause.
pub(crate) fn error(error: Error, secrets: &[Secret]) -> Error {
    if secrets.is_empty() {
        return error;
    }
    let mut clean = Error::new(error.code(), text(error.message(), secrets).into_owned());
    if let Some(after) = error.retry_after() {
        clean = clean.with_retry_after(after);
    }
    let mut violations = error.violations().to_vec();
    for violation in &mut violations {
        violation.detail = text(&violation.detail, secrets).into_owned();
        violation.pointer = text(&violation.pointer, secrets).into_owned();
    }
    let cause = error.cause();
    if !cause.is_empty() {
        clean = clean.with_source(text(&cause, secrets).into_owned());
    }
    clean.with_violations(violations)
}

fn replace(bytes: &[u8], needle: &[u8]) -> Option<Vec<u8>> {
    let finder = memmem::Finder::new(needle);
    let mut at = finder.find(bytes)?;
    let mut clean = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        clean.extend_from_slice(&rest[..at]);
        clean.extend_from_slice(MARK);
        rest = &rest[at + needle.len()..];
        match finder.find(rest) {
            Some(next) => at = next,
            None => break,
        }
    }
    clean.extend_from_slice(rest);
    Some(clean)
}

fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Says whether a text holds something that looks like a token of a well-known kind. Such an answer is not stored, even if
/// the token is none of ours.
#[must_use]
pub fn looks_like_token(bytes: &[u8]) -> bool {
    // Formats as their issuers document them: GitHub, GitLab, AWS, Slack, Google, Stripe, OpenAI and Anthropic, PEM.
    static KNOWN: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(concat!(
            r"gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{22,}|glpat-[A-Za-z0-9_-]{20}",
            r"|(?:AKIA|ASIA)[A-Z0-9]{16}|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{35}",
            r"|[sr]k_live_[A-Za-z0-9]{20,}|sk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,}|-----BEGIN [A-Z ]*PRIVATE KEY-----",
        ))
        .ok()
    });
    KNOWN.as_ref().is_some_and(|known| known.is_match(bytes))
}

/// Takes secrets out of progress messages.
pub(crate) struct CleanProgress {
    pub(crate) inner: Arc<dyn ProgressSink>,
    pub(crate) secrets: Arc<dyn CallSecrets>,
}

impl ProgressSink for CleanProgress {
    fn report(&self, percent: Option<f32>, message: &str) {
        self.inner.report(percent, &text(message, &self.secrets.revealed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_secret_goes() {
        let secrets = [Secret::new("p\"ss wörd".into())];
        let body = format!("a p\"ss wörd b {} c {} p\"ss wörd", "p\\\"ss wörd", "p%22ss%20w%C3%B6rd");
        assert_eq!(text(&body, &secrets), "a [secret] b [secret] c [secret] [secret]");
        assert!(matches!(bytes(b"nothing here", &secrets), Cow::Borrowed(_)));
    }

    #[test]
    fn errors_are_cleaned_to_the_cause() {
        let secrets = [Secret::new("canary-123456".into())];
        let dirty =
            Error::new(helmdeck_core::Code::HandlerFailed, "bad canary-123456").with_source("why canary-123456");
        let clean = error(dirty, &secrets);
        assert!(!clean.message().contains("canary") && !clean.cause().contains("canary"));
    }

    #[test]
    fn well_known_tokens_are_recognised() {
        assert!(looks_like_token(format!("x ghp_{} y", "a1".repeat(18)).as_bytes()));
        assert!(looks_like_token(b"-----BEGIN RSA PRIVATE KEY-----"));
        assert!(!looks_like_token(b"a commit 0123456789abcdef0123456789abcdef01234567 and ghp_short"));
    }
}

#![doc = include_str!("README.md")]

mod flow;
mod forms;
pub mod quote;

use std::borrow::Cow;
use std::sync::Arc;

use helmdeck_core::context::{CallSecrets, ProgressSink};
use helmdeck_core::{Error, Secret};

pub use flow::stream;
use forms::Needle;

/// Placeholder for a secret.
const MARK: &[u8] = b"[secret]";

/// Redacts secrets in bytes; `Cow::Borrowed` if none was found.
pub fn bytes<'a>(bytes: &'a [u8], secrets: &[Secret]) -> Cow<'a, [u8]> {
    if secrets.is_empty() {
        return Cow::Borrowed(bytes);
    }
    without(bytes, &forms::needles(secrets))
}

fn without<'a>(bytes: &'a [u8], needles: &[Needle]) -> Cow<'a, [u8]> {
    let mut clean = Cow::Borrowed(bytes);
    for needle in needles {
        if let Some(replaced) = replace(&clean, needle) {
            clean = Cow::Owned(replaced);
        }
    }
    clean
}

/// Returns whether something was redacted in a text.
#[must_use]
pub fn is_redacted(text: &str) -> bool {
    text.as_bytes().windows(MARK.len()).any(|part| part == MARK)
}

/// Redacts secrets in a text.
pub fn text<'a>(text: &'a str, secrets: &[Secret]) -> Cow<'a, str> {
    match bytes(text.as_bytes(), secrets) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(clean) => Cow::Owned(String::from_utf8_lossy(&clean).into_owned()),
    }
}

/// Redacts secrets in an error: in message, violations and cause.
pub fn error(error: Error, secrets: &[Secret]) -> Error {
    if secrets.is_empty() {
        return error;
    }
    let mut clean = Error::new(error.code(), text(error.message(), secrets).into_owned());
    if let Some(after) = error.retry_after() {
        clean = clean.with_retry_after(after);
    }
    if error.is_of_upstream() {
        clean = clean.of_upstream();
    }
    if error.is_for_operator() {
        clean = clean.for_operator();
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

fn replace(bytes: &[u8], needle: &Needle) -> Option<Vec<u8>> {
    let mut found = needle.find(bytes, 0)?;
    let mut clean = Vec::with_capacity(bytes.len());
    let mut done = 0;
    loop {
        clean.extend_from_slice(&bytes[done..found.0]);
        clean.extend_from_slice(MARK);
        done = found.1;
        match needle.find(bytes, done) {
            Some(next) => found = next,
            None => break,
        }
    }
    clean.extend_from_slice(&bytes[done..]);
    Some(clean)
}

/// Progress sink that redacts the messages.
pub struct CleanProgress {
    /// Receives the redacted messages.
    pub inner: Arc<dyn ProgressSink>,
    /// Secrets that the call was given.
    pub secrets: Arc<dyn CallSecrets>,
}

helmdeck_core::redacted_debug!(CleanProgress);

impl ProgressSink for CleanProgress {
    fn report(&self, percent: Option<f32>, message: &str) {
        self.inner
            .report(percent, &text(message, &self.secrets.revealed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_secret_goes() {
        let secrets = [Secret::new("p\"ss wörd".into())];
        let body = format!(
            "a p\"ss wörd b {} c {} p\"ss wörd",
            "p\\\"ss wörd", "p%22ss%20w%C3%B6rd"
        );
        assert_eq!(
            text(&body, &secrets),
            "a [secret] b [secret] c [secret] [secret]"
        );
        assert!(matches!(bytes(b"nothing here", &secrets), Cow::Borrowed(_)));
    }

    /// Redacts one secret in a text, and asserts that no form of it is left.
    fn cleaned(body: &str, secret: &str) -> String {
        let clean = text(body, &[Secret::new(secret.to_owned())]).into_owned();
        assert!(!clean.contains(secret), "{clean}");
        clean
    }

    #[test]
    fn url_and_json_spellings_are_redacted() {
        for written in [
            "a/b+c d\"e\\f",
            "a%2Fb%2Bc%20d%22e%5Cf",
            "a%2fb%2bc+d%22e%5cf",
            "a/b%2Bc%20d%22e%5cf",
            "a\\/b+c d\\\"e\\\\f",
            "a/b+c d\\u0022e\\u005cf",
            "a/b+c d\\\\\\\"e\\\\\\\\f",
        ] {
            let body = format!("x{written}y {written}");
            let clean = cleaned(&body, "a/b+c d\"e\\f");
            // JSON inside of JSON leaves two backslashes more or less; what matters is that it is
            // found.
            assert_eq!(clean, "x[secret]y [secret]", "{written}");
        }
        assert_eq!(
            cleaned("%61%62 100% of \\u12 + %", "secret/x"),
            "%61%62 100% of \\u12 + %"
        );
    }

    #[test]
    fn hex_and_base64_are_redacted_inside_longer_text() {
        // Computed by coreutils (xxd, base64) from "user:s3cr3t?pass~word" and its parts.
        for (written, clean) in [
            ("x 733363723374 y", "x [secret] y"),
            ("x 73336372337A y 733363723374", "x 73336372337A y [secret]"),
            ("Basic dXNlcjpzM2NyM3Q=", "Basic dXNlcj[secret]="),
            ("Basic eHVzZXI6czNjcjN0", "Basic eHVzZXI6[secret]"),
            ("Basic dTpzM2NyM3Q6bW9yZQ==", "Basic dT[secret]6bW9yZQ=="),
        ] {
            assert_eq!(cleaned(written, "s3cr3t"), clean);
        }
        // Digits that URLs and JSON write differently, computed by Python.
        for (written, clean) in [
            ("fn5+Pz8/Pj4+", "[secret]"),
            ("fn5-Pz8_Pj4-", "[secret]"),
            ("fn5%2BPz8%2fPj4%2B&x", "[secret]&x"),
            ("fn5+Pz8\\/Pj4+", "[secret]"),
            ("u dTp+fn4/Pz8+Pj4=", "u dT[secret]="),
            ("us dXM6fn5+Pz8/Pj4+eA==", "us dXM6[secret]eA=="),
        ] {
            assert_eq!(cleaned(written, "~~~???>>>"), clean, "{written}");
        }
    }

    #[test]
    fn key_parts_are_redacted_frame_stays() {
        let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjE\nAAAABG5vbmUAAAAE\n-----END OPENSSH PRIVATE KEY-----\n";
        let secrets = [Secret::new(key.to_owned()).with_passphrase("open sesame".to_owned())];
        let body = serde_json::json!({"key": key, "line": "b3BlbnNzaC1rZXktdjE", "one": "b3BlbnNzaC1rZXktdjEAAAABG5vbmUAAAAE", "p": "open%20sesame"});
        let clean = text(&body.to_string(), &secrets).into_owned();
        assert!(
            !clean.contains("b3Blb") && !clean.contains("AAAAB") && !clean.contains("sesame"),
            "{clean}"
        );
        assert!(matches!(
            text("-----END OPENSSH PRIVATE KEY-----", &secrets),
            Cow::Borrowed(_)
        ));
    }

    #[test]
    fn short_parts_stay_and_long_forms_go_first() {
        assert_eq!(cleaned("12345 x", "54321"), "12345 x");
        let two = [
            Secret::new("abcdef".to_owned()),
            Secret::new("abcdefghij".to_owned()),
        ];
        assert_eq!(text("abcdefghij abcdef", &two), "[secret] [secret]");
    }

    #[test]
    fn errors_are_cleaned_to_the_cause() {
        let secrets = [Secret::new("canary-123456".into())];
        let dirty = Error::new(helmdeck_core::Code::HandlerFailed, "bad canary-123456")
            .with_source("why canary-123456");
        let clean = error(dirty, &secrets);
        assert!(!clean.message().contains("canary") && !clean.cause().contains("canary"));
    }
}

//! `Prefer` (RFC 7240): whether a caller waits for a call, or wants a job.

use std::time::Duration;

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};

const PREFER: HeaderName = HeaderName::from_static("prefer");
/// Header that names the preferences that were followed.
pub(super) const APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// Preferences of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Prefer {
    /// `respond-async`: run the call as a job.
    pub(super) respond_async: bool,
    /// `wait=<seconds>`: how long the caller waits.
    ///
    /// Without a number, which is our extension: as long as a request may take.
    pub(super) wait: Option<Duration>,
}

impl Prefer {
    /// Reads the preferences of a request. Unknown and malformed ones are ignored (RFC 7240,
    /// section 2).
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut prefer = Self::default();
        let texts = headers
            .get_all(PREFER)
            .iter()
            .filter_map(|value| value.to_str().ok());
        for preference in texts.flat_map(|text| text.split(',')) {
            let token = preference.split(';').next().unwrap_or_default();
            let (name, value) = token
                .split_once('=')
                .map_or((token, ""), |(name, value)| (name, value));
            let value = value.trim().trim_matches('"');
            if name.trim().eq_ignore_ascii_case("respond-async") {
                prefer.respond_async = true;
            } else if name.trim().eq_ignore_ascii_case("wait") && prefer.wait.is_none() {
                let seconds = if value.is_empty() {
                    Some(Duration::MAX)
                } else {
                    value.parse().ok().map(Duration::from_secs)
                };
                prefer.wait = seconds;
            }
        }
        prefer
    }

    /// Returns the value of `Preference-Applied`.
    pub(super) fn applied(self) -> Option<HeaderValue> {
        let wait = match self.wait {
            Some(Duration::MAX) => Some("wait".to_owned()),
            Some(wait) => Some(format!("wait={}", wait.as_secs())),
            None => None,
        };
        let text = match (self.respond_async, wait) {
            (true, Some(wait)) => format!("respond-async, {wait}"),
            (true, None) => "respond-async".to_owned(),
            (false, Some(wait)) => wait,
            (false, None) => return None,
        };
        HeaderValue::try_from(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Prefer {
        Prefer::of(
            &lines
                .iter()
                .map(|line| (PREFER, line.parse().unwrap()))
                .collect(),
        )
    }

    #[test]
    fn preferences_are_read_as_the_rfc_writes_them() {
        let wait = |seconds| Some(Duration::from_secs(seconds));
        for (lines, respond_async, wait) in [
            (&["respond-async"][..], true, None),
            (&["respond-async, wait=10"], true, wait(10)),
            (&["Respond-Async; foo=bar", "wait=\"5\""], true, wait(5)),
            (&["wait = 7"], false, wait(7)),
            (&["wait=1, wait=2"], false, wait(1)),
            (&["wait"], false, Some(Duration::MAX)),
            (&["wait=-1"], false, None),
            (&["wait=soon"], false, None),
            (&["return=minimal; respond-async"], false, None),
            (&[], false, None),
        ] {
            assert_eq!(
                of(lines),
                Prefer {
                    respond_async,
                    wait
                },
                "{lines:?}"
            );
        }
    }

    #[test]
    fn applied_preferences_are_reported() {
        let applied = |line: &str| {
            of(&[line])
                .applied()
                .map(|text| text.to_str().unwrap().to_owned())
        };
        assert_eq!(
            applied("wait=3,respond-async").as_deref(),
            Some("respond-async, wait=3")
        );
        assert_eq!(applied("wait").as_deref(), Some("wait"));
        assert_eq!(applied("handling=lenient"), None);
    }
}

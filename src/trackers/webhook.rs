//! Webhook of Linear: checks a delivery, and returns what changed as a hint.
//!
//! The payload is never taken over: the issue is read again.

use std::collections::VecDeque;
use std::time::Duration;

use aws_lc_rs::hmac;
use helmdeck_core::Timestamp;
use parking_lot::Mutex;
use serde::Deserialize;

/// Header with the signature: HMAC-SHA256 of the raw body, in hex.
pub const SIGNATURE: &str = "linear-signature";
/// Header with the id of the delivery.
pub const DELIVERY: &str = "linear-delivery";
/// Limit of a body, in bytes.
pub const MAX_BODY_BYTES: usize = 1 << 20;

/// How far the time of a delivery may be from now.
const TOLERANCE: Duration = Duration::from_secs(60);
/// Number of deliveries that are remembered.
const REMEMBERED: usize = 1_000;

/// A checked delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// The id of the issue that changed; `None` for other things.
    pub issue: Option<String>,
    /// The id of the delivery.
    pub delivery: Option<String>,
}

/// Why a delivery is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// The signature is missing or wrong.
    Signature,
    /// The time is missing, or more than a minute away.
    Time,
    /// It is not JSON as documented.
    Malformed,
    /// It is larger than [`MAX_BODY_BYTES`].
    TooLarge,
    /// It was received before.
    Repeated,
}

/// Checks deliveries with the secret of a webhook.
pub struct Webhook {
    key: hmac::Key,
    seen: Mutex<VecDeque<String>>,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").finish_non_exhaustive()
    }
}

/// The parts of a payload that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    #[serde(rename = "type")]
    kind: String,
    /// Unix milliseconds.
    webhook_timestamp: i64,
    #[serde(default)]
    data: Data,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Data {
    id: Option<String>,
    issue_id: Option<String>,
}

impl Webhook {
    /// Makes a check with a secret. `seen` are deliveries of before, the newest last.
    #[must_use]
    pub fn new(secret: &str, seen: Vec<String>) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()),
            seen: Mutex::new(seen.into()),
        }
    }

    /// Returns the signature of a body, as Linear sends it.
    #[must_use]
    pub fn sign(&self, body: &[u8]) -> String {
        helmdeck_core::hex(hmac::sign(&self.key, body).as_ref())
    }

    /// Checks a delivery: signature, time, and that it is new. The comparison takes constant time.
    ///
    /// # Errors
    /// Why it is not accepted.
    pub fn receive(
        &self,
        body: &[u8],
        signature: Option<&str>,
        delivery: Option<&str>,
        now: Timestamp,
    ) -> Result<Hint, Rejected> {
        if body.len() > MAX_BODY_BYTES {
            return Err(Rejected::TooLarge);
        }
        let given = signature.and_then(decode).ok_or(Rejected::Signature)?;
        hmac::verify(&self.key, body, &given).map_err(|_| Rejected::Signature)?;
        let payload: Payload = serde_json::from_slice(body).map_err(|_| Rejected::Malformed)?;
        let sent = Timestamp(payload.webhook_timestamp.saturating_mul(1_000));
        if now.since(sent).max(sent.since(now)) > TOLERANCE {
            return Err(Rejected::Time);
        }
        if let Some(delivery) = delivery {
            let mut seen = self.seen.lock();
            if seen.iter().any(|known| known == delivery) {
                return Err(Rejected::Repeated);
            }
            if seen.len() >= REMEMBERED {
                seen.pop_front();
            }
            seen.push_back(delivery.chars().take(100).collect());
        }
        let issue = match payload.kind.as_str() {
            "Issue" => payload.data.id,
            "Comment" | "IssueLabel" | "Reaction" | "Attachment" => payload.data.issue_id,
            _ => None,
        };
        let plain = |id: &String| {
            id.len() <= 64
                && id
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        Ok(Hint {
            issue: issue.filter(plain),
            delivery: delivery.map(str::to_owned),
        })
    }

    /// Returns the deliveries that are remembered, the newest last.
    #[must_use]
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().iter().cloned().collect()
    }
}

fn decode(hex: &str) -> Option<Vec<u8>> {
    let hex = hex.trim();
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    fn body(kind: &str, seconds: i64) -> Vec<u8> {
        let time = NOW.0 / 1_000 + seconds * 1_000;
        let data = r#"{"id": "1d2c-33", "issueId": "9f-1", "title": "never taken over"}"#;
        format!(r#"{{"action": "update", "type": "{kind}", "webhookTimestamp": {time}, "data": {data}}}"#).into_bytes()
    }

    #[test]
    fn signed_deliveries_are_accepted_once() {
        let webhook = Webhook::new("secret", Vec::new());
        let body = body("Issue", -59);
        let signature = webhook.sign(&body);
        let receive =
            |delivery: &str| webhook.receive(&body, Some(&signature), Some(delivery), NOW);
        assert_eq!(receive("one").unwrap().issue.as_deref(), Some("1d2c-33"));
        assert_eq!(receive("one"), Err(Rejected::Repeated));
        receive("two").unwrap();
        let later = Webhook::new("secret", webhook.seen());
        assert_eq!(
            later.receive(&body, Some(&signature), Some("two"), NOW),
            Err(Rejected::Repeated)
        );
        for number in 0..REMEMBERED {
            receive(&format!("n{number}")).unwrap();
        }
        assert_eq!(webhook.seen().len(), REMEMBERED);
    }

    #[test]
    fn anything_else_is_rejected() {
        let webhook = Webhook::new("secret", Vec::new());
        let good = body("Issue", 0);
        let signature = webhook.sign(&good);
        let other = Webhook::new("other", Vec::new()).sign(&good);
        for (body, signature, why) in [
            (good.clone(), None, Rejected::Signature),
            (good.clone(), Some(other), Rejected::Signature),
            (
                good.clone(),
                Some(signature[..63].to_owned()),
                Rejected::Signature,
            ),
            (good.clone(), Some("é".repeat(32)), Rejected::Signature),
            (
                [good.as_slice(), b" "].concat(),
                Some(signature),
                Rejected::Signature,
            ),
            (
                body("Issue", 61),
                Some(webhook.sign(&body("Issue", 61))),
                Rejected::Time,
            ),
            (
                body("Issue", -61),
                Some(webhook.sign(&body("Issue", -61))),
                Rejected::Time,
            ),
            (
                b"{}".to_vec(),
                Some(webhook.sign(b"{}")),
                Rejected::Malformed,
            ),
            (vec![b' '; MAX_BODY_BYTES + 1], None, Rejected::TooLarge),
        ] {
            let found = webhook.receive(&body, signature.as_deref(), Some("x"), NOW);
            assert_eq!(found, Err(why));
        }
        assert_eq!(
            webhook.seen(),
            Vec::<String>::new(),
            "what is rejected is not remembered"
        );
    }

    #[test]
    fn comments_hint_at_their_issue() {
        let webhook = Webhook::new("secret", Vec::new());
        for (kind, issue) in [("Comment", Some("9f-1")), ("Project", None)] {
            let body = body(kind, 0);
            let hint = webhook
                .receive(&body, Some(&webhook.sign(&body)), None, NOW)
                .unwrap();
            assert_eq!(hint.issue.as_deref(), issue);
        }
    }
}

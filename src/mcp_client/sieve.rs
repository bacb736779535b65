//! Filter for messages that JSON parsers read differently.
//!
//! These are messages deeper than 128 levels, or with a duplicate key. rmcp drops a message that it
//! cannot parse, and its caller waits until the timeout. So such an answer is replaced by an error
//! of the same request, and is logged.

use helmdeck_core::json;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// Code of such an error, not used by JSON-RPC or MCP.
pub(crate) const NOT_READABLE: i32 = -32_090;

/// Message of such an error.
pub(crate) const WHY: &str = "JSON that not everybody reads alike: deeper than 128 levels, a key twice in one object, or a \
                              number out of range";

/// Checks the messages of one server.
#[derive(Debug, Clone)]
pub(crate) struct Sieve {
    server: String,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<IgnoredAny>,
}

impl Sieve {
    pub(crate) fn new(server: &str) -> Self {
        Self {
            server: server.to_owned(),
        }
    }

    /// Adds a line to `out`, or its replacement.
    pub(crate) fn pass(&self, line: &[u8], out: &mut Vec<u8>) {
        match self.instead_of(line) {
            None => out.extend_from_slice(line),
            Some(instead) => out.extend_from_slice(instead.as_bytes()),
        }
    }

    /// Returns the replacement of a bad message, with its line feed.
    ///
    /// It is empty if no request waits for the message. Returns `None` if the message is good, or
    /// not JSON: rmcp skips that.
    pub(crate) fn instead_of(&self, message: &[u8]) -> Option<String> {
        let error = json::check_strict(message).err()?;
        serde_json::from_slice::<&RawValue>(message).ok()?;
        tracing::warn!(mcp.server = self.server, bytes = message.len(), %error, "an MCP server sent {WHY}");
        let envelope = serde_json::from_slice::<Envelope<'_>>(message).ok();
        let id = envelope
            .filter(|envelope| envelope.method.is_none())
            .and_then(|envelope| envelope.id);
        Some(id.map_or_else(String::new, |id| {
            format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{NOT_READABLE},"message":"{WHY}"}}}}"#, id.get())
                + "\n"
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn sifted(line: &str) -> Option<String> {
        Sieve::new("x").instead_of(line.as_bytes())
    }

    #[test]
    fn unreadable_answers_become_errors_of_their_request() {
        let deep = format!("{}{}", "[".repeat(2_000_000), "]".repeat(2_000_000));
        for result in [deep.as_str(), r#"{"a":1,"a":2}"#, "1e999"] {
            let answer =
                sifted(&format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#)).unwrap();
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(
                (&answer["id"], &answer["error"]["code"]),
                (&7.into(), &NOT_READABLE.into())
            );
            let notification = format!(r#"{{"jsonrpc":"2.0","method":"n","params":{result}}}"#);
            assert_eq!(sifted(&notification).as_deref(), Some(""));
        }
    }

    #[test]
    fn what_is_in_order_or_no_json_stays() {
        assert_eq!(
            sifted(r#"{"jsonrpc":"2.0","id":7,"result":{"a":[1,{"a":2}]}}"#),
            None
        );
        assert_eq!(sifted("Listening on port 1"), None);
    }
}

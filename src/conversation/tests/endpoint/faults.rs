//! The ways to fail.

use std::time::Duration;

use helmdeck_testkit::ChatReply;
use serde_json::json;

use super::PATIENT;

/// A way to fail.
pub(super) struct Fault {
    pub(super) name: &'static str,
    /// The word for it; `None` = it is no failure.
    pub(super) word: Option<&'static str>,
    /// What the endpoint does instead of answering with this summary; `None` = there is no
    /// endpoint.
    pub(super) act: Option<fn(&str) -> ChatReply>,
    /// Whether no answer ever comes.
    pub(super) hangs: bool,
}

pub(super) const fn fault(
    name: &'static str,
    word: &'static str,
    act: fn(&str) -> ChatReply,
) -> Fault {
    Fault {
        name,
        word: Some(word),
        act: Some(act),
        hangs: false,
    }
}

pub(super) static FAULTS: [Fault; 25] = [
    Fault {
        hangs: true,
        ..fault("silent", "timeout", |_| ChatReply::Silent)
    },
    Fault {
        hangs: true,
        ..fault("too-slow", "timeout", |good| {
            ChatReply::slow_text(PATIENT, good)
        })
    },
    Fault {
        word: None,
        ..fault("slow", "", |good| {
            ChatReply::slow_text(Duration::from_millis(20), good)
        })
    },
    Fault {
        act: None,
        ..fault("refused-connection", "unavailable", |_| ChatReply::Silent)
    },
    fault("broken", "unavailable", |_| ChatReply::Broken),
    fault("500", "unavailable", |good| {
        ChatReply::Http(500, vec![], good.into())
    }),
    fault("503", "unavailable", |_| {
        ChatReply::error(503, "busy").with_header("retry-after: 1")
    }),
    fault("429", "rate_limited", |_| {
        ChatReply::error(429, "rate_limit_exceeded").with_header("retry-after: 1")
    }),
    fault("401", "credential", |_| {
        ChatReply::error(401, "invalid_api_key")
    }),
    fault("404", "refused", |_| {
        ChatReply::error(404, "model_not_found")
    }),
    fault("400", "refused", |_| ChatReply::error(400, "bad_request")),
    fault("too-long", "too_long", |_| {
        ChatReply::error(400, "context_length_exceeded")
    }),
    fault("length", "truncated", |good| ended(good, "length")),
    fault("withheld", "truncated", |good| {
        ended(good, "content_filter")
    }),
    fault("looping", "looping", |good| {
        ChatReply::text(&format!("{good} {}", "and so on ".repeat(60)))
    }),
    fault("empty", "garbage", |_| ChatReply::text("")),
    fault("blank", "garbage", |_| ChatReply::text(" \r\n\t\u{a0} ")),
    fault("thought", "garbage", |good| {
        ChatReply::text(&format!("<think>{good}"))
    }),
    fault("excuse", "refused", |good| {
        ChatReply::text(&format!("I'm sorry, I cannot do that: {good}"))
    }),
    fault("html", "garbage", |good| {
        bytes(format!("<html><h1>Busy</h1>{good}</html>"))
    }),
    fault("said-html", "garbage", |good| {
        ChatReply::text(&format!("<html><h1>Busy</h1>{good}</html>"))
    }),
    fault("json-error", "garbage", |good| {
        ChatReply::json(&json!({"error": {"message": good, "code": 500}}))
    }),
    fault("tool-call", "garbage", |good| ChatReply::bash(good, "ls")),
    fault("no-utf-8", "garbage", |good| {
        let text = ChatReply::text(&format!("{good}|"));
        let ChatReply::Http(status, headers, body) = text else {
            return text;
        };
        ChatReply::Http(
            status,
            headers,
            body.into_iter()
                .map(|byte| if byte == b'|' { 0xff } else { byte })
                .collect(),
        )
    }),
    fault("endless", "garbage", |_| ChatReply::Endless),
];

pub(super) fn ended(text: &str, finish: &str) -> ChatReply {
    ChatReply::message(&json!({"role": "assistant", "content": text}), finish)
}

pub(super) fn bytes(body: String) -> ChatReply {
    ChatReply::Http(200, vec![], body.into_bytes())
}

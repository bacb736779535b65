//! JSON-RPC messages: parsed strictly and without copying, before any other parser.
//!
//! A message is UTF-8, one JSON value, at most 128 levels deep and without duplicate keys;
//! otherwise two parsers could understand it differently. The meaning of a method is not checked
//! here.

use std::borrow::Cow;

use helmdeck_core::Trace;
use helmdeck_core::json::read_strict;
use helmdeck_memory::DeletePosition;
use rmcp::model::{
    ClientCapabilities, ErrorCode, InitializeRequestParams, ProgressToken, ProtocolVersion,
    RequestId,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::wish::CacheWish;

/// Refusal of an invalid message: the code and the text of the JSON-RPC error.
///
/// The text never repeats the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn invalid_request(message: &str) -> Self {
        Self {
            code: ErrorCode::INVALID_REQUEST,
            message: message.to_owned(),
        }
    }

    /// The refusal of a request whose id belongs to a running one.
    pub(crate) fn id_in_use() -> Self {
        Self::invalid_request("Invalid Request: a request under way has this id; use another")
    }

    /// Returns the refusal as JSON, for a message without a known id.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let error = serde_json::json!({"code": self.code.0, "message": self.message});
        serde_json::json!({"jsonrpc": "2.0", "id": null, "error": error})
            .to_string()
            .into_bytes()
    }

    /// Returns the refusal of a request as JSON.
    pub(crate) fn to_json_for(&self, id: &Id<'_>) -> Vec<u8> {
        let error = serde_json::json!({"code": self.code.0, "message": self.message});
        serde_json::json!({"jsonrpc": "2.0", "id": id.value, "error": error})
            .to_string()
            .into_bytes()
    }
}

/// One message, split into its parts.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    /// A request.
    Request {
        id: Id<'a>,
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    /// A notification.
    Notification {
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    /// An answer to a request of ours.
    Answer,
}

/// Id of a request, as it was written and as it is compared.
#[derive(Debug, Clone)]
pub(crate) struct Id<'a> {
    pub(crate) text: &'a str,
    pub(crate) value: RequestId,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Reads a present member, also `null`: a request with a `null` id is no notification.
fn present<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The arguments and `_meta` of a `tools/call`.
#[derive(Debug, Deserialize)]
pub(crate) struct ToolCall<'a> {
    /// The tool.
    #[serde(borrow)]
    pub(crate) name: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

/// Members of `_meta` that matter for a call.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct CallMeta<'a> {
    #[serde(default, rename = "progressToken")]
    pub(crate) progress: Option<ProgressToken>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    pub(crate) revision: Option<Cow<'a, str>>,
    #[serde(default, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<ClientCapabilities>,
    #[serde(default, rename = "helmdeck/cache")]
    pub(crate) cache: CacheWish,
    #[serde(default, rename = "helmdeck/after", deserialize_with = "position")]
    pub(crate) after: Option<DeletePosition>,
    #[serde(borrow, default)]
    traceparent: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tracestate: Option<Cow<'a, str>>,
}

/// Reads a position. One that is wrong needs the full parser, which says why.
fn position<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<DeletePosition>, D::Error> {
    let text = Cow::<str>::deserialize(deserializer)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

/// Returns the trace that the `_meta` of any request names.
pub(crate) fn trace(params: Option<&RawValue>) -> Option<Trace> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, rename = "_meta")]
        meta: Meta<'a>,
    }
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow)]
        traceparent: Cow<'a, str>,
        #[serde(borrow, default)]
        tracestate: Option<Cow<'a, str>>,
    }
    let Params { meta } = serde_json::from_str(params?.get()).ok()?;
    Trace::received(&meta.traceparent, meta.tracestate.as_deref())
}

/// Returns the parameters of an `initialize`; `None` if they are no such parameters.
pub(crate) fn handshake(bytes: &[u8]) -> Option<InitializeRequestParams> {
    #[derive(Deserialize)]
    struct Initialize {
        params: InitializeRequestParams,
    }
    serde_json::from_slice::<Initialize>(bytes)
        .ok()
        .map(|initialize| initialize.params)
}

/// Parses one message, without its parameters.
pub(crate) fn read(bytes: &[u8]) -> Result<Message<'_>, Refusal> {
    let parse = |message: String| Refusal {
        code: ErrorCode::PARSE_ERROR,
        message,
    };
    let text = std::str::from_utf8(bytes)
        .map_err(|_| parse("Parse error: the message is not UTF-8".to_owned()))?;
    if text.trim_ascii_start().starts_with('[') {
        return Err(Refusal::invalid_request(
            "Invalid Request: batches are not part of this protocol revision",
        ));
    }
    let envelope: Envelope<'_> = serde_json::from_str(text).map_err(|error| {
        if error.is_data() {
            return Refusal::invalid_request(
                "Invalid Request: the message is not a JSON-RPC object",
            );
        }
        parse(format!(
            "Parse error at line {}, column {}",
            error.line(),
            error.column()
        ))
    })?;
    if envelope.jsonrpc.as_deref() != Some("2.0") {
        return Err(Refusal::invalid_request(
            "Invalid Request: jsonrpc must be \"2.0\"",
        ));
    }
    if envelope.params.is_some_and(|params| !is_object(params)) {
        return Err(Refusal {
            code: ErrorCode::INVALID_PARAMS,
            message: "Invalid params: not an object".to_owned(),
        });
    }
    match (envelope.id, envelope.method) {
        (None, Some(method)) => Ok(Message::Notification {
            method,
            params: envelope.params,
        }),
        (Some(id), Some(method)) => {
            let value = serde_json::from_str(id.get()).map_err(|_| {
                Refusal::invalid_request("Invalid Request: the id must be a string or an integer")
            })?;
            Ok(Message::Request {
                id: Id {
                    text: id.get(),
                    value,
                },
                method,
                params: envelope.params,
            })
        }
        (_, None) if envelope.result.is_some() || envelope.error.is_some() => Ok(Message::Answer),
        (_, None) => Err(Refusal::invalid_request(
            "Invalid Request: there is no method",
        )),
    }
}

/// Returns the request that a `notifications/cancelled` names.
pub(crate) fn cancelled(params: Option<&RawValue>) -> Option<RequestId> {
    #[derive(Deserialize)]
    struct Cancelled {
        #[serde(rename = "requestId")]
        id: RequestId,
    }
    serde_json::from_str::<Cancelled>(params?.get())
        .ok()
        .map(|cancelled| cancelled.id)
}

/// Validates a whole message that another parser will read.
pub(crate) fn check_strictly(bytes: &[u8]) -> Result<serde_json::Value, Refusal> {
    read_strict(bytes).map_err(|error| Refusal {
        code: ErrorCode::PARSE_ERROR,
        message: format!(
            "Parse error at line {}, column {}: too deep, a key twice in one object, or not JSON",
            error.line(),
            error.column()
        ),
    })
}

fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

impl<'a> ToolCall<'a> {
    /// Reads the parameters of a `tools/call`, `None` if they need the full parser.
    pub(crate) fn read(params: Option<&'a RawValue>) -> Option<Self> {
        serde_json::from_str(params?.get()).ok()
    }

    /// Returns the arguments as they were written, `{}` if there are none; `None` if they are no
    /// object.
    pub(crate) fn arguments(&self) -> Option<&'a str> {
        match self.arguments {
            None => Some("{}"),
            Some(arguments) => is_object(arguments).then(|| arguments.get()),
        }
    }

    /// Returns `_meta`, `None` if it needs the full parser.
    pub(crate) fn meta(&self) -> Option<CallMeta<'a>> {
        match self.meta {
            None => Some(CallMeta::default()),
            Some(meta) => serde_json::from_str(meta.get()).ok(),
        }
    }
}

impl CallMeta<'_> {
    /// Returns the trace that it names (SEP-414).
    pub(crate) fn trace(&self) -> Option<Trace> {
        Trace::received(self.traceparent.as_deref()?, self.tracestate.as_deref())
    }

    /// Whether the request declares client capabilities, and tasks are not among them.
    pub(crate) fn declares_no_tasks(&self) -> bool {
        self.is_self_contained()
            && !self
                .capabilities
                .as_ref()
                .is_some_and(ClientCapabilities::supports_tasks)
    }

    /// Whether it has all members that a request needs since revision 2026-07-28.
    pub(crate) fn is_self_contained(&self) -> bool {
        self.revision.as_deref() == Some(ProtocolVersion::V_2026_07_28.as_str())
            && self.capabilities.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &[u8]) -> Option<i32> {
        read(text).err().map(|refusal| refusal.code.0)
    }

    #[test]
    fn messages_are_told_apart_and_others_are_refused_by_the_right_code() {
        let request = read(br#"{"jsonrpc":"2.0","id":"a","method":"x","params":{}}"#).unwrap();
        assert!(matches!(request, Message::Request { id, .. } if id.text == "\"a\""));
        assert!(matches!(
            read(br#"{"jsonrpc":"2.0","method":"x"}"#),
            Ok(Message::Notification { .. })
        ));
        assert!(matches!(
            read(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
            Ok(Message::Answer)
        ));
        for not_json in [
            &b""[..],
            b"{",
            b"\"\xff\"",
            b"{\"a\":1} x",
            b"{\"jsonrpc\":\"2.0\xff\"}",
        ] {
            assert_eq!(code(not_json), Some(-32700), "{not_json:?}");
        }
        for not_a_message in [
            "7",
            "[]",
            "{}",
            r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#,
        ] {
            assert_eq!(
                code(not_a_message.as_bytes()),
                Some(-32600),
                "{not_a_message}"
            );
        }
        assert_eq!(
            code(br#"{"jsonrpc":"2.0","id":1,"method":"x","params":[]}"#),
            Some(-32602)
        );
    }

    #[test]
    fn what_is_deep_or_twofold_is_refused_before_anybody_else_reads_it() {
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"a":{}1{}}}}}"#,
            "[".repeat(500),
            "]".repeat(500)
        );
        assert!(read(deep.as_bytes()).is_ok() && check_strictly(deep.as_bytes()).is_err());
        assert!(check_strictly(br#"{"params":{"name":"a","name":"b"}}"#).is_err());
        assert!(check_strictly(br#"{"params":{"name":"a"}}"#).is_ok());
    }

    #[test]
    fn a_call_that_is_not_plain_is_left_to_a_closer_look() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let plain =
            raw(r#"{"name":"a__b","arguments":{ "n": 1e400 },"_meta":{"progressToken":1}}"#);
        let call = ToolCall::read(Some(&plain)).unwrap();
        assert_eq!(
            (call.name.as_ref(), call.arguments()),
            ("a__b", Some(r#"{ "n": 1e400 }"#))
        );
        assert!(call.meta().unwrap().progress.is_some());
        for other in [
            r#"{"arguments":{}}"#,
            r#"{"name":"a","name":"b"}"#,
            r#"{"name":7}"#,
        ] {
            assert!(ToolCall::read(Some(&raw(other))).is_none(), "{other}");
        }
        let list = raw(r#"{"name":"a","arguments":[]}"#);
        assert_eq!(ToolCall::read(Some(&list)).unwrap().arguments(), None);
        let meta = |meta: &str| {
            let call = raw(&format!(r#"{{"name":"a","_meta":{meta}}}"#));
            ToolCall::read(Some(&call))
                .unwrap()
                .meta()
                .map(|meta| meta.after.is_some())
        };
        assert_eq!(
            meta(r#"{"helmdeck/after":"p3-1-1-5-7-00112233445566778899aabbccddeeff"}"#),
            Some(true)
        );
        for wrong in [
            r#"{"helmdeck/cache":{"directive":"x"}}"#,
            r#"{"helmdeck/after":"x"}"#,
            r#"{"helmdeck/after":7}"#,
        ] {
            assert_eq!(meta(wrong), None, "{wrong}");
        }
    }
}

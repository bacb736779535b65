//! HTTP client of a server over streamable HTTP.
//!
//! Messages in its event streams go through the [`Sieve`]. An answer that comes as one JSON
//! document is not checked here. The library reports an unreadable one at once, and takes the last
//! value of a duplicate key, so all later code sees one value.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, GetMeta};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::sieve::Sieve;

type Events = BoxStream<'static, Result<Sse, SseError>>;
type Failure = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// HTTP client that checks event streams.
#[derive(Clone)]
pub(crate) struct Web {
    client: reqwest::Client,
    sieve: Sieve,
    /// Limit of an event, in bytes.
    limit: usize,
}

impl Web {
    pub(crate) fn new(client: reqwest::Client, sieve: Sieve, limit: usize) -> Self {
        Self {
            client,
            sieve,
            limit,
        }
    }

    fn sifted(&self, events: Events) -> Events {
        let sieve = self.sieve.clone();
        let sift = move |event: Result<Sse, SseError>| {
            let mut event = event?;
            if let Some(instead) = event
                .data
                .as_ref()
                .and_then(|data| sieve.instead_of(data.as_bytes()))
            {
                let instead = instead.trim_end().to_owned();
                event.data = Some(instead).filter(|data| !data.is_empty());
            }
            Ok(event)
        };
        events.map(sift).boxed()
    }
}

/// Repeats the trace context of a message in the headers of its request.
fn add_trace(message: &ClientJsonRpcMessage, headers: &mut Headers) {
    let ClientJsonRpcMessage::Request(request) = message else {
        return;
    };
    let meta = request.request.get_meta();
    let named = [
        ("traceparent", meta.get_traceparent()),
        ("tracestate", meta.get_tracestate()),
    ];
    for (name, value) in named {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

impl StreamableHttpClient for Web {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        self.post_message_with_max_sse_event_size(uri, message, session, token, headers, self.limit)
            .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        mut headers: Headers,
        limit: usize,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        add_trace(&message, &mut headers);
        let posted = self
            .client
            .post_message_with_max_sse_event_size(uri, message, session, token, headers, limit)
            .await?;
        Ok(match posted {
            StreamableHttpPostResponse::Sse(events, session) => {
                StreamableHttpPostResponse::Sse(self.sifted(events), session)
            }
            other => other,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), Failure> {
        self.client
            .delete_session(uri, session, token, headers)
            .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<Events, Failure> {
        self.get_stream_with_max_sse_event_size(
            uri, session, last_event, token, headers, self.limit,
        )
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
        limit: usize,
    ) -> Result<Events, Failure> {
        let opened = self
            .client
            .get_stream_with_max_sse_event_size(uri, session, last_event, token, headers, limit)
            .await?;
        Ok(self.sifted(opened))
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, RequestId};

    use super::*;

    #[test]
    fn headers_repeat_the_trace_of_the_message() {
        let mut request: ClientRequest =
            CallToolRequest::new(CallToolRequestParams::new("x")).into();
        request
            .get_meta_mut()
            .set_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        let mut headers = Headers::new();
        add_trace(
            &ClientJsonRpcMessage::request(request, RequestId::Number(1)),
            &mut headers,
        );
        let value = headers
            .get(&HeaderName::from_static("traceparent"))
            .unwrap();
        assert_eq!(
            value,
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        );
        assert_eq!(headers.len(), 1);
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "the client is sent nowhere")]
    async fn unreadable_events_become_errors() {
        let web = Web::new(reqwest::Client::new(), Sieve::new("x"), 1 << 20);
        let event = |data: &str| {
            Ok(Sse {
                data: Some(data.to_owned()),
                ..Sse::default()
            })
        };
        let good = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        let twice = r#"{"jsonrpc":"2.0","id":2,"result":{"a":1,"a":2}}"#;
        let events = futures_util::stream::iter([event(good), event(twice)]).boxed();
        let data: Vec<String> = web
            .sifted(events)
            .map(|event| event.unwrap().data.unwrap())
            .collect()
            .await;
        assert_eq!(data[0], good);
        assert!(
            data[1].contains(r#""id":2,"error":{"code":-32090"#),
            "{}",
            data[1]
        );
    }
}

//! Docs page: the packs of this server, with their schemas and a call to copy.
//!
//! Plain HTML without scripts or external resources, and a content security policy that forbids
//! both.

use std::fmt::Write;

use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use helmdeck_core::text::is_hidden;
use helmdeck_engine::{Engine, PackInfo};
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST};
use http::{HeaderMap, header};
use serde_json::Value;

use crate::access::By;
use crate::headers::NOSNIFF;

const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Answers with the page: the packs that the caller may run.
pub(crate) async fn page(
    State(engine): State<Engine>,
    By(caller): By,
    headers: HeaderMap,
) -> Response {
    let host = headers
        .get(HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or("127.0.0.1");
    let headers = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (
            header::REFERRER_POLICY,
            HeaderValue::from_static("no-referrer"),
        ),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        NOSNIFF,
    ];
    let mut packs = engine.packs();
    packs.retain(|pack| caller.permissions.allow_run(pack.name.as_str()));
    (headers, Html(html(&packs, host))).into_response()
}

/// Answers with the page's style sheet.
pub(crate) async fn style() -> Response {
    let headers = [
        (
            CONTENT_TYPE,
            HeaderValue::from_static("text/css; charset=utf-8"),
        ),
        NOSNIFF,
    ];
    (headers, include_str!("docs.css")).into_response()
}

/// Answers with the icon that browsers ask for by themselves, for every page of this server.
pub(crate) async fn icon() -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("image/svg+xml")),
        (
            CACHE_CONTROL,
            HeaderValue::from_static("public, max-age=86400"),
        ),
        // Opened by itself it is a document of ours.
        (
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; sandbox"),
        ),
        NOSNIFF,
    ];
    (headers, include_str!("icon.svg")).into_response()
}

fn html(packs: &[PackInfo], host: &str) -> String {
    let mut page = String::with_capacity(16 << 10);
    page.push_str(concat!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>helmdeck</title>",
        "<meta name=\"viewport\" content=\"width=device-width\"><link rel=\"stylesheet\" href=\"/docs.css\"></head>",
        "<body><header><h1>helmdeck</h1><p>Run a pack by posting its input as JSON. The whole interface is in ",
        "<a href=\"/api/v1/openapi.json\">openapi.json</a> (OpenAPI 3.1). Errors are problem details (RFC 9457).</p>",
        "</header><nav><ul>",
    ));
    for pack in packs {
        add(
            &mut page,
            format_args!("<li><a href=\"#{0}\">{0}</a></li>", pack.name),
        );
    }
    page.push_str("</ul></nav><main>");
    for pack in packs {
        section(&mut page, pack, host);
    }
    if packs.is_empty() {
        page.push_str("<p>There are no packs that you may run.</p>");
    }
    page.push_str("</main></body></html>\n");
    page
}

fn section(page: &mut String, pack: &PackInfo, host: &str) {
    add(
        page,
        format_args!(
            "<section id=\"{0}\"><h2>{0} <small>{1}</small></h2>",
            pack.name, pack.version
        ),
    );
    add(page, format_args!("<p>{}</p>", escape(&pack.description)));
    page.push_str(if pack.read_only {
        "<p class=\"mark\">reads only"
    } else {
        "<p class=\"mark\">writes"
    });
    page.push_str(if pack.cached { ", cached</p>" } else { "</p>" });

    let input = pack
        .examples
        .first()
        .map_or_else(|| "{}".to_owned(), |example| example.input.to_string());
    // In single quotes a shell interprets only the quote.
    let input = input.replace('\'', "'\\''");
    let call = format!(
        "curl --json '{input}' http://{host}/api/v1/packs/{}",
        pack.name
    );
    add(
        page,
        format_args!("<pre tabindex=\"0\"><code>{}</code></pre>", escape(&call)),
    );
    schema(page, "Input", &pack.input);
    schema(page, "Output", &pack.output);
    page.push_str("</section>");
}

fn schema(page: &mut String, title: &str, schema: &Value) {
    let text = format!("{schema:#}");
    add(
        page,
        format_args!(
            "<details><summary>{title}</summary><pre tabindex=\"0\"><code>{}</code></pre></details>",
            escape(&text)
        ),
    );
}

fn add(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = page.write_fmt(text);
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(c),
            // A manifest's text must not reorder or hide what a person reads.
            c if is_hidden(c) => add(
                &mut escaped,
                format_args!("\u{27e8}U+{:04X}\u{27e9}", u32::from(c)),
            ),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_texts_are_escaped() {
        assert_eq!(
            escape("<b a=\"1\" c='2'>&"),
            "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;"
        );
        assert_eq!(escape("a\u{202e}\n"), "a\u{27e8}U+202E\u{27e9}\n");
    }
}

//! A small HTTP server for stand-ins: one request for each connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// The longest body that is read, in bytes.
const MAX_BODY: usize = 64 << 20;

/// A received request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) authorization: String,
    pub(crate) body: Vec<u8>,
}

/// Reads a request; `None` if the other side closed the connection.
pub(crate) fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let mut words = first.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let (mut authorization, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            match name.to_ascii_lowercase().as_str() {
                "authorization" => authorization = value.trim().to_owned(),
                "content-length" => length = value.trim().parse().ok()?,
                _ => {}
            }
        }
    }
    let mut body = vec![0; length.min(MAX_BODY)];
    reader.read_exact(&mut body).ok()?;
    Some(Request {
        method,
        target,
        authorization,
        body,
    })
}

/// Writes an answer.
pub(crate) fn answer(
    mut stream: &TcpStream,
    status: u16,
    headers: &[(String, String)],
    body: &str,
) {
    let mut head = format!(
        "HTTP/1.1 {status} Answer\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let _ = stream.write_all(format!("{head}\r\n{body}").as_bytes());
}

//! Lines of a program: stdout with a size limit per message, and stderr for the log.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use helmdeck_core::Secret;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader, ReadBuf};
use tokio::time::Instant;

use super::sieve::Sieve;

/// Limit of a logged line of stderr, in bytes. Longer lines are cut.
const MAX_STDERR_LINE: usize = 2 << 10;
/// How much of a line is searched for secrets, in bytes.
///
/// It is more than is logged, because half a secret would not be found.
const MAX_STDERR_READ: u64 = 16 << 10;
/// Limit of logged lines per [`STDERR_WINDOW`]. The others are counted.
const MAX_STDERR_LINES: u32 = 100;
const STDERR_WINDOW: Duration = Duration::from_secs(10);

/// Size of one read.
const READ_BYTES: usize = 8 << 10;

pin_project_lite::pin_project! {
    /// Reader of a stream of lines, each checked by [`Sieve`].
    ///
    /// It ends the stream at a line that is longer than the limit.
    pub(crate) struct BoundedLines<R> {
        #[pin]
        inner: R,
        sieve: Sieve,
        limit: usize,
        // The current line.
        line: Vec<u8>,
        // Lines that were read and not passed on yet, from `done` on.
        out: Vec<u8>,
        done: usize,
        too_long: Arc<OnceLock<usize>>,
    }
}

impl<R> BoundedLines<R> {
    /// A longer line sets `too_long` to the limit.
    pub(crate) fn new(
        inner: R,
        sieve: Sieve,
        limit: usize,
        too_long: Arc<OnceLock<usize>>,
    ) -> Self {
        Self {
            inner,
            sieve,
            limit,
            line: Vec::new(),
            out: Vec::new(),
            done: 0,
            too_long,
        }
    }
}

impl<R: AsyncRead> AsyncRead for BoundedLines<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let mut this = self.project();
        while *this.done == this.out.len() {
            this.out.clear();
            *this.done = 0;
            if this.too_long.get().is_some() {
                return Poll::Ready(Ok(()));
            }
            let mut space = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut space);
            ready!(this.inner.as_mut().poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                // The end; half a line may be the last.
                std::mem::swap(this.out, this.line);
                if this.out.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                break;
            }
            for part in read.filled().split_inclusive(|byte| *byte == b'\n') {
                if this.line.len() + part.len() > *this.limit {
                    // The stream ends here.
                    let _ = this.too_long.set(*this.limit);
                    break;
                }
                this.line.extend_from_slice(part);
                if part.ends_with(b"\n") {
                    this.sieve.pass(this.line, this.out);
                    this.line.clear();
                }
            }
        }
        let rest = &this.out[*this.done..];
        let length = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..length]);
        *this.done += length;
        Poll::Ready(Ok(()))
    }
}

/// Logs the stderr of a server, line by line and redacted, until it ends.
///
/// It keeps the last line in `last`.
pub(crate) async fn log_stderr(
    stderr: impl AsyncRead + Unpin,
    server: &str,
    secrets: &[Secret],
    last: &parking_lot::Mutex<String>,
) {
    let mut reader = BufReader::new(stderr);
    let (mut window, mut logged, mut left_out) = (Instant::now(), 0, 0_u64);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut reader)
            .take(MAX_STDERR_READ)
            .read_until(b'\n', &mut line)
            .await
        {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let cut = !line.ends_with(b"\n");
        if cut {
            skip_line(&mut reader).await;
        }
        if window.elapsed() >= STDERR_WINDOW {
            (window, logged) = (Instant::now(), 0);
        }
        let text = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
        if text.is_empty() {
            continue;
        }
        let text = helmdeck_redact::text(&text, secrets);
        let text: String = text[..text.floor_char_boundary(MAX_STDERR_LINE)]
            .chars()
            .map(|c| if c.is_control() && c != '\t' { ' ' } else { c })
            .collect();
        if logged < MAX_STDERR_LINES {
            logged += 1;
            tracing::info!(
                mcp.server = server,
                stderr = text,
                left_out,
                "an MCP server wrote to stderr"
            );
            left_out = 0;
        } else {
            left_out += 1;
        }
        *last.lock() = text;
    }
}

/// Skips to the end of a line, or of the stream.
async fn skip_line(reader: &mut (impl AsyncBufReadExt + Unpin)) {
    loop {
        let (used, ended) = match reader.fill_buf().await {
            Ok([]) | Err(_) => return,
            Ok(bytes) => match bytes.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (bytes.len(), false),
            },
        };
        reader.consume(used);
        if ended {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(limit: usize, text: &str) -> (String, bool) {
        let flag = Arc::new(OnceLock::new());
        let mut reader =
            BoundedLines::new(text.as_bytes(), Sieve::new("x"), limit, Arc::clone(&flag));
        let mut out = String::new();
        reader.read_to_string(&mut out).await.unwrap();
        (out, flag.get().is_some())
    }

    #[tokio::test]
    async fn a_line_over_the_limit_ends_the_stream() {
        assert_eq!(
            read(6, "12345\n12345\n").await,
            ("12345\n12345\n".to_owned(), false)
        );
        assert!(read(5, "1234\n12345\n").await.1);
        // The limit counts the line, however the bytes arrive.
        let flag = Arc::new(OnceLock::new());
        let chunks = in_chunks(&["123", "45", "678"]);
        let mut out = Vec::new();
        BoundedLines::new(chunks, Sieve::new("x"), 6, Arc::clone(&flag))
            .read_to_end(&mut out)
            .await
            .unwrap();
        assert_eq!(flag.get(), Some(&6));
        assert!(b"123456".starts_with(&out), "{out:?}");
    }

    fn in_chunks(chunks: &[&'static str]) -> impl AsyncRead + Unpin + use<> {
        let (mut writer, reader) = tokio::io::duplex(3);
        let chunks = chunks.to_vec();
        tokio::spawn(async move {
            for chunk in chunks {
                let _ = tokio::io::AsyncWriteExt::write_all(&mut writer, chunk.as_bytes()).await;
            }
        });
        reader
    }

    #[tokio::test]
    async fn stderr_is_cut_and_scrubbed() {
        let last = parking_lot::Mutex::default();
        let long = format!("{}\nthe canary-123456 end", "x".repeat(1 << 20));
        log_stderr(
            long.as_bytes(),
            "x",
            &[Secret::new("canary-123456".into())],
            &last,
        )
        .await;
        assert_eq!(last.into_inner(), "the [secret] end");
    }
}

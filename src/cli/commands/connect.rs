//! `helmdeck __connect`: the `ProxyCommand` of ssh, internal.
//!
//! Copies stdin and stdout to a host through the proxy of the helmdeck process that started git. It
//! reads no configuration.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use crate::env::ProcessEnvironment;

/// The name of the command. No help mentions it.
pub(crate) const NAME: &str = "__connect";

/// The variable with the value of the header `Proxy-Authorization`.
const AUTHORIZATION: &str = "HELMDECK_PROXY_AUTHORIZATION";

/// The longest head of the proxy's answer, in bytes.
const MAX_HEAD: usize = 8 << 10;

/// How long the proxy may take to answer; it has to reach the host first.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// Runs `<proxy address> <host> <port>` until one side ends.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>, env: &ProcessEnvironment) -> ExitCode {
    let words: Vec<String> = arguments
        .filter_map(|word| word.into_string().ok())
        .collect();
    let authorization = env.text(AUTHORIZATION).ok().flatten().unwrap_or_default();
    let [proxy, host, port] = words.as_slice() else {
        return ExitCode::from(2);
    };
    match open(proxy, host, port, authorization).and_then(|stream| copy(&stream)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // ssh shows it; git's caller knows more from the proxy itself.
            let _ = writeln!(io::stderr(), "helmdeck: {error}");
            ExitCode::FAILURE
        }
    }
}

fn open(proxy: &str, host: &str, port: &str, authorization: &str) -> io::Result<TcpStream> {
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
    let proxy: SocketAddr = proxy
        .parse()
        .map_err(|_| wrong("the address of the proxy makes no sense"))?;
    let port: u16 = port.parse().map_err(|_| wrong("the port makes no sense"))?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    if host.is_empty() || !host.bytes().all(plain) || authorization.contains(['\r', '\n']) {
        return Err(wrong("the host makes no sense"));
    }
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    let mut stream = TcpStream::connect(proxy)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    write!(
        stream,
        "CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\nProxy-Authorization: {authorization}\r\n\r\n"
    )?;
    let head = read_head(&mut stream)?;
    if !head.starts_with(b"HTTP/1.1 200 ") {
        return Err(io::Error::other(
            "the host cannot be reached, or may not be",
        ));
    }
    stream.set_read_timeout(None)?;
    Ok(stream)
}

/// Reads up to the empty line, and not a byte of what follows.
fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_HEAD || stream.read(&mut byte)? == 0 {
            return Err(io::Error::other("the proxy's answer makes no sense"));
        }
        head.push(byte[0]);
    }
    Ok(head)
}

fn copy(stream: &TcpStream) -> io::Result<()> {
    let (mut out, mut back) = (stream.try_clone()?, stream.try_clone()?);
    std::thread::spawn(move || {
        // A write that fails is noticed by the other side.
        let _ = io::copy(&mut io::stdin().lock(), &mut out);
        let _ = out.shutdown(Shutdown::Write);
    });
    let mut stdout = io::stdout().lock();
    let mut buffer = [0; 16 << 10];
    loop {
        match back.read(&mut buffer)? {
            0 => return Ok(()),
            count => {
                stdout.write_all(&buffer[..count])?;
                // ssh waits for single bytes.
                stdout.flush()?;
            }
        }
    }
}

//! Sends a command's environment on stdin, before the command's input.
//!
//! So it affects only the command, and no list of processes shows it. It is sent only when the
//! sandbox is ready.
//!
//! Format: length in bytes (four bytes, little endian), then `name=value` with a zero byte after
//! each.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;

/// Encodes an environment for [`read`].
pub(super) fn written(variables: &[(String, String)]) -> Vec<u8> {
    let text: Vec<u8> = variables
        .iter()
        .flat_map(|(name, value)| [name, "=", value, "\0"].map(str::as_bytes).concat())
        .collect();
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    [&length.to_le_bytes()[..], &text].concat()
}

/// Reads the environment from stdin, and no byte after it.
///
/// # Errors
/// Those of the system, or if it is incomplete.
pub(super) fn read() -> io::Result<Vec<(OsString, OsString)>> {
    // Without the standard library's buffer, which would swallow input of the command.
    read_from(&mut File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

fn read_from(from: &mut impl Read) -> io::Result<Vec<(OsString, OsString)>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u64::from(u32::from_le_bytes(length));
    let mut text = Vec::new();
    from.take(length).read_to_end(&mut text)?;
    if text.len() as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let pairs = text.split(|byte| *byte == 0).filter_map(|pair| {
        let end = pair.iter().position(|byte| *byte == b'=')?;
        let part = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((part(&pair[..end]), part(&pair[end + 1..])))
    });
    Ok(pairs.collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_environment_arrives_whole_and_leaves_what_follows() {
        let sent = [("A", ""), ("B", "1=2\n\u{e9}"), ("PATH", "/bin")];
        let variables = sent.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut bytes = written(&variables);
        bytes.extend(b"the rest");
        let mut from = &bytes[..];
        let came = read_from(&mut from).unwrap();
        assert_eq!(came, sent.map(|(name, value)| (name.into(), value.into())));
        assert_eq!(from, b"the rest");
        assert!(read_from(&mut &bytes[..8]).is_err());
        assert!(read_from(&mut &b"\0\0"[..]).is_err());
        assert_eq!(read_from(&mut &written(&[])[..]).unwrap(), []);
    }
}

//! Sources of an input: `--input '{json}'`, `@file` or `-`, and of one value: `key=@file` or
//! `key=@-`, all bounded.

use std::borrow::Cow;
use std::io::Read;
use std::path::Path;

use crate::env::ProcessEnvironment;
use crate::exit::{Failure, Result};

/// Limit of an input, in bytes. The engine's own limits are lower; this one bounds memory use.
const MAX_BYTES: u64 = 16 << 20;

/// Reads the value of `--input`.
///
/// # Errors
/// A usage failure if it is none of the three forms or over 16 MiB; exit 3 if the file does not
/// exist.
pub(crate) fn read(option: &str, env: &ProcessEnvironment) -> Result<Vec<u8>> {
    if option == "-" {
        return file("--input", "-", env);
    }
    if let Some(name) = option.strip_prefix('@') {
        return file("--input", name, env);
    }
    if option.trim_start().starts_with('{') {
        return Ok(option.as_bytes().to_vec());
    }
    Err(Failure::usage(
        "--input takes a JSON object, @file, or - for stdin",
    ))
}

/// Returns the value of a key: as it was typed, or the text of the file or of stdin that it names.
///
/// # Errors
/// A usage failure if it is over 16 MiB or not UTF-8; exit 3 if the file does not exist.
pub(super) fn value<'a>(
    key: &str,
    typed: &'a str,
    env: &ProcessEnvironment,
) -> Result<Cow<'a, str>> {
    match typed.strip_prefix('@') {
        None => Ok(typed.into()),
        Some("") => Ok(typed.into()),
        Some(text) if text.starts_with('@') => Ok(text.into()),
        Some(name) => {
            let bytes = file(&format!("{key}="), name, env).map_err(|failure| {
                failure.or_hint(format!(
                    "{key}=@@{name} is the text \"@{}\"",
                    helmdeck_core::text::one_line(name)
                ))
            })?;
            let text = String::from_utf8(bytes);
            text.map(Cow::Owned)
                .map_err(|_| Failure::usage(format!("{key}=@{name}: it is not UTF-8 text")))
        }
    }
}

fn file(option: &str, name: &str, env: &ProcessEnvironment) -> Result<Vec<u8>> {
    if name == "-" {
        return bounded(std::io::stdin().lock(), option, "stdin");
    }
    let path = env.absolute(Path::new(name))?;
    let opened = std::fs::File::open(&path)
        .map_err(|error| Failure::of_file(format_args!("{option} {name}"), &error))?;
    bounded(opened, option, name)
}

fn bounded(from: impl Read, option: &str, name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::usage(format!("{option} {name}: {error}")))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Failure::usage(format!("{option} {name} is over 16 MiB")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_are_told_apart() {
        let env = ProcessEnvironment::of(&[]);
        assert_eq!(read(r#" {"a":1}"#, &env).unwrap(), br#" {"a":1}"#);
        let absent = read("@/no/such/file", &env).unwrap_err();
        assert!(
            absent.exit() as u8 == 3 && absent.message().contains("/no/such/file"),
            "{}",
            absent.message()
        );
        assert!(
            read("input.json", &env)
                .unwrap_err()
                .message()
                .contains("@file")
        );
    }

    #[test]
    fn value_comes_from_the_file_it_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "two\nlines\n").unwrap();
        let read =
            |typed: &str| value("k", typed, &ProcessEnvironment::of(&[])).map(Cow::into_owned);
        assert_eq!(
            read(&format!("@{}", path.display())).unwrap(),
            "two\nlines\n"
        );
        for (typed, text) in [("a@b", "a@b"), ("@@me", "@me"), ("@", "@"), ("", "")] {
            assert_eq!(read(typed).unwrap(), text, "{typed}");
        }
        std::fs::write(&path, [0xff]).unwrap();
        assert!(
            read(&format!("@{}", path.display()))
                .unwrap_err()
                .message()
                .contains("UTF-8")
        );
        let absent = read("@no-such").unwrap_err();
        assert!(
            absent.exit() as u8 == 3 && absent.text().contains("hint: k=@@no-such is"),
            "{}",
            absent.text()
        );
    }

    #[test]
    fn an_endless_input_is_cut_off() {
        assert!(
            bounded(std::io::repeat(b' '), "--input", "x")
                .unwrap_err()
                .message()
                .contains("16 MiB")
        );
    }
}

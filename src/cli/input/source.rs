//! Sources of a whole input: `--input '{json}'`, `--input @file` or `--input -`, up to a size limit.

use std::io::Read;
use std::path::Path;

use crate::env::ProcessEnvironment;
use crate::exit::{Failure, Result};

/// Limit of an input, in bytes. The engine's own limits are lower; this one bounds memory use.
const MAX_BYTES: u64 = 16 << 20;

/// Reads the value of `--input`.
///
/// # Errors
/// A usage failure if it is none of the three forms or over 16 MiB; exit 3 if the file does not exist.
pub(crate) fn read(option: &str, env: &ProcessEnvironment) -> Result<Vec<u8>> {
    if option == "-" {
        return bounded(std::io::stdin().lock(), "stdin");
    }
    if let Some(file) = option.strip_prefix('@') {
        let path = env.absolute(Path::new(file))?;
        let opened =
            std::fs::File::open(&path).map_err(|error| Failure::of_file(format_args!("--input {file}"), &error))?;
        return bounded(opened, file);
    }
    if option.trim_start().starts_with('{') {
        return Ok(option.as_bytes().to_vec());
    }
    Err(Failure::usage("--input takes a JSON object, @file, or - for stdin"))
}

fn bounded(from: impl Read, name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::usage(format!("--input {name}: {error}")))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Failure::usage(format!("--input {name} is over 16 MiB")));
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
        assert!(absent.exit() as u8 == 3 && absent.message().contains("/no/such/file"), "{}", absent.message());
        assert!(read("input.json", &env).unwrap_err().message().contains("@file"));
    }

    #[test]
    fn an_endless_input_is_cut_off() {
        assert!(bounded(std::io::repeat(b' '), "x").unwrap_err().message().contains("16 MiB"));
    }
}

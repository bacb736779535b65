//! Reads the first two lines of a manifest, so that a pack can be registered before its manifest is
//! parsed.

use crate::ids::{PackName, Version};

/// Returns name and version of a manifest whose first lines are `name = "..."` and `version =
/// "..."`.
///
/// Only these lines are read: they cannot be part of a longer value, so the parser finds the same.
/// `None` if they are written in another way, or if the manifest may have a schedule, which counts
/// before the first call.
pub(super) fn read(text: &str) -> Option<(PackName, Version)> {
    let mut lines = text.lines();
    let name = PackName::new(quoted(lines.next()?, "name")?).ok()?;
    let version = Version::parse(quoted(lines.next()?, "version")?).ok()?;
    (!text.contains("schedule")).then_some((name, version))
}

/// Returns the value of a line `key = "value"`, as it is written.
fn quoted<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.strip_prefix(key)?
        .strip_prefix(" = \"")?
        .strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_is_read_only_if_it_is_the_first_two_lines() {
        let (name, version) = read("name = \"a.b\"\nversion = \"v2\"\nread_only = true\n").unwrap();
        assert_eq!((name.as_str(), version.number()), ("a.b", 2));
        for other in [
            "",
            "name = \"a.b\"\n",
            "# a comment\nname = \"a.b\"\nversion = \"v2\"\n",
            "description = \"\"\"\nname = \"a.b\"\nversion = \"v2\"\n\"\"\"\n",
            "version = \"v2\"\nname = \"a.b\"\n",
            "name = \"a.b\" # a comment with \"\nversion = \"v2\"\n",
            "name = \"\"\"\nversion = \"v2\"\n",
            "name = \"a.\\u0062\"\nversion = \"v2\"\n",
            "name = \"a.b\"\nversion = \"2\"\n",
            "name = \"a.b\"\nversion = \"v2\"\n[schedule]\nevery = \"1h\"\n",
        ] {
            assert!(read(other).is_none(), "{other:?}");
        }
    }
}

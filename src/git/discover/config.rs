//! The settings of a repository: a parser of git's format for the address of a remote.

/// Returns the first address of `origin` in the text of settings.
pub(super) fn origin(text: &str) -> Option<String> {
    let mut rest = text;
    let mut here = false;
    loop {
        rest = rest.trim_start();
        let first = rest.chars().next()?;
        if matches!(first, '#' | ';') {
            rest = rest.split_once('\n')?.1;
        } else if first == '[' {
            let (section, after) = section(&rest[1..])?;
            here = section == "remote.origin";
            rest = after;
        } else {
            let end = rest
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '-')
                .unwrap_or(rest.len());
            if end == 0 {
                return None;
            }
            let (key, after) = rest.split_at(end);
            let after = after.trim_start_matches([' ', '\t']);
            let Some(after) = after.strip_prefix('=') else {
                // A key without a value.
                rest = after.split_once('\n')?.1;
                continue;
            };
            let (value, after) = value(after);
            if here && key.eq_ignore_ascii_case("url") && !value.is_empty() {
                return Some(value);
            }
            rest = after;
        }
    }
}

/// Parses the name of a section after its bracket: `remote.origin` of `[remote "origin"]`.
fn section(text: &str) -> Option<(String, &str)> {
    let end = text.find([']', '"', '\n'])?;
    let name = text[..end].trim().to_ascii_lowercase();
    let rest = &text[end..];
    if let Some(after) = rest.strip_prefix(']') {
        return Some((name, after));
    }
    let mut sub = String::new();
    let mut characters = rest.strip_prefix('"')?.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => {
                return Some((
                    format!("{name}.{sub}"),
                    rest[at + 2..].trim_start().strip_prefix(']')?,
                ));
            }
            '\\' => sub.push(characters.next()?.1),
            '\n' => return None,
            other => sub.push(other),
        }
    }
    None
}

/// Parses a value up to the end of its line, with quotes, escapes, comments and continuation lines.
fn value(text: &str) -> (String, &str) {
    let mut value = String::new();
    // The length without unquoted blanks at the end.
    let mut kept = 0;
    let mut quoted = false;
    let mut comment = false;
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\n' => {
                value.truncate(kept);
                return (value, &text[at..]);
            }
            _ if comment => {}
            '#' | ';' if !quoted => comment = true,
            '"' => quoted = !quoted,
            '\\' => match characters.next().map(|(_, next)| next) {
                Some('\n') | None => {}
                // A continuation with CRLF.
                Some('\r') => {
                    characters.next();
                }
                Some(next) => {
                    value.push(match next {
                        'n' => '\n',
                        't' => '\t',
                        other => other,
                    });
                    kept = value.len();
                }
            },
            blank if blank.is_ascii_whitespace() && !quoted => {
                if kept > 0 {
                    value.push(blank);
                }
            }
            other => {
                value.push(other);
                kept = value.len();
            }
        }
    }
    value.truncate(kept);
    (value, "")
}

/// Returns the name of a project from the address of its repository: the last part, without `.git`.
#[must_use]
pub fn project_name(address: &str) -> &str {
    let address = address.trim().trim_end_matches('/');
    let last = address.rsplit(['/', ':']).next().unwrap_or(address);
    last.strip_suffix(".git").unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn project_name_is_the_last_part_of_an_address() {
        for (address, name) in [
            ("https://github.com/owner/Name.git", "Name"),
            ("https://github.com/owner/name", "name"),
            ("git@github.com:owner/name.git", "name"),
            ("git@host:name.git", "name"),
            ("ssh://git@host:22/owner/name.git", "name"),
            ("file:///srv/git/name.git/", "name"),
            ("/srv/git/name//", "name"),
            (" ../name \n", "name"),
            ("", ""),
            ("..", ".."),
        ] {
            assert_eq!(project_name(address), name, "{address:?}");
        }
    }

    #[test]
    fn settings_are_read_like_in_git() {
        for (text, expected) in [
            (
                "[remote \"origin\"]\n\turl = git@h:o/n.git\n\tfetch = x\n",
                Some("git@h:o/n.git"),
            ),
            ("[REMOTE \"origin\"] URL=a # b\n", Some("a")),
            ("[remote.origin]\nurl = \"a b;c\" ; d\n", Some("a b;c")),
            (
                "[remote \"origin\"]\n# url = no\n; url = no\nurl = a\\\n  b\n",
                Some("a  b"),
            ),
            (
                "[remote \"origin\"]\nurl = first\nurl = second\n",
                Some("first"),
            ),
            (
                "[remote \"other\"]\nurl = no\n[remote \"origin\"]\npushurl = no\n[branch \"origin\"]\nurl = no\n",
                None,
            ),
            ("[remote \"Origin\"]\nurl = no\n", None),
            (
                "[core]\n\tbare\n\tx = \"a\\\nurl = b\"\n[remote \"or\\igin\"]\r\n\turl = a\r\n",
                Some("a"),
            ),
            ("[core]\nx = [remote \"origin\"]\nurl = no\n", None),
            ("", None),
            ("[remote \"origin\"", None),
            ("= x\n[remote \"origin\"]\nurl = broken\n", None),
        ] {
            assert_eq!(origin(text).as_deref(), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_settings_can_be_read(text in "[\\[\\]\"\\\\=#;a-z \\n\\r.é]{0,60}") {
            let _ = origin(&text);
        }
    }
}

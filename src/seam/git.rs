//! The repository around a folder, and where it comes from. No program is run: git may be missing, and starting it takes longer than
//! all the rest.
//!
//! Only the repository's own settings are read: files that they include, and the rewriting of addresses in the settings of a user, are
//! not. Neither changes the last part of an address, which is all that is wanted, but in odd cases.

use std::path::{Path, PathBuf};

use crate::readers::{Kind, Look};

use crate::text::{Short, read};

/// The longest file that names a folder, in bytes.
const MOST_LINK: usize = 4_096;
/// The longest settings, in bytes.
const MOST_CONFIG: usize = 1 << 20;

/// What is wrong with what belongs to another user.
pub(crate) const OTHERS: &str = "it belongs to another user, and is passed over; name the folder it lies in to use it";

/// A repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repository {
    /// The root of the work tree, if there is one.
    pub(crate) root: Option<PathBuf>,
    /// What all work trees share.
    common: PathBuf,
}

impl Repository {
    /// Finds the repository a folder lies in. One of another user is none, as for git: anybody may put a folder into `/tmp`. What is in
    /// the folder itself is trusted if that was `named`.
    ///
    /// # Errors
    /// Why there is none, if something is in its place. Those above it are hidden, as they are for git.
    pub(crate) fn find(look: &dyn Look, start: &Path, named: bool) -> Result<Option<Self>, String> {
        let wrong = |path: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let kind = |path: &Path| match look.behind(path) {
            Ok(about) => Ok(about.map(|about| about.kind)),
            Err(error) => Err(wrong(path, &error)),
        };
        for folder in start.ancestors() {
            let link = folder.join(".git");
            let git_dir = match kind(&link)? {
                // A folder of this name that holds no repository is none.
                Some(Kind::Folder) if kind(&link.join("HEAD"))?.is_some() => Some(link.clone()),
                // What names no folder hides the repositories above it.
                Some(Kind::File) => match named_in(look, &link, "gitdir:", folder) {
                    Some(git_dir) => Some(git_dir),
                    None => return Ok(None),
                },
                _ if is_bare(&kind, folder)? => None,
                _ => continue,
            };
            let all = [Some(folder), git_dir.as_ref().map(|_| &*link), git_dir.as_deref()];
            for path in all.into_iter().flatten().filter(|_| !(named && folder == start)) {
                if look.about(path).map_err(|error| wrong(path, &error))?.is_some_and(|about| about.foreign) {
                    return Err(wrong(path, &OTHERS));
                }
            }
            let Some(git_dir) = git_dir else { return Ok(Some(Self { root: None, common: folder.to_owned() })) };
            let common = named_in(look, &git_dir.join("commondir"), "", &git_dir).unwrap_or(git_dir);
            return Ok(Some(Self { root: Some(folder.to_owned()), common }));
        }
        Ok(None)
    }

    /// Returns its settings.
    pub(crate) fn config(&self) -> PathBuf {
        self.common.join("config")
    }

    /// Returns the address that `origin` is fetched from. One that is no UTF-8 names nothing. Settings that cannot be read are an error.
    pub(crate) fn origin(&self, look: &dyn Look) -> Result<Option<String>, String> {
        Ok(match read(look, &self.config(), MOST_CONFIG) {
            Short::Text(text) => origin(&text),
            Short::Lossy(text) => origin(&text).filter(|address| !address.contains(char::REPLACEMENT_CHARACTER)),
            Short::Absent => None,
            Short::Wrong(why) => return Err(format!("{}: {why}", self.config().display())),
        })
    }
}

fn is_bare(kind: &impl Fn(&Path) -> Result<Option<Kind>, String>, folder: &Path) -> Result<bool, String> {
    let is = |name: &str, is: Kind| kind(&folder.join(name)).map(|kind| kind == Some(is));
    Ok(kind(&folder.join("HEAD"))?.is_some()
        && is("objects", Kind::Folder)?
        && is("refs", Kind::Folder)?
        && is("config", Kind::File)?)
}

/// Reads a file that names a folder.
fn named_in(look: &dyn Look, file: &Path, prefix: &str, from: &Path) -> Option<PathBuf> {
    let Short::Text(text) = read(look, file, MOST_LINK) else { return None };
    let path = text.trim_end_matches(['\n', '\r']).strip_prefix(prefix)?.trim_start();
    (!path.is_empty()).then(|| from.join(path))
}

/// Returns the first address of `origin` in the text of settings.
fn origin(text: &str) -> Option<String> {
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
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
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

/// Reads the name of a section behind its bracket: `remote.origin` of `[remote "origin"]`.
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
            '"' => return Some((format!("{name}.{sub}"), rest[at + 2..].trim_start().strip_prefix(']')?)),
            '\\' => sub.push(characters.next()?.1),
            '\n' => return None,
            other => sub.push(other),
        }
    }
    None
}

/// Reads a value up to the end of its line: quotes, escapes and comments are understood, and lines that go on.
fn value(text: &str) -> (String, &str) {
    let mut value = String::new();
    // How much of it stays when blanks at its end are dropped: those in quotes are kept.
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
                // A line that goes on, with the line end of another system.
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

/// Returns the name of a project in the address of its repository: the last part, without `.git`.
pub(crate) fn name_in(address: &str) -> &str {
    let address = address.trim().trim_end_matches('/');
    let last = address.rsplit(['/', ':']).next().unwrap_or(address);
    last.strip_suffix(".git").unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_the_last_part_of_every_kind_of_address() {
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
            assert_eq!(name_in(address), name, "{address:?}");
        }
    }

    #[test]
    fn settings_are_read_as_git_reads_them() {
        for (text, expected) in [
            ("[remote \"origin\"]\n\turl = git@h:o/n.git\n\tfetch = x\n", Some("git@h:o/n.git")),
            ("[REMOTE \"origin\"] URL=a # b\n", Some("a")),
            ("[remote.origin]\nurl = \"a b;c\" ; d\n", Some("a b;c")),
            ("[remote \"origin\"]\n# url = no\n; url = no\nurl = a\\\n  b\n", Some("a  b")),
            ("[remote \"origin\"]\nurl = first\nurl = second\n", Some("first")),
            ("[remote \"other\"]\nurl = no\n[remote \"origin\"]\npushurl = no\n[branch \"origin\"]\nurl = no\n", None),
            ("[remote \"Origin\"]\nurl = no\n", None),
            ("[core]\n\tbare\n\tx = \"a\\\nurl = b\"\n[remote \"or\\igin\"]\r\n\turl = a\r\n", Some("a")),
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
        fn no_settings_stop_the_reader(text in "[\\[\\]\"\\\\=#;a-z \\n\\r.é]{0,60}") {
            let _ = origin(&text);
        }
    }
}

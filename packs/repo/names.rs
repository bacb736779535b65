//! Checks names of branches, tags and folders; git gets no others.

use helmdeck_core::{Code, Error, Result};

/// The longest name of a ref, in bytes.
const MAX_BYTES: usize = 200;

/// Returns whether a text is a valid branch or tag name in git, and nothing else.
///
/// Source: git-check-ref-format(1).
pub(crate) fn is_ref(name: &str) -> bool {
    let odd = |char: char| char.is_control() || " ~^:?*[\\".contains(char);
    let part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    !name.is_empty()
        && name.len() <= MAX_BYTES
        && !name.starts_with('-')
        && !name.ends_with('.')
        && name != "@"
        && !name.contains("..")
        && !name.contains("@{")
        && !name.contains(odd)
        && name.split('/').all(part)
}

/// Folders of refs.
///
/// A branch name that begins with one is easily taken for a full name, by people and by git.
const FOLDERS: &[&str] = &["refs/", "heads/", "tags/", "remotes/"];

/// Checks the name of a branch to create. A leading `+` would mean a forced push in a refspec.
pub(crate) fn check_branch(name: &str) -> Result<()> {
    let folder = FOLDERS.iter().any(|folder| {
        name.get(..folder.len())
            .is_some_and(|start| same(start, folder))
    });
    if is_ref(name) && !same(name, "HEAD") && !name.starts_with('+') && !folder {
        return Ok(());
    }
    Err(Error::new(
        Code::InvalidInput,
        format!(
            "branch \"{}\" is not a name of a branch",
            name.escape_debug()
        ),
    ))
}

/// Returns whether two names are equal on a file system that ignores case.
///
/// A server may keep its refs on one.
pub(crate) fn same(one: &str, other: &str) -> bool {
    one == other || one.to_lowercase() == other.to_lowercase()
}

/// Checks the path of a folder below a session's own: plain names with `/` between.
pub(crate) fn check_folder(path: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let part =
        |part: &str| !part.is_empty() && !part.starts_with(['.', '-']) && part.bytes().all(plain);
    if path.len() <= MAX_BYTES && path.split('/').all(part) {
        return Ok(());
    }
    let message = "path must be a folder below the session's own, in letters, digits, \".\", \"_\" and \"-\", like \"repo\"";
    Err(Error::new(Code::InvalidInput, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_are_what_git_takes() {
        for name in [
            "main",
            "feature/x-1",
            "v1.2",
            "ä",
            "a@b",
            "helmdeck/swe-solve-0a1b",
        ] {
            assert!(check_branch(name).is_ok(), "{name}");
        }
        for name in [
            "",
            "-x",
            "--upload-pack=x",
            "a..b",
            "a b",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[",
            "a\\b",
            "/a",
            "a/",
            "a//b",
            ".a",
            "a/.b",
            "a.lock",
            "a.lock/b",
            "a.",
            "@",
            "a@{1}",
            "a\nb",
            "a\0",
            "HEAD",
            "head",
            "refs/heads/main",
            "heads/main",
            "Tags/v1",
            "remotes/origin/main",
            "+main",
        ] {
            assert!(check_branch(name).is_err(), "{name}");
        }
        assert!(!is_ref(&"a".repeat(MAX_BYTES + 1)));
    }

    #[test]
    fn folders_stay_below_the_session() {
        for path in ["repo", "a/b", "a-1_2.x"] {
            assert!(check_folder(path).is_ok(), "{path}");
        }
        for path in [
            "", ".", "..", "/a", "a/", "a//b", "../a", "a/..", ".git", "a/.git", "-a", "a b",
            "a\nb", "ä",
        ] {
            assert!(check_folder(path).is_err(), "{path}");
        }
    }
}

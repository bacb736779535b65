//! Paths below the root: which are allowed, and how to open one without ever leaving it.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Category, Error, Result};
use crate::layout::FORGE;

/// How many links one path may hold.
const MAX_LINKS: usize = 16;
/// The longest path, in bytes.
const MAX_PATH: usize = 1_024;
/// Names that are devices on Windows, with any extension.
const DEVICES: [&str; 4] = ["con", "prn", "aux", "nul"];

/// Checks that a path is allowed in a file of the project.
///
/// It must be relative, with `/` between its parts. It must not go up, contain a control character,
/// or have a name that another system takes for a device.
///
/// # Errors
/// `Refused` (`E_PATH`), with the reason.
pub fn check_path(path: &str) -> Result<()> {
    let no = |why: &str| Err(refuse(path, why));
    if path.is_empty() || path.len() > MAX_PATH {
        return no("it is empty or longer than 1024 bytes");
    }
    if path.chars().any(char::is_control) {
        return no("it holds a control character");
    }
    if path.starts_with('/') || path.contains(['\\', ':']) {
        return no("it must be relative, with / between its parts");
    }
    for part in path.split('/') {
        if matches!(part, "" | "." | "..") {
            return no("each of its parts must be a name");
        }
        if part.ends_with(['.', ' ']) || is_device(part) {
            return no("a part of it is no file name on every system");
        }
    }
    Ok(())
}

fn is_device(part: &str) -> bool {
    let stem = part
        .split('.')
        .next()
        .unwrap_or(part)
        .trim_end()
        .to_ascii_lowercase();
    let numbered = |prefix: &str| {
        stem.strip_prefix(prefix).is_some_and(|n| {
            n.chars().count() == 1 && n.chars().all(|c| "123456789¹²³".contains(c))
        })
    };
    DEVICES.contains(&stem.as_str()) || numbered("com") || numbered("lpt")
}

/// Says whether a name means the `.git` folder of a repository, on any file system.
///
/// Some file systems ignore the case, or invisible characters.
fn is_git(part: &str) -> bool {
    let shown: String = part
        .chars()
        .filter(
            |c| !matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'),
        )
        .collect();
    shown.eq_ignore_ascii_case(".git") || shown.eq_ignore_ascii_case("git~1")
}

fn refuse(path: &str, why: &str) -> Error {
    let shown: String = path.chars().take(200).collect();
    Error::new(
        Category::Refused,
        "E_PATH",
        format!("the path {shown:?} is refused: {why}"),
    )
}

/// Where a file is or would be: an open folder, and a name in it that is no link.
pub(super) struct FileLocation {
    pub(super) folder: OwnedFd,
    pub(super) name: String,
}

/// Resolves a path from the root to a file, one folder at a time.
///
/// `None` says that a folder on the way is absent; with `make` it is created instead.
///
/// Another person's repository can contain any link. So a path in `.forge` must contain no link,
/// neither on the way nor at its end. On the way to another file of the project, a link is followed
/// as long as it stays below the root. No path leads into a `.git`.
pub(super) fn resolve(root: &Path, path: &str, make: bool) -> Result<Option<FileLocation>> {
    check_path(path)?;
    let io = |error: Errno| Error::io("cannot open", &root.join(path), &error.into());
    let open = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // The last one is where we are; the first one is never left.
    let mut folders = vec![rustix::fs::open(root, open, Mode::empty()).map_err(io)?];
    let mut parts: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
    let mut links = 0;
    let of_memory = path.split('/').next() == Some(FORGE);
    while let (Some(part), Some(here)) = (parts.pop(), folders.last()) {
        if part == ".." {
            if folders.len() == 1 {
                return Err(refuse(path, "a link on the way leaves the root"));
            }
            folders.pop();
            continue;
        }
        if is_git(&part) {
            return Err(refuse(path, "it leads into the repository's own folder"));
        }
        match rustix::fs::readlinkat(here, part.as_str(), Vec::new()) {
            Ok(_) if of_memory => {
                let why = format!("{part:?} is a link, and nothing in {FORGE} may be one");
                return Err(refuse(path, &why)
                    .hint("somebody committed it, or put it there: remove it, and look what else came with it"));
            }
            Ok(target) => {
                links += 1;
                let target = OsStr::from_bytes(target.as_bytes())
                    .to_str()
                    .filter(|target| !target.starts_with('/'));
                let Some(target) = target.filter(|_| links <= MAX_LINKS) else {
                    return Err(refuse(path, "a link on the way leaves the root"));
                };
                parts.extend(
                    target
                        .split('/')
                        .rev()
                        .filter(|part| !matches!(*part, "" | "."))
                        .map(str::to_owned),
                );
                continue;
            }
            Err(Errno::INVAL) => {}
            Err(Errno::NOENT) if !parts.is_empty() => {
                if !make {
                    return Ok(None);
                }
                match rustix::fs::mkdirat(here, part.as_str(), Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => rustix::fs::fsync(here).map_err(io)?,
                    Err(error) => return Err(io(error)),
                }
            }
            Err(Errno::NOENT) => {}
            Err(error) => return Err(io(error)),
        }
        if parts.is_empty() {
            return Ok(folders
                .pop()
                .map(|folder| FileLocation { folder, name: part }));
        }
        let next = rustix::fs::openat(here, part.as_str(), open | OFlags::NOFOLLOW, Mode::empty());
        folders.push(next.map_err(|error| match error {
            Errno::LOOP => refuse(path, "a link appeared on the way"),
            error => io(error),
        })?);
    }
    Err(refuse(path, "it is a folder"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_the_root_or_name_devices_are_refused() {
        for good in [
            "a",
            ".forge/memory/a.json",
            "src/a b.rs",
            "a..b",
            "console.txt",
            "com10",
            "é/ü",
            ".local",
        ] {
            assert!(check_path(good).is_ok(), "{good}");
        }
        let long = "a/".repeat(600);
        let bad = [
            "",
            "/etc/passwd",
            "..",
            "../a",
            "a/../b",
            "a/..",
            "./a",
            "a//b",
            "a/",
            "a\0b",
            "a\nb",
            "C:\\a",
            "c:a",
            "a\\b",
            "nul",
            "NUL.txt",
            "a/Con",
            "aux.tar.gz",
            "COM1",
            "lpt9.log",
            "a.",
            "a ",
            "nul .txt",
            "com¹",
            &long,
        ];
        for path in bad {
            let error = check_path(path).unwrap_err();
            assert_eq!(
                (error.code, error.category),
                ("E_PATH", Category::Refused),
                "{path}"
            );
        }
    }

    #[test]
    fn no_link_of_the_memory_is_followed_and_nothing_leads_into_git() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for inside in [".git/hooks", ".forge/.local", ".forge/memory", "docs"] {
            std::fs::create_dir_all(root.join(inside)).unwrap();
        }
        let link =
            |target: &str, at: &str| std::os::unix::fs::symlink(target, root.join(at)).unwrap();
        link(
            "../../.git/hooks/post-commit",
            ".forge/.local/journal.jsonl",
        );
        link("../../.git/hooks", ".forge/memory/artifacts");
        link("../../docs", ".forge/memory/long-term");
        link("../docs/a", ".forge/beside");
        link(".git/hooks", "hooks");
        let inside = [
            ".forge/.local/journal.jsonl",
            ".forge/memory/artifacts/a",
            ".forge/memory/long-term/a",
            ".forge/beside",
        ];
        for path in inside.into_iter().chain([
            "hooks/post-commit",
            ".git/HEAD",
            ".GIT/HEAD",
            "docs/.gi\u{200c}t/config",
            "git~1/x",
        ]) {
            for make in [false, true] {
                assert_eq!(
                    resolve(root, path, make).err().map(|error| error.code),
                    Some("E_PATH"),
                    "{path}"
                );
            }
        }
        assert!(
            resolve(root, ".forge/git/commits.log", true)
                .unwrap()
                .is_some(),
            "the memory about git is a folder of ours"
        );
        // The memory itself may be no link either.
        let other = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(root.join("docs"), other.path().join(".forge")).unwrap();
        assert_eq!(
            resolve(other.path(), ".forge/config.toml", true)
                .err()
                .map(|error| error.code),
            Some("E_PATH")
        );
    }

    #[test]
    fn links_are_followed_only_below_the_root() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        std::fs::create_dir_all(root.join("in/deep")).unwrap();
        std::fs::write(outer.path().join("secret"), "s").unwrap();
        let link =
            |target: &str, at: &str| std::os::unix::fs::symlink(target, root.join(at)).unwrap();
        link("in/deep", "inside");
        link("../../in", "in/deep/up");
        link("..", "outside");
        link("../secret", "file");
        link(outer.path().to_str().unwrap(), "absolute");
        link("loop", "loop");
        link("inside/../../..", "sneaky");

        for fine in ["in/deep/a", "inside/a", "inside/up/a", "new"] {
            assert_eq!(
                resolve(&root, fine, false).unwrap().unwrap().name,
                fine.rsplit('/').next().unwrap()
            );
        }
        for out in [
            "outside/secret",
            "file",
            "absolute/secret",
            "loop",
            "loop/a",
            "sneaky/secret",
        ] {
            assert_eq!(
                resolve(&root, out, true).err().map(|error| error.code),
                Some("E_PATH"),
                "{out}"
            );
        }
        assert!(resolve(&root, "not/there", false).unwrap().is_none());
        assert!(resolve(&root, "now/there/a", true).unwrap().is_some());
        assert!(root.join("now/there").is_dir());
    }
}

//! The state of the work tree and the index.

use serde::Serialize;

use crate::error::Result;
use crate::oid::Oid;
use crate::repository::Git;

/// The state of the work tree and the index.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Status {
    /// The commit that is checked out; `None` before the first.
    pub head: Option<Oid>,
    /// The branch that is checked out; `None` if `HEAD` is detached.
    pub branch: Option<String>,
    /// Its upstream (`origin/main`).
    pub upstream: Option<String>,
    /// The number of commits that only it has; `None` without a known upstream.
    pub ahead: Option<u64>,
    /// The number of commits that only its upstream has.
    pub behind: Option<u64>,
    /// The paths that differ, in the order of git: tracked paths first.
    ///
    /// A rename is a deletion and an addition.
    pub entries: Vec<StatusEntry>,
}

/// A path that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StatusEntry {
    /// The path below the root, with `/`. Bytes that are not UTF-8 are replaced.
    pub path: String,
    /// How it differs.
    #[serde(flatten)]
    pub state: State,
}

/// How a path differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// A tracked path, with the letters of git.
    ///
    /// `.` unchanged, `M` modified, `A` added, `D` deleted, `T` type changed.
    Tracked {
        /// Index against `HEAD`.
        index: char,
        /// Work tree against index.
        work: char,
        /// Whether it is a submodule.
        submodule: bool,
    },
    /// A path with an unresolved conflict.
    Unmerged,
    /// An untracked path that is not ignored.
    Untracked,
}

impl Status {
    /// Returns the tracked paths whose work tree differs from the index.
    pub fn changed(&self) -> impl Iterator<Item = &str> {
        self.paths(|state| matches!(state, State::Tracked { work, .. } if work != '.'))
    }

    /// Returns the paths whose index differs from `HEAD`.
    pub fn staged(&self) -> impl Iterator<Item = &str> {
        self.paths(|state| matches!(state, State::Tracked { index, .. } if index != '.'))
    }

    /// Returns the untracked paths.
    pub fn untracked(&self) -> impl Iterator<Item = &str> {
        self.paths(|state| state == State::Untracked)
    }

    /// Returns the paths with a conflict.
    pub fn unmerged(&self) -> impl Iterator<Item = &str> {
        self.paths(|state| state == State::Unmerged)
    }

    /// Says whether nothing differs.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the paths that differ outside a folder (`.forge`).
    pub fn outside<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = &'a str> {
        let below = move |path: &str| {
            path.strip_prefix(folder)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.entries
            .iter()
            .map(|entry| entry.path.as_str())
            .filter(move |path| !below(path))
    }

    fn paths(&self, wanted: impl Fn(State) -> bool) -> impl Iterator<Item = &str> {
        self.entries
            .iter()
            .filter(move |entry| wanted(entry.state))
            .map(|entry| entry.path.as_str())
    }
}

impl Git {
    /// Returns the status of the scope. Nothing is written; the index is not refreshed either.
    ///
    /// Ignored files are left out. Each untracked file is listed. A nested repository is listed as
    /// a folder with a `/` at the end.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn status(&self) -> Result<Status> {
        let fixed = [
            "status",
            "--porcelain=v2",
            "-z",
            "--branch",
            "--untracked-files=all",
            "--no-renames",
            "--ignore-submodules=none",
            "--",
        ];
        let scope = self.scope_pathspecs().swap_remove(0);
        Ok(parse(&self.read(&[&fixed[..], &[&scope]].concat())?.stdout))
    }
}

/// Parses the output of `git status --porcelain=v2 -z --branch`. Unknown lines are skipped.
fn parse(bytes: &[u8]) -> Status {
    let mut status = Status::default();
    let mut records = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    while let Some(record) = records.next() {
        let (kind, rest) = record.split_once(' ').unwrap_or((&record, ""));
        // The path is the last field and may contain spaces.
        let path = |fields: usize| {
            rest.splitn(fields, ' ')
                .nth(fields - 1)
                .unwrap_or_default()
                .to_owned()
        };
        let tracked = || {
            let mut letters = rest.chars();
            let (index, work) = (letters.next().unwrap_or('.'), letters.next().unwrap_or('.'));
            State::Tracked {
                index,
                work,
                submodule: rest.get(3..4) == Some("S"),
            }
        };
        let entry = match kind {
            "#" => {
                header(&mut status, rest);
                continue;
            }
            "1" => StatusEntry {
                path: path(8),
                state: tracked(),
            },
            "2" => {
                // The old path of a rename is the next record.
                let entry = StatusEntry {
                    path: path(9),
                    state: tracked(),
                };
                records.next();
                entry
            }
            "u" => StatusEntry {
                path: path(10),
                state: State::Unmerged,
            },
            "?" => StatusEntry {
                path: rest.to_owned(),
                state: State::Untracked,
            },
            _ => continue,
        };
        status.entries.push(entry);
    }
    status
}

fn header(status: &mut Status, line: &str) {
    let Some((name, value)) = line.split_once(' ') else {
        return;
    };
    match name {
        "branch.oid" => status.head = Oid::parse(value),
        "branch.head" => status.branch = Some(value.to_owned()).filter(|name| name != "(detached)"),
        "branch.upstream" => status.upstream = Some(value.to_owned()),
        "branch.ab" => {
            let mut counts = value
                .split(' ')
                .map(|count| count.trim_start_matches(['+', '-']).parse().ok());
            (status.ahead, status.behind) = (counts.next().flatten(), counts.next().flatten());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Repository;

    #[test]
    fn every_kind_of_line_is_parsed() {
        let oid = "a".repeat(40);
        let text = format!(
            "# branch.oid {oid}\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +2 -3\0# stash 1\0\
             1 M. N... 100644 100644 100644 {oid} {oid} a b.txt\0\
             2 R. N... 100644 100644 100644 {oid} {oid} R100 new name\0old name\0\
             1 .M S..U 160000 160000 160000 {oid} {oid} module\0\
             u UU N... 100644 100644 100644 100644 {oid} {oid} {oid} both sides\0? un tracked\0! ignored\0"
        );
        let status = parse(text.as_bytes());
        assert_eq!(status.head, Oid::parse(&oid));
        assert_eq!(
            (status.branch.as_deref(), status.upstream.as_deref()),
            (Some("main"), Some("origin/main"))
        );
        assert_eq!((status.ahead, status.behind), (Some(2), Some(3)));
        assert_eq!(status.staged().collect::<Vec<_>>(), ["a b.txt", "new name"]);
        assert_eq!(status.changed().collect::<Vec<_>>(), ["module"]);
        assert_eq!(status.unmerged().collect::<Vec<_>>(), ["both sides"]);
        assert_eq!(status.untracked().collect::<Vec<_>>(), ["un tracked"]);
        assert_eq!(
            status.entries[2].state,
            State::Tracked {
                index: '.',
                work: 'M',
                submodule: true
            }
        );
    }

    #[test]
    fn status_lists_changed_paths() {
        let repository = Repository::new();
        let git = repository.git();
        assert_eq!(
            git.status().unwrap(),
            Status {
                branch: Some("main".to_owned()),
                ..Status::default()
            }
        );
        repository.write("a", "1\n");
        repository.write(".forge/x", "1\n");
        let head = repository.commit("first");
        assert!(git.status().unwrap().is_clean());
        repository.write("a", "2\n");
        repository.write("sub/new file\n", "2\n");
        repository.write(".forge/x", "2\n");
        repository.write("staged", "2\n");
        repository.run(&["add", "staged"]);
        let status = git.status().unwrap();
        assert_eq!(status.head, Some(head));
        assert_eq!(status.changed().collect::<Vec<_>>(), [".forge/x", "a"]);
        assert_eq!(status.staged().collect::<Vec<_>>(), ["staged"]);
        assert_eq!(status.untracked().collect::<Vec<_>>(), ["sub/new file\n"]);
        assert_eq!(
            status.outside(".forge").collect::<Vec<_>>(),
            ["a", "staged", "sub/new file\n"]
        );
    }

    #[test]
    fn user_settings_hide_nothing() {
        let repository = Repository::new();
        repository.write("a", "1\n");
        repository.commit("first");
        repository.run(&["config", "status.showUntrackedFiles", "no"]);
        repository.run(&["config", "color.ui", "always"]);
        repository.write("b", "1\n");
        assert_eq!(
            repository
                .git()
                .status()
                .unwrap()
                .untracked()
                .collect::<Vec<_>>(),
            ["b"]
        );
    }
}

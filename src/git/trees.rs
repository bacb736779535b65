//! Trees without the excluded folder, and commits made without the work tree.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Duration;

use helmdeck_core::hex;

use crate::error::{Error, Kind, Result};
use crate::objects::digest;
use crate::oid::Oid;
use crate::repository::Git;
use crate::run::Run;

/// Options of the patches that patch ids are made of.
const PATCH: &[&str] = &[
    "--no-ext-diff",
    "--no-textconv",
    "--full-index",
    "--no-renames",
];

/// Timeout of a signature, for which a person may be asked.
const SIGNING: Duration = Duration::from_secs(900);

/// An entry of a tree, as git stores it.
struct TreeEntry<'a> {
    name: &'a [u8],
    /// Mode, name and object.
    bytes: &'a [u8],
}

impl Git {
    /// Returns the id of the scope's tree in a commit or a tree, without the excluded folder.
    ///
    /// Nothing is written, so the object may not exist.
    ///
    /// # Errors
    /// `E_GIT` if there is no such commit or tree.
    pub fn code_tree(&self, commit: &Oid) -> Result<String> {
        let found = self
            .code_trees(std::slice::from_ref(commit))?
            .remove(commit);
        let missing = || {
            Error::new(
                Kind::Failed,
                "E_GIT",
                format!("git has no commit and no tree {commit}"),
            )
        };
        found.ok_or_else(missing)
    }

    /// Returns the code trees of several commits or trees, in one run of git. Unknown ones are left
    /// out.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn code_trees(&self, commits: &[Oid]) -> Result<HashMap<Oid, String>> {
        let known = || {
            self.code_trees
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let scope = self.scope();
        let excluded = self
            .excluded()
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .as_bytes();
        let below = |commit: &Oid| {
            if scope.is_empty() {
                String::new()
            } else {
                format!("{commit}:{scope}\n")
            }
        };
        let unknown: Vec<&Oid> = {
            let known = known();
            commits
                .iter()
                .filter(|commit| !known.contains_key(*commit))
                .collect()
        };
        let names: String = unknown
            .iter()
            .map(|commit| format!("{commit}^{{tree}}\n{}", below(commit)))
            .collect();
        let objects = self.objects(&names)?;
        let trees = unknown
            .into_iter()
            .zip(objects.chunks(if scope.is_empty() { 1 } else { 2 }));
        let trees = trees.filter_map(|(commit, objects)| {
            let hash_bytes = commit.as_str().len() / 2;
            objects.first()?.as_ref()?;
            // The scope need not be in the commit.
            let tree = objects
                .last()?
                .as_ref()
                .filter(|object| object.kind == "tree");
            let kept = entries(tree.map_or(&[], |tree| &tree.bytes), hash_bytes)
                .filter(|entry| entry.name != excluded);
            let kept: Vec<u8> = kept.flat_map(|entry| entry.bytes).copied().collect();
            Some((commit.clone(), id(&kept, hash_bytes)))
        });
        let mut known = known();
        known.extend(trees);
        Ok(commits
            .iter()
            .filter_map(|commit| Some((commit.clone(), known.get(commit)?.clone())))
            .collect())
    }

    /// Returns the tree of a commit.
    ///
    /// # Errors
    /// `E_GIT` if the commit does not exist.
    pub fn tree(&self, commit: &Oid) -> Result<Oid> {
        let name = format!("{commit}^{{tree}}");
        self.oid_of(
            &[
                "rev-parse",
                "--verify",
                "--quiet",
                "--end-of-options",
                &name,
            ],
            &Run::default(),
        )
    }

    /// Returns the id of the empty tree, which every repository knows.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn empty_tree(&self) -> Result<String> {
        Ok(id(&[], self.hash_bytes()?))
    }

    /// Returns the stable patch id of what a commit changes in the scope, which a cherry-pick or
    /// rebase keeps.
    ///
    /// With `since` it is that of all changes since an earlier commit, which a squash keeps. `None`
    /// for a merge, if nothing changes, and for more than 64 MiB of changes.
    ///
    /// # Errors
    /// `E_GIT` if the commit does not exist.
    pub fn patch_id(&self, since: Option<&Oid>, commit: &Oid) -> Result<Option<String>> {
        let range: Vec<&str> = since.into_iter().chain([commit]).map(Oid::as_str).collect();
        let ids = self.patch_ids_of(
            &[&["diff-tree", "-p", "-r", "--root"], PATCH, &range, &["--"]].concat(),
        )?;
        Ok(ids.into_iter().next().map(|(id, _)| id))
    }

    /// Returns the stable patch ids of the newest commits of `HEAD` that change the scope, each
    /// with its commit.
    ///
    /// `since` is a Unix time in seconds. Merges are left out. There are none if the changes are
    /// more than 64 MiB.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn patch_ids(&self, since: i64, limit: usize) -> Result<Vec<(String, Oid)>> {
        let (since, limit) = (crate::log::since(since), format!("--max-count={limit}"));
        let args = [
            &[
                "log",
                "-p",
                "--no-merges",
                "--format=commit %H",
                &since,
                &limit,
            ],
            PATCH,
            &["HEAD", "--"],
        ]
        .concat();
        let ids = self.patch_ids_of(&args)?;
        Ok(ids
            .into_iter()
            .filter_map(|(id, commit)| Some((id, Oid::parse(&commit)?)))
            .collect())
    }

    /// Returns the patch ids of what git prints, each with the commit that it names.
    fn patch_ids_of(&self, args: &[&str]) -> Result<Vec<(String, String)>> {
        let diff = match self.read_in_scope(args) {
            Ok(diff) => diff.stdout,
            Err(error) if error.code == "E_TOO_LARGE" => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let output = self
            .succeed(
                &["patch-id", "--stable"],
                &Run {
                    stdin: diff,
                    ..Run::default()
                },
            )?
            .text();
        Ok(output
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(id, of)| (id.to_owned(), of.to_owned()))
            .collect())
    }

    /// Copies the index of this work tree into a folder.
    ///
    /// The returned file does not exist if nothing was ever staged.
    ///
    /// # Errors
    /// `E_IO` if it cannot be read or written.
    pub fn copy_index(&self, folder: &Path, name: &str) -> Result<PathBuf> {
        let (from, to) = (self.git_dir().join("index"), folder.join(name));
        let copied = std::fs::metadata(&from)
            .and_then(|data| data.modified())
            .and_then(|modified| {
                std::fs::copy(&from, &to)?;
                // git reads files that are as new as the index. With a newer copy, it would miss a
                // file that changed in the same tick.
                std::fs::File::options()
                    .write(true)
                    .open(&to)?
                    .set_modified(modified)
            });
        match copied {
            Ok(()) => Ok(to),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(to),
            Err(error) => Err(Error::io("cannot copy", &from, &error)),
        }
    }

    /// Returns this repository with writes of objects redirected into a temporary folder.
    ///
    /// # Errors
    /// `E_IO` if the folder cannot be written.
    pub fn aside(&self, folder: &Path) -> Result<Self> {
        let objects = folder.join("objects");
        let info = objects.join("info");
        let mut own = self.common_dir().join("objects").into_os_string();
        own.push("\n");
        std::fs::create_dir_all(&info)
            .and_then(|()| std::fs::write(info.join("alternates"), own.as_encoded_bytes()))
            .map_err(|error| Error::io("cannot write in", &objects, &error))?;
        Ok(self.clone().variable("GIT_OBJECT_DIRECTORY", objects))
    }

    /// Writes the tree of an index file other than the repository's own.
    ///
    /// # Errors
    /// `E_GIT` if the index has conflicts or missing objects.
    pub fn write_tree(&self, index: &Path) -> Result<Oid> {
        self.oid_of(
            &["write-tree"],
            &Run::writing().variable("GIT_INDEX_FILE", index),
        )
    }

    /// Creates a commit from a tree, by the agent and unsigned. No branch is changed.
    ///
    /// # Errors
    /// `E_GIT` if a parent does not exist or nothing can be written.
    pub fn commit_tree(&self, tree: &Oid, parents: &[&Oid], message: &str) -> Result<Oid> {
        let mut args = vec![
            "-c",
            "i18n.commitEncoding=UTF-8",
            "-c",
            "core.fsync=all",
            "commit-tree",
            tree.as_str(),
        ];
        for parent in parents {
            args.extend(["-p", parent.as_str()]);
        }
        let mut run = Run::writing().stdin(message);
        run.environment.extend(
            ["AUTHOR", "COMMITTER"]
                .into_iter()
                .flat_map(|role| self.agent_as(role)),
        );
        self.oid_of(&args, &run)
    }
}

impl Git {
    /// Creates a commit like another one, with another tree. Parents, author and message stay. No
    /// branch is changed.
    ///
    /// It is signed as git is configured. `None` for a merge, and for a commit with a header that
    /// would be lost, such as a signature where git does not sign.
    ///
    /// # Errors
    /// `E_GIT` if it cannot be signed or written.
    pub fn commit_with_tree(&self, commit: &Oid, tree: &Oid) -> Result<Option<Oid>> {
        let Some(Some(object)) = self.objects(&format!("{commit}\n"))?.pop() else {
            return Ok(None);
        };
        let Some(end) = object.bytes.windows(2).position(|two| two == b"\n\n") else {
            return Ok(None);
        };
        let Ok(header) = std::str::from_utf8(&object.bytes[..end]) else {
            return Ok(None);
        };
        let signs = self
            .read(&["config", "--type=bool", "--default=false", "commit.gpgSign"])?
            .text()
            == "true";
        let settings = ["-c", "i18n.commitEncoding=UTF-8", "-c", "core.fsync=all"];
        let mut args = [&settings[..], &["commit-tree", tree.as_str()]].concat();
        let mut run = Run::writing()
            .stdin(&object.bytes[end + 2..])
            .timeout(SIGNING);
        run.environment = self.identity()?;
        let mut parents = 0;
        for line in header.lines() {
            match line.split_once(' ') {
                Some(("tree" | "committer", _)) => {}
                Some(("parent", parent)) => {
                    parents += 1;
                    args.extend(["-p", parent]);
                }
                Some(("author", author)) => {
                    let parts = author
                        .split_once(" <")
                        .and_then(|(name, rest)| Some((name, rest.rsplit_once("> ")?)));
                    let Some((name, (mail, date))) = parts else {
                        return Ok(None);
                    };
                    run = run
                        .variable("GIT_AUTHOR_NAME", name)
                        .variable("GIT_AUTHOR_EMAIL", mail);
                    run = run.variable("GIT_AUTHOR_DATE", format!("@{date}"));
                }
                // The lines of a signature begin with a space.
                Some(("gpgsig" | "gpgsig-sha256" | "", _)) if signs => {}
                _ => return Ok(None),
            }
        }
        if signs {
            args.push("-S");
        }
        if parents > 1 {
            Ok(None)
        } else {
            self.oid_of(&args, &run).map(Some)
        }
    }
}

/// Returns the id of a tree.
fn id(tree: &[u8], hash_bytes: usize) -> String {
    hex(&digest("tree", tree, hash_bytes))
}

fn entries(mut tree: &[u8], hash_bytes: usize) -> impl Iterator<Item = TreeEntry<'_>> {
    std::iter::from_fn(move || {
        let space = tree.iter().position(|byte| *byte == b' ')?;
        let end = tree.iter().position(|byte| *byte == 0)?;
        let (bytes, rest) = tree.split_at_checked(end + 1 + hash_bytes)?;
        tree = rest;
        Some(TreeEntry {
            name: bytes.get(space + 1..end)?,
            bytes,
        })
    })
}

#[cfg(test)]
mod tests {
    use crate::fixture::Repository;

    #[test]
    fn excluded_folder_is_not_in_the_code_tree() {
        let repository = Repository::new();
        let git = repository.git().excluding(".forge");
        repository.write("src/main.rs", "fn main() {}\n");
        repository.write("z", "z\n");
        let without = repository.commit("code");
        assert_eq!(
            git.code_tree(&without).unwrap(),
            git.tree(&without).unwrap().as_str()
        );
        repository.write(".forge/memory/x.json", "{}\n");
        let with = repository.commit("memory");
        assert_ne!(git.tree(&with).unwrap(), git.tree(&without).unwrap());
        assert_eq!(
            git.code_tree(&with).unwrap(),
            git.code_tree(&without).unwrap()
        );
        repository.write("src/main.rs", "fn main() { }\n");
        let other = repository.commit("code");
        assert_ne!(
            git.code_tree(&other).unwrap(),
            git.code_tree(&without).unwrap()
        );
        let missing = without.none_like();
        let trees = git
            .code_trees(&[
                without.clone(),
                missing.clone(),
                with.clone(),
                other.clone(),
            ])
            .unwrap();
        assert_eq!(trees.len(), 3);
        for commit in [without, with, other] {
            assert_eq!(trees[&commit], git.code_tree(&commit).unwrap());
        }
        assert_eq!(git.code_tree(&missing).unwrap_err().code, "E_GIT");
    }

    #[test]
    fn scope_is_the_folder_around_the_excluded_one() {
        let repository = Repository::new();
        let git = repository.git().excluding("sub/dir/.forge");
        repository.write("sub/a", "a\n");
        let before = repository.commit("nothing in the scope");
        assert_eq!(git.code_tree(&before).unwrap(), git.empty_tree().unwrap());
        repository.write("sub/dir/b", "b\n");
        let code = repository.commit("code");
        repository.write("sub/dir/.forge/x", "memory\n");
        let memory = repository.commit("memory");
        repository.write("sub/dirty/c", "c\n");
        repository.write("z", "z\n");
        let outside = repository.commit("outside");
        let trees = git
            .code_trees(&[before, code.clone(), memory.clone(), outside.clone()])
            .unwrap();
        assert_eq!(
            trees[&code],
            git.read(&["rev-parse", &format!("{code}:sub/dir")])
                .unwrap()
                .text()
        );
        assert_eq!(
            (&trees[&memory], &trees[&outside]),
            (&trees[&code], &trees[&code])
        );
        assert_eq!(git.changes(&code).unwrap(), []);
        assert_eq!(
            (
                git.patch_id(None, &memory).unwrap(),
                git.patch_id(None, &outside).unwrap()
            ),
            (None, None)
        );
        assert!(git.patch_id(None, &code).unwrap().is_some());
        repository.write("z", "dirty\n");
        repository.write("y", "untracked\n");
        assert!(git.status().unwrap().is_clean());
        assert_eq!(git.changes(&code).unwrap(), []);
        repository.write("sub/dir/b", "c\n");
        assert_eq!(
            git.status().unwrap().changed().collect::<Vec<_>>(),
            ["sub/dir/b"]
        );
        assert_eq!(git.changes(&code).unwrap()[0].path, "sub/dir/b");
        let other = repository.commit("code");
        assert_ne!(git.code_tree(&other).unwrap(), trees[&code]);
    }

    #[test]
    fn commit_with_another_tree_is_otherwise_the_same() {
        use std::os::unix::fs::PermissionsExt as _;

        let repository = Repository::new();
        let git = repository.git();
        repository.write("a", "1\n");
        let first = repository.commit("first");
        repository.write("a", "2\n");
        let author = [
            "--author=Zoë <zoe@example.com>",
            "--date=2001-02-03T04:05:06+0700",
        ];
        repository.run(
            &[
                &[
                    "commit",
                    "--quiet",
                    "-a",
                    "-m",
                    "Second\n\n# Kept: as it is",
                ],
                &author[..],
            ]
            .concat(),
        );
        let second = git.head().unwrap().unwrap();
        let about = |commit: &crate::Oid| {
            repository.run(&["log", "-1", "--format=%P %an %ae %ad%n%B", commit.as_str()])
        };
        let tree = git.tree(&first).unwrap();
        let made = git.commit_with_tree(&second, &tree).unwrap().unwrap();
        assert_eq!(
            (about(&made), git.tree(&made).unwrap()),
            (about(&second), tree.clone())
        );
        assert_eq!(git.head().unwrap(), Some(second.clone()));
        let root = git
            .commit_with_tree(&first, &git.tree(&second).unwrap())
            .unwrap()
            .unwrap();
        assert_eq!(about(&root), about(&first));

        // A program that signs.
        let signer = repository.path().join(".git/signer");
        let script = "#!/bin/sh\ncat > /dev/null\necho '[GNUPG:] SIG_CREATED ' >&2\necho -----BEGIN PGP SIGNATURE-----\necho of-us\n\
                      echo -----END PGP SIGNATURE-----\n";
        std::fs::write(&signer, script).unwrap();
        std::fs::set_permissions(&signer, std::fs::Permissions::from_mode(0o755)).unwrap();
        repository.run(&["config", "gpg.program", signer.to_str().unwrap()]);
        repository.run(&["config", "commit.gpgSign", "true"]);
        let signed = git.commit_with_tree(&second, &tree).unwrap().unwrap();
        assert!(
            repository
                .run(&["cat-file", "commit", signed.as_str()])
                .contains("of-us")
        );
        assert_eq!(about(&signed), about(&second));
        assert!(git.commit_with_tree(&signed, &tree).unwrap().is_some());
        repository.run(&["config", "commit.gpgSign", "false"]);
        assert_eq!(
            git.commit_with_tree(&signed, &tree).unwrap(),
            None,
            "its signature would be lost"
        );
    }

    #[test]
    fn sha256_code_trees_match_git() {
        let folder = tempfile::tempdir().unwrap();
        let run = |args: &[&str]| crate::fixture::run_at(folder.path(), args);
        run(&[
            "init",
            "--quiet",
            "--object-format=sha256",
            "--initial-branch=main",
        ]);
        std::fs::write(folder.path().join("a"), "a").unwrap();
        run(&["add", "a"]);
        run(&["commit", "--quiet", "-m", "first"]);
        let git = Repository::git_at(folder.path()).excluding(".forge");
        let before = git.head().unwrap().unwrap();
        std::fs::create_dir(folder.path().join(".forge")).unwrap();
        std::fs::write(folder.path().join(".forge/b"), "b").unwrap();
        run(&["add", ".forge"]);
        run(&["commit", "--quiet", "-m", "second"]);
        let after = git.head().unwrap().unwrap();
        assert_eq!(
            git.code_tree(&after).unwrap(),
            git.tree(&before).unwrap().as_str()
        );
        assert_eq!(after.as_str().len(), 64);
    }

    #[test]
    fn cherry_pick_keeps_the_patch_id() {
        let repository = Repository::new();
        let git = repository.git();
        repository.write("a", "1\n");
        let first = repository.commit("first");
        repository.run(&["switch", "--quiet", "-c", "side"]);
        repository.write("b", "side\n");
        let side = repository.commit("side");
        repository.run(&["switch", "--quiet", "main"]);
        repository.write("c", "main\n");
        repository.commit("main");
        repository.run(&["cherry-pick", side.as_str()]);
        let moved = git.head().unwrap().unwrap();
        assert_ne!(side, moved);
        let id = git.patch_id(None, &side).unwrap();
        assert!(id.is_some() && id == git.patch_id(None, &moved).unwrap());
        assert!(git.patch_id(None, &first).unwrap().is_some());
        let empty = repository.commit("empty");
        assert_eq!(git.patch_id(None, &empty).unwrap(), None);

        repository.run(&["switch", "--quiet", "side"]);
        repository.write("b", "side, further\n");
        let further = repository.commit("further");
        let whole = git.patch_id(Some(&first), &further).unwrap();
        repository.run(&["switch", "--quiet", "main"]);
        repository.run(&["reset", "--quiet", "--hard", "HEAD~2"]);
        repository.run(&["merge", "--quiet", "--squash", "side"]);
        let squashed = repository.commit("squashed");
        assert_eq!(git.patch_id(None, &squashed).unwrap(), whole);
        let ids = git.patch_ids(0, 10).unwrap();
        assert_eq!(ids[0], (whole.unwrap(), squashed));
        assert_eq!(ids.len(), 3);
    }
}

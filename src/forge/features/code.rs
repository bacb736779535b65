//! The code that features are about: what a pass is worth now.
//!
//! A feature is about the paths that it names, else about the packages of its tests, else about the
//! whole project.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use helmdeck_forge_documents::features::Feature;

use super::reports::Pass;
use crate::error::Result;
use crate::git::{Git, Oid, Run};

/// Files at the root of a package.
const MARKERS: [&str; 7] = [
    "Cargo.toml",
    "pyproject.toml",
    "setup.py",
    "package.json",
    "go.mod",
    "pom.xml",
    "build.gradle",
];
/// What stands for a path that is not there.
const ABSENT: &str = "absent";

/// The code of the project as a commit or a tree has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CodeSnapshot {
    /// The checked-out commit.
    pub(super) commit: Option<Oid>,
    /// The commit or, with uncommitted changes, the tree of the work tree.
    pub(super) source: Option<Oid>,
    /// The code of the project, without `.forge/`.
    pub(crate) tree: Option<String>,
    /// Whether it differs from the commit.
    pub(super) dirty: bool,
}

impl CodeSnapshot {
    /// Returns the code of the checked-out commit; `None` before the first one.
    pub(super) fn committed(git: &Git) -> Result<Option<Self>> {
        let Some(head) = git.head()? else {
            return Ok(None);
        };
        let tree = Some(git.code_tree(&head)?);
        Ok(Some(Self {
            commit: Some(head.clone()),
            source: Some(head),
            tree,
            dirty: false,
        }))
    }

    /// Returns the code of the work tree. Untracked files count unless they are ignored.
    ///
    /// The repository's own index is not changed.
    pub(crate) fn of_work_tree(git: &Git) -> Result<Self> {
        if git.status()?.outside(git.memory()).next().is_none()
            && let Some(committed) = Self::committed(git)?
        {
            return Ok(committed);
        }
        let folder = tempfile::tempdir_in(git.git_dir())
            .map_err(|error| crate::Error::io("cannot write in", git.git_dir(), &error))?;
        let index = git.copy_index(folder.path(), "index")?;
        let scope = git.scope_pathspecs().swap_remove(0);
        git.succeed(
            &["add", "--all", "--", &scope],
            &Run::writing().variable("GIT_INDEX_FILE", &index),
        )?;
        let tree = git.write_tree(&index)?;
        Ok(Self {
            commit: git.head()?,
            tree: Some(git.code_tree(&tree)?),
            source: Some(tree),
            dirty: true,
        })
    }

    /// Returns the objects of some paths of the project.
    pub(super) fn objects(
        &self,
        git: &Git,
        paths: &BTreeSet<String>,
    ) -> Result<HashMap<String, String>> {
        let Some(source) = self.source.as_ref().filter(|_| !paths.is_empty()) else {
            return Ok(HashMap::new());
        };
        // A name with a line feed cannot be asked for: such a path is never the same.
        let asked: Vec<&String> = paths.iter().filter(|path| !path.contains('\n')).collect();
        let names: String = asked
            .iter()
            .map(|path| format!("{source}:{}\n", git.of_project(path)))
            .collect();
        let found = git
            .succeed(
                &["cat-file", "--batch-check=%(objectname)"],
                &Run::default().stdin(names),
            )?
            .text();
        let objects = found.lines().map(|line| {
            if line.ends_with(" missing") {
                ABSENT
            } else {
                line
            }
        });
        Ok(asked
            .into_iter()
            .cloned()
            .zip(objects.map(str::to_owned))
            .collect())
    }
}

/// The current code, as far as passes are about it.
#[derive(Debug)]
pub(super) struct CurrentCode {
    tree: Option<String>,
    objects: HashMap<String, String>,
}

impl CurrentCode {
    /// Reads what some passes are about.
    pub(super) fn read<'a>(
        git: &Git,
        passes: impl Iterator<Item = &'a Pass>,
    ) -> Result<Option<Self>> {
        let Some(code) = CodeSnapshot::committed(git)? else {
            return Ok(None);
        };
        let paths = passes.flat_map(|pass| pass.trees.keys().cloned()).collect();
        Ok(Some(Self {
            objects: code.objects(git, &paths)?,
            tree: code.tree,
        }))
    }

    /// Says whether a pass is about this code.
    pub(super) fn is_of(&self, pass: &Pass) -> bool {
        if pass.trees.is_empty() {
            return pass.code_tree.is_some() && pass.code_tree == self.tree;
        }
        pass.trees
            .iter()
            .all(|(path, object)| self.objects.get(path) == Some(object))
    }
}

/// The packages of a project.
#[derive(Debug)]
pub(super) struct Packages {
    /// Files that git tracks, below the root of the project.
    tracked: Vec<String>,
    /// Folders of packages below it.
    folders: Vec<String>,
}

impl Packages {
    pub(super) fn read(git: &Git) -> Result<Self> {
        let scope = git.scope_pathspecs();
        let args: Vec<&str> = ["ls-files", "-z", "--"]
            .into_iter()
            .chain(scope.iter().map(String::as_str))
            .collect();
        let listed = git.succeed(&args, &Run::default())?;
        let listed = String::from_utf8_lossy(&listed.stdout);
        let tracked: Vec<String> = listed
            .split('\0')
            .filter_map(|path| git.in_project(path))
            .map(str::to_owned)
            .collect();
        let folders = tracked
            .iter()
            .filter_map(|path| path.rsplit_once('/'))
            .filter(|(_, name)| MARKERS.contains(name));
        let folders = folders.map(|(folder, _)| folder.to_owned()).collect();
        Ok(Self { tracked, folders })
    }

    /// Returns the paths that a feature is about; none if it is the whole project.
    pub(super) fn paths(&self, feature: &Feature) -> BTreeSet<String> {
        if let Some(paths) = feature.paths.as_ref().filter(|paths| !paths.is_empty()) {
            return paths
                .iter()
                .map(|path| path.trim_end_matches('/').to_owned())
                .collect();
        }
        let mut found = BTreeSet::new();
        for test in feature.tests() {
            let files = files_of(test, &self.tracked);
            let packages: BTreeSet<&str> =
                files.iter().filter_map(|file| self.package(file)).collect();
            if packages.is_empty() || files.iter().any(|file| self.package(file).is_none()) {
                return BTreeSet::new();
            }
            found.extend(packages.into_iter().map(str::to_owned));
        }
        found
    }

    /// Returns the folder of the package that has a file; `None` if that is the project.
    fn package(&self, file: &str) -> Option<&str> {
        let has = |folder: &&String| {
            file.strip_prefix(folder.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
        };
        self.folders
            .iter()
            .filter(has)
            .max_by_key(|folder| folder.len())
            .map(String::as_str)
    }
}

/// Returns the objects that a feature is about, of those that were read.
pub(super) fn trees(
    paths: &BTreeSet<String>,
    objects: &HashMap<String, String>,
) -> BTreeMap<String, String> {
    let absent = || ABSENT.to_owned();
    paths
        .iter()
        .map(|path| {
            (
                path.clone(),
                objects.get(path).cloned().unwrap_or_else(absent),
            )
        })
        .collect()
}

/// Returns the files that contain a test.
///
/// A path is that file, a folder all files below it. `a::b::tests::*` is the file of the module
/// that matches the longest part of it: `a/b.rs`, `a/b/mod.rs`, `a/b/tests.rs`.
fn files_of<'a>(test: &str, tracked: &'a [String]) -> Vec<&'a str> {
    let (named, pattern) = match test.split_once(':') {
        Some((_, rest)) if !rest.starts_with(':') => (true, rest),
        _ => (false, test),
    };
    let pattern = pattern.split('*').next().unwrap_or_default();
    let path = pattern
        .split("::")
        .next()
        .unwrap_or_default()
        .trim_start_matches("./")
        .trim_end_matches('/');
    // A named runner is usually not cargo: its tests are named by their files.
    if (named && !path.is_empty()) || path.contains('/') || path.contains('.') {
        let below = |file: &str| {
            file.strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        return tracked
            .iter()
            .map(String::as_str)
            .filter(|file| below(file))
            .collect();
    }
    let parts: Vec<&str> = pattern
        .split("::")
        .filter(|part| !part.is_empty())
        .collect();
    for count in (1..=parts.len()).rev() {
        let module = parts[..count].join("/");
        let ends = [format!("{module}.rs"), format!("{module}/mod.rs")];
        let fits = |file: &str| {
            ends.iter().any(|end| {
                file.strip_suffix(end.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
            })
        };
        let found: Vec<&str> = tracked
            .iter()
            .map(String::as_str)
            .filter(|file| fits(file))
            .collect();
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_test_is_the_one_that_fits_most_of_its_name() {
        let tracked: Vec<String> = [
            "src/nats/subjects.rs",
            "src/nats.rs",
            "src/a/mod.rs",
            "src/a/tests.rs",
            "tests/test_a.py",
            "tests/test_ab.py",
        ]
        .map(str::to_owned)
        .to_vec();
        for (test, files) in [
            ("nats::subjects::tests::*", vec!["src/nats/subjects.rs"]),
            ("nats::*", vec!["src/nats.rs"]),
            ("a::tests::one", vec!["src/a/tests.rs"]),
            ("a::x", vec!["src/a/mod.rs"]),
            ("pytest:tests/test_a.py::test_x", vec!["tests/test_a.py"]),
            ("pytest:tests", vec!["tests/test_a.py", "tests/test_ab.py"]),
            ("pytest:tests/", vec!["tests/test_a.py", "tests/test_ab.py"]),
            ("pytest:*", vec![]),
            ("unknown::*", vec![]),
            ("*", vec![]),
        ] {
            assert_eq!(files_of(test, &tracked), files, "{test}");
        }
    }
}

//! Evidence for a feature status: the code, the artifacts and the changed test files.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use helmdeck_forge_documents::features::Feature;
use helmdeck_forge_documents::features::standing::{Standing, StatusInputs};

use super::probes::Probes;
use crate::artifacts::{Index, Kind, ProjectArtifact};
use crate::error::Result;
use crate::git::{Git, Oid, Run};
use crate::project::Project;
use crate::triv::{FileName, Reference, Triv};

/// Maximum number of commits for which the later changes are looked up.
///
/// Beyond it, a pass on another commit counts as stale, which costs a verification.
const MOST_COMMITS: usize = 16;

/// The existing artifacts.
#[derive(Debug)]
pub(crate) struct Evidence {
    /// The entries of the index.
    entries: Vec<ProjectArtifact>,
    whole: HashMap<String, usize>,
    /// The existing files.
    files: HashSet<String>,
    /// Whether the index exists. Without it, only file names are compared.
    indexed: bool,
}

impl Evidence {
    /// Reads the index and the folders of the artifacts.
    ///
    /// # Errors
    /// Errors from reading them.
    pub(crate) fn read(project: &Project) -> Result<Self> {
        let (index, indexed) = Index::read(project)?;
        let entries = index.entries;
        let whole = entries.iter().enumerate().map(|(at, entry)| (entry.triv.to_string(), at)).collect();
        let mut files = HashSet::new();
        for kind in Kind::ALL {
            let folder = kind.folder();
            // A removed file may stay, empty.
            let listed = project.files().list(&folder)?.into_iter().filter(|file| !file.folder && file.bytes > 0);
            files.extend(listed.map(|file| format!("{folder}/{}", file.name)));
        }
        Ok(Self { entries, whole, files, indexed })
    }

    /// Says whether a reference names an existing artifact that meets a condition.
    fn any(&self, reference: &str, fits: impl Fn(Kind, &str) -> bool) -> bool {
        let there = |entry: &ProjectArtifact| {
            // A rollback or a checkout brings back files that were removed since.
            fits(entry.kind, &entry.name) && self.files.contains(&entry.path)
        };
        if let Some(at) = self.whole.get(reference) {
            return self.entries.get(*at).is_some_and(there);
        }
        let Ok(name) = Triv::parse(reference) else {
            return Reference::parse(reference).is_ok_and(|reference| {
                self.entries.iter().any(|entry| reference.matches(&entry.triv) && there(entry))
            });
        };
        if self.indexed {
            // A rebuilt index knows the content of a file, but not when it was stored.
            return self.entries.iter().any(|entry| entry.rebuilt && entry.triv.sch() == name.sch() && there(entry));
        }
        self.files.iter().any(|path| {
            let mut parts = path.rsplit('/');
            let file = parts.next().and_then(|file| FileName::parse(file).ok());
            let kind = parts.next().and_then(|kind| Kind::parse(kind).ok());
            file.zip(kind).is_some_and(|(file, kind)| name.sch().starts_with(file.short()) && fits(kind, file.slug()))
        })
    }

    /// Says whether a reference names an existing artifact.
    pub(super) fn is_there(&self, reference: &Reference) -> bool {
        self.any(reference.as_str(), |_, _| true)
    }

    /// Says whether the evidence of a feature exists.
    ///
    /// Evidence is the report of the feature's own tests or, for a manual feature, any artifact.
    fn shows(&self, feature: &Feature) -> bool {
        let Some(evidence) = feature.evidence.as_deref() else { return false };
        let report = report_name(&feature.id);
        self.any(evidence, |kind, name| feature.manual == Some(true) || (kind == Kind::Reports && name == report))
    }
}

/// Returns the name of the artifact that is the evidence of a feature's tests.
pub(super) fn report_name(id: &str) -> String {
    format!("verify_{}.json", id.to_ascii_lowercase())
}

/// Returns the code tree without `.forge/`; `None` without git, or before the first commit.
pub(super) fn code_tree(git: Option<&Git>) -> Result<Option<String>> {
    let Some(git) = git else { return Ok(None) };
    match git.head()? {
        Some(head) => Ok(Some(git.code_tree(&head)?)),
        None => Ok(None),
    }
}

/// Returns the tree of the code in the work tree, with uncommitted changes.
///
/// Untracked files count unless they are ignored. The repository's own index is not changed.
pub(super) fn work_tree(git: &Git) -> Result<String> {
    let folder = tempfile::tempdir_in(git.git_dir())
        .map_err(|error| crate::Error::io("cannot write in", git.git_dir(), &error))?;
    let index = git.copy_index(folder.path(), "index")?;
    git.succeed(&["add", "--all", "--", ":/"], &Run::writing().variable("GIT_INDEX_FILE", &index))?;
    Ok(git.code_tree(&git.write_tree(&index)?)?)
}

/// Judges every feature without git: a pass counts even if its code has changed since.
///
/// An unreadable artifact index provides no evidence.
pub(crate) fn judge_by_evidence(evidence: Option<&Evidence>, features: &[Feature]) -> Vec<Standing> {
    let shows = |feature: &Feature| evidence.is_some_and(|evidence| evidence.shows(feature));
    let status_inputs = StatusInputs { code_tree: None, shows: &shows, same_tests: &|_| true };
    features.iter().map(|feature| feature.standing(&status_inputs)).collect()
}

/// Judges every feature.
///
/// With `closely`, a pass of other code still holds if the test files have not changed since.
pub(super) fn judge(project: &Project, features: &[Feature], closely: bool) -> Result<Vec<Standing>> {
    judge_by(project, &Evidence::read(project)?, features, closely)
}

/// As [`judge`], with evidence that was read before.
pub(super) fn judge_by(
    project: &Project,
    evidence: &Evidence,
    features: &[Feature],
    closely: bool,
) -> Result<Vec<Standing>> {
    let git = project.repository()?;
    let code_tree = code_tree(git.as_ref())?;
    let tests = git.as_ref().filter(|_| closely).map(TestFiles::new);
    let probes = Probes::read(project);
    let status_inputs = StatusInputs {
        code_tree: code_tree.as_deref(),
        shows: &|feature| evidence.shows(feature),
        same_tests: &|feature| {
            probes.passed(feature, code_tree.as_deref()) || tests.as_ref().is_some_and(|tests| tests.same(feature))
        },
    };
    Ok(features.iter().map(|feature| feature.standing(&status_inputs)).collect())
}

/// The test files of features, and the changed ones.
struct TestFiles<'a> {
    git: &'a Git,
    tracked: RefCell<Option<Vec<String>>>,
    changed: RefCell<HashMap<String, Option<HashSet<String>>>>,
}

impl<'a> TestFiles<'a> {
    fn new(git: &'a Git) -> Self {
        Self { git, tracked: RefCell::default(), changed: RefCell::default() }
    }

    /// Says whether a feature's test files are known and unchanged since it was verified.
    fn same(&self, feature: &Feature) -> bool {
        let Some(commit) = feature.verified_commit.as_deref() else { return false };
        let mut tracked = self.tracked.borrow_mut();
        let tracked = tracked.get_or_insert_with(|| {
            let listed = self.git.run(&["ls-files", "-z", "--", ":/"], &Run::default());
            let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
            listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect()
        });
        let mut files: Vec<&str> = Vec::new();
        for test in feature.tests() {
            let found = files_of(test, tracked);
            if found.is_empty() {
                return false;
            }
            files.extend(found);
        }
        let mut changed = self.changed.borrow_mut();
        if !changed.contains_key(commit) {
            if changed.len() == MOST_COMMITS {
                return false;
            }
            let oid: Option<Oid> = self.git.resolve(&format!("{commit}^{{commit}}")).ok().flatten();
            let changes = oid.and_then(|oid| self.git.changes(&oid).ok());
            let paths = changes.map(|all| all.into_iter().map(|change| change.path).collect());
            changed.insert(commit.to_owned(), paths);
        }
        match changed.get(commit) {
            Some(Some(changed)) => !files.is_empty() && files.iter().all(|file| !changed.contains(*file)),
            _ => false,
        }
    }
}

/// Returns the files that contain a test.
///
/// A path is that file, a folder all files below it. `a::b::tests::*` is the file of the module that
/// matches the longest part of it: `a/b.rs`, `a/b/mod.rs`, `a/b/tests.rs`.
fn files_of<'a>(test: &str, tracked: &'a [String]) -> Vec<&'a str> {
    let (named, pattern) = match test.split_once(':') {
        Some((_, rest)) if !rest.starts_with(':') => (true, rest),
        _ => (false, test),
    };
    let pattern = pattern.split('*').next().unwrap_or_default();
    let path = pattern.split("::").next().unwrap_or_default().trim_start_matches("./").trim_end_matches('/');
    // A named runner is usually not cargo: its tests are named by their files.
    if (named && !path.is_empty()) || path.contains('/') || path.contains('.') {
        let below = |file: &str| file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        return tracked.iter().map(String::as_str).filter(|file| below(file)).collect();
    }
    let parts: Vec<&str> = pattern.split("::").filter(|part| !part.is_empty()).collect();
    for count in (1..=parts.len()).rev() {
        let module = parts[..count].join("/");
        let ends = [format!("{module}.rs"), format!("{module}/mod.rs")];
        let fits = |file: &str| {
            ends.iter()
                .any(|end| file.strip_suffix(end.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('/')))
        };
        let found: Vec<&str> = tracked.iter().map(String::as_str).filter(|file| fits(file)).collect();
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

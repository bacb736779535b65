//! Fixture for checkpoint and recovery tests: a project with a memory in a repository.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::Deref;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::artifacts::{Artifacts, Kind, Put, VERIFICATION};
use crate::environment::ProjectEnvironment;
use crate::features::FeaturesFile;
use crate::fixture::{made, write_entries};
use crate::git::fixture::{Repository, Snapshot};
use crate::knowledge::KnowledgeFile;
use crate::project::Project;

/// A project whose verification fails while a file `broken` exists.
pub(crate) struct Fixture {
    repository: Repository,
    /// Evidence artifacts, by feature.
    evidence: BTreeMap<String, String>,
}

/// Snapshot of a project that is made once.
pub(crate) struct Kept {
    snapshot: Snapshot,
    evidence: BTreeMap<String, String>,
}

impl Kept {
    pub(crate) fn lay_out(&self) -> Fixture {
        Fixture {
            repository: self.snapshot.repository(),
            evidence: self.evidence.clone(),
        }
    }
}

impl Deref for Fixture {
    type Target = Repository;

    fn deref(&self) -> &Repository {
        &self.repository
    }
}

pub(crate) const KNOWLEDGE: &str = ".forge/memory/long-term/knowledge.json";
pub(crate) const FEATURES: &str = ".forge/memory/long-term/features.json";
const CONFIG: &str = "[verify]\ncommands = [\"sh: test ! -e broken\"]\n";

impl Fixture {
    pub(crate) fn new() -> Self {
        static FIRST: LazyLock<Kept> = LazyLock::new(|| Fixture::of(Repository::new()).kept());
        FIRST.lay_out()
    }

    /// Makes a fixture of a repository without a commit.
    pub(crate) fn of(repository: Repository) -> Self {
        let mut fixture = Self {
            repository,
            evidence: BTreeMap::new(),
        };
        fixture.run(&["config", "user.name", "Ann"]);
        fixture.run(&["config", "user.email", "ann@example.com"]);
        fixture.write(
            ".forge/.gitignore",
            ".local/\nmemory/short-term/*\n!memory/short-term/sessions/\ngit/commits.log\ngit/branches.json\n",
        );
        fixture.write(".forge/config.toml", CONFIG);
        write_entries::<KnowledgeFile>(
            fixture.path(),
            r#"{"schema_version":"1.0","patterns":{"successful":[],"failed":[]},"invariants":["Stay kind"]}"#,
        );
        let project = fixture.project();
        for number in 1..=9 {
            let put = Put::new(Kind::Reports, VERIFICATION);
            let report = format!(
                "{{\"at\": \"2025-12-24T10:00:00Z\", \"code_tree\": null, \"features\": {{\"A-00{number}\": {{\"executed\": 1}}}}}}\n"
            );
            let report = Artifacts::new(&project)
                .put(report.as_bytes(), &put)
                .unwrap();
            fixture
                .evidence
                .insert(format!("A-00{number}"), report.entry.triv.to_string());
        }
        fixture.features(&[
            ("A-001", "passing"),
            ("A-002", "passing"),
            ("A-003", "not_implemented"),
        ]);
        fixture.write("a.txt", "one\ntwo\nthree\n");
        fixture.write("b.txt", "bee\n");
        fixture.write("src/deep/c.txt", "sea\n");
        fixture.write(".gitignore", "*.ignored\n/target/\n");
        fixture.commit("first");
        fixture
    }

    /// Takes a snapshot, from which copies can be made.
    pub(crate) fn kept(&self) -> Kept {
        Kept {
            snapshot: self.snapshot(),
            evidence: self.evidence.clone(),
        }
    }

    /// Writes the features file. Passing features get evidence.
    pub(crate) fn features(&self, all: &[(&str, &str)]) {
        let all: Vec<String> = all
            .iter()
            .map(|(id, status)| {
                let proof = if *status == "passing" {
                    format!(r#","verified_at":"2025-12-24T10:00:00Z","evidence":"{}""#, self.evidence[*id])
                } else {
                    String::new()
                };
                format!(
                    r#"{{"id":"{id}","name":"{id}","status":"{status}","tests":["t::*"]{proof},"blocked_by":null}}"#
                )
            })
            .collect();
        let text = format!(
            r#"{{"schema_version":"1.0","features":[{}]}}"#,
            all.join(",")
        );
        write_entries::<FeaturesFile>(self.path(), &text);
    }

    pub(crate) fn project(&self) -> Project {
        Self::open(self.path())
    }

    /// Opens it with other settings.
    pub(crate) fn project_with(&self, config: &str) -> Project {
        self.write(".forge/config.toml", config);
        self.project()
    }

    pub(crate) fn open(folder: &Path) -> Project {
        Project::open(folder, ProjectEnvironment::default())
            .unwrap()
            .unwrap()
    }

    pub(crate) fn verify(&self) -> String {
        self.project().config().verify.commands[0].clone()
    }

    pub(crate) fn head(&self) -> String {
        self.run(&["rev-parse", "HEAD"])
    }

    /// Returns a file, or a document that is made from its entries.
    pub(crate) fn read(&self, path: &str) -> String {
        match path {
            KNOWLEDGE => return made::<KnowledgeFile>(self.path()),
            FEATURES => return made::<FeaturesFile>(self.path()),
            _ => {}
        }
        std::fs::read_to_string(self.path().join(path)).unwrap()
    }
}

/// Runs git with input.
pub(crate) fn feed(folder: &Path, args: &[&str], input: &str) -> String {
    let mut git = Command::new("git")
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    git.stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = git.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

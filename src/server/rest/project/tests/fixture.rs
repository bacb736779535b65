//! A project in a real repository, behind a server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::SystemTime;

use helmdeck_forge::artifacts::{Artifacts, Kind, Put};
use helmdeck_forge::checkpoints::{Checkpoints, Create};
use helmdeck_forge::features::{Add as AddFeature, Features};
use helmdeck_forge::init::{Init, init};
use helmdeck_forge::issues::{AddIssue, IssueFields};
use helmdeck_forge::knowledge::{Knowledge, Learning, What};
use helmdeck_forge::progress::Progress;
use helmdeck_forge::{Project, ProjectEnvironment, Trust};
use helmdeck_testkit::ManualClock;

use crate::access::Auth;
use crate::fixture::{Fixture, START};
use crate::rest::project::ProjectSettings;

/// Text of somebody else, which must never become markup.
pub(crate) const HOSTILE: &str = "<script>alert(1)</script>\u{202e}\" onload=\"x";

/// A server with a project.
pub(crate) struct ProjectFixture {
    pub(crate) server: Fixture,
    pub(crate) project: Project,
    pub(crate) settings: ProjectSettings,
    /// Ids of the entries of the knowledge.
    pub(crate) learned: Vec<String>,
    /// Name of the artifact.
    pub(crate) artifact: String,
    folder: tempfile::TempDir,
}

impl ProjectFixture {
    /// Makes a project with something of everything, and a server without authentication.
    pub(crate) async fn new() -> Self {
        Self::with_auth(None).await
    }

    pub(crate) async fn with_auth(auth: Option<Auth>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        git(
            folder.path(),
            &["init", "--quiet", "--initial-branch=main", "--template="],
        );
        for (name, value) in [
            ("user.name", "Ann"),
            ("user.email", "ann@example.com"),
            ("commit.gpgSign", "false"),
        ] {
            git(folder.path(), &["config", name, value]);
        }
        std::fs::write(folder.path().join("a.txt"), "one\n").unwrap();
        let (project, _) = init(
            folder.path(),
            settings.environment.clone(),
            &Init::default(),
        )
        .unwrap();
        let mut fixture = Self {
            server: Fixture::with_project(settings.clone(), auth).await,
            project,
            settings,
            learned: Vec::new(),
            artifact: String::new(),
            folder,
        };
        fixture.fill();
        fixture
    }

    fn fill(&mut self) {
        let project = &self.project;
        for context in ["one", HOSTILE] {
            let what = What::Successful {
                context: context.to_owned(),
                approach: HOSTILE.to_owned(),
            };
            let learning = Learning {
                paths: vec!["a.txt".to_owned()],
                ..Learning::new(what)
            };
            self.learned
                .push(Knowledge::new(project).add(&learning, None).unwrap().id);
        }
        for name in ["Sign in", HOSTILE] {
            Features::new(project)
                .add(
                    &AddFeature {
                        name: name.to_owned(),
                        ..AddFeature::default()
                    },
                    None,
                )
                .unwrap();
        }
        let issue = AddIssue {
            title: "Fix <b>it</b>".to_owned(),
            fields: IssueFields {
                description: Some(HOSTILE.to_owned()),
                criteria: Some(vec!["It works <i>well</i>".to_owned()]),
                labels: Some(vec!["<u>ui</u>".to_owned()]),
                ..IssueFields::default()
            },
            ..AddIssue::default()
        };
        let key = project.issues().add(&issue).unwrap().issue.linear_id;
        assert_eq!(key, "LOCAL-1");
        let comment = &HOSTILE.to_owned();
        project.issues().comment(&key, comment).unwrap();
        Progress::new(project).log("wrote <i>a test</i>").unwrap();
        let put = Put::new(Kind::Reports, "report.html");
        let stored = Artifacts::new(project)
            .put(b"<script>alert(1)</script>", &put)
            .unwrap();
        self.artifact = stored.entry.triv.to_string();
        git(self.path(), &["add", "-A"]);
        git(
            self.path(),
            &[
                "commit",
                "--quiet",
                "-m",
                "[LOCAL-1] Begin <b>it</b>\n\n## What\n- All of it\n",
            ],
        );
        let create = Create {
            key: Some("LOCAL-1".to_owned()),
            message: Some("a checkpoint".to_owned()),
            verify: vec!["true".to_owned()],
            ..Create::default()
        };
        assert_eq!(
            Checkpoints::new(project).create(&create).unwrap().tag,
            "checkpoint/LOCAL-1-v1"
        );
        std::fs::write(self.path().join("a.txt"), "two <b>\n").unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the artifact's name as a segment of a path.
    pub(crate) fn artifact_segment(&self) -> String {
        crate::rest::request::segment(&self.artifact)
    }

    /// Returns the version tag of the issue.
    pub(crate) fn etag(&self) -> String {
        self.project.issues().show("LOCAL-1").unwrap().etag
    }

    /// Returns every file of the repository with its bytes, size and times.
    pub(crate) fn everything(&self) -> BTreeMap<PathBuf, (SystemTime, Vec<u8>)> {
        let mut all = BTreeMap::new();
        gather(self.path(), &mut all);
        all
    }
}

/// Settings of the routes for a folder.
pub(crate) fn settings(root: &Path) -> ProjectSettings {
    let environment = ProjectEnvironment {
        clock: Arc::new(ManualClock::at(START)),
        trust: Trust::Everything,
        ..ProjectEnvironment::default()
    };
    ProjectSettings {
        root: Some(root.to_owned()),
        environment,
    }
}

fn git(folder: &Path, args: &[&str]) {
    let done = Command::new("git")
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(done.status.success(), "{args:?}: {done:?}");
}

fn gather(folder: &Path, all: &mut BTreeMap<PathBuf, (SystemTime, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let about = std::fs::symlink_metadata(&path).unwrap();
        if about.is_dir() {
            gather(&path, all);
        }
        let bytes = if about.is_file() {
            std::fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        all.insert(path, (about.modified().unwrap(), bytes));
    }
}

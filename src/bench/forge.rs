//! Project memory in a large project.
//!
//! It has 10,000 files, 500 features, 2,000 commits, 5,000 entries and 1,000 skills.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use helmdeck_forge::checkpoints::{Checkpoints, Create};
use helmdeck_forge::features::{Features, Which};
use helmdeck_forge::init::{self, Init};
use helmdeck_forge::knowledge::{Knowledge, Search};
use helmdeck_forge::sessions::{Sessions, Start};
use helmdeck_forge::skills::{Query, Skills};
use helmdeck_forge::{Project, ProjectEnvironment, Trust, health, layout, prime, skills};

use crate::measure::{Table, median};

const TIMES: usize = 15;

/// Without a person who agrees to the commands of a repository: all of them are written here.
fn environment() -> ProjectEnvironment {
    ProjectEnvironment {
        trust: Trust::Everything,
        ..ProjectEnvironment::default()
    }
}

/// Git repository, removed when dropped.
struct Repository(tempfile::TempDir);

impl Repository {
    fn new() -> Self {
        let repository = Self(tempfile::tempdir().unwrap());
        repository.git(&["init", "-q", "-b", "main"], "");
        for (name, value) in [
            ("user.name", "Ann"),
            ("user.email", "ann@example.com"),
            ("commit.gpgsign", "false"),
        ] {
            repository.git(&["config", name, value], "");
        }
        repository
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn git(&self, arguments: &[&str], input: &str) {
        let mut git = Command::new("git");
        git.args(arguments)
            .current_dir(self.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let mut child = git.env("GIT_CONFIG_GLOBAL", "/dev/null").spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        assert!(child.wait().unwrap().success(), "git {arguments:?}");
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn commit(&self, message: &str) {
        self.git(&["add", "-A"], "");
        self.git(&["commit", "-q", "-m", message], "");
    }

    fn open(&self) -> Project {
        Project::open(self.path(), environment()).unwrap().unwrap()
    }
}

/// Adds the median time of an operation that opens the project each time.
fn measure<T>(
    table: &mut Table,
    what: &str,
    limit: f64,
    repository: &Repository,
    work: impl Fn(&Project) -> T,
) -> T {
    let mut times = Vec::new();
    let mut last = None;
    for _ in 0..TIMES {
        let began = Instant::now();
        let project = repository.open();
        last = Some(work(&project));
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let middle = median(times.into_iter());
    table.add(
        what,
        format!("{middle:.1} ms"),
        &format!("<= {limit} ms"),
        middle <= limit,
    );
    last.unwrap()
}

/// Makes `count` commits on a separate branch, and checks it out.
fn commits(repository: &Repository, count: usize) {
    let mut stream = String::new();
    for number in 0..count {
        let time = 1_700_000_000 + number;
        writeln!(
            stream,
            "commit refs/heads/work\ncommitter a <a@b> {time} +0000\ndata 15\n[SX9-123] More"
        )
        .unwrap();
        if number == 0 {
            stream.push_str("from refs/heads/main^0\n");
        }
        writeln!(stream, "M 644 inline number.txt\ndata <<E\n{number}\nE\n").unwrap();
    }
    repository.git(&["fast-import", "--quiet"], &stream);
    repository.git(&["checkout", "--quiet", "work"], "");
}

/// A large project with a session under way.
fn large() -> Repository {
    let repository = Repository::new();
    for number in 0..10_000 {
        repository.write(
            &format!("src/d{}/f{number}.rs", number / 100),
            format!("// {number}\n"),
        );
    }
    init::init(repository.path(), environment(), &Init::default()).unwrap();
    repository.write(layout::CONFIG, "[verify]\ncommands = [\"true\"]\n");
    repository.commit("[session] Begin");
    commits(&repository, 2_000);
    let project = repository.open();
    let tree = project
        .git()
        .map(|git| git.code_tree(&git.head().unwrap().unwrap()).unwrap())
        .unwrap();
    let feature = |number: u32| match number % 2 {
        0 => format!(
            r#"{{"id":"F-{number:03}","name":"Feature {number}","status":"passing","tests":["t{number}::*"],
               "verified_at":"2025-12-24T11:30:00Z","evidence":"triv:abc_def_ghi","verified_code_tree":"{tree}"}}"#
        ),
        _ => {
            format!(
                r#"{{"id":"F-{number:03}","name":"Feature {number}","status":"failing","tests":["t{number}::*"]}}"#
            )
        }
    };
    for number in 0..500 {
        repository.write(
            &format!("{}/F-{number:03}.json", layout::FEATURES_ENTRIES),
            feature(number),
        );
    }
    repository.commit("[session] Features");
    let project = repository.open();
    Checkpoints::new(&project)
        .create(&Create {
            key: Some("SX9-1".to_owned()),
            ..Create::default()
        })
        .unwrap();
    let begun = Sessions::new(&project)
        .start(&Start {
            no_probe: true,
            ..Start::default()
        })
        .unwrap();
    assert_eq!(begun.paused, None);
    repository
}

/// Measures the briefing, health and the start of a session, and searches in memory.
pub(crate) fn large_project(table: &mut Table) {
    let repository = large();
    let brief = measure(
        table,
        "prime, 10,000 files, 2,000 commits",
        300.0,
        &repository,
        |project| prime::prime(project, None).unwrap(),
    );
    assert!(brief.text.contains("F-001"), "{}", brief.text);
    let health = measure(
        table,
        "health, the same",
        250.0,
        &repository,
        health::measure,
    );
    assert_eq!(
        (
            health.features.inputs.total,
            health.git.inputs.commits_since
        ),
        (500, 0)
    );
    // Now no base has these commits.
    repository.git(&["branch", "--quiet", "base", "main"], "");
    repository.write(
        layout::CONFIG,
        "[verify]\ncommands = [\"true\"]\n[git]\nbase = \"base\"\n",
    );
    repository.write("src/d0/f0.rs", "// changed\n");
    let health = measure(
        table,
        "health, 2,000 commits ahead",
        250.0,
        &repository,
        health::measure,
    );
    assert!(
        health.git.inputs.ahead >= 2_000 && health.git.inputs.uncommitted == 1,
        "{:?}",
        health.git.inputs
    );
    let again = measure(
        table,
        "session start again",
        300.0,
        &repository,
        |project| {
            Sessions::new(project)
                .start(&Start {
                    no_probe: true,
                    ..Start::default()
                })
                .unwrap()
        },
    );
    assert!(again.again);
    searches(table);
    probes(table);
}

/// The start of a session that tests two features again by `cargo test`, which is built already.
fn probes(table: &mut Table) {
    let repository = Repository::new();
    repository.write(
        "Cargo.toml",
        "[package]\nname = \"sums\"\nversion = \"0.1.0\"\nedition = \"2024\"\n",
    );
    repository.write(".gitignore", "target\n");
    let module = |name: &str| {
        format!(
            "mod {name} {{\n    #[test]\n    fn works() {{\n        assert_eq!(2 + 2, 4);\n    }}\n}}\n"
        )
    };
    repository.write("src/lib.rs", module("adding") + &module("doubling"));
    init::init(repository.path(), environment(), &Init::default()).unwrap();
    let feature = |number: u32, name: &str| {
        format!(
            r#"{{"id":"F-{number:03}","name":"{name}","status":"failing","tests":["{name}::*"]}}"#
        )
    };
    for (number, name) in [(1, "adding"), (2, "doubling")] {
        repository.write(
            &format!("{}/F-{number:03}.json", layout::FEATURES_ENTRIES),
            feature(number, name),
        );
    }
    repository.commit("[session] Features");
    let project = repository.open();
    for id in ["F-001", "F-002"] {
        assert!(Features::new(&project).verify(id).unwrap().passed);
    }
    repository.commit("[session] Verified");
    let tested = measure(
        table,
        "two features verified by one cargo test",
        f64::INFINITY,
        &repository,
        |project| Features::new(project).verify_each(&Which::All).unwrap(),
    );
    assert!(tested.len() == 2 && tested.iter().all(|tested| tested.passed));
    let ran = measure(
        table,
        "  floor: cargo test",
        f64::INFINITY,
        &repository,
        |_| {
            let mut cargo = Command::new("cargo");
            cargo
                .args(["test", "--quiet"])
                .current_dir(repository.path());
            cargo
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap()
                .success()
        },
    );
    assert!(ran);
}

fn searches(table: &mut Table) {
    let repository = Repository::new();
    init::init(repository.path(), environment(), &Init::default()).unwrap();
    let entry = |number: u32| {
        format!(
            r#"{{"context":"Case {number} of subject {} in module m{}","approach":"Use way {} and run the tests of part {}","learned_at":"2025-12-24T10:30:00Z"}}"#,
            number % 97,
            number % 31,
            number % 13,
            number % 7
        )
    };
    for number in 0..5_000 {
        repository.write(
            &format!("{}/case-{number}.json", layout::KNOWLEDGE_ENTRIES),
            entry(number),
        );
    }
    let asked = Search {
        query: "subject 42 in module m7".to_owned(),
        ..Search::default()
    };
    let found = measure(
        table,
        "search, 5,000 entries, from their files",
        250.0,
        &repository,
        |project| Knowledge::new(project).search(&asked).unwrap(),
    );
    assert_eq!(found.entries.len(), 10);

    for number in 0..1_000 {
        let folder = format!("{}/skill-{number}", layout::SKILLS);
        let text = format!(
            "[skill]\nname = \"skill-{number}\"\ndescription = \"Do thing {number}\"\nversion = \"1.0.0\"\n\n[triggers]\n\
             keywords = [\"thing {number}\", \"word{number}\", \"build\"]\nfile_patterns = [\"*.r{number}\", \"src/{number}/**\"]\n\
             linear_labels = [\"l{number}\"]\n\n[resources]\ninstructions = \"instructions.md\"\n"
        );
        repository.write(&format!("{folder}/skill.toml"), text);
        repository.write(&format!("{folder}/instructions.md"), "Do it.\n");
    }
    let query = Query {
        task: "please do thing 500 and build it all".to_owned(),
        files: vec!["src/7/lib.rs".to_owned()],
        labels: vec!["l3".to_owned()],
    };
    let all = Skills::new(&repository.open()).list().unwrap();
    assert!(all.len() >= 1_000);
    measure(table, "1,000 skills, in memory", 20.0, &repository, |_| {
        let known = all
            .iter()
            .map(|skill| (skill.name.as_str(), &skill.triggers));
        assert!(skills::matches(known, &query).len() > 900);
    });
    measure(
        table,
        "1,000 skills, from their folders",
        20.0,
        &repository,
        |project| {
            assert!(Skills::new(project).matching(&query).unwrap().len() > 900);
        },
    );
}

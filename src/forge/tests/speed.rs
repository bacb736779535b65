//! How long things take on a large project: 10,000 files, 500 features, 2,000 commits, 5,000 entries, 1,000 skills. Nothing is asserted
//! of the time, which is the machine's; it is printed, and what was measured must be right.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::checkpoints::{Checkpoints, Create};
use crate::environment::ProjectEnvironment;
use crate::git::Run;
use crate::git::fixture::Repository;
use crate::init::{self, Init};
use crate::knowledge::{Knowledge, Search};
use crate::layout;
use crate::prime;
use crate::project::Project;
use crate::sessions::{Sessions, Start};
use crate::skills::{Query, Skills};

const TIMES: usize = 15;

fn open(repository: &Repository) -> Project {
    Project::open(repository.path(), ProjectEnvironment::default()).unwrap().unwrap()
}

/// Returns the time that processors spent on this process and the programs it ran, in hundredths of a second.
fn spent() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').skip(11).take(4).map(|field| field.parse::<u64>().unwrap()).sum()
}

/// Prints the first, the middle and the longest time of an operation for which every caller opens the project anew, and what each took
/// of the processors, which other work on the machine does not change.
fn measure<T>(what: &str, target: Duration, repository: &Repository, work: impl Fn(&Project) -> T) -> T {
    let mut times = Vec::new();
    let mut last = None;
    let before = spent();
    for _ in 0..TIMES {
        let began = Instant::now();
        let project = open(repository);
        last = Some(work(&project));
        times.push(began.elapsed());
    }
    let (first, spent) = (times[0], (spent() - before) * 10 / TIMES as u64);
    times.sort_unstable();
    let (middle, longest) = (times[TIMES / 2], times[TIMES - 1]);
    println!(
        "{what}: first {first:.1?}, middle {middle:.1?}, longest {longest:.1?}, processors {spent} ms (target {target:?})"
    );
    last.unwrap()
}

/// Makes so many commits on a branch of its own, and goes there.
fn commits(repository: &Repository, count: u32) {
    let mut stream = String::new();
    for number in 0..count {
        let time = 1_700_000_000 + number;
        writeln!(stream, "commit refs/heads/work\ncommitter a <a@b> {time} +0000\ndata 15\n[SX9-123] More").unwrap();
        if number == 0 {
            stream.push_str("from refs/heads/main^0\n");
        }
        writeln!(stream, "M 644 inline number.txt\ndata <<E\n{number}\nE\n").unwrap();
    }
    let run = Run::writing().stdin(stream);
    repository.git().succeed(&["fast-import", "--quiet"], &run).unwrap();
    repository.run(&["checkout", "--quiet", "work"]);
}

/// A large project with a session that lives.
fn large() -> Repository {
    let repository = Repository::new();
    for (name, value) in [("user.name", "Ann"), ("user.email", "ann@example.com")] {
        repository.run(&["config", name, value]);
    }
    for number in 0..10_000 {
        repository.write(&format!("src/d{}/f{number}.rs", number / 100), format!("// {number}\n"));
    }
    init::init(repository.path(), ProjectEnvironment::default(), &Init::default()).unwrap();
    repository.write(layout::CONFIG, "[verify]\ncommands = [\"true\"]\n");
    repository.commit("[session] Begin");
    commits(&repository, 2_000);
    let tree = open(&repository).git().map(|git| git.code_tree(&git.head().unwrap().unwrap()).unwrap()).unwrap();
    let feature = |number: u32| match number % 2 {
        0 => format!(
            r#"{{"id":"F-{number:03}","name":"Feature {number}","status":"passing","tests":["t{number}::*"],
               "verified_at":"2025-12-24T11:30:00Z","evidence":"triv:abc_def_ghi","verified_code_tree":"{tree}"}}"#
        ),
        _ => {
            format!(r#"{{"id":"F-{number:03}","name":"Feature {number}","status":"failing","tests":["t{number}::*"]}}"#)
        }
    };
    let features: Vec<String> = (0..500).map(feature).collect();
    let features = format!(r#"{{"schema_version":"1.0","features":[{}]}}"#, features.join(","));
    repository.write(layout::FEATURES, features);
    repository.commit("[session] Features");
    let project = open(&repository);
    Checkpoints::new(&project).create(&Create { key: Some("SX9-1".to_owned()), ..Create::default() }).unwrap();
    let begun = Sessions::new(&project).start(&Start { no_probe: true, ..Start::default() }).unwrap();
    assert_eq!(begun.paused, None);
    repository
}

#[test]
#[ignore = "prints how long things take"]
fn the_brief_and_the_health_of_a_large_project() {
    let repository = large();
    let limit = Duration::from_millis(300);
    let brief = measure("prime, 10,000 files, 500 features, 2,000 commits", limit, &repository, |project| {
        prime::prime(project, None).unwrap()
    });
    assert!(brief.text.contains("F-001"), "{}", brief.text);
    let limit = Duration::from_millis(250);
    let health = measure("health, the same", limit, &repository, crate::health::measure);
    assert_eq!((health.features.inputs.total, health.git.inputs.commits_since), (500, 0));
    // So many commits that no base has.
    repository.run(&["branch", "--quiet", "base", "main"]);
    repository.write(layout::CONFIG, "[verify]\ncommands = [\"true\"]\n[git]\nbase = \"base\"\n");
    repository.write("src/d0/f0.rs", "// changed\n");
    let health = measure("health, 2,000 commits ahead, one file changed", limit, &repository, crate::health::measure);
    assert!(health.git.inputs.ahead >= 2_000 && health.git.inputs.uncommitted == 1, "{:?}", health.git.inputs);
    let started = Duration::from_millis(300);
    let again = measure("session start again", started, &repository, |project| {
        Sessions::new(project).start(&Start { no_probe: true, ..Start::default() }).unwrap()
    });
    assert!(again.again);
}

#[test]
#[ignore = "prints how long things take"]
fn a_search_in_many_entries_and_a_match_of_many_skills() {
    let repository = Repository::new();
    init::init(repository.path(), ProjectEnvironment::default(), &Init::default()).unwrap();
    let entry = |number: u32| {
        format!(
            r#"{{"context":"Case {number} of subject {} in module m{}","approach":"Use way {} and run the tests of part {}","learned_at":"2025-12-24T10:30:00Z"}}"#,
            number % 97,
            number % 31,
            number % 13,
            number % 7
        )
    };
    let entries: Vec<String> = (0..5_000).map(entry).collect();
    repository.write(
        layout::KNOWLEDGE,
        format!(
            r#"{{"schema_version":"1.0","patterns":{{"successful":[{}],"failed":[]}},"invariants":[]}}"#,
            entries.join(",")
        ),
    );
    let asked = Search { query: "subject 42 in module m7".to_owned(), ..Search::default() };
    let limit = Duration::from_millis(50);
    let found = measure("search, 5,000 entries, from the file", limit, &repository, |project| {
        Knowledge::new(project).search(&asked).unwrap()
    });
    assert_eq!(found.entries.len(), 10);
    let file = Knowledge::new(&open(&repository)).read().unwrap();
    measure("search, 5,000 entries, in memory", limit, &repository, |_| file.search(&asked));

    for number in 0..1_000 {
        let folder = format!("{}/skill-{number}", layout::SKILLS);
        let text = format!(
            "[skill]\nname = \"skill-{number}\"\ndescription = \"Do thing {number}\"\nversion = \"1.0.0\"\n\n[triggers]\nkeywords = \
             [\"thing {number}\", \"word{number}\", \"build\"]\nfile_patterns = [\"*.r{number}\", \"src/{number}/**\"]\nlinear_labels = \
             [\"l{number}\"]\n\n[resources]\ninstructions = \"instructions.md\"\n"
        );
        repository.write(&format!("{folder}/skill.toml"), text);
        repository.write(&format!("{folder}/instructions.md"), "Do it.\n");
    }
    let query = Query {
        text: "please do thing 500 and build it all".to_owned(),
        files: vec!["src/7/lib.rs".to_owned()],
        labels: vec!["l3".to_owned()],
    };
    let limit = Duration::from_millis(20);
    let skills = Skills::new(&open(&repository)).list().unwrap();
    assert!(skills.len() >= 1_000);
    measure("1,000 skills, in memory", limit, &repository, |_| {
        let known = skills.iter().map(|skill| (skill.name.as_str(), &skill.triggers));
        assert!(crate::skills::matches(known, &query).len() > 900);
    });
    measure("1,000 skills, from their folders", limit, &repository, |project| {
        assert!(Skills::new(project).matching(&query).unwrap().len() > 900);
    });
}

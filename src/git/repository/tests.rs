use std::time::Duration;

use helmdeck_core::waiting::STUCK;

use super::*;
use crate::fixture::{Repository, run_at};

#[test]
fn repository_is_found_from_folders_below_it() {
    let repository = Repository::new();
    repository.write("sub/folder/file", "x");
    let root = repository.path().canonicalize().unwrap();
    let git = Git::find(&repository.path().join("sub/folder"))
        .unwrap()
        .unwrap();
    assert_eq!(git.root(), root);
    assert_eq!(
        (git.git_dir(), git.common_dir()),
        (root.join(".git").as_path(), root.join(".git").as_path())
    );
    assert!(
        Git::find(tempfile::tempdir().unwrap().path())
            .unwrap()
            .is_none()
    );
    assert_eq!(
        Git::find(&root.join(".git")).unwrap_err().code,
        "E_BARE_REPO"
    );
    let bare = tempfile::tempdir().unwrap();
    run_at(bare.path(), &["init", "--quiet", "--bare"]);
    assert_eq!(Git::find(bare.path()).unwrap_err().kind, Kind::Refused);
}

#[test]
fn head_branch_and_ancestry_are_returned() {
    let repository = Repository::new();
    let git = repository.git();
    assert_eq!(
        (git.head().unwrap(), git.branch().unwrap().as_deref()),
        (None, Some("main"))
    );
    assert_eq!(git.root_commit().unwrap(), None);
    let first = repository.commit("first");
    let second = repository.commit("second");
    assert_eq!(git.head().unwrap(), Some(second.clone()));
    assert_eq!(git.resolve("HEAD~1").unwrap(), Some(first.clone()));
    assert_eq!(
        git.resolve(&first.as_str()[..7]).unwrap(),
        Some(first.clone())
    );
    assert_eq!(git.resolve("--all").unwrap(), None);
    assert_eq!(git.root_commit().unwrap(), Some(first.clone()));
    assert!(
        git.is_ancestor(&first, &second).unwrap() && !git.is_ancestor(&second, &first).unwrap()
    );
    assert!(!git.is_ancestor(&first.none_like(), &second).unwrap());
    repository.run(&["switch", "--quiet", "--detach", "HEAD~1"]);
    assert_eq!(git.branch().unwrap(), None);
    repository.commit("side");
    let side = git.head().unwrap().unwrap();
    assert_eq!(git.ahead_behind(&side, &first).unwrap(), (1, 0));
    assert_eq!(git.ahead_behind(&side, &second).unwrap(), (1, 1));
    assert_eq!(git.count(&format!("{first}..{side}")).unwrap(), 1);
}

#[test]
fn every_operation_in_progress_is_detected() {
    let repository = Repository::new();
    let git = repository.git();
    repository.write("a", "1\n");
    repository.commit("first");
    repository.run(&["switch", "--quiet", "-c", "side"]);
    repository.write("a", "side\n");
    repository.commit("side");
    repository.run(&["switch", "--quiet", "main"]);
    repository.write("a", "main\n");
    repository.commit("main");
    let patch = repository.run(&["format-patch", "-1", "--stdout", "side"]);
    repository.write(".git/patch", patch + "\n");
    assert_eq!(git.operation().unwrap(), None);
    let cases: [(&[&str], &[&str], Operation); 6] = [
        (&["merge", "side"], &["merge", "--abort"], Operation::Merge),
        (
            &["rebase", "side"],
            &["rebase", "--abort"],
            Operation::Rebase,
        ),
        (&["am", ".git/patch"], &["am", "--abort"], Operation::Apply),
        (
            &["cherry-pick", "side"],
            &["cherry-pick", "--abort"],
            Operation::CherryPick,
        ),
        (
            &["revert", "HEAD~1"],
            &["revert", "--abort"],
            Operation::Revert,
        ),
        (
            &["bisect", "start"],
            &["bisect", "reset"],
            Operation::Bisect,
        ),
    ];
    for (start, end, operation) in cases {
        // All but the last end with a conflict.
        let run = Run::writing();
        git.run(start, &run).unwrap();
        assert_eq!(git.operation().unwrap(), Some(operation), "{start:?}");
        git.succeed(end, &run).unwrap();
        assert_eq!(git.operation().unwrap(), None, "{end:?}");
    }
}

#[test]
fn index_lock_is_detected() {
    let repository = Repository::new();
    assert_eq!(repository.git().index_locked_since().unwrap(), None);
    repository.write(".git/index.lock", "");
    assert!(repository.git().index_locked_since().unwrap().is_some());
}

#[test]
fn runs_are_bounded_in_time_and_output() {
    let repository = Repository::new();
    let git = repository.git();
    let begin = std::time::Instant::now();
    // An alias that starts a shell, which would outlive git.
    let slow = ["-c", "alias.slow=!sleep 600 & sleep 600", "slow"];
    let error = git
        .run(&slow, &Run::default().timeout(Duration::from_millis(100)))
        .unwrap_err();
    assert_eq!(error.code, "E_TIMEOUT");
    // Half as long as what was killed.
    assert!(begin.elapsed() < STUCK);
    let much = ["-c", "alias.much=!yes", "much"];
    assert_eq!(
        git.run(
            &much,
            &Run {
                max_output: 1000,
                ..Run::default()
            }
        )
        .unwrap_err()
        .code,
        "E_TOO_LARGE"
    );
    let failed = git
        .succeed(&["rev-parse", "--verify", "nothing"], &Run::default())
        .unwrap_err();
    assert!(
        failed
            .message
            .starts_with("git rev-parse failed (exit 128): fatal: "),
        "{failed}"
    );
}

#[test]
fn program_that_holds_the_pipes_does_not_block() {
    let repository = Repository::new();
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let alias = format!(
        "alias.leave=!sleep 600 & echo $! > '{}'; echo said",
        pid.display()
    );
    let output = repository
        .git()
        .run(&["-c", &alias, "leave"], &Run::default())
        .unwrap();
    assert_eq!(output.text(), "said");
    let pid = fs::read_to_string(pid)
        .unwrap()
        .trim()
        .parse()
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn redirecting_variables_are_removed() {
    let repository = Repository::new();
    repository.write("a", "1\n");
    repository.write(".git/test-worker", "");
    let mut worker = std::process::Command::new(std::env::current_exe().unwrap());
    worker.args([
        "--exact",
        "--ignored",
        "repository::tests::worker_with_foreign_variables",
    ]);
    worker.current_dir(repository.path());
    for name in [
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_NAMESPACE",
        "GIT_COMMON_DIR",
    ] {
        worker.env(name, "/nowhere");
    }
    worker
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "status.short")
        .env("GIT_CONFIG_VALUE_0", "nonsense");
    let output = worker.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[test]
#[ignore = "started by another test"]
fn worker_with_foreign_variables() {
    // Does nothing if all ignored tests are run.
    if !Path::new(".git/test-worker").exists() {
        return;
    }
    let git = Git::find(Path::new(".")).unwrap().unwrap();
    assert_eq!(git.root(), Path::new(".").canonicalize().unwrap());
    assert_eq!(git.status().unwrap().untracked().collect::<Vec<_>>(), ["a"]);
    // Variables of the run itself are kept.
    let run = Run::default().variable("GIT_INDEX_FILE", "/elsewhere");
    let text = git
        .run(&["-c", "alias.variables=!env", "variables"], &run)
        .unwrap()
        .text();
    for line in [
        "GIT_INDEX_FILE=/elsewhere",
        "LC_ALL=C",
        "GIT_OPTIONAL_LOCKS=0",
        "GIT_TERMINAL_PROMPT=0",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is not in\n{text}"
        );
    }
}

#[test]
fn settings_are_set_in_this_repository_only() {
    let repository = Repository::new();
    let git = repository.git();
    assert_eq!(git.setting("commit.cleanup").unwrap(), None);
    git.set_setting("commit.cleanup", "scissors").unwrap();
    assert_eq!(
        git.setting("commit.cleanup").unwrap().as_deref(),
        Some("scissors")
    );
    assert!(
        fs::read_to_string(repository.path().join(".git/config"))
            .unwrap()
            .contains("cleanup = scissors")
    );
}

#[test]
fn hints_of_git_are_not_repeated() {
    let output = |stderr: &str| Output {
        status: Some(1),
        stdout: Vec::new(),
        stderr: stderr.to_owned(),
    };
    let said = |stderr: &str| complaint(&["-c", "a=b", "switch"], &output(stderr)).message;
    assert_eq!(
        said("error: it differs\nhint: throw it away"),
        "git switch failed (exit 1): error: it differs"
    );
    assert_eq!(
        said("plain\nhint: throw it away"),
        "git switch failed (exit 1): plain"
    );
}

#[test]
fn paths_need_not_be_utf8() {
    use std::os::unix::ffi::OsStrExt as _;

    let folder = tempfile::tempdir().unwrap();
    let root = folder
        .path()
        .canonicalize()
        .unwrap()
        .join(std::ffi::OsStr::from_bytes(b"r\xff\xfe"));
    std::fs::create_dir_all(&root).unwrap();
    run_at(&root, &["init", "--quiet", "--initial-branch=main"]);
    let git = Repository::git_at(&root);
    assert_eq!(
        (git.root(), git.git_dir()),
        (root.as_path(), root.join(".git").as_path())
    );
    assert_eq!(git.branch().unwrap().as_deref(), Some("main"));
}

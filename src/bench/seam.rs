//! Process start of the seam (release binary), against the smallest program and git.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::measure::{Table, median};

/// Number of starts of each program, in turn with the others.
const RUNS: usize = 100;
/// Number of notes to recall.
const NOTES: usize = 5_000;

pub(crate) fn doors(table: &mut Table) {
    let binary = crate::measure::program();
    if !binary.exists() {
        table.add(
            "seam",
            "not measured: build the release binary first".to_owned(),
            "measured",
            false,
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (repo, vault) = (folder.path().join("repo"), folder.path().join("vault"));
    let write = |path: &Path, contents: &str| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    };
    write(&repo.join(".git/HEAD"), "ref: refs/heads/main\n");
    write(
        &repo.join(".git/config"),
        "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://host/o/measured.git\n",
    );
    for needed in ["objects", "refs"] {
        std::fs::create_dir_all(repo.join(".git").join(needed)).unwrap();
    }
    for note in 0..NOTES {
        let text = format!(
            "---\nstatus: active\n---\n# Decision {note}\n{}\n",
            "Words that fill a note. ".repeat(40)
        );
        write(
            &vault.join(format!("projects/measured/decisions/{note:05}.md")),
            &text,
        );
    }
    write(&vault.join("personal/_always-load/rule.md"), "Always.\n");
    let start = |program: &Path, words: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(words)
            .env_clear()
            .env("HOME", folder.path())
            .env("MEMORY_VAULT_PATH", &vault)
            .current_dir(&repo);
        command
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let started = Instant::now();
        assert!(command.status().unwrap().success(), "{words:?}");
        started.elapsed().as_secs_f64() * 1e3
    };
    let programs: [(&Path, &[&str]); 4] = [
        (Path::new("/bin/true"), &[]),
        (Path::new("/usr/bin/git"), &["remote", "get-url", "origin"]),
        (&binary, &["seam", "state-path", "plan"]),
        (&binary, &["seam", "recall-here"]),
    ];
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..RUNS {
        for ((program, words), times) in programs.iter().zip(&mut times) {
            if program.exists() {
                times.push(start(program, words));
            }
        }
    }
    let [nothing, git, state, recall] = times.map(|times| {
        if times.is_empty() {
            f64::NAN
        } else {
            median(times.into_iter())
        }
    });
    table.add("/bin/true", format!("{nothing:.2} ms"), "", true);
    table.add(
        "git remote get-url origin",
        format!("{git:.2} ms"),
        "",
        true,
    );
    let (times, limit) = (state / nothing, 2.0);
    table.add(
        "seam state-path",
        format!("{state:.2} ms, {times:.1} x true"),
        "<= 2 x /bin/true",
        times <= limit,
    );
    table.add(
        "seam recall-here, 5000 notes",
        format!("{recall:.2} ms"),
        "<= 30 ms",
        recall <= 30.0,
    );
}

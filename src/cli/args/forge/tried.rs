//! Words of other tools that people try, and the command that does it here.

/// What to run instead of a word: the command it was tried on, the words, and the answer.
const TRIED: &[(&str, &[&str], &str)] = &[
    (
        "",
        &["log"],
        "`helmdeck forge session log \"TEXT\"` adds an entry to the progress; `git log` shows the commits",
    ),
    (
        "",
        &["rollback", "undo", "revert"],
        "`helmdeck forge recover assess` says whether to go back, and `helmdeck forge recover apply` goes back",
    ),
    (
        "",
        &["close", "resolve"],
        "`helmdeck forge done` closes the issue of the focus, `helmdeck forge issue done KEY` any other",
    ),
    (
        "",
        &["list", "ls", "show", "todo"],
        "`helmdeck forge issue list`, `helmdeck forge features list` or `helmdeck forge knowledge search`",
    ),
    (
        "",
        &["add", "new", "create"],
        "`helmdeck forge issue add TITLE`, or `helmdeck forge features add NAME --test TEST`",
    ),
    (
        "",
        &["next"],
        "`helmdeck forge ready` lists what can be started, and `helmdeck forge start` takes the first",
    ),
    (
        "",
        &["end", "stop"],
        "`helmdeck forge done` finishes the work, and `helmdeck forge session end` ends only the session",
    ),
    (
        "",
        &["test", "check"],
        "`helmdeck forge verify` runs the tests of the focus's feature",
    ),
    (
        "",
        &["search", "recall", "find"],
        "`helmdeck forge knowledge search WORDS`",
    ),
    (
        "",
        &["brief", "context"],
        "`helmdeck forge prime` prints the briefing",
    ),
    (
        "features",
        &["done", "pass", "passing", "complete", "finish"],
        "nobody marks a feature as working: `helmdeck forge verify ID` runs its tests",
    ),
    ("features", &["start", "begin"], "`helmdeck forge start ID`"),
    (
        "features",
        &["verify", "test"],
        "`helmdeck forge verify ID`",
    ),
    (
        "features",
        &["remove", "delete"],
        "`helmdeck forge features set ID --remove`",
    ),
    ("issue", &["start", "begin"], "`helmdeck forge start KEY`"),
    ("focus", &["show", "get"], "`helmdeck forge status`"),
    ("focus", &["clear"], "`helmdeck forge focus set --clear`"),
    (
        "session",
        &["status", "list", "show"],
        "`helmdeck forge status`",
    ),
    ("session", &["learn"], "`helmdeck forge remember TEXT`"),
    (
        "features",
        &["show", "get"],
        "`helmdeck forge features list`",
    ),
    (
        "knowledge",
        &["supersede", "replace"],
        "`helmdeck forge knowledge add --replaces ID --context WHEN --approach WHAT`",
    ),
    (
        "knowledge",
        &["show", "get"],
        "`helmdeck forge knowledge search ID` shows that entry",
    ),
    (
        "session",
        &["stop", "finish", "done"],
        "`helmdeck forge session end`",
    ),
    (
        "checkpoint",
        &["apply", "restore", "rollback"],
        "`helmdeck forge recover apply` goes back to the last good one",
    ),
];

/// Returns what to run instead of a word that is no command here.
///
/// `path` is the command that it was tried on: `helmdeck forge features`.
pub(crate) fn tip(path: &str, word: &str) -> Option<&'static str> {
    let below = path.strip_prefix("helmdeck forge")?.trim_start();
    let tried = TRIED
        .iter()
        .find(|(on, words, _)| *on == below && words.contains(&word));
    tried.map(|(_, _, answer)| *answer)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_tip_names_commands_that_exist() {
        for (on, words, answer) in TRIED {
            for command in answer
                .split('`')
                .skip(1)
                .step_by(2)
                .filter(|command| !command.starts_with("git "))
            {
                let parsed =
                    Cli::try_parse_from(command.split(' ').map(|word| word.trim_matches('"')));
                assert!(parsed.is_ok(), "{command}");
            }
            for word in *words {
                let tried = ["helmdeck", "forge"]
                    .into_iter()
                    .chain(on.split(' '))
                    .chain([*word, "x"]);
                let tried = Cli::try_parse_from(tried.filter(|word| !word.is_empty()));
                assert!(
                    tried.is_err(),
                    "`{on} {word}` is a command: it needs no tip"
                );
                let path = format!("helmdeck forge {on}");
                assert_eq!(tip(path.trim_end(), word), Some(*answer));
            }
        }
        assert_eq!(tip("helmdeck pack", "log"), None);
    }
}

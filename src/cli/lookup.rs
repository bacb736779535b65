//! Finds the pack that a command names, or says which one was probably meant.

use helmdeck_core::suggest::nearest;
use helmdeck_core::{Code, Error, PackName, text};
use helmdeck_engine::{Engine, PackInfo};

use crate::args::PackRef;
use crate::exit::{Failure, Result};
use crate::output::Output;
use crate::terminal;
use crate::wire::{MemoryUse, Setup};
use helmdeck_core::text::columns;

/// How many packs of a family an error names.
const NAMED: usize = 12;

/// A pack's name and description.
type Known<'a> = (&'a str, &'a str);

/// Finds a pack; waits for the MCP server behind it.
///
/// # Errors
/// `not_found` with the packs that were probably meant, or why the MCP server does not answer.
pub(crate) async fn find(engine: &Engine, pack: &PackRef, output: Output) -> Result<PackInfo> {
    let error = match PackName::new(&pack.name) {
        Ok(_) => {
            engine.await_pack(&pack.name).await?;
            match engine.pack(&pack.name, pack.version) {
                Ok(info) => return Ok(info),
                Err(error) => error,
            }
        }
        Err(message) => Error::new(Code::NotFound, message),
    };
    let packs = engine.all_packs();
    let known: Vec<Known> = packs
        .iter()
        .map(|pack| (pack.name.as_str(), pack.description.as_str()))
        .collect();
    Err(meant(&pack.name, &known, room(output)).unwrap_or_else(|| {
        let near = nearest(
            &pack.name,
            known
                .iter()
                .map(|(name, _)| *name)
                .filter(|name| *name != pack.name),
        );
        let failure = Failure::from(error);
        match near {
            Some(near) => {
                failure.with_hint(format!("`helmdeck pack show {near}` prints what it takes"))
            }
            None => failure,
        }
    }))
}

/// Makes the failure of a command that names no pack: it shows the families of the packs that can
/// work.
pub(crate) async fn no_pack(setup: &Setup, command: &str) -> Failure {
    let engine = match setup.engine(MemoryUse::None, false).await {
        Ok(engine) => engine,
        Err(failure) => return failure,
    };
    let packs = engine.packs();
    setup.shut_down(&engine).await;
    let mut rows: Vec<Vec<String>> = Vec::new();
    for group in packs.chunk_by(|a, b| a.family() == b.family()) {
        let verbs = group
            .iter()
            .map(|pack| pack.name.as_str().trim_start_matches(pack.family()));
        rows.push(vec![
            group[0].family().to_owned(),
            verbs.collect::<Vec<_>>().join(" "),
        ]);
    }
    let example = packs.first().map_or("repo", PackInfo::family).to_owned();
    Failure::usage("no pack is named").with_lines(listed("no pack is named", &rows, room(setup.output))).with_hint(
        format!("`helmdeck {command} {example}` says what the packs of a family do, `helmdeck pack list` all"),
    )
}

/// Returns how many cells a line below an error has, `None` without a limit.
fn room(output: Output) -> Option<usize> {
    output
        .terminals
        .stderr
        .then(|| terminal::width().saturating_sub(2))
}

/// Returns the lines of an error: what is wrong, then a table.
fn listed(what: &str, rows: &[Vec<String>], room: Option<usize>) -> Vec<String> {
    let table = columns(rows);
    let rows = table
        .lines()
        .map(|row| room.map_or_else(|| row.to_owned(), |room| terminal::cut(row, room)));
    std::iter::once(what.to_owned()).chain(rows).collect()
}

/// Returns the failure that names what was probably meant; `None` if the engine's own error says
/// more.
fn meant(name: &str, known: &[Known], room: Option<usize>) -> Option<Failure> {
    let shown = text::escaped(name, 80);
    let not_found = |message: &str| Failure::from(Error::new(Code::NotFound, message.to_owned()));
    if known.iter().any(|(pack, _)| *pack == name) {
        // The version is missing.
        return None;
    }
    if let Some(family) = family(name, known) {
        let start = format!("{family}.");
        let packs: Vec<&Known> = known
            .iter()
            .filter(|(pack, _)| pack.starts_with(&start))
            .collect();
        let names: Vec<&str> = packs.iter().take(NAMED).map(|(pack, _)| *pack).collect();
        let more = packs.len().saturating_sub(NAMED);
        let more = if more == 0 {
            String::new()
        } else {
            format!(" and {more} more")
        };
        let what = if family == name {
            "is a family of packs"
        } else {
            "is not registered"
        };
        let rows: Vec<Vec<String>> = packs
            .iter()
            .take(NAMED)
            .map(|(pack, about)| {
                vec![
                    (*pack).to_owned(),
                    about.lines().next().unwrap_or_default().to_owned(),
                ]
            })
            .collect();
        let failure = not_found(&format!(
            "pack \"{shown}\" {what}; did you mean one of {}{more}?",
            names.join(", ")
        ));
        let mut lines = listed(&format!("not_found: pack \"{shown}\" {what}"), &rows, room);
        lines.extend((!more.is_empty()).then(|| more.trim_start().to_owned()));
        return Some(failure.with_lines(lines).with_hint(format!(
            "`helmdeck pack show {}` prints what it takes",
            names[0]
        )));
    }
    // The name of a tool for MCP clients, other separators, or the last part alone.
    let spelled = name
        .to_lowercase()
        .replace("__", ".")
        .replace(['/', ':'], ".")
        .replace('-', "_");
    let found = known.iter().find(|(pack, _)| *pack == spelled);
    let (found, _) = found.or_else(|| {
        known
            .iter()
            .find(|(pack, _)| pack.rsplit('.').next() == Some(&*spelled))
    })?;
    let failure = not_found(&format!(
        "pack \"{shown}\" is not registered; did you mean \"{found}\"?"
    ));
    Some(failure.with_hint(format!("`helmdeck pack show {found}` prints what it takes")))
}

/// Returns the family that a name is, or is near to.
fn family<'a>(name: &str, known: &[Known<'a>]) -> Option<&'a str> {
    let families = || known.iter().filter_map(|(pack, _)| pack.split('.').next());
    let wanted = name.trim_end_matches(['.', '*']);
    families().find(|family| *family == wanted).or_else(|| {
        let is_verb = known
            .iter()
            .any(|(pack, _)| pack.rsplit('.').next() == Some(wanted));
        nearest(wanted, families()).filter(|_| !wanted.contains('.') && !is_verb)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Known] = &[
        ("github.get_issue", "Gets an issue\nand more"),
        ("github.search", "Searches"),
        ("repo.fetch", "Fetches a repository"),
        ("repo.map", "Maps a source tree"),
        ("team.a.search", "Searches"),
    ];

    fn said(name: &str) -> String {
        meant(name, KNOWN, Some(24))
            .map(|failure| failure.text())
            .unwrap_or_default()
    }

    #[test]
    fn family_proposes_its_packs() {
        for (name, what) in [
            ("repo", "is a family of packs"),
            ("repo.", "is not registered"),
            ("rpo", "is not registered"),
        ] {
            let rows = "\n  repo.fetch  Fetches a r…\n  repo.map    Maps a sour…\n";
            let hint = "  hint: `helmdeck pack show repo.fetch` prints what it takes";
            assert_eq!(
                said(name),
                format!("error: not_found: pack \"{name}\" {what}{rows}{hint}")
            );
        }
        let problem = meant("repo", KNOWN, None).unwrap().problem();
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .ends_with("did you mean one of repo.fetch, repo.map?"),
            "{problem}"
        );
    }

    #[test]
    fn long_family_is_cut() {
        let names: Vec<String> = (10..30).map(|number| format!("many.p{number}")).collect();
        let known: Vec<Known> = names
            .iter()
            .map(|name| (name.as_str(), "One of many"))
            .collect();
        let text = meant("many", &known, None).unwrap().text();
        assert!(
            text.contains("\n  many.p21  One of many\n  and 8 more\n")
                && !text.contains("many.p22"),
            "{text}"
        );
    }

    #[test]
    fn other_spellings_propose_the_pack() {
        for (name, found) in [
            ("map", "repo.map"),
            ("repo__map", "repo.map"),
            ("Repo/Map", "repo.map"),
            ("github:get-issue", "github.get_issue"),
            ("search", "github.search"),
        ] {
            let text = said(name);
            assert!(
                text.contains(&format!("did you mean \"{found}\"?")),
                "{name}: {text}"
            );
            assert!(
                text.contains(&format!("`helmdeck pack show {found}`")),
                "{name}: {text}"
            );
        }
    }

    #[test]
    fn engine_error_stays_without_proposal() {
        for name in ["repo.map", "repo.mapp", "zzz.yyy", "zzzzzz"] {
            assert!(meant(name, KNOWN, None).is_none(), "{name}: {}", said(name));
        }
    }
}

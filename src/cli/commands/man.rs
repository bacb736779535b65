//! `helmdeck man`: writes the man pages that packages install.

use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use crate::args::Cli;
use crate::env::ProcessEnvironment;
use crate::exit::{Failure, Result};
use crate::output::Output;

/// Writes `helmdeck.1` and a page for each command, like `helmdeck-run.1`.
///
/// # Errors
/// A failure that names the page or the folder that cannot be written.
pub(crate) fn run(folder: &Path, env: &ProcessEnvironment, output: &Output) -> Result<()> {
    let folder = env.absolute(folder)?;
    let cannot = |path: &Path, error: std::io::Error| {
        Failure::usage(format!("cannot write {}: {error}", path.display()))
    };
    std::fs::create_dir_all(&folder).map_err(|error| cannot(&folder, error))?;
    let pages = pages()?;
    for (name, page) in &pages {
        let path = folder.join(name);
        std::fs::write(&path, page).map_err(|error| cannot(&path, error))?;
    }
    output.text(&format!(
        "wrote {} pages to {}",
        pages.len(),
        folder.display()
    ))
}

/// Returns the file name and the text of every page.
fn pages() -> Result<Vec<(String, Vec<u8>)>> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add(&mut pages, &command)?;
    Ok(pages)
}

/// Adds the page of a command, then those of its subcommands.
fn add(pages: &mut Vec<(String, Vec<u8>)>, command: &Command) -> Result<()> {
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render(&mut page)?;
    pages.push((man.get_filename(), page));
    let inner = command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set());
    inner.into_iter().try_for_each(|inner| add(pages, inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let pages = pages().unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in [
            "helmdeck.1",
            "helmdeck-run.1",
            "helmdeck-cache-purge.1",
            "helmdeck-forge-checkpoint-create.1",
        ] {
            assert!(names.contains(&name), "{name} is not in {names:?}");
        }
        assert!(!names.contains(&"helmdeck-man.1"));
        let run = pages
            .iter()
            .find(|(name, _)| name == "helmdeck-run.1")
            .unwrap();
        let text = String::from_utf8(run.1.clone()).unwrap();
        assert!(
            text.contains(r"\-\-no\-cache") && text.contains("helmdeck run"),
            "{text}"
        );
    }
}

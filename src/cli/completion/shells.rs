//! Shells that can ask for completions, and the scripts that make them ask.

use std::ffi::OsString;
use std::io::{Error, Write};
use std::path::Path;

use clap_complete::Shell;
use clap_complete::engine::complete;
use clap_complete::env::{Elvish, EnvCompleter, Powershell, Shells};

use crate::output::printable;

/// All shells.
pub(super) const ALL: Shells<'static> = Shells(&[&BASH, &ZSH, &FISH, &Elvish, &Powershell]);

/// bash, also of versions whose words end at `=`.
const BASH: Scripted = Scripted {
    name: "bash",
    script: include_str!("helmdeck.bash"),
};
/// zsh, sourced or as a file of `fpath`.
const ZSH: Scripted = Scripted {
    name: "zsh",
    script: include_str!("helmdeck.zsh"),
};
/// fish.
const FISH: Scripted = Scripted {
    name: "fish",
    script: include_str!("helmdeck.fish"),
};

/// Shell with a script of ours, which asks with the words up to the cursor.
struct Scripted {
    name: &'static str,
    script: &'static str,
}

impl EnvCompleter for Scripted {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is(&self, name: &str) -> bool {
        self.name == name
    }

    fn write_registration(
        &self,
        _: &str,
        _: &str,
        _: &str,
        _: &str,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        out.write_all(self.script.as_bytes())
    }

    /// Writes a line for each candidate: the word, and what it means after a tab.
    fn write_complete(
        &self,
        command: &mut clap::Command,
        words: Vec<OsString>,
        folder: Option<&Path>,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        let last = words.len().saturating_sub(1);
        for candidate in complete(command, words, last, folder)? {
            let Some(word) = candidate
                .get_value()
                .to_str()
                .filter(|word| !word.contains(char::is_control))
            else {
                continue;
            };
            let help = candidate
                .get_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            match printable(help.lines().next().unwrap_or_default().trim())
                .replace('\t', " ")
                .as_str()
            {
                "" => writeln!(out, "{word}")?,
                help => writeln!(out, "{word}\t{help}")?,
            }
        }
        Ok(())
    }
}

/// Returns the script that a user sources, or that a package installs.
///
/// # Errors
/// A failure if there is no completion for this shell.
pub(crate) fn script(shell: Shell) -> Result<Vec<u8>, Error> {
    let mut script = Vec::new();
    let name = shell.to_string();
    let known = ALL
        .completer(&name)
        .ok_or_else(|| Error::other(format!("no completion for {name}")))?;
    known.write_registration(
        super::VARIABLE,
        "helmdeck",
        "helmdeck",
        "helmdeck",
        &mut script,
    )?;
    Ok(script)
}

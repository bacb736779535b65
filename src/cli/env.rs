//! The process environment. Only this file reads it, once, at the start.
//!
//! Tests build their own. No value is printed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::exit::{Failure, Result};

/// Variables and working directory of the process.
#[derive(Clone)]
pub(crate) struct ProcessEnvironment {
    variables: BTreeMap<String, OsString>,
    working_dir: Option<PathBuf>,
}

impl ProcessEnvironment {
    /// Reads the environment of this process. Variables whose names are not UTF-8 are left out.
    pub(crate) fn of_process() -> Self {
        Self {
            variables: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
                .collect(),
            working_dir: std::env::current_dir().ok(),
        }
    }

    /// Returns the arguments of this process, the program's name first.
    pub(crate) fn arguments() -> impl Iterator<Item = OsString> {
        std::env::args_os()
    }

    /// Returns where this program is, `None` if the system does not say.
    #[expect(
        clippy::unused_self,
        reason = "it is part of what the process was given"
    )]
    pub(crate) fn program(&self) -> Option<PathBuf> {
        std::env::current_exe().ok()
    }

    /// Returns the working directory, `None` if it does not exist.
    pub(crate) fn working_dir(&self) -> Option<&Path> {
        self.working_dir.as_deref()
    }

    /// Returns what relative paths need of it: the working directory, and no variable.
    #[cfg(feature = "serve")]
    pub(crate) fn place(&self) -> Self {
        Self {
            variables: BTreeMap::new(),
            working_dir: self.working_dir.clone(),
        }
    }

    /// Makes an environment of pairs, with `/work` as the working directory.
    #[cfg(test)]
    pub(crate) fn of(pairs: &[(&str, &str)]) -> Self {
        Self {
            variables: pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), OsString::from(value)))
                .collect(),
            working_dir: Some(PathBuf::from("/work")),
        }
    }

    /// Returns a variable as text, `None` if it is not set. An empty value is a value.
    ///
    /// # Errors
    /// A configuration failure that names the variable if its value is not UTF-8.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>> {
        self.variables
            .get(name)
            .map(|value| {
                value
                    .to_str()
                    .ok_or_else(|| Failure::config(format!("{name} is not UTF-8 text")))
            })
            .transpose()
    }

    /// Returns a variable as a path, `None` if it is not set or empty.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.variables
            .get(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    }

    /// Returns the names of all variables that start with `HELMDECK_`, in order.
    pub(crate) fn ours(&self) -> impl Iterator<Item = &str> {
        self.variables
            .keys()
            .map(String::as_str)
            .filter(|name| name.starts_with("HELMDECK_"))
    }

    /// Makes a path absolute: relative ones start at the working directory.
    ///
    /// # Errors
    /// A failure if the path is relative and there is no working directory (it was deleted).
    pub(crate) fn absolute(&self, path: &Path) -> Result<PathBuf> {
        if path.is_absolute() {
            return Ok(path.to_owned());
        }
        let base = self.working_dir.as_ref().ok_or_else(|| {
            Failure::usage(format!(
                "{} is relative, and the working directory does not exist",
                path.display()
            ))
        })?;
        Ok(base.join(path))
    }

    /// Returns helmdeck's folder below an XDG base folder (XDG Base Directory Specification 0.8).
    ///
    /// The base is the variable if it holds an absolute path, else `fallback` below the home
    /// folder. `None` without a home.
    pub(crate) fn xdg(&self, variable: &str, fallback: &str) -> Option<PathBuf> {
        self.path(variable)
            .filter(|path| path.is_absolute())
            .or_else(|| {
                Some(
                    self.path("HOME")
                        .filter(|home| home.is_absolute())?
                        .join(fallback),
                )
            })
            .map(|base| base.join("helmdeck"))
    }
}

helmdeck_core::redacted_debug!(ProcessEnvironment, this => variables = this.variables.len());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xdg_folders_follow_the_specification() {
        let env = ProcessEnvironment::of(&[
            ("HOME", "/home/a"),
            ("XDG_DATA_HOME", "relative/is/ignored"),
        ]);
        assert_eq!(
            env.xdg("XDG_DATA_HOME", ".local/share"),
            Some("/home/a/.local/share/helmdeck".into())
        );
        let env = ProcessEnvironment::of(&[("XDG_DATA_HOME", "/data")]);
        assert_eq!(
            env.xdg("XDG_DATA_HOME", ".local/share"),
            Some("/data/helmdeck".into())
        );
        assert_eq!(
            ProcessEnvironment::of(&[]).xdg("XDG_DATA_HOME", ".local/share"),
            None
        );
    }

    #[test]
    fn debug_shows_no_value() {
        let env = ProcessEnvironment::of(&[("HELMDECK_MEMORY_KEY", "canary")]);
        assert!(!format!("{env:?}").contains("canary"));
        assert_eq!(env.ours().collect::<Vec<_>>(), ["HELMDECK_MEMORY_KEY"]);
    }
}

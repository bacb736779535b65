//! The file layer: finds and reads the configuration file, with the line of each value.
//!
//! It never looks in the working folder.

use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use helmdeck_core::text::line_of;
use helmdeck_seam::readers::{Disk, Look as _};
use toml::Table;
use toml::de::{DeTable, DeValue};

use super::layers::{Key, Layers};
use super::origin::{Origin, Problem};
use crate::env::ProcessEnvironment;
use crate::exit::Result;

/// The largest configuration file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The configuration file that is in force.
#[derive(Debug, Clone)]
pub(crate) struct ConfigFile {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Whether the user named the file; then it must exist.
    pub(crate) named: bool,
}

/// Finds the file: `--config`, else `HELMDECK_CONFIG`, else the XDG config folder.
///
/// `None` without a home folder.
///
/// # Errors
/// A failure if the path is relative and there is no working directory.
pub(crate) fn find(flag: Option<&Path>, env: &ProcessEnvironment) -> Result<Option<ConfigFile>> {
    let named = flag
        .map(Path::to_owned)
        .or_else(|| env.path("HELMDECK_CONFIG"));
    if let Some(path) = named {
        return Ok(Some(ConfigFile {
            path: env.absolute(&path)?,
            named: true,
        }));
    }
    Ok(env
        .xdg("XDG_CONFIG_HOME", ".config")
        .map(|folder| ConfigFile {
            path: folder.join("helmdeck.toml"),
            named: false,
        }))
}

/// Reads the file's text, `None` if it does not exist and the user did not name it.
///
/// It reads no more than the limit of a configuration. A file that the user did not name must be a
/// regular file: a pipe would make every command wait.
pub(crate) fn read(found: &ConfigFile) -> std::result::Result<Option<String>, Problem> {
    let fail =
        |message: &dyn std::fmt::Display| Problem::new(found.path.display(), message.to_string());
    match std::fs::metadata(&found.path) {
        // A user that names `/dev/stdin`, or a pipe of the shell, writes into it.
        Ok(about) if found.named && !about.is_file() => {
            let mut bytes = Vec::new();
            let read = File::open(&found.path)
                .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
            read.map_err(|error| fail(&error))?;
            text(found, bytes).map(Some)
        }
        _ => read_plain(found),
    }
}

/// As [`read`], but reads only a regular file, so that it never waits. `/dev/null` counts as empty.
pub(crate) fn read_plain(found: &ConfigFile) -> std::result::Result<Option<String>, Problem> {
    let fail =
        |message: &dyn std::fmt::Display| Problem::new(found.path.display(), message.to_string());
    if found.path == Path::new("/dev/null") {
        return Ok(Some(String::new()));
    }
    let most = usize::try_from(MAX_BYTES).unwrap_or(usize::MAX);
    match Disk
        .read(&found.path, most.saturating_add(1))
        .map_err(|error| fail(&error))?
    {
        Some(contents) => text(found, contents.bytes).map(Some),
        None if found.named => Err(fail(&"there is no such file")),
        None => Ok(None),
    }
}

fn text(found: &ConfigFile, bytes: Vec<u8>) -> std::result::Result<String, Problem> {
    let fail = |message: &str| Problem::new(found.path.display(), message);
    if bytes.len() as u64 > MAX_BYTES {
        return Err(fail("the file is over 1 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| fail("it is not UTF-8 text"))
}

/// Adds the file's settings. One error does not hide the next.
pub(crate) fn add(layers: &mut Layers, name: &str, text: &str) -> Vec<Problem> {
    let mut adding = Adding {
        layers,
        name,
        text,
        problems: Vec::new(),
    };
    match (DeTable::parse(text), text.parse::<Table>()) {
        (Ok(places), Ok(values)) => adding.walk(&mut Vec::new(), places.get_ref(), &values),
        (Err(error), _) | (_, Err(error)) => {
            let origin = adding.origin(error.span().unwrap_or_default());
            adding
                .problems
                .push(Problem::new(origin, error.message().replace('\n', ", ")));
        }
    }
    adding.problems
}

struct Adding<'a> {
    layers: &'a mut Layers,
    name: &'a str,
    text: &'a str,
    problems: Vec<Problem>,
}

impl Adding<'_> {
    fn origin(&self, span: Range<usize>) -> Origin {
        Origin::File {
            file: self.name.to_owned(),
            line: line_of(self.text, span.start),
        }
    }

    /// Walks two parses of one text: `places` has the lines, `values` the values.
    fn walk(&mut self, at: &mut Key, places: &DeTable<'_>, values: &Table) {
        for (name, place) in places {
            let Some(value) = values.get(name.get_ref().as_ref()) else {
                continue;
            };
            at.push(name.get_ref().to_string());
            let origin = self.origin(name.span());
            match (place.get_ref(), value) {
                (DeValue::Table(inner), toml::Value::Table(values)) if !self.layers.is_open(at) => {
                    if self.layers.is_table(at) {
                        self.walk(at, inner, values);
                    } else {
                        let message = match self
                            .layers
                            .get(&at.iter().map(String::as_str).collect::<Vec<_>>())
                        {
                            Some(_) => format!("\"{}\" is a value, not a table", at.join(".")),
                            None => self.layers.unknown(at),
                        };
                        self.problems.push(Problem::new(origin, message));
                    }
                }
                _ if self.layers.is_table(at) => {
                    self.problems.push(Problem::new(
                        origin,
                        format!("\"{}\" is a table, not a value", at.join(".")),
                    ));
                }
                _ => {
                    if let Err(problem) = self.layers.set(at.clone(), value.clone(), origin) {
                        self.problems.push(problem);
                    }
                }
            }
            at.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        add(&mut Layers::defaults(), "h.toml", text)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn every_problem_has_its_line_and_none_hides_another() {
        let text = "data_dir = 5\n\n[server]\nlisten = \"127.0.0.1:1\"\nlisen = \"x\"\n[sever]\na = 1\n[log.level]\n";
        assert_eq!(
            problems(text),
            [
                "h.toml:1: data_dir must be text in quotes",
                "h.toml:8: \"log.level\" is a value, not a table",
                "h.toml:5: unknown key \"server.lisen\"; did you mean \"listen\"?",
                "h.toml:6: unknown key \"sever\"; did you mean \"server\"?",
            ]
        );
        assert_eq!(
            problems("server = 1"),
            ["h.toml:1: \"server\" is a table, not a value"]
        );
        assert!(
            problems("[server]\nlisten = \"a\"\nlisten = \"b\"\n")[0]
                .starts_with("h.toml:3: duplicate")
        );
        assert!(problems("x = \n")[0].starts_with("h.toml:1: "));
    }

    #[test]
    fn values_of_the_file_remember_their_line() {
        let mut layers = Layers::defaults();
        assert_eq!(
            add(
                &mut layers,
                "h.toml",
                "\n[credentials]\n\"a.b\" = \"env:X\"\n"
            ),
            []
        );
        assert_eq!(
            layers
                .get(&["credentials", "a.b"])
                .unwrap()
                .origin
                .to_string(),
            "h.toml:3"
        );
    }

    #[test]
    fn the_file_is_found_by_flag_then_variable_then_xdg_and_never_in_the_working_folder() {
        let path = |flag: Option<&str>, pairs: &[(&str, &str)]| {
            find(flag.map(Path::new), &ProcessEnvironment::of(pairs))
                .unwrap()
                .map(|found| (found.path, found.named))
        };
        let all = [("HELMDECK_CONFIG", "/env.toml"), ("HOME", "/home/a")];
        assert_eq!(
            path(Some("flag.toml"), &all),
            Some(("/work/flag.toml".into(), true))
        );
        assert_eq!(path(None, &all), Some(("/env.toml".into(), true)));
        assert_eq!(
            path(None, &all[1..]),
            Some(("/home/a/.config/helmdeck/helmdeck.toml".into(), false))
        );
        assert_eq!(path(None, &[]), None);
    }

    #[test]
    fn a_named_file_must_be_there_and_the_usual_one_need_not() {
        let found = |named| ConfigFile {
            path: "/no/such/helmdeck.toml".into(),
            named,
        };
        assert!(read(&found(true)).is_err());
        assert_eq!(read(&found(false)), Ok(None));
    }

    #[test]
    fn nothing_makes_a_command_wait_but_what_was_named_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("helmdeck.toml");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        let found = |path: &str, named| ConfigFile {
            path: path.into(),
            named,
        };
        let usual = ConfigFile {
            path: pipe.clone(),
            named: false,
        };
        assert!(read(&usual).is_err());
        for named in [false, true] {
            assert!(
                read_plain(&ConfigFile {
                    path: pipe.clone(),
                    named
                })
                .is_err()
            );
            assert_eq!(
                read_plain(&found("/dev/null", named)),
                Ok(Some(String::new()))
            );
            assert!(read_plain(&found("/dev/zero", named)).is_err());
            assert!(read(&found("/dev/zero", named)).is_err());
        }
        // A user that names a pipe writes into it.
        let text = std::thread::scope(|scope| {
            scope.spawn(|| std::fs::write(&pipe, "data_dir = \"/d\"\n").unwrap());
            read(&ConfigFile {
                path: pipe.clone(),
                named: true,
            })
        });
        assert_eq!(text, Ok(Some("data_dir = \"/d\"\n".to_owned())));
        let large = folder.path().join("large.toml");
        for (bytes, fits) in [(1 << 20, true), ((1 << 20) + 1, false)] {
            std::fs::write(&large, "#".repeat(bytes)).unwrap();
            for read in [read, read_plain] {
                assert_eq!(
                    read(&ConfigFile {
                        path: large.clone(),
                        named: true
                    })
                    .is_ok(),
                    fits,
                    "{bytes}"
                );
            }
        }
    }
}

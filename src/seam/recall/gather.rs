//! Which notes may be recalled, in their order. Most are not opened here.

use std::path::PathBuf;

use crate::readers::{AlwaysLoad, Learned, LongTerm, Note, NoteFile, Priority, Topic, Vault};

use super::filter::filter;
use super::trouble::Troubles;
use crate::config::{QueryUse, SeamConfig};
use crate::error::Warning;
use crate::phase::{Phase, Read};
use crate::resolved::Resolved;

/// Maximum number of always-loaded notes whose priority is read; those after them have none.
const MOST_ASKED: usize = 256;
/// Maximum length read of a note for its priority, in bytes: front matter is seldom longer.
const HEAD: usize = 1_024;
/// Length of a list of invariants, in bytes, above which another begins.
const LIST: usize = 2_000;

/// Something that may be recalled.
#[derive(Debug)]
pub(super) struct Source {
    /// Its label.
    pub(super) label: String,
    pub(super) from: From,
}

/// Origin of its text.
#[derive(Debug)]
pub(super) enum From {
    /// A note that is read when there is room for it.
    File(PathBuf),
    /// A note that was read.
    Note(Note),
    /// A text.
    Text(String),
}

/// Candidates for a recall: those that come first, and those that come second.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pub(super) first: Vec<Source>,
    pub(super) second: Vec<Source>,
}

/// Returns what may be recalled. If there is no room for anything, nothing is opened.
pub(super) fn gather(
    resolved: &mut Resolved<'_>,
    config: &SeamConfig,
    phase: Phase,
    query: Option<&str>,
    has_room: bool,
) -> Sources {
    let mut gathered = Gathered {
        always: Vec::new(),
        project: Vec::new(),
        warnings: Vec::new(),
    };
    if let Some((vault, _)) = &resolved.vault {
        gathered.always_load(vault, has_room);
    }
    let forge = match resolved.forge(config) {
        Ok(forge) => forge,
        Err(warning) => {
            gathered.warnings.push(warning);
            None
        }
    };
    gathered.project(resolved, forge.as_ref(), phase);
    if config.query == QueryUse::Filter
        && has_room
        && let Some(query) = query
    {
        let mut troubles = Troubles::default();
        filter(
            &mut gathered.project,
            resolved.vault.as_ref().map(|(vault, _)| vault),
            query,
            &mut troubles,
        );
        gathered.warnings.extend(troubles.warning());
    }
    let Gathered {
        always,
        project,
        warnings,
    } = gathered;
    resolved.warnings.extend(warnings);
    if phase.project_first() {
        Sources {
            first: project,
            second: always,
        }
    } else {
        Sources {
            first: always,
            second: project,
        }
    }
}

struct Gathered {
    always: Vec<Source>,
    project: Vec<Source>,
    warnings: Vec<Warning>,
}

impl Gathered {
    fn always_load(&mut self, vault: &Vault<'_>, has_room: bool) {
        let AlwaysLoad {
            notes,
            hidden,
            unreadable,
        } = vault.always_load();
        for (folder, error) in unreadable {
            self.warnings.push(Warning::unreadable(format!(
                "{}: {error}",
                folder.display()
            )));
        }
        if let Some((note, newer)) = hidden.first() {
            let more = if hidden.len() > 1 {
                format!(" (and {} more notes)", hidden.len() - 1)
            } else {
                String::new()
            };
            let why = format!(
                "{}: {} has the same name and is newer{more}",
                note.display(),
                newer.display()
            );
            self.warnings.push(Warning::hidden(why));
        }
        let mut sources: Vec<(Priority, Source)> = Vec::with_capacity(notes.len());
        for (at, NoteFile { path, stem }) in notes.into_iter().enumerate() {
            // An unreadable note is reported when its turn comes.
            let head = if has_room && at < MOST_ASKED {
                vault.head(&path, HEAD).ok().flatten()
            } else {
                None
            };
            let priority = head.as_ref().map(Note::priority).unwrap_or_default();
            let from = match head {
                Some(note) if note.whole && !note.lossy => From::Note(note),
                // Of one that holds no longer, that is all there is to know.
                Some(note) if !note.holds() => continue,
                _ => From::File(path),
            };
            sources.push((
                priority,
                Source {
                    label: format!("always-load: {stem}"),
                    from,
                },
            ));
        }
        // Those of one priority stay in their order.
        sources.sort_by_key(|(priority, _)| *priority);
        self.always
            .extend(sources.into_iter().map(|(_, source)| source));
    }

    fn project(&mut self, resolved: &Resolved<'_>, forge: Option<&LongTerm<'_>>, phase: Phase) {
        let name = resolved.name();
        let place = resolved
            .vault
            .as_ref()
            .zip(name)
            .map(|((vault, _), name)| (vault, vault.project(name)));
        let prefix = name.map(|name| format!("{name}/")).unwrap_or_default();
        for older in resolved
            .vault
            .as_ref()
            .zip(name)
            .iter()
            .flat_map(|((vault, _), name)| vault.hidden_projects(name))
        {
            let newer = place
                .as_ref()
                .map(|(_, place)| place.path.display().to_string())
                .unwrap_or_default();
            self.warnings.push(Warning::hidden(format!(
                "{}: the project lies in {newer}",
                older.display()
            )));
        }
        let learned = forge
            .map(|forge| self.or_warn(forge.learned()))
            .unwrap_or_default();
        self.invariants(&prefix, &learned);
        for read in phase.reads() {
            if let Some((vault, place)) = place.as_ref().filter(|(_, place)| place.exists) {
                let path = place.path.join(read.path());
                if *read == Read::Index {
                    self.index(resolved, &prefix, path);
                } else {
                    self.folder(vault, &prefix, *read, path);
                }
            }
            if let Some(forge) = forge {
                self.forge(forge, &prefix, *read, &learned);
            }
        }
    }

    fn index(&mut self, resolved: &Resolved<'_>, prefix: &str, path: PathBuf) {
        // A broken link is reported when its turn comes.
        if resolved.look.about(&path).ok().flatten().is_some() {
            self.project.push(Source {
                label: format!("{prefix}{}", Read::Index.path()),
                from: From::File(path),
            });
        }
    }

    fn folder(&mut self, vault: &Vault<'_>, prefix: &str, read: Read, folder: PathBuf) {
        match vault.notes(&folder) {
            Ok(notes) => self
                .project
                .extend(notes.into_iter().map(|NoteFile { path, stem }| Source {
                    label: format!("{prefix}{}/{stem}", read.path()),
                    from: From::File(path),
                })),
            Err(error) => self.warnings.push(Warning::unreadable(format!(
                "{}: {error}",
                folder.display()
            ))),
        }
    }

    /// Adds the part of `.forge/` that corresponds to a folder of a vault.
    fn forge(&mut self, forge: &LongTerm<'_>, prefix: &str, read: Read, learned: &[Learned]) {
        let topic = match read {
            Read::Index => {
                if let Some(text) = self.or_warn(forge.architecture()) {
                    let from = From::Note(Note::parse(text.as_bytes(), true));
                    self.project.push(Source {
                        label: format!("{prefix}.forge/architecture"),
                        from,
                    });
                }
                return;
            }
            Read::Questions => {
                let lines = self.or_warn(forge.open_features());
                if !lines.is_empty() {
                    let text = lines.iter().map(|line| format!("- {line}\n")).collect();
                    self.project.push(Source {
                        label: format!("{prefix}.forge/features"),
                        from: From::Text(text),
                    });
                }
                return;
            }
            Read::Decisions => Topic::Decision,
            Read::Issues => Topic::Issue,
            Read::Style => return,
        };
        for entry in learned.iter().filter(|entry| entry.topic == topic) {
            let id: String = entry.id.chars().take(8).collect();
            let label = format!("{prefix}.forge/{}/{id}", read.path());
            self.project.push(Source {
                label,
                from: From::Text(entry.text()),
            });
        }
    }

    /// Adds the invariants, in lists. They are always loaded.
    fn invariants(&mut self, prefix: &str, learned: &[Learned]) {
        let mut lists: Vec<String> = Vec::new();
        for entry in learned
            .iter()
            .filter(|entry| entry.topic == Topic::Invariant)
        {
            let words: Vec<&str> = entry
                .texts
                .iter()
                .flat_map(|(_, text)| text.split_whitespace())
                .collect();
            let line = format!("- {}\n", words.join(" "));
            match lists
                .last_mut()
                .filter(|list| list.len() + line.len() <= LIST)
            {
                Some(list) => list.push_str(&line),
                None => lists.push(line),
            }
        }
        for (at, list) in lists.into_iter().enumerate() {
            let number = if at == 0 {
                String::new()
            } else {
                format!(" ({})", at + 1)
            };
            self.always.push(Source {
                label: format!("{prefix}.forge/invariants{number}"),
                from: From::Text(list),
            });
        }
    }

    fn or_warn<T: Default>(&mut self, result: Result<T, String>) -> T {
        result.unwrap_or_else(|why| {
            self.warnings.push(Warning::unreadable(why));
            T::default()
        })
    }
}

//! Which notes may be recalled, in their order. Most are not opened here.

use std::collections::BTreeSet;
use std::path::PathBuf;

use helmdeck_project::readers::{Learned, LongTerm, Note, NoteFile, Priority, Topic, Vault};

use crate::config::{QueryUse, SeamConfig};
use crate::error::Warning;
use crate::ground::Ground;
use crate::phase::{Phase, Read};

/// How many notes that are always loaded are asked for their priority; those after them have none.
const MOST_ASKED: usize = 256;
/// How much of a note is read for its priority, in bytes: as much as most notes have.
const HEAD: usize = 4_096;
/// How many notes a query is looked for in.
const MOST_SEARCHED: usize = 2_000;
/// How much of each, in bytes.
const SEARCHED: usize = 16 << 10;
/// How long a list of invariants is, in bytes, before another begins.
const LIST: usize = 2_000;

/// Something that may be recalled.
#[derive(Debug)]
pub(super) struct Source {
    /// What it is called.
    pub(super) label: String,
    pub(super) from: From,
}

/// Where its text comes from.
#[derive(Debug)]
pub(super) enum From {
    /// A note that is read when there is room for it.
    File(PathBuf),
    /// A note that was read.
    Note(Note),
    /// A text.
    Text(String),
}

/// What may be recalled: those that come first, and those that come second.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pub(super) first: Vec<Source>,
    pub(super) second: Vec<Source>,
}

pub(super) fn gather(ground: &mut Ground<'_>, config: &SeamConfig, phase: Phase, query: Option<&str>) -> Sources {
    let mut gathered = Gathered { always: Vec::new(), project: Vec::new(), warnings: Vec::new() };
    if let Some((vault, _)) = &ground.vault {
        gathered.always_load(vault);
    }
    let forge = match ground.forge(config) {
        Ok(forge) => forge,
        Err(warning) => {
            gathered.warnings.push(warning);
            None
        }
    };
    gathered.project(ground, forge.as_ref(), phase);
    if config.query == QueryUse::Filter
        && let Some(query) = query
    {
        gathered.filter(ground.vault.as_ref().map(|(vault, _)| vault), query);
    }
    let Gathered { always, project, warnings } = gathered;
    ground.warnings.extend(warnings);
    if phase.project_first() {
        Sources { first: project, second: always }
    } else {
        Sources { first: always, second: project }
    }
}

struct Gathered {
    always: Vec<Source>,
    project: Vec<Source>,
    warnings: Vec<Warning>,
}

impl Gathered {
    fn always_load(&mut self, vault: &Vault<'_>) {
        let notes = match vault.always_load() {
            Ok(notes) => notes,
            Err((folder, error)) => {
                self.warnings.push(Warning::unreadable(format!("{}: {error}", folder.display())));
                return;
            }
        };
        let mut sources: Vec<(Priority, Source)> = Vec::with_capacity(notes.len());
        for (at, NoteFile { path, stem }) in notes.into_iter().enumerate() {
            // What cannot be read is told when its turn comes.
            let head = if at < MOST_ASKED { vault.note(&path, HEAD).ok().flatten() } else { None };
            let priority = head.as_ref().map(Note::priority).unwrap_or_default();
            let from = match head {
                Some(note) if note.whole && !note.lossy => From::Note(note),
                _ => From::File(path),
            };
            sources.push((priority, Source { label: format!("always-load: {stem}"), from }));
        }
        // Those of one priority stay in their order.
        sources.sort_by_key(|(priority, _)| *priority);
        self.always.extend(sources.into_iter().map(|(_, source)| source));
    }

    fn project(&mut self, ground: &Ground<'_>, forge: Option<&LongTerm<'_>>, phase: Phase) {
        let name = ground.name();
        let place = ground.vault.as_ref().zip(name).map(|((vault, _), name)| (vault, vault.project(name)));
        let prefix = name.map(|name| format!("{name}/")).unwrap_or_default();
        let learned = forge.map(|forge| self.told(forge.learned())).unwrap_or_default();
        self.invariants(&prefix, &learned);
        for read in phase.reads() {
            if let Some((vault, place)) = place.as_ref().filter(|(_, place)| place.exists) {
                let path = place.path.join(read.path());
                if *read == Read::Index {
                    self.index(ground, &prefix, path);
                } else {
                    self.folder(vault, &prefix, *read, path);
                }
            }
            if let Some(forge) = forge {
                self.forge(forge, &prefix, *read, &learned);
            }
        }
    }

    fn index(&mut self, ground: &Ground<'_>, prefix: &str, path: PathBuf) {
        // A link that leads nowhere is told when its turn comes.
        if ground.look.about(&path).ok().flatten().is_some() {
            self.project.push(Source { label: format!("{prefix}{}", Read::Index.path()), from: From::File(path) });
        }
    }

    fn folder(&mut self, vault: &Vault<'_>, prefix: &str, read: Read, folder: PathBuf) {
        match vault.notes(&folder) {
            Ok(notes) => self.project.extend(notes.into_iter().map(|NoteFile { path, stem }| Source {
                label: format!("{prefix}{}/{stem}", read.path()),
                from: From::File(path),
            })),
            Err(error) => self.warnings.push(Warning::unreadable(format!("{}: {error}", folder.display()))),
        }
    }

    /// What of `.forge/` answers to a folder of a vault.
    fn forge(&mut self, forge: &LongTerm<'_>, prefix: &str, read: Read, learned: &[Learned]) {
        let topic = match read {
            Read::Index => {
                if let Some(text) = self.told(forge.architecture()) {
                    let from = From::Note(Note::parse(text.as_bytes(), true));
                    self.project.push(Source { label: format!("{prefix}.forge/architecture"), from });
                }
                return;
            }
            Read::Questions => {
                let lines = self.told(forge.open_features());
                if !lines.is_empty() {
                    let text = lines.iter().map(|line| format!("- {line}\n")).collect();
                    self.project.push(Source { label: format!("{prefix}.forge/features"), from: From::Text(text) });
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
            let mut texts = entry.texts.iter();
            let mut text = texts.next().map(|(_, text)| text.clone()).unwrap_or_default();
            for (name, more) in texts {
                text.push_str(&format!("\n\n{name}: {more}"));
            }
            self.project.push(Source { label, from: From::Text(text) });
        }
    }

    /// What must always hold is always loaded, in lists.
    fn invariants(&mut self, prefix: &str, learned: &[Learned]) {
        let mut lists: Vec<String> = Vec::new();
        for entry in learned.iter().filter(|entry| entry.topic == Topic::Invariant) {
            let words: Vec<&str> = entry.texts.iter().flat_map(|(_, text)| text.split_whitespace()).collect();
            let line = format!("- {}\n", words.join(" "));
            match lists.last_mut().filter(|list| list.len() + line.len() <= LIST) {
                Some(list) => list.push_str(&line),
                None => lists.push(line),
            }
        }
        for (at, list) in lists.into_iter().enumerate() {
            let number = if at == 0 { String::new() } else { format!(" ({})", at + 1) };
            self.always.push(Source { label: format!("{prefix}.forge/invariants{number}"), from: From::Text(list) });
        }
    }

    /// Leaves out the notes of the project that hold no word of a query, and puts those that hold most first: a word counts most in what
    /// a note is called, less in its tags, least in its text.
    fn filter(&mut self, vault: Option<&Vault<'_>>, query: &str) {
        let wanted = words(query);
        if wanted.is_empty() {
            return;
        }
        let mut scored: Vec<(usize, Source)> = Vec::new();
        for mut source in std::mem::take(&mut self.project).into_iter().take(MOST_SEARCHED) {
            if let From::File(path) = &source.from
                && let Some(note) = vault.and_then(|vault| vault.note(path, SEARCHED).ok().flatten())
                && note.whole
                && !note.lossy
            {
                source.from = From::Note(note);
            }
            let (tags, text) = match &source.from {
                From::Note(note) => (words(&note.tags().join(" ")), words(note.text())),
                From::Text(text) => (BTreeSet::new(), words(text)),
                From::File(_) => Default::default(),
            };
            let label = words(&source.label);
            let hits = |found: &BTreeSet<String>| wanted.intersection(found).count();
            let score = 4 * hits(&label) + 3 * hits(&tags) + hits(&text);
            if score > 0 {
                scored.push((score, source));
            }
        }
        scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        self.project = scored.into_iter().map(|(_, source)| source).collect();
    }

    fn told<T: Default>(&mut self, result: Result<T, String>) -> T {
        result.unwrap_or_else(|why| {
            self.warnings.push(Warning::unreadable(why));
            T::default()
        })
    }
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

//! Fills a budget with notes.
//!
//! A note without room is skipped, most often without being opened, so a large note never costs the
//! small ones after it.

use std::path::Path;

use crate::readers::{Kind, Note};
use helmdeck_core::text::visible;

use super::body::nested;
use super::gather::{From, Source, Sources};
use super::trouble::Troubles;
use crate::error::Warning;
use crate::resolved::Resolved;
use crate::text::one_line;
use crate::tokens::{bytes_of, quarters};

/// The smallest room, in quarters of a token, for which another note is opened.
pub(super) const SMALLEST: usize = 4 * 8;
/// Maximum number of omitted notes that are named.
const MOST_NAMED: usize = 20;
/// Usual maximum length of front matter, in bytes.
const FRONT: usize = 4 << 10;
/// Minimum cost of a note opened in vain, in bytes: to open one takes time, too.
const LEAST: usize = 512;

/// The notes that found room.
#[derive(Debug, Default)]
pub(super) struct Packed {
    /// The notes, each with its heading, in their order.
    pub(super) parts: Vec<String>,
    /// The first of those that had none, by what they are called.
    pub(super) omitted: Vec<String>,
    /// Number of omitted notes.
    pub(super) omitted_count: usize,
    /// Warning about what could not be read.
    pub(super) warning: Option<Warning>,
}

/// State of a source.
#[derive(Debug)]
enum Fate {
    /// Not looked at yet.
    Waiting,
    /// Not opened: its size in bytes. It has no room, or too much was opened in vain.
    Closed(usize),
    /// It was read, and has no room yet.
    Read(String),
    /// It is part of the answer.
    Taken(String),
    /// It holds no longer, is empty, or cannot be read.
    Nothing,
}

/// Fills a room, in quarters of a token, that is the part of a budget which the header leaves.
pub(super) fn pack(
    resolved: &Resolved<'_>,
    sources: Sources,
    budget: usize,
    room: usize,
    kept_percent: u8,
) -> Packed {
    let mut packer = Packer {
        resolved,
        left: room,
        vain: Vain::of(budget),
        troubles: Troubles::default(),
    };
    let Sources { first, second } = sources;
    let mut firsts: Vec<Fate> = first.iter().map(|_| Fate::Waiting).collect();
    let mut seconds: Vec<Fate> = second.iter().map(|_| Fate::Waiting).collect();
    // A part is kept for those that come second; what they leave goes back to those that come
    // first.
    let kept = if second.is_empty() {
        0
    } else {
        room * usize::from(kept_percent.min(100)) / 100
    };
    packer.fill(&first, &mut firsts, kept);
    packer.fill(&second, &mut seconds, 0);
    if kept > 0 {
        packer.fill(&first, &mut firsts, 0);
    }
    let mut packed = Packed {
        warning: packer.troubles.warning(),
        ..Packed::default()
    };
    for (source, fate) in first
        .iter()
        .chain(&second)
        .zip(firsts.into_iter().chain(seconds))
    {
        match fate {
            Fate::Taken(part) => packed.parts.push(part),
            Fate::Waiting | Fate::Closed(_) | Fate::Read(_) => {
                packed.omitted_count += 1;
                if packed.omitted.len() < MOST_NAMED {
                    packed.omitted.push(one_line(&source.label));
                }
            }
            Fate::Nothing => {}
        }
    }
    packed
}

struct Packer<'a> {
    resolved: &'a Resolved<'a>,
    /// What is left of the budget, in quarters of a token.
    left: usize,
    vain: Vain,
    troubles: Troubles,
}

impl Packer<'_> {
    /// Takes the sources with room, except for `kept`, which is reserved for others.
    fn fill(&mut self, sources: &[Source], fates: &mut [Fate], kept: usize) {
        for (source, fate) in sources.iter().zip(fates) {
            let room = self.left.saturating_sub(kept);
            if room < SMALLEST {
                break;
            }
            *fate = self.take(source, std::mem::replace(fate, Fate::Nothing), room);
        }
    }

    fn take(&mut self, source: &Source, fate: Fate, room: usize) -> Fate {
        let fate = match fate {
            Fate::Waiting => self.open(source, None, room),
            Fate::Closed(size) => self.open(source, Some(size), room),
            known => known,
        };
        match fate {
            Fate::Read(part) if quarters(&part) < room => {
                // With the empty line after it.
                self.left = self.left.saturating_sub(quarters(&part) + 1);
                Fate::Taken(part)
            }
            other => other,
        }
    }

    /// Gets the text of a source, unless it has no room in all likelihood.
    fn open(&mut self, source: &Source, size: Option<usize>, room: usize) -> Fate {
        let heading = format!("### {}\n\n", one_line(&source.label));
        let path = match &source.from {
            From::Text(text) => return read(&heading, text),
            From::Note(note) if note.holds() => return read(&heading, note.text()),
            From::Note(_) => return Fate::Nothing,
            From::File(path) => path,
        };
        let Some(size) = size.or_else(|| self.size(path)) else {
            return Fate::Nothing;
        };
        if !self
            .vain
            .lets(size, room.saturating_sub(quarters(&heading)))
        {
            return Fate::Closed(size);
        }
        let vault = self.resolved.vault.as_ref().map(|(vault, _)| vault);
        let note = match vault.map(|vault| vault.note(path, size)) {
            Some(Ok(Some(note))) => note,
            Some(Err(error)) => {
                self.troubles.add(path.display(), error);
                Note::default()
            }
            // It was taken away just now.
            None | Some(Ok(None)) => Note::default(),
        };
        if note.lossy && note.holds() {
            self.troubles.add(
                path.display(),
                "it is no UTF-8 text; what is none of it was replaced",
            );
        }
        let fate = match &note {
            gone if !gone.holds() => Fate::Nothing,
            // It grew just now.
            cut if !cut.whole && !cut.text().is_empty() => Fate::Closed(usize::MAX),
            note => read(&heading, note.text()),
        };
        let fits = matches!(&fate, Fate::Read(part) if quarters(part) < room);
        self.vain.count(if fits {
            note.bytes.saturating_sub(note.text().len())
        } else {
            note.bytes.max(LEAST)
        });
        fate
    }

    /// Returns how large a note is, in bytes, if there is one.
    fn size(&mut self, path: &Path) -> Option<usize> {
        let look = self.resolved.look;
        match look.behind(path) {
            Ok(Some(about)) if about.kind == Kind::File => {
                return Some(usize::try_from(about.size).unwrap_or(usize::MAX));
            }
            Ok(Some(_)) => self.troubles.add(path.display(), "it is no file"),
            Ok(None) if look.about(path).ok().flatten().is_some() => {
                self.troubles
                    .add(path.display(), "it is a link that leads nowhere");
            }
            Ok(None) => {}
            Err(error) => self.troubles.add(path.display(), error),
        }
        None
    }
}

/// Makes the part of an answer that a note would be.
///
/// Whatever its source, it is shown as untrusted text.
fn read(heading: &str, text: &str) -> Fate {
    let text = text.trim_end();
    if text.is_empty() {
        Fate::Nothing
    } else {
        Fate::Read(format!("{heading}{}\n", nested(&visible(text))))
    }
}

/// Limit for what is opened in vain, in bytes.
///
/// It grows with the budget, not with the number of notes.
#[derive(Debug)]
struct Vain {
    done: usize,
    /// Limit for notes that have room if little of them is text.
    few: usize,
    /// Limit in all.
    most: usize,
}

impl Vain {
    fn of(budget: usize) -> Self {
        Self {
            done: 0,
            few: FRONT + budget / 2,
            most: 8 * FRONT + 8 * budget,
        }
    }

    /// Returns whether a note of `size` bytes is opened, for a `room` in quarters of a token.
    fn lets(&self, size: usize, room: usize) -> bool {
        let most = if size > bytes_of(room).saturating_add(FRONT) {
            0
        } else if size > room {
            self.few
        } else if size + size / 3 > room {
            // A wide character is four quarters, and has three bytes at least.
            self.most / 2
        } else {
            self.most
        };
        self.done < most
    }

    fn count(&mut self, bytes: usize) {
        self.done = self.done.saturating_add(bytes);
    }
}

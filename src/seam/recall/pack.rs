//! Fills a budget with notes. One that has no room is passed over, so a large note never costs the small ones after it.

use helmdeck_project::readers::Note;

use super::gather::{From, Source, Sources};
use crate::error::Warning;
use crate::ground::Ground;
use crate::text::one_line;
use crate::tokens::{bytes_of, quarters};

/// The smallest room, in quarters of a token, for which another note is opened.
const SMALLEST: usize = 4 * 8;
/// After so many notes in a row that had no room, no more are opened.
const MOST_MISSES: usize = 16;

/// What found room.
#[derive(Debug, Default)]
pub(super) struct Packed {
    /// The notes, each with its heading, in their order.
    pub(super) parts: Vec<String>,
    /// What had none, by what it is called.
    pub(super) omitted: Vec<String>,
    /// What could not be read.
    pub(super) warning: Option<Warning>,
}

/// What became of a source.
#[derive(Debug)]
enum Fate {
    /// Nobody has looked yet.
    Waiting,
    /// It is part of the answer.
    Taken(String),
    /// It had no room.
    Missed,
    /// It holds no longer, is empty, or cannot be read.
    Nothing,
}

pub(super) fn pack(ground: &Ground<'_>, sources: Sources, room: usize, kept_percent: u8) -> Packed {
    let mut packer = Packer { ground, left: room, trouble: None, troubles: 0 };
    let Sources { first, second } = sources;
    let mut firsts: Vec<Fate> = first.iter().map(|_| Fate::Waiting).collect();
    let mut seconds: Vec<Fate> = second.iter().map(|_| Fate::Waiting).collect();
    // A part is kept for those that come second; what they leave goes back to those that come first.
    let kept = if second.is_empty() { 0 } else { room * usize::from(kept_percent.min(100)) / 100 };
    packer.fill(&first, &mut firsts, kept);
    packer.fill(&second, &mut seconds, 0);
    if kept > 0 {
        packer.fill(&first, &mut firsts, 0);
    }
    let mut packed = Packed { warning: packer.warning(), ..Packed::default() };
    for (source, fate) in first.iter().chain(&second).zip(firsts.into_iter().chain(seconds)) {
        match fate {
            Fate::Taken(part) => packed.parts.push(part),
            Fate::Waiting | Fate::Missed => packed.omitted.push(one_line(&source.label)),
            Fate::Nothing => {}
        }
    }
    packed
}

struct Packer<'a> {
    ground: &'a Ground<'a>,
    /// What is left of the budget, in quarters of a token.
    left: usize,
    /// The first note that could not be read, and why.
    trouble: Option<String>,
    troubles: usize,
}

impl Packer<'_> {
    /// Takes what has room, but for a part that is kept for others.
    fn fill(&mut self, sources: &[Source], fates: &mut [Fate], kept: usize) {
        let mut misses = 0;
        for (source, fate) in sources.iter().zip(fates) {
            let room = self.left.saturating_sub(kept);
            if room < SMALLEST || misses == MOST_MISSES {
                break;
            }
            if !matches!(fate, Fate::Waiting | Fate::Missed) {
                continue;
            }
            *fate = self.take(source, room);
            match fate {
                Fate::Taken(part) => {
                    // With the empty line after it.
                    self.left = self.left.saturating_sub(quarters(part) + 1);
                    misses = 0;
                }
                Fate::Missed => misses += 1,
                Fate::Waiting | Fate::Nothing => {}
            }
        }
    }

    fn take(&mut self, source: &Source, room: usize) -> Fate {
        let read;
        let text = match &source.from {
            From::Text(text) => text.trim_end(),
            From::Note(note) if note.holds() => note.text(),
            From::Note(_) => return Fate::Nothing,
            From::File(path) => {
                // Of what is longer than there is room for, no more is read.
                match self.ground.vault.as_ref().map(|(vault, _)| vault.note(path, bytes_of(room).saturating_add(1))) {
                    Some(Ok(Some(note))) => read = note,
                    Some(Err(error)) => return self.unreadable(source, &error.to_string()),
                    Some(Ok(None)) if self.ground.look.about(path).ok().flatten().is_some() => {
                        return self.unreadable(source, "it is a link that leads nowhere");
                    }
                    None | Some(Ok(None)) => return Fate::Nothing,
                }
                if !read.holds() {
                    return Fate::Nothing;
                }
                if read.lossy {
                    let _ = self.unreadable(source, "it is no UTF-8 text; what is none of it was replaced");
                }
                if !read.whole {
                    return Fate::Missed;
                }
                Note::text(&read)
            }
        };
        if text.is_empty() {
            return Fate::Nothing;
        }
        let part = format!("### {}\n\n{text}\n", one_line(&source.label));
        if quarters(&part) < room { Fate::Taken(part) } else { Fate::Missed }
    }

    fn unreadable(&mut self, source: &Source, why: &str) -> Fate {
        self.troubles += 1;
        if self.trouble.is_none() {
            let place = match &source.from {
                From::File(path) => path.display().to_string(),
                From::Note(_) | From::Text(_) => source.label.clone(),
            };
            self.trouble = Some(format!("{place}: {why}"));
        }
        Fate::Nothing
    }

    /// One line, however many notes cannot be read.
    fn warning(&self) -> Option<Warning> {
        let more = match self.troubles {
            0 | 1 => String::new(),
            troubles => format!(" (and {} more notes)", troubles - 1),
        };
        Some(Warning::unreadable(format!("{}{more}", self.trouble.as_ref()?)))
    }
}

//! The search: keywords first, then the patterns of their rules near them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use regex::bytes::Match as Part;

use super::checks::{Match, entropy};
use super::rules::{Compiled, RULES, Rule};
use super::view::{View, base64};

/// How far before a keyword a pattern may begin.
const BEFORE: usize = 256;
/// How far behind a keyword a pattern may end.
const AFTER: usize = 1024;
/// How much of the text before a match is shown to its check.
const SHOWN_BEFORE: usize = 32;
/// A word that a line break cuts in two is put together if it has between so many bytes.
const CUT_WORD: Range<usize> = 20..512;

/// The keywords of all rules.
struct Keywords {
    automaton: AhoCorasick,
    /// The rules of each keyword.
    rules: Vec<Vec<usize>>,
}

static KEYWORDS: LazyLock<Option<Keywords>> = LazyLock::new(|| {
    let (mut known, mut words, mut rules) = (HashMap::new(), Vec::new(), Vec::<Vec<usize>>::new());
    for (index, rule) in RULES.iter().enumerate() {
        for word in &rule.keywords {
            let at = *known.entry(*word).or_insert_with(|| {
                words.push(*word);
                rules.push(Vec::new());
                words.len() - 1
            });
            rules[at].push(index);
        }
    }
    // Of the kinds of automata, the one that takes little memory and is made quickly.
    let mut builder = AhoCorasick::builder();
    builder
        .ascii_case_insensitive(true)
        .kind(Some(AhoCorasickKind::ContiguousNFA));
    Some(Keywords {
        automaton: builder.build(words).ok()?,
        rules,
    })
});

/// Receives the index of a rule and where its value stands. Returns `false` to end the search.
pub(super) type OnFound<'a> = &'a mut dyn FnMut(usize, Range<usize>) -> bool;

/// Calls back with everything that a rule finds, until the callback returns `false`. Some may be
/// found several times.
pub(super) fn search(text: &[u8], found: OnFound<'_>) {
    let plain = View::without_escapes(text);
    // What looks like an escape may be a backslash before a token.
    if matches!(plain.text, Cow::Owned(_)) && !search_view(text, found) {
        return;
    }
    if !search_view(&plain.text, &mut |rule, part| {
        found(rule, plain.origin(&part))
    }) {
        return;
    }
    if let Some(decoded) = View::decoded(&plain.text)
        && !search_view(&decoded.text, &mut |rule, part| {
            found(rule, plain.origin(&decoded.origin(&part)))
        })
    {
        return;
    }
    for (run, decoded) in base64(&plain.text) {
        if !search_view(&decoded, &mut |rule, _| found(rule, plain.origin(&run))) {
            return;
        }
    }
}

fn search_view(text: &[u8], found: OnFound<'_>) -> bool {
    let Places { windows, cut_words } = places(text);
    windows
        .into_iter()
        .all(|(rule, window)| try_rule(rule, text, window, found))
        && cut_words.into_iter().all(|(rule, hit, word)| {
            let word = [&text[word.before], &text[word.after]].concat();
            try_rule(rule, &word, 0..word.len(), &mut |rule, _| {
                found(rule, hit.clone())
            })
        })
}

/// Where rules are tried.
#[derive(Default)]
pub(super) struct Places {
    /// The text around keywords, in the order of the rules. Those of one rule do not overlap.
    pub(super) windows: Vec<(usize, Range<usize>)>,
    /// Words that a line break cuts in two, and where their keyword stands: one for each rule and
    /// line break.
    pub(super) cut_words: Vec<(usize, Range<usize>, CutWord)>,
}

/// The parts of a word before and behind a line break.
#[derive(Clone)]
pub(super) struct CutWord {
    pub(super) before: Range<usize>,
    pub(super) after: Range<usize>,
}

pub(super) fn places(text: &[u8]) -> Places {
    let mut places = Places::default();
    let Some(keywords) = KEYWORDS.as_ref() else {
        return places;
    };
    let mut last: Vec<Option<usize>> = vec![None; RULES.len()];
    let mut last_break = vec![0; RULES.len()];
    for hit in keywords.automaton.find_overlapping_iter(text) {
        let word = cut_word(text, hit.range());
        for rule in &keywords.rules[hit.pattern().as_usize()] {
            if let Some(word) = &word
                && std::mem::replace(&mut last_break[*rule], word.after.start) != word.after.start
            {
                places.cut_words.push((*rule, hit.range(), word.clone()));
            }
            let window = hit.start().saturating_sub(BEFORE)..text.len().min(hit.end() + AFTER);
            match last[*rule].map(|last| &mut places.windows[last].1) {
                Some(last) if window.start <= last.end => last.end = window.end,
                _ => {
                    last[*rule] = Some(places.windows.len());
                    places.windows.push((*rule, window));
                }
            }
        }
    }
    places.windows.sort_by_key(|(rule, _)| *rule);
    places
}

/// Returns the word that holds a keyword and that a line break behind the keyword cuts in two.
fn cut_word(text: &[u8], keyword: Range<usize>) -> Option<CutWord> {
    let is_part = |byte: &&u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'+' | b'/' | b'=')
    };
    let length = |text: &[u8]| text.iter().take(CUT_WORD.end).take_while(is_part).count();
    let end = keyword.end + length(&text[keyword.end..]);
    let rest = text[end..]
        .strip_prefix(b"\r")
        .unwrap_or(&text[end..])
        .strip_prefix(b"\n")?;
    let after = text.len() - rest.len()..text.len() - rest.len() + length(rest);
    let start = keyword.start
        - text[..keyword.start]
            .iter()
            .rev()
            .take(BEFORE)
            .take_while(is_part)
            .count();
    let has_digit = || {
        text[start..end]
            .iter()
            .chain(&text[after.clone()])
            .any(u8::is_ascii_digit)
    };
    let fits = !after.is_empty() && CUT_WORD.contains(&(end - start + after.len())) && has_digit();
    fits.then_some(CutWord {
        before: start..end,
        after,
    })
}

/// Tries a rule on a part of a text. Returns whether the search goes on.
fn try_rule(index: usize, text: &[u8], window: Range<usize>, found: OnFound<'_>) -> bool {
    let rule = &RULES[index];
    let Some(compiled) = rule.compiled() else {
        return true;
    };
    let (text, mut at) = (&text[..window.end], window.start);
    while at <= text.len()
        && let Some(captures) = compiled.regex.captures_at(text, at)
        && let Some(whole) = captures.get(0)
    {
        let value = captures
            .iter()
            .skip(1)
            .flatten()
            .find(|group| !group.is_empty())
            .unwrap_or(whole);
        if is_credential(rule, compiled, text, whole, value) && !found(index, value.range()) {
            return false;
        }
        at = whole.end().max(at + 1);
    }
    true
}

fn is_credential(
    rule: &Rule,
    compiled: &Compiled,
    text: &[u8],
    whole: Part<'_>,
    value: Part<'_>,
) -> bool {
    let shown = String::from_utf8_lossy(value.as_bytes());
    if rule.entropy > 0.0 && entropy(&shown) <= rule.entropy {
        return false;
    }
    if compiled
        .not
        .iter()
        .any(|not| not.is_match(value.as_bytes()))
    {
        return false;
    }
    rule.check.is_none_or(|check| {
        let before = &text[whole.start().saturating_sub(SHOWN_BEFORE)..whole.start()];
        check(&Match {
            before: &String::from_utf8_lossy(before),
            whole: &String::from_utf8_lossy(whole.as_bytes()),
            value: &shown,
            value_at: value.start() - whole.start(),
        })
    })
}

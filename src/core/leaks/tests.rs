mod corpus;
mod kinds;
mod spellings;

use std::collections::BTreeSet;

use regex_syntax::hir::{Class, Hir, HirKind};

use super::samples::{credentials, lookalikes};
use super::search::places;
use super::*;

/// Random numbers, the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }

    fn text(&mut self, alphabet: &str, length: usize) -> String {
        let letters: Vec<char> = alphabet.chars().collect();
        (0..length)
            .map(|_| letters[self.below(letters.len())])
            .collect()
    }
}

/// Writes a text that a pattern matches.
fn write_match(pattern: &Hir, numbers: &mut Numbers, text: &mut String) {
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.push_str(std::str::from_utf8(&literal.0).unwrap()),
        HirKind::Class(class) => text.push(member(class, numbers)),
        HirKind::Repetition(repeated) => {
            let more = repeated
                .max
                .unwrap_or(repeated.min + 2)
                .saturating_sub(repeated.min)
                .min(2) as usize;
            // What may be left out is left out, so that names stay names.
            let more = if repeated.min == 0 {
                0
            } else {
                numbers.below(more + 1)
            };
            for _ in 0..repeated.min as usize + more {
                write_match(&repeated.sub, numbers, text);
            }
        }
        HirKind::Capture(group) => write_match(&group.sub, numbers, text),
        HirKind::Concat(parts) => parts
            .iter()
            .for_each(|part| write_match(part, numbers, text)),
        HirKind::Alternation(parts) => {
            write_match(&parts[numbers.below(parts.len())], numbers, text)
        }
    }
}

fn member(class: &Class, numbers: &mut Numbers) -> char {
    let holds = |byte: u8| match class {
        Class::Bytes(class) => class
            .ranges()
            .iter()
            .any(|range| (range.start()..=range.end()).contains(&byte)),
        Class::Unicode(class) => class
            .ranges()
            .iter()
            .any(|range| (range.start()..=range.end()).contains(&char::from(byte))),
    };
    let of = |wanted: fn(&u8) -> bool| {
        (0..128)
            .filter(|byte| wanted(byte) && holds(*byte))
            .collect::<Vec<u8>>()
    };
    let words = of(u8::is_ascii_alphanumeric);
    // A letter in either case: names are in small letters.
    if let [upper, lower] = words[..]
        && upper.eq_ignore_ascii_case(&lower)
    {
        return char::from(lower);
    }
    let members = if words.is_empty() {
        of(|_| true)
    } else {
        words
    };
    char::from(members[numbers.below(members.len())])
}

#[test]
fn every_rule_finds_what_its_pattern_describes() {
    let mut wrong = Vec::new();
    for (index, rule) in RULES.iter().enumerate() {
        let pattern = rule.full_pattern();
        let parsed = regex_syntax::ParserBuilder::new()
            .unicode(false)
            .utf8(false)
            .build()
            .parse(&pattern);
        let parsed = parsed.unwrap_or_else(|error| panic!("{}: {error}", rule.id));
        let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15 ^ (index as u64 + 1));
        let mut missed = Vec::new();
        for _ in 0..40 {
            let mut sample = String::new();
            write_match(&parsed, &mut numbers, &mut sample);
            let near = rule.keywords[0];
            let text = if sample.to_ascii_lowercase().contains(near) {
                sample
            } else {
                format!("{near} {sample}")
            };
            let text = format!("see {text}\nthere");
            let mut found = false;
            search::search(text.as_bytes(), &mut |at, _| {
                found |= at == index;
                true
            });
            if !found {
                missed.push(text);
            }
        }
        // A random text is now and then too regular, has no digit or no keyword: that is what the
        // checks are for.
        if missed.len() > 24 {
            wrong.push(format!(
                "{}: {} of 40 missed, as {:?}",
                rule.id,
                missed.len(),
                missed[0]
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_is_complete_and_has_its_own_name() {
    let ids: BTreeSet<&str> = rules().collect();
    assert_eq!(ids.len(), RULES.len());
    assert!(RULES.len() > 200, "{}", RULES.len());
    for rule in RULES.iter() {
        assert!(
            rule.compiled().is_some() && !rule.keywords.is_empty(),
            "{}",
            rule.id
        );
        for keyword in &rule.keywords {
            assert_eq!(*keyword, keyword.to_ascii_lowercase().trim(), "{}", rule.id);
        }
    }
}

#[test]
fn files_of_rules_hold_nothing_else() {
    for file in rules::FILES {
        for line in file
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let is_id = line.starts_with('[') && line.ends_with(']') && !line.contains(' ');
            let known = match line.split_once(' ').unwrap_or((line, "")) {
                ("keyword" | "regex" | "not", value) => !value.is_empty(),
                ("entropy", value) => value.parse::<f64>().is_ok(),
                ("check", value) => checks::named(value).is_some(),
                _ => false,
            };
            assert!(is_id || known, "{line}");
        }
    }
}

#[test]
fn credentials_are_found_wherever_they_stand() {
    for (rule, credential) in credentials() {
        let quoted =
            serde_json::json!({ "text": format!("first\n{credential}\nlast") }).to_string();
        let twice = serde_json::json!({ "text": quoted }).to_string();
        let texts = [
            credential.clone(),
            format!("see {credential} there"),
            format!("a\n  {credential}\nb"),
            format!("é{credential}"),
            quoted,
            twice,
        ];
        for text in texts {
            let found = scan(&text);
            assert!(
                found.iter().any(|finding| finding.rule == rule),
                "{rule} not in {text}: {found:?}"
            );
            assert!(has_leak(text.as_bytes()), "{text}");
        }
    }
}

#[test]
fn lookalikes_pass() {
    for text in lookalikes()
        .into_iter()
        .chain([include_str!("../../../README.md").to_owned()])
    {
        let found = scan(&text);
        assert!(
            found.is_empty(),
            "{found:?} in {}",
            &text[..text.len().min(200)]
        );
        assert!(!has_leak(text.as_bytes()));
    }
}

#[test]
fn an_escape_before_a_token_ends_the_word() {
    let (_, token) = credentials().swap_remove(1);
    for before in ["", "\\n", "\\u000a", "q=%3D", "-", "=", "\\\""] {
        assert!(
            has_leak(format!("x {before}{token}").as_bytes()),
            "{before}"
        );
    }
    assert!(
        !has_leak(format!("x_y{token}").as_bytes()),
        "the middle of a word"
    );
}

#[test]
fn a_finding_says_where() {
    let (_, token) = credentials().swap_remove(1);
    let found = scan(&format!("a\né {token}\n\n {token} \\\"\\n\n%41 {token}"));
    let at = |line, column| Finding {
        rule: "github-token",
        line,
        column,
    };
    assert_eq!(found, [at(2, 3), at(4, 2), at(5, 5)]);
}

#[test]
fn bytes_that_are_not_text_are_searched() {
    let (_, token) = credentials().swap_remove(1);
    let mut bytes = vec![0xff, 0xfe, 0x00];
    bytes.extend_from_slice(token.as_bytes());
    bytes.push(0x80);
    assert!(has_leak(&bytes));
    assert!(!has_leak(&[0xff; 64]));
}

/// Counts the text that a rule reads: never more than the text.
#[test]
fn cut_words_cost_linear_work() {
    for word in RULES.iter().flat_map(|rule| rule.keywords.iter().copied()) {
        let line = format!("{}1\n", word.repeat(250 / word.len()));
        let text = line.repeat(100);
        let mut read = vec![0; RULES.len()];
        for (rule, _, word) in places(text.as_bytes()).cut_words {
            read[rule] += word.before.len() + word.after.len();
        }
        assert!(read.iter().all(|read| *read <= 2 * text.len()), "{word}");
    }
}

#[test]
fn repeated_keywords_cost_linear_work() {
    let words = RULES.iter().flat_map(|rule| rule.keywords.iter().copied());
    for word in words.chain([
        "token=",
        "key: ",
        "https://a:",
        "eyJ.eyJaaaaaaaaa",
        "sk-a",
        "s.\n",
        "\\\\\\\\",
    ]) {
        let text = format!("{word}1").repeat(1_000) + &" ".repeat(2_000) + &word.repeat(10);
        let places = places(text.as_bytes());
        let mut read = vec![0_usize; RULES.len()];
        for (rule, window) in &places.windows {
            read[*rule] += window.len();
        }
        assert!(read.iter().all(|read| *read <= text.len()), "{word}");
        assert_eq!(has_leak(text.as_bytes()), !scan(&text).is_empty(), "{word}");
    }
}

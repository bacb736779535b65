//! Patterns of files: `*.rs`, `Cargo.toml`, `src/**/*.{rs,toml}`.
//!
//! They are compared character by character, so that a thousand skills need nothing built before the
//! first of them is compared.

/// The longest pattern, in bytes.
const LONGEST: usize = 200;
/// Maximum number of patterns that `{a,b}` may expand to.
const WAYS: usize = 64;

/// Glob pattern of files, case-sensitive.
///
/// `*` matches any run of characters but `/`, `?` one such character, `[a-z]` and `[!a-z]` one of a set, `{a,b}` either
/// text, `**` any number of folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// Without a slash: compared with the name of the file alone.
    name_only: bool,
    ways: Vec<Vec<Part>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Folders,
    Name(Vec<Token>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Run,
    One,
    Char(char),
    Set { not: bool, ranges: Vec<(char, char)> },
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > LONGEST {
            return Err(format!("a pattern has 1 to {LONGEST} bytes"));
        }
        if text.contains(['\\', '\0']) {
            return Err("a pattern has no `\\` and no NUL".to_owned());
        }
        let inner = text.strip_prefix('/').unwrap_or(text);
        let mut ways = Vec::new();
        spread(inner, &mut ways)?;
        let ways = ways.iter().map(|way| way.split('/').map(part).collect()).collect::<Result<_, _>>()?;
        Ok(Self { name_only: !text.contains('/'), ways })
    }

    /// Says whether a file matches, by its path below the root of the repository, with `/`.
    #[must_use]
    pub fn fits(&self, path: &str) -> bool {
        self.fits_names(&Names::new(path))
    }

    /// Says whether a file matches, by its path that was already split.
    pub(crate) fn fits_names(&self, path: &Names) -> bool {
        let names = if self.name_only { path.0.last().map_or(&[][..], std::slice::from_ref) } else { &path.0[..] };
        self.ways.iter().any(|way| folders(way, names))
    }
}

/// A path that was taken apart: once, for however many patterns.
#[derive(Debug)]
pub(crate) struct Names(Vec<Vec<char>>);

impl Names {
    pub(crate) fn new(path: &str) -> Self {
        let path = path.strip_prefix("./").unwrap_or(path);
        Self(path.split('/').map(|name| name.chars().collect()).collect())
    }
}

/// Writes out `{a,b}`.
fn spread(text: &str, ways: &mut Vec<String>) -> Result<(), String> {
    let Some(open) = text.find('{') else {
        if text.contains('}') {
            return Err("`}` without `{`".to_owned());
        }
        ways.push(text.to_owned());
        return if ways.len() > WAYS { Err(format!("it stands for more than {WAYS} patterns")) } else { Ok(()) };
    };
    let rest = &text[open + 1..];
    let close = rest.find('}').ok_or("`{` without `}`")?;
    if rest[..close].contains('{') {
        return Err("`{` inside `{`".to_owned());
    }
    rest[..close].split(',').try_for_each(|way| spread(&format!("{}{way}{}", &text[..open], &rest[close + 1..]), ways))
}

fn part(text: &str) -> Result<Part, String> {
    if text == "**" {
        return Ok(Part::Folders);
    }
    if text.contains("**") {
        return Err("`**` stands for whole folders: `a/**/b`".to_owned());
    }
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        tokens.push(match char {
            '*' => Token::Run,
            '?' => Token::One,
            '[' => {
                let not = chars.next_if(|char| matches!(char, '!' | '^')).is_some();
                let mut ranges = Vec::new();
                loop {
                    let from = chars.next().ok_or("`[` without `]`")?;
                    if from == ']' && !ranges.is_empty() {
                        break;
                    }
                    let mut ahead = chars.clone();
                    let to = (ahead.next() == Some('-')).then(|| ahead.next()).flatten().filter(|to| *to != ']');
                    if let Some(to) = to {
                        chars = ahead;
                        if to < from {
                            return Err(format!("{from}-{to} is no range"));
                        }
                    }
                    ranges.push((from, to.unwrap_or(from)));
                }
                Token::Set { not, ranges }
            }
            char => Token::Char(char),
        });
    }
    Ok(Part::Name(tokens))
}

/// `**` is tried for as few folders as will do. What came before it never needs to be tried again.
fn folders(way: &[Part], names: &[Vec<char>]) -> bool {
    greedy(
        way,
        names,
        |part| matches!(part, Part::Folders),
        |part, name| match part {
            Part::Folders => false,
            Part::Name(tokens) => greedy(tokens, name, |token| *token == Token::Run, one),
        },
    )
}

fn one(token: &Token, char: &char) -> bool {
    match token {
        Token::Run => false,
        Token::One => true,
        Token::Char(own) => own == char,
        Token::Set { not, ranges } => ranges.iter().any(|(from, to)| (from..=to).contains(&char)) != *not,
    }
}

/// Compares in at most `pattern` times `given` steps.
fn greedy<P, G>(pattern: &[P], given: &[G], any: impl Fn(&P) -> bool, one: impl Fn(&P, &G) -> bool) -> bool {
    let (mut at, mut from, mut back) = (0, 0, None);
    while from < given.len() {
        if pattern.get(at).is_some_and(&any) {
            back = Some((at, from));
            at += 1;
        } else if pattern.get(at).is_some_and(|part| one(part, &given[from])) {
            at += 1;
            from += 1;
        } else if let Some((star, taken)) = back {
            back = Some((star, taken + 1));
            at = star + 1;
            from = taken + 1;
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let parsed = Pattern::parse(pattern).unwrap();
        for path in yes {
            assert!(parsed.fits(path), "{pattern} {path}");
        }
        for path in no {
            assert!(!parsed.fits(path), "{pattern} {path}");
        }
    }

    #[test]
    fn a_pattern_without_a_slash_is_compared_with_the_name() {
        check("*.rs", &["a.rs", "src/deep/a.rs", ".rs"], &["a.rsx", "a.RS", "a.rs/b"]);
        check("Cargo.toml", &["Cargo.toml", "a/Cargo.toml"], &["cargo.toml", "xCargo.toml"]);
        check("test_?[0-9].{rs,py}", &["x/test_a1.py", "test_b9.rs"], &["test_1.rs", "test_ab.rs", "test_a1.go"]);
        check("[!a]b", &["cb"], &["ab", "b"]);
        check("[]-]", &["]", "-"], &["a"]);
        check("a*b*c", &["abc", "aXbYc", "abbc"], &["ab", "acb"]);
    }

    #[test]
    fn a_pattern_with_a_slash_is_compared_with_the_path() {
        check("src/*.rs", &["src/a.rs", "./src/a.rs"], &["src/b/a.rs", "x/src/a.rs"]);
        check("src/**/*.rs", &["src/a.rs", "src/b/c/a.rs"], &["srcs/a.rs", "a.rs"]);
        check("**/tests/**", &["tests/a", "x/tests/b/c", "x/tests"], &["x/test/a"]);
        check("/Cargo.toml", &["Cargo.toml"], &["a/Cargo.toml"]);
        check("{src,lib}/a", &["src/a", "lib/a"], &["a", "src/lib/a"]);
    }

    #[test]
    fn a_pattern_that_means_nothing_is_refused() {
        for no in
            ["", "{a", "a}", "{a,{b}}", "[a", "[]", "[z-a]", "a**b", "a\\b", "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"]
        {
            assert!(Pattern::parse(no).is_err(), "{no}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_is_soon_done() {
        let pattern = Pattern::parse(&"a*".repeat(90)).unwrap();
        assert!(!pattern.fits(&format!("{}b", "a".repeat(80))));
        let pattern = Pattern::parse(&"**/a/".repeat(30)).unwrap();
        assert!(!pattern.fits(&format!("{}b", "a/".repeat(2000))));
    }
}

//! Patterns of files: `*.rs`, `Cargo.toml`, `src/**/*.{rs,toml}`.

use globset::{Glob, GlobBuilder};

/// The longest pattern, in bytes.
const LONGEST: usize = 200;

/// Reads a pattern, which is case-sensitive. Without a slash it is about the name of a file, else
/// about its path.
///
/// `*` matches any run of characters but `/`, `?` one such character, `[a-z]` and `[!a-z]` one of a
/// set, `{a,b}` either text, `**` any number of folders.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn glob(text: &str) -> Result<Glob, String> {
    if text.is_empty() || text.len() > LONGEST {
        return Err(format!("a pattern has 1 to {LONGEST} bytes"));
    }
    if text.contains(['\\', '\0']) {
        return Err("a pattern has no `\\` and no NUL".to_owned());
    }
    let whole = match text.strip_prefix('/') {
        Some(path) => path.to_owned(),
        None if text.contains('/') => text.to_owned(),
        None => format!("**/{text}"),
    };
    GlobBuilder::new(&whole)
        .literal_separator(true)
        .build()
        .map_err(|error| error.kind().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let parsed = glob(pattern).unwrap().compile_matcher();
        for path in yes {
            assert!(parsed.is_match(path), "{pattern} {path}");
        }
        for path in no {
            assert!(!parsed.is_match(path), "{pattern} {path}");
        }
    }

    #[test]
    fn a_pattern_without_a_slash_is_compared_with_the_name() {
        check(
            "*.rs",
            &["a.rs", "src/deep/a.rs", ".rs"],
            &["a.rsx", "a.RS", "a.rs/b"],
        );
        check(
            "Cargo.toml",
            &["Cargo.toml", "a/Cargo.toml"],
            &["cargo.toml", "xCargo.toml"],
        );
        check(
            "test_?[0-9].{rs,py}",
            &["x/test_a1.py", "test_b9.rs"],
            &["test_1.rs", "test_ab.rs", "test_a1.go"],
        );
        check("[!a]b", &["cb"], &["ab", "b"]);
        check("[]-]", &["]", "-"], &["a"]);
        check("a*b*c", &["abc", "aXbYc", "abbc"], &["ab", "acb"]);
    }

    #[test]
    fn a_pattern_with_a_slash_is_compared_with_the_path() {
        check("src/*.rs", &["src/a.rs"], &["src/b/a.rs", "x/src/a.rs"]);
        check(
            "src/**/*.rs",
            &["src/a.rs", "src/b/c/a.rs"],
            &["srcs/a.rs", "a.rs"],
        );
        check("**/tests/**", &["tests/a", "x/tests/b/c"], &["x/test/a"]);
        check("/Cargo.toml", &["Cargo.toml"], &["a/Cargo.toml"]);
        check("{src,lib}/a", &["src/a", "lib/a"], &["a", "src/lib/a"]);
    }

    #[test]
    fn a_pattern_that_means_nothing_is_refused() {
        for no in ["", "{a", "a}", "[a", "[]", "[z-a]", "a\\b"] {
            assert!(glob(no).is_err(), "{no}");
        }
    }
}

//! Line diff of a repair.

use crate::secrets;

/// Maximum number of removed lines, and of added lines, that are shown.
const MAX_LINES: usize = 100;
/// Maximum length of a shown line, in characters.
const MAX_LINE: usize = 200;

/// Shows the difference between two texts: removed and added lines.
///
/// It covers the range from the first to the last line that differs.
pub(super) fn lines(old: &[u8], new: &[u8]) -> String {
    let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let before = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let after = old[before..]
        .iter()
        .rev()
        .zip(new[before..].iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let mut text = format!("@@ line {} @@\n", before + 1);
    for (mark, lines) in [
        ('-', &old[before..old.len() - after]),
        ('+', &new[before..new.len() - after]),
    ] {
        for line in lines.iter().take(MAX_LINES) {
            // A damaged file may contain a secret.
            let shown: String = if secrets::scan(line).is_empty() {
                line.chars()
                    .take(MAX_LINE)
                    .map(|c| if c.is_control() { '\u{fffd}' } else { c })
                    .collect()
            } else {
                "(a line that looks like a secret)".into()
            };
            text.push_str(&format!("{mark}{shown}\n"));
        }
        if lines.len() > MAX_LINES {
            text.push_str(&format!("{mark}({} more lines)\n", lines.len() - MAX_LINES));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown() {
        assert_eq!(
            lines(b"a\nb\nc\n", b"a\nx\ny\nc\n"),
            "@@ line 2 @@\n-b\n+x\n+y\n"
        );
        assert_eq!(lines(b"", b"a\n"), "@@ line 1 @@\n+a\n");
        assert_eq!(lines(b"a\na\n", b"a\n"), "@@ line 2 @@\n-a\n");
        let token = format!("{}{}", concat!("gh", "p_"), "aB3".repeat(12));
        assert!(!lines(token.as_bytes(), b"").contains("aB3"));
        assert!(
            lines("x\n".repeat(300).as_bytes(), b"\0").ends_with("-(200 more lines)\n+\u{fffd}\n")
        );
    }
}

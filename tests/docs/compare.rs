//! Comparison of the output that a page shows with the output of the program.
//!
//! A line `...` stands for any lines, `...` within a line for any text. Measured times differ from
//! run to run: any duration (`12 ms`, `1.4 s`) equals any other. Behind the indentation, any white
//! space equals any other: the columns of a table are as wide as what is in them.

/// Says whether the output is as shown.
pub(crate) fn matches(shown: &str, output: &str) -> bool {
    let lines = |text: &str| -> Vec<String> {
        let lines: Vec<String> = text.lines().map(normal).collect();
        let end = lines
            .iter()
            .rposition(|line| !line.is_empty())
            .map_or(0, |last| last + 1);
        lines[..end].to_vec()
    };
    lines_match(&lines(shown), &lines(output))
}

fn lines_match(shown: &[String], output: &[String]) -> bool {
    match shown.split_first() {
        None => output.is_empty(),
        Some((first, rest)) if first.trim() == "..." => {
            (0..=output.len()).any(|at| lines_match(rest, &output[at..]))
        }
        Some((first, rest)) => output
            .split_first()
            .is_some_and(|(line, others)| line_matches(first, line) && lines_match(rest, others)),
    }
}

fn line_matches(shown: &str, line: &str) -> bool {
    let mut parts = shown.split("...");
    let Some(mut rest) = parts.next().and_then(|start| line.strip_prefix(start)) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Replaces each duration by `<time>`, and white space behind the indentation by one space.
fn normal(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    let mut words: Vec<String> = Vec::new();
    let mut all = line.split_whitespace().peekable();
    while let Some(word) = all.next() {
        let number = word.trim_start_matches('(');
        let is_number =
            number.starts_with(|c: char| c.is_ascii_digit()) && number.parse::<f64>().is_ok();
        let next = all.peek().copied().unwrap_or_default();
        let unit = next.trim_end_matches([',', ')', '.', ';']);
        if is_number && matches!(unit, "µs" | "ms" | "s") {
            words.push(format!(
                "{}<time>{}",
                &word[..word.len() - number.len()],
                &next[unit.len()..]
            ));
            all.next();
        } else {
            words.push(word.to_owned());
        }
    }
    format!("{}{}", &line[..indent], words.join(" "))
}

#[test]
fn wildcards_and_times_match_nothing_else() {
    for (shown, output) in [
        ("a\n", "a\n\n"),
        ("...\nb\n", "a\na\nb\n"),
        ("a ... d\n", "a b c d\n"),
        ("miss, 12 ms (0 s old)\n", "miss, 3.5 ms (4 s old)\n"),
        ("took 12 ms\n", "took 2 s\n"),
        ("a  b\n", "a\tb \n"),
    ] {
        assert!(matches(shown, output), "{shown:?} {output:?}");
    }
    for (shown, output) in [
        ("a\n", "b\n"),
        ("a\n", "a\nb\n"),
        ("a\n...\nc\n", "a\nb\n"),
        ("a ... d\n", "a b c\n"),
        ("12 items\n", "13 items\n"),
        ("  a\n", "a\n"),
    ] {
        assert!(!matches(shown, output), "{shown:?} {output:?}");
    }
}

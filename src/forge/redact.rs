//! Redaction: program output without credentials, for reports and messages.

use crate::secrets;

/// Returns a text without the lines that look like they contain a credential.
///
/// Of a private key, every line is removed.
pub(crate) fn redact(text: &str) -> String {
    let findings = secrets::scan(text);
    if findings.is_empty() {
        return text.to_owned();
    }
    let mut lines: Vec<Option<String>> = text.lines().map(|line| Some(line.to_owned())).collect();
    for finding in &findings {
        let at = (finding.line as usize).saturating_sub(1);
        if let Some(line) = lines.get_mut(at) {
            *line = Some(left_out("a line", finding.rule));
        }
    }
    // The scan finds only how a key begins. Without an end it goes on to the last line: too much is
    // left out rather than too little.
    let mut inside = false;
    for (line, kept) in text.lines().zip(&mut lines) {
        let begins = line.rfind(BEGIN).filter(|at| line[*at..].contains(KEY));
        let ends = line.rfind(END).filter(|at| line[*at..].contains(KEY));
        if inside {
            *kept = None;
        }
        inside = match (begins, ends) {
            (Some(begins), Some(ends)) => begins > ends,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => inside,
        };
    }
    let lines: Vec<String> = lines.into_iter().flatten().collect();
    lines.join("\n") + "\n"
}

/// How a private key begins and ends, whatever kind it is of.
const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const KEY: &str = "PRIVATE KEY";

/// Returns the last lines of a program's output, at most `bytes` long, with credentials redacted.
///
/// The whole output is scanned before the cut, because the scan would miss a credential that is cut
/// off.
pub(crate) fn end_of(output: &str, bytes: usize) -> String {
    let clean = redact(output);
    let end = last(&clean, bytes);
    // A report holds it as one line of JSON. What only looks like a credential there must not be in
    // the way of the report.
    let printed = serde_json::to_string(end).unwrap_or_default();
    match secrets::scan(&printed).first() {
        Some(finding) => left_out("the output", finding.rule) + "\n",
        None => end.to_owned(),
    }
}

/// Returns the last lines of a text, at most `bytes` long; of one long line its end.
pub(crate) fn last(text: &str, bytes: usize) -> &str {
    let mut from = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let tail = &text[from..];
    match tail.find('\n') {
        Some(line) if from > 0 && line + 1 < tail.len() => &tail[line + 1..],
        _ => tail,
    }
}

fn left_out(what: &str, rule: &str) -> String {
    format!("[{what} is left out: it looks like it holds a credential ({rule})]")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing of this is a key: the source of a test must not look like one either.
    fn pem(kind: &str) -> String {
        let line = |word: &str| format!("-----{word} {kind}PRIVATE {}-----\n", "KEY");
        format!(
            "{}MIIEvQIBADAN\nBgkqhkiG9w0B\n{}",
            line("BEGIN"),
            line("END")
        )
    }

    fn token() -> String {
        format!("{}{}", concat!("gh", "p_"), "aB3x".repeat(9))
    }

    #[test]
    fn of_a_private_key_no_line_stays() {
        for kind in ["", "RSA ", "OPENSSH "] {
            let text = format!("before\n{}between\n{}after\n", pem(kind), pem(kind));
            let clean = redact(&text);
            assert!(!clean.contains("MII") && !clean.contains("Bgk"), "{clean}");
            assert_eq!(clean.lines().count(), 5, "{clean}");
            assert!(
                clean.starts_with("before\n[")
                    && clean.contains("\nbetween\n")
                    && clean.ends_with("\nafter\n")
            );
        }
        let prefixed: String = pem("RSA ")
            .lines()
            .map(|line| format!("[test] > {line}\n"))
            .collect();
        assert!(!redact(&prefixed).contains("Bgk"));
        let torn = pem("").replace("-----END", "");
        assert!(
            !redact(&format!("{torn}more\n")).contains("Bgk"),
            "it has no end"
        );
        let line = format!("{:?} is fine\nnext\n", pem(""));
        let clean = redact(&line);
        assert!(
            !clean.contains("Bgk") && clean.ends_with("\nnext\n"),
            "{clean}"
        );
    }

    #[test]
    fn a_credential_across_the_cut_does_not_stay_in_part() {
        let output = format!("{} {} {}", "a".repeat(6_000), token(), "b".repeat(4_080));
        let end = end_of(&output, 4_096);
        assert!(!end.contains("aB3x"), "{end}");
        let key = format!("{}{}", pem(""), "x\n".repeat(10));
        assert!(!end_of(&key, 60).contains("Bgk"));
    }

    #[test]
    fn what_no_rule_finds_stays_as_it_was() {
        for text in ["", "one\n", "one\ntwo", "a key of words\r\n"] {
            assert_eq!(
                (redact(text).as_str(), end_of(text, 100).as_str()),
                (text, text)
            );
        }
        assert_eq!(end_of("one\ntwo\nthree\n", 8), "three\n");
        assert_eq!(end_of("ééé", 3), "é");
    }

    #[test]
    fn what_looks_like_a_credential_only_in_a_report_is_left_out() {
        let text = format!("password =\n\"{}\"\n", "Tr0ub4dor&3xY");
        assert_eq!(redact(&text), text);
        let printed = serde_json::to_string(&end_of(&text, 100)).unwrap();
        assert!(secrets::scan(&printed).is_empty(), "{printed}");
    }
}

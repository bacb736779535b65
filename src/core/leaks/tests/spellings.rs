//! Credentials that are spelled differently: encoded, with invisible characters, or cut by a line
//! break.

use super::*;

fn base64(text: &str) -> String {
    data_encoding::BASE64.encode(text.as_bytes())
}

/// Rules whose values have no white space and no keyword beside them.
fn plain() -> Vec<(&'static str, String)> {
    let all = credentials().into_iter();
    all.filter(|(_, value)| {
        value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
    })
    .collect()
}

#[test]
fn invisible_characters_hide_nothing() {
    for (rule, value) in credentials() {
        for invisible in [
            '\u{200b}', '\u{200d}', '\u{ad}', '\u{feff}', '\u{2060}', '\u{fe0f}', '\u{202e}',
        ] {
            for at in [1, 2, value.len() / 2, value.len() - 1] {
                let mut hidden = value.clone();
                hidden.insert(at, invisible);
                let found = scan(&format!("a\n {hidden}"));
                assert!(
                    found
                        .iter()
                        .any(|finding| finding.rule == rule && finding.line == 2),
                    "{rule}: {hidden:?}"
                );
                assert!(has_leak(serde_json::json!([hidden]).to_string().as_bytes()));
            }
        }
    }
}

#[test]
fn percent_encoding_hides_nothing() {
    for (rule, value) in credentials() {
        let every: String = value.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let marks: String = value
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_string()
                } else {
                    format!("%{:02X}", u32::from(c))
                }
            })
            .collect();
        for text in [&every, &marks] {
            let found = scan(&format!("https://a.example/?q={text}&r=1"));
            assert!(
                found.iter().any(|finding| finding.rule == rule),
                "{rule}: {text}: {found:?}"
            );
        }
    }
}

#[test]
fn escapes_hide_nothing() {
    for (rule, value) in credentials() {
        let unicode: String = value
            .chars()
            .map(|c| format!("\\u{:04x}", u32::from(c)))
            .collect();
        let hex: String = value
            .chars()
            .map(|c| format!("\\x{:02X}", u32::from(c)))
            .collect();
        for text in [unicode, hex] {
            assert!(
                scan(&text).iter().any(|finding| finding.rule == rule),
                "{rule}: {text}"
            );
        }
    }
}

#[test]
fn backslashes_hide_nothing() {
    for (rule, value) in credentials() {
        let found = scan(&format!("C:\\dir\\n\\{value}"));
        assert!(
            found.iter().any(|finding| finding.rule == rule),
            "{rule}: {value}"
        );
    }
}

#[test]
fn base64_hides_nothing() {
    for (rule, value) in credentials() {
        let hidden = format!(
            "user_facts\nabcd\n{}",
            base64(&format!("export A\n{value}\n"))
        );
        assert!(
            scan(&hidden).iter().any(|finding| finding.rule == rule),
            "{rule}: {hidden}"
        );
        for before in ["", "a", "ab", "export X\n"] {
            let encoded = base64(&format!("{before} {value} and the rest of this file"));
            let wrapped = encoded
                .as_bytes()
                .chunks(76)
                .map(|line| String::from_utf8_lossy(line))
                .collect::<Vec<_>>();
            let urls = encoded.replace('+', "-").replace('/', "_");
            for text in [
                encoded.clone(),
                wrapped.join("\n"),
                wrapped.join("\\n"),
                urls,
            ] {
                let text = format!("\"content\": \"{text}\"");
                let found = scan(&text);
                assert!(
                    found.iter().any(|finding| finding.rule == rule),
                    "{rule}: {text}: {found:?}"
                );
            }
        }
    }
}

#[test]
fn a_line_break_in_a_token_hides_nothing() {
    for (rule, value) in plain() {
        // Behind the keyword: two words that only together make one are not searched for.
        for at in [value.len() / 2, value.len() - 5] {
            for gap in ["\n", "\r\n", "\\n"] {
                let text = format!("see {}{gap}{} there", &value[..at], &value[at..]);
                let found = scan(&text);
                assert!(
                    found.iter().any(|finding| finding.rule == rule),
                    "{rule}: {text:?}: {found:?}"
                );
            }
        }
    }
}

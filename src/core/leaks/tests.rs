use super::samples::{credentials, lookalikes};
use super::*;

#[test]
fn every_kind_is_found_wherever_it_stands() {
    for (rule, credential) in credentials() {
        let quoted = serde_json::json!({ "text": format!("first\n{credential}\nlast") }).to_string();
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
            assert!(found.iter().any(|finding| finding.rule == rule), "{rule} not in {text}: {found:?}");
            assert!(has_leak(text.as_bytes()), "{text}");
        }
    }
}

#[test]
fn text_that_only_looks_like_a_credential_passes() {
    for text in lookalikes().into_iter().chain([include_str!("../../../README.md").to_owned()]) {
        let found = scan(&text);
        assert!(found.is_empty(), "{found:?} in {}", &text[..text.len().min(200)]);
        assert!(!has_leak(text.as_bytes()));
    }
}

#[test]
fn an_escape_before_a_token_ends_the_word() {
    let (_, token) = credentials().swap_remove(1);
    for before in ["", "\\n", "\\u000a", "q=%3D", "-", "=", "\\\""] {
        assert!(has_leak(format!("x {before}{token}").as_bytes()), "{before}");
    }
    assert!(!has_leak(format!("x_y{token}").as_bytes()), "the middle of a word");
}

#[test]
fn a_finding_says_where() {
    let (_, token) = credentials().swap_remove(1);
    let found = scan(&format!("a\né {token}\n\n {token}"));
    let at = |line, column| Finding { rule: "github-token", line, column };
    assert_eq!(found, [at(2, 3), at(4, 2)]);
}

#[test]
fn every_rule_has_a_pattern_and_an_id_of_its_own() {
    assert!((0..RULES.len()).all(|index| pattern(index).is_some()));
    let ids: std::collections::BTreeSet<_> = rules().map(|(id, _)| id).collect();
    assert_eq!(ids.len(), RULES.len());
    let tried: std::collections::BTreeSet<_> = credentials().into_iter().map(|(id, _)| id).collect();
    assert_eq!(tried, ids, "each is tried");
    let anchors: Vec<_> = RULES.iter().flat_map(|rule| rule.anchors).collect();
    assert!(anchors.iter().all(|one| **one == one.to_ascii_lowercase()));
    let shadowed = |one: &str| anchors.iter().any(|other| **other != one && other.starts_with(one));
    assert!(!anchors.iter().any(|one| shadowed(one)), "an anchor hides another");
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

/// Counts the text that patterns read: it is linear in the text, not quadratic.
#[test]
fn repeated_anchors_cost_linear_work() {
    for anchor in
        RULES.iter().flat_map(|rule| rule.anchors).chain(&["token=", "key: ", "https://a:", "eyJ.eyJaaaaaaaaa", "sk-a"])
    {
        let matched = |times: usize| {
            let text = anchor.repeat(times);
            let mut sum = 0;
            let anchors = ANCHORS.as_ref().unwrap();
            let mut done = vec![0_usize; RULES.len()];
            for found in anchors.regex.find_iter(text.as_bytes()) {
                let lower = found.as_bytes().to_ascii_lowercase();
                for index in anchors.rules.get(lower.as_slice()).into_iter().flatten() {
                    if found.start() >= done[*index]
                        && let Some((_, end, _)) = try_rule(*index, text.as_bytes(), found.start(), &lower)
                    {
                        done[*index] = end;
                        sum += end - found.start();
                    }
                }
            }
            sum
        };
        assert!(matched(4_000) <= 8_000 * (anchor.len() + 16), "{anchor}");
    }
}

//! Tests of API tokens.

use super::*;

const NOW: Timestamp = Timestamp(1_000_000_000);

fn token(user: &str) -> ApiToken {
    ApiToken {
        id: String::new(),
        name: "ci".to_owned(),
        tenant: "acme".to_owned(),
        subject: user.to_owned(),
        scope: "packs:run".to_owned(),
        created_at: NOW,
        expires_at: None,
        revoked_at: None,
        used_at: None,
        ancestors: Vec::new(),
    }
}

#[test]
fn a_token_ends_at_its_time() {
    let ends = ApiToken {
        expires_at: Some(NOW),
        ..token("a")
    };
    assert!(ends.is_live(Timestamp(NOW.micros() - 1)) && !ends.is_live(NOW));
}

#[test]
fn only_the_exact_form_is_a_token() {
    let text = |id: &str, secret: &str| {
        let text = format!("hd_{id}_{secret}");
        let check = check_of(&text);
        text + &check
    };
    let good = text(&"a1".repeat(8), &"0f".repeat(32));
    assert_eq!(PresentedToken::parse(&good).unwrap().id, "a1a1a1a1a1a1a1a1");
    let mut wrong_check = good.clone();
    wrong_check.replace_range(91.., if good.ends_with('0') { "1" } else { "0" });
    for bad in [
        wrong_check,
        good.to_ascii_uppercase(),
        good.replacen("hd_", "ghp_", 1),
        format!("{good}0"),
        good[..91].to_owned(),
        text(&"a1".repeat(7), &"0f".repeat(33)),
        text(&"é1".repeat(8), &"0f".repeat(32)),
        String::new(),
        "hd_".to_owned(),
    ] {
        assert_eq!(PresentedToken::parse(&bad), None, "{bad}");
    }
}

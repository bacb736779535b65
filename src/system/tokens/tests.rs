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
    }
}

#[tokio::test]
async fn token_is_found_by_text_that_is_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("helmdeck.db");
    let system = System::at(&path);
    let (made, text) = system.create_token(token("a")).await.unwrap();
    let later = ApiToken { created_at: Timestamp(NOW.micros() + 1), ..token("b") };
    let (other, other_text) = system.create_token(later).await.unwrap();
    assert!(made.id != other.id && text.expose() != other_text.expose());
    assert_eq!(text.expose().len(), 92);
    let shown = Shown::parse(text.expose()).unwrap();
    assert_eq!(system.find_token(&shown).await.unwrap(), Some(made.clone()));
    // The id of one with the secret of another matches no token.
    let digest = Shown::parse(other_text.expose()).unwrap().digest;
    assert_eq!(system.find_token(&Shown { id: shown.id, digest }).await.unwrap(), None);
    assert_eq!(system.tokens().await.unwrap(), [made, other]);
    drop(system);
    let secret = &text.expose()[20..84];
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(64).any(|window| window == secret.as_bytes()));
    }
}

#[tokio::test]
async fn reading_and_revoking_make_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let system = System::at(folder.path().join("helmdeck.db"));
    assert!(system.tokens().await.unwrap().is_empty());
    assert!(!system.revoke_token("0123456789abcdef", NOW).await.unwrap());
    system.token_used("0123456789abcdef", NOW).await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn revocation_is_shared_and_keeps_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let at = || System::at(folder.path().join("helmdeck.db"));
    let (one, two) = (at(), at());
    let (made, text) = one.create_token(token("a")).await.unwrap();
    let shown = Shown::parse(text.expose()).unwrap();
    assert!(one.find_token(&shown).await.unwrap().unwrap().is_live(NOW));
    assert!(two.revoke_token(&made.id, NOW).await.unwrap());
    assert!(two.revoke_token(&made.id, NOW.saturating_add(USED_EVERY)).await.unwrap());
    let found = one.find_token(&shown).await.unwrap().unwrap();
    assert_eq!(found.revoked_at, Some(NOW));
    assert!(!found.is_live(NOW));
}

#[tokio::test]
async fn pages_hold_every_token_once() {
    let folder = tempfile::tempdir().unwrap();
    let system = System::at(folder.path().join("helmdeck.db"));
    for user in ["a", "b", "a", "a"] {
        // All of one time: the id decides their order.
        system.create_token(token(user)).await.unwrap();
    }
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let query = TokenQuery { subject: Some("a".to_owned()), after, limit: 2, ..TokenQuery::default() };
        let page = system.token_page(query).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some((last.created_at, last.id.clone()));
        ids.extend(page.into_iter().map(|token| token.id));
    }
    assert_eq!(ids.len(), 3);
    assert!(ids.is_sorted_by(|left, right| left > right), "{ids:?}");
    assert!(!system.revoke_token_of("acme", "b", &ids[0], NOW).await.unwrap());
    assert!(system.revoke_token_of("acme", "a", &ids[0], NOW).await.unwrap());
    let live = TokenQuery { live_at: Some(NOW), limit: 9, ..TokenQuery::default() };
    assert_eq!(system.token_page(live).await.unwrap().len(), 3);
}

#[tokio::test]
async fn token_is_used_up_once_while_valid() {
    let folder = tempfile::tempdir().unwrap();
    let system = System::at(folder.path().join("helmdeck.db"));
    let expires_at = Some(NOW.saturating_add(LINK_LIVES));
    let (first, _) = system.create_token(ApiToken { expires_at, ..token("a") }).await.unwrap();
    assert!(system.use_up_token(&first.id, NOW).await.unwrap());
    assert!(!system.use_up_token(&first.id, NOW).await.unwrap(), "it was used");
    let (second, _) = system.create_token(ApiToken { expires_at, ..token("a") }).await.unwrap();
    assert!(!system.use_up_token(&second.id, NOW.saturating_add(LINK_LIVES)).await.unwrap(), "it has expired");
}

#[tokio::test]
async fn a_use_is_noted_once_a_minute() {
    let folder = tempfile::tempdir().unwrap();
    let system = System::at(folder.path().join("helmdeck.db"));
    let (made, _) = system.create_token(token("a")).await.unwrap();
    for (seconds, noted) in [(0, 0), (59, 0), (60, 60), (90, 60)] {
        let now = NOW.saturating_add(Duration::from_secs(seconds));
        system.token_used(&made.id, now).await.unwrap();
        let expected = NOW.saturating_add(Duration::from_secs(noted));
        assert_eq!(system.tokens().await.unwrap()[0].used_at, Some(expected), "{seconds}");
    }
}

#[tokio::test]
async fn tokens_are_swept_90_days_after_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let system = System::at(folder.path().join("helmdeck.db"));
    let day = |days: u64| NOW.saturating_add(Duration::from_secs(days * 24 * 3600));
    let make = async |name: &str, expires_at| {
        let token = ApiToken { name: name.to_owned(), expires_at, ..token("a") };
        system.create_token(token).await.unwrap().0.id
    };
    make("expired", Some(day(1))).await;
    make("lives long", Some(day(1000))).await;
    make("lives for ever", None).await;
    let revoked = make("revoked", Some(day(1000))).await;
    system.revoke_token(&revoked, day(2)).await.unwrap();
    let names = async || {
        let mut names: Vec<String> = system.tokens().await.unwrap().into_iter().map(|token| token.name).collect();
        names.sort();
        names.join(", ")
    };
    let later = |time: Timestamp| Timestamp(time.micros() + 1);
    assert_eq!(system.sweep(day(91)).await.unwrap(), 0, "{}", names().await);
    assert_eq!(system.sweep(later(day(91))).await.unwrap(), 1);
    assert_eq!(names().await, "lives for ever, lives long, revoked");
    assert_eq!(system.sweep(later(day(92))).await.unwrap(), 1);
    assert_eq!(names().await, "lives for ever, lives long");
}

#[test]
fn a_token_ends_at_its_time() {
    let ends = ApiToken { expires_at: Some(NOW), ..token("a") };
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
    assert_eq!(Shown::parse(&good).unwrap().id(), "a1a1a1a1a1a1a1a1");
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
        assert_eq!(Shown::parse(&bad), None, "{bad}");
    }
}

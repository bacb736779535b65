//! API tokens.

use std::time::Duration;

use super::{Fixture, NOW};
use crate::tokens::{ApiToken, LINK_LIVES, Shown, TokenQuery, USED_EVERY};
use helmdeck_core::Timestamp;

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

pub(super) async fn token_is_found_by_its_text_only(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    assert!(one.tokens().await.unwrap().is_empty());
    assert!(!one.revoke_token("0123456789abcdef", NOW).await.unwrap());
    one.token_used("0123456789abcdef", NOW).await.unwrap();
    assert!(!one.exists().await.unwrap());
    let (made, text) = one.create_token(token("a")).await.unwrap();
    let later = ApiToken { created_at: Timestamp(NOW.micros() + 1), ..token("b") };
    let (other, other_text) = one.create_token(later).await.unwrap();
    assert!(made.id != other.id && text.expose() != other_text.expose());
    assert_eq!(text.expose().len(), 92);
    let shown = Shown::parse(text.expose()).unwrap();
    assert_eq!(two.find_token(&shown).await.unwrap(), Some(made.clone()));
    // The id of one with the secret of another matches no token.
    let swapped = Shown { id: shown.id(), ..Shown::parse(other_text.expose()).unwrap() };
    assert_eq!(two.find_token(&swapped).await.unwrap(), None);
    assert_eq!(two.tokens().await.unwrap(), [made, other]);
}

pub(super) async fn revocation_is_shared_and_keeps_its_time(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    let (made, text) = one.create_token(token("a")).await.unwrap();
    let shown = Shown::parse(text.expose()).unwrap();
    assert!(one.find_token(&shown).await.unwrap().unwrap().is_live(NOW));
    assert!(two.revoke_token(&made.id, NOW).await.unwrap());
    assert!(two.revoke_token(&made.id, NOW.saturating_add(USED_EVERY)).await.unwrap());
    let found = one.find_token(&shown).await.unwrap().unwrap();
    assert_eq!(found.revoked_at, Some(NOW));
    assert!(!found.is_live(NOW));
}

pub(super) async fn pages_hold_every_token_once(fixture: Fixture) {
    let system = fixture.one;
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

pub(super) async fn token_is_used_up_once_while_valid(fixture: Fixture) {
    let system = fixture.one;
    let expires_at = Some(NOW.saturating_add(LINK_LIVES));
    let (first, _) = system.create_token(ApiToken { expires_at, ..token("a") }).await.unwrap();
    assert!(system.use_up_token(&first.id, NOW).await.unwrap());
    assert!(!system.use_up_token(&first.id, NOW).await.unwrap(), "it was used");
    let (second, _) = system.create_token(ApiToken { expires_at, ..token("a") }).await.unwrap();
    assert!(!system.use_up_token(&second.id, NOW.saturating_add(LINK_LIVES)).await.unwrap(), "it has expired");
}

pub(super) async fn a_use_is_noted_once_a_minute(fixture: Fixture) {
    let system = fixture.one;
    let (made, _) = system.create_token(token("a")).await.unwrap();
    for (seconds, noted) in [(0, 0), (59, 0), (60, 60), (90, 60)] {
        let now = NOW.saturating_add(Duration::from_secs(seconds));
        system.token_used(&made.id, now).await.unwrap();
        let expected = NOW.saturating_add(Duration::from_secs(noted));
        assert_eq!(system.tokens().await.unwrap()[0].used_at, Some(expected), "{seconds}");
    }
}

pub(super) async fn tokens_are_swept_90_days_after_their_end(fixture: Fixture) {
    let system = fixture.one;
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

pub(super) async fn forgetting_leaves_live_tokens(fixture: Fixture) {
    let system = fixture.one;
    assert_eq!(system.forget_ended_tokens("acme", "a", NOW).await.unwrap(), 0);
    assert!(!system.exists().await.unwrap());
    for (user, expires_at) in [("a", None), ("a", Some(NOW)), ("b", Some(NOW))] {
        system.create_token(ApiToken { expires_at, ..token(user) }).await.unwrap();
    }
    assert_eq!(system.forget_ended_tokens("acme", "a", NOW).await.unwrap(), 1);
    assert_eq!(system.tokens().await.unwrap().len(), 2);
}

//! API tokens.

use std::sync::Arc;
use std::time::Duration;

use super::{Fixture, NOW};
use crate::System;
use crate::tokens::{
    ApiToken, LINK_LIVES, MAX_ANCESTORS, NewToken, PresentedToken, TokenQuery, TokenReach, USED_EVERY,
};
use helmdeck_core::{Caller, Credential, Identity, Permissions, Timestamp, TokenCredential};

fn token(user: &str) -> NewToken {
    NewToken {
        name: "ci".to_owned(),
        tenant: "acme".to_owned(),
        subject: user.to_owned(),
        scope: "packs:run".to_owned(),
        created_at: NOW,
        expires_at: None,
        ancestors: Vec::new(),
    }
}

/// Returns the reach of a user that a JSON Web Token proved.
fn user_reach(user: &str) -> TokenReach {
    reach(user, Credential::Jwt { expires_at: NOW })
}

fn reach(user: &str, credential: Credential) -> TokenReach {
    TokenReach::of(&Caller::proven(Identity::new("acme", user).unwrap(), Permissions::none(), credential))
}

/// Returns the reach of a token.
fn family_reach(token: &ApiToken) -> TokenReach {
    let TokenCredential { id, ancestors, expires_at } = credential(token);
    reach(&token.subject, Credential::Token(Arc::new(TokenCredential { id, ancestors, expires_at })))
}

fn credential(token: &ApiToken) -> TokenCredential {
    TokenCredential { id: token.id.clone(), ancestors: token.ancestors.clone(), expires_at: token.expires_at }
}

/// Makes a token, by another one if there is one.
async fn make(system: &System, by: Option<&ApiToken>, expires_at: Option<Timestamp>) -> Option<ApiToken> {
    let ancestors = by.map(|by| Credential::Token(Arc::new(credential(by))).ancestors_of_child()).unwrap_or_default();
    let new = NewToken { expires_at, ancestors, ..token("a") };
    system.create_token(new).await.ok().map(|(token, _)| token)
}

pub(super) async fn token_is_found_by_its_text_only(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    assert!(one.tokens().await.unwrap().is_empty());
    assert!(!one.revoke_token("0123456789abcdef", &TokenReach::all(), NOW).await.unwrap());
    one.token_used("0123456789abcdef", NOW).await.unwrap();
    assert!(!one.exists().await.unwrap());
    let (made, text) = one.create_token(token("a")).await.unwrap();
    let later = NewToken { created_at: Timestamp(NOW.micros() + 1), ..token("b") };
    let (other, other_text) = one.create_token(later).await.unwrap();
    assert!(made.id != other.id && text.expose() != other_text.expose());
    assert_eq!(text.expose().len(), 92);
    let shown = PresentedToken::parse(text.expose()).unwrap();
    assert_eq!(two.prove_token(&shown).await.unwrap().as_deref(), Some(&made));
    // The id of one with the secret of another matches no token.
    let swapped = PresentedToken { id: shown.id, ..PresentedToken::parse(other_text.expose()).unwrap() };
    assert_eq!(two.prove_token(&swapped).await.unwrap(), None);
    assert_eq!(two.tokens().await.unwrap(), [made, other]);
}

pub(super) async fn revocation_is_shared_and_keeps_its_time(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    let (made, text) = one.create_token(token("a")).await.unwrap();
    let shown = PresentedToken::parse(text.expose()).unwrap();
    assert!(one.prove_token(&shown).await.unwrap().unwrap().is_live(NOW));
    assert!(two.revoke_token(&made.id, &TokenReach::all(), NOW).await.unwrap());
    assert!(two.revoke_token(&made.id, &TokenReach::all(), NOW.saturating_add(USED_EVERY)).await.unwrap());
    let found = one.prove_token(&shown).await.unwrap().unwrap();
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
        let query = TokenQuery { subject: Some("a".to_owned()), after, ..TokenQuery::new(TokenReach::all(), 2) };
        let page = system.token_page(query).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some((last.created_at, last.id.clone()));
        ids.extend(page.into_iter().map(|token| token.id));
    }
    assert_eq!(ids.len(), 3);
    assert!(ids.is_sorted_by(|left, right| left > right), "{ids:?}");
    assert!(!system.revoke_token(&ids[0], &user_reach("b"), NOW).await.unwrap());
    assert!(system.revoke_token(&ids[0], &user_reach("a"), NOW).await.unwrap());
    let live = TokenQuery { live_at: Some(NOW), ..TokenQuery::new(TokenReach::all(), 9) };
    assert_eq!(system.token_page(live).await.unwrap().len(), 3);
}

pub(super) async fn token_is_used_up_once_while_valid(fixture: Fixture) {
    let system = fixture.one;
    let expires_at = Some(NOW.saturating_add(LINK_LIVES));
    let proven = async || {
        let (_, text) = system.create_token(NewToken { expires_at, ..token("a") }).await.unwrap();
        system.prove_token(&PresentedToken::parse(text.expose()).unwrap()).await.unwrap().unwrap()
    };
    let first = proven().await;
    assert!(system.use_up_token(&first, NOW).await.unwrap());
    assert!(!system.use_up_token(&first, NOW).await.unwrap(), "it was used");
    assert!(!system.use_up_token(&proven().await, NOW.saturating_add(LINK_LIVES)).await.unwrap(), "it has expired");
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
        let token = NewToken { name: name.to_owned(), expires_at, ..token("a") };
        system.create_token(token).await.unwrap().0.id
    };
    make("expired", Some(day(1))).await;
    make("lives long", Some(day(1000))).await;
    make("lives for ever", None).await;
    let revoked = make("revoked", Some(day(1000))).await;
    system.revoke_token(&revoked, &TokenReach::all(), day(2)).await.unwrap();
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
        system.create_token(NewToken { expires_at, ..token(user) }).await.unwrap();
    }
    assert_eq!(system.forget_ended_tokens("acme", "a", NOW).await.unwrap(), 1);
    assert_eq!(system.tokens().await.unwrap().len(), 2);
}

pub(super) async fn descendants_end_with_each_ancestor(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    // A line of tokens, and for each of them one beside it that the same one made.
    for revoked in 0..4 {
        let (mut line, mut beside) = (Vec::<ApiToken>::new(), Vec::new());
        for _ in 0..4 {
            let next = make(&one, line.last(), None).await.unwrap();
            beside.push(make(&two, line.last(), None).await.unwrap());
            line.push(next);
        }
        let later = NOW.saturating_add(USED_EVERY);
        assert!(two.revoke_token(&line[revoked].id, &TokenReach::all(), later).await.unwrap());
        let all = one.tokens().await.unwrap();
        let ended = |token: &ApiToken| all.iter().find(|known| known.id == token.id).unwrap().revoked_at == Some(later);
        for (depth, (token, beside)) in line.iter().zip(&beside).enumerate() {
            assert_eq!(ended(token), depth >= revoked, "{revoked} {depth}");
            assert_eq!(ended(beside), depth > revoked, "{revoked} {depth}");
        }
        assert!(make(&one, line.last(), None).await.is_none(), "an ended token makes none");
    }
}

pub(super) async fn token_outlives_no_ancestor(fixture: Fixture) {
    let system = fixture.one;
    let at = |seconds| NOW.saturating_add(Duration::from_secs(seconds));
    let parent = make(&system, None, Some(at(60))).await.unwrap();
    for (expires_at, made) in [(None, false), (Some(at(61)), false), (Some(at(60)), true), (Some(at(1)), true)] {
        assert_eq!(make(&system, Some(&parent), expires_at).await.is_some(), made, "{expires_at:?}");
    }
    let expired = make(&system, None, Some(NOW)).await.unwrap();
    assert!(make(&system, Some(&expired), Some(NOW)).await.is_none());
    let unknown = ApiToken { id: "0123456789abcdef".to_owned(), ..parent };
    assert!(make(&system, Some(&unknown), Some(NOW)).await.is_none());
    let mut line = make(&system, None, None).await.unwrap();
    for _ in 0..MAX_ANCESTORS {
        line = make(&system, Some(&line), None).await.unwrap();
    }
    assert!(make(&system, Some(&line), None).await.is_none(), "the line is too long");
}

pub(super) async fn token_reaches_itself_and_its_descendants_only(fixture: Fixture) {
    let system = fixture.one;
    let root = make(&system, None, None).await.unwrap();
    let child = make(&system, Some(&root), None).await.unwrap();
    let grandchild = make(&system, Some(&child), None).await.unwrap();
    let sister = make(&system, Some(&root), None).await.unwrap();
    let stranger = make(&system, None, None).await.unwrap();
    let family = family_reach(&child);
    let mut seen = system.token_page(TokenQuery::new(family.clone(), 9)).await.unwrap();
    seen.sort_by_key(|token| token.ancestors.len());
    assert_eq!(seen, [child.clone(), grandchild.clone()]);
    for other in [&root, &sister, &stranger] {
        assert!(!system.revoke_token(&other.id, &family, NOW).await.unwrap(), "{}", other.id);
    }
    assert!(system.revoke_token(&grandchild.id, &family, NOW).await.unwrap());
    assert!(system.revoke_token(&child.id, &family, NOW).await.unwrap());
    let live = TokenQuery { live_at: Some(NOW), ..TokenQuery::new(TokenReach::all(), 9) };
    let live: Vec<String> = system.token_page(live).await.unwrap().into_iter().map(|token| token.id).collect();
    assert!([&root, &sister, &stranger].iter().all(|token| live.contains(&token.id)) && live.len() == 3, "{live:?}");
}

pub(super) async fn revocation_and_creation_at_once_leave_no_orphan(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    for _ in 0..20 {
        let root = make(&one, None, None).await.unwrap();
        let child = make(&one, Some(&root), None).await.unwrap();
        let all = TokenReach::all();
        let (revoked, made) = tokio::join!(two.revoke_token(&root.id, &all, NOW), make(&one, Some(&child), None));
        assert!(revoked.unwrap());
        if let Some(made) = made {
            let kept = one.tokens().await.unwrap().into_iter().find(|token| token.id == made.id).unwrap();
            assert_eq!(kept.revoked_at, Some(NOW), "a token outlived its ancestor");
        }
    }
}

//! API tokens.

use std::sync::Arc;
use std::time::Duration;

use super::{Fixture, NOW};
use crate::System;
use crate::tokens::{
    ApiToken, LINK_LIVES, MAX_ANCESTORS, NewToken, PresentedToken, TokenQuery, TokenReach,
    USED_EVERY,
};
use crate::transfer::{Row, TABLES, Table, Type, Value};
use helmdeck_core::{
    Caller, Credential, Identity, Permissions, Secret, Timestamp, TokenCredential,
};
use helmdeck_memory::{KeyRing, MemoryKey};

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
    TokenReach::of(&Caller::proven(
        Identity::new("acme", user).unwrap(),
        Permissions::none(),
        credential,
    ))
}

/// Returns the reach of a token.
fn family_reach(token: &ApiToken) -> TokenReach {
    reach(
        &token.subject,
        Credential::Token(Arc::new(credential(token))),
    )
}

fn credential(token: &ApiToken) -> TokenCredential {
    let (id, ancestors, expires_at) = (token.id.clone(), token.ancestors.clone(), token.expires_at);
    TokenCredential {
        id,
        ancestors,
        expires_at,
        browser: None,
    }
}

/// Makes a token, by another one if there is one.
async fn make(
    system: &System,
    by: Option<&ApiToken>,
    expires_at: Option<Timestamp>,
) -> Option<ApiToken> {
    let ancestors = by
        .map(|by| Credential::Token(Arc::new(credential(by))).ancestors_of_child())
        .unwrap_or_default();
    let new = NewToken {
        expires_at,
        ancestors,
        ..token("a")
    };
    system.create_token(new).await.ok().map(|(token, _)| token)
}

pub(super) async fn token_is_found_by_its_text_only(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    assert!(one.tokens().await.unwrap().is_empty());
    assert!(
        !one.revoke_token("0123456789abcdef", &TokenReach::all(), NOW)
            .await
            .unwrap()
    );
    one.token_used("0123456789abcdef", NOW).await.unwrap();
    assert!(!one.exists().await.unwrap());
    let (made, text) = one.create_token(token("a")).await.unwrap();
    let later = NewToken {
        created_at: Timestamp(NOW.micros() + 1),
        ..token("b")
    };
    let (other, other_text) = one.create_token(later).await.unwrap();
    assert!(made.id != other.id && text.expose() != other_text.expose());
    assert_eq!(text.expose().len(), 92);
    let shown = PresentedToken::parse(text.expose()).unwrap();
    assert_eq!(
        two.prove_token(&shown).await.unwrap().as_deref(),
        Some(&made)
    );
    // The id of one with the secret of another matches no token.
    let swapped = PresentedToken {
        id: shown.id,
        ..PresentedToken::parse(other_text.expose()).unwrap()
    };
    assert_eq!(two.prove_token(&swapped).await.unwrap(), None);
    assert_eq!(two.tokens().await.unwrap(), [made, other]);
}

pub(super) async fn revocation_is_shared_and_keeps_its_time(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    let (made, text) = one.create_token(token("a")).await.unwrap();
    let shown = PresentedToken::parse(text.expose()).unwrap();
    assert!(one.prove_token(&shown).await.unwrap().unwrap().is_live(NOW));
    assert!(
        two.revoke_token(&made.id, &TokenReach::all(), NOW)
            .await
            .unwrap()
    );
    assert!(
        two.revoke_token(&made.id, &TokenReach::all(), NOW.saturating_add(USED_EVERY))
            .await
            .unwrap()
    );
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
        let query = TokenQuery {
            subject: Some("a".to_owned()),
            after,
            ..TokenQuery::new(TokenReach::all(), 2)
        };
        let page = system.token_page(query).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some((last.created_at, last.id.clone()));
        ids.extend(page.into_iter().map(|token| token.id));
    }
    assert_eq!(ids.len(), 3);
    assert!(ids.is_sorted_by(|left, right| left > right), "{ids:?}");
    assert!(
        !system
            .revoke_token(&ids[0], &user_reach("b"), NOW)
            .await
            .unwrap()
    );
    assert!(
        system
            .revoke_token(&ids[0], &user_reach("a"), NOW)
            .await
            .unwrap()
    );
    let live = TokenQuery {
        live_at: Some(NOW),
        ..TokenQuery::new(TokenReach::all(), 9)
    };
    assert_eq!(system.token_page(live).await.unwrap().len(), 3);
}

pub(super) async fn token_is_used_up_once_while_valid(fixture: Fixture) {
    let system = fixture.one;
    let expires_at = Some(NOW.saturating_add(LINK_LIVES));
    let proven = async || {
        let (_, text) = system
            .create_token(NewToken {
                expires_at,
                ..token("a")
            })
            .await
            .unwrap();
        system
            .prove_token(&PresentedToken::parse(text.expose()).unwrap())
            .await
            .unwrap()
            .unwrap()
    };
    let first = proven().await;
    assert!(system.use_up_token(&first, NOW).await.unwrap());
    assert!(
        !system.use_up_token(&first, NOW).await.unwrap(),
        "it was used"
    );
    assert!(
        !system
            .use_up_token(&proven().await, NOW.saturating_add(LINK_LIVES))
            .await
            .unwrap(),
        "it has expired"
    );
}

pub(super) async fn a_use_is_noted_once_a_minute(fixture: Fixture) {
    let system = fixture.one;
    let (made, _) = system.create_token(token("a")).await.unwrap();
    for (seconds, noted) in [(0, 0), (59, 0), (60, 60), (90, 60)] {
        let now = NOW.saturating_add(Duration::from_secs(seconds));
        system.token_used(&made.id, now).await.unwrap();
        let expected = NOW.saturating_add(Duration::from_secs(noted));
        assert_eq!(
            system.tokens().await.unwrap()[0].used_at,
            Some(expected),
            "{seconds}"
        );
    }
}

pub(super) async fn tokens_are_swept_90_days_after_their_end(fixture: Fixture) {
    let system = fixture.one;
    let day = |days: u64| NOW.saturating_add(Duration::from_secs(days * 24 * 3600));
    let make = async |name: &str, expires_at| {
        let token = NewToken {
            name: name.to_owned(),
            expires_at,
            ..token("a")
        };
        system.create_token(token).await.unwrap().0.id
    };
    make("expired", Some(day(1))).await;
    make("lives long", Some(day(1000))).await;
    make("lives for ever", None).await;
    let revoked = make("revoked", Some(day(1000))).await;
    system
        .revoke_token(&revoked, &TokenReach::all(), day(2))
        .await
        .unwrap();
    let names = async || {
        let mut names: Vec<String> = system
            .tokens()
            .await
            .unwrap()
            .into_iter()
            .map(|token| token.name)
            .collect();
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
    assert_eq!(
        system.forget_ended_tokens("acme", "a", NOW).await.unwrap(),
        0
    );
    assert!(!system.exists().await.unwrap());
    for (user, expires_at) in [("a", None), ("a", Some(NOW)), ("b", Some(NOW))] {
        system
            .create_token(NewToken {
                expires_at,
                ..token(user)
            })
            .await
            .unwrap();
    }
    assert_eq!(
        system.forget_ended_tokens("acme", "a", NOW).await.unwrap(),
        1
    );
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
        assert!(
            two.revoke_token(&line[revoked].id, &TokenReach::all(), later)
                .await
                .unwrap()
        );
        let all = one.tokens().await.unwrap();
        let ended = |token: &ApiToken| {
            all.iter()
                .find(|known| known.id == token.id)
                .unwrap()
                .revoked_at
                == Some(later)
        };
        for (depth, (token, beside)) in line.iter().zip(&beside).enumerate() {
            assert_eq!(ended(token), depth >= revoked, "{revoked} {depth}");
            assert_eq!(ended(beside), depth > revoked, "{revoked} {depth}");
        }
        assert!(
            make(&one, line.last(), None).await.is_none(),
            "an ended token makes none"
        );
    }
}

pub(super) async fn token_outlives_no_ancestor(fixture: Fixture) {
    let system = fixture.one;
    let at = |seconds| NOW.saturating_add(Duration::from_secs(seconds));
    let parent = make(&system, None, Some(at(60))).await.unwrap();
    for (expires_at, made) in [
        (None, false),
        (Some(at(61)), false),
        (Some(at(60)), true),
        (Some(at(1)), true),
    ] {
        assert_eq!(
            make(&system, Some(&parent), expires_at).await.is_some(),
            made,
            "{expires_at:?}"
        );
    }
    let expired = make(&system, None, Some(NOW)).await.unwrap();
    assert!(make(&system, Some(&expired), Some(NOW)).await.is_none());
    let unknown = ApiToken {
        id: "0123456789abcdef".to_owned(),
        ..parent
    };
    assert!(make(&system, Some(&unknown), Some(NOW)).await.is_none());
    let mut line = make(&system, None, None).await.unwrap();
    for _ in 0..MAX_ANCESTORS {
        line = make(&system, Some(&line), None).await.unwrap();
    }
    assert!(
        make(&system, Some(&line), None).await.is_none(),
        "the line is too long"
    );
}

pub(super) async fn token_reaches_itself_and_its_descendants_only(fixture: Fixture) {
    let system = fixture.one;
    let root = make(&system, None, None).await.unwrap();
    let child = make(&system, Some(&root), None).await.unwrap();
    let grandchild = make(&system, Some(&child), None).await.unwrap();
    let sister = make(&system, Some(&root), None).await.unwrap();
    let stranger = make(&system, None, None).await.unwrap();
    let family = family_reach(&child);
    let mut seen = system
        .token_page(TokenQuery::new(family.clone(), 9))
        .await
        .unwrap();
    seen.sort_by_key(|token| token.ancestors.len());
    assert_eq!(seen, [child.clone(), grandchild.clone()]);
    for other in [&root, &sister, &stranger] {
        assert!(
            !system.revoke_token(&other.id, &family, NOW).await.unwrap(),
            "{}",
            other.id
        );
    }
    assert!(
        system
            .revoke_token(&grandchild.id, &family, NOW)
            .await
            .unwrap()
    );
    assert!(system.revoke_token(&child.id, &family, NOW).await.unwrap());
    let live = TokenQuery {
        live_at: Some(NOW),
        ..TokenQuery::new(TokenReach::all(), 9)
    };
    let live: Vec<String> = system
        .token_page(live)
        .await
        .unwrap()
        .into_iter()
        .map(|token| token.id)
        .collect();
    assert!(
        [&root, &sister, &stranger]
            .iter()
            .all(|token| live.contains(&token.id))
            && live.len() == 3,
        "{live:?}"
    );
}

pub(super) async fn revocation_and_creation_at_once_leave_no_orphan(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    for _ in 0..20 {
        let root = make(&one, None, None).await.unwrap();
        let child = make(&one, Some(&root), None).await.unwrap();
        let all = TokenReach::all();
        let (revoked, made) = tokio::join!(
            two.revoke_token(&root.id, &all, NOW),
            make(&one, Some(&child), None)
        );
        assert!(revoked.unwrap());
        if let Some(made) = made {
            let kept = one
                .tokens()
                .await
                .unwrap()
                .into_iter()
                .find(|token| token.id == made.id)
                .unwrap();
            assert_eq!(kept.revoked_at, Some(NOW), "a token outlived its ancestor");
        }
    }
}

fn keys(current: u8, previous: Option<u8>) -> Option<KeyRing> {
    let key = |byte: u8| MemoryKey::parse("K", &format!("{byte:02x}").repeat(32)).unwrap();
    Some(KeyRing::new(
        key(current),
        previous.into_iter().map(key).collect(),
    ))
}

async fn is_good(system: &System, text: &Secret) -> bool {
    system
        .prove_token(&PresentedToken::parse(text.expose()).unwrap())
        .await
        .unwrap()
        .is_some()
}

/// The rows of a table, which whoever can write the database can read and write.
async fn rows(system: &System, name: &str) -> Vec<Row> {
    system.driver().rows(table(name), None, 1000).await.unwrap()
}

async fn put(system: &System, name: &str, rows: &[Row]) {
    system
        .driver()
        .put_rows(table(name), rows.to_vec())
        .await
        .unwrap();
}

fn table(name: &str) -> &'static Table {
    TABLES.iter().find(|table| table.name == name).unwrap()
}

const TOKENS: &str = "API tokens";
const STATE: &str = "state of the tokens";

pub(super) async fn nobody_without_the_key_makes_or_changes_a_token(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    let (early, early_text) = one.create_token(token("early")).await.unwrap();
    let one = one.with_keys(keys(1, None));
    assert!(
        !is_good(&one, &early_text).await,
        "it was made without the key"
    );
    let (parent, parent_text) = one.create_token(token("a")).await.unwrap();
    let expires_at = Some(NOW.saturating_add(Duration::from_secs(3600)));
    let child = NewToken {
        ancestors: vec![parent.id.clone()],
        expires_at,
        ..token("a")
    };
    let (child, child_text) = one.create_token(child).await.unwrap();
    let (_, other_text) = one.create_token(token("b")).await.unwrap();
    assert!(
        is_good(&two, &child_text).await,
        "where no key is set, none is asked for"
    );
    let refused = two.create_token(token("a")).await.unwrap_err();
    assert!(
        refused.to_string().contains("sealed with the memory key"),
        "{refused}"
    );
    let two = two.with_keys(keys(1, None));
    let all = [&parent_text, &child_text, &other_text];
    for text in all {
        assert!(is_good(&one, text).await && is_good(&two, text).await);
    }

    // Every column of every token, changed or taken from another one, and copies under an id that
    // nobody has.
    let written = rows(&one, TOKENS).await;
    let (columns, mut count) = (table(TOKENS).columns, 0);
    for (at, (name, kind)) in columns
        .iter()
        .enumerate()
        .filter(|(_, (name, _))| *name != "used_at")
    {
        for row in &written {
            let mut values: Vec<Value> = written.iter().map(|other| other[at].clone()).collect();
            values.extend(match kind {
                Type::Text => [Value::Text("admin".to_owned()), Value::Text(String::new())],
                Type::Blob => [Value::Blob(vec![7; 32]), Value::Blob(vec![0; 32])],
                _ => [
                    Value::Int(NOW.micros() + 1_000_000_000_000),
                    Value::Int(NOW.micros() + 1),
                ],
            });
            for value in values.into_iter().filter(|value| *value != row[at]) {
                let mut changed = row.clone();
                changed[at] = value;
                if *name == "id" {
                    count += 1;
                    changed[1] = Value::Blob(vec![count; 32]);
                }
                // No two have one digest.
                if one
                    .driver()
                    .put_rows(table(TOKENS), vec![changed.clone()])
                    .await
                    .is_err()
                {
                    assert_eq!(*name, "digest");
                    continue;
                }
                let (Value::Text(id), Value::Blob(digest)) = (&changed[0], &changed[1]) else {
                    unreachable!()
                };
                let presented = PresentedToken {
                    id,
                    digest: digest[..].try_into().unwrap(),
                };
                let proven = two.prove_token(&presented).await.unwrap();
                // Whoever can write can revoke.
                assert!(
                    proven.is_none_or(|token| *name == "revoked_at" && !token.is_live(NOW)),
                    "{name}: {changed:?}"
                );
                put(&one, TOKENS, &written).await;
            }
        }
    }
    for text in all {
        assert!(is_good(&two, text).await);
    }

    // Revoked ones that are put back, one that descends from them, and an older head.
    let before = rows(&one, STATE).await;
    assert!(
        one.revoke_token(&parent.id, &TokenReach::all(), NOW)
            .await
            .unwrap()
    );
    put(&one, TOKENS, &written).await;
    for system in [&one, &two] {
        assert!(!is_good(system, &parent_text).await && !is_good(system, &child_text).await);
        assert!(is_good(system, &other_text).await);
    }
    let after = rows(&one, STATE).await;
    put(&one, STATE, &before).await;
    for text in all {
        assert!(!is_good(&two, text).await, "it knows a later head");
    }
    put(&one, STATE, &after).await;
    // No head, or another one: no token. Those that the operator names are sealed anew.
    let mut none = after.clone();
    none[0][1] = Value::Int(1_000_000);
    none[0][2] = Value::Null;
    put(&one, STATE, &none).await;
    assert!(!is_good(&two, &other_text).await);
    let refused = two.unsealed_tokens(NOW).await.unwrap();
    // And copies under other ids, unless they ended with the parent.
    assert!(refused.len() >= 4, "{refused:?}");
    let other = refused
        .iter()
        .find(|token| token.subject == "b" && token.id.len() == 16)
        .unwrap()
        .id
        .clone();
    two.adopt_tokens(vec![other, early.id.clone()], NOW)
        .await
        .unwrap();
    assert!(is_good(&two, &other_text).await && is_good(&two, &early_text).await);
    assert!(!is_good(&two, &parent_text).await && !is_good(&two, &child_text).await);
    assert_eq!(
        two.unsealed_tokens(NOW).await.unwrap().len(),
        refused.len() - 2
    );
    assert!(child.ancestors.contains(&parent.id));
}

pub(super) async fn a_new_key_seals_tokens_anew(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    let old = one.with_keys(keys(1, None));
    let (_, text) = old.create_token(token("a")).await.unwrap();
    let (gone, gone_text) = old.create_token(token("a")).await.unwrap();
    let new = two.with_keys(keys(2, Some(1)));
    // What the new server does, the old one understands until all are sealed anew.
    let (_, later) = new.create_token(token("a")).await.unwrap();
    assert!(
        new.revoke_token(&gone.id, &TokenReach::all(), NOW)
            .await
            .unwrap()
    );
    for system in [&old, &new] {
        assert!(is_good(system, &text).await && is_good(system, &later).await);
    }
    let written = rows(&new, TOKENS).await;
    assert_eq!(new.reseal_tokens(NOW).await.unwrap(), 2);
    assert_ne!(rows(&new, TOKENS).await, written);
    assert!(
        is_good(&new, &text).await
            && is_good(&new, &later).await
            && !is_good(&new, &gone_text).await
    );
    assert!(!is_good(&old, &text).await, "it has no key for them");
}

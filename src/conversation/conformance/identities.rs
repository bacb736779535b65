//! Test cases about whose conversation is whose.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::sync::Arc;

use helmdeck_events::EventKind;

use super::fixture::{
    Fixture, METHODS, STUCK, add, alice, bob, call, fold, items, kept, numbers, seen, turn,
};
use super::{eventually, marks};
use crate::error::ConversationError;
use crate::identity::Identity;
use crate::views::{ConversationFilter, TurnFilter};

/// Reference suite: `Identity_Mandatory_*`.
///
/// W27 of the reference: a missing part is missing, not a word that could be a name.
pub(super) async fn every_method_refuses_an_incomplete_identity_with_one_event(s: Fixture) {
    let memory = s.open();
    let cases = [
        (("", "", ""), "tenant_id, user_id and session_id empty"),
        (("", "u", "s"), "tenant_id empty"),
        (("t", "", "s"), "user_id empty"),
        (("t", "u", ""), "session_id empty"),
        (("", "", "s"), "tenant_id and user_id empty"),
        (("", "u", ""), "tenant_id and session_id empty"),
        (("t", "", ""), "user_id and session_id empty"),
    ];
    let mut expected = Vec::new();
    let (reads, writes) = (s.faults.reads(), s.faults.writes());
    for method in METHODS {
        for ((tenant, user, session), why) in cases {
            let identity = Identity {
                run: Some("r".into()),
                ..Identity::new(tenant, user, session)
            };
            let refused = call(&memory, method, &identity).await;
            assert!(
                matches!(&refused, Err(ConversationError::IdentityRequired { reason }) if reason == why),
                "{method}: {refused:?}"
            );
            let known = |part: &str| Some(part.to_owned()).filter(|part| !part.is_empty());
            expected.push((
                method,
                why.to_owned(),
                known(tenant),
                known(user),
                known(session),
            ));
        }
    }
    let rejected = s.events().into_iter().filter_map(|event| match event {
        EventKind::MemoryIdentityRejected {
            who,
            operation,
            reason,
        } => Some((operation, reason, who.tenant, who.user, who.session)),
        _ => None,
    });
    let rejected = rejected.collect::<Vec<_>>();
    assert_eq!(rejected, expected);
    if !s.rolls() {
        assert_eq!(
            (s.faults.reads(), s.faults.writes()),
            (reads, writes),
            "nothing was read or written"
        );
    }
    let page = memory
        .list_conversations(&ConversationFilter::default())
        .await
        .unwrap();
    assert_eq!(
        (page.total, page.identity_rejected_24h),
        (0, expected.len() as u64)
    );
    // What looks empty is a name like any other.
    let odd = Identity::new(" ", "<missing>", " ");
    for method in ["add_turn", "context", "health", "flush"] {
        call(&memory, method, &odd).await.unwrap();
    }
}

/// W18: a conversation outlives its runs.
pub(super) async fn a_run_is_accepted_and_ignored(s: Fixture) {
    let memory = s.open();
    let of = |run: &str| Identity {
        run: Some(run.into()),
        ..alice()
    };
    memory.add_turn(&of("r1"), turn(1)).await.unwrap();
    memory.add_turn(&of("r2"), turn(2)).await.unwrap();
    memory.add_turn(&alice(), turn(3)).await.unwrap();
    for identity in [of("r1"), of("r3"), of(""), alice()] {
        assert_eq!(seen(&memory, &identity).await, numbers(1..4));
    }
    memory.flush(&of("r9")).await.unwrap();
    assert!(seen(&memory, &of("r1")).await.is_empty());
}

/// Case 2 of the reference: isolation with data, for every method.
///
/// The ids would collide if they were joined.
pub(super) async fn conversations_never_see_each_other(s: Fixture) {
    let memory = s.open();
    let names = [
        ("tenant-a", "user-1", "session-1"),
        ("tenant-a", "user-1", "session-2"),
        ("tenant-a", "user-2", "session-1"),
        ("tenant-b", "user-1", "session-1"),
        ("a|b", "c", "d"),
        ("a", "b|c", "d"),
        ("a", "b", "c|d"),
        ("a:b", "c", "d"),
        ("a", "b:c", "d"),
        ("a/b", "c", "d"),
        ("a", "b/c", "d"),
        ("A", "b", "c"),
        ("a", "b", "c"),
        ("a", "b", "C"),
        ("a ", "b", "c"),
        ("a", "b", "%"),
        ("a", "b", "_"),
        ("a", "b", "~head"),
        ("a", "b", "turn/1"),
        ("a", "b", "é"),
        ("a", "b", "e\u{301}"),
        ("<missing>", "b", "c"),
    ];
    let all: Vec<Identity> = names
        .into_iter()
        .map(|(t, u, s)| Identity::new(t, u, s))
        .collect();
    let own = |index: usize, turns: usize| {
        (0..turns)
            .map(|n| format!("d{index}/{n}"))
            .collect::<Vec<_>>()
    };
    for number in 0..7 {
        for (index, identity) in all.iter().enumerate() {
            memory
                .add_turn(identity, turn(format!("d{index}/{number}")))
                .await
                .unwrap();
        }
    }
    let mut keys = Vec::new();
    for (index, identity) in all.iter().enumerate() {
        fold(&memory, identity).await;
        assert_eq!(seen(&memory, identity).await, own(index, 7));
        assert_eq!(kept(&memory, identity).await, own(index, 7));
        keys.push(items(&memory, identity).await[0].key.to_string());
        let snapshot = memory.snapshot(identity).await.unwrap();
        let text = String::from_utf8(snapshot.bytes.to_vec()).unwrap();
        let found = marks(&text);
        assert!(
            !found.is_empty()
                && found
                    .iter()
                    .all(|mark| mark.starts_with(&format!("d{index}/"))),
            "{found:?}"
        );
        let other = (index + 1) % all.len();
        let filter = TurnFilter {
            content_search: Some(format!("[d{other}/")),
            ..TurnFilter::default()
        };
        assert_eq!(
            memory.list_turns(identity, &filter).await.unwrap().items,
            []
        );
    }
    for (index, identity) in all.iter().enumerate() {
        let foreign = &keys[(index + 1) % all.len()];
        for method in ["get", "delete"] {
            let refused = match method {
                "get" => memory.get_turn(identity, foreign).await.map(drop),
                _ => memory.delete_turn(identity, foreign).await.map(drop),
            };
            assert!(
                matches!(refused, Err(ConversationError::NotFound)),
                "{method}: {refused:?}"
            );
        }
    }
    // Deleting, flushing, restoring and forgetting one leaves all others as they are.
    let snapshot = memory.snapshot(&all[1]).await.unwrap();
    memory.delete_turn(&all[0], &keys[0]).await.unwrap();
    memory.flush(&all[4]).await.unwrap();
    memory.forget(&all[12]).await.unwrap();
    memory.restore(&all[19], &snapshot).await.unwrap();
    let fresh = s.another().open();
    for (index, identity) in all.iter().enumerate() {
        fold(&memory, identity).await;
        let expected = match index {
            0 => own(0, 7)[1..].to_vec(),
            4 | 12 => Vec::new(),
            19 => own(1, 7),
            _ => own(index, 7),
        };
        assert_eq!(seen(&memory, identity).await, expected, "{identity:?}");
        assert_eq!(seen(&fresh, identity).await, expected, "{identity:?}");
    }
}

/// Reference suite: `Concurrent_AllMethods_NoRace`, with data and without a leak.
pub(super) async fn all_methods_at_once_on_many_conversations(s: Fixture) {
    let memory = s.open();
    let tasks: Vec<_> = (0..48)
        .map(|task| {
            let (memory, keeps) = (memory.clone(), s.strategy != crate::Strategy::None);
            tokio::spawn(async move {
                let identity = Identity::new(
                    &format!("tenant-{}", task % 3),
                    &format!("user-{}", task % 7),
                    &format!("s{task}"),
                );
                for round in 0..2 {
                    let marks = [format!("{task}/{round}/0"), format!("{task}/{round}/1")];
                    for mark in &marks {
                        memory.add_turn(&identity, turn(mark)).await.unwrap();
                    }
                    let seen = seen(&memory, &identity).await;
                    let expected = if keeps { marks.to_vec() } else { Vec::new() };
                    assert_eq!(seen, expected);
                    memory.estimate_tokens(&identity).await.unwrap();
                    memory.health(&identity).await.unwrap();
                    let put = memory
                        .put_turn(&identity, turn(format!("{task}/{round}/put")))
                        .await
                        .unwrap();
                    assert_eq!(
                        items(&memory, &identity).await.len(),
                        if keeps { 3 } else { 0 }
                    );
                    if let Some(id) = put.id {
                        let detail = memory.get_turn(&identity, &id.to_string()).await.unwrap();
                        assert_eq!(
                            super::marks(&detail.turn.user_message),
                            [format!("{task}/{round}/put")]
                        );
                        let deleted = memory
                            .delete_turn(&identity, &id.to_string())
                            .await
                            .unwrap();
                        assert_eq!(deleted.remaining_turns, 2);
                    }
                    let trace = memory.trace(&identity).await.unwrap();
                    assert_eq!(trace.kept_turns, expected.len() as u64);
                    assert_eq!(memory.summarise(&identity, STUCK).await.unwrap(), 0);
                    let snapshot = memory.snapshot(&identity).await.unwrap();
                    memory.restore(&identity, &snapshot).await.unwrap();
                    assert_eq!(kept(&memory, &identity).await, expected);
                    if round == 0 {
                        memory.flush(&identity).await.unwrap();
                    } else {
                        assert_eq!(
                            memory.forget(&identity).await.unwrap(),
                            expected.len() as u64
                        );
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    for task in 0..48 {
        let identity = Identity::new(
            &format!("tenant-{}", task % 3),
            &format!("user-{}", task % 7),
            &format!("s{task}"),
        );
        assert!(memory.context(&identity).await.unwrap().is_empty());
    }
    assert_eq!(s.rows_with("is answered").await, 0);
}

/// Case 15 of the reference: a caller that may see all conversations sees them.
pub(super) async fn conversations_of_everybody_are_listed(s: Fixture) {
    let memory = s.open_with(|config| config.ttl = std::time::Duration::from_secs(1800));
    let all = [
        ("t1", "u1", "a"),
        ("t1", "u1", "b"),
        ("t1", "u2", "a"),
        ("t2", "u1", "a"),
        ("t|1", "u", "a"),
    ];
    for (index, (tenant, user, session)) in all.iter().enumerate() {
        add(&memory, &Identity::new(tenant, user, session), 0..=index).await;
    }
    let fresh = s
        .another()
        .open_with(|config| config.ttl = std::time::Duration::from_secs(1800));
    for memory in [&memory, &fresh] {
        let page = memory
            .list_conversations(&ConversationFilter::default())
            .await
            .unwrap();
        let found: Vec<_> = page
            .sessions
            .iter()
            .map(|s| {
                (
                    s.tenant.as_str(),
                    s.user.as_str(),
                    s.session.as_str(),
                    s.turns,
                )
            })
            .collect();
        let expected: Vec<_> = all
            .iter()
            .enumerate()
            .map(|(i, (t, u, s))| (*t, *u, *s, i as u64 + 1))
            .collect();
        assert_eq!((found, page.total, page.next), (expected, 5, None));
        assert_eq!(
            page.expiring_in_1h, 5,
            "W24: when a conversation ends is known"
        );
        assert!(
            page.sessions
                .iter()
                .all(|session| session.expires_at.is_some() && session.bytes > 0)
        );
        let filter = ConversationFilter {
            tenant: Some("t1".into()),
            user: Some("u1".into()),
            ..ConversationFilter::default()
        };
        assert_eq!(memory.list_conversations(&filter).await.unwrap().total, 2);
        let filter = ConversationFilter {
            tenant: Some("nobody".into()),
            ..ConversationFilter::default()
        };
        assert_eq!(
            memory.list_conversations(&filter).await.unwrap().sessions,
            []
        );
        // Pages join without gap or repeat.
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = memory
                .list_conversations(&ConversationFilter {
                    limit: Some(2),
                    after,
                    ..ConversationFilter::default()
                })
                .await
                .unwrap();
            assert_eq!(page.total, 5);
            found.extend(
                page.sessions
                    .into_iter()
                    .map(|s| (s.tenant, s.user, s.session)),
            );
            let Some(next) = page.next else { break };
            after = Some(next);
        }
        assert_eq!(
            found,
            all.map(|(t, u, s)| (t.to_owned(), u.to_owned(), s.to_owned()))
        );
    }
    for limit in [0, 201] {
        let refused = memory
            .list_conversations(&ConversationFilter {
                limit: Some(limit),
                ..ConversationFilter::default()
            })
            .await;
        assert!(
            matches!(refused, Err(ConversationError::Invalid(_))),
            "{refused:?}"
        );
    }
    let forgotten = memory
        .forget(&Identity::new("t1", "u1", "a"))
        .await
        .unwrap();
    assert_eq!(forgotten, 1);
    assert_eq!(
        memory
            .list_conversations(&ConversationFilter::default())
            .await
            .unwrap()
            .total,
        4
    );
    // Rows of other owners and kinds are not conversations.
    let fact = helmdeck_memory::Put::new(
        bob().namespace().unwrap(),
        helmdeck_memory::Kind::Fact,
        "k",
        "v".to_owned(),
    );
    s.bare.put(fact).await.unwrap();
    assert_eq!(
        memory
            .list_conversations(&ConversationFilter::default())
            .await
            .unwrap()
            .total,
        4
    );
}

/// After everything is dropped nothing holds on to the store or the summarizer.
pub(super) async fn a_closed_memory_holds_on_to_nothing(s: Fixture) {
    let memory = s.open();
    add(&memory, &alice(), 0..8).await;
    memory.context(&bob()).await.unwrap();
    assert_eq!(
        Arc::strong_count(&s.summarizer),
        if s.rolls() {
            Arc::strong_count(&s.summarizer).max(2)
        } else {
            1
        }
    );
    memory.close(super::fixture::STUCK).await;
    drop(memory);
    eventually("the tasks to be gone", async || {
        Arc::strong_count(&s.summarizer) == 1
    })
    .await;
}

use super::*;
use crate::views::TurnFilter;

#[tokio::test]
async fn list_with_texts_has_bounded_pages() {
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::RollingSummary));
    for number in 0..30 {
        memory
            .add_turn(
                &alice(),
                NewTurn::new(format!("q{number}"), "x".repeat(100 << 10)),
            )
            .await
            .unwrap();
    }
    fold(&memory, 20, |_| {}).await;
    let (mut filter, mut found, mut pages) = (
        TurnFilter {
            with_texts: true,
            ..TurnFilter::default()
        },
        Vec::new(),
        0,
    );
    loop {
        let page = memory.list_turns(&alice(), &filter).await.unwrap();
        let bytes: u64 = page.items.iter().map(|item| item.size_bytes).sum();
        assert!(!page.items.is_empty() && bytes <= 1 << 20, "{bytes}");
        pages += 1;
        found.extend(page.items);
        let Some(next) = page.next else { break };
        filter.after = Some(next);
    }
    let said = |item: &crate::TurnInfo| item.value.as_ref().unwrap().user_message.clone();
    let expected: Vec<String> = (0..30).rev().map(|number| format!("q{number}")).collect();
    assert_eq!(
        (pages, found.iter().map(said).collect::<Vec<_>>()),
        (3, expected),
        "folded turns too"
    );
    let written = serde_json::to_value(&found[0]).unwrap();
    assert_eq!(
        (&written["value"]["user_message"], &written["folded"]),
        (&"q29".into(), &false.into())
    );

    let bare = TurnFilter {
        limit: Some(200),
        ..TurnFilter::default()
    };
    let page = memory.list_turns(&alice(), &bare).await.unwrap();
    assert!(
        page.items.len() == 30 && page.items.iter().all(|item| item.value.is_none()),
        "only if they are wanted"
    );
    assert!(!serde_json::to_string(&page).unwrap().contains("value"));
}

//! Pages of lists, and how long a client may keep them.

use rmcp::model::{CacheScope, ErrorData, PaginatedRequestParams};

/// Lifetime of a cached list, in milliseconds. Listeners are notified of changes.
pub(crate) const LIST_TTL_MS: u64 = 60_000;

/// Cache scope of lists that depend on the caller: only that client may cache them.
pub(crate) const OWN: CacheScope = CacheScope::Private;
/// Cache scope of lists that are the same for all callers.
pub(crate) const FOR_ALL: CacheScope = CacheScope::Public;

/// Prefix of a cursor, so that another server's cursor is not accepted.
const MARK: &str = "after:";

/// Returns one page of a sorted list: the items after the cursor, and the next cursor.
///
/// There is no next cursor after the last page. A cursor names the item before the page, so that no
/// item is skipped or repeated when others are added or removed.
pub(crate) fn page<'a, T>(
    items: impl Iterator<Item = T>,
    name: impl Fn(&T) -> &'a str,
    request: Option<&PaginatedRequestParams>,
    size: usize,
) -> Result<(Vec<T>, Option<String>), ErrorData> {
    let after = match request.and_then(|request| request.cursor.as_deref()) {
        None => None,
        Some(cursor) => Some(
            cursor
                .strip_prefix(MARK)
                .ok_or_else(|| ErrorData::invalid_params("the cursor is none of ours", None))?,
        ),
    };
    let mut rest = items.filter(|item| after.is_none_or(|after| name(item) > after));
    let page: Vec<T> = rest.by_ref().take(size).collect();
    let next = match (rest.next(), page.last()) {
        (Some(_), Some(last)) => Some(format!("{MARK}{}", name(last))),
        _ => None,
    };
    Ok((page, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_and_survive_changes_in_between() {
        let of = |items: &'static [&'static str], cursor: Option<&str>| {
            let request = PaginatedRequestParams::default().with_cursor(cursor.map(str::to_owned));
            page(
                items.iter().copied(),
                |item: &&'static str| item,
                Some(&request),
                2,
            )
        };
        let (first, next) = of(&["a", "b", "c", "d"], None).unwrap();
        assert_eq!((first, next.as_deref()), (vec!["a", "b"], Some("after:b")));
        let (second, end) = of(&["a", "bb", "c"], next.as_deref()).unwrap();
        assert_eq!((second, end), (vec!["bb", "c"], None));
        assert!(of(&["a"], Some("7")).is_err());
    }
}

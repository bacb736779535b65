//! The `Link` header (RFC 8288), as far as paging needs it.

/// Returns the target of the first link whose relation is `next`.
pub(super) fn next(header: &str) -> Option<&str> {
    let mut rest = header;
    while let Some(open) = rest.find('<') {
        let close = open + rest[open..].find('>')?;
        let target = &rest[open + 1..close];
        // The parameters reach to the next target, since no parameter that GitHub sends holds a
        // `<`.
        let end = rest[close..].find('<').map_or(rest.len(), |at| close + at);
        let is_next = rest[close + 1..end].split(';').any(|parameter| {
            parameter
                .trim()
                .trim_end_matches([',', ' '])
                .split_once('=')
                .is_some_and(|(name, value)| {
                    name.trim().eq_ignore_ascii_case("rel")
                        && value
                            .trim()
                            .trim_matches('"')
                            .split(' ')
                            .any(|relation| relation.eq_ignore_ascii_case("next"))
                })
        });
        if is_next {
            return Some(target);
        }
        rest = &rest[end..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::next;

    #[test]
    fn the_next_page_is_found_wherever_it_stands() {
        let first = r#"<https://api.github.com/repositories/1/issues?page=2>; rel="next", <https://api.github.com/repositories/1/issues?page=5>; rel="last""#;
        assert_eq!(
            next(first),
            Some("https://api.github.com/repositories/1/issues?page=2")
        );
        let middle = r#"<https://h/x?labels=a,b&page=1>; rel="prev", <https://h/x?labels=a,b&page=3>; rel="next""#;
        assert_eq!(next(middle), Some("https://h/x?labels=a,b&page=3"));
        assert_eq!(
            next("<https://h/x>; title=\"t\"; REL=next"),
            Some("https://h/x")
        );
        assert_eq!(
            next(r#"<https://h/x>; rel="prev next""#),
            Some("https://h/x")
        );
    }

    #[test]
    fn the_last_page_has_no_next() {
        for header in [
            "",
            "<https://h/x",
            r#"<https://h/x>; rel="prev", <https://h/y>; rel="first""#,
            r#"<x>; rel="nextish""#,
        ] {
            assert_eq!(next(header), None, "{header}");
        }
    }
}

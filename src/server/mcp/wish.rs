//! Cache directive of an MCP request: `_meta["helmdeck/cache"]`.
//!
//! It is the MCP form of the REST transport's `Cache-Control`.

use std::time::Duration;

use helmdeck_core::{Call, Directive};
use serde::Deserialize;

/// `{directive?, max_age?, max_stale?}`: the directive, and times in whole seconds.
///
/// The directive is `default`, `bypass`, `refresh` or `only_if_cached`. It is validated whether the
/// gates are open or not, and changes nothing unless both are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CacheWish {
    #[serde(default)]
    directive: Word,
    #[serde(default)]
    max_age: Option<u32>,
    #[serde(default)]
    max_stale: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    #[default]
    Default,
    Bypass,
    Refresh,
    OnlyIfCached,
}

impl CacheWish {
    /// Applies the directive to a call.
    pub(crate) fn apply(self, call: &mut Call) {
        call.directive = match self.directive {
            Word::Default => Directive::Default,
            Word::Bypass => Directive::Bypass,
            Word::Refresh => Directive::Refresh,
            Word::OnlyIfCached => Directive::OnlyIfCached,
        };
        let seconds = |number: u32| Duration::from_secs(number.into());
        call.max_age = self.max_age.map(seconds);
        call.max_stale = self.max_stale.map(seconds);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use helmdeck_core::{Identity, PackName};

    use super::*;

    #[test]
    fn every_directive_is_read_and_anything_else_is_refused() {
        let read = |text: &str| {
            let wish: CacheWish = serde_json::from_str(text).ok()?;
            let mut call = Call::new(
                PackName::new("a.b").unwrap(),
                "{}",
                Arc::new(Identity::local()),
            );
            wish.apply(&mut call);
            Some((
                call.directive,
                call.max_age.map(|age| age.as_secs()),
                call.max_stale.map(|age| age.as_secs()),
            ))
        };
        assert_eq!(read("{}"), Some((Directive::Default, None, None)));
        for directive in [
            Directive::Default,
            Directive::Bypass,
            Directive::Refresh,
            Directive::OnlyIfCached,
        ] {
            let text = format!(
                r#"{{"directive":"{}","max_age":60,"max_stale":0}}"#,
                directive.as_str()
            );
            assert_eq!(read(&text), Some((directive, Some(60), Some(0))), "{text}");
        }
        for bad in [
            r#"{"directive":"no-cache"}"#,
            r#"{"max_age":-1}"#,
            r#"{"max_age":"1m"}"#,
            r#"{"maxAge":1}"#,
            "7",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}

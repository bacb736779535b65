//! `Debug` without secrets and texts of users: no log or error shows them.

/// Implements `Debug` for a type from the fields given; the other fields are left out.
///
/// Give lengths, ids and states, never a text of a user or a secret.
///
/// # Examples
///
/// ```
/// struct Login { user: String, password: String }
///
/// helmdeck_core::redacted_debug!(Login, this => user = this.user, bytes = this.password.len());
///
/// let login = Login { user: "ada".to_owned(), password: "hunter22".to_owned() };
/// assert_eq!(format!("{login:?}"), r#"Login { user: "ada", bytes: 8, .. }"#);
/// ```
#[macro_export]
macro_rules! redacted_debug {
    ($type:ident $(, $this:ident => $($field:ident = $value:expr),+)?) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $(let $this = self;)?
                f.debug_struct(stringify!($type))$($(.field(stringify!($field), &$value))+)?.finish_non_exhaustive()
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::memory::{NewFact, NewNote};
    use crate::{Call, Identity, Json, PackName, Secret};

    #[test]
    fn debug_output_shows_no_text() {
        let fact: NewFact =
            serde_json::from_str(r#"{"key": "canary", "value": "canary"}"#).unwrap();
        let call = Call::new(
            PackName::new("x.y").unwrap(),
            r#"{"a": "canary"}"#,
            Arc::new(Identity::local()),
        );
        for shown in [
            format!("{call:?}"),
            format!("{fact:?}"),
            format!("{:?}", NewNote::new("canary", "canary")),
            format!("{:?}", Json::from_serialize("canary").unwrap()),
            format!("{:?}", Secret::new("canary".into())),
        ] {
            assert!(!shown.contains("canary"), "{shown}");
        }
    }
}

//! The header `Helmdeck-Session`: names the session of a call, which is one conversation of its
//! caller.

use std::sync::Arc;

use helmdeck_core::{Code, Error, Identity, Result};
use http::HeaderMap;

/// The header.
const NAME: &str = "helmdeck-session";

/// Returns an identity, narrowed to the session that the header names, if there is one.
///
/// A token that names a session is valid for that one only. Callers without a token have none: they
/// are many people.
///
/// # Errors
/// `invalid_input` if the header is there twice, or is not 1 to 256 visible ASCII characters;
/// `forbidden` if the token names another session.
pub(crate) fn narrowed(headers: &HeaderMap, identity: &Arc<Identity>) -> Result<Arc<Identity>> {
    let mut values = headers.get_all(NAME).iter();
    let Some(value) = values.next() else {
        return Ok(Arc::clone(identity));
    };
    let wrong = || {
        Error::new(
            Code::InvalidInput,
            "Helmdeck-Session must be one value of 1 to 256 visible ASCII characters",
        )
    };
    let session = value.to_str().map_err(|_| wrong())?;
    if values.next().is_some()
        || session.is_empty()
        || !session.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(wrong());
    }
    match identity.session() {
        Some(own) if own == session => Ok(Arc::clone(identity)),
        Some(_) => Err(Error::new(
            Code::Forbidden,
            "Helmdeck-Session names another session than the token",
        )),
        None if identity.is_anonymous() => Ok(Arc::clone(identity)),
        None => (**identity)
            .clone()
            .with_session(session)
            .map(Arc::new)
            .map_err(|_| wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(identity: Identity, values: &[&str]) -> Result<Option<String>> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(NAME, value.parse().unwrap());
        }
        Ok(narrowed(&headers, &Arc::new(identity))?
            .session()
            .map(str::to_owned))
    }

    #[test]
    fn header_names_the_session_of_a_call() {
        let known = || Identity::new("t", "u").unwrap();
        assert_eq!(named(known(), &[]).unwrap(), None);
        assert_eq!(named(known(), &["s1"]).unwrap().as_deref(), Some("s1"));
        assert_eq!(named(Identity::anonymous(), &["s1"]).unwrap(), None);
        let long = "x".repeat(257);
        for wrong in [&[""][..], &["a b"], &["s1", "s2"], &[long.as_str()]] {
            assert_eq!(
                named(known(), wrong).unwrap_err().code(),
                Code::InvalidInput,
                "{wrong:?}"
            );
        }
        let of_token = || known().with_session("s1").unwrap();
        assert_eq!(named(of_token(), &["s1"]).unwrap().as_deref(), Some("s1"));
        assert_eq!(
            named(of_token(), &["s2"]).unwrap_err().code(),
            Code::Forbidden
        );
    }
}

//! URL of an S3-compatible store, and its credentials.

use helmdeck_core::Secret;
use url::Url;

/// Default region: stores with a single region expect it.
const REGION: &str = "us-east-1";

/// Location of a bucket: `s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=us-east-1`.
///
/// Without `endpoint` it is Amazon's in the region; without `region` that is `us-east-1`. The
/// bucket is part of the path of each request, never of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Location {
    /// The bucket, which must exist.
    pub(crate) bucket: String,
    /// Prefix of all names in the bucket; may be empty.
    pub(crate) prefix: String,
    /// The server.
    pub(crate) endpoint: Url,
    /// The region that requests are signed for.
    pub(crate) region: String,
}

impl S3Location {
    /// Parses the address of a bucket.
    ///
    /// # Errors
    /// Why it is invalid. The address is not repeated, because it may contain a secret. Without the
    /// feature `s3`, that this build does not support S3.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !cfg!(feature = "s3") {
            return Err(
                "this build has no S3; leave the setting empty, or build with the feature \"s3\""
                    .to_owned(),
            );
        }
        let form = "write s3://bucket/prefix?endpoint=https://host:port&region=name, or nothing for a local folder";
        let url = Url::parse(text).map_err(|_| form.to_owned())?;
        if url.scheme() != "s3" || url.port().is_some() || url.fragment().is_some() {
            return Err(form.to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "credentials do not belong into the address; set HELMDECK_S3_ACCESS_KEY_ID"
                    .to_owned(),
            );
        }
        let bucket = url.host_str().unwrap_or_default().to_owned();
        let plain =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-');
        if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(plain) {
            return Err("the name of a bucket is 3 to 63 of a-z 0-9 . -".to_owned());
        }
        let prefix = url.path().trim_matches('/').to_owned();
        let fits = |part: &str| {
            !part.is_empty()
                && part
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.=".contains(c))
        };
        if !prefix.is_empty()
            && !prefix
                .split('/')
                .all(|part| fits(part) && part != "." && part != "..")
        {
            return Err("a prefix is words of A-Z a-z 0-9 . _ = - with / between them".to_owned());
        }
        let (mut endpoint, mut region) = (None, REGION.to_owned());
        for (name, value) in url.query_pairs() {
            match &*name {
                "endpoint" => endpoint = Some(server(&value)?),
                "region"
                    if !value.is_empty()
                        && value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') =>
                {
                    region = value.into_owned();
                }
                "region" => return Err("a region is letters, digits and -".to_owned()),
                _ => {
                    return Err("an address takes endpoint and region, and nothing else".to_owned());
                }
            }
        }
        let endpoint = match endpoint {
            Some(endpoint) => endpoint,
            None => server(&format!("https://s3.{region}.amazonaws.com"))?,
        };
        Ok(Self {
            bucket,
            prefix,
            endpoint,
            region,
        })
    }

    /// Returns the location without secrets, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        let server = self.endpoint.as_str().trim_end_matches('/');
        format!("s3://{}{slash}{} at {server}", self.bucket, self.prefix)
    }
}

fn server(text: &str) -> Result<Url, String> {
    let wrong = || "endpoint is the address of a server, like https://host:port".to_owned();
    let url = Url::parse(text).map_err(|_| wrong())?;
    let bare = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.path() == "/";
    let http = matches!(url.scheme(), "http" | "https") && url.fragment().is_none();
    if bare && http && url.host().is_some() {
        Ok(url)
    } else {
        Err(wrong())
    }
}

/// Credentials of an S3-compatible store. `Debug` hides them.
#[derive(Clone)]
pub struct S3Credentials {
    /// The id of the access key.
    pub key_id: String,
    /// The secret that belongs to it.
    pub secret: Secret,
    /// The token of a session, if the key is a temporary one.
    pub token: Option<Secret>,
}

helmdeck_core::redacted_debug!(S3Credentials);

#[cfg(all(test, feature = "s3"))]
mod tests {
    use super::*;

    #[test]
    fn debug_output_shows_no_credential() {
        let secret = || Secret::new("canary".into());
        let credentials = S3Credentials {
            key_id: "canary".to_owned(),
            secret: secret(),
            token: Some(secret()),
        };
        assert!(!format!("{credentials:?}").contains("canary"));
    }

    #[test]
    fn address_has_bucket_prefix_server_and_region() {
        let all =
            S3Location::parse("s3://files/team/a?endpoint=http://127.0.0.1:9000&region=eu-west-1")
                .unwrap();
        assert_eq!(
            (
                all.bucket.as_str(),
                all.prefix.as_str(),
                all.region.as_str()
            ),
            ("files", "team/a", "eu-west-1")
        );
        assert_eq!(all.shown(), "s3://files/team/a at http://127.0.0.1:9000");
        let amazon = S3Location::parse("s3://files").unwrap();
        assert_eq!(
            amazon.shown(),
            "s3://files at https://s3.us-east-1.amazonaws.com"
        );
        assert_eq!(amazon.prefix, "");
    }

    #[test]
    fn bad_address_is_refused_and_not_repeated() {
        for wrong in [
            "",
            "canary",
            "https://canary/x",
            "s3://",
            "s3://canary:canary@bucket",
            "s3://Bu_canary",
            "s3://bucket/canary/../x y",
            "s3://bucket?canary=1",
            "s3://bucket?endpoint=canary",
            "s3://bucket?endpoint=http://canary:canary@host",
            "s3://bucket?endpoint=http://host/canary",
            "s3://bucket?region=",
            "s3://bucket:9/canary",
        ] {
            let why = S3Location::parse(wrong).unwrap_err();
            assert!(!why.contains("canary"), "{wrong}: {why}");
        }
    }
}

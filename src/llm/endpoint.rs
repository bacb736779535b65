//! The address of a model, and which key may go there.

use helmdeck_core::Secret;
use helmdeck_egress::Egress;
use url::{Host, Url};

/// The longest base URL.
const MAX_URL_BYTES: usize = 2048;

/// A model at an endpoint, with the key that goes there.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// URL of the requests.
    pub(crate) url: Url,
    pub(crate) model: String,
    /// The key; `None` = requests without one.
    pub(crate) key: Option<Secret>,
    /// Whether there is a key that does not go to this host.
    pub(crate) withheld: bool,
    /// The way there.
    pub(crate) egress: Egress,
}

impl Endpoint {
    /// Returns the model.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns scheme, host and port of the endpoint, to show.
    ///
    /// A URL's path or query may hold secrets.
    #[must_use]
    pub fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    pub(crate) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }
}

/// Reads a base URL: http or https, without a user or password.
///
/// # Errors
/// What it must be; never the URL, which may hold a password.
pub(crate) fn parse(text: &str) -> Result<Url, String> {
    let form = "must be an http or https address, like \"https://api.openai.com/v1\"";
    if text.len() > MAX_URL_BYTES {
        return Err(format!("is over {MAX_URL_BYTES} bytes"));
    }
    let url = Url::parse(text.trim()).map_err(|_| form.to_owned())?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(form.to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user or password; use a credential".to_owned());
    }
    Ok(url)
}

/// Returns the chat completions URL of a base URL: `<base>/chat/completions`.
///
/// It keeps the query of the base URL.
#[must_use]
pub fn completions(base: &Url) -> Url {
    let mut url = base.clone();
    url.set_fragment(None);
    let path = format!("{}/chat/completions", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url
}

/// Returns whether the network cannot read what is sent.
pub(crate) fn is_private(url: &Url) -> bool {
    let here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || here
}

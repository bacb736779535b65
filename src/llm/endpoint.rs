//! The address of a model, and which key may go there.

use helmdeck_core::{Code, Error, Result, Secret};
use helmdeck_egress::Egress;
use url::{Host, Url};

use crate::client::Client;

/// The longest base URL.
const MAX_URL_BYTES: usize = 2048;

/// A model at an endpoint, with the key that goes there.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Where requests go.
    pub(crate) url: Url,
    /// The model.
    pub(crate) model: String,
    /// The key; `None` = asked without one.
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

    /// Returns scheme, host and port of the endpoint, to show. A URL's path or query may hold what is not to be shown.
    #[must_use]
    pub fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    pub(crate) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }
}

impl Client {
    /// Decides where a model is asked: at `given`, the base URL of a call's input, or at the operator's endpoint.
    ///
    /// The operator's endpoint gets the key, if the credential is not bound to other hosts. A given one gets it only if
    /// the credential is bound to hosts, this one among them, and over https or on this machine; else it is asked
    /// without a key.
    ///
    /// # Errors
    /// `invalid_input` if there is no endpoint or no model, or the URL cannot be one; `forbidden` if the operator does
    /// not allow the model, the host may not be reached or the key is not for the operator's own endpoint.
    pub fn endpoint(&self, given: Option<&str>, model: Option<&str>, key: Option<Secret>) -> Result<Endpoint> {
        let named = self.operators.as_ref();
        let given = given.map(parse).transpose();
        let given = given.map_err(|message| Error::new(Code::InvalidInput, format!("endpoint {message}")))?;
        let given = given.filter(|given| named.is_none_or(|(named, _)| completions(named) != completions(given)));
        let missing = |what: &str, setting: &str| {
            let message = format!("no {what} is known: name one in the input, or set {setting} in the configuration");
            Error::new(Code::InvalidInput, message).for_operator()
        };
        let model = model.or(Some(self.config.model.as_str())).filter(|model| !model.is_empty());
        let model = model.ok_or_else(|| missing("model", "[llm] model"))?.to_owned();
        if !self.config.allows(&model) {
            let message = format!("the model {model:?} is not among those that the operator allows ([llm] models)");
            return Err(Error::new(Code::Forbidden, message));
        }
        match (given, named) {
            (Some(base), _) => {
                let url = completions(&base);
                self.given.check_url(&url)?;
                let fits = |key: &Secret| key.is_bound_to(url.host_str().unwrap_or_default()) && is_private(&url);
                let there_is_one = key.is_some();
                let key = key.filter(fits);
                let withheld = there_is_one && key.is_none();
                Ok(Endpoint { url, model, key, withheld, egress: self.given.clone() })
            }
            (None, Some((base, egress))) => {
                if let Some(key) = &key {
                    key.expose_for(base.host_str().unwrap_or_default())?;
                }
                Ok(Endpoint { url: completions(base), model, key, withheld: false, egress: egress.clone() })
            }
            (None, None) => Err(missing("endpoint", "[llm] endpoint")),
        }
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

/// Returns where chats of a base URL are completed: `<base>/chat/completions`, with the query that the base has.
#[must_use]
pub fn completions(base: &Url) -> Url {
    let mut url = base.clone();
    url.set_fragment(None);
    let path = format!("{}/chat/completions", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url
}

/// Says whether nobody on the way can read what is sent.
fn is_private(url: &Url) -> bool {
    let here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || here
}

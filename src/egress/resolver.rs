//! Resolves a name once and returns only checked addresses.
//!
//! The connection thus goes to one of those.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::error::Refused;
use crate::rules::Rules;

/// A name that is never resolved; refused requests are sent there (see `guard.rs`).
///
/// RFC 6761 reserves `.invalid`.
pub(crate) const NOWHERE: &str = "refused.invalid";

/// Name lookup; replaced in tests.
pub(crate) type Lookup = Arc<
    dyn Fn(String) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> + Send + Sync,
>;

/// Asks the system's resolver.
pub(crate) fn system() -> Lookup {
    Arc::new(|name| {
        Box::pin(async move {
            Ok(tokio::net::lookup_host((name, 0))
                .await?
                .map(|address| address.ip())
                .collect())
        })
    })
}

pub(crate) struct Resolver {
    pub(crate) rules: Arc<Rules>,
    pub(crate) lookup: Lookup,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (rules, lookup) = (Arc::clone(&self.rules), Arc::clone(&self.lookup));
        Box::pin(async move {
            let name = name.as_str();
            if name == NOWHERE {
                return Err(Refused::new(name, "its URL was refused").into());
            }
            match resolve(&rules, &lookup, name).await {
                Ok(open) => Ok(
                    Box::new(open.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs,
                ),
                Err(Unresolved::Refused(refused)) => Err(refused.into()),
                Err(Unresolved::Failed(error)) => Err(error.into()),
            }
        })
    }
}

/// Why a name gives no address.
#[derive(Debug)]
pub(crate) enum Unresolved {
    /// None of its addresses may be reached.
    Refused(Refused),
    /// The name server gave none.
    Failed(io::Error),
}

/// Resolves a name, once, and returns those of its addresses that may be reached.
pub(crate) async fn resolve(
    rules: &Rules,
    lookup: &Lookup,
    name: &str,
) -> Result<Vec<IpAddr>, Unresolved> {
    let found = lookup(name.to_owned()).await.map_err(Unresolved::Failed)?;
    if rules.exempts(name) {
        return Ok(found);
    }
    let mut kind = None;
    let open: Vec<IpAddr> = found
        .into_iter()
        .filter(|address| {
            rules
                .check_address(*address)
                .map_err(|refused| kind = Some(refused))
                .is_ok()
        })
        .collect();
    match (open.is_empty(), kind) {
        // The address itself stays unsaid: it would tell a caller what an inner name server
        // answers.
        (true, Some(kind)) => Err(Unresolved::Refused(Refused::new(
            name,
            format!("it resolves to {kind}"),
        ))),
        _ => Ok(open),
    }
}

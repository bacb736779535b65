//! Resolves a name and hands on only addresses that were checked, so that the connection goes to what was checked.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::error::Refused;
use crate::rules::Rules;

/// A name that is never resolved; refused requests are sent there (see `guard.rs`). RFC 6761 reserves `.invalid`.
pub(crate) const NOWHERE: &str = "refused.invalid";

/// How names become addresses; replaced in tests.
pub(crate) type Lookup =
    Arc<dyn Fn(String) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> + Send + Sync>;

/// Asks the system's resolver.
pub(crate) fn system() -> Lookup {
    Arc::new(|name| {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect()) })
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
            let found = lookup(name.to_owned()).await?;
            if rules.exempts(name) {
                return Ok(Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs);
            }
            let mut kind = None;
            let open: Vec<SocketAddr> = found
                .into_iter()
                .filter_map(|address| match rules.check_address(address) {
                    Ok(()) => Some(SocketAddr::new(address, 0)),
                    Err(refused) => {
                        kind = Some(refused);
                        None
                    }
                })
                .collect();
            match (open.is_empty(), kind) {
                // The address itself stays unsaid: it would tell a caller what an inner name server answers.
                (true, Some(kind)) => Err(Refused::new(name, format!("it resolves to {kind}")).into()),
                _ => Ok(Box::new(open.into_iter()) as Addrs),
            }
        })
    }
}

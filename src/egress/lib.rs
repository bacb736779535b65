#![doc = include_str!("README.md")]

mod address;
mod allowed;
mod error;
mod guard;
mod proxy;
mod resolver;
mod rules;
mod trace;

pub use address::refused_kind;
pub use allowed::Allowed;
pub use error::{Error, Refused, never_connected, refusal};
pub use guard::{Config, Egress};
pub use proxy::{Gateway, Proxy, ProxyConfig, Target, Trouble};
pub use trace::{Outgoing, send};

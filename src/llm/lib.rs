#![doc = include_str!("README.md")]

mod answer;
mod classify;
mod client;
mod config;
mod endpoint;
mod message;

pub use helmdeck_egress as egress;

pub use answer::{Answer, Finish, Unanswered, Usage};
pub use client::Client;
pub use config::{Config, Price};
pub use endpoint::{Endpoint, completions};
pub use message::{Message, Request, Tool, ToolCall};

#[cfg(test)]
mod tests;

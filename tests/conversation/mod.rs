//! Conversation memory, from outside: the doors, the documentation, and what no single crate can see.

mod cli;
mod cli_settings;
mod docs;
mod mcp;
mod packs;
mod small_model;

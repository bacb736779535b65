#![doc = include_str!("README.md")]

mod app;
mod args;
mod auth;
mod commands;
mod completion;
mod config;
mod conversations;
mod credentials;
mod diff;
mod env;
mod exit;
mod gate;
mod input;
mod key_file;
mod last_signal;
#[cfg(feature = "nats")]
mod link;
mod logging;
mod lookup;
mod misread;
#[cfg(feature = "serve")]
mod notify;
mod output;
mod progress;
mod project;
mod prompt;
mod render;
mod replicas;
mod running;
mod runtime;
mod s3;
mod schedules;
mod seam;
mod secret_file;
mod signals;
mod system;
mod table;
#[cfg(feature = "serve")]
mod telemetry;
mod terminal;
mod trackers;
#[cfg(feature = "serve")]
mod webhook;
mod wire;
mod writable;
mod write_file;

pub use app::main;

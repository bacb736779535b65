//! The memory of a project, from outside.

mod nats_events;
mod nats_link;

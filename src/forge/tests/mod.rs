//! Larger tests of the crate: a whole story on a real crate in a real repository, many processes at
//! once, damage of every kind, and credentials everywhere.

mod damage;
mod proof;
mod secret;
mod together;

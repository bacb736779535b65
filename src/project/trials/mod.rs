//! Larger tests of the crate: a whole story on a real crate in a real repository, and how long things take.

mod proof;
mod speed;

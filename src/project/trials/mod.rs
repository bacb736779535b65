//! Larger tests of the crate: a whole story on a real crate in a real repository, how long things take, and many processes at once.

mod proof;
mod speed;
mod together;

//! The pages in a real browser: each place in each state, every action by keyboard, and attacks.
//!
//! `places` lists the pages; a new one is one line there. The text of each is compared with a
//! snapshot in `seen`: after a change that is meant,
//! `HELMDECK_TEST_SNAPSHOTS=$PWD/tests/browser/seen tests/run browser::pages` writes them anew, and
//! the difference is for the reviewer. Pictures of every page, light and dark, wide and narrow, are
//! in `tmp/pages` of the build folder (`target`) after a run.

mod actions;
mod attacks;
mod checks;
mod chromium;
mod corpus;
mod files;
mod foreign_texts;
mod live;
mod origins;
mod pages;
mod places;
mod project;
mod scene;
mod tls;
mod weight;

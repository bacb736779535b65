//! All targets in one binary, because linking it takes longer than anything else:
//! `HELMDECK_FUZZ_TARGET` says which one runs.

#![no_main]

use std::sync::LazyLock;

use helmdeck_fuzz::targets::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

static CHOSEN: LazyLock<Target> = LazyLock::new(|| {
    let wanted = std::env::var("HELMDECK_FUZZ_TARGET").unwrap_or_default();
    let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    let found = TARGETS.iter().find(|(name, _)| *name == wanted);
    found.unwrap_or_else(|| panic!("HELMDECK_FUZZ_TARGET must be one of {names:?}")).1
});

fuzz_target!(|data: &[u8]| CHOSEN(data));

//! How the program is linked.

/// The program starts anew for each answer of `helmdeck seam`. Most of that time goes into the
/// relocations of a large position-independent program; packed (`DT_RELR`), they are a hundredth of the
/// size. glibc knows them since 2.36, and linkers that do not (GNU ld before 2.38) only warn.
#[expect(clippy::disallowed_methods, reason = "cargo tells a build script everything by the environment")]
fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

//! How the program is linked.

/// The program starts anew for each answer of `helmdeck seam`. Most of that time goes into the
/// relocations of a large position-independent program; packed (`DT_RELR`), they are a hundredth of
/// the size. glibc knows them since 2.36, and linkers that do not (GNU ld before 2.38) only warn.
///
/// `HELMDECK_ORDER_FILE` names a file for the linker (lld) with the functions that stand first, one
/// a line. `scripts/ordered.sh` makes it.
#[expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script everything by the environment"
)]
fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    println!("cargo::rerun-if-env-changed=HELMDECK_ORDER_FILE");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    if let Ok(file) = std::env::var("HELMDECK_ORDER_FILE") {
        println!("cargo::rerun-if-changed={file}");
        println!(
            "cargo::rustc-link-arg-bins=-Wl,--symbol-ordering-file={file},--no-warn-symbol-ordering"
        );
    }
}

//! Options of the linker: compressed debug information, a third of its size, which debuggers and tracebacks read as before; and
//! relative relocations as bitmaps (RELR), which take 20 KB instead of 1.3 MB and need glibc 2.36 (Debian 12).

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    // Test builds are frequent and must link quickly.
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
        // Only LLD folds functions. It is the default linker of this target.
        if is("TARGET", "x86_64-unknown-linux-gnu") {
            println!("cargo::rustc-link-arg-bins=-Wl,-O2,--icf=all");
        }
        if is("CARGO_CFG_TARGET_ENV", "gnu") {
            println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        }
    }
}

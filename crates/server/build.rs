//! Options of the linker: compressed debug information, a third of its size, which debuggers and tracebacks read as before;
//! equal functions as one, a megabyte less; and relative relocations as bitmaps (RELR), which take 20 KB instead of 1.3 MB and need
//! glibc 2.36 (Debian 12).

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    // Test builds are frequent and must link quickly.
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
        // GNU ld refuses to fold functions.
        if is("TARGET", "x86_64-unknown-linux-gnu") && links_by_lld() {
            println!("cargo::rustc-link-arg-bins=-Wl,-O2,--icf=all");
        }
        if is("CARGO_CFG_TARGET_ENV", "gnu") {
            println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        }
    }
}

/// Whether the linker is LLD, the default of this target. Toolchains of distributions may lack it, and the user may have chosen
/// another linker.
fn links_by_lld() -> bool {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let is_chosen = flags.contains("linker") || flags.contains("fuse-ld");
    if is_chosen || env::var_os("RUSTC_LINKER").is_some() {
        return false;
    }
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let printed = Command::new(rustc).args(["--print", "sysroot"]).output();
    printed.is_ok_and(|output| {
        let sysroot = String::from_utf8_lossy(&output.stdout).into_owned();
        let lld = "lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld/ld.lld";
        Path::new(sysroot.trim()).join(lld).exists()
    })
}

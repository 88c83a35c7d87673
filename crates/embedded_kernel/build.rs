//! Builds the kernel in `bare/`, a separate workspace with separate flags, into this crate's output folder.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";
const PACKAGE: &str = "lowroad-kernel";
/// The crates that the kernel consists of, besides `bare/`.
const CRATES: [&str; 8] = [
    "unikernel",
    "http",
    "limits",
    "mysql",
    "net",
    "page",
    "timer_wheel",
    "wire",
];
/// The contents of `bare/` that the kernel depends on; its target folder is excluded, since builds there change it.
const PARTS: [&str; 5] = [".cargo", "Cargo.lock", "Cargo.toml", "image", "kernel"];
/// Variables that cargo sets for the server's build, which must not affect the kernel's.
const NOT_ITS: [&str; 6] = [
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTFLAGS",
];

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let crate_folder = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let root = crate_folder.join("../..").canonicalize()?;
    let unikernel = root.join("unikernel");
    let is_supported_target = env::var("CARGO_CFG_TARGET_ARCH")? == "x86_64";
    let crates = CRATES.map(|name| root.join("crates").join(name));
    for path in PARTS.map(|part| unikernel.join(part)).iter().chain(&crates) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    let kernel = match is_supported_target {
        true => {
            let kernel = build(&unikernel, &out.join("target"))?;
            format!("Some(include_bytes!({kernel:?}))")
        }
        false => "None".to_string(),
    };
    fs::write(out.join("kernel.rs"), kernel)?;
    Ok(())
}

fn build(unikernel: &Path, target: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let mut cargo = Command::new(env::var("CARGO")?);
    // Cargo reads the kernel's flags from the configuration in this folder only if it is the current directory.
    cargo
        .current_dir(unikernel)
        .args(["build", "--release", "--locked", "--target", TARGET])
        .args(["--package", PACKAGE, "--bin", PACKAGE, "--target-dir"])
        .arg(target)
        // The server never uses the debug information, which is four times the size of the other sections.
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
    for name in NOT_ITS {
        cargo.env_remove(name);
    }
    match cargo.status()?.success() {
        true => Ok(target.join(TARGET).join("release").join(PACKAGE)),
        // A frequent cause is an outdated lock file, which `--locked` must not update here.
        false => Err(format!(
            "the kernel was not built; try `cd {} && cargo build`",
            unikernel.display()
        )
        .into()),
    }
}

//! Builds the kernel in `bare/`, a workspace of its own with its own flags, into this crate's folder.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";
const PACKAGE: &str = "lowroad-kernel";
/// What the kernel is made of, besides `bare/`.
const CRATES: [&str; 8] = [
    "bare",
    "http",
    "limits",
    "mysql",
    "net",
    "page",
    "timer_wheel",
    "wire",
];
/// What `bare/` is made of; not its target folder, if somebody builds there.
const PARTS: [&str; 5] = [".cargo", "Cargo.lock", "Cargo.toml", "image", "kernel"];
/// What cargo tells this script about another program's flags.
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
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let root = here.join("../..").canonicalize()?;
    let bare = root.join("bare");
    let is_for = env::var("CARGO_CFG_TARGET_ARCH")? == "x86_64";
    let crates = CRATES.map(|name| root.join("crates").join(name));
    for path in PARTS.map(|part| bare.join(part)).iter().chain(&crates) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    let kernel = match is_for {
        true => {
            let kernel = build(&bare, &out.join("target"))?;
            format!("Some(include_bytes!({kernel:?}))")
        }
        false => "None".to_string(),
    };
    fs::write(out.join("kernel.rs"), kernel)?;
    Ok(())
}

fn build(bare: &Path, target: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let mut cargo = Command::new(env::var("CARGO")?);
    // Its flags are in the folder's configuration, which cargo reads only from there.
    cargo
        .current_dir(bare)
        .args(["build", "--release", "--locked", "--target", TARGET])
        .args(["--package", PACKAGE, "--bin", PACKAGE, "--target-dir"])
        .arg(target)
        // Nothing reads it inside the server, and it is four times as long as the rest.
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
    for name in NOT_ITS {
        cargo.env_remove(name);
    }
    match cargo.status()?.success() {
        true => Ok(target.join(TARGET).join("release").join(PACKAGE)),
        // What cargo says above may be that the lock file is old; here nothing may change it.
        false => Err(format!(
            "the kernel was not built; try `cd {} && cargo build`",
            bare.display()
        )
        .into()),
    }
}

//! Generates the constants that this crate shares with the eBPF programs from their header: the encoding of keys, and
//! the limits of responses. Only numeric constants are generated; for types, `lowroad-softirq` uses bindgen.

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

const HEADER: &str = "../softirq/bpf/shared.h";
/// The prefixes of the constants.
const WANTED: [&str; 5] = [
    "KEY_",
    "CLASS_",
    "RESPONSE_MAX",
    "PARTS_MAX",
    "TIMESTAMPS_LEN",
];

fn main() -> Result<(), Box<dyn Error>> {
    let header = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join(HEADER);
    println!("cargo::rerun-if-changed={}", header.display());
    let text =
        fs::read_to_string(&header).map_err(|error| format!("{}: {error}", header.display()))?;
    let mut numbers = String::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some("#define"), Some(name), Some(value)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        if !WANTED.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        // Only literals are supported, as an expression would need a C compiler.
        let value: u32 = value
            .parse()
            .map_err(|_| format!("{name} is no plain number in {HEADER}"))?;
        writeln!(numbers, "pub const {name}: u32 = {value};")?;
    }
    fs::write(
        PathBuf::from(env::var("OUT_DIR")?).join("shared.rs"),
        numbers,
    )?;
    Ok(())
}

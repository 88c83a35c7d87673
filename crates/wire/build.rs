//! Takes the numbers that these rules and the eBPF programs must have alike from the programs' header, where
//! they stand once: how keys are made, and how long answers may be. Numbers only, so that nothing but this
//! file is needed to read them; who needs types too has them from bindgen (`lowroad-softirq`).

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

const HEADER: &str = "../softirq/bpf/shared.h";
/// What their names begin with.
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
        if !WANTED.iter().any(|begin| name.starts_with(begin)) {
            continue;
        }
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

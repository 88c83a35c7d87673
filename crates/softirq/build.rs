//! Builds the eBPF programs with clang, and generates Rust types of their maps from the same headers. The object files
//! are embedded in the crate, so neither clang nor headers are needed at run time. Those of the level are compressed: they
//! are read when the level is attached, and take 200 KB instead of 1.2 MB.

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

type BuildResult<T> = Result<T, Box<dyn Error>>;

/// The highest level of zstd that needs no larger window.
const COMPRESSION_LEVEL: i32 = 19;

fn main() -> BuildResult<()> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let source = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("bpf");
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-env-changed=CLANG");
    let headers = out.join("headers");
    write_headers(&headers)?;
    let level = source.join("softirq.bpf.c");
    compile(&level, &headers, &out.join("xdp.bpf.o"), &["-DTIER_XDP"])?;
    compile(&level, &headers, &out.join("tc.bpf.o"), &[])?;
    for name in ["xdp.bpf.o", "tc.bpf.o"] {
        // The compressed copy is made after `strip` has shortened the file.
        let object = fs::read(out.join(name))?;
        let compressed = zstd::bulk::compress(&object, COMPRESSION_LEVEL)?;
        fs::write(out.join(name).with_extension("o.zst"), compressed)?;
    }
    let lookup = source.join("lookup.bpf.c");
    compile(&lookup, &headers, &out.join("lookup.bpf.o"), &[])?;
    let shared = source.join("shared.h");
    types(&shared, &out.join("shared.rs"))?;
    types(&source.join("intercepted.h"), &out.join("intercepted.rs"))?;
    fs::write(
        out.join("reasons.rs"),
        reasons(&fs::read_to_string(shared)?)?,
    )?;
    Ok(())
}

/// Writes the headers of libbpf, which are part of its crate, so that no package of the distribution is needed.
fn write_headers(folder: &Path) -> BuildResult<()> {
    fs::create_dir_all(folder.join("bpf"))?;
    for (name, text) in libbpf_sys::API_HEADERS {
        fs::write(folder.join("bpf").join(name), text)?;
    }
    Ok(())
}

fn compile(source: &Path, headers: &Path, object: &Path, extra_args: &[&str]) -> BuildResult<()> {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let machine = env::var("CARGO_CFG_TARGET_ARCH")?;
    let status = Command::new(&clang)
        .args([
            "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror",
        ])
        .arg(format!("-I{}", headers.display()))
        .arg(format!("-I/usr/include/{machine}-linux-gnu"))
        .args(extra_args)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .status()
        .map_err(|error| format!("{clang}: {error}; install clang (Debian: apt install clang)"))?;
    if !status.success() {
        return Err(format!("{clang} could not compile {}", source.display()).into());
    }
    strip(&clang, object);
    Ok(())
}

/// Removes debug information, a third of an object file; the kernel needs only BTF. Without llvm-strip the object files
/// are larger but work as well.
fn strip(clang: &str, object: &Path) {
    let tool = clang.replace("clang", "llvm-strip");
    let _ = Command::new(tool).arg("--strip-debug").arg(object).status();
}

fn types(header: &Path, to: &Path) -> BuildResult<()> {
    let bindings = bindgen::Builder::default()
        .header(header.display().to_string())
        // Excludes the types of the included kernel headers.
        .allowlist_file(header.display().to_string())
        .derive_default(true)
        .prepend_enum_name(false)
        .layout_tests(true)
        .generate()?;
    // The linter requires a reason for each unsafe block, also in generated code.
    let reason = "// SAFETY: plain integers, for which zeros are a value.\n        unsafe {";
    fs::write(to, bindings.to_string().replace("unsafe {", reason))?;
    Ok(())
}

/// Extracts the names and texts of the reasons from lines with `X(name, "text")`, in their order.
fn reasons(header: &str) -> BuildResult<String> {
    let mut table = String::from("&[\n");
    for line in header.lines() {
        let Some(rest) = line.trim().strip_prefix("X(") else {
            continue;
        };
        let (name, rest) = rest
            .split_once(", ")
            .ok_or("a reason has a name and a text")?;
        let text = rest
            .trim_end_matches(['\\', ' ', '\t'])
            .trim_end_matches(')');
        writeln!(table, "    (\"{name}\", {text}),")?;
    }
    table.push(']');
    Ok(table)
}

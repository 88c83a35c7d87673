//! The dynamic set in C (`examples/specweb99`): its sources, and the build of the programs and modules (fronts) that
//! peers run.

use std::path::Path;
use std::process::Command;

macro_rules! source {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../examples/specweb99/", $name)),
        )
    };
}
/// Name and text of each source file.
const SOURCES: &[(&str, &str)] = &[
    source!("ads.c"),
    source!("ads.h"),
    source!("build.sh"),
    source!("cgi.c"),
    source!("core.c"),
    source!("core.h"),
    source!("fastcgi.c"),
    source!("files.c"),
    source!("files.h"),
    source!("form.c"),
    source!("form.h"),
    source!("gateway.c"),
    source!("gateway.h"),
    source!("module.c"),
    source!("store.h"),
    source!("store_fetch.c"),
    source!("store_folder.c"),
    source!("text.c"),
    source!("text.h"),
    (
        "lowroad.h",
        include_str!("../../../crates/module/include/lowroad.h"),
    ),
];

/// The built files that each peer needs to serve the dynamic set.
const NEEDED: &[(&str, &[&str])] = &[
    ("lowroad-module", &["specweb99.so"]),
    ("lowroad-softirq", &["specweb99.so"]),
    ("lowroad-wasm", &["specweb99.wasm", "specweb99-fastcgi"]),
    ("lowroad-fastcgi", &["specweb99-fastcgi"]),
    ("lowroad-cgi", &["cgi/specweb99.php"]),
    ("nginx-fastcgi", &["specweb99-fastcgi"]),
];

/// Whether a peer answers SPECweb99-like dynamic requests with a program or module of the set.
pub fn has_front(peer: &str) -> bool {
    NEEDED.iter().any(|(name, _)| *name == peer)
}

/// Builds all fronts that this machine can build, in a folder; does nothing if they are up to date.
///
/// # Errors
/// The folder can't be written, or a compiler failed.
pub fn build(folder: &Path) -> Result<(), String> {
    let problem = |error: std::io::Error| format!("{}: {error}", folder.display());
    let (stamp, sources) = (folder.join("built"), folder.join("source"));
    let version = version();
    if std::fs::read_to_string(&stamp).is_ok_and(|built_version| built_version == version) {
        return Ok(());
    }
    std::fs::create_dir_all(&sources).map_err(problem)?;
    for (name, text) in SOURCES {
        std::fs::write(sources.join(name), text).map_err(problem)?;
    }
    let absolute = std::path::absolute(folder).map_err(problem)?;
    let output = Command::new("sh")
        .arg("build.sh")
        .arg(&absolute)
        .current_dir(&sources)
        .env("LOWROAD_INCLUDE", ".")
        .output()
        .map_err(problem)?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("the dynamic set can't be built: {stderr}"));
    }
    // The workload uses the same script name for all servers.
    std::fs::create_dir_all(folder.join("cgi")).map_err(problem)?;
    std::fs::copy(
        folder.join("specweb99.cgi"),
        folder.join("cgi/specweb99.php"),
    )
    .map_err(problem)?;
    // The stamp is written last: without it, an interrupted build is repeated.
    std::fs::write(stamp, version).map_err(problem)
}

/// Checks that the files of a peer were built.
///
/// # Errors
/// The text names the missing file and its package.
pub fn check(peer: &str, folder: &Path) -> Result<(), String> {
    let needed = NEEDED.iter().find(|(name, _)| *name == peer);
    let mut needed = needed.map_or(&[][..], |(_, files)| files).iter();
    match needed.find(|file| !folder.join(file).is_file()) {
        Some(file) => Err(format!(
            "{file} of the dynamic set is not in {}: it was not built, because a compiler or a \
             library is missing (Debian: gcc libfcgi-dev clang lld wasi-libc \
             libclang-rt-14-dev-wasm32)",
            folder.display()
        )),
        None => Ok(()),
    }
}

/// A hash of the sources.
fn version() -> String {
    let mut hash = crc32fast::Hasher::new();
    for (name, text) in SOURCES {
        hash.update(name.as_bytes());
        hash.update(text.as_bytes());
    }
    format!("{:08x}\n", hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_files_are_named_in_the_error() {
        let problem = check("lowroad-wasm", Path::new("/nowhere")).expect_err("not built");
        assert!(
            problem.contains("specweb99.wasm") && problem.contains("wasi-libc"),
            "{problem}"
        );
        assert_eq!(check("nginx", Path::new("/nowhere")), Ok(()));
    }
}

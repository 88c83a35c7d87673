//! The committed page is up to date with its sources, and the tests of its scripts pass.

use std::path::{Path, PathBuf};
use std::process::Command;

use lowroad_testkit::skip;

/// The TypeScript compiler needs this version.
const NODE_MAJOR_MIN: u32 = 20;

/// Runs a script of the page's package.
fn run_script(test: &str, script: &str) {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dashboard");
    if !folder.join("node_modules").exists() {
        return skip(test, "`npm ci` was not run in dashboard/");
    }
    let version = Command::new("node").arg("--version").output();
    let version = version.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
    let major = version
        .ok()
        .and_then(|it| it.trim_start_matches('v').split('.').next()?.parse().ok());
    if major.is_none_or(|major: u32| major < NODE_MAJOR_MIN) {
        return skip(test, "Node 20 or later is not installed");
    }
    let output = Command::new("npm")
        .args(["run", "--silent", script])
        .current_dir(folder)
        .output()
        .expect("npm");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "{text}");
}

#[test]
fn the_committed_page_is_that_of_the_sources() {
    run_script("the committed page is that of the sources", "check");
}

#[test]
fn the_scripts_of_the_page_pass_their_tests() {
    run_script("the scripts of the page pass their tests", "test");
}

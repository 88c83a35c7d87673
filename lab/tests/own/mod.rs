//! The path of Lowroad's binary, for tests that run it in a guest.

use std::path::{Path, PathBuf};

use lowroad_testkit::skip;

/// The `lowroad` binary built next to this test. Without it, and where no guest can be started, the test is skipped.
pub fn for_guest(test: &str) -> Option<PathBuf> {
    if let Err(why) = lowroad_lab::icount::needs::check() {
        skip(test, &why);
        return None;
    }
    let lab = Path::new(env!("CARGO_BIN_EXE_lowroad-lab"));
    let target = lab.parent()?.parent()?;
    let built = ["release", "debug"].map(|profile| target.join(profile).join("lowroad"));
    let found = built.into_iter().find(|path| path.is_file());
    if found.is_none() {
        skip(test, "lowroad is not built: cargo build -p lowroad");
    }
    found
}

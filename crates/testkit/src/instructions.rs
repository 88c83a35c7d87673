//! Counts the instructions of pieces of code, by callgrind: a test starts its own program once more under it, and there runs
//! the pieces one after the other. Numbers do not depend on the machine's load.

use std::path::Path;
use std::process::Command;

use crate::Folder;

/// Tells a test that it runs under callgrind.
const COUNTED: &str = "LOWROAD_COUNTED";

/// What callgrind calls the function that is counted.
const REGION: &str = "lowroad_testkit::instructions::counted_region";

/// A piece of code: it gets everything ready for a size, and gives what is to be counted.
pub struct CountedPiece<'p> {
    /// What a failure calls it.
    pub name: &'p str,
    /// Makes a run; what it does itself is not counted.
    pub prepare: &'p dyn Fn(usize) -> Box<dyn FnMut()>,
    /// The sizes that it is run with.
    pub sizes: &'p [usize],
}

/// The instructions of all pieces, for each of their sizes; `None` if there is no valgrind, or in the program that is counted.
/// `test` is the whole name of the test that calls this.
///
/// # Panics
/// If the program fails under callgrind.
pub fn count(test: &str, pieces: &[CountedPiece<'_>]) -> Option<Vec<Vec<u64>>> {
    if std::env::var_os(COUNTED).is_some() {
        run_all(pieces);
        return None;
    }
    let folder = Folder::new();
    let out = folder.path().join("counts");
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--dump-line=no"])
        .arg(format!("--toggle-collect={REGION}"))
        .arg(format!("--dump-after={REGION}"))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(COUNTED, "1");
    let Ok(output) = command.output() else {
        crate::skip(test, "there is no valgrind");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "under callgrind: {said}");
    let mut numbers = 1..;
    let counts = pieces.iter().map(|piece| {
        let numbers = numbers.by_ref().take(piece.sizes.len());
        numbers.map(|number| total(&out, number)).collect()
    });
    Some(counts.collect())
}

fn run_all(pieces: &[CountedPiece<'_>]) {
    for piece in pieces {
        // What only the first run does is not counted: tables that are made once.
        let first = piece.sizes.first().copied().unwrap_or(0);
        (piece.prepare)(first)();
        for size in piece.sizes {
            let mut run = (piece.prepare)(*size);
            counted_region(&mut *run);
        }
    }
}

/// What callgrind counts, and after which it writes a file.
#[inline(never)]
fn counted_region(run: &mut dyn FnMut()) {
    run();
    // Nothing is left to be done in a tail call, which would be no return from here.
    std::hint::black_box(());
}

fn total(out: &Path, number: usize) -> u64 {
    let file = format!("{}.{number}", out.display());
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let line = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let total = line.and_then(|total| total.trim().parse().ok());
    total.unwrap_or_else(|| panic!("{file} has no totals"))
}

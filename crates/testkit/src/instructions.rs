//! Counts the instructions of pieces of code with callgrind: a test runs its own binary under callgrind, and that
//! process runs the pieces one after the other. The counts do not depend on the system's load.

use std::path::Path;
use std::process::Command;

use crate::TempFolder;

/// The environment variable that is set for the process under callgrind.
const COUNTED: &str = "LOWROAD_COUNTED";

/// Callgrind's name for the counted function.
const REGION: &str = "lowroad_testkit::instructions::counted_region";

/// A piece of code to count.
pub struct CountedPiece<'p> {
    /// The name for messages.
    pub name: &'p str,
    /// Prepares the state for a size, which is not counted, and returns the function to count.
    pub prepare: &'p dyn Fn(usize) -> Box<dyn FnMut()>,
    /// The sizes with which the piece is run.
    pub sizes: &'p [usize],
}

/// The numbers of instructions of all pieces, for each of their sizes; `None` without valgrind, and in the process
/// under callgrind. `test` is the full name of the calling test.
///
/// # Panics
/// The process under callgrind fails.
pub fn count(test: &str, pieces: &[CountedPiece<'_>]) -> Option<Vec<Vec<u64>>> {
    if std::env::var_os(COUNTED).is_some() {
        run_all(pieces);
        return None;
    }
    let folder = TempFolder::new();
    let out = folder.path().join("counts");
    let mut command = Command::new("valgrind");
    command
        // Collects only inside the counted function, and writes the totals after each of its calls.
        .args(["--tool=callgrind", "--dump-line=no"])
        .arg(format!("--toggle-collect={REGION}"))
        .arg(format!("--dump-after={REGION}"))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().expect("this program"))
        // Runs only this test, on one thread.
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(COUNTED, "1");
    let Ok(output) = command.output() else {
        crate::skip(test, "there is no valgrind");
        return None;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "under callgrind: {stderr}");
    // Callgrind numbers its files in the order of the calls, which is that of the pieces and their sizes.
    let mut numbers = 1..;
    let counts = pieces.iter().map(|piece| {
        let numbers = numbers.by_ref().take(piece.sizes.len());
        numbers.map(|number| total(&out, number)).collect()
    });
    Some(counts.collect())
}

fn run_all(pieces: &[CountedPiece<'_>]) {
    for piece in pieces {
        // The first run builds tables that later runs reuse; it is not counted.
        let first = piece.sizes.first().copied().unwrap_or(0);
        (piece.prepare)(first)();
        for size in piece.sizes {
            let mut run = (piece.prepare)(*size);
            counted_region(&mut *run);
        }
    }
}

/// Callgrind counts the instructions of this function, and writes a file after each call.
#[inline(never)]
fn counted_region(run: &mut dyn FnMut()) {
    run();
    // Prevents a tail call, which callgrind would not see as a return from here.
    std::hint::black_box(());
}

fn total(out: &Path, number: usize) -> u64 {
    let file = format!("{}.{number}", out.display());
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let line = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let total = line.and_then(|total| total.trim().parse().ok());
    total.unwrap_or_else(|| panic!("{file} has no totals"))
}

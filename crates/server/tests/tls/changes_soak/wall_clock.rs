//! A wall clock for the server alone, by a preloaded library: the machine's clock stays as it is.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lowroad_testkit::TempFolder;

/// The wall clock of the processes that have it.
pub struct WallClock {
    library: PathBuf,
    offset: PathBuf,
    file: File,
}

impl WallClock {
    /// A clock without an offset.
    pub fn new(folder: &TempFolder) -> WallClock {
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls/changes_soak/wall_clock.c");
        let library = folder.path().join("wall_clock.so");
        let status = Command::new("cc")
            .args([
                "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o",
            ])
            .args([&library, &source])
            .status();
        assert!(status.expect("cc runs").success(), "it compiles");
        let offset = folder.file("wall_clock.offset", 0_i64.to_ne_bytes());
        let file = File::options().write(true).open(&offset).expect("a file");
        WallClock {
            library,
            offset,
            file,
        }
    }

    /// Gives the clock to a program, and to those that it starts.
    pub fn preload(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library);
        command.env("WALL_CLOCK_OFFSET", &self.offset);
    }

    /// Sets the clock to this many seconds after the machine's.
    pub fn step(&self, offset_s: i64) {
        let written = self.file.write_all_at(&offset_s.to_ne_bytes(), 0);
        written.expect("an offset");
    }
}

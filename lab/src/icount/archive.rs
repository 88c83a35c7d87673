//! An archive of a guest's files in cpio's `newc` format: programs with their libraries, folders, and generated files.
//! Independent of QEMU and servers. The kernel's Documentation/driver-api/early-userspace/buffer-format.rst describes
//! the format.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::guest::{memory_file, path};

/// An archive under construction. Adding a path that it already contains has no effect.
#[derive(Default)]
pub struct CpioArchive {
    bytes: Vec<u8>,
    added_paths: BTreeSet<String>,
}

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;

impl CpioArchive {
    /// Adds an empty folder.
    pub fn folder(&mut self, path: &str) {
        self.entry(path, FOLDER, b"");
    }

    /// Adds a file that is readable for all users.
    pub fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, FILE, content);
    }

    /// Adds a program or script.
    pub fn program(&mut self, path: &str, content: &[u8]) {
        self.entry(path, PROGRAM, content);
    }

    /// Copies `source` to `path`: a folder with its content, or a file. If the file is a program or library, its
    /// libraries are copied as well.
    ///
    /// # Errors
    /// A file can't be read; the text names it.
    pub fn copy(&mut self, source: &Path, path: &str) -> Result<(), String> {
        let unreadable = |error| format!("{}: {error}", source.display());
        let metadata = fs::metadata(source).map_err(unreadable)?;
        if metadata.is_dir() {
            self.folder(path);
            for child in fs::read_dir(source).map_err(unreadable)? {
                let child = child.map_err(unreadable)?;
                let name = child.file_name().to_string_lossy().into_owned();
                self.copy(&child.path(), &format!("{path}/{name}"))?;
            }
            return Ok(());
        }
        let mut content = fs::read(source).map_err(unreadable)?;
        if content.starts_with(b"\x7fELF") {
            // Debug information may be most of a program's size, and would only fill the guest's memory.
            content = stripped(source).unwrap_or(content);
        }
        // All entries belong to root, so a set-user-ID bit would grant root's rights.
        let mode = metadata.permissions().mode() & 0o777;
        self.entry(path, 0o100_000 | mode, &content);
        if content.starts_with(b"\x7fELF") {
            self.libraries(source)?;
        }
        Ok(())
    }

    /// Adds the libraries of a program, at the paths where the loader finds them.
    fn libraries(&mut self, program: &Path) -> Result<(), String> {
        // ldd resolves transitively, so one call covers the libraries of libraries.
        let listed = Command::new("ldd").arg(program).output();
        let listed = listed.map_err(|error| format!("ldd: {error}"))?;
        for path in library_paths(&String::from_utf8_lossy(&listed.stdout)) {
            let content = fs::read(path).map_err(|error| format!("{path}: {error}"))?;
            self.program(path, &content);
        }
        Ok(())
    }

    /// Finishes the archive.
    pub fn finish(mut self) -> Vec<u8> {
        // The trailer has inode 0.
        self.added_paths.clear();
        self.raw("TRAILER!!!", 0, b"");
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        // Paths are normalized, since `added_paths` compares them as text.
        let path = path.trim_matches('/');
        if path.is_empty() || self.added_paths.contains(path) {
            return;
        }
        // The kernel does not create missing parent folders.
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.entry(parent, FOLDER, b"");
        }
        self.added_paths.insert(path.to_owned());
        self.raw(path, mode, content);
    }

    fn raw(&mut self, name: &str, mode: u32, content: &[u8]) {
        let number = self.added_paths.len();
        let (len, name_len) = (content.len(), name.len() + 1);
        // Fields: inode, mode, user, group, links, date, length, device and its node (2 each), name, sum.
        let head = format!(
            "070701{number:08X}{mode:08X}{zero:08X}{zero:08X}{one:08X}{zero:08X}{len:08X}\
             {zero:08X}{zero:08X}{zero:08X}{zero:08X}{name_len:08X}{zero:08X}",
            zero = 0,
            one = 1,
        );
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        // newc aligns both the header with its name and the content to four bytes.
        let len = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(len, 0);
    }
}

/// Returns a program without its debug information, which may be most of its size; `None` if that fails.
fn stripped(program: &Path) -> Option<Vec<u8>> {
    let file = memory_file(b"").ok()?;
    let mut strip = Command::new("strip");
    strip.args(["--strip-debug", "-o"]).arg(path(&file));
    let done = strip.arg(program).output().ok()?;
    let mut content = Vec::new();
    let mut file = &file;
    file.seek(SeekFrom::Start(0)).ok()?;
    file.read_to_end(&mut content).ok()?;
    // strip may fail on files that it does not know; the caller then copies the original.
    (done.status.success() && content.starts_with(b"\x7fELF")).then_some(content)
}

/// The files in the output of `ldd`: `libc.so.6 => /lib/.../libc.so.6 (0x...)` or the loader's own path.
fn library_paths(listed: &str) -> impl Iterator<Item = &str> {
    listed
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(|path| path.trim_end_matches(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an archive as the kernel does.
    fn entries(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let (mut at, mut found) = (0, Vec::new());
        loop {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |number: usize| {
                let start = at + 6 + 8 * number;
                let text = std::str::from_utf8(&bytes[start..start + 8]).expect("text");
                u32::from_str_radix(text, 16).expect("a number")
            };
            let (mode, len, name_len) = (field(1), field(6) as usize, field(11) as usize);
            let name = &bytes[at + 110..at + 110 + name_len - 1];
            let name = String::from_utf8(name.to_vec()).expect("text");
            let start = (at + 110 + name_len).next_multiple_of(4);
            at = (start + len).next_multiple_of(4);
            if name == "TRAILER!!!" {
                assert_eq!(at, bytes.len());
                return found;
            }
            found.push((name, mode, bytes[start..start + len].to_vec()));
        }
    }

    #[test]
    fn folders_precede_their_files_without_duplicates() {
        let mut archive = CpioArchive::default();
        archive.file("/a/b/one", b"1");
        archive.program("/a/b/two", b"22222");
        archive.file("/a/b/one", b"another");
        let found = entries(&archive.finish());
        let expected = [
            ("a".to_owned(), FOLDER, Vec::new()),
            ("a/b".to_owned(), FOLDER, Vec::new()),
            ("a/b/one".to_owned(), FILE, b"1".to_vec()),
            ("a/b/two".to_owned(), PROGRAM, b"22222".to_vec()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn program_is_archived_with_its_libraries() {
        let mut archive = CpioArchive::default();
        let me = std::env::current_exe().expect("a test has a program");
        archive.copy(&me, "/usr/bin/me").expect("readable");
        let found = entries(&archive.finish());
        assert!(found.iter().any(|(name, ..)| name == "usr/bin/me"));
        assert!(found.iter().any(|(name, ..)| name.contains("libc.so")));
    }

    #[test]
    fn ldd_output_is_parsed() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n\tnot a dynamic executable\n";
        let paths: Vec<&str> = library_paths(listed).collect();
        assert_eq!(paths, ["/lib/x/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    }
}

//! The lines that an application writes to standard output and standard error.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::ChildNotice;

/// Maximum length of a line; longer ones are split.
const LINE_LEN_MAX: usize = 4096;

/// A pipe to which an application writes lines.
pub struct LineStream {
    pipe: File,
    line: Vec<u8>,
}

impl AsFd for LineStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl LineStream {
    pub fn new(pipe: impl Into<OwnedFd>) -> LineStream {
        LineStream {
            pipe: File::from(pipe.into()),
            line: Vec::new(),
        }
    }

    /// Reads the available output and passes on complete lines. Returns whether more can follow.
    pub fn read(&mut self, notice: &ChildNotice) -> bool {
        let mut bytes = [0; LINE_LEN_MAX];
        let len = match self.pipe.read(&mut bytes) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            // An error ends the stream like end of file.
            Err(_) => 0,
        };
        for piece in bytes[..len].split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() >= LINE_LEN_MAX {
                self.end(notice);
            }
        }
        len > 0
    }

    /// Passes on the last, incomplete line.
    pub fn end(&mut self, notice: &ChildNotice) {
        if !self.line.is_empty() {
            notice(String::from_utf8_lossy(&self.line).trim_end());
            self.line.clear();
        }
    }
}

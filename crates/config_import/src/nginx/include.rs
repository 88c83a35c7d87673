//! Reads a configuration with the files that it includes.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::lexer::TextPosition;
use super::tree::{Directive, SyntaxError, parse};

/// The deepest nesting of includes; deeper ones are a cycle.
const DEPTH_MAX: usize = 16;
/// The largest number of included files, in all.
const FILES_MAX: usize = 4096;
/// The largest size of all files together.
const LEN_MAX: u64 = 16 << 20;

/// Reads files of a configuration.
pub struct IncludeReader {
    /// The folder that relative names in `include` refer to.
    prefix: PathBuf,
    files: usize,
    /// The bytes that further files may have.
    len_left: u64,
}

impl IncludeReader {
    /// Relative names in `include` refer to `prefix`.
    pub fn new(prefix: &Path) -> IncludeReader {
        IncludeReader {
            prefix: prefix.to_path_buf(),
            files: 0,
            len_left: LEN_MAX,
        }
    }

    /// Reads a file, and replaces each `include` by the directives of its files. An include stays in the tree with
    /// these directives as its block.
    ///
    /// # Errors
    /// A file that can't be read, or a mistake in the syntax.
    pub fn read(&mut self, file: &Path) -> Result<Vec<Directive>, SyntaxError> {
        self.read_at(file, 0)
    }

    fn read_at(&mut self, file: &Path, depth: usize) -> Result<Vec<Directive>, SyntaxError> {
        self.files += 1;
        if depth > DEPTH_MAX || self.files > FILES_MAX {
            return Err(start_error(
                file,
                format!("more than {DEPTH_MAX} nested or {FILES_MAX} included files"),
            ));
        }
        let bytes = self.bytes(file)?;
        // nginx takes any bytes; other encodings occur in comments. The lexer refuses them elsewhere.
        let text = String::from_utf8_lossy(&bytes);
        let mut directives = parse(&text, file)?;
        self.expand(&mut directives, depth)?;
        Ok(directives)
    }

    /// The content of a file, if it fits.
    fn bytes(&mut self, file: &Path) -> Result<Vec<u8>, SyntaxError> {
        let unreadable = |error: io::Error| start_error(file, format!("cannot be read: {error}"));
        let info = std::fs::metadata(file).map_err(unreadable)?;
        // A named pipe would block, and a device may have no end.
        if !info.is_file() {
            return Err(start_error(file, "is not a file".to_string()));
        }
        let opened = File::open(file).map_err(unreadable)?;
        let mut bytes = Vec::new();
        let mut limited = opened.take(self.len_left + 1);
        limited.read_to_end(&mut bytes).map_err(unreadable)?;
        let left = self.len_left.checked_sub(bytes.len() as u64);
        self.len_left = left.ok_or_else(|| {
            let message = format!("the files have more than {LEN_MAX} bytes together");
            start_error(file, message)
        })?;
        Ok(bytes)
    }

    fn expand(&mut self, directives: &mut [Directive], depth: usize) -> Result<(), SyntaxError> {
        for directive in directives {
            if directive.name == "include" && directive.block.is_none() {
                let mut block = Vec::new();
                for file in self.included_files(directive)? {
                    block.extend(self.read_at(&file, depth + 1)?);
                }
                directive.block = Some(block);
            } else if let Some(block) = &mut directive.block {
                self.expand(block, depth)?;
            }
        }
        Ok(())
    }

    fn included_files(&self, include: &Directive) -> Result<Vec<PathBuf>, SyntaxError> {
        let pattern = self.prefix.join(include.arg(0));
        let text = pattern.to_string_lossy();
        // A name without wildcards must exist: nginx doesn't start without it, so the import fails, too.
        if !text.contains(['*', '?', '[']) {
            return Ok(vec![pattern]);
        }
        // Sorted by name as in nginx: the order of expressions and default servers depends on it.
        let files = glob::glob(&text).map_err(|error| SyntaxError {
            file: include.place.file.to_path_buf(),
            position: include.place.position,
            message: format!("{text} is not a pattern: {error}"),
        })?;
        // A file that can't be listed can't be read either, which nginx reports; a pattern without a file is empty.
        Ok(files.filter_map(Result::ok).collect())
    }
}

/// Directives with those of included files in place of `include`.
pub fn flat(directives: &[Directive]) -> Vec<&Directive> {
    let mut flat_directives = Vec::new();
    for directive in directives {
        if directive.name == "include" {
            flat_directives.extend(flat(directive.children()));
        } else {
            flat_directives.push(directive);
        }
    }
    flat_directives
}

fn start_error(file: &Path, message: String) -> SyntaxError {
    SyntaxError {
        file: file.to_path_buf(),
        position: TextPosition { line: 1, column: 1 },
        message,
    }
}

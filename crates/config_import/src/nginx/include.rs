//! Reads a configuration with the files that it includes.

use std::path::{Path, PathBuf};

use super::lexer::TextPosition;
use super::tree::{Directive, SyntaxError, parse};

/// The deepest nesting of includes; deeper ones are a cycle.
const DEPTH_MAX: usize = 16;
/// The largest number of included files, in all.
const FILES_MAX: usize = 4096;

/// Reads files of a configuration.
pub struct IncludeReader {
    /// The folder that relative names in `include` refer to.
    prefix: PathBuf,
    files: usize,
}

impl IncludeReader {
    /// Relative names in `include` refer to `prefix`.
    pub fn new(prefix: &Path) -> IncludeReader {
        IncludeReader {
            prefix: prefix.to_path_buf(),
            files: 0,
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
        let bytes = std::fs::read(file)
            .map_err(|error| start_error(file, format!("cannot be read: {error}")))?;
        // nginx takes any bytes; other encodings occur in comments.
        let text = String::from_utf8_lossy(&bytes);
        let mut directives = parse(&text, file)?;
        self.expand(&mut directives, depth)?;
        Ok(directives)
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

//! Prints records.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;

use lowroad_binary_log::export::RecordExporter;
use lowroad_log::AccessEntry;
use regex::bytes::{Regex, RegexBuilder};

use super::source::ReadFlow;

/// Selects lines by a regular expression.
pub struct LineMatcher {
    expression: Regex,
    is_inverted: bool,
}

impl LineMatcher {
    /// Reads the expression.
    ///
    /// # Errors
    /// The pattern is not a regular expression.
    pub fn new(
        pattern: &str,
        ignores_case: bool,
        is_inverted: bool,
    ) -> Result<LineMatcher, String> {
        let expression = RegexBuilder::new(pattern)
            // A line may have bytes that are no UTF-8, which `.` does not match in the library's Unicode mode.
            .unicode(false)
            .case_insensitive(ignores_case)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(LineMatcher {
            expression,
            is_inverted,
        })
    }

    /// Whether the line of a record matches.
    pub fn matches_record(&self, line: &[u8]) -> bool {
        // Without the line break `$` of an expression matches at the end of the record.
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        self.expression.is_match(text) != self.is_inverted
    }
}

/// Writes records as lines. A closed pipe is not an error, and ends the output.
pub struct RecordPrinter {
    exporter: RecordExporter,
    out: BufWriter<Box<dyn Write>>,
    line: Vec<u8>,
    has_records: bool,
}

impl RecordPrinter {
    /// Prints to standard output.
    pub fn to_stdout(exporter: RecordExporter) -> RecordPrinter {
        RecordPrinter::new(Box::new(io::stdout()), exporter)
    }

    /// Prints into a new file. With `is_replacing`, the file may exist.
    ///
    /// # Errors
    /// The file exists already, or can't be created.
    pub fn to_file(
        path: &Path,
        is_replacing: bool,
        exporter: RecordExporter,
    ) -> Result<RecordPrinter, String> {
        let file = match is_replacing {
            true => File::create(path),
            false => File::create_new(path),
        };
        let file = file.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => format!(
                "{}: the file exists already; --force replaces it",
                path.display()
            ),
            _ => format!("{}: {error}", path.display()),
        })?;
        Ok(RecordPrinter::new(Box::new(file), exporter))
    }

    fn new(out: Box<dyn Write>, exporter: RecordExporter) -> RecordPrinter {
        RecordPrinter {
            exporter,
            // Standard output of the library is flushed at each line, which costs a system call for each record.
            out: BufWriter::with_capacity(64 * 1024, out),
            line: Vec::new(),
            has_records: false,
        }
    }

    /// Whether a record was printed.
    pub fn has_records(&self) -> bool {
        self.has_records
    }

    /// Prints the lines before the first record.
    ///
    /// # Errors
    /// The output can't be written.
    pub fn begin(&mut self) -> Result<(), String> {
        let mut line = Vec::new();
        self.exporter.begin(&mut line);
        self.print_line(&line).map(|_| ())
    }

    /// The line of a record.
    pub fn line(&mut self, entry: &AccessEntry<'_>) -> Vec<u8> {
        let mut line = Vec::new();
        self.exporter.append(entry, &mut line);
        line
    }

    /// Prints a record, if its line matches.
    ///
    /// # Errors
    /// The output can't be written.
    pub fn print(
        &mut self,
        entry: &AccessEntry<'_>,
        matcher: Option<&LineMatcher>,
    ) -> Result<ReadFlow, String> {
        self.line.clear();
        self.exporter.append(entry, &mut self.line);
        if matcher.is_some_and(|matcher| !matcher.matches_record(&self.line)) {
            return Ok(ReadFlow::Continue);
        }
        self.has_records = true;
        flow(self.out.write_all(&self.line))
    }

    /// Prints a line.
    ///
    /// # Errors
    /// The output can't be written.
    pub fn print_line(&mut self, line: &[u8]) -> Result<ReadFlow, String> {
        flow(self.out.write_all(line))
    }

    /// Writes all that was printed.
    ///
    /// # Errors
    /// The output can't be written.
    pub fn finish(&mut self) -> Result<(), String> {
        self.flush().map(|_| ())
    }

    /// Writes all that was printed. Returns whether the output accepts more.
    ///
    /// # Errors
    /// The output can't be written.
    pub fn flush(&mut self) -> Result<ReadFlow, String> {
        flow(self.out.flush())
    }
}

fn flow(written: io::Result<()>) -> Result<ReadFlow, String> {
    match written {
        Ok(()) => Ok(ReadFlow::Continue),
        // `lowroad log cat | head` closes the pipe, which is no failure of the command.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ReadFlow::Stop),
        Err(error) => Err(format!("the output: {error}")),
    }
}

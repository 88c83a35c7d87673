//! Output of commands. A closed pipe (`| head -1`) is not an error: the remaining output is dropped.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write, stderr, stdout};

use lowroad_binary_log::export::invisible::escape_json;

/// Prints to standard output and flushes it.
///
/// # Errors
/// A write error other than a closed pipe: a message for the user.
pub fn out(text: impl Display) -> Result<(), String> {
    let mut stdout = stdout().lock();
    // Standard output is flushed explicitly, because an error while the process exits would be lost.
    check_written(write!(stdout, "{text}").and_then(|()| stdout.flush()))
}

/// Prints JSON. Characters that a terminal obeys instead of showing them are escaped: a client may have chosen them.
///
/// # Errors
/// As [`out`].
pub fn json(value: &serde_json::Value) -> Result<(), String> {
    let mut text = Vec::new();
    escape_json(&format!("{value:#}\n"), &mut text);
    out(String::from_utf8_lossy(&text))
}

/// The text with characters escaped that a terminal obeys instead of showing them, except line breaks.
pub fn visible(text: &str) -> String {
    let mut visible = Vec::new();
    escape_json(text, &mut visible);
    String::from_utf8_lossy(&visible).into_owned()
}

/// Prints a line for the operator to standard error, as [`visible`] text.
pub fn note(text: impl Display) {
    let text = visible(&text.to_string());
    // If writing to standard error fails, the error can't be reported.
    let _ = writeln!(stderr(), "lowroad: {text}");
}

fn check_written(written: io::Result<()>) -> Result<(), String> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("standard output: {error}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_closed_pipe_is_not_an_error() {
        assert_eq!(check_written(Err(ErrorKind::BrokenPipe.into())), Ok(()));
        let full = check_written(Err(ErrorKind::StorageFull.into())).expect_err("it is full");
        assert!(full.starts_with("standard output: "), "{full}");
    }
}

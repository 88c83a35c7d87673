//! What commands print. A reader that has seen enough and went away (`| head -1`) is no error; whoever
//! prints on just writes to nobody.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write, stderr, stdout};

/// Prints to standard output, with what was printed before.
///
/// # Errors
/// When it can't be written, for another reason than that nobody reads: a text for the user.
pub fn out(text: impl Display) -> Result<(), String> {
    let mut stdout = stdout().lock();
    done(write!(stdout, "{text}").and_then(|()| stdout.flush()))
}

/// A line for the operator, to standard error.
pub fn note(text: impl Display) {
    // There is nobody else to tell.
    let _ = writeln!(stderr(), "lowroad: {text}");
}

fn done(written: io::Result<()>) -> Result<(), String> {
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
    fn only_a_reader_that_went_away_is_no_error() {
        assert_eq!(done(Err(ErrorKind::BrokenPipe.into())), Ok(()));
        let full = done(Err(ErrorKind::StorageFull.into())).expect_err("it is full");
        assert!(full.starts_with("standard output: "), "{full}");
    }
}

//! The terminal of `top`. Uses the alternate screen, reads single keys, and restores the terminal when dropped.

use std::io::{self, IsTerminal, Write, stdin, stdout};
use std::time::{Duration, Instant};

use lowroad_child_processes::process::{readable, ready};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Moves the cursor to the top left corner. Each line is cleared to its right, and the last line clears those below it.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K\r\n";
const CLEAR_BELOW: &str = "\x1b[J";

/// A terminal that shows one page at a time.
pub struct TerminalPage {
    /// The settings to restore; `None` if standard input is not a terminal.
    saved_settings: Option<Termios>,
}

/// Lines and columns of a terminal.
#[derive(Clone, Copy)]
pub struct TerminalSize {
    pub rows: usize,
    pub columns: usize,
}

impl TerminalPage {
    /// Takes over the terminal of standard output; `None` if standard output is not a terminal.
    pub fn take() -> io::Result<Option<TerminalPage>> {
        if !stdout().is_terminal() {
            return Ok(None);
        }
        let saved_settings = match stdin().is_terminal() {
            true => Some(tcgetattr(stdin())?),
            false => None,
        };
        if let Some(saved_settings) = &saved_settings {
            let mut keys = saved_settings.clone();
            // ISIG is kept, so that Ctrl-C still sends SIGINT.
            keys.local_modes
                .remove(LocalModes::ICANON | LocalModes::ECHO);
            tcsetattr(stdin(), OptionalActions::Now, &keys)?;
        }
        let terminal = TerminalPage { saved_settings };
        write(ENTER)?;
        Ok(Some(terminal))
    }

    /// The current size.
    pub fn size(&self) -> TerminalSize {
        match tcgetwinsize(stdout()) {
            Ok(size) if size.ws_row > 0 => TerminalSize {
                rows: size.ws_row.into(),
                columns: size.ws_col.into(),
            },
            // The size of a VT100, for terminals that do not report their size.
            _ => TerminalSize {
                rows: 24,
                columns: 80,
            },
        }
    }

    /// Shows a page, truncated to the terminal's size.
    pub fn show(&self, page: &str) -> io::Result<()> {
        write(&frame(page, self.size()))
    }

    /// Waits for a key or the timeout. Returns whether the user wants to quit.
    pub fn wait(&self, time: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + time;
        loop {
            if self.saved_settings.is_none() {
                let remaining = deadline.saturating_duration_since(Instant::now());
                // A signal does not interrupt this sleep; the caller checks for a signal afterwards.
                std::thread::sleep(remaining.min(Duration::from_millis(100)));
                return Ok(false);
            }
            let input = stdin();
            let [has_key] = ready([Some(readable(&input))], Some(deadline))?;
            if !has_key {
                return Ok(false);
            }
            let mut key = [0; 1];
            match rustix::io::read(&input, &mut key)? {
                // End of input.
                0 => return Ok(true),
                // 3 is Ctrl-C, if the terminal passes it as a character.
                _ if matches!(key[0], b'q' | b'Q' | 3) => return Ok(true),
                _ => {}
            }
        }
    }
}

impl Drop for TerminalPage {
    fn drop(&mut self) {
        // The write fails if the terminal is gone.
        let _ = write(LEAVE);
        if let Some(saved_settings) = &self.saved_settings {
            let _ = tcsetattr(stdin(), OptionalActions::Now, saved_settings);
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Control sequences that draw a page over the previous one.
fn frame(page: &str, size: TerminalSize) -> String {
    let mut out = String::from(HOME);
    let lines: Vec<&str> = page.lines().take(size.rows.saturating_sub(1)).collect();
    for line in lines {
        // Control characters in URLs must not reach the terminal.
        out.extend(line.chars().filter(|c| !c.is_control()).take(size.columns));
        out.push_str(CLEAR_LINE);
    }
    out.push_str(CLEAR_BELOW);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_truncated_and_control_characters_removed() {
        let drawn = frame(
            "abcdef\nx\x1b[2Jy\nlast",
            TerminalSize {
                rows: 3,
                columns: 4,
            },
        );
        assert_eq!(drawn, "\x1b[Habcd\x1b[K\r\nx[2J\x1b[K\r\n\x1b[J");
    }
}

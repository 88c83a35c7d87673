//! Man pages and shell completions, generated from the command line's definition.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::CommandLine;
use crate::terminal_output;

const NAME: &str = "lowroad";

/// Writes completions for a shell to standard output.
///
/// # Errors
/// When standard output can't be written.
pub fn completions(shell: Shell) -> Result<(), String> {
    let mut text = Vec::new();
    // Into memory first: clap panics on a write error such as a closed pipe.
    clap_complete::generate(shell, &mut CommandLine::command(), NAME, &mut text);
    terminal_output::out(String::from_utf8_lossy(&text))
}

/// Writes the man pages of the program and of all its commands into a folder.
///
/// # Errors
/// When the folder can't be written.
pub fn pages(folder: &Path) -> Result<(), String> {
    clap_mangen::generate_to(CommandLine::command(), folder)
        .map_err(|error| format!("{}: {error}", folder.display()))
}

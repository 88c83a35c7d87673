//! `lowroad import`: writes the translation of another server's configuration.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use lowroad_config_import::nginx;

use crate::cli::import::{ImportArgs, ImportCommand};
use crate::terminal_output;

/// The result of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportOutcome {
    /// Every directive is translated, or not needed.
    Complete,
    /// Directives are left to translate by hand.
    ByHand,
}

/// Translates a configuration, writes it, and reports the outcome of each directive on standard error.
///
/// # Errors
/// A file can't be read or has a mistake in its syntax, or the output can't be written. Nothing is written then.
pub fn run(command: &ImportCommand) -> Result<ImportOutcome, String> {
    let ImportCommand::Nginx(args) = command;
    // Before the work, since its report is long.
    if let Some(output) = args
        .output
        .as_deref()
        .filter(|path| path.exists() && !args.force)
    {
        return Err(format!(
            "{}: exists already; --force replaces it",
            output.display()
        ));
    }
    let import =
        nginx::import(&args.file, args.prefix.as_deref()).map_err(|error| error.to_string())?;
    if import.site_count == 0 {
        return Err(format!("{}: no server is configured", args.file.display()));
    }
    if !import.problems.is_empty() {
        let lines: Vec<String> = import.problems.iter().map(ToString::to_string).collect();
        return Err(format!(
            "the translation can't be used; nothing is written\n{}",
            lines.join("\n")
        ));
    }
    match &args.output {
        Some(path) => write_file(path, &import.text, args)
            .map_err(|error| format!("{}: {error}", path.display()))?,
        None => terminal_output::out(&import.text)?,
    }
    terminal_output::note(import.report.to_string().trim_end());
    Ok(match import.report.counts().by_hand {
        0 => ImportOutcome::Complete,
        _ => ImportOutcome::ByHand,
    })
}

fn write_file(path: &Path, text: &str, args: &ImportArgs) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true);
    // The file may have been created since it was looked for.
    match args.force {
        true => options.create(true).truncate(true),
        false => options.create_new(true),
    };
    options.open(path)?.write_all(text.as_bytes())
}

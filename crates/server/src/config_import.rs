//! `lowroad import`: writes the translation of another server's configuration.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use lowroad_config_import::{caddy, nginx};

use crate::cli::import::ImportCommand;
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
    let (file, output) = match command {
        ImportCommand::Nginx(args) => (&args.file, &args.output),
        ImportCommand::Caddy(args) => (&args.file, &args.output),
    };
    // Before the work, since its report is long.
    if let Some(path) = output
        .output
        .as_deref()
        .filter(|path| path.exists() && !output.force)
    {
        return Err(format!(
            "{}: exists already; --force replaces it",
            path.display()
        ));
    }
    let import = match command {
        ImportCommand::Nginx(args) => {
            nginx::import(file, args.prefix.as_deref()).map_err(|error| error.to_string())?
        }
        ImportCommand::Caddy(_) => caddy::import(file).map_err(|error| error.to_string())?,
    };
    if import.site_count == 0 {
        return Err(format!("{}: no site is configured", file.display()));
    }
    if !import.problems.is_empty() {
        let lines: Vec<String> = import.problems.iter().map(ToString::to_string).collect();
        return Err(format!(
            "the translation can't be used; nothing is written\n{}",
            lines.join("\n")
        ));
    }
    match &output.output {
        Some(path) => write_file(path, &import.text, output.force)
            .map_err(|error| format!("{}: {error}", path.display()))?,
        None => terminal_output::out(&import.text)?,
    }
    terminal_output::note(import.report.to_string().trim_end());
    Ok(match import.report.counts().by_hand {
        0 => ImportOutcome::Complete,
        _ => ImportOutcome::ByHand,
    })
}

fn write_file(path: &Path, text: &str, is_forced: bool) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true);
    // The file may have been created since it was looked for.
    match is_forced {
        true => options.create(true).truncate(true),
        false => options.create_new(true),
    };
    options.open(path)?.write_all(text.as_bytes())
}

//! `lowroad config`: shows, formats and compares configurations.
//!
//! No secret is read: these commands show the place of a secret only.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use lowroad_config::{ConfigFiles, EffectiveConfig, SecretSource, TEXT_LEN_MAX, reference};

use crate::admin;
use crate::cli::{self, ConfigCommand};
use crate::config_docs;
use crate::config_files::ServerFiles;
use crate::terminal_output;

/// Exit code of `diff` if the configurations differ.
const DIFFERENT_CODE: u8 = 3;

/// Runs the command.
///
/// # Errors
/// A message: a file can't be read or is invalid, or no server answers.
pub fn run(command: &ConfigCommand) -> Result<ExitCode, String> {
    match command {
        ConfigCommand::Docs { folder } => config_docs::write(folder.as_deref())?,
        ConfigCommand::Show { file, json } => {
            let effective = effective(file)?;
            terminal_output::out(match json {
                true => format!("{:#}\n", effective.to_json()),
                false => effective.to_toml(),
            })?;
        }
        ConfigCommand::Format { file, check, write } => format(file, *check, *write)?,
        ConfigCommand::Diff { files, admin } => return diff(files, admin.as_deref()),
        ConfigCommand::Schema => {
            terminal_output::out(format_args!("{:#}\n", reference::json_schema()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The values in force of a file, and of those that it includes.
fn effective(file: &Path) -> Result<EffectiveConfig, String> {
    let text = read_text(file)?;
    let config = lowroad_config::parse_with(&text, file, &UnreadSecrets);
    let config = config.map_err(|problems| cli::problem_text(&problems))?;
    for warning in &config.document.warnings {
        terminal_output::note(warning);
    }
    Ok(config.document.effective)
}

fn read_text(file: &Path) -> Result<String, String> {
    let problem = |message: &dyn std::fmt::Display| format!("{}: {message}", file.display());
    let bytes = ServerFiles.read(file, TEXT_LEN_MAX);
    let bytes = bytes.map_err(|error| problem(&error))?;
    String::from_utf8(bytes).map_err(|_| problem(&"not UTF-8"))
}

fn format(file: &Path, is_check: bool, is_write: bool) -> Result<(), String> {
    let text = read_text(file)?;
    let formatted =
        lowroad_config::format(&text).map_err(|error| format!("{}:{error}", file.display()))?;
    if !is_check && !is_write {
        return terminal_output::out(formatted);
    }
    if formatted == text {
        return Ok(());
    }
    if is_check {
        let file = file.display();
        return Err(format!(
            "{file}: not in the canonical form; lowroad config format --write {file} changes it"
        ));
    }
    std::fs::write(file, formatted).map_err(|error| format!("{}: {error}", file.display()))
}

fn diff(files: &[impl AsRef<Path>], admin: Option<&Path>) -> Result<ExitCode, String> {
    let (old, new) = match files {
        [old, new] => (effective(old.as_ref())?, effective(new.as_ref())?),
        [file, ..] => {
            // Read first, so that problems of the file are reported even without a running server.
            let new = effective(file.as_ref())?;
            (admin::running_config(admin)?.effective, new)
        }
        [] => {
            let running = admin::running_config(admin)?;
            (running.effective, effective(&running.file)?)
        }
    };
    let changes = lowroad_config::changes(&old, &new);
    for change in &changes {
        terminal_output::out(format_args!("{change}\n"))?;
    }
    Ok(match changes.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(DIFFERENT_CODE),
    })
}

/// The files of this machine, without access to secrets.
struct UnreadSecrets;

impl ConfigFiles for UnreadSecrets {
    fn read(&self, file: &Path, len_max: usize) -> io::Result<Vec<u8>> {
        ServerFiles.read(file, len_max)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        ServerFiles.names(folder)
    }

    fn secret(&self, _: &SecretSource) -> Result<Option<String>, String> {
        Ok(None)
    }
}

//! `lowroad config docs`: writes the configuration reference as Markdown pages.

use std::path::Path;

use lowroad_config::reference;

use crate::terminal_output;

/// Writes the pages into a folder, or all of them to standard output.
///
/// # Errors
/// When the folder or standard output can't be written.
pub fn write(folder: Option<&Path>) -> Result<(), String> {
    let pages = reference::pages();
    let Some(folder) = folder else {
        let texts: Vec<String> = pages.into_iter().map(|(_, text)| text).collect();
        return terminal_output::out(texts.join("\n"));
    };
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for (name, text) in pages {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

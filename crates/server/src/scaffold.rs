//! `lowroad new`: writes the files of a module template into a new folder.

use std::path::Path;

use crate::cli::NewArgs;
use crate::module_template::{self, ModuleLanguage};
use crate::terminal_output;

/// Writes the files of the requested template.
///
/// # Errors
/// The reason, and a remedy.
pub fn write(template: &NewArgs) -> Result<(), String> {
    let NewArgs::Module { name, language } = template;
    let files = module_template::module(name, *language)?;
    let folder = Path::new(name);
    // Never overwrites files: the folder may contain the user's own work.
    if folder.exists() {
        return Err(format!(
            "{name} exists already; choose another name or another folder"
        ));
    }
    for (path, text) in files {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let (test, build) = match language {
        ModuleLanguage::Rust => ("cargo test", "cargo build"),
        ModuleLanguage::C => ("make test", "make"),
    };
    let text = format_args!(
        "created {name}: cd {name}\n  {test}\n  {build} && lowroad run -c lowroad.toml\n"
    );
    terminal_output::out(text).map_err(|error| error.to_string())
}

//! `lowroad new`: writes the files of a module template into a new folder.

use std::path::Path;

use crate::cli::New;
use crate::new::{self, Language};
use crate::say;

/// Writes the files of the requested template.
///
/// # Errors
/// The obstacle, and a remedy.
pub fn write(what: &New) -> Result<(), String> {
    let New::Module { name, language } = what;
    let files = new::module(name, *language)?;
    let folder = Path::new(name);
    // Never overwrites: the folder may hold the user's own work.
    if folder.exists() {
        return Err(format!(
            "{name} is there already; another name, or another folder"
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
        Language::Rust => ("cargo test", "cargo build"),
        Language::C => ("make test", "make"),
    };
    let text = format_args!(
        "{name} is there: cd {name}\n  {test}\n  {build} && lowroad run -c lowroad.toml\n"
    );
    say::out(text).map_err(|error| error.to_string())
}

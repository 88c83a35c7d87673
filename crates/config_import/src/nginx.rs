//! Imports a configuration of nginx.

use std::path::{Path, PathBuf};

use crate::ConfigImport;
use crate::checked::checked;

mod blocks;
mod condition_keys;
mod definitions;
mod directives;
mod excepted_paths;
mod include;
mod level;
mod lexer;
mod locations;
mod maps;
mod missing_files;
mod output;
mod servers;
mod settings;
mod tree;
mod tried_files;
mod values;

#[cfg(test)]
mod bound_tests;
#[cfg(test)]
mod closing_tests;
#[cfg(test)]
mod opening_tests;
#[cfg(test)]
mod protection_tests;
#[cfg(test)]
mod rewrite_tests;
#[cfg(test)]
mod tests;

pub use tree::SyntaxError;

use blocks::{number_directives, read_servers};
use include::IncludeReader;
use level::Translation;
use tree::{Directive, parse};

/// The largest number of locations of a server.
const LOCATIONS_MAX: usize = 5000;

/// Reads a configuration of nginx with its includes, and translates it. `prefix` is the folder of relative roots; the
/// default is that of the usual packages.
///
/// # Errors
/// A file that can't be read, or a mistake in the syntax.
pub fn import(file: &Path, prefix: Option<&Path>) -> Result<ConfigImport, SyntaxError> {
    let folder = config_folder(&absolute(file));
    let directives = IncludeReader::new(&folder).read(file)?;
    check_locations(&directives)?;
    let translation = Translation {
        reads_files: true,
        ..new_translation(folder, prefix)
    };
    Ok(translate(directives, file, translation))
}

/// Translates the text of a single file, without access to any file: its includes are left to do by hand.
///
/// # Errors
/// A mistake in the syntax.
pub fn import_text(text: &str, file: &Path) -> Result<ConfigImport, SyntaxError> {
    let directives = parse(text, file)?;
    check_locations(&directives)?;
    let translation = new_translation(config_folder(&absolute(file)), None);
    Ok(translate(directives, file, translation))
}

/// Refuses servers with too many locations, each of which is compared with the others.
fn check_locations(directives: &[Directive]) -> Result<(), SyntaxError> {
    for directive in directives {
        let has_too_many = directive.name == "server" && count_locations(directive) > LOCATIONS_MAX;
        if has_too_many {
            return Err(SyntaxError {
                file: directive.place.file.to_path_buf(),
                position: directive.place.position,
                message: format!("the server has more than {LOCATIONS_MAX} locations"),
            });
        }
        check_locations(directive.children())?;
    }
    Ok(())
}

fn count_locations(block: &Directive) -> usize {
    let children = block.children().iter();
    let counts = children.map(|it| usize::from(it.name == "location") + count_locations(it));
    counts.sum()
}

fn absolute(file: &Path) -> PathBuf {
    std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf())
}

fn new_translation(folder: PathBuf, prefix: Option<&Path>) -> Translation {
    Translation {
        root_prefix: prefix.map_or_else(|| default_prefix(&folder), Path::to_path_buf),
        prefix: folder,
        ..Translation::default()
    }
}

fn translate(
    mut directives: Vec<Directive>,
    file: &Path,
    mut translation: Translation,
) -> ConfigImport {
    // Every directive has an entry from the start, so one that no function reads is reported, too.
    number_directives(&mut translation, &mut directives);
    let servers = read_servers(&mut translation, &directives);
    let site_count = servers.len();
    let document = output::write_config(servers, &mut translation, head(file));
    checked(document, translation.report, site_count)
}

/// The folder that relative includes refer to. A file of `sites-available` and the like is in a folder below it.
fn config_folder(file: &Path) -> PathBuf {
    let parent = file.parent().unwrap_or(Path::new("/"));
    let is_below = ["sites-available", "sites-enabled", "conf.d", "snippets"]
        .iter()
        .any(|name| parent.ends_with(name));
    let folder = if is_below { parent.parent() } else { None };
    folder.unwrap_or(parent).to_path_buf()
}

/// The prefix of packages: `/usr/share/nginx` for `/etc/nginx`, else the folder around `conf`.
fn default_prefix(folder: &Path) -> PathBuf {
    if folder == Path::new("/etc/nginx") {
        return PathBuf::from("/usr/share/nginx");
    }
    // nginx that was built from source has its files in PREFIX/conf.
    let parent = folder.parent().filter(|_| folder.ends_with("conf"));
    parent.unwrap_or(folder).to_path_buf()
}

fn head(file: &Path) -> Vec<String> {
    vec![
        format!("Translated from {} by `lowroad import nginx`.", file.display()),
        String::new(),
        "`keep = \"never\"` stores no responses, as nginx without proxy_cache. Without it, responses are stored as they".to_string(),
        "permit. Hosts without a site get 421; to answer them, add \"_\" to the names of a site.".to_string(),
    ]
}

//! Maps a path to a script and its PATH_INFO (RFC 3875 §4.1.5, §4.1.13).
//!
//! Pure: a function parameter reports the contents of the folder. [`lookup`] accesses the file system, `exchange` runs
//! the exchange with the script.

pub mod exchange;
pub mod lookup;
#[cfg(test)]
mod tests;

use std::path::Path;

use lowroad_config::PathPattern;

/// The kind of a path below a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// Absent, or inaccessible.
    Nothing,
}

/// Selects the files that are scripts.
#[derive(Clone, Debug)]
pub struct ScriptRules {
    /// The route's pattern, which a script's path must match.
    pub pattern: PathPattern,
    /// The required suffix of a script's name, for patterns that end in a wildcard and so do not constrain
    /// it. Empty: any name.
    pub suffix: String,
    /// The index file of a folder; empty: folders have none.
    pub index: String,
}

/// A script and its PATH_INFO. Both are decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedScript {
    /// SCRIPT_NAME: the path of the script, beginning with `/`.
    pub name: Vec<u8>,
    /// PATH_INFO: the rest of the path, empty or beginning with `/`.
    pub info: Vec<u8>,
}

/// The meaning of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMeaning {
    /// This script.
    Script(LocatedScript),
    /// A folder with an index file, but the path lacks the final slash.
    SlashMissing,
    /// No script: 404.
    Nothing,
}

/// A request's decoded path.
#[derive(Clone, Copy, Debug)]
pub struct RequestedPath<'p> {
    /// The path, beginning with `/`.
    pub path: &'p [u8],
    /// The length before the first needlessly encoded byte. The name of a script must end within it.
    pub plain_len: usize,
}

/// A folder of scripts in the URL space.
#[derive(Clone, Copy, Debug)]
pub struct ScriptFolder<'f> {
    /// The folder in the file system.
    pub folder: &'f Path,
    /// The length of the path's prefix that leads to the folder.
    pub prefix_len: usize,
}

/// Finds the script for a decoded path: the first of its prefixes that is a file.
///
/// If that file is no script by the rules, there is no script: text after a file's name never turns it into one (an
/// uploaded picture must not be executed), and no further candidates are tried. The rest of the path is PATH_INFO.
pub fn find(
    requested: RequestedPath<'_>,
    rules: &ScriptRules,
    mut kind: impl FnMut(&[u8]) -> ScriptKind,
) -> PathMeaning {
    let RequestedPath { path, plain_len } = requested;
    for end in prefix_ends(path).take_while(|end| *end <= plain_len) {
        let (name, info) = path.split_at(end);
        match kind(name) {
            ScriptKind::File if rules.allow(name) && !is_hidden(name) => return script(name, info),
            ScriptKind::File | ScriptKind::Nothing => return PathMeaning::Nothing,
            ScriptKind::Folder => {}
        }
    }
    match path.len() <= plain_len && !is_hidden(path) {
        true => find_index(path, rules, kind),
        false => PathMeaning::Nothing,
    }
}

/// Finds the script for a decoded path by its text alone, for files on another machine: the first of its
/// prefixes with a script's name. The server reports a missing script.
pub fn find_by_name(requested: RequestedPath<'_>, rules: &ScriptRules) -> PathMeaning {
    let RequestedPath { path, plain_len } = requested;
    // Without a suffix every prefix could be a script, so the whole path is taken.
    let is_any_name = rules.pattern.has_capture() && rules.suffix.is_empty();
    for end in prefix_ends(path).take_while(|end| *end <= plain_len) {
        let (name, info) = path.split_at(end);
        if rules.allow(name) && (!is_any_name || info.is_empty()) {
            return match is_hidden(name) {
                true => PathMeaning::Nothing,
                false => script(name, info),
            };
        }
    }
    let is_folder = path.ends_with(b"/") && path.len() <= plain_len;
    match is_folder && !rules.index.is_empty() && !is_hidden(path) {
        true => script(&[path, rules.index.as_bytes()].concat(), b""),
        false => PathMeaning::Nothing,
    }
}

/// The script of a front controller: always the same one; PATH_INFO is set only if the path begins with the script's
/// own name.
pub fn front_controller(path: &[u8], script: &str) -> LocatedScript {
    let info = match path.strip_prefix(script.as_bytes()) {
        // PATH_INFO must begin with a slash: `/index.phpx` is another path.
        Some(info) if info.starts_with(b"/") => info,
        _ => b"",
    };
    LocatedScript {
        name: script.as_bytes().to_vec(),
        info: info.to_vec(),
    }
}

/// The single program of a route: its SCRIPT_NAME is the base of the pattern.
pub fn mounted_program(path: &[u8], base: &str) -> LocatedScript {
    let base = match path.strip_prefix(base.as_bytes()) {
        Some(info) if info.is_empty() || info.starts_with(b"/") => base,
        _ => "",
    };
    LocatedScript {
        name: base.as_bytes().to_vec(),
        info: path[base.len()..].to_vec(),
    }
}

/// The part of a pattern before its first wildcard, up to the last slash: the path of the folder of programs.
pub fn base_path(pattern: &PathPattern) -> String {
    let text = pattern.to_string();
    let literal = text.split('*').next().unwrap_or_default();
    match literal.rfind('/') {
        Some(slash) => literal[..slash].to_string(),
        None => String::new(),
    }
}

/// Whether a path contains a hidden name, which begins with a dot, except the registered `.well-known` (RFC 8615) at
/// the top.
pub fn is_hidden(path: &[u8]) -> bool {
    let mut segments = path.split(|b| *b == b'/').filter(|s| !s.is_empty());
    let first = segments.next().unwrap_or_default();
    (first.starts_with(b".") && first != b".well-known") || segments.any(|s| s.starts_with(b"."))
}

impl ScriptRules {
    /// Whether a file with this path is a script. A pattern may include PATH_INFO
    /// (`/**.php/**`); then the script's path with a slash matches it.
    fn allow(&self, name: &[u8]) -> bool {
        // A pattern like `/**.php/**` matches only paths with PATH_INFO.
        let mut with_slash = name.to_vec();
        with_slash.push(b'/');
        let has_wildcard = self.pattern.has_capture();
        let matches =
            self.pattern.matches(name) || has_wildcard && self.pattern.matches(&with_slash);
        matches && (!has_wildcard || name.ends_with(self.suffix.as_bytes()))
    }
}

/// The ends of a path's prefixes: before each slash except the first, and at the end.
fn prefix_ends(path: &[u8]) -> impl Iterator<Item = usize> {
    let slashes = (1..path.len()).filter(|index| path[*index] == b'/');
    // A path with a final slash ends with its last folder.
    let full_len = (path.len() > 1 && !path.ends_with(b"/")).then_some(path.len());
    slashes.chain(full_len)
}

/// Finds the index file, if the whole path is a folder.
fn find_index(
    path: &[u8],
    rules: &ScriptRules,
    mut kind: impl FnMut(&[u8]) -> ScriptKind,
) -> PathMeaning {
    if rules.index.is_empty() {
        return PathMeaning::Nothing;
    }
    let slash = path.ends_with(b"/");
    let mut name = path.to_vec();
    if !slash {
        name.push(b'/');
    }
    name.extend_from_slice(rules.index.as_bytes());
    match kind(&name) {
        ScriptKind::File if slash => script(&name, b""),
        ScriptKind::File => PathMeaning::SlashMissing,
        ScriptKind::Folder | ScriptKind::Nothing => PathMeaning::Nothing,
    }
}

fn script(name: &[u8], info: &[u8]) -> PathMeaning {
    PathMeaning::Script(LocatedScript {
        name: name.to_vec(),
        info: info.to_vec(),
    })
}

//! Maps a path to a script and its PATH_INFO (RFC 3875 §4.1.5, §4.1.13).
//!
//! Free of I/O: `find` gets the contents of the folder from a function parameter. [`lookup`] accesses the file system;
//! `exchange` runs the exchange with the program.

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
    /// Nonexistent, or inaccessible.
    Nothing,
}

/// The rules by which a file is a script.
#[derive(Clone, Debug)]
pub struct ScriptRules {
    /// The pattern of the route, which the script's path must match.
    pub pattern: PathPattern,
    /// The suffix that a script's name must have if the pattern ends in a wildcard and so does not constrain the name.
    /// Empty: any name.
    pub suffix: String,
    /// The name of a folder's index file; empty if folders have none.
    pub index: String,
}

/// A script and its PATH_INFO, both decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedScript {
    /// SCRIPT_NAME: the path of the script; begins with `/`.
    pub name: Vec<u8>,
    /// PATH_INFO: the rest of the path; empty, or begins with `/`.
    pub info: Vec<u8>,
}

/// The result of looking up a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMeaning {
    /// The path is that of a script.
    Script(LocatedScript),
    /// The path is that of a folder with an index file, but lacks the final slash.
    SlashMissing,
    /// There is no script: 404.
    Nothing,
}

/// The decoded path of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestedPath<'p> {
    /// The path, beginning with `/`.
    pub path: &'p [u8],
    /// The length of the path before its first needlessly encoded byte. The name of a script must end within it.
    pub plain_len: usize,
}

/// A folder of scripts, and its position in the URL space.
#[derive(Clone, Copy, Debug)]
pub struct ScriptFolder<'f> {
    /// The folder in the file system.
    pub folder: &'f Path,
    /// The length of the path prefix that stands for the folder.
    pub prefix_len: usize,
}

/// Finds the script of a decoded path: its shortest prefix that is a file.
///
/// If that file is not a script by the rules, the result is `Nothing`. Text after a file's name never turns the file
/// into a script: an uploaded picture must not be executed. The rest of the path is PATH_INFO.
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

/// Finds the script of a decoded path by names alone, for files on another machine: the shortest prefix that has a
/// script's name. The FastCGI server reports a missing script.
pub fn find_by_name(requested: RequestedPath<'_>, rules: &ScriptRules) -> PathMeaning {
    let RequestedPath { path, plain_len } = requested;
    // Without a suffix every prefix would match, so the script is the whole path.
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

/// The script of a front controller, which is the same for all paths. PATH_INFO is set only if the path begins with the
/// script's name.
pub fn front_controller(path: &[u8], script: &str) -> LocatedScript {
    let info = match path.strip_prefix(script.as_bytes()) {
        // PATH_INFO begins with a slash: `/index.phpx` is a different path.
        Some(info) if info.starts_with(b"/") => info,
        _ => b"",
    };
    LocatedScript {
        name: script.as_bytes().to_vec(),
        info: info.to_vec(),
    }
}

/// The single program of a route; its SCRIPT_NAME is the base of the pattern.
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

/// Whether a path contains a hidden segment: one that begins with a dot, except the registered `.well-known` (RFC 8615)
/// as the first segment.
pub fn is_hidden(path: &[u8]) -> bool {
    let mut segments = path.split(|b| *b == b'/').filter(|s| !s.is_empty());
    let first = segments.next().unwrap_or_default();
    (first.starts_with(b".") && first != b".well-known") || segments.any(|s| s.starts_with(b"."))
}

impl ScriptRules {
    /// Whether a file with this path is a script. A pattern may include PATH_INFO (`/**.php/**`) and then matches the
    /// script's path with a slash.
    fn allow(&self, name: &[u8]) -> bool {
        // A pattern like `/**.php/**` matches only paths with PATH_INFO, so the path is also tried with a slash.
        let mut with_slash = name.to_vec();
        with_slash.push(b'/');
        let has_wildcard = self.pattern.has_capture();
        let matches =
            self.pattern.matches(name) || has_wildcard && self.pattern.matches(&with_slash);
        matches && (!has_wildcard || name.ends_with(self.suffix.as_bytes()))
    }
}

/// The lengths of a path's prefixes: before each slash except the first, and the whole path.
fn prefix_ends(path: &[u8]) -> impl Iterator<Item = usize> {
    let slashes = (1..path.len()).filter(|index| path[*index] == b'/');
    // A path with a final slash ends with a folder. The folder's end is already included.
    let full_len = (path.len() > 1 && !path.ends_with(b"/")).then_some(path.len());
    slashes.chain(full_len)
}

/// Finds the index file if the whole path is a folder.
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

//! Which script a path means, and what of the path is left for it (RFC 3875 §4.1.5, §4.1.13).
//!
//! Pure: what is in the folder is told by a function. [`lookup`] asks the file system, [`talk`]
//! leads the conversation with the script. It knows nothing of how a script is run.

pub mod lookup;
pub mod talk;
#[cfg(test)]
mod tests;

use lowroad_config::Pattern;

/// What is found at a path below a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// Nothing, or nothing that may be looked at.
    Nothing,
}

/// Which files are scripts.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The route's pattern, which a script's path must match.
    pub pattern: Pattern,
    /// What a script's name must end with, when the pattern ends in a wildcard and so says nothing
    /// of it. Empty: any name will do.
    pub ending: String,
    /// The file that a folder's path stands for; empty: a folder stands for nothing.
    pub index: String,
}

/// A script and what of the path is left for it. Both are decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The path that leads to it, beginning with `/`: SCRIPT_NAME.
    pub name: Vec<u8>,
    /// The rest of the path, empty or beginning with `/`: PATH_INFO.
    pub info: Vec<u8>,
}

/// What a path means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// This script.
    Script(Script),
    /// A folder with an index, but the path lacks the slash at its end.
    SlashMissing,
    /// No script: 404.
    Nothing,
}

/// Finds the script for a decoded path: the first of its prefixes that is a file. If that file is
/// no script by the rules, there is none: what follows a file's name never makes a script of it,
/// and a script that is not there is not looked for elsewhere. The name of a script ends within the first `plain_len` bytes,
/// before anything that was encoded though it needs not be; what follows is all the script's.
pub fn find(
    (path, plain_len): (&[u8], usize),
    rules: &Rules,
    mut kind: impl FnMut(&[u8]) -> Kind,
) -> Meaning {
    for end in ends(path).take_while(|end| *end <= plain_len) {
        let (name, info) = path.split_at(end);
        match kind(name) {
            Kind::File if rules.allow(name) && !is_hidden(name) => return script(name, info),
            Kind::File | Kind::Nothing => return Meaning::Nothing,
            Kind::Folder => {}
        }
    }
    match path.len() <= plain_len && !is_hidden(path) {
        true => find_index(path, rules, kind),
        false => Meaning::Nothing,
    }
}

/// Finds the script for a decoded path by its text alone, where the files are on another machine: the first of its
/// prefixes that has a script's name. Whether the script is there, its server says. `plain_len` as in [`find()`].
pub fn find_by_name((path, plain_len): (&[u8], usize), rules: &Rules) -> Meaning {
    // Without an ending any prefix could be a script: then the whole path is.
    let is_any_name = rules.pattern.has_capture() && rules.ending.is_empty();
    for end in ends(path).take_while(|end| *end <= plain_len) {
        let (name, info) = path.split_at(end);
        if rules.allow(name) && (!is_any_name || info.is_empty()) {
            return match is_hidden(name) {
                true => Meaning::Nothing,
                false => script(name, info),
            };
        }
    }
    let is_folder = path.ends_with(b"/") && path.len() <= plain_len;
    match is_folder && !rules.index.is_empty() && !is_hidden(path) {
        true => script(&[path, rules.index.as_bytes()].concat(), b""),
        false => Meaning::Nothing,
    }
}

/// The script of a front controller: always the same, unless the path names it itself and then
/// goes on.
pub fn front(path: &[u8], script: &str) -> Script {
    let info = match path.strip_prefix(script.as_bytes()) {
        Some(info) if info.starts_with(b"/") => info,
        _ => b"",
    };
    Script {
        name: script.as_bytes().to_vec(),
        info: info.to_vec(),
    }
}

/// The one program that answers for all that a pattern covers: its name is what the pattern says of where it is.
pub fn mounted(path: &[u8], base: &str) -> Script {
    let base = match path.strip_prefix(base.as_bytes()) {
        Some(info) if info.is_empty() || info.starts_with(b"/") => base,
        _ => "",
    };
    Script {
        name: base.as_bytes().to_vec(),
        info: path[base.len()..].to_vec(),
    }
}

/// The part of a pattern before its first wildcard, up to its last slash: where a folder of
/// programs begins.
pub fn base_of(pattern: &Pattern) -> String {
    let text = pattern.to_string();
    let literal = text.split('*').next().unwrap_or_default();
    match literal.rfind('/') {
        Some(slash) => literal[..slash].to_string(),
        None => String::new(),
    }
}

/// Whether a path names something that is not for clients: a name that begins with a dot, other
/// than the registered `.well-known` (RFC 8615) at the top.
pub fn is_hidden(path: &[u8]) -> bool {
    let mut segments = path.split(|b| *b == b'/').filter(|s| !s.is_empty());
    let first = segments.next().unwrap_or_default();
    (first.starts_with(b".") && first != b".well-known") || segments.any(|s| s.starts_with(b"."))
}

impl Rules {
    /// Whether a file with this path is a script. A pattern may name what follows a script too
    /// (`/**.php/**`); then the script's path with a slash matches it.
    fn allow(&self, name: &[u8]) -> bool {
        let mut with_slash = name.to_vec();
        with_slash.push(b'/');
        let open = self.pattern.has_capture();
        let matches = self.pattern.matches(name) || open && self.pattern.matches(&with_slash);
        matches && (!open || name.ends_with(self.ending.as_bytes()))
    }
}

/// Where the prefixes of a path end: before each slash but the first, and at the end.
fn ends(path: &[u8]) -> impl Iterator<Item = usize> {
    let slashes = (1..path.len()).filter(|at| path[*at] == b'/');
    let whole = (path.len() > 1 && !path.ends_with(b"/")).then_some(path.len());
    slashes.chain(whole)
}

/// All of the path is folders.
fn find_index(path: &[u8], rules: &Rules, mut kind: impl FnMut(&[u8]) -> Kind) -> Meaning {
    if rules.index.is_empty() {
        return Meaning::Nothing;
    }
    let slash = path.ends_with(b"/");
    let mut name = path.to_vec();
    if !slash {
        name.push(b'/');
    }
    name.extend_from_slice(rules.index.as_bytes());
    match kind(&name) {
        Kind::File if slash => script(&name, b""),
        Kind::File => Meaning::SlashMissing,
        Kind::Folder | Kind::Nothing => Meaning::Nothing,
    }
}

fn script(name: &[u8], info: &[u8]) -> Meaning {
    Meaning::Script(Script {
        name: name.to_vec(),
        info: info.to_vec(),
    })
}

//! Reads a file and the files that it includes.
//!
//! Files are in the order of their inclusion, each followed by those that it includes.

use super::{ConfigFiles, SourceMap, SourceNote};
use crate::logs::explain_syntax_error;
use crate::problem::{ConfigPlace, ConfigProblem};
use crate::reader::{KeyPosition, position};
use glob::{MatchOptions, Pattern};
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The maximum number of files of a configuration.
pub const FILES_MAX: usize = 4096;
/// The maximum depth of includes: the main file includes at depth 1.
pub const INCLUDE_DEPTH_MAX: usize = 8;
/// The maximum length of all files together, in bytes.
pub const TEXT_LEN_MAX: usize = 64 << 20;

/// `*` matches no separator, and a name that begins with a dot only after a dot, as in shells.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

const ALLOWED: &str = "a path, or a path with * ? [ ] in the file name: [\"sites/*.toml\"]";

/// The texts of all files.
pub(crate) struct LoadedFiles {
    pub(crate) map: SourceMap,
    pub(super) warnings: Vec<SourceNote>,
}

struct FileLoader<'f> {
    access: &'f dyn ConfigFiles,
    loaded: LoadedFiles,
    problems: Vec<ConfigProblem>,
    /// The normalized path of each file, with the position of the include that has named it.
    known: HashMap<PathBuf, Option<usize>>,
    /// The normalized paths from the main file to the file that is being read.
    chain: Vec<PathBuf>,
    len_left: usize,
}

/// Reads all files. `text` is that of the main file.
///
/// # Errors
/// All files that can't be read or parsed.
pub(crate) fn read_files(
    text: String,
    file: &Path,
    access: &dyn ConfigFiles,
) -> Result<LoadedFiles, Vec<ConfigProblem>> {
    let mut loader = FileLoader {
        access,
        loaded: LoadedFiles {
            map: SourceMap::default(),
            warnings: Vec::new(),
        },
        problems: Vec::new(),
        known: HashMap::from([(normal_form(file), None)]),
        chain: Vec::new(),
        len_left: TEXT_LEN_MAX.saturating_sub(text.len()),
    };
    loader.add(file, text);
    match loader.problems.is_empty() {
        true => Ok(loader.loaded),
        false => Err(loader.problems),
    }
}

impl FileLoader<'_> {
    fn add(&mut self, file: &Path, text: String) {
        // Added before it is parsed, so that a syntax error has a place.
        let start = self.loaded.map.add_file(file.to_path_buf(), text);
        let file_index = self.loaded.map.locate(start).file_index;
        let source = self.loaded.map.files[file_index].clone();
        let mut table = match DeTable::parse(&source.text) {
            Ok(table) => table.into_inner(),
            // After a syntax error the structure of the remaining text is unknown.
            Err(error) => {
                let offset = error.span().map_or(0, |span| span.start);
                let message = explain_syntax_error(&source.text, offset, error.message());
                self.report(start + offset, "", &message, "");
                return;
            }
        };
        let Some(include) = table.remove("include") else {
            return;
        };
        let include = super::merge::moved_value(include, start);
        self.chain.push(normal_form(file));
        let folder = file.parent().unwrap_or(Path::new("")).to_path_buf();
        for pattern in self.patterns(include) {
            self.include(&folder, &pattern);
        }
        self.chain.pop();
    }

    /// The paths and patterns of `include`.
    fn patterns(&mut self, include: Spanned<DeValue<'_>>) -> Vec<Spanned<String>> {
        let span = include.span();
        let items = match include.into_inner() {
            DeValue::Array(items) => items.into_iter().collect(),
            single => vec![Spanned::new(span, single)],
        };
        let mut patterns = Vec::new();
        for item in items {
            match item.get_ref().as_str().filter(|text| is_path(text)) {
                Some(text) => patterns.push(Spanned::new(item.span(), text.to_owned())),
                None => self.report(item.span().start, "include", "not a path", ALLOWED),
            }
        }
        patterns
    }

    fn include(&mut self, folder: &Path, pattern: &Spanned<String>) {
        let offset = pattern.span().start;
        if self.chain.len() > INCLUDE_DEPTH_MAX {
            let message =
                format!("the files include each other more than {INCLUDE_DEPTH_MAX} deep");
            return self.report(offset, "include", &message, "fewer levels");
        }
        let path = Path::new(pattern.get_ref());
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return self.report(offset, "include", "names no file", ALLOWED);
        };
        let parent = path.parent().unwrap_or(Path::new(""));
        if has_wildcard(&parent.to_string_lossy()) {
            let message = "has a wildcard in the name of a folder";
            return self.report(offset, "include", message, ALLOWED);
        }
        if !has_wildcard(name) {
            return self.include_file(&folder.join(path), offset);
        }
        let name = match Pattern::new(name) {
            Ok(name) => name,
            Err(error) => return self.report(offset, "include", error.msg, ALLOWED),
        };
        let folder = folder.join(parent);
        let names = match self.access.names(&folder) {
            Ok(names) => names,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let message = format!("{} does not exist", folder.display());
                return self.warn(offset, message);
            }
            Err(error) => {
                let message = format!("{} cannot be read: {error}", folder.display());
                return self.report(offset, "include", &message, "a folder with files");
            }
        };
        // A folder without files is usual before the first site is configured.
        let is_empty = names.is_empty();
        let matches = |text: &str| name.matches_with(text, MATCHING);
        let mut names: Vec<_> = names
            .into_iter()
            .filter(|name| name.to_str().is_some_and(matches))
            .collect();
        // readdir(3) has no order, but the order of files decides that of sites and rules.
        names.sort_unstable();
        if names.is_empty() && !is_empty {
            let pattern = folder.join(name.as_str());
            self.warn(offset, format!("{} matches no file", pattern.display()));
        }
        for name in names {
            // The remaining files would only report the same limit again.
            if !self.include_file_once(&folder.join(name), offset) {
                return;
            }
        }
    }

    fn include_file(&mut self, path: &Path, offset: usize) {
        self.include_file_once(path, offset);
    }

    /// Reads an included file. Returns false if no further file may be read.
    fn include_file_once(&mut self, path: &Path, offset: usize) -> bool {
        let normal = normal_form(path);
        if let Some(first) = self.known.get(&normal) {
            let message = match (self.chain.contains(&normal), first) {
                (false, Some(first)) => format!(
                    "{} is already included at {}",
                    path.display(),
                    self.loaded.map.place(*first)
                ),
                _ => format!("{} includes itself", path.display()),
            };
            self.report(offset, "include", &message, "each file once");
            return true;
        }
        if self.known.len() >= FILES_MAX {
            let message = format!("the configuration has more than {FILES_MAX} files");
            self.report(offset, "include", &message, "fewer files");
            return false;
        }
        // Recorded before the file is read, so that a file that includes itself is recognized.
        self.known.insert(normal, Some(offset));
        let bytes = match self.access.read(path, self.len_left) {
            Ok(bytes) if bytes.len() > self.len_left => {
                let message =
                    format!("the configuration is longer than {TEXT_LEN_MAX} bytes in all");
                self.report(offset, "include", &message, "shorter files");
                return false;
            }
            Ok(bytes) => bytes,
            Err(error) => {
                let message = format!("{} cannot be read: {error}", path.display());
                self.report(offset, "include", &message, "a file that exists");
                // Other files are still read, so that one check reports all problems.
                return true;
            }
        };
        self.len_left -= bytes.len();
        match String::from_utf8(bytes) {
            Ok(text) => self.add(path, text),
            Err(error) => self.problems.push(not_utf8(path, &error)),
        }
        true
    }

    fn warn(&mut self, offset: usize, message: String) {
        self.loaded.warnings.push(SourceNote {
            position: KeyPosition {
                key: "include".to_owned(),
                offset,
            },
            message,
            allowed: String::new(),
        });
    }

    fn report(&mut self, offset: usize, key: &str, message: &str, allowed: &str) {
        let position = KeyPosition {
            key: key.to_owned(),
            offset,
        };
        let map = &self.loaded.map;
        let problem = map.problem(&position, message.to_owned(), allowed.to_owned());
        self.problems.push(problem);
    }
}

/// The problem of a file that is not UTF-8, at its first invalid byte.
pub(crate) fn not_utf8(file: &Path, error: &std::string::FromUtf8Error) -> ConfigProblem {
    let (line, column) = position(error.as_bytes(), error.utf8_error().valid_up_to());
    let place = ConfigPlace {
        file: file.to_path_buf(),
        line,
        column,
    };
    ConfigProblem::at(place, "is not UTF-8 from here on")
}

fn is_path(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// The path without `.`, and without `..` after a name. Equal paths have equal forms; links are not followed.
fn normal_form(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if normal.file_name().is_some() => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

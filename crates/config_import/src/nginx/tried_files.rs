//! `try_files` without `$uri`: nginx sends no file at the requested path, which Lowroad would send first.
//!
//! A rewrite leads to the first file of the list, in an internal alias of the same folder. A list of fixed names in front of
//! a named location, most often of a file that does not exist, gives the paths to that location.

use super::condition_keys::ConditionKeys;
use super::level::Translation;
use super::locations::Location;
use super::servers::Server;
use super::settings::{ConditionalRefusal, LocationContent};
use crate::report::DirectiveOutcome;
use crate::toml_values::quoted;

/// A file of `try_files`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriedFile {
    /// The text before the requested path, or the whole path of a fixed file.
    front: String,
    /// The text after the requested path; none for a fixed file.
    end: Option<String>,
}

impl TriedFile {
    /// Reads an argument; `None` for folders and other variables than `$uri`.
    fn parse(text: &str) -> Option<TriedFile> {
        let (front, end) = match text.split_once("$uri") {
            Some((front, end)) => (front, Some(end.to_string())),
            None => (text, None),
        };
        let has_variable = front.contains('$') || end.as_ref().is_some_and(|it| it.contains('$'));
        let is_absolute = text.starts_with('/') || front.is_empty();
        let is_file = is_absolute && !text.ends_with('/') && !front.ends_with('/');
        (is_file && !has_variable).then(|| TriedFile {
            front: front.to_string(),
            end,
        })
    }

    /// Whether the file is the same for all paths.
    pub fn is_fixed(&self) -> bool {
        self.end.is_none()
    }

    /// The path of the file for a requested path.
    pub fn path(&self, uri: &str) -> String {
        match &self.end {
            Some(end) => format!("{}{uri}{end}", self.front),
            None => self.front.clone(),
        }
    }

    /// An expression for these paths, without anchors. `path` is the one for the requested path without its first slash.
    pub fn regex(&self, path: &str) -> String {
        let front = regex_syntax::escape(&self.front);
        match &self.end {
            Some(end) => format!("{front}/{path}{}", regex_syntax::escape(end)),
            None => front,
        }
    }
}

impl Location {
    /// The path of the first file of the location in a folder, for a requested path.
    pub fn tried_path(&self, folder: &str, uri: &str) -> String {
        match &self.content.first_file {
            Some(file) => format!("{folder}{}", file.path(uri)),
            None => format!("{folder}{uri}"),
        }
    }
}

/// Prepares the locations of a server with such lists. The paths of one without an equal are refused.
pub fn resolve_tried_files(server: &mut Server, translation: &mut Translation) {
    for index in 0..server.locations.len() {
        let location = &server.locations[index];
        let Some(try_files) = location.content.try_files.clone() else {
            continue;
        };
        if !omits_requested_file(location, &try_files.value) {
            continue;
        }
        let found = match fixed_files(&try_files.value) {
            Some(files) => named_location(server, index, files, translation),
            None => location_of_first_file(location),
        };
        match found {
            Some(found) => server.locations[index] = found,
            None => {
                let way = "the paths are refused until then: nginx sends no file at the requested path, so write rewrites with exists to an internal alias";
                let outcome = DirectiveOutcome::ByHand(way.to_string());
                translation.report.change(try_files.entry, outcome);
                server.locations[index].settings.access.has_unknown_guard = true;
            }
        }
    }
}

/// Whether a location has files, but not those at the requested paths.
fn omits_requested_file(location: &Location, values: &[String]) -> bool {
    let content = &location.content;
    // A handler answers its paths itself.
    let is_handled = content.proxy.is_some() || content.fastcgi.is_some();
    let is_answered = content.redirect.is_some() || content.respond.is_some();
    let files = &values[..values.len().saturating_sub(1)];
    location.name.is_none()
        && (!is_handled || content.is_missing)
        && !is_answered
        && !location.settings.access.is_closed()
        && !files.iter().any(|it| it == "$uri")
}

/// The files in front of a named location, if they are the same for all paths.
fn fixed_files(values: &[String]) -> Option<&[String]> {
    let (last, files) = values.split_last()?;
    let is_fixed = files.iter().all(|it| !it.contains('$'));
    (last.starts_with('@') && is_fixed).then_some(files)
}

/// The location with the content of the named one, which answers all its paths; `None` without an equal.
fn named_location(
    server: &Server,
    index: usize,
    files: &[String],
    translation: &Translation,
) -> Option<Location> {
    let location = &server.locations[index];
    let last = location.content.try_files.as_ref()?.value.last();
    let mut locations = server.locations.iter();
    let named = locations.find(|it| it.name.as_ref() == last)?;
    let (own, other) = (&location.settings.access, &named.settings.access);
    // nginx checks both, and a location has the rules of one.
    let is_one = own.is_open() || other.is_open() || own == other;
    let inner = named.content.try_files.as_ref();
    let is_last = inner.is_none_or(|it| !omits_requested_file(location, &it.value));
    if !is_one || !is_last || !location.content.changes.is_empty() {
        return None;
    }
    let mut settings = named.settings.clone();
    if other.is_open() {
        settings.access = own.clone();
    }
    let root = location.settings.root.clone();
    let root = root.unwrap_or_else(|| translation.root_path("html"));
    let refusals = files.iter().filter_map(|file| refusal_of_file(&root, file));
    settings.access.conditional_refusals.extend(refusals);
    Some(Location {
        settings,
        content: LocationContent {
            is_internal: location.content.is_internal,
            ..named.content.clone()
        },
        ..location.clone()
    })
}

/// The refusal of paths while a fixed file exists, such as the page of a maintenance, which nginx sends in place of the handler.
fn refusal_of_file(root: &str, file: &str) -> Option<ConditionalRefusal> {
    if !file.starts_with('/') || file.ends_with('/') || root.contains('{') {
        return None;
    }
    let mut conditions = ConditionKeys::default();
    let path = format!("{}{file}", root.trim_end_matches('/'));
    conditions.require("file_exists", quoted(&path));
    Some(ConditionalRefusal {
        conditions,
        status: 503,
    })
}

/// The location with its first file; `None` without an equal.
fn location_of_first_file(location: &Location) -> Option<Location> {
    let mut found = location.clone();
    let values = &mut found.content.try_files.as_mut()?.value;
    let file = TriedFile::parse(values.first()?)?;
    // Other files depend on the requested path, which the rewrite to a fixed one loses.
    let has_path = values[1..].iter().any(|it| it.contains('$'));
    let is_lost = file.is_fixed() && has_path;
    if is_lost || location.content.alias.is_some() {
        return None;
    }
    values.remove(0);
    found.content.first_file = Some(file);
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_files_have_one_place_for_the_path() {
        for (text, path, regex) in [
            ("$uri.html", "/a.html", "/(.*)\\.html"),
            ("/app$uri", "/app/a", "/app/(.*)"),
            ("/x$uri/i.html", "/x/a/i.html", "/x/(.*)/i\\.html"),
            ("/index.html", "/index.html", "/index\\.html"),
        ] {
            let file = TriedFile::parse(text).expect(text);
            assert_eq!(file.path("/a"), path, "{text}");
            assert_eq!(file.regex("(.*)"), regex, "{text}");
        }
        for text in [
            "$uri/",
            "/$host$uri",
            "$uri$is_args",
            "x.html",
            "/x/$uri",
            "$request_uri",
        ] {
            assert_eq!(TriedFile::parse(text), None, "{text}");
        }
    }
}

//! Rewrites: `[[site.rewrite]]`, and fallbacks of missing files.

use super::layout::{FilePlace, SiteLayout};
use super::located_change::{
    ALL_PATHS, LocatedChange, paths_of_other_files, paths_without_fallback, paths_without_rewrite,
    routed_paths,
};
use super::path_infos::missing_paths;
use crate::document::{ConfigDocument, ConfigTable};
use crate::nginx::level::Translation;
use crate::nginx::locations::{Location, LocationRank};
use crate::nginx::servers::Server;
use crate::nginx::settings::PathChange;
use crate::path_globs::PathGlobs;
use crate::report::DirectiveOutcome;
use crate::request_selector::one_or_list;
use crate::toml_values::quoted;

/// Writes the rewrites of a site, and the fallbacks of `try_files`.
pub fn write_rewrites(
    server: &Server,
    layout: &SiteLayout,
    translation: &mut Translation,
    document: &mut ConfigDocument,
) {
    for change in &server.content.changes {
        let located = LocatedChange {
            server,
            index: None,
            change,
        };
        write_change(located, "", translation, document);
    }
    for (index, location) in server.locations.iter().enumerate() {
        if location.name.is_none() && location.replaced_prefix().is_none() {
            write_location_changes(server, index, layout, translation, document);
        }
        if let Some(FilePlace::Hidden { path, prefix, .. }) = &layout.places[index] {
            let except = one_or_list(routed_paths(server, index));
            let table = hidden_rewrite(location, path, prefix);
            document.push(table.optional_key("not", except));
        }
    }
    // The first rewrite that matches applies, so fallbacks come after the others.
    for (index, location) in server.locations.iter().enumerate() {
        if let Some(try_files) = location
            .content
            .try_files
            .as_ref()
            .filter(|_| location.name.is_none())
        {
            let writer = FallbackWriter {
                server,
                layout,
                index,
                entry: try_files.entry,
                paths: MissingPaths::new(location, layout.places[index].as_ref()),
            };
            writer.write(&try_files.value, translation, document);
        }
    }
}

fn write_location_changes(
    server: &Server,
    index: usize,
    layout: &SiteLayout,
    translation: &mut Translation,
    document: &mut ConfigDocument,
) {
    let location = &server.locations[index];
    let folder = match &layout.places[index] {
        Some(FilePlace::Hidden { path, .. }) => Some(path.clone()),
        _ => location.kept_folder(index),
    };
    for change in &location.content.changes {
        // A rewrite would apply before the refusal of the internal path.
        if location.content.is_internal && location.settings.access.is_closed() {
            let way = "clients don't get internal paths: rewrite where the redirect begins";
            let outcome = DirectiveOutcome::ByHand(way.to_string());
            translation.report.change(change.entry, outcome);
            continue;
        }
        let located = LocatedChange {
            server,
            index: Some(index),
            change,
        };
        // Without the flag `break`, nginx selects a location by the new path.
        let front = folder.as_deref().filter(|_| change.stays);
        if change.stays && front.is_none() {
            let difference = "the location of the new path answers";
            translation.report.note_difference(change.entry, difference);
        }
        write_change(located, front.unwrap_or_default(), translation, document);
    }
}

/// Writes a rewrite; `front` comes before the new path.
fn write_change(
    located: LocatedChange<'_>,
    front: &str,
    translation: &mut Translation,
    document: &mut ConfigDocument,
) {
    let change = located.change;
    let regex = located.regex();
    // A path that is replaced by itself stays.
    let is_idle = change.to == "/$1" && front.is_empty() && regex == ALL_PATHS;
    if change.status.is_some() || is_idle {
        return;
    }
    let to = format!("{front}{}", change.to);
    let table = rewrite_table("regex", &regex, &to, change.is_missing, change.entry);
    let table = located.write_conditions(table, translation);
    document.push(table.comment(&change.comment));
}

fn rewrite_table(key: &str, from: &str, to: &str, is_missing: bool, entry: usize) -> ConfigTable {
    let table = ConfigTable::new("[[site.rewrite]]")
        .entry(entry)
        .key(key, quoted(from))
        .key("to", quoted(to));
    if is_missing {
        table.key("missing", "true")
    } else {
        table
    }
}

fn hidden_rewrite(location: &Location, path: &str, prefix: &str) -> ConfigTable {
    let entry = location.entry;
    let is_prefix = location.globs == PathGlobs::prefix(&location.text);
    if location.rank == LocationRank::Exact {
        let alias = location.content.alias.as_ref();
        let name = alias.and_then(|it| it.value.rfind('/').map(|end| &it.value[end..]));
        let to = location.tried_path(path, name.unwrap_or(&location.text));
        return rewrite_table("from", &location.text, &to, false, entry);
    }
    if is_prefix {
        let kept = if prefix.is_empty() {
            location.text.as_str()
        } else {
            "/"
        };
        let to = location.tried_path(path, &format!("{kept}$1"));
        return rewrite_table("from", &location.globs.globs[0], &to, false, entry);
    }
    let to = location.tried_path(path, "/$1");
    rewrite_table("regex", &location.capturing_regex(), &to, false, entry)
}

/// The paths of a location's files for tables that apply if there is none.
struct MissingPaths {
    /// The patterns.
    patterns: Vec<String>,
    /// An expression with the path as capture.
    regex: String,
    /// The folder of the files, in front of the capture.
    folder: String,
    /// The requested path, with the capture.
    uri: String,
}

impl MissingPaths {
    fn new(location: &Location, place: Option<&FilePlace>) -> MissingPaths {
        match place {
            Some(FilePlace::Hidden { path, prefix, .. }) => MissingPaths {
                patterns: vec![format!("{path}/**")],
                regex: match &location.content.first_file {
                    Some(file) => format!("^{path}{}$", file.regex("(.*)")),
                    None => format!("^{path}/(.*)$"),
                },
                folder: path.clone(),
                uri: format!("{}/$1", prefix.trim_end_matches('/')),
            },
            _ => MissingPaths {
                patterns: location.patterns(),
                regex: location.capturing_regex(),
                folder: String::new(),
                uri: "/$1".to_string(),
            },
        }
    }

    /// The target of a rewrite to a file of `try_files`; `None` without an equal.
    fn file_target(&self, file: &str) -> Option<String> {
        let to = file.replace("$uri", "/$1").replace("//", "/");
        let has_variable = to.replace("$1", "").contains('$');
        let is_file = to.starts_with('/') && !to.ends_with('/') && !has_variable;
        is_file.then(|| format!("{}{to}", self.folder))
    }
}

/// The `try_files` of a location.
struct FallbackWriter<'s> {
    server: &'s Server,
    layout: &'s SiteLayout,
    index: usize,
    entry: usize,
    paths: MissingPaths,
}

impl FallbackWriter<'_> {
    fn location(&self) -> &Location {
        &self.server.locations[self.index]
    }

    /// The value of `not` for paths of other locations.
    fn except(&self) -> Option<String> {
        one_or_list(paths_without_fallback(self.server, self.index))
    }

    /// Writes the fallback: a status, a named location or another path.
    fn write(
        &self,
        values: &[String],
        translation: &mut Translation,
        document: &mut ConfigDocument,
    ) {
        let Some((last, files)) = values.split_last() else {
            return;
        };
        self.write_files(files, translation, document);
        let mut differ = |difference: &str| {
            let report = &mut translation.report;
            report.note_difference(self.entry, difference);
        };
        let has_folders = files.iter().any(|it| it.ends_with('/'));
        if !has_folders && !files.is_empty() && !last.starts_with('=') {
            differ("folders are redirected to their path with a slash");
        }
        let content = &self.location().content;
        let is_handled = content.fastcgi.is_some() || content.proxy.is_some();
        match last.strip_prefix('=') {
            // Without a table, missing files are 404.
            Some("404") => {}
            Some(_) => differ("missing files are 404"),
            // Scripts that are missing are 404.
            None if is_handled => differ("missing scripts are 404"),
            None if last.starts_with('@') => self.write_named(last, translation, document),
            None => self.write_path(last, translation, document),
        }
    }

    /// Writes the rewrites to files with another name than the requested one: `$uri.html`.
    fn write_files(
        &self,
        files: &[String],
        translation: &mut Translation,
        document: &mut ConfigDocument,
    ) {
        let mut comes_after_folders = false;
        for file in files {
            let is_script = matches!(
                &**file,
                "$fastcgi_script_name" | "$document_root$fastcgi_script_name" | "$request_filename"
            );
            match self.paths.file_target(file) {
                _ if is_script || file == "$uri" => {}
                _ if file == "$uri/" => {
                    comes_after_folders = true;
                    self.write_folders(translation, document);
                }
                Some(to) => {
                    let regex = &self.paths.regex;
                    let table = rewrite_table("regex", regex, &to, comes_after_folders, self.entry);
                    let table = table.key("exists", "true");
                    let except = one_or_list(paths_of_other_files(self.server, self.index));
                    document.push(table.optional_key("not", except));
                }
                None => translation
                    .report
                    .note_difference(self.entry, &format!("{file} is not looked for")),
            }
        }
    }

    /// Writes the rewrite to the folder at the requested path, from the file that was looked for before.
    fn write_folders(&self, translation: &mut Translation, document: &mut ConfigDocument) {
        let Some(file) = &self.location().content.first_file else {
            return;
        };
        let try_files = self.location().content.try_files.as_ref();
        let last = try_files.and_then(|it| it.value.last());
        // One rewrite applies to a missing file, so that of the last argument would be lost.
        let is_last = last.is_some_and(|it| it.starts_with('=') || is_file_path(it));
        if !is_last || file.is_fixed() {
            let report = &mut translation.report;
            report.note_difference(self.entry, "$uri/ is not looked for");
            return;
        }
        // nginx looks for the index file of a folder as for any other path of the location: there is only the redirect to the
        // path with a slash.
        let folder = &self.paths.folder;
        let regex = format!("^{folder}{}$", file.regex("(.*[^/])"));
        let to = format!("{folder}/$1");
        document.push(rewrite_table("regex", &regex, &to, true, self.entry));
    }

    /// Writes the rewrites of a named location: `location @rules { rewrite ^/(.*)$ /index.php?q=$1 last; }`. Its handler is a
    /// route.
    fn write_named(
        &self,
        name: &str,
        translation: &mut Translation,
        document: &mut ConfigDocument,
    ) {
        let mut locations = self.server.locations.iter().enumerate();
        let named = locations.find(|(_, it)| it.name.as_deref() == Some(name));
        let Some((named_index, named)) = named else {
            let way = format!("location {name} is missing");
            let outcome = DirectiveOutcome::ByHand(way);
            translation.report.change(self.entry, outcome);
            return;
        };
        let is_handled = named.content.proxy.is_some() || named.content.fastcgi.is_some();
        let is_lost = named.content.changes.is_empty() && !is_handled;
        // The rewrite to the files comes before the routes of the name.
        if is_lost || !self.paths.folder.is_empty() {
            let way = "a missing file is answered by a route, a rewrite or another file";
            let outcome = DirectiveOutcome::ByHand(way.to_string());
            translation.report.change(self.entry, outcome);
        }
        let folder = named.kept_folder(named_index).unwrap_or_default();
        for change in &named.content.changes {
            if let Some(way) = untranslated_change(named, change) {
                let outcome = DirectiveOutcome::ByHand(way.to_string());
                translation.report.change(change.entry, outcome);
                continue;
            }
            let front = if change.stays { &*folder } else { "" };
            for change in self.missing_changes(change) {
                let located = LocatedChange {
                    server: self.server,
                    index: Some(self.index),
                    change: &change,
                };
                write_change(located, front, translation, document);
            }
        }
    }

    /// A rewrite for missing files, after those for paths behind the names of scripts: their route would take these from it.
    fn missing_changes(&self, change: &PathChange) -> Vec<PathChange> {
        let regexes = missing_paths(&self.layout.path_infos, self.index).into_iter();
        let behind_scripts = regexes.map(|regex| {
            let mut change = change.clone();
            let paths = quoted(&format!("$path=~{regex}"));
            change.conditions.require("variable", paths);
            change
        });
        let missing = PathChange {
            is_missing: true,
            ..change.clone()
        };
        behind_scripts.chain([missing]).collect()
    }

    /// Writes the fallback to a path: that to a script is a rewrite, one to a file a rule.
    fn write_path(
        &self,
        target: &str,
        translation: &mut Translation,
        document: &mut ConfigDocument,
    ) {
        let target = format!("/{}", target.trim_start_matches('/'));
        // `/index.html$is_args$args` and the like keep the query, as fallbacks do.
        let path = target.split(['?', '$']).next().unwrap_or_default();
        let mut locations = self.server.locations.iter();
        let is_script = path.ends_with(".php")
            || locations.any(|it| it.content.fastcgi.is_some() && it.text == path);
        // A fallback keeps the request's query, so a target with arguments must be a rewrite.
        let has_arguments = target[path.len()..].contains('=');
        if is_script || path == "/" || has_arguments {
            self.write_script(&target, translation, document);
            return;
        }
        let path = self.layout.page_path(self.server, path);
        for pattern in &self.paths.patterns {
            let mut table = ConfigTable::new("[[site.rule]]").entry(self.entry);
            if pattern != "/**" {
                table = table.key("pattern", quoted(pattern));
            }
            let table = table.optional_key("not", self.except());
            document.push(table.key("fallback", quoted(&path)));
        }
    }

    fn write_script(
        &self,
        target: &str,
        translation: &mut Translation,
        document: &mut ConfigDocument,
    ) {
        let uri = &self.paths.uri;
        let to = target
            .replace("$is_args$args", "?$query")
            .replace("$is_args$query_string", "?$query")
            .replace("$query_string", "$query")
            .replace("$args", "$query")
            .replace("$request_uri", uri)
            .replace("$uri", uri);
        let mut variables = to.split('$').skip(1);
        if variables.any(|rest| !rest.starts_with("query") && !rest.starts_with('1')) {
            let way = "targets contain $1 to $9 and $query only".to_string();
            let outcome = DirectiveOutcome::ByHand(way);
            translation.report.change(self.entry, outcome);
            return;
        }
        let (key, from) = match &self.paths.patterns[..] {
            // Without a capture, the pattern itself is easier to read.
            [pattern] if !to.contains("$1") => ("from", pattern),
            _ => ("regex", &self.paths.regex),
        };
        // A route for scripts would take these paths from a rewrite for missing files.
        for regex in missing_paths(&self.layout.path_infos, self.index) {
            let table = rewrite_table(key, from, &to, false, self.entry);
            let paths = quoted(&format!("$path=~{regex}"));
            document.push(table.key("variable", paths));
        }
        let table = rewrite_table(key, from, &to, true, self.entry);
        let except = one_or_list(paths_without_rewrite(self.server, self.index));
        document.push(table.optional_key("not", except));
    }
}

/// Whether the last argument of `try_files` is a file, which a fallback sends.
fn is_file_path(last: &str) -> bool {
    last.starts_with('/') && last != "/" && !last.contains(['?', '$']) && !last.ends_with(".php")
}

/// The way to translate a rewrite of a named location by hand, if it has no equal.
fn untranslated_change(named: &Location, change: &PathChange) -> Option<&'static str> {
    if change.status.is_some() {
        return Some("redirects apply before files: write them for the paths of missing files");
    }
    let is_script = named.content.fastcgi.is_some() && change.stays;
    is_script.then_some("write a rewrite with missing, and a route for the new path")
}

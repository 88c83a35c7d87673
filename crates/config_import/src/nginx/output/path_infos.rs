//! Paths behind the name of a script: `/a.php/x`. The route of the script takes them, and nginx only if the expression of the
//! location finds them.

use lowroad_config::PathExpression;

use super::access::has_path;
use super::layout::takes_all;
use super::opened_paths::handler_patterns;
use crate::document::{ConfigDocument, ConfigTable};
use crate::look_ahead::SplitExpression;
use crate::nginx::locations::{Location, LocationRank};
use crate::nginx::servers::Server;
use crate::path_overlap::has_other_front;
use crate::request_selector::{pattern_regex, split_flag};
use crate::toml_values::quoted;

/// The paths behind a pattern of scripts.
pub struct ScriptPaths {
    /// The location of the scripts: its number.
    script: usize,
    /// The pattern of the paths.
    pattern: String,
    /// An expression for the paths.
    regex: String,
    /// The number of the location that has these paths in nginx.
    answering: Option<usize>,
}

/// The paths of a server that nginx gives to other locations than those of scripts, or to none.
pub fn script_paths(server: &Server) -> Vec<ScriptPaths> {
    let scripts = 0..server.locations.len();
    scripts.flat_map(|it| paths_of_script(server, it)).collect()
}

/// The same for the scripts of a location.
fn paths_of_script(server: &Server, script: usize) -> Vec<ScriptPaths> {
    let location = &server.locations[script];
    // Rules refuse the paths behind the scripts of a closed location, too.
    let is_open = location.name.is_none() && !location.settings.access.is_closed();
    if location.content.fastcgi.is_none() || !is_open {
        return Vec::new();
    }
    let patterns = handler_patterns(location).into_iter();
    let paths = patterns.filter_map(|it| paths_behind(server, script, &it));
    paths.collect()
}

/// The paths behind a pattern of a script; `None` if nginx runs the script for them, too.
fn paths_behind(server: &Server, script: usize, pattern: &str) -> Option<ScriptPaths> {
    let location = &server.locations[script];
    let sample = sample_below(pattern, unused_name(server));
    let is_own = finds_path(location, &sample);
    if pattern.ends_with("**") || (is_own && !looks_for_path(location)) {
        return None;
    }
    let mut others = server.locations.iter();
    let answering = others.position(|it| it.name.is_none() && has_nginx_path(it, &sample));
    Some(ScriptPaths {
        script,
        regex: regex_below(pattern),
        pattern: pattern_below(pattern),
        answering: answering.filter(|_| !is_own),
    })
}

/// `try_files $uri =404` in front of a script: there is no file at a path behind its name.
fn looks_for_path(location: &Location) -> bool {
    let try_files = location.content.try_files.as_ref();
    let values = try_files.map(|it| it.value.as_slice()).unwrap_or_default();
    matches!(values, [file, last] if file == "$uri" && last.starts_with('='))
}

/// Expressions of paths that the route of a script leaves to the route of another handler.
pub fn routed_elsewhere(server: &Server, script: usize) -> Vec<String> {
    let paths = paths_of_script(server, script).into_iter();
    let is_routed = |it: &ScriptPaths| {
        let answering = it.answering.map(|index| &server.locations[index]);
        answering.is_some_and(takes_all)
    };
    paths.filter(is_routed).map(|it| it.regex).collect()
}

/// Expressions of paths that a location answers as those of missing files.
pub fn missing_paths(paths: &[ScriptPaths], index: usize) -> Vec<String> {
    let paths = paths.iter().filter(|it| it.answering == Some(index));
    let mut regexes: Vec<String> = paths.map(|it| it.regex.clone()).collect();
    regexes.dedup();
    regexes
}

/// Writes the rules for paths that nothing answers.
pub fn write_path_infos(server: &Server, document: &mut ConfigDocument) {
    let mut patterns: Vec<String> = Vec::new();
    for paths in script_paths(server) {
        let answering = paths.answering.map(|index| &server.locations[index]);
        let is_missing = answering.is_none_or(|it| is_without_answer(server, it));
        if is_missing && !patterns.contains(&paths.pattern) {
            // `deny` would also refuse the script itself.
            let rule =
                ConfigTable::new("[[site.rule]]").entry(server.locations[paths.script].entry);
            document.push(
                rule.key("pattern", quoted(&paths.pattern))
                    .key("respond", "404"),
            );
            patterns.push(paths.pattern);
        }
    }
}

/// Whether a location with files has no other answer for a missing one, or one that only a file can precede.
fn is_without_answer(server: &Server, location: &Location) -> bool {
    let content = &location.content;
    let last = content.try_files.as_ref().and_then(|it| it.value.last());
    let is_answered = takes_all(location)
        || content.fastcgi.is_some()
        || content.redirect.is_some()
        || content.respond.is_some()
        || location.settings.access.is_closed();
    !is_answered && !last.is_some_and(|it| is_rewritten(server, it))
}

/// Whether the last argument of `try_files` becomes rewrites.
fn is_rewritten(server: &Server, last: &str) -> bool {
    let named = server
        .locations
        .iter()
        .find(|it| it.name.as_deref() == Some(last));
    if let Some(named) = named {
        return named.content.changes.iter().any(|it| it.status.is_none());
    }
    last.starts_with('/') && (last == "/" || last.contains(".php") || last.contains('='))
}

/// Whether a location of nginx has a path.
fn has_nginx_path(location: &Location, path: &str) -> bool {
    // An expression is slower than the texts before the wildcards of its globs.
    let mut globs = location.globs.globs.iter();
    let is_other = !location.ignores_case && globs.all(|it| has_other_front(it, path));
    match location.is_regex() {
        true => !is_other && finds_path(location, path),
        false => has_path(location, path),
    }
}

/// Whether the expression of a location finds a path. One without an equal finds all.
fn finds_path(location: &Location, path: &str) -> bool {
    if location.rank == LocationRank::Exact || !location.is_regex() {
        return has_path(location, path);
    }
    let Some(split) = SplitExpression::parse(&location.text) else {
        return true;
    };
    let flags = if location.ignores_case { "(?i)" } else { "" };
    let regex = PathExpression::parse(&format!("{flags}{}", split.expression));
    regex.map_or(true, |it| it.is_match(path.as_bytes()))
}

/// A name of one letter that no location begins after a slash. A sample with another one could be in a location that has
/// only some of the paths.
fn unused_name(server: &Server) -> &'static str {
    let is_used = |name: &str| {
        let start = format!("/{name}");
        let mut locations = server.locations.iter();
        locations.any(|it| it.text.to_ascii_lowercase().contains(&start))
    };
    let names = ["x", "q", "z", "j", "k", "v", "w", "y", "u", "o", "e", "n"];
    names.into_iter().find(|it| !is_used(it)).unwrap_or("x")
}

/// A path behind a script of a pattern, with this name in place of wildcards.
fn sample_below(pattern: &str, name: &str) -> String {
    let (_, glob) = split_flag(pattern);
    let name = glob.replace("**", name).replace('*', name);
    match name.starts_with('/') {
        true => format!("{name}/y"),
        false => format!("/{name}/y"),
    }
}

/// The pattern of the paths behind the scripts of a pattern.
fn pattern_below(pattern: &str) -> String {
    let (flags, glob) = split_flag(pattern);
    match glob.starts_with('/') {
        true => format!("{flags}{glob}/**"),
        // A pattern of names is one of all folders.
        false => format!("{flags}/**{}/**", glob.trim_start_matches('*')),
    }
}

/// An expression for the paths behind the scripts of a pattern.
fn regex_below(pattern: &str) -> String {
    let (flags, glob) = split_flag(pattern);
    match glob.strip_prefix('*').filter(|it| !it.contains('*')) {
        Some(name) => format!("{flags}{}/", regex_syntax::escape(name)),
        None => format!("{flags}{}/", pattern_regex(glob).trim_end_matches('$')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_behind_the_names_of_scripts() {
        for (pattern, sample, below, regex) in [
            ("*.php", "/x.php/y", "/**.php/**", r"\.php/"),
            ("(?i)*.php", "/x.php/y", "(?i)/**.php/**", r"(?i)\.php/"),
            (
                "/index.php",
                "/index.php/y",
                "/index.php/**",
                r"^/index\.php/",
            ),
            ("/a/**.php", "/a/x.php/y", "/a/**.php/**", r"^/a/.*\.php/"),
        ] {
            assert_eq!(sample_below(pattern, "x"), sample);
            assert_eq!(pattern_below(pattern), below);
            assert_eq!(regex_below(pattern), regex);
        }
    }
}

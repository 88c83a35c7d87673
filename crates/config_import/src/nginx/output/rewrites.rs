//! Rewrites: `[[site.rewrite]]`, and fallbacks of missing files.

use super::access::with_condition;
use super::site::{FilePlace, SiteLayout};
use crate::document::{ConfigDocument, ConfigTable};
use crate::nginx::level::Translation;
use crate::nginx::locations::{Location, LocationRank};
use crate::nginx::servers::Server;
use crate::nginx::settings::{PathChange, Sourced};
use crate::path_globs::PathGlobs;
use crate::path_overlap::may_overlap;
use crate::report::DirectiveOutcome;
use crate::request_selector::{exception, globs_regex};
use crate::toml_values::quoted;

/// Writes the rewrites of a site, and the fallbacks of `try_files`.
pub fn write_rewrites(
    server: &Server,
    layout: &SiteLayout,
    translation: &mut Translation,
    document: &mut ConfigDocument,
) {
    write_changes(&server.content.changes, None, translation, document);
    for (location, place) in server.locations.iter().zip(&layout.places) {
        if location.name.is_none() {
            write_changes(
                &location.content.changes,
                Some(location),
                translation,
                document,
            );
        }
        if let Some(FilePlace::Hidden { path, prefix, .. }) = place {
            document.push(hidden_rewrite(location, path, prefix));
        }
    }
    // The first rewrite that matches applies, so fallbacks come after the others.
    for location in &server.locations {
        if let Some(try_files) = location
            .content
            .try_files
            .as_ref()
            .filter(|_| location.name.is_none())
        {
            write_fallbacks(server, location, try_files, translation, document);
        }
    }
}

fn write_changes(
    changes: &[PathChange],
    location: Option<&Location>,
    translation: &mut Translation,
    document: &mut ConfigDocument,
) {
    for change in changes.iter().filter(|change| change.status.is_none()) {
        let regex = confined_regex(change, location, translation);
        // A path that is replaced by itself stays.
        if change.to != "/$1" || regex != globs_regex(&["/**".to_string()]) {
            let table = rewrite_table("regex", &regex, &change.to, change.is_missing, change.entry);
            let table = with_condition(table, change.condition.as_ref());
            document.push(table.comment(&change.comment));
        }
    }
}

/// The expression of a redirect or rewrite, for the paths of its location only. A difference is reported.
pub fn confined_regex(
    change: &PathChange,
    location: Option<&Location>,
    translation: &mut Translation,
) -> String {
    let is_whole = |it: &&Location| it.text == "/" && it.rank != LocationRank::Exact;
    let Some(location) = location.filter(|it| !is_whole(it)) else {
        return change.regex.clone();
    };
    if change.regex == "^/(.*)$" {
        return globs_regex(&location.globs.globs);
    }
    let path = location
        .text
        .trim_start_matches('^')
        .trim_end_matches(['/', '$']);
    let expression = change.regex.trim_start_matches('^').replace('\\', "");
    let is_inside =
        change.regex.starts_with('^') && expression.starts_with(&path.replace('\\', ""));
    if !is_inside {
        translation
            .report
            .note_difference(change.entry, "also outside of its location");
    }
    change.regex.clone()
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
        let rest = if prefix.is_empty() {
            location.text.as_str()
        } else {
            ""
        };
        return rewrite_table(
            "from",
            &location.text,
            &format!("{path}{rest}"),
            false,
            entry,
        );
    }
    if is_prefix {
        let kept = if prefix.is_empty() {
            location.text.as_str()
        } else {
            "/"
        };
        return rewrite_table(
            "from",
            &location.globs.globs[0],
            &format!("{path}{kept}$1"),
            false,
            entry,
        );
    }
    rewrite_table(
        "regex",
        &globs_regex(&location.globs.globs),
        &format!("{path}/$1"),
        false,
        entry,
    )
}

/// Writes the fallback of `try_files`: a status, a named location or another path.
fn write_fallbacks(
    server: &Server,
    location: &Location,
    try_files: &Sourced<Vec<String>>,
    translation: &mut Translation,
    document: &mut ConfigDocument,
) {
    let Some((last, files)) = try_files.value.split_last() else {
        return;
    };
    for file in files {
        match file.strip_prefix("$uri") {
            Some("" | "/") => {}
            Some(end) if end.starts_with('/') && end.starts_with("/index.") => {}
            Some(end) if end.starts_with('.') && !end.contains('$') => {
                let regex = globs_regex(&location.globs.globs);
                document.push(rewrite_table(
                    "regex",
                    &regex,
                    &format!("/$1{end}"),
                    true,
                    try_files.entry,
                ));
            }
            _ if matches!(
                &**file,
                "$fastcgi_script_name" | "$document_root$fastcgi_script_name" | "$request_filename"
            ) => {}
            _ => translation
                .report
                .note_difference(try_files.entry, &format!("{file} is not looked for")),
        }
    }
    // Scripts that are missing are 404.
    let is_handled = location.content.fastcgi.is_some() || location.content.proxy.is_some();
    match last.strip_prefix('=') {
        Some("404") => return,
        Some(_) => {
            translation
                .report
                .note_difference(try_files.entry, "missing files are 404");
            return;
        }
        None if is_handled => {
            translation
                .report
                .note_difference(try_files.entry, "missing scripts are 404");
            return;
        }
        None => {}
    }
    if last.starts_with('@') {
        write_named_changes(
            server,
            location,
            last,
            try_files.entry,
            translation,
            document,
        );
        return;
    }
    write_path_fallback(
        server,
        location,
        last,
        try_files.entry,
        translation,
        document,
    );
}

/// A named location with rewrites: `location @rules { rewrite ^/(.*)$ /index.php?q=$1 last; }`. Those with a handler are
/// routes.
fn write_named_changes(
    server: &Server,
    location: &Location,
    name: &str,
    entry: usize,
    translation: &mut Translation,
    document: &mut ConfigDocument,
) {
    let Some(named) = server
        .locations
        .iter()
        .find(|it| it.name.as_deref() == Some(name))
    else {
        translation.report.change(
            entry,
            DirectiveOutcome::ByHand(format!("location {name} is missing")),
        );
        return;
    };
    let is_handled = named.content.proxy.is_some() || named.content.fastcgi.is_some();
    if is_handled {
        return;
    }
    if named.content.changes.is_empty() {
        let way = "a missing file is answered by a route, a rewrite or another file".to_string();
        translation
            .report
            .change(entry, DirectiveOutcome::ByHand(way));
    }
    for change in &named.content.changes {
        if change.status.is_some() {
            let way = "redirects apply before files: write them for the paths of missing files"
                .to_string();
            translation
                .report
                .change(change.entry, DirectiveOutcome::ByHand(way));
            continue;
        }
        let is_whole = change.regex == "^/(.*)$" && location.text != "/";
        let regex = if is_whole {
            globs_regex(&location.globs.globs)
        } else {
            change.regex.clone()
        };
        document.push(
            rewrite_table("regex", &regex, &change.to, true, change.entry).comment(&change.comment),
        );
    }
}

/// A fallback to a script is a rewrite, one to a file is a rule.
fn write_path_fallback(
    server: &Server,
    location: &Location,
    target: &str,
    entry: usize,
    translation: &mut Translation,
    document: &mut ConfigDocument,
) {
    let target = if target.starts_with('/') {
        target.to_string()
    } else {
        format!("/{target}")
    };
    // `/index.html$is_args$args` and the like keep the query, as fallbacks do.
    let path = target
        .split(['?', '$'])
        .next()
        .unwrap_or_default()
        .to_string();
    let is_script = path.ends_with(".php")
        || server
            .locations
            .iter()
            .any(|it| it.content.fastcgi.is_some() && it.text == path);
    let globs = &location.globs.globs;
    let except = exception(&paths_without_fallback(server, location));
    // A fallback keeps the request's query, so a target with arguments must be a rewrite.
    if !is_script && !path.is_empty() && !target.trim_start_matches(&*path).contains('=') {
        for glob in globs {
            let mut table = ConfigTable::new("[[site.rule]]").entry(entry);
            if glob != "/**" {
                table = table.key("pattern", quoted(glob));
            }
            let table = table.optional_key("not", except.as_deref());
            document.push(table.key("fallback", quoted(&path)));
        }
        return;
    }
    let to = target
        .replace("$is_args$args", "?$query")
        .replace("$is_args$query_string", "?$query")
        .replace("$query_string", "$query")
        .replace("$args", "$query")
        .replace("$request_uri", "/$1")
        .replace("$uri", "/$1");
    if to
        .split('$')
        .skip(1)
        .any(|rest| !rest.starts_with("query") && !rest.starts_with('1'))
    {
        let way = "targets contain $1 to $9 and $query only".to_string();
        translation
            .report
            .change(entry, DirectiveOutcome::ByHand(way));
        return;
    }
    let (key, from) = match &globs[..] {
        // Without a capture, the glob itself is easier to read.
        [glob] if !to.contains("$1") => ("from", glob.clone()),
        globs => ("regex", globs_regex(globs)),
    };
    let table = rewrite_table(key, &from, &to, true, entry);
    document.push(table.optional_key("not", except));
}

/// The paths of files in locations with precedence, for which `try_files` of this one does not hold.
fn paths_without_fallback(server: &Server, location: &Location) -> Vec<String> {
    let before = server
        .locations
        .iter()
        .take_while(|it| it.entry != location.entry);
    let others = before.filter(|it| {
        let content = &it.content;
        let is_handled = content.proxy.is_some() || content.fastcgi.is_some();
        let last = content.try_files.as_ref().and_then(|it| it.value.last());
        let has_fallback = last.is_some_and(|it| !it.starts_with('='));
        // Their own fallback, handler or refusal answers.
        it.name.is_none()
            && !is_handled
            && !has_fallback
            && content.redirect.is_none()
            && !it.settings.access.is_closed()
            && may_overlap(&it.globs, &location.globs)
    });
    others
        .flat_map(|it| it.globs.globs.iter().cloned())
        .collect()
}

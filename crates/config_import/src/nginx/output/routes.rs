//! Routes and rewrites: `[[site.route]]`, `[[site.rewrite]]`, and fallbacks of missing files.

use super::access::with_condition;
use super::origins::{OriginTables, PassUrl};
use super::site::{FilePlace, SiteLayout};
use crate::document::{ConfigDocument, ConfigTable};
use crate::nginx::blocks::{Location, LocationRank, Server};
use crate::nginx::level::Translation;
use crate::nginx::settings::{PathChange, Sourced, UpstreamSettings};
use crate::path_globs::PathGlobs;
use crate::report::DirectiveOutcome;
use crate::toml_values::{key, quoted};

/// An expression for the paths of globs, with the path without its first slash as capture.
pub fn globs_regex(globs: &[String]) -> String {
    let expressions: Vec<String> = globs
        .iter()
        .map(|glob| {
            let path = glob.strip_prefix('/').map_or_else(
                || format!("**{}", glob.trim_start_matches('*')),
                str::to_string,
            );
            let escaped = regex_syntax::escape(&path);
            escaped.replace("\\*\\*", ".*").replace("\\*", "[^/]*")
        })
        .collect();
    match &expressions[..] {
        [expression] => format!("^/({expression})$"),
        _ => format!("^/((?:{}))$", expressions.join("|")),
    }
}

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
    let Some(location) = location.filter(|it| it.text != "/") else {
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
    // A fallback keeps the request's query, so a target with arguments must be a rewrite.
    if !is_script && !path.is_empty() && !target.trim_start_matches(&*path).contains('=') {
        for glob in globs {
            let mut table = ConfigTable::new("[[site.rule]]").entry(entry);
            if glob != "/**" {
                table = table.key("pattern", quoted(glob));
            }
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
    document.push(rewrite_table(key, &from, &to, true, entry));
}

/// Writes the routes of a site, in the order of precedence.
pub fn write_routes(
    server: &Server,
    translation: &mut Translation,
    origins: &mut OriginTables,
    document: &mut ConfigDocument,
) {
    for location in server.locations.iter().filter(|it| it.name.is_none()) {
        let named = named_handler(server, location);
        // Files of a location have precedence over the handler of its fallback.
        let (handler, is_missing) = match named {
            Some(named) => (named, true),
            None => (location, location.content.is_missing),
        };
        let route = RouteWriter {
            server,
            location,
            handler,
            is_missing,
        };
        if handler.content.fastcgi.is_some() {
            route.write_fastcgi(translation, document);
        } else if handler.content.proxy.is_some() {
            route.write_origin(translation, origins, document);
        }
    }
}

/// The named location that answers for missing files, if it has a handler.
fn named_handler<'s>(server: &'s Server, location: &Location) -> Option<&'s Location> {
    let name = location.content.try_files.as_ref()?.value.last()?;
    let named = server
        .locations
        .iter()
        .find(|it| it.name.as_ref() == Some(name))?;
    (named.content.proxy.is_some() || named.content.fastcgi.is_some()).then_some(named)
}

struct RouteWriter<'s> {
    server: &'s Server,
    location: &'s Location,
    handler: &'s Location,
    is_missing: bool,
}

impl RouteWriter<'_> {
    /// One table for each glob, with the handler's keys.
    fn tables(&self, entry: usize) -> Vec<ConfigTable> {
        let is_regex = self.location.globs != PathGlobs::prefix(&self.location.text)
            && self.location.rank != LocationRank::Exact;
        let mut comment = is_regex.then_some(self.location.comment.as_str());
        let tables = self.location.globs.globs.iter().map(|glob| {
            let table =
                ConfigTable::new("[[site.route]]").comment(comment.take().unwrap_or_default());
            let table = table.entry(entry).key("pattern", quoted(glob));
            if self.is_missing {
                table.key("missing", "true")
            } else {
                table
            }
        });
        tables.collect()
    }

    fn write_fastcgi(&self, translation: &mut Translation, document: &mut ConfigDocument) {
        let Some(pass) = &self.handler.content.fastcgi else {
            return;
        };
        let settings = &self.handler.settings.fastcgi;
        let servers = match translation.definitions.upstreams.get(&pass.value) {
            None => vec![pass.value.clone()],
            Some(upstream) => upstream
                .servers
                .iter()
                .map(|it| it.address.clone())
                .collect(),
        };
        let servers = crate::toml_values::list(&servers);
        let script = settings
            .script
            .as_ref()
            .map(|script| self.script_below_root(script));
        for table in self.tables(pass.entry) {
            let mut table = table
                .key("fastcgi", &servers)
                .optional_key("script", script.as_deref().map(quoted));
            table = table.optional_key("index", settings.index.as_deref().map(quoted));
            table = self.common_keys(table, settings);
            if settings.keeps_connections {
                table = table.key("keep_connections", "true");
            }
            document.push(table);
            let mut env = ConfigTable::new("[site.route.env]");
            for (name, value) in &settings.env {
                env = env.key(&key(name), quoted(value));
            }
            document.push_filled(env);
            document.push_filled(program_cache_table(settings, translation));
        }
    }

    /// The script of a fixed file name, as a path under the root.
    fn script_below_root(&self, script: &str) -> String {
        let roots = [&self.location.settings.root, &self.server.settings.root];
        let path = roots
            .into_iter()
            .flatten()
            .find_map(|root| script.strip_prefix(root.trim_end_matches('/')));
        path.unwrap_or(script).to_string()
    }

    fn write_origin(
        &self,
        translation: &mut Translation,
        origins: &mut OriginTables,
        document: &mut ConfigDocument,
    ) {
        let Some(pass) = &self.handler.content.proxy else {
            return;
        };
        let settings = &self.handler.settings.proxy;
        let Some(url) = PassUrl::parse(&pass.value) else {
            translation.report.change(
                pass.entry,
                DirectiveOutcome::ByHand("an origin is an http or https URL".to_string()),
            );
            return;
        };
        let origin = origins.origin(&url, settings, &translation.definitions, pass.entry);
        for mut table in self.tables(pass.entry) {
            table = table.key("origin", quoted(&origin.value));
            for (name, value) in self.path_keys(&url) {
                table = table.key(name, quoted(&value));
            }
            if origin.is_url {
                table = table.optional_key("connect_timeout", settings.connect_timeout.as_ref());
            }
            if settings.keeps_redirects {
                table = table.key("own_redirects", "false");
            }
            table = self.common_keys(table, settings);
            document.push(table);
            document.push_filled(cache_table(settings, translation));
            document.push_filled(request_table(settings));
        }
    }

    /// The keys that replace the front of the path, as `proxy_pass` with a path does.
    fn path_keys(&self, url: &PassUrl) -> Vec<(&'static str, String)> {
        let Some(path) = &url.path else {
            return Vec::new();
        };
        let is_same = *path == self.location.text || (self.location.text == "/" && path == "/");
        // nginx refuses a path in the proxy_pass of a named location.
        if is_same || self.handler.name.is_some() {
            return Vec::new();
        }
        let front = self.location.text.trim_end_matches('/');
        let mut keys = Vec::new();
        if !front.is_empty() {
            keys.push(("strip_prefix", front.to_string()));
        }
        let added = path.trim_end_matches('/');
        if !added.is_empty() {
            keys.push(("add_prefix", added.to_string()));
        }
        keys
    }

    fn common_keys(&self, mut table: ConfigTable, settings: &UpstreamSettings) -> ConfigTable {
        table = table.optional_key("timeout", settings.timeout.as_ref());
        if settings.is_request_streamed {
            table = table.key("request_buffering", "false");
        }
        if settings.is_response_streamed {
            table = table.key("response_buffering", "false");
        }
        if settings.intercepts_errors {
            table = table.key("intercept_errors", "true");
        }
        if self.location.content.is_internal {
            table = table.key("internal", "true");
        }
        match settings.is_cached && !settings.has_cache_exceptions {
            true => table,
            false => table.key("keep", quoted("never")),
        }
    }
}

/// The cache of a route, if it differs from the default.
fn cache_table(settings: &UpstreamSettings, translation: &mut Translation) -> ConfigTable {
    let mut table = ConfigTable::new("[site.route.cache]");
    if !settings.is_cached || settings.has_cache_exceptions {
        return table;
    }
    // nginx takes the first time for a status.
    let mut times = settings.cache_times.iter();
    let chosen = times.find(|it| it.value.is_of_success());
    for other in &settings.cache_times {
        let is_equal = chosen.is_some_and(|it| it.value.time == other.value.time);
        let outcome = match is_equal {
            true => DirectiveOutcome::Translated(
                "also for other statuses that may be stored".to_string(),
            ),
            false => DirectiveOutcome::ByHand(
                "one lifetime for all statuses: send Cache-Control with this one".to_string(),
            ),
        };
        translation.report.change(other.entry, outcome);
    }
    table = table.optional_key("ttl", chosen.map(|it| &it.value.time));
    let uses = |name: &str| settings.stale_uses.iter().any(|it| it == name);
    // nginx has no time for stale responses; a day bounds them.
    if uses("updating") {
        table = table.key("stale_while_revalidate", quoted("1d"));
    }
    if uses("error") || uses("timeout") {
        table = table.key("stale_if_error", quoted("1d"));
    }
    table
}

/// The cache of a route to programs, which has no stale responses.
fn program_cache_table(settings: &UpstreamSettings, translation: &mut Translation) -> ConfigTable {
    let fresh_only = UpstreamSettings {
        stale_uses: Vec::new(),
        ..settings.clone()
    };
    cache_table(&fresh_only, translation)
}

/// Fields of requests to the origin.
fn request_table(settings: &UpstreamSettings) -> ConfigTable {
    let mut table = ConfigTable::new("[site.route.request]");
    for field in &settings.request_fields {
        let (name, value) = &field.value;
        table.push(
            &format!("set.{}", key(name)),
            &quoted(value),
            Some(field.entry),
        );
    }
    table
}

//! Routes to origins and programs: `[[site.route]]`.

use std::collections::BTreeMap;

use super::located_change::paths_without_rewrite;
use super::opened_paths::{handler_keys, handler_patterns};
use super::origins::{PassUrl, route_origin};
use super::path_infos::routed_elsewhere;
use crate::document::{ConfigDocument, ConfigTable};
use crate::nginx::condition_keys::ConditionKeys;
use crate::nginx::level::Translation;
use crate::nginx::locations::{Location, LocationRank};
use crate::nginx::servers::Server;
use crate::nginx::settings::UpstreamSettings;
use crate::origin_tables::OriginTables;
use crate::path_globs::PathGlobs;
use crate::report::DirectiveOutcome;
use crate::request_selector::split_flag;
use crate::toml_values::{key, quoted};

/// nginx copies requests of all methods.
const MIRRORED_METHODS: &str = r#"["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]"#;

/// Writes the routes of a site, in the order of precedence.
pub fn write_routes(
    server: &Server,
    translation: &mut Translation,
    origins: &mut OriginTables,
    document: &mut ConfigDocument,
) {
    let locations = server.locations.iter().enumerate();
    for (index, location) in locations.filter(|(_, it)| it.name.is_none()) {
        // The routes that copy requests contain this location's origin.
        if location.content.is_internal && is_mirror(server, location) {
            continue;
        }
        let named = named_handler(server, location);
        // Files of a location have precedence over the handler of its fallback.
        let (handler, is_missing) = match named {
            Some(named) => (named, true),
            None => (location, location.content.is_missing),
        };
        // nginx looks for files in the locations with precedence only.
        let except = match is_missing {
            true => paths_without_rewrite(server, index),
            false => Vec::new(),
        };
        let mut keys = handler_keys(server, location).unwrap_or_default();
        except.into_iter().for_each(|it| keys.except(it));
        for regex in routed_elsewhere(server, index) {
            keys.except_path(&regex);
        }
        for pass in &location.content.conditional_passes {
            let handler = &pass.handler(location);
            let mut keys = keys.clone();
            keys.extend(&pass.conditions);
            let route = RouteWriter {
                server,
                location,
                handler,
                is_missing: false,
                keys,
                kept_folder: None,
            };
            route.write_origin(translation, origins, document);
        }
        let route = RouteWriter {
            server,
            location,
            handler,
            is_missing,
            keys,
            kept_folder: None,
        };
        if handler.content.fastcgi.is_some() {
            route.write_fastcgi(translation, document);
        } else if handler.content.proxy.is_some() {
            route.write_origin(translation, origins, document);
        }
    }
    for (index, location) in server.locations.iter().enumerate() {
        if let Some(folder) = location.kept_folder(index) {
            let route = RouteWriter {
                server,
                location,
                handler: location,
                is_missing: false,
                keys: ConditionKeys::default(),
                kept_folder: Some(folder),
            };
            route.write_origin(translation, origins, document);
        }
    }
}

/// Whether the routes of other locations copy requests to the origin of a location.
fn is_mirror(server: &Server, location: &Location) -> bool {
    let mut mirrors = server
        .locations
        .iter()
        .filter_map(|it| it.settings.proxy.mirror.as_ref());
    location.content.passes_request_uri && mirrors.any(|mirror| mirror.value == location.text)
}

/// The named location that answers for missing files, if it has a handler.
pub fn named_handler<'s>(server: &'s Server, location: &Location) -> Option<&'s Location> {
    let name = location.content.try_files.as_ref()?.value.last()?;
    let named = server
        .locations
        .iter()
        .find(|it| it.name.as_ref() == Some(name))?;
    (named.content.proxy.is_some() || named.content.fastcgi.is_some()).then_some(named)
}

/// A pattern of the endings of names as a pattern of whole paths.
fn whole_path(pattern: String) -> String {
    let (flags, glob) = split_flag(&pattern);
    match glob.strip_prefix('*') {
        Some(ending) => format!("{flags}/**{}", ending.trim_start_matches('*')),
        // A whole path already. A name would need two patterns: `/**/` does not match the slash of the root.
        None => pattern,
    }
}

struct RouteWriter<'s> {
    server: &'s Server,
    location: &'s Location,
    handler: &'s Location,
    is_missing: bool,
    /// The conditions that a path is none of other locations.
    keys: ConditionKeys,
    /// The folder of the paths that the location's own rewrites have set.
    kept_folder: Option<String>,
}

impl RouteWriter<'_> {
    /// One table for each glob, with the handler's keys.
    fn tables(&self, entry: usize) -> Vec<ConfigTable> {
        if let Some(folder) = &self.kept_folder {
            let table = ConfigTable::new("[[site.route]]")
                .comment("The rewrites of the location lead here.")
                .entry(entry);
            return vec![table.key("pattern", quoted(&format!("{folder}/**")))];
        }
        let is_regex = self.location.globs != PathGlobs::prefix(&self.location.text)
            && self.location.rank != LocationRank::Exact;
        let mut comment = is_regex.then_some(self.location.comment.as_str());
        let is_script = self.handler.content.fastcgi.is_some();
        let tables = handler_patterns(self.location).into_iter().map(|pattern| {
            // Behind the name of a script its path goes on, but the paths behind others are those of other locations.
            let pattern = match is_script {
                true => pattern,
                false => whole_path(pattern),
            };
            let table =
                ConfigTable::new("[[site.route]]").comment(comment.take().unwrap_or_default());
            let table = table.entry(entry).key("pattern", quoted(&pattern));
            let table = table.optional_key("missing", self.is_missing.then_some("true"));
            self.keys.write(table)
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
        self.report_error_statuses(settings, translation);
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
            let env = ConfigTable::with_texts("[site.route.env]", &settings.env);
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
        let origin = route_origin(
            origins,
            &url,
            settings,
            &translation.definitions,
            pass.entry,
        );
        self.report_error_statuses(settings, translation);
        let mirror = self.mirror(translation, origins);
        for mut table in self.tables(pass.entry) {
            table = table.key("origin", quoted(&origin.value));
            for (name, value) in self.path_keys(&url) {
                table = table.key(name, quoted(&value));
            }
            if self.replaces_path() {
                table = table.key("restore_prefix", "false");
            }
            if origin.is_url {
                table = table.optional_key("connect_timeout", settings.connect_timeout.as_ref());
            }
            if settings.keeps_redirects {
                table = table.key("own_redirects", "false");
            }
            table = table.optional_key("mirror", mirror.as_ref());
            table = self.common_keys(table, settings);
            document.push(table);
            document.push_filled(cache_table(settings, translation));
            document.push_filled(self.request_table(settings));
        }
    }

    /// Whether rewrites have replaced the path. nginx leaves the paths in responses as they are then.
    fn replaces_path(&self) -> bool {
        self.kept_folder.is_some() || self.location.replaced_prefix().is_some()
    }

    /// The keys that replace the front of the path, as `proxy_pass` with a path does.
    fn path_keys(&self, url: &PassUrl) -> Vec<(&'static str, String)> {
        // After a rewrite, nginx ignores the path of the URL.
        if let Some(folder) = &self.kept_folder {
            return vec![("strip_prefix", folder.clone())];
        }
        if let Some(replaced) = self.location.replaced_prefix() {
            return prefix_keys(&replaced.removed, &replaced.added);
        }
        let Some(path) = &url.path else {
            return Vec::new();
        };
        let is_same = *path == self.location.text || (self.location.text == "/" && path == "/");
        // nginx refuses a path in the proxy_pass of a named location.
        if is_same || self.handler.name.is_some() {
            return Vec::new();
        }
        let front = self.location.text.trim_end_matches('/');
        prefix_keys(front, path.trim_end_matches('/'))
    }

    /// Fields of requests to the origin.
    fn request_table(&self, settings: &UpstreamSettings) -> ConfigTable {
        let mut table = ConfigTable::new("[site.route.request]");
        for field in &settings.request_fields {
            let (name, value) = &field.value;
            table.push(
                &format!("set.{}", key(name)),
                &quoted(value),
                Some(field.entry),
            );
        }
        match self.kept_folder {
            // The folder is none of the client's path.
            Some(_) => table.key("remove", quoted("X-Forwarded-Prefix")),
            None => table,
        }
    }

    /// The value of `mirror`, if the location of the copies passes their targets on unchanged.
    fn mirror(&self, translation: &mut Translation, origins: &mut OriginTables) -> Option<String> {
        let mirror = self.location.settings.proxy.mirror.as_ref()?;
        let mut locations = self.server.locations.iter();
        let target = locations.find(|it| it.name.is_none() && it.text == mirror.value)?;
        let passes_target = target.content.passes_request_uri;
        let pass = target.content.proxy.as_ref().filter(|_| passes_target)?;
        let url = PassUrl::parse(&pass.value)?;
        let settings = &target.settings.proxy;
        let definitions = &translation.definitions;
        let origin = route_origin(origins, &url, settings, definitions, pass.entry);
        let outcome = DirectiveOutcome::Translated(
            "body_max of mirror limits the bodies of copies".to_string(),
        );
        translation.report.change(mirror.entry, outcome);
        Some(format!(
            "{{ to = {}, methods = {MIRRORED_METHODS} }}",
            quoted(&origin.value)
        ))
    }

    /// The value of `intercept_errors`: a table if errors get other statuses.
    fn intercepted_errors(&self) -> String {
        let settings = &self.location.settings;
        if settings.error_statuses.is_empty() {
            return "true".to_string();
        }
        let mut statuses: BTreeMap<u16, u16> = BTreeMap::new();
        // nginx takes the first page for a status.
        for page in &settings.error_pages {
            let code = page.value.0;
            let changed = settings.error_statuses.iter();
            let changed = changed.filter(|it| it.entry == page.entry && it.value.0 == code);
            let status = changed.map(|it| it.value.1).next().unwrap_or(code);
            statuses.entry(code).or_insert(status);
        }
        let items = statuses
            .iter()
            .map(|(code, status)| format!("{code} = {status}"));
        format!("{{ {} }}", items.collect::<Vec<_>>().join(", "))
    }

    /// Reports the pages with another status that the route's keys contain.
    fn report_error_statuses(&self, settings: &UpstreamSettings, translation: &mut Translation) {
        if settings.intercepts_errors {
            for changed in &self.location.settings.error_statuses {
                let outcome = DirectiveOutcome::Translated(
                    "errors of the origin or program: intercept_errors".to_string(),
                );
                translation.report.change(changed.entry, outcome);
            }
        }
    }

    fn common_keys(&self, mut table: ConfigTable, settings: &UpstreamSettings) -> ConfigTable {
        table = table.optional_key("timeout", settings.timeout.as_ref());
        let keys = self.location.settings.bandwidth_keys();
        if keys != self.server.settings.bandwidth_keys() {
            table = keys
                .iter()
                .fold(table, |table, (key, value)| table.key(key, value));
        }
        if settings.is_request_streamed {
            table = table.key("request_buffering", "false");
        }
        if settings.is_response_streamed {
            table = table.key("response_buffering", "false");
        }
        if settings.intercepts_errors {
            table = table.key("intercept_errors", self.intercepted_errors());
        }
        if self.location.content.is_internal || self.kept_folder.is_some() {
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
    for time in &settings.cache_times {
        let outcome = match chosen.is_some_and(|it| it.entry == time.entry) {
            true => DirectiveOutcome::Translated(
                "also for other statuses that may be stored".to_string(),
            ),
            false => DirectiveOutcome::translated(),
        };
        translation.report.change(time.entry, outcome);
    }
    // The key `ttl` says the same as a single rule.
    let is_single = settings.cache_times.len() == 1 && chosen.is_some();
    if !is_single || settings.ignores_lifetimes {
        table = table.optional_key("rule", cache_rules(settings));
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

/// The value of `rule`: a lifetime for each `proxy_cache_valid`, in their order.
fn cache_rules(settings: &UpstreamSettings) -> Option<String> {
    let rules = settings.cache_times.iter().map(|time| {
        let status = time.value.status_value();
        let mut keys: Vec<String> = status
            .map(|it| format!("status = {it}"))
            .into_iter()
            .collect();
        if time.value.time == "\"0s\"" {
            keys.push("no_store = true".to_string());
        } else {
            keys.push(format!("ttl = {}", time.value.time));
            keys.extend(
                settings
                    .ignores_lifetimes
                    .then(|| "override = true".to_string()),
            );
        }
        format!("{{ {} }}", keys.join(", "))
    });
    let rules: Vec<String> = rules.collect();
    (!rules.is_empty()).then(|| format!("[{}]", rules.join(", ")))
}

/// The cache of a route to programs, which has no stale responses.
fn program_cache_table(settings: &UpstreamSettings, translation: &mut Translation) -> ConfigTable {
    let mut times = settings.cache_times.iter();
    let has_ttl = times.any(|it| it.value.is_of_success());
    // Only `ttl` keeps the requests with cookies from stored responses of programs.
    if !has_ttl && settings.is_cached {
        for time in &settings.cache_times {
            let way = "a program's responses are stored with `ttl` only: see [site.route.cache]";
            let outcome = DirectiveOutcome::ByHand(way.to_string());
            translation.report.change(time.entry, outcome);
        }
        return ConfigTable::new("[site.route.cache]");
    }
    let fresh_only = UpstreamSettings {
        stale_uses: Vec::new(),
        ..settings.clone()
    };
    cache_table(&fresh_only, translation)
}

/// The keys that remove and add a front of the path.
fn prefix_keys(removed: &str, added: &str) -> Vec<(&'static str, String)> {
    let keys = [("strip_prefix", removed), ("add_prefix", added)];
    keys.into_iter()
        .filter(|(_, prefix)| !prefix.is_empty())
        .map(|(key, prefix)| (key, prefix.to_string()))
        .collect()
}

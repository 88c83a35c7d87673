//! One `[[site]]` with all its tables.

use std::collections::BTreeMap;

use super::access::write_rules;
use super::fields::{write_cache_control, write_fields};
use super::redirects::write_redirects;
use super::rewrites::write_rewrites;
use super::routes::write_routes;
use crate::origin_tables::OriginTables;
use crate::path_overlap::shares_paths;
use lowroad_config::PathPattern;

use crate::document::{ConfigDocument, ConfigTable};
use crate::nginx::level::Translation;
use crate::nginx::locations::{Location, LocationRank};
use crate::nginx::servers::Server;
use crate::nginx::settings::LevelSettings;
use crate::path_globs::PathGlobs;
use crate::report::DirectiveOutcome;
use crate::toml_values::{key, list, quoted};

/// Where the files of a location are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilePlace {
    /// In the root of the site.
    Root,
    /// In a folder for a path: an alias.
    Alias {
        /// The path.
        path: String,
        /// The folder.
        folder: String,
    },
    /// Routes would take the path: a rewrite leads to an alias that clients can't request.
    Hidden {
        /// The path of the alias.
        path: String,
        /// The folder.
        folder: String,
        /// The part of the requested path that is omitted.
        prefix: String,
    },
}

/// The decisions about a site that several tables depend on.
pub struct SiteLayout {
    /// The root.
    pub root: Option<String>,
    /// The place of each location's files; none if a handler answers.
    pub places: Vec<Option<FilePlace>>,
}

impl SiteLayout {
    /// Plans a site.
    pub fn new(server: &Server, default_root: &str) -> SiteLayout {
        let mut layout = SiteLayout {
            root: None,
            places: vec![None; server.locations.len()],
        };
        layout.root = site_root(server, default_root);
        for (index, location) in server.locations.iter().enumerate() {
            if is_error_page(server, location) {
                layout.places[index] = Some(FilePlace::Root);
            } else if is_static(location) {
                layout.places[index] = Some(layout.place(server, index, location, default_root));
            }
        }
        layout
    }

    /// The value of `listing`. The key is one for the site, so it is only set if each location with folders lists them.
    fn listing(&self, server: &Server, translation: &mut Translation) -> Option<&'static str> {
        let may_have_folders = |globs: &PathGlobs| {
            let mut globs = globs.globs.iter();
            globs.any(|glob| glob.ends_with(['*', '/']))
        };
        let locations = server.locations.iter().zip(&self.places);
        let listings: Vec<Option<usize>> = locations
            .filter(|(location, place)| place.is_some() && may_have_folders(&location.globs))
            .map(|(location, _)| location.settings.listing)
            .collect();
        if listings.iter().all(Option::is_some) {
            return (!listings.is_empty()).then_some("true");
        }
        for entry in listings.into_iter().flatten() {
            let way = "no folders are listed, since `listing` would list those of other locations: write a site for these paths";
            let outcome = DirectiveOutcome::ByHand(way.to_string());
            translation.report.change(entry, outcome);
        }
        None
    }

    /// Reports the bandwidths of locations with files: sites and routes have the key.
    fn report_bandwidths(&self, server: &Server, translation: &mut Translation) {
        let site = server.settings.bandwidth_keys();
        for (location, place) in server.locations.iter().zip(&self.places) {
            let keys = location.settings.bandwidth_keys();
            let own = location.settings.bandwidth.as_ref();
            if let (true, Some(own)) = (place.is_some() && keys != site, own) {
                let way =
                    "files have the `rate` of their site: write a [[site.rule]] with this one";
                let outcome = DirectiveOutcome::ByHand(way.to_string());
                translation.report.change(own.entry, outcome);
            }
        }
    }

    /// Whether a handler answers the requests of a location.
    pub fn is_handled(&self, index: usize) -> bool {
        self.places[index].is_none()
    }

    /// The globs of a location for tables that apply after rewrites.
    pub fn globs_of(&self, index: usize, location: &Location) -> PathGlobs {
        match &self.places[index] {
            Some(FilePlace::Hidden { path, .. }) => PathGlobs::prefix(&format!("{path}/")),
            _ => location.globs.clone(),
        }
    }

    fn place(
        &self,
        server: &Server,
        index: usize,
        location: &Location,
        default_root: &str,
    ) -> FilePlace {
        let is_prefix =
            location.name.is_none() && location.globs == PathGlobs::prefix(&location.text);
        let root = location
            .settings
            .root
            .clone()
            .unwrap_or_else(|| default_root.to_string());
        let (folder, prefix) = match &location.content.alias {
            Some(alias) => (alias.value.clone(), location.text.clone()),
            None => (root.clone(), String::new()),
        };
        let is_in_root = location.content.alias.is_none() && Some(&root) == self.root.as_ref();
        // Routes come before files, so even one of lower precedence would take these paths.
        let is_shadowed = server.locations[index + 1..]
            .iter()
            .any(|lower| takes_all(lower) && shares_paths(&location.globs, &lower.globs));
        let is_internal = location.content.is_internal;
        if is_in_root && !is_shadowed && !is_internal {
            return FilePlace::Root;
        }
        let path = location.text.trim_end_matches('/').to_string();
        // No route takes the paths of an internal alias.
        if is_prefix && (!is_shadowed || is_internal) && !path.is_empty() {
            let folder = match location.content.alias {
                Some(_) => folder,
                None => format!("{}{path}", root.trim_end_matches('/')),
            };
            return FilePlace::Alias { path, folder };
        }
        FilePlace::Hidden {
            path: format!("/files-{}", index + 1),
            folder,
            prefix: if is_prefix || location.rank == LocationRank::Exact {
                prefix
            } else {
                String::new()
            },
        }
    }
}

/// Whether a route takes all paths of a location, also those of files.
fn takes_all(location: &Location) -> bool {
    let is_route = location.content.proxy.is_some() || location.content.fastcgi.is_some();
    is_route && location.name.is_none() && !location.content.is_missing && !is_script(location)
}

/// Whether a location answers paths without a file.
fn answers_missing_files(location: &Location) -> bool {
    let last = location
        .content
        .try_files
        .as_ref()
        .and_then(|it| it.value.last());
    takes_all(location)
        || location.content.is_missing
        || last.is_some_and(|last| !last.starts_with('='))
}

/// Whether a location is for scripts, by their extension.
fn is_script(location: &Location) -> bool {
    location
        .globs
        .globs
        .iter()
        .all(|glob| glob.ends_with(".php"))
}

/// Whether a location is only for an error page, which is a file of the root.
fn is_error_page(server: &Server, location: &Location) -> bool {
    let is_special = location.rank == LocationRank::Exact || location.content.is_internal;
    let is_target = |target: &str| {
        let globs = location
            .globs
            .globs
            .iter()
            .filter_map(|glob| PathPattern::parse(glob).ok());
        globs
            .into_iter()
            .any(|pattern| pattern.matches(target.as_bytes()))
    };
    is_special
        && is_static(location)
        && server
            .settings
            .error_pages
            .iter()
            .any(|page| is_target(&page.value.1))
}

/// Refuses the paths of internal locations of files that no alias can express, so that clients don't get them.
pub fn close_internal_locations(server: &mut Server, translation: &mut Translation) {
    for index in 0..server.locations.len() {
        let location = &server.locations[index];
        let is_prefix = location.globs == PathGlobs::prefix(&location.text) && location.text != "/";
        let is_exposed = location.content.is_internal && is_static(location) && !is_prefix;
        if is_exposed && !is_error_page(server, location) {
            let way =
                "its paths are refused: use an [[site.alias]] with internal = true".to_string();
            translation
                .report
                .change(location.entry, DirectiveOutcome::ByHand(way));
            server.locations[index].settings.access.refusal = Some(404);
        }
    }
}

fn is_static(location: &Location) -> bool {
    let content = &location.content;
    location.name.is_none()
        && !content.is_other
        && !content
            .changes
            .iter()
            .any(|it| it.status.is_none() && !it.is_missing)
        && content.redirect.is_none()
        && !location.settings.access.is_closed()
        && (content.is_missing || (content.proxy.is_none() && content.fastcgi.is_none()))
}

/// The root: that of the location `/` if it serves files, else the server's.
fn site_root(server: &Server, default_root: &str) -> Option<String> {
    let slash = server
        .locations
        .iter()
        .find(|it| it.text == "/" && it.rank >= LocationRank::FinalPrefix);
    let of_slash = slash
        .filter(|it| is_static(it))
        .and_then(|it| it.settings.root.clone());
    let with_root = || {
        server
            .locations
            .iter()
            .find(|it| it.content.has_root && is_static(it))
            .and_then(|it| it.settings.root.clone())
    };
    let root = of_slash
        .or_else(|| server.settings.root.clone())
        .or_else(with_root);
    // Routes may take everything; otherwise files are in nginx' default folder.
    let is_complete = server
        .locations
        .iter()
        .any(|it| takes_all(it) && it.globs.globs.iter().any(|glob| glob == "/**"));
    let needs_root = !is_complete && server.content.redirect.is_none();
    root.or_else(|| needs_root.then(|| default_root.to_string()))
}

/// The parts of a site that depend on other servers.
#[derive(Clone, Debug, Default)]
pub struct SiteContext {
    /// Plain listeners of a server that redirects to this one.
    pub extra_listens: Vec<String>,
    /// Whether plain requests are redirected.
    pub redirects: bool,
    /// Whether the site has the name `_`.
    pub is_default: bool,
}

/// Writes a site.
pub fn write_site(
    server: &Server,
    context: &SiteContext,
    translation: &mut Translation,
    origins: &mut OriginTables,
    document: &mut ConfigDocument,
) {
    let default_root = translation
        .root_prefix
        .join("html")
        .to_string_lossy()
        .into_owned();
    let layout = SiteLayout::new(server, &default_root);
    if layout.root.as_ref() == Some(&default_root) && server.settings.root.is_none() {
        // A configuration is refused if a root is missing, and nginx answers 404.
        let difference = format!("no root: nginx' default folder {default_root} must exist");
        translation
            .report
            .note_difference(server.entry, &difference);
    }
    layout.report_bandwidths(server, translation);
    let listing = layout.listing(server, translation);
    document.push(site_table(server, context, &layout).optional_key("listing", listing));
    let own = write_tls(server, context, document);
    write_representation(server, &layout, document);
    write_cache_control(server, &layout, &translation.definitions, document);
    write_aliases(server, &layout, document);
    // Origins get paths with hidden names, so their refusal needs rules there.
    let has_hidden_paths = server.locations.iter().any(answers_missing_files);
    write_rules(server, has_hidden_paths, translation, document);
    write_redirects(server, translation, document);
    write_rewrites(server, &layout, translation, document);
    write_fields(server, &layout, &own, translation, document);
    write_routes(server, translation, origins, document);
}

fn site_table(server: &Server, context: &SiteContext, layout: &SiteLayout) -> ConfigTable {
    let mut table =
        ConfigTable::essential("[[site]]").comment(&format!("server at {}", server.place));
    let mut names = server.names.clone();
    if context.is_default && !names.is_empty() {
        names.push("_".to_string());
    }
    if !names.is_empty() {
        table.push("names", &list(&names), Some(server.entry));
    }
    let mut listens: Vec<String> = server
        .listens
        .iter()
        .filter(|it| !it.is_tls)
        .map(|it| it.address.clone())
        .collect();
    listens.extend(context.extra_listens.iter().cloned());
    listens.dedup();
    if !listens.is_empty() {
        table.push("listen", &list(&listens), Some(server.entry));
    }
    if let Some(root) = &layout.root {
        table.push("root", &quoted(root), Some(server.entry));
    }
    let index = site_index(server);
    if !index.is_empty() {
        table.push("index", &list(&index), Some(server.entry));
    }
    let bandwidth = server.settings.bandwidth_keys();
    for (name, value) in site_keys(server).into_iter().chain(bandwidth) {
        table.push(name, &value, Some(server.entry));
    }
    let proxies = &server.settings.trusted_proxies;
    if !proxies.is_empty() {
        let name = if server.settings.is_proxy_protocol {
            "proxy_protocol"
        } else {
            "trusted_proxies"
        };
        table.push(name, &list(proxies), Some(server.entry));
    }
    table
}

/// The index files, unless they are the default.
fn site_index(server: &Server) -> Vec<String> {
    let slash = server
        .locations
        .iter()
        .find(|it| it.text == "/" && it.rank >= LocationRank::FinalPrefix);
    let index = slash
        .map_or(&server.settings.index, |it| &it.settings.index)
        .clone();
    let has_scripts = server
        .locations
        .iter()
        .any(|it| it.content.fastcgi.is_some());
    let default: &[&str] = if has_scripts {
        &["index.html", "index.php"]
    } else {
        &["index.html"]
    };
    if index == default { Vec::new() } else { index }
}

/// Keys that hold for a whole site, although a location may have set them.
fn site_keys(server: &Server) -> BTreeMap<&'static str, String> {
    let mut keys = server.settings.site_keys.clone();
    for location in &server.locations {
        keys.extend(location.settings.site_keys.clone());
    }
    keys
}

/// Writes `[site.tls]`; returns the names of fields that it sends.
pub fn write_tls(
    server: &Server,
    context: &SiteContext,
    document: &mut ConfigDocument,
) -> Vec<String> {
    let listens: Vec<String> = server
        .listens
        .iter()
        .filter(|it| it.is_tls)
        .map(|it| it.address.clone())
        .collect();
    if listens.is_empty() {
        return Vec::new();
    }
    let settings = &server.settings;
    let mut table = ConfigTable::new("[site.tls]").entry(server.entry);
    if listens != ["*:443"] {
        table = table.key("listen", list(&listens));
    }
    if !settings.certificates.is_empty() {
        table = table
            .key("certificate", list(&settings.certificates))
            .key("key", list(&settings.keys));
    }
    // Without `client` its authorities are unused.
    let is_used = |key: &&str| *key != "client_ca" || settings.tls.contains_key("client");
    for (key, value) in settings.tls.iter().filter(|(key, _)| is_used(key)) {
        table = table.key(key, value);
    }
    if context.redirects {
        table = table.key("redirect", "true");
    }
    let is_plain = server.listens.iter().any(|it| !it.is_tls) || !context.extra_listens.is_empty();
    let hsts = "Strict-Transport-Security";
    let field = settings
        .fields
        .iter()
        .find(|it| it.name.eq_ignore_ascii_case(hsts));
    // `hsts` needs a site without plain responses: RFC 6797 §7.2 forbids the field in them.
    let field = field.filter(|_| !is_plain || context.redirects);
    table = table.optional_key("hsts", field.map(|it| quoted(&it.value)));
    document.push(table);
    field.map(|_| hsts.to_string()).into_iter().collect()
}

fn write_representation(server: &Server, layout: &SiteLayout, document: &mut ConfigDocument) {
    let settings = &server.settings;
    let has_routes = server
        .locations
        .iter()
        .any(|it| it.content.proxy.is_some() || it.content.fastcgi.is_some());
    let mut compress = ConfigTable::new("[site.compress]").entry(server.entry);
    for (name, value) in &settings.compress {
        if *name != "programs" || has_routes {
            compress = compress.key(name, value);
        }
    }
    document.push_filled(compress);
    let mut types = ConfigTable::new("[site.types]").entry(server.entry);
    for (extension, media_type) in &all_types(server) {
        types = types.key(&key(extension), quoted(media_type));
    }
    document.push_filled(types);
    let mut pages = ConfigTable::essential("[site.error_pages]");
    let mut statuses = BTreeMap::new();
    // One table for the whole site, so pages of the server come before those of locations.
    let settings_of_locations = server.locations.iter().map(|it| &it.settings);
    for settings in std::iter::once(settings).chain(settings_of_locations) {
        for page in &settings.error_pages {
            statuses.entry(page.value.0).or_insert(page);
        }
    }
    for (status, page) in statuses {
        if layout.root.is_some() {
            pages.push(
                &status.to_string(),
                &quoted(&page.value.1),
                Some(page.entry),
            );
        }
    }
    document.push_filled(pages);
}

fn all_types(server: &Server) -> BTreeMap<String, String> {
    let mut types = server.settings.types.clone();
    for LevelSettings { types: more, .. } in server.locations.iter().map(|it| &it.settings) {
        types.extend(more.clone());
    }
    types
}

fn write_aliases(server: &Server, layout: &SiteLayout, document: &mut ConfigDocument) {
    for (location, place) in server.locations.iter().zip(&layout.places) {
        let (path, folder, is_hidden) = match place {
            Some(FilePlace::Alias { path, folder }) => (path, folder, false),
            Some(FilePlace::Hidden { path, folder, .. }) => (path, folder, true),
            _ => continue,
        };
        let entry = location
            .content
            .alias
            .as_ref()
            .map_or(location.entry, |alias| alias.entry);
        let mut table = ConfigTable::new("[[site.alias]]")
            .entry(location.entry)
            .entry(entry);
        if is_hidden {
            table = table.comment(&format!(
                "{}: the rewrite below leads here, before any route.",
                location.comment
            ));
        }
        table = table
            .key("path", quoted(path))
            .key("folder", quoted(folder));
        if is_hidden || location.content.is_internal {
            table = table.key("internal", "true");
        }
        document.push(table);
    }
}

//! One `[[site]]` with all its tables.

use std::collections::BTreeMap;

use lowroad_config::PathExpression;

use super::access::write_rules;
use super::fields::{write_cache_control, write_fields};
use super::layout::{
    FilePlace, SiteLayout, answers_missing_files, is_error_page, is_static, site_root,
};
use super::redirects::write_redirects;
use super::rewrites::write_rewrites;
use super::routes::write_routes;
use crate::origin_tables::OriginTables;

use crate::document::{ConfigDocument, ConfigTable};
use crate::nginx::condition_keys::ConditionKeys;
use crate::nginx::level::Translation;
use crate::nginx::locations::{Location, LocationRank};
use crate::nginx::servers::Server;
use crate::nginx::settings::{ConditionalRefusal, LevelSettings};
use crate::path_globs::PathGlobs;
use crate::report::DirectiveOutcome;
use crate::toml_values::{key, list, quoted};

/// Refuses the paths of internal locations of files that no alias can express, so that clients don't get them.
pub fn close_internal_locations(server: &mut Server, translation: &mut Translation) {
    for index in 0..server.locations.len() {
        let location = &server.locations[index];
        let is_prefix = location.globs == PathGlobs::prefix(&location.text) && location.text != "/";
        // Files of rewritten paths are in another folder, to which a rewrite leads.
        let has_alias = is_prefix && !location.keeps_files();
        let is_exposed = location.content.is_internal && is_static(location) && !has_alias;
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

/// Refuses the paths beside the folders of aliases: `location /files` of nginx also has `/files.txt`, an alias only `/files/…`.
pub fn close_paths_beside_aliases(server: &mut Server, translation: &mut Translation) {
    let default_root = translation.root_path("html");
    let root = site_root(server, &default_root);
    for location in &mut server.locations {
        let text = &location.text;
        let is_prefix = location.globs == PathGlobs::prefix(text) && !text.ends_with('/');
        let own_root = location.settings.root.as_ref().unwrap_or(&default_root);
        let has_folder = location.content.is_internal
            || location.content.alias.is_some()
            || root.as_ref() != Some(own_root);
        if !is_prefix || !has_folder || !is_static(location) {
            continue;
        }
        let mut conditions = ConditionKeys::default();
        // A redirect of a handler into the folder has the path of the client here.
        let beside = format!("$path=~^{}[^/]", regex_syntax::escape(text));
        conditions.require("variable", quoted(&beside));
        let refusals = &mut location.settings.access.conditional_refusals;
        refusals.push(ConditionalRefusal {
            conditions,
            status: 404,
        });
        let difference = "paths with more text than the folder are refused";
        translation
            .report
            .note_difference(location.entry, difference);
    }
}

/// The parts of a site that depend on other servers.
#[derive(Clone, Debug, Default)]
pub struct SiteContext {
    /// Plain listeners of a server that redirects to this one.
    pub extra_listens: Vec<String>,
    /// Whether plain requests are redirected.
    pub redirects: bool,
    /// Names of other servers that no site has: a site with the name `_` must not answer their hosts.
    pub refused_names: Vec<String>,
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
    let layout = SiteLayout::new(server, &default_root, translation);
    layout.report_missing_folders(server, translation);
    if layout.root.as_ref() == Some(&default_root) && server.settings.root.is_none() {
        // A configuration is refused if a root is missing, and nginx answers 404.
        let difference = format!("no root: nginx' default folder {default_root} must exist");
        translation
            .report
            .note_difference(server.entry, &difference);
    }
    layout.report_bandwidths(server, translation);
    report_indexes(server, translation);
    let listing = layout.listing(server, translation);
    document.push(site_table(server, context, &layout).optional_key("listing", listing));
    let own = write_tls(server, context, document);
    write_representation(server, &layout, document);
    write_cache_control(server, &layout, translation, document);
    write_aliases(server, &layout, document);
    // Origins get paths with hidden names, so their refusal needs rules there.
    let has_hidden_paths = server.locations.iter().any(answers_missing_files);
    write_refused_names(server, context, document);
    write_rules(server, has_hidden_paths, translation, document);
    write_redirects(server, translation, document);
    write_rewrites(server, &layout, translation, document);
    write_fields(server, &layout, &own, translation, document);
    write_routes(server, translation, origins, document);
}

/// Refuses the hosts of names without an equal, which would get the default site otherwise.
fn write_refused_names(server: &Server, context: &SiteContext, document: &mut ConfigDocument) {
    for name in &context.refused_names {
        let rule = ConfigTable::new("[[site.rule]]").entry(server.entry);
        let rule = rule.comment(&format!("Until server_name {name} is translated by hand."));
        let regex = match name.strip_prefix('~') {
            Some(regex) => format!("(?i){regex}"),
            None => format!("(?i)^{}", regex_syntax::escape(name.trim_end_matches('*'))),
        };
        // Without an equal expression, it may be any host.
        let is_known = PathExpression::parse(&regex).is_ok();
        let host = is_known.then(|| quoted(&format!("$host=~{regex}")));
        let rule = rule.optional_key("variable", host);
        let own = (!server.names.is_empty()).then(|| list(&server.names));
        let rule = rule.optional_key("not", own.map(|it| format!("{{ host = {it} }}")));
        document.push(rule.key("deny", "503"));
    }
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
    let mut keys = site_keys(server);
    if layout.root.is_some() {
        // nginx follows all links; the default of Lowroad is those beneath the root.
        keys.entry("symlinks").or_insert_with(|| quoted("follow"));
    }
    for (name, value) in keys.into_iter().chain(bandwidth) {
        table.push(name, &value, Some(server.entry));
    }
    let settings = &server.settings;
    let proxies = &settings.trusted_proxies;
    // Clients can send X-Forwarded-For through a proxy that reports them by another field.
    let is_reported = settings.is_proxy_protocol || settings.trusts_forwarded;
    if !proxies.is_empty() && is_reported {
        let name = if server.settings.is_proxy_protocol {
            "proxy_protocol"
        } else {
            "trusted_proxies"
        };
        table.push(name, &list(proxies), Some(server.entry));
    }
    table
}

/// The names of index files: those of the location `/`, then those of others. The key is one for the site.
pub fn index_names(server: &Server) -> Vec<String> {
    let slash = server.locations.iter().filter(|it| is_root_location(it));
    let others = server.locations.iter().filter(|it| has_folders(it));
    let mut settings: Vec<&LevelSettings> = slash.chain(others).map(|it| &it.settings).collect();
    if settings.is_empty() {
        settings.push(&server.settings);
    }
    let mut names: Vec<String> = Vec::new();
    for settings in settings {
        for name in index_of(settings) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// The index files of a block.
fn index_of(settings: &LevelSettings) -> Vec<String> {
    match settings.index.is_empty() {
        // The default of nginx.
        true => vec!["index.html".to_string()],
        false => settings.index.clone(),
    }
}

/// Whether a location may have folders of files.
fn has_folders(location: &Location) -> bool {
    let is_handled = location.content.proxy.is_some() || location.content.fastcgi.is_some();
    let mut globs = location.globs.globs.iter();
    location.name.is_none()
        && !is_handled
        && !location.settings.access.is_closed()
        && globs.any(|it| it.ends_with("**"))
}

/// Whether a location is the one of all paths.
fn is_root_location(location: &Location) -> bool {
    location.text == "/" && location.rank >= LocationRank::FinalPrefix
}

/// Reports the locations with other index files than the site.
fn report_indexes(server: &Server, translation: &mut Translation) {
    let names = index_names(server);
    let locations = server.locations.iter().filter(|it| has_folders(it));
    for location in locations {
        if index_of(&location.settings) != names {
            let difference = format!(
                "its folders have all index files of the site: {}",
                names.join(", ")
            );
            let report = &mut translation.report;
            report.note_difference(location.entry, &difference);
        }
    }
}

/// The index files, unless they are the default.
fn site_index(server: &Server) -> Vec<String> {
    let index = index_names(server);
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
            let path = layout.page_path(server, &page.value.1);
            pages.push(&status.to_string(), &quoted(&path), Some(page.entry));
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

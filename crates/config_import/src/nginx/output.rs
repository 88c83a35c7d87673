//! Writes servers and locations as a configuration of Lowroad.

use std::collections::BTreeSet;

use crate::document::{ConfigDocument, ConfigTable};
use crate::report::DirectiveOutcome;

use super::directives::is_to_https;
use super::excepted_paths::resolve_excepted_paths;
use super::level::Translation;
use super::locations::{Location, LocationRank, sort_locations};
use super::missing_files::resolve_missing_files;
use super::servers::Server;
use super::settings::{HostRedirect, LocationContent, Sourced};
use super::tried_files::resolve_tried_files;
use crate::path_globs::PathGlobs;

mod access;
mod closed_aliases;
mod closed_pages;
mod closed_paths;
mod conditional_routes;
mod fields;
mod kept_paths;
mod layout;
mod located_change;
mod logs;
mod opened_paths;
mod origins;
mod path_infos;
mod redirects;
mod responses;
mod rewrites;
mod routes;
mod site;

use crate::origin_tables::OriginTables;
use closed_paths::close_unsafe_paths;
pub use origins::PassUrl;
use site::{SiteContext, close_internal_locations, close_paths_beside_aliases, write_site};

/// The configuration of all servers.
pub fn write_config(
    mut servers: Vec<Server>,
    translation: &mut Translation,
    head: Vec<String>,
) -> ConfigDocument {
    apply_handshake_refusals(&mut servers);
    let mut contexts: Vec<SiteContext> = servers.iter().map(own_context).collect();
    // Joined first: a server that only redirects to https must not take the name `_` from its site.
    let merged = merge_redirects(&mut servers, &mut contexts);
    let mut servers: Vec<(Server, SiteContext)> = servers
        .into_iter()
        .zip(contexts)
        .zip(&merged)
        .filter(|(_, merged)| !**merged)
        .map(|(pair, _)| pair)
        .collect();
    // Before defaults are named, too: without a default site, other hosts are refused anyway.
    servers.retain(|(server, _)| !refuses_other_hosts(server, translation));
    name_defaults(&mut servers, translation);
    for (server, _) in &mut servers {
        add_root_location(server);
        resolve_tried_files(server, translation);
        redirects::close_untranslated_redirects(server, translation);
        resolve_excepted_paths(server, translation);
        resolve_missing_files(server, translation);
        close_unsafe_paths(server, translation);
        close_internal_locations(server, translation);
        close_paths_beside_aliases(server, translation);
    }
    let mut document = ConfigDocument::new(head);
    write_process(translation, &mut document);
    let all: Vec<Server> = servers.iter().map(|(server, _)| server.clone()).collect();
    logs::write_logs(&all, translation, &mut document);
    // Origins come first, so sites are written to a separate document.
    let mut origins = OriginTables::default();
    let mut sites = ConfigDocument::default();
    for (server, context) in &servers {
        write_host_redirects(server, context, &mut sites);
        let server = without_redirected_names(server);
        write_site(&server, context, translation, &mut origins, &mut sites);
    }
    // Warnings of unused maps would not help the reader.
    let definitions = &translation.definitions;
    for (name, table) in &definitions.map_tables {
        if definitions.used_maps.contains(name) {
            document.push(table.clone());
        }
    }
    origins.write(&mut document);
    document.append(sites);
    document
}

/// Refuses handshakes at the addresses of servers that only do this, by a setting of the sites there. Without such a
/// site there is no TLS at the address.
fn apply_handshake_refusals(servers: &mut Vec<Server>) {
    let tls_addresses = |server: &Server| -> BTreeSet<String> {
        let listens = server.listens.iter().filter(|it| it.is_tls);
        listens.map(|it| it.address.clone()).collect()
    };
    let refusing = servers.iter().filter(|it| it.settings.rejects_handshakes);
    let mut refused: BTreeSet<String> = refusing.flat_map(tls_addresses).collect();
    for server in servers.iter_mut() {
        if server.settings.rejects_handshakes {
            server.listens.retain(|it| !it.is_tls);
            continue;
        }
        let own = tls_addresses(server);
        if !own.is_disjoint(&refused) {
            let switch = "true".to_string();
            server.settings.tls.insert("strict_sni", switch);
            // One site decides for its address.
            refused.retain(|address| !own.contains(address));
        }
    }
    servers.retain(|it| !it.settings.rejects_handshakes || !it.listens.is_empty());
}

fn write_process(translation: &Translation, document: &mut ConfigDocument) {
    for section in ["server", "limits", "buffering"] {
        let mut table = ConfigTable::essential(&format!("[{section}]"));
        for ((other, key), process_key) in &translation.definitions.process_keys {
            if *other == section {
                table.push(key, &process_key.value, Some(process_key.entry));
            }
        }
        document.push_filled(table);
    }
}

fn own_context(server: &Server) -> SiteContext {
    let has_plain = server.listens.iter().any(|it| !it.is_tls);
    let has_tls = server.listens.iter().any(|it| it.is_tls);
    SiteContext {
        redirects: has_plain && has_tls && server.content.redirects_to_https,
        ..SiteContext::default()
    }
}

fn has_tls(server: &Server) -> bool {
    server.listens.iter().any(|it| it.is_tls)
}

/// Whether a server without TLS redirects everything to https.
fn is_https_redirect(server: &Server) -> bool {
    let location_redirects = server
        .locations
        .iter()
        .filter(|it| it.text == "/")
        .filter_map(|it| it.content.redirect.as_ref());
    let by_return = server
        .content
        .redirect
        .iter()
        .chain(location_redirects)
        .any(|it| is_to_https(&it.value.1));
    let by_rewrite = server
        .content
        .changes
        .iter()
        .any(|it| it.status.is_some() && it.regex == "^/(.*)$" && is_to_https(&it.to));
    !has_tls(server) && (by_return || by_rewrite || server.content.redirects_to_https)
}

/// Joins servers that redirect to https with the servers of the same names. Returns which servers are joined.
fn merge_redirects(servers: &mut [Server], contexts: &mut [SiteContext]) -> Vec<bool> {
    let mut merged = vec![false; servers.len()];
    for index in 0..servers.len() {
        if !is_https_redirect(&servers[index]) {
            continue;
        }
        let plain = servers[index].clone();
        let mut covered: BTreeSet<String> = BTreeSet::new();
        for other in tls_servers(servers) {
            let server = &mut servers[other];
            // A server without names redirects the hosts of all sites.
            let has_name = plain.names.is_empty()
                || server.names.iter().any(|name| plain.names.contains(name));
            // Of servers with one name at several ports, one has the plain listener.
            let is_covered = server.names.iter().any(|name| covered.contains(name));
            if other == index || !has_name || is_covered {
                continue;
            }
            covered.extend(server.names.iter().cloned());
            contexts[other].redirects = true;
            let listens = plain.listens.iter().map(|it| it.address.clone());
            contexts[other].extra_listens.extend(listens);
            add_locations(server, &plain);
            merged[index] = true;
        }
    }
    merged
}

/// The numbers of the servers with TLS, those at the usual port first.
fn tls_servers(servers: &[Server]) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..servers.len())
        .filter(|it| has_tls(&servers[*it]))
        .collect();
    let has_usual_port = |number: &usize| {
        let mut listens = servers[*number].listens.iter();
        listens.any(|it| it.is_tls && it.address.ends_with(":443"))
    };
    numbers.sort_by_key(|number| !has_usual_port(number));
    numbers
}

/// The redirect leads to the same path, so locations of the plain server (ACME challenges) belong to the other one.
fn add_locations(server: &mut Server, plain: &Server) {
    // The other server lacks the guard of these locations.
    if plain.content.has_unknown_guard {
        return;
    }
    for location in &plain.locations {
        let is_new = !server.locations.iter().any(|it| it.text == location.text);
        if location.content.redirect.is_none()
            && is_new
            && location.name.is_none()
            && !location.settings.access.is_closed()
        {
            server.locations.push(location.clone());
        }
    }
    sort_locations(&mut server.locations);
}

/// Whether a server only refuses hosts that no other server names, which get 421 anyway.
fn refuses_other_hosts(server: &Server, translation: &mut Translation) -> bool {
    let is_refusal = server.names.is_empty()
        && server.locations.is_empty()
        && server.content.redirect.is_none()
        && server.settings.access.is_closed();
    if is_refusal {
        let reason = "hosts without a site get 421".to_string();
        translation
            .report
            .change(server.entry, DirectiveOutcome::NotNeeded(reason));
    }
    is_refusal
}

/// Gives the name `_` to one server of each address. Others without a name can't be selected.
fn name_defaults(servers: &mut Vec<(Server, SiteContext)>, translation: &mut Translation) {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    // Explicit defaults have precedence over servers without a name.
    for is_explicit in [true, false] {
        for (server, context) in servers.iter_mut() {
            let explicit = server.listens.iter().any(|it| it.is_default);
            if !server.is_default || explicit != is_explicit {
                continue;
            }
            let addresses: Vec<String> = server
                .listens
                .iter()
                .map(|it| it.address.clone())
                .chain(context.extra_listens.clone())
                .collect();
            if addresses.iter().all(|address| !taken.contains(address)) {
                taken.extend(addresses);
                context.is_default = true;
            }
        }
    }
    let unknown_names = servers.iter().flat_map(|(it, _)| &it.unknown_names);
    let unknown_names: Vec<String> = unknown_names.cloned().collect();
    for (_, context) in servers.iter_mut().filter(|(_, it)| it.is_default) {
        context.refused_names.clone_from(&unknown_names);
    }
    servers.retain(|(server, context)| {
        let is_selectable = context.is_default || !server.names.is_empty();
        if !is_selectable {
            let way = "another site has no name at this address: give it a name".to_string();
            translation
                .report
                .change(server.entry, DirectiveOutcome::ByHand(way));
        }
        is_selectable
    });
}

/// Every server has a location `/`; nginx serves files there if the configuration has none.
fn add_root_location(server: &mut Server) {
    // `location = /` answers a single path, so the others still need a location.
    let has_root = server
        .locations
        .iter()
        .any(|it| it.text == "/" && it.rank >= LocationRank::FinalPrefix);
    if has_root || server.content.redirect.is_some() {
        return;
    }
    let content = LocationContent {
        try_files: server.content.try_files.clone(),
        proxy: server.content.proxy.clone(),
        fastcgi: server.content.fastcgi.clone(),
        is_missing: server.content.is_missing,
        ..LocationContent::default()
    };
    server.locations.push(Location {
        rank: LocationRank::Prefix,
        text: "/".to_string(),
        name: None,
        globs: PathGlobs::prefix("/"),
        outer: None,
        ignores_case: false,
        settings: server.settings.clone(),
        content,
        entry: server.entry,
        comment: String::new(),
    });
}

/// The names that `if ($host = …)` redirects, each with its redirect.
fn redirected_names(server: &Server) -> Vec<(Vec<String>, &Sourced<HostRedirect>)> {
    let redirects = server.content.host_redirects.iter().map(|redirect| {
        let name = &redirect.value.name;
        let names = match name.strip_prefix('!') {
            Some(kept) => server
                .names
                .iter()
                .filter(|it| *it != kept)
                .cloned()
                .collect(),
            None => vec![name.clone()],
        };
        (names, redirect)
    });
    redirects.filter(|(names, _)| !names.is_empty()).collect()
}

fn without_redirected_names(all: &Server) -> Server {
    let mut server = all.clone();
    for (names, _) in redirected_names(all) {
        server.names.retain(|name| !names.contains(name));
    }
    server
}

/// Writes a site for names that lead to another host.
fn write_host_redirects(server: &Server, context: &SiteContext, document: &mut ConfigDocument) {
    for (names, redirect) in redirected_names(server) {
        let entry = redirect.entry;
        let mut redirecting = server.clone();
        redirecting.names = names;
        let mut table = ConfigTable::essential("[[site]]")
            .comment(&format!("if ($host …) at {}", server.place));
        table.push(
            "names",
            &crate::toml_values::list(&redirecting.names),
            Some(entry),
        );
        let own = server.listens.iter().filter(|it| !it.is_tls);
        let own = own.map(|it| it.address.clone());
        let plain: Vec<String> = own.chain(context.extra_listens.iter().cloned()).collect();
        if !plain.is_empty() {
            table.push("listen", &crate::toml_values::list(&plain), Some(entry));
        }
        document.push(table);
        site::write_tls(&redirecting, context, document);
        let HostRedirect { to, status, .. } = &redirect.value;
        for (scheme, to) in redirects::targets(server, to) {
            let table = redirects::redirect_table("from", "/**", &to, *status, entry);
            document.push(table.optional_key("scheme", scheme.map(crate::toml_values::quoted)));
        }
    }
}

//! Reads one `[[site]]`.
//!
//! The keys and their allowed values are here; their meaning is in [`crate::schema`], and checks across several keys or
//! several sites are in [`crate::check`].

use crate::caching::parse_status;
use crate::class::address_prefixes;
use crate::named::{absolute_path, file_name};
use crate::reader::{ConfigSection, ConfigValue, KeyPosition};
use crate::site_marks::{RouteMarks, SiteMarks};
use crate::{
    AddressPrefix, CompressConfig, CorsConfig, EntityTags, PathPattern, RedirectConfig,
    RewriteConfig, RouteConfig, RouteTo, SiteConfig, SiteName, SiteRoot, StatusRange,
    SymlinkPolicy,
};
use crate::{
    alias, bandwidth, compression, route, rules, site_for_folder, site_policy, site_rule, tls,
    value,
};
use lowroad_variables::Template;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

pub(crate) fn site(section: ConfigSection<'_>) -> (SiteConfig, SiteMarks) {
    let default = site_for_folder(PathBuf::new());
    // All keys are read before the first check, so that all problems are reported together.
    let (names, name_marks) = names(&section);
    let (tls, tls_marks) = section.section("tls").map(tls::tls).unzip();
    let (listen, listen_marks) = listen(&section, &default, tls.is_some());
    // The root is evaluated below: whether it may be missing depends on the routes and redirects.
    let root_item = section.item("root");
    let (error_pages, page_marks) = error_pages(&section);
    let (routes, route_marks): (Vec<RouteConfig>, Vec<RouteMarks>) = section
        .sections("route")
        .into_iter()
        .enumerate()
        .flat_map(|(table, section)| route::route(table, section))
        .unzip();
    let (access, access_marks) = section
        .sections("rule")
        .into_iter()
        .flat_map(site_rule::rule)
        .unzip();
    let (aliases, alias_marks) = alias::aliases(&section);
    let (redirects, redirect_marks): (Vec<RedirectConfig>, _) = section
        .sections("redirect")
        .into_iter()
        .flat_map(rules::redirect)
        .unzip();
    let (rewrites, rewrite_marks): (Vec<RewriteConfig>, _) = section
        .sections("rewrite")
        .into_iter()
        .flat_map(rules::rewrite)
        .unzip();
    let (root, root_mark) = root_of(&section, root_item, &routes, &redirects);
    // Error pages are files below the root.
    if let (SiteRoot::None, true, Some(position)) = (
        &root,
        section.is_absent_or_empty("root"),
        page_marks.first(),
    ) {
        section.report_at(
            position,
            "the site has no root for the page",
            "only with root; programs and origins have their own error pages",
        );
    }
    let links = [
        ("beneath", SymlinkPolicy::Beneath),
        ("none", SymlinkPolicy::None),
        ("follow", SymlinkPolicy::Follow),
    ];
    let tags = [("file", EntityTags::File), ("content", EntityTags::Content)];
    let (proxy_protocol, proxy_protocol_mark) = prefixes(&section, "proxy_protocol");
    let cors_tables = section.sections("cors").into_iter().enumerate();
    let (cors, cors_marks): (Vec<CorsConfig>, _) = cors_tables
        .flat_map(|(table, section)| {
            let position = section.position.clone();
            let rules = site_policy::cors(section).into_iter();
            rules.map(move |rule| (rule, (table, position.clone())))
        })
        .unzip();
    let canonical_host = section
        .item("canonical_host")
        .and_then(|item| site_policy::canonical_host(&item, &names));
    // Rules of the operator for the same fields take precedence.
    let security_headers = section.item("security_headers");
    let mut headers: Vec<_> = security_headers
        .and_then(|item| site_policy::security_headers(&item))
        .into_iter()
        .collect();
    headers.extend(site_policy::cors_rules(&cors));
    let tables = section.sections("header");
    let header_marks = tables.iter().map(|section| section.position.clone());
    let header_marks = header_marks.collect();
    let tables = tables.into_iter().enumerate();
    headers.extend(tables.flat_map(|(table, section)| rules::header(table, section)));
    // HSTS is last: a rule of the operator for the same field takes precedence.
    headers.extend(tls.as_ref().and_then(tls::hsts_rule));
    let site = SiteConfig {
        names,
        listen,
        root,
        aliases,
        index: index(&section).unwrap_or_else(|| index_with(default.index, &routes)),
        listing: section.flag("listing", default.listing),
        hidden: section.flag("hidden", default.hidden),
        symlinks: section.choice("symlinks", &links, default.symlinks),
        etag: section.choice("etag", &tags, default.etag),
        compress: section
            .section("compress")
            .map_or_else(CompressConfig::default, compression::compress),
        types: section.section("types").map_or_else(Vec::new, types),
        error_pages,
        cache_control: section
            .sections("cache_control")
            .into_iter()
            .flat_map(rules::cache_control)
            .collect(),
        access,
        redirects,
        rewrites,
        headers,
        cors,
        maintenance: section
            .section("maintenance")
            .map(site_policy::maintenance)
            .unwrap_or_default(),
        canonical_host,
        trailing_slash: site_policy::trailing_slash(&section),
        routes,
        proxy_protocol,
        trusted_proxies: site_rule::trusted_proxies(&section),
        tls,
        body_len_max: section.optional_size("body_len_max", 0..=1 << 40),
        bandwidth: bandwidth::bandwidth(&section),
        purge_from: prefixes(&section, "purge_from").0,
        // `pass_through` is not a key of the file, see the schema.
        pass_through: None,
    };
    section.finish();
    let site = with_site_name(site);
    let marks = SiteMarks {
        names: name_marks,
        listen: listen_marks,
        tls: tls_marks.unwrap_or_default(),
        root: root_mark,
        aliases: alias_marks,
        error_pages: page_marks,
        proxy_protocol: proxy_protocol_mark,
        routes: route_marks,
        redirects: redirect_marks,
        rewrites: rewrite_marks,
        headers: header_marks,
        cors: cors_marks,
        access: access_marks,
    };
    (site, marks)
}

/// Replaces `$site` by the name of the site.
fn with_site_name(mut site: SiteConfig) -> SiteConfig {
    let name = match site.names.first() {
        Some(SiteName::Exact(name) | SiteName::Wildcard(name)) => name.clone(),
        _ => String::new(),
    };
    let replace = |template: &mut Template| *template = template.with_site(&name);
    let replace_all = |lines: &mut Vec<(String, Template)>| {
        lines.iter_mut().for_each(|(_, value)| replace(value));
    };
    for rule in &mut site.headers {
        replace_all(&mut rule.set);
        replace_all(&mut rule.append);
    }
    site.redirects.iter_mut().for_each(|it| replace(&mut it.to));
    site.rewrites.iter_mut().for_each(|it| replace(&mut it.to));
    for route in &mut site.routes {
        replace_all(&mut route.request.set);
        replace_all(&mut route.request.append);
        route.request.host.iter_mut().for_each(replace);
        match &mut route.to {
            RouteTo::Cgi(cgi) => replace_all(&mut cgi.env),
            RouteTo::FastCgi(fastcgi) => replace_all(&mut fastcgi.env),
            RouteTo::Module(_) | RouteTo::Origin(_) | RouteTo::Pages(_) => {}
        }
    }
    site
}

/// Reads the root. It may be missing if a route takes all paths, or if the site has redirects and no routes.
fn root_of(
    section: &ConfigSection<'_>,
    item: Option<ConfigValue<'_>>,
    routes: &[RouteConfig],
    redirects: &[RedirectConfig],
) -> (SiteRoot, Option<KeyPosition>) {
    // A route with `missing` needs the root: it applies only if the file does not exist.
    let is_all = |route: &RouteConfig| !route.missing && route.pattern == PathPattern::everything();
    // Paths without a redirect are answered with 404, which needs no folder.
    let redirects_only = !redirects.is_empty() && routes.is_empty();
    if item.is_none() && !redirects_only && !routes.iter().any(is_all) {
        section.report("root is missing", "");
    }
    let root = item.and_then(|item| Some((root(&item)?, item.position)));
    match root {
        Some((root, position)) => (root, Some(position)),
        None => (SiteRoot::None, None),
    }
}

fn names(section: &ConfigSection<'_>) -> (Vec<SiteName>, Vec<KeyPosition>) {
    let items = section
        .item("names")
        .map(ConfigValue::one_or_many)
        .unwrap_or_default();
    // A list with only invalid names must not make the site the default site.
    let named = !items.is_empty();
    let names = items
        .into_iter()
        .filter_map(|item| Some((item.read(SiteName::parse)?, item.position)));
    let names: (Vec<SiteName>, Vec<KeyPosition>) = names.unzip();
    if named {
        names
    } else {
        (vec![SiteName::Default], vec![section.position.clone()])
    }
}

fn listen(
    section: &ConfigSection<'_>,
    default: &SiteConfig,
    has_tls: bool,
) -> (Vec<SocketAddr>, Vec<KeyPosition>) {
    let Some(item) = section.item("listen") else {
        // A TLS site without `listen` gets no plain default listener.
        if has_tls {
            return Default::default();
        }
        return (
            default.listen.clone(),
            vec![section.position.clone(); default.listen.len()],
        );
    };
    if item.is_empty_array() && !has_tls {
        item.report(
            "no address is listed",
            "at least one ADDR:PORT; or leave the key out",
        );
    }
    let items = item.one_or_many().into_iter();
    items.filter_map(listen_address).unzip()
}

/// Reads an address of a listener. A port alone is the loopback address, so that a server in development is not open to
/// the network; other servers take it for all addresses.
pub(crate) fn listen_address(item: ConfigValue<'_>) -> Option<(SocketAddr, KeyPosition)> {
    let address = item.read(value::address)?;
    let is_port = item.plain_text().is_some_and(|text| !text.contains(':'));
    // Other servers listen at all addresses then.
    if is_port {
        let port = address.port();
        item.warn(
            format!(
                "{} listens only at {address}, not on the network",
                item.to_display()
            ),
            format!("*:{port} for all addresses of this machine, {address} for none but this one"),
        );
    }
    Some((address, item.position))
}

/// Reads the address prefixes of a key; also returns the key's position.
fn prefixes(
    section: &ConfigSection<'_>,
    key: &'static str,
) -> (Vec<AddressPrefix>, Option<KeyPosition>) {
    let Some(item) = section.item(key) else {
        return (Vec::new(), None);
    };
    let position = item.position.clone();
    (address_prefixes(&item.one_or_many()), Some(position))
}

fn root(item: &ConfigValue<'_>) -> Option<SiteRoot> {
    const HOST: &str = "{host}";
    let text = item.text()?;
    // In the usual case, all hosts share one folder.
    if !text.contains(HOST) {
        return Some(SiteRoot::Folder(item.resolve(text)));
    }
    let components: Vec<&str> = text.split('/').collect();
    // `{host}` must be a whole path component: a host name must not be combined with other text.
    let index = components.iter().position(|component| *component == HOST);
    let Some(index) = index.filter(|_| text.matches(HOST).count() == 1) else {
        let allowed = "{host} once, as a whole component: /srv/{host}/htdocs";
        item.report(
            format!("{} has {{host}} in the wrong place", item.to_display()),
            allowed,
        );
        return None;
    };
    let (prefix, suffix) = (components.get(..index)?, components.get(index + 1..)?);
    if suffix
        .iter()
        .any(|component| matches!(*component, "." | ".."))
    // `..` after `{host}` would lead to the folders of other hosts.
    {
        item.report(
            format!("{} leaves the folder of the host", item.to_display()),
            "no . and .. after {host}",
        );
        return None;
    }
    let suffix: Vec<&str> = suffix
        .iter()
        .copied()
        .filter(|component| !component.is_empty())
        .collect();
    let prefix = match prefix {
        // The host folders are in the root of the file system.
        [""] => "/".to_string(),
        prefix => prefix.join("/"),
    };
    Some(SiteRoot::PerHost {
        prefix: item.resolve(&prefix),
        suffix: suffix.join("/"),
    })
}

fn index(section: &ConfigSection<'_>) -> Option<Vec<String>> {
    let items = section.item("index")?.one_or_many();
    Some(items.iter().filter_map(file_name).collect())
}

/// The index files of a site without the key `index`: the default, and `index` of each FastCGI route that executes it.
/// So `index.php` of a folder is executed, instead of the request going to a front controller.
fn index_with(mut names: Vec<String>, routes: &[RouteConfig]) -> Vec<String> {
    for route in routes.iter().filter(|route| !route.missing) {
        let RouteTo::FastCgi(fastcgi) = &route.to else {
            continue;
        };
        let runs_index = route
            .pattern
            .matches(format!("/{}", fastcgi.index).as_bytes());
        // A front controller is not selected by the index file's path.
        if runs_index && fastcgi.script.is_none() && !names.contains(&fastcgi.index) {
            names.push(fastcgi.index.clone());
        }
    }
    names
}

fn error_pages(section: &ConfigSection<'_>) -> (BTreeMap<u16, String>, Vec<KeyPosition>) {
    let Some(pages) = section.section("error_pages") else {
        return Default::default();
    };
    let (mut marked, mut classes) = (BTreeMap::new(), Vec::new());
    for (key, position, item) in pages.entries() {
        let range = parse_status(key).filter(|range| range.contains_errors());
        let Some(range) = range else {
            pages.report_at(
                &position,
                format!("{key:?} is not a status of an error"),
                "400 to 599, or \"4xx\" or \"5xx\"",
            );
            continue;
        };
        let Some(page) = absolute_path(&item).map(|path| (path, item.position)) else {
            continue;
        };
        match range {
            StatusRange::Exact(status) => drop(marked.insert(status, page)),
            StatusRange::Class(class) => classes.push((class, page)),
        }
    }
    // A page for one status precedes that of its class.
    for (class, page) in classes {
        for status in class * 100..(class + 1) * 100 {
            marked.entry(status).or_insert_with(|| page.clone());
        }
    }
    let marks = marked
        .values()
        .map(|(_, position)| position.clone())
        .collect();
    (
        marked
            .into_iter()
            .map(|(status, (path, _))| (status, path))
            .collect(),
        marks,
    )
}

fn types(section: ConfigSection<'_>) -> Vec<(String, String)> {
    let mut types = Vec::new();
    for (extension, position, item) in section.entries() {
        let plain = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_+~".contains(&byte)
        };
        if extension.is_empty() || !extension.bytes().all(plain) {
            let allowed = "lower-case letters, digits, - _ + ~, without a dot";
            section.report_at(
                &position,
                format!("{extension:?} is not a file name extension"),
                allowed,
            );
            continue;
        }
        // Extensions are compared in lower case.
        types.extend(media_type(&item).map(|media_type| (extension.to_string(), media_type)));
    }
    types
}

/// Reads a media type: `type/subtype`, with optional parameters (RFC 9110 §8.3.1).
fn media_type(item: &ConfigValue<'_>) -> Option<String> {
    let text = item.value_text();
    let is_media_type = |text: &&str| {
        let (essence, parameters) = text.split_once(';').unwrap_or((text, "charset=utf-8"));
        let parameter = |text: &str| {
            let pair = text.trim_matches([' ', '\t']).split_once('=');
            pair.is_some_and(|(name, value)| rules::is_token(name) && !value.is_empty())
        };
        essence
            .trim_end()
            .split_once('/')
            .is_some_and(|(kind, sub)| rules::is_token(kind) && rules::is_token(sub))
            && parameters.split(';').all(parameter)
            && rules::is_field_value(text)
    };
    let media_type = text.filter(is_media_type);
    if media_type.is_none() {
        item.refuse(
            "a media type",
            "type/subtype, with parameters or without: text/css; charset=utf-8",
        );
    }
    media_type.map(str::to_string)
}

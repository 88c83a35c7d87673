//! Checks that involve more than one key: names and listeners of all sites, and paths on disk.
//!
//! Only [`paths`] accesses files. Permissions are not checked: the server discovers them when it serves a file.

use crate::reader::{ConfigSource, KeyPosition};
use crate::site_marks::SiteMarks;
use crate::{
    AdminConfig, AliasConfig, ModuleCode, ModuleConfig, ProcessConfig, RouteTo, SiteConfig,
    SiteName, SiteRoot, SoftirqMode, module, site_rule,
};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// Reports an address of the admin service at which a site listens, too: only one of them could answer.
pub(crate) fn admin_listener(
    source: &ConfigSource<'_>,
    position: &KeyPosition,
    admin: &AdminConfig,
    sites: &[(SiteConfig, SiteMarks)],
) {
    // Port 0 stands for any free port.
    let Some(own) = admin.listen.filter(|own| own.port() != 0) else {
        return;
    };
    let is_same = |other: &&SocketAddr| {
        let is_every = own.ip().is_unspecified() || other.ip().is_unspecified();
        own.port() == other.port() && (own.ip() == other.ip() || is_every)
    };
    for (index, (site, _)) in sites.iter().enumerate() {
        if let Some(other) = site.addresses().find(is_same) {
            source.report(
                position,
                format!("{own} is in use: site[{index}] listens at {other}"),
                "an address and port of its own",
            );
        }
    }
}

/// Checks that a host name occurs once per listen address, and that no two listen addresses need the same port.
pub(crate) fn names_and_listeners(source: &ConfigSource<'_>, sites: &[(SiteConfig, SiteMarks)]) {
    let mut owners: HashMap<(SocketAddr, &SiteName), usize> = HashMap::new();
    for (index, (site, marks)) in sites.iter().enumerate() {
        // Repeated addresses within a site are reported here; the comparison between sites skips them.
        each_address_once(source, site, marks);
        let addresses = site.addresses().enumerate();
        // An address that the same site repeats is reported once, by `each_address_once`.
        for (_, address) in
            addresses.filter(|(address_index, _)| !is_repeated(site, *address_index))
        {
            for (name, position) in site.names.iter().zip(&marks.names) {
                // A second site with the name at the address would never be selected.
                let Some(first_site) = owners.insert((*address, name), index) else {
                    continue;
                };
                let (name_text, allowed) = match name {
                    SiteName::Default => (
                        "the default site".to_string(),
                        "one site without names (or with \"_\") at each address",
                    ),
                    SiteName::Exact(host) => {
                        (format!("{host:?}"), "each name once at each address")
                    }
                    SiteName::Wildcard(host) => {
                        (format!("\"*.{host}\""), "each name once at each address")
                    }
                };
                source.report(
                    position,
                    format!("{name_text} at {address} is already site[{first_site}]"),
                    allowed,
                );
            }
        }
    }
    wildcard_conflicts(source, sites);
}

/// Checks that all sites of an address trust the same proxies for PROXY headers, and that softirq is off for sites with
/// the PROXY protocol: the packet program would read a PROXY header as a request.
pub(crate) fn proxies(
    source: &ConfigSource<'_>,
    sites: &[(SiteConfig, SiteMarks)],
    server: &ProcessConfig,
) {
    for (index, (site, marks)) in sites.iter().enumerate() {
        let position = marks.proxy_protocol.as_ref();
        // The problem is reported at the key; if only the other site has the key, at this site's first address.
        let position = position.or(marks.listen.first()).or(marks.tls.first());
        let Some(position) = position else { continue };
        let before = sites.iter().take(index).enumerate();
        let differs = |other_site: &SiteConfig| {
            // The PROXY header precedes TLS and Host, so the site is not known yet when it is read.
            let shared = |address: &SocketAddr| other_site.addresses().any(|it| it == address);
            other_site.proxy_protocol != site.proxy_protocol && site.addresses().any(shared)
        };
        if let Some((other, _)) = before.into_iter().find(|(_, (site, _))| differs(site)) {
            source.report(
                position,
                format!("site[{other}] shares an address, but has another proxy_protocol"),
                "the same for all sites of an address",
            );
        }
        // The packet program answers requests before user space sees the connection.
        if !site.proxy_protocol.is_empty() && server.softirq != SoftirqMode::Off {
            source.report(position, NO_SOFTIRQ, "either of both");
        }
    }
}

/// The message for a site that uses the PROXY protocol while the softirq level is on.
pub const NO_SOFTIRQ: &str =
    "server.softirq answers requests before the server, and reads no PROXY header";

/// Checks that roots and folders of programs are folders and that modules are files. Error pages are checked for sites
/// with a single root.
pub(crate) fn paths(
    source: &ConfigSource<'_>,
    sites: &[(SiteConfig, SiteMarks)],
    modules: &[(ModuleConfig, module::ModuleMarks)],
) {
    module_files(source, modules);
    for (site, marks) in sites {
        program_folders(source, site, marks);
        site_rule::check_files(source, site, marks);
        alias_folders(source, site, marks);
        let Some(position) = &marks.root else {
            continue;
        };
        let folder = match &site.root {
            SiteRoot::Folder(folder) => folder,
            SiteRoot::PerHost { prefix, .. } => prefix,
            SiteRoot::None => continue,
        };
        // If the folder does not exist, its error pages are not reported in addition.
        if let Err(reason) = folder_problem(folder) {
            source.report(
                position,
                format!("{} {reason}", folder.display()),
                "a folder",
            );
            continue;
        }
        // Each host has its own folder, so the error pages cannot be checked here.
        if matches!(site.root, SiteRoot::PerHost { .. }) {
            continue;
        }
        let mut checked = BTreeSet::new();
        for (page, position) in site.error_pages.values().zip(&marks.error_pages) {
            // All statuses of a class have the same page.
            if !checked.insert(position.offset) {
                continue;
            }
            let (folder, path) = AliasConfig::place_of(&site.aliases, folder, page);
            let path = folder.join(path);
            // The page is read as soon as it is there.
            if !path.is_file() {
                source.warn(
                    position,
                    format!(
                        "{} is not a file, so errors have the built-in page",
                        path.display()
                    ),
                    "a file under the root or in the folder of an alias",
                );
            }
        }
    }
}

fn module_files(source: &ConfigSource<'_>, modules: &[(ModuleConfig, module::ModuleMarks)]) {
    for (module, marks) in modules {
        // Linked modules have no file.
        let (ModuleCode::Library(path) | ModuleCode::Wasm(path), Some(position)) =
            (&module.code, &marks.file)
        else {
            continue;
        };
        if !path.is_file() {
            source.report(
                position,
                format!("{} is not a file", path.display()),
                "a file",
            );
        }
    }
}

fn program_folders(source: &ConfigSource<'_>, site: &SiteConfig, marks: &SiteMarks) {
    for (route, marks) in site.routes.iter().zip(&marks.routes) {
        let RouteTo::Cgi(cgi) = &route.to else {
            continue;
        };
        // `cgi` may also name a single program, which needs no folder.
        let Some(path) = cgi.path.as_ref().filter(|path| !path.is_file()) else {
            continue;
        };
        if let Err(reason) = folder_problem(path) {
            let message = format!("{} {reason}", path.display());
            source.report(&marks.handler, message, "a folder");
        }
    }
}

fn alias_folders(source: &ConfigSource<'_>, site: &SiteConfig, marks: &SiteMarks) {
    for (alias, position) in site.aliases.iter().zip(&marks.aliases) {
        // Like the root, the folder of an alias must exist when the server starts.
        if let Err(reason) = folder_problem(&alias.folder) {
            let message = format!("{} {reason}", alias.folder.display());
            source.report(position, message, "a folder");
        }
    }
}

/// Whether the same address occurs earlier in the site's list.
fn is_repeated(site: &SiteConfig, index: usize) -> bool {
    let address = site.addresses().nth(index);
    let mut before = site.addresses().take(index);
    before.any(|other| Some(other) == address)
}

fn each_address_once(source: &ConfigSource<'_>, site: &SiteConfig, marks: &SiteMarks) {
    let kinds = [
        (&site.listen[..], &marks.listen),
        (site.tls_addresses(), &marks.tls),
    ];
    for (addresses, marks) in kinds {
        for (index, (address, position)) in addresses.iter().zip(marks).enumerate() {
            if addresses[..index].contains(address) {
                source.report(
                    position,
                    format!("{address} is listed twice"),
                    "each address once",
                );
            }
        }
    }
}

/// Reports `0.0.0.0:PORT` next to `[::]:PORT`: the latter accepts IPv4 too, so both cannot be bound.
fn wildcard_conflicts(source: &ConfigSource<'_>, sites: &[(SiteConfig, SiteMarks)]) {
    let addresses = || {
        sites
            .iter()
            .flat_map(|(site, marks)| site.addresses().zip(marks.listen.iter().chain(&marks.tls)))
    };
    for (address, position) in addresses() {
        let is_unspecified_v4 = matches!(address.ip(), IpAddr::V4(ip) if ip.is_unspecified());
        let unspecified_v6 = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, address.port()));
        // `[::]` accepts IPv4, too, so the second bind would fail.
        if is_unspecified_v4 && addresses().any(|(other, _)| *other == unspecified_v6) {
            let message =
                format!("{address} is included in {unspecified_v6}, which is configured too");
            source.report(
                position,
                message,
                format!("*:{} for IPv4 and IPv6 together", address.port()),
            );
        }
    }
}

fn folder_problem(path: &Path) -> Result<(), String> {
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err("is not a folder".to_string()),
        Err(error) => Err(format!("cannot be used: {error}")),
    }
}

//! The output of a started server: its sites with their URLs, and warnings about sites without content.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};

use lowroad_config::SiteRoot;
use lowroad_engine::ListenerId;
use lowroad_routes::routes::Route;
use lowroad_site::explain_files;
use lowroad_site::listeners::ListenerAddresses;

use crate::running_server::RunningServer;

/// Warns about sites without content at `/`, and about inherited sockets that no site uses.
pub fn warn_about_unserved(running: &RunningServer) {
    for fault in running
        .listeners
        .addresses_for(&running.config.sites)
        .faults()
    {
        running.logger.warn(format_args!("{fault}"));
    }
    for site in &running.sites.all {
        let is_folder =
            matches!(site.rules.config.root, SiteRoot::Folder(_)) && !site.rules.config.listing;
        if is_folder
            && !site.rules.has_route(b"/")
            && site.access_policy.is_none()
            && let Some(reason) = explain_files::find_cause(site, b"", b"/")
        {
            running
                .logger
                .warn(format_args!("/ is not served: {reason}"));
        }
    }
}

/// Prints the sites and their URLs to standard output.
pub fn announce(running: &RunningServer) {
    let mut lines = String::new();
    let addresses = running.listeners.addresses_for(&running.config.sites);
    for site in &running.sites.all {
        let urls = urls(running, &addresses, &site.rules.config);
        let listing = if site.rules.config.listing {
            ", listing folders"
        } else {
            ""
        };
        let content = match site.rules.config.root {
            SiteRoot::None if site.routes.is_empty() => "redirects".to_owned(),
            SiteRoot::None => site
                .routes
                .iter()
                .map(Route::name)
                .collect::<Vec<_>>()
                .join(", "),
            _ => site.rules.base().display().to_string(),
        };
        let line = format!("serving {content}{listing} at {}\n", urls.join(" "));
        lines.push_str(&line);
    }
    let cache_mb = running.config.server.cache_len_max >> 20;
    let count = running.workers.len();
    let workers = if count == 1 {
        "1 worker".into()
    } else {
        format!("{count} workers")
    };
    let ports: BTreeSet<u16> = running
        .listeners
        .http3_addresses()
        .map(|it| it.port())
        .collect();
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let http3 = match ports.is_empty() {
        true => String::new(),
        false => format!(", HTTP/3 at UDP port {}", ports.join(", ")),
    };
    lines.push_str(&format!(
        "{workers}, {cache_mb} MiB cache{http3}; Ctrl-C ends\n"
    ));
    let mut out = std::io::stdout();
    // The server also runs if standard output is closed.
    let _ = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
}

fn urls(
    running: &RunningServer,
    listener_addresses: &ListenerAddresses<'_>,
    site: &lowroad_config::SiteConfig,
) -> Vec<String> {
    let url = |id: &ListenerId| {
        let scheme = match running.sites.tls_endpoint(*id) {
            Some(_) => "https",
            None => "http",
        };
        let mut addresses = running.listeners.addresses.iter();
        match addresses.find(|(listener_id, _)| listener_id == id) {
            Some((_, address)) => format!("{scheme}://{}/", reachable(*address)),
            None => "a Unix socket".into(),
        }
    };
    listener_addresses.for_site(site).iter().map(url).collect()
}

/// An address at which this machine can reach a listener: the loopback address instead of the unspecified one.
fn reachable(listener: SocketAddr) -> SocketAddr {
    match listener.ip() {
        // A listener at [::] accepts IPv4, too.
        ip if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, listener.port()).into(),
        ip => (ip, listener.port()).into(),
    }
}

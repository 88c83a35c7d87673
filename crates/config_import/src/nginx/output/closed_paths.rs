//! Paths that are refused, since the site would open more than nginx does.

use super::opened_paths::handler_keys;
use super::origins::PassUrl;
use super::routes::named_handler;
use crate::nginx::level::Translation;
use crate::nginx::locations::Location;
use crate::nginx::servers::Server;
use crate::nginx::settings::LevelSettings;
use crate::report::DirectiveOutcome;

/// Refuses the paths of locations whose translation would send or run what nginx does not.
pub fn close_unsafe_paths(server: &mut Server, translation: &mut Translation) {
    for location in server.locations.iter_mut().filter(|it| it.name.is_none()) {
        if has_unknown_origin(location) {
            let way = "the paths are refused until then: an origin is an http or https URL";
            close(location, way, translation);
        }
        if has_unknown_clients(&location.settings) {
            let way = "the paths are refused until then: the address of a client is that of its proxy, see real_ip_header";
            close(location, way, translation);
        }
    }
    for index in 0..server.locations.len() {
        let location = &server.locations[index];
        let is_handled = location.name.is_none() && has_route(server, location);
        let is_closed = location.settings.access.is_closed();
        if is_handled && !is_closed && handler_keys(server, location).is_none() {
            let way = "the paths are refused until then: write a route for exactly these paths";
            close(&mut server.locations[index], way, translation);
        }
    }
}

/// Whether a handler answers, perhaps for missing files.
fn has_route(server: &Server, location: &Location) -> bool {
    let content = &location.content;
    content.proxy.is_some()
        || content.fastcgi.is_some()
        || named_handler(server, location).is_some()
}

/// Whether rules of addresses would concern the proxies of clients.
fn has_unknown_clients(settings: &LevelSettings) -> bool {
    let is_reported = settings.is_proxy_protocol || settings.trusts_forwarded;
    let mut entries = settings.access.addresses.iter();
    !settings.trusted_proxies.is_empty() && !is_reported && entries.any(|it| it.address.is_some())
}

/// Whether no route can have the origin of a location.
fn has_unknown_origin(location: &Location) -> bool {
    let pass = location.content.proxy.as_ref();
    pass.is_some_and(|it| PassUrl::parse(&it.value).is_none())
}

/// Refuses the paths of a location until it is translated by hand.
fn close(location: &mut Location, way: &str, translation: &mut Translation) {
    location.settings.access.has_unknown_guard = true;
    let outcome = DirectiveOutcome::ByHand(way.to_string());
    translation.report.change(location.entry, outcome);
}

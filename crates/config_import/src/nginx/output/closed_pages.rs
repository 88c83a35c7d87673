//! Error pages that nginx does not send to every client: a page of Lowroad has no access rules.

use std::collections::{BTreeMap, BTreeSet};

use super::access::has_path;
use crate::nginx::level::Translation;
use crate::nginx::servers::Server;
use crate::nginx::settings::AccessSettings;
use crate::report::DirectiveOutcome;

/// Removes the error pages of a server that another location protects or a script answers.
pub fn drop_protected_pages(server: &mut Server, translation: &mut Translation) {
    let unsent = unsent_pages(server);
    for (entry, _) in &unsent {
        let way = "the built-in page is sent until then: a location protects the page, or a script answers";
        let outcome = DirectiveOutcome::ByHand(way.to_string());
        translation.report.change(*entry, outcome);
    }
    let of_locations = server.locations.iter_mut().map(|it| &mut it.settings);
    for settings in std::iter::once(&mut server.settings).chain(of_locations) {
        let pages = &mut settings.error_pages;
        pages.retain(|page| !unsent.contains(&(page.entry, page.value.0)));
    }
}

/// The directives and statuses of these pages.
fn unsent_pages(server: &Server) -> BTreeSet<(usize, u16)> {
    let of_locations = server.locations.iter().map(|it| &it.settings);
    let settings = std::iter::once(&server.settings).chain(of_locations);
    // Locations inherit the pages of the server, so each is looked up once.
    let pages: BTreeMap<(usize, u16), &str> = settings
        .flat_map(|it| &it.error_pages)
        .map(|page| ((page.entry, page.value.0), page.value.1.as_str()))
        .collect();
    let unsent = pages
        .into_iter()
        .filter(|((_, status), path)| !is_sent(server, *status, path));
    unsent.map(|(page, _)| page).collect()
}

fn is_sent(server: &Server, status: u16, path: &str) -> bool {
    let mut locations = server.locations.iter();
    let Some(location) = locations.find(|it| it.name.is_none() && has_path(it, path)) else {
        return true;
    };
    let access = &location.settings.access;
    // A client without permission for the whole site gets this page, too.
    let is_admitted = !matches!(status, 401 | 403) && *access == server.settings.access;
    location.content.fastcgi.is_none()
        && !access.is_closed()
        && (is_admitted || !access.asks_for_client())
}

impl AccessSettings {
    /// Whether it depends on the client, by address or by authentication.
    fn asks_for_client(&self) -> bool {
        let mut addresses = self.addresses.iter();
        self.password.realm.is_some()
            || self.auth_request.is_some()
            || addresses.any(|it| !it.is_allowed)
    }
}

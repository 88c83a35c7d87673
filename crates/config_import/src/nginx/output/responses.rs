//! Fixed responses: `return` with a text as rules with `respond`.

use crate::document::{ConfigDocument, ConfigTable};
use crate::nginx::level::Translation;
use crate::nginx::locations::Location;
use crate::nginx::servers::Server;
use crate::path_overlap::may_overlap;
use crate::report::DirectiveOutcome;
use crate::toml_values::quoted;

/// The statuses that a rule can answer with; 204 has no text.
const STATUSES: std::ops::RangeInclusive<u16> = 200..=204;

/// Writes the fixed responses of locations. nginx answers them before it checks addresses and passwords, so these rules
/// come first.
pub fn write_responses(
    server: &Server,
    translation: &mut Translation,
    document: &mut ConfigDocument,
) {
    for (index, location) in server.locations.iter().enumerate() {
        let Some(respond) = &location.content.respond else {
            continue;
        };
        let (status, text) = &respond.value;
        let has_text = !text.is_empty() && *status != 204;
        let is_fixed = STATUSES.contains(status) && !text.contains('$');
        if !is_fixed || !is_first(server, index) {
            continue;
        }
        for pattern in location.patterns() {
            let table = ConfigTable::new("[[site.rule]]")
                .entry(respond.entry)
                .key("pattern", quoted(&pattern));
            let media_type = media_type(location);
            let text = has_text.then(|| format!(", text = {}{media_type}", quoted(text)));
            let text = text.unwrap_or_default();
            document.push(table.key("respond", format!("{{ status = {status}{text} }}")));
        }
        let report = &mut translation.report;
        report.change(respond.entry, DirectiveOutcome::translated());
    }
}

/// The key `type` of a response; empty for the default of nginx.
fn media_type(location: &Location) -> String {
    let own = location.settings.default_type.as_deref();
    let own = own.filter(|it| *it != "text/plain");
    own.map(|it| format!(", type = {}", quoted(it)))
        .unwrap_or_default()
}

/// Whether nothing that nginx does before the `return` of a location concerns its requests.
fn is_first(server: &Server, index: usize) -> bool {
    let location = &server.locations[index];
    let is_inert = location.content.changes.is_empty()
        && server.content.changes.is_empty()
        && server.content.redirect.is_none()
        && server.content.host_redirects.is_empty()
        && location.settings.access.conditional_refusals
            == server.settings.access.conditional_refusals
        && !location.settings.access.has_unknown_guard
        && location.settings.access.refusal.is_none();
    let takes_paths =
        |other: &Location| other.name.is_none() && may_overlap(&other.globs, &location.globs);
    let is_narrower = location.globs.exceptions.is_empty() && !location.globs.is_wider;
    is_inert
        && is_narrower
        && location.name.is_none()
        && !location.content.is_internal
        && !server.locations[..index].iter().any(takes_paths)
}

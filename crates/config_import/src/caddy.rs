//! Imports a Caddyfile.
//!
//! A site becomes a list of steps in the order in which Caddy applies its directives (`caddy::order`, `caddy::site`),
//! each with the requests that it concerns. `caddy::output` writes the steps as tables.

use std::collections::BTreeSet;
use std::path::Path;

mod address;
mod compared_addresses;
mod directives;
mod globals;
mod lexer;
mod listeners;
mod matchers;
mod order;
mod output;
mod placeholders;
mod plan;
mod site;
mod tree;
mod values;

#[cfg(test)]
mod protection_tests;
#[cfg(test)]
mod tests;

pub use tree::CaddySyntaxError;

use crate::ConfigImport;
use crate::checked::checked;
use crate::document::{ConfigDocument, ConfigTable};
use crate::origin_tables::OriginTables;
use crate::report::{DirectiveOutcome, ImportReport, ReportEntry, unread};
use crate::toml_values::quoted;

use address::SiteAddress;
use compared_addresses::ComparedAddresses;
use globals::GlobalOptions;
use listeners::site_groups;
use output::{SitePlan, write_site};
use placeholders::PlaceholderNames;
use site::{SiteReader, SiteSettings, StepScope};
use tree::{CaddyDirective, read_file, read_text};

/// Reads a Caddyfile with its imports, and translates it.
///
/// # Errors
/// A file that can't be read, or a mistake in the syntax.
pub fn import(file: &Path) -> Result<ConfigImport, CaddySyntaxError> {
    Ok(translate(read_file(file)?, file))
}

/// Translates the text of a Caddyfile.
///
/// # Errors
/// A mistake in the syntax.
pub fn import_text(text: &str, file: &Path) -> Result<ConfigImport, CaddySyntaxError> {
    Ok(translate(read_text(text, file)?, file))
}

fn head(file: &Path) -> Vec<String> {
    vec![
        format!("Translated from {} by `lowroad import caddy`.", file.display()),
        String::new(),
        "`keep = \"never\"` stores no responses, as Caddy does. Without it, responses are stored as they permit."
            .to_string(),
        "Hosts without a site get 421; names that begin with a dot are not sent.".to_string(),
    ]
}

fn number(directives: &mut [CaddyDirective], report: &mut ImportReport) {
    for directive in directives {
        directive.id = report.add(ReportEntry {
            place: format!("{}:{}", directive.file.display(), directive.line),
            directive: directive.to_text(),
            outcome: unread(),
        });
        // The lines of passwords and maps are data.
        let is_data = matches!(
            directive.name(),
            "basic_auth" | "basicauth" | "map" | "vars"
        );
        if let Some(block) = directive.block.as_mut().filter(|_| !is_data) {
            number(block, report);
        }
    }
}

/// Whether a block is a route that sites invoke by its name: `&(name)`.
fn is_named_route(block: &CaddyDirective) -> bool {
    block.name().starts_with("&(")
}

/// One block of a site, read.
struct ReadSite {
    addresses: Vec<SiteAddress>,
    steps: Vec<plan::SiteStep>,
    settings: SiteSettings,
    compared: ComparedAddresses,
    entry: usize,
    place: String,
}

fn translate(mut top: Vec<CaddyDirective>, file: &Path) -> ConfigImport {
    let mut report = ImportReport::default();
    number(&mut top, &mut report);
    let mut globals = GlobalOptions::default();
    for block in top.iter().filter(|it| it.words.is_empty()) {
        globals.read(block, &mut report);
    }
    let mut maps = Vec::new();
    let blocks = top
        .iter()
        .filter(|it| !it.words.is_empty() && it.block.is_some() && !is_named_route(it));
    let sites: Vec<ReadSite> = blocks
        .map(|block| read_site(block, &globals, &mut report, &mut maps))
        .collect();
    let document = write(&sites, &globals, maps, &mut report, head(file));
    checked(document, report, sites.len())
}

fn read_site(
    block: &CaddyDirective,
    globals: &GlobalOptions,
    report: &mut ImportReport,
    maps: &mut Vec<(String, ConfigTable)>,
) -> ReadSite {
    let tls = block.children().iter().find(|it| it.name() == "tls");
    // `tls EMAIL` alone names no certificate.
    let has_tls = tls.is_some_and(|it| !it.arg(1).is_empty() || it.arg(0) == "internal");
    let words = block.words.iter().flat_map(|it| it.text.split(','));
    let words: Vec<&str> = words.filter(|it| !it.is_empty()).collect();
    let addresses = words
        .iter()
        .filter_map(|it| SiteAddress::parse(it, globals.ports, has_tls));
    let addresses: Vec<SiteAddress> = addresses.collect();
    let outcome = match addresses.len() == words.len() {
        true => DirectiveOutcome::translated(),
        false => DirectiveOutcome::ByHand(
            "addresses are hosts with a port: use routes for paths".to_string(),
        ),
    };
    report.change(block.id, outcome);
    let name = addresses.iter().find_map(|it| it.host.clone());
    let name = name
        .unwrap_or_else(|| "default".to_string())
        .replace('*', "_");
    let mut reader = SiteReader {
        report,
        order: &globals.order,
        maps,
        name,
        matchers: matchers::NamedMatchers::default(),
        placeholders: PlaceholderNames::default(),
        steps: Vec::new(),
        settings: SiteSettings::default(),
    };
    let compared = ComparedAddresses::of_block(block);
    if compared.is_ambiguous(globals) {
        let way = "behind trusted_proxies, remote_ip and client_ip are different addresses, and `addresses` is one of them";
        let outcome = reader.refuse(&StepScope::default(), block, way);
        reader.report.change(block.id, outcome);
    }
    reader.read_block(block.children(), StepScope::default(), false);
    report_unlisted(&reader.settings, reader.report);
    ReadSite {
        addresses,
        steps: reader.steps,
        settings: reader.settings,
        compared,
        entry: block.id,
        place: format!("{}:{}", block.file.display(), block.line),
    }
}

/// Reports the file servers of which no folders are listed, because other ones of the site list none.
fn report_unlisted(settings: &SiteSettings, report: &mut ImportReport) {
    let is_mixed = settings.listings.iter().any(|it| !it.is_listed);
    for listing in settings
        .listings
        .iter()
        .filter(|it| is_mixed && it.is_listed)
    {
        let way = "no folders are listed, since `listing` would list those of other file servers: write a site for these paths";
        report.change(listing.entry, DirectiveOutcome::ByHand(way.to_string()));
    }
}

fn write(
    sites: &[ReadSite],
    globals: &GlobalOptions,
    maps: Vec<(String, ConfigTable)>,
    report: &mut ImportReport,
    head: Vec<String>,
) -> ConfigDocument {
    let plain = sites
        .iter()
        .flat_map(|it| &it.addresses)
        .filter(|it| !it.is_tls);
    let plain = plain.filter(|it| it.port == globals.ports.http);
    let plain_names: BTreeSet<String> = plain
        .map(|it| it.host.clone().unwrap_or_default())
        .collect();
    let mut document = ConfigDocument::new(head);
    let mut limits = globals.limits.clone();
    // Caddy has no limit of bodies without request_body.
    limits.push("body_len_max", "\"1024G\"", None);
    document.push(limits);
    let mut origins = OriginTables::default();
    let mut tables = ConfigDocument::default();
    let mut is_automatic = false;
    for site in sites {
        let groups = site_groups(&site.addresses, &site.settings, globals, &plain_names);
        for group in &groups {
            is_automatic |= group.is_automatic(&site.settings);
            if group.needs_dns(&site.settings) {
                let way = "its certificate is local until [acme] has challenge = \"dns-01\" and a hook: then use automatic";
                report.change(site.entry, DirectiveOutcome::ByHand(way.to_string()));
            }
            let own = &site.settings.trusted_proxies;
            let (trusted, is_less) = site.compared.trusted(globals, own);
            // The report has the reason why the site is refused already.
            if is_less && !site.compared.is_ambiguous(globals) {
                let way = "without some trusted_proxies: they would change the address that its matchers compare";
                report.change(site.entry, DirectiveOutcome::ByHand(way.to_string()));
            }
            let plan = SitePlan {
                group,
                steps: &site.steps,
                settings: &site.settings,
                entry: site.entry,
                place: site.place.clone(),
                trusted,
            };
            write_site(&plan, report, &mut origins, &mut tables);
        }
        for log in &site.settings.logs {
            let name = groups.iter().find_map(|it| it.names.first());
            document.push(log.clone().optional_key("site", name.map(|it| quoted(it))));
        }
    }
    if is_automatic {
        for table in globals.acme_tables() {
            document.push(table);
        }
    }
    for (_, table) in maps {
        document.push(table);
    }
    origins.write(&mut document);
    document.append(tables);
    document
}

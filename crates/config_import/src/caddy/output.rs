//! Writes the steps of a site as tables.
//!
//! Caddy takes the first directive that answers, of whatever kind; Lowroad applies rules, then redirects, routes and
//! files. Where a later kind of Lowroad has precedence in Caddy, the table of the earlier kind gets an exception: an
//! `allow` in front of a rule, `not` for a redirect, and for files a rewrite to an alias that no route takes.

use std::collections::BTreeMap;

use super::directives::PAGE_STATUSES;
use super::listeners::SiteGroup;
use super::plan::{AnswerStage, ProxyAction, SiteStep, StepAction};
use super::site::SiteSettings;
use crate::document::{ConfigDocument, ConfigTable};
use crate::origin_tables::OriginTables;
use crate::report::{DirectiveOutcome, ImportReport};
use crate::request_selector::RequestSelector;
use crate::toml_values::{key, list, quoted, size};

mod files;
mod routes;

use files::FilePlaces;

/// A site with all that its tables depend on.
pub struct SitePlan<'p> {
    /// Names and listeners.
    pub group: &'p SiteGroup,
    /// The steps, in order.
    pub steps: &'p [SiteStep],
    /// Other settings.
    pub settings: &'p SiteSettings,
    /// The site's directive in the report.
    pub entry: usize,
    /// Its place, for a comment.
    pub place: String,
    /// The value of `trusted_proxies`.
    pub trusted: Option<String>,
}

impl SitePlan<'_> {
    /// The steps that answer, with their stage.
    fn answers(&self) -> impl Iterator<Item = (usize, &SiteStep, AnswerStage)> {
        let steps = self.steps.iter().enumerate();
        steps.filter_map(|(index, step)| Some((index, step, step.action.stage()?)))
    }

    /// Whether some step answers every request.
    fn is_total(&self) -> bool {
        self.answers()
            .any(|(_, step, _)| step.selector.is_everything() && step.action.answers_all())
    }
}

/// Writes a site.
pub fn write_site(
    plan: &SitePlan<'_>,
    report: &mut ImportReport,
    origins: &mut OriginTables,
    document: &mut ConfigDocument,
) {
    // Rules and rewrites depend on the places of files.
    let places = FilePlaces::new(plan);
    let has_redirects = plan
        .answers()
        .any(|(_, _, stage)| stage == AnswerStage::Redirect);
    let has_handlers = plan
        .answers()
        .any(|(_, _, stage)| stage >= AnswerStage::Route);
    // Without files and routes, a site with redirects answers 404 by itself.
    let is_redirecting = has_redirects && !has_handlers;
    let takes_all = plan.steps.iter().any(|step| {
        step.selector.is_everything()
            && matches!(&step.action, StepAction::Proxy(proxy) if !proxy.is_missing)
    });
    let needs_root = places.root.is_none() && !takes_all && !is_redirecting;
    let stand_in = routes::origin_of_all(plan).filter(|_| needs_root);
    let root = match &places.root {
        Some(root) => Some(root.clone()),
        None if !needs_root || stand_in.is_some() => None,
        // A site has a root; the last rule refuses its files.
        None => Some("/srv".to_string()),
    };
    let is_closed = needs_root || (!plan.is_total() && !is_redirecting);
    document.push(site_table(plan, root.as_deref()));
    plan.group.write_tls(plan.settings, plan.entry, document);
    write_representation(plan, root.is_some(), document);
    places.write_aliases(plan, document);
    write_rules(plan, &places, is_closed, report, document);
    write_redirects(plan, report, document);
    write_rewrites(plan, &places, document);
    write_fields(plan, document);
    routes::write_routes(plan, report, origins, document);
    if let Some((step, proxy)) = stand_in {
        routes::write_stand_in(step, proxy, origins, document);
    }
}

fn site_table(plan: &SitePlan<'_>, root: Option<&str>) -> ConfigTable {
    let mut table = ConfigTable::essential("[[site]]").comment(&format!("site at {}", plan.place));
    let entry = Some(plan.entry);
    if !plan.group.names.is_empty() {
        table.push("names", &list(&plan.group.names), entry);
    }
    if !plan.group.plain.is_empty() {
        table.push("listen", &list(&plan.group.plain), entry);
    }
    if let Some(root) = root {
        table.push("root", &quoted(root), entry);
    }
    let settings = plan.settings;
    if !settings.index.is_empty() {
        table.push("index", &list(&settings.index), entry);
    }
    // The key is one for the site.
    if !settings.listings.is_empty() && settings.listings.iter().all(|it| it.is_listed) {
        table.push("listing", "true", entry);
    }
    if let Some(trusted) = &plan.trusted {
        table.push("trusted_proxies", trusted, entry);
    }
    if let Some(len) = settings.body_len {
        table.push("body_len_max", &size(len), entry);
    }
    table
}

fn write_representation(plan: &SitePlan<'_>, has_root: bool, document: &mut ConfigDocument) {
    let has_routes = plan
        .answers()
        .any(|(_, _, stage)| stage == AnswerStage::Route);
    if plan.settings.compresses && has_routes {
        let table = ConfigTable::new("[site.compress]").entry(plan.entry);
        document.push(table.key("programs", "true"));
    }
    if has_root {
        document.push_filled(error_pages(&plan.settings.error_pages));
    }
}

/// The table of error pages: statuses, pages and entries. One key for a class if all of its statuses have a page, for the most frequent one.
fn error_pages(all: &[(u16, String, usize)]) -> ConfigTable {
    let mut table = ConfigTable::essential("[site.error_pages]");
    let mut pages: BTreeMap<u16, &(u16, String, usize)> = BTreeMap::new();
    for page in all {
        // The first block for a status decides.
        pages.entry(page.0).or_insert(page);
    }
    for class in [4, 5] {
        let of_class: Vec<_> = pages
            .values()
            .filter(|(status, ..)| status / 100 == class)
            .collect();
        let count = |page: &str| of_class.iter().filter(|(_, it, _)| it == page).count();
        let most = of_class.iter().max_by_key(|(_, page, _)| count(page));
        let Some((_, page, entry)) = most.map(|it| (***it).clone()) else {
            continue;
        };
        let mut statuses = PAGE_STATUSES
            .iter()
            .filter(|status| **status / 100 == class);
        if statuses.all(|status| pages.contains_key(status)) && count(&page) > 1 {
            table.push(&format!("{class}xx"), &quoted(&page), Some(entry));
            pages.retain(|status, (_, it, _)| *status / 100 != class || *it != page);
        }
    }
    for (status, page, entry) in pages.into_values() {
        table.push(&status.to_string(), &quoted(page), Some(*entry));
    }
    table
}

fn write_rules(
    plan: &SitePlan<'_>,
    places: &FilePlaces,
    is_closed: bool,
    report: &mut ImportReport,
    document: &mut ConfigDocument,
) {
    let mut allowed = Vec::new();
    for (index, step) in plan.steps.iter().enumerate() {
        match &step.action {
            StepAction::Rule { keys, is_final } => {
                let has = |name: &str| keys.iter().any(|(key, _)| *key == name);
                // This rule must not refuse the requests of steps with precedence.
                if !has("log") && !has("respond") {
                    let end = RuleEnd {
                        index,
                        selector: Some(&step.selector),
                    };
                    allow(plan, places, end, &mut allowed, document);
                }
                // An `allow` does not keep a fixed answer from its paths.
                let selector = match has("respond") {
                    true => rest(plan, index, AnswerStage::Rule),
                    false => Some(step.selector.clone()),
                };
                let Some(selector) = selector else {
                    let way = "other directives have its paths, or can't be left out";
                    report.change(step.entry, DirectiveOutcome::ByHand(way.to_string()));
                    continue;
                };
                let mut comment = step.comment.as_str();
                if *is_final {
                    comment = "";
                }
                let table = rule_table(&selector).comment(comment).entry(step.entry);
                let table = keys
                    .iter()
                    .fold(table, |table, (key, value)| table.key(key, value));
                document.push(table);
            }
            StepAction::Fallback(path)
                if !path.ends_with(".php") && places.is_in_place(plan, index) =>
            {
                let table = rule_table(&step.selector).entry(step.entry);
                document.push(table.key("fallback", quoted(path)));
            }
            _ => {}
        }
    }
    if is_closed {
        let end = RuleEnd {
            index: plan.steps.len(),
            selector: None,
        };
        allow(plan, places, end, &mut allowed, document);
        // An `allow` would send the files that a route for missing ones leaves.
        for (index, step, stage) in plan.answers() {
            let is_covered = |other: &&usize| plan.steps[**other].selector == step.selector;
            let is_left = stage == AnswerStage::Route && !step.action.answers_all();
            if is_left && !allowed.iter().any(|other| is_covered(&other)) {
                let way = "its paths are refused until then: name those without files";
                report.refuse(plan.steps[index].entry, way);
            }
        }
        let comment = "No directive answers other paths.";
        let table = ConfigTable::new("[[site.rule]]")
            .comment(comment)
            .entry(plan.entry);
        document.push(table.key("deny", "404"));
    }
}

/// The requests of a step without those of steps with precedence that Lowroad answers at a later stage.
fn rest(plan: &SitePlan<'_>, index: usize, own: AnswerStage) -> Option<RequestSelector> {
    let mut selector = plan.steps[index].selector.clone();
    let before = plan.answers().take_while(|(other, ..)| *other < index);
    // Requests that a step leaves reach the later ones.
    let before = before.filter(|(_, it, stage)| *stage > own && it.action.answers_all());
    for (_, other, _) in before {
        selector = selector.without(&other.selector)?;
    }
    Some(selector)
}

/// A rule that refuses: its place, and its requests; `None` for all.
#[derive(Clone, Copy)]
struct RuleEnd<'r> {
    index: usize,
    selector: Option<&'r RequestSelector>,
}

/// Allows the requests of steps before a rule that later stages answer.
fn allow(
    plan: &SitePlan<'_>,
    places: &FilePlaces,
    end: RuleEnd<'_>,
    allowed: &mut Vec<usize>,
    document: &mut ConfigDocument,
) {
    let answers: Vec<_> = plan
        .answers()
        .take_while(|(index, ..)| *index < end.index)
        .collect();
    for (index, step, stage) in answers {
        // The cheap tests come first: a site may have many rules.
        if stage == AnswerStage::Rule || allowed.contains(&index) {
            continue;
        }
        // A later rule decides about requests that the step leaves, as far as the paths show.
        let is_file = matches!(&step.action, StepAction::Files(_)) && end.selector.is_none();
        let answers = step.action.answers_all() || is_file;
        if !answers || !end.selector.is_none_or(|it| it.overlaps(&step.selector)) {
            continue;
        }
        allowed.push(index);
        let table = rule_table(&step.selector).entry(step.entry);
        document.push(table.key("allow", "true"));
        // Rules apply to the rewritten path, too.
        if let Some(pattern) = places.hidden_pattern(index) {
            let table = ConfigTable::new("[[site.rule]]").entry(step.entry);
            document.push(table.key("pattern", quoted(&pattern)).key("allow", "true"));
        }
    }
}

fn rule_table(selector: &RequestSelector) -> ConfigTable {
    selector.write("pattern", ConfigTable::new("[[site.rule]]"))
}

fn write_redirects(plan: &SitePlan<'_>, report: &mut ImportReport, document: &mut ConfigDocument) {
    for (index, step) in plan.steps.iter().enumerate() {
        let StepAction::Redirect { to, status, regex } = &step.action else {
            continue;
        };
        let selector = rest(plan, index, AnswerStage::Redirect);
        let Some(selector) = selector else {
            let way =
                "the paths of other directives can't be left out: write the paths of the redirect";
            report.change(step.entry, DirectiveOutcome::ByHand(way.to_string()));
            continue;
        };
        let table = change_table("[[site.redirect]]", &selector, regex.as_deref(), to);
        let table = table.entry(step.entry);
        document.push(match status {
            301 => table,
            status => table.key("status", status.to_string()),
        });
    }
}

fn write_rewrites(plan: &SitePlan<'_>, places: &FilePlaces, document: &mut ConfigDocument) {
    for step in plan.steps {
        if let StepAction::Rewrite {
            to,
            regex,
            is_missing: false,
        } = &step.action
        {
            let table = change_table("[[site.rewrite]]", &step.selector, regex.as_deref(), to);
            document.push(table.entry(step.entry));
        }
    }
    places.write_rewrites(plan, document);
    for (index, step) in plan.steps.iter().enumerate() {
        let (to, regex) = match &step.action {
            StepAction::Rewrite {
                to,
                regex,
                is_missing: true,
            } => (to, regex.as_deref()),
            StepAction::Fallback(path) if path.ends_with(".php") => (path, None),
            StepAction::Fallback(path) if !places.is_in_place(plan, index) => {
                places.write_fallback(plan, index, path, document);
                continue;
            }
            _ => continue,
        };
        let table = change_table("[[site.rewrite]]", &step.selector, regex, to);
        document.push(table.entry(step.entry).key("missing", "true"));
    }
}

/// A redirect or rewrite, by patterns or by an expression.
fn change_table(
    header: &str,
    selector: &RequestSelector,
    regex: Option<&str>,
    to: &str,
) -> ConfigTable {
    let table = ConfigTable::new(header);
    let Some(regex) = regex else {
        let patterns = list(&selector.patterns_or_all());
        let table = table.key("from", patterns).key("to", quoted(to));
        return selector.write_conditions(table);
    };
    let mut selector = selector.clone();
    // The expression itself is no condition any more.
    let own = format!("$path=~{regex}");
    if let Some(variables) = selector.conditions.get_mut("variable") {
        variables.retain(|it| *it != own);
        if variables.is_empty() {
            selector.conditions.remove("variable");
        }
    } else {
        // The expression was made from the patterns.
        selector.patterns.clear();
    }
    // A table with an expression has no patterns.
    if !selector.patterns.is_empty() {
        selector.conditions = selector.as_conditions();
    }
    let table = table.key("regex", quoted(regex)).key("to", quoted(to));
    selector.write_conditions(table)
}

fn write_fields(plan: &SitePlan<'_>, document: &mut ConfigDocument) {
    for step in plan.steps {
        let StepAction::Fields(changes) = &step.action else {
            continue;
        };
        let mut tables = vec![("set", &changes.set), ("append", &changes.append)];
        // Fields that are only added to responses without them have no conditions.
        // The parser refuses the others.
        if step.selector.is_by_path() {
            tables.push(("default", &changes.default));
        }
        let header = || {
            step.selector
                .write("pattern", ConfigTable::new("[[site.header]]"))
        };
        let mut table = header().entry(step.entry);
        let mut has_changes = false;
        for (name, fields) in tables {
            for (field, value) in fields {
                table = table.key(&format!("{name}.{}", key(field)), quoted(value));
                has_changes = true;
            }
        }
        if !changes.remove.is_empty() {
            table = table.key("remove", list(&changes.remove));
            has_changes = true;
        }
        if has_changes {
            document.push(table);
        }
    }
}

/// The key of a path that is removed.
fn strip_key(proxy: &ProxyAction) -> Option<String> {
    (!proxy.strip.is_empty()).then(|| quoted(&proxy.strip))
}

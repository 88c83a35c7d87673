//! Routes: `[[site.route]]`.

use super::{SitePlan, strip_key};
use crate::caddy::plan::{ProgramAction, ProxyAction, SiteStep, StepAction};
use crate::document::{ConfigDocument, ConfigTable};
use crate::origin_tables::OriginTables;
use crate::report::ImportReport;
use crate::toml_values::{key, list, quoted};

/// Writes the routes of a site, in order.
pub fn write_routes(
    plan: &SitePlan<'_>,
    report: &mut ImportReport,
    origins: &mut OriginTables,
    document: &mut ConfigDocument,
) {
    for (index, step) in plan.steps.iter().enumerate() {
        match &step.action {
            StepAction::Proxy(proxy) => {
                // Files before it have precedence if they exist.
                let after_files = plan.steps[..index].iter().any(|other| {
                    matches!(&other.action, StepAction::Files(files) if files.is_optional)
                        && other.selector.overlaps(&step.selector)
                });
                let is_missing = proxy.is_missing || after_files;
                write_proxy(step, proxy, is_missing, origins, document);
            }
            StepAction::Program(program) => write_program(step, program, report, document),
            _ => {}
        }
    }
}

/// The value of `origin`.
fn origin_of(step: &SiteStep, proxy: &ProxyAction, origins: &mut OriginTables) -> String {
    match &proxy.url {
        Some(url) => url.clone(),
        None => origins.name_of(proxy.group.clone(), &proxy.authority, step.entry),
    }
}

/// The first proxy of a site that has no files, and no rewrites that could lead to another path.
pub fn origin_of_all<'p>(plan: &SitePlan<'p>) -> Option<(&'p SiteStep, &'p ProxyAction)> {
    let is_other = |step: &SiteStep| {
        let proxy_only = matches!(&step.action, StepAction::Proxy(proxy) if !proxy.is_missing);
        let before = matches!(
            step.action,
            StepAction::Rule { .. } | StepAction::Redirect { .. } | StepAction::Fields(_)
        );
        !proxy_only && !before
    };
    if plan.steps.iter().any(is_other) || !plan.settings.error_pages.is_empty() {
        return None;
    }
    plan.steps.iter().find_map(|step| match &step.action {
        StepAction::Proxy(proxy) => Some((step, &**proxy)),
        _ => None,
    })
}

/// Writes a route for the paths of no other one. The site needs no root with it, and clients get 404.
pub fn write_stand_in(
    step: &SiteStep,
    proxy: &ProxyAction,
    origins: &mut OriginTables,
    document: &mut ConfigDocument,
) {
    let origin = origin_of(step, proxy, origins);
    let table = ConfigTable::new("[[site.route]]")
        .comment("In place of a root: clients get 404.")
        .entry(step.entry)
        .key("pattern", quoted("/**"))
        .key("origin", quoted(&origin));
    document.push(table.key("internal", "true"));
}

fn write_proxy(
    step: &SiteStep,
    proxy: &ProxyAction,
    is_missing: bool,
    origins: &mut OriginTables,
    document: &mut ConfigDocument,
) {
    let origin = origin_of(step, proxy, origins);
    for pattern in step.selector.patterns_or_all() {
        let (pattern, strip) = stripped(&pattern, proxy);
        let table = ConfigTable::new("[[site.route]]").entry(step.entry);
        let mut table = table.key("pattern", quoted(&pattern));
        if is_missing {
            table = table.key("missing", "true");
        }
        table = table
            .key("origin", quoted(&origin))
            .optional_key("strip_prefix", strip);
        // A rewrite in front of the route.
        if !proxy.add.is_empty() {
            table = table.key("add_prefix", quoted(&proxy.add));
        }
        for (name, value) in &proxy.keys {
            table = table.key(name, value);
        }
        document.push(step.selector.write_conditions(table));
        let mut request = ConfigTable::new("[site.route.request]");
        let mut removed = Vec::new();
        for (kind, name, value) in &proxy.fields {
            match *kind {
                // All removed fields are one list.
                "remove" => removed.push(name.clone()),
                kind => request = request.key(&format!("{kind}.{}", key(name)), quoted(value)),
            }
        }
        if !removed.is_empty() {
            request = request.key("remove", list(&removed));
        }
        document.push_filled(request);
    }
}

/// Pattern and removed prefix: of `/api*`, only paths below `/api/` begin with the prefix and a slash.
fn stripped(pattern: &str, proxy: &ProxyAction) -> (String, Option<String>) {
    let Some(strip) = strip_key(proxy) else {
        return (pattern.to_string(), None);
    };
    match pattern.strip_prefix(&*proxy.strip) {
        Some("**") => (format!("{}/**", proxy.strip), Some(strip)),
        Some(rest) if rest.starts_with('/') => (pattern.to_string(), Some(strip)),
        // The path itself, without anything to keep.
        _ => (pattern.to_string(), None),
    }
}

fn write_program(
    step: &SiteStep,
    program: &ProgramAction,
    report: &mut ImportReport,
    document: &mut ConfigDocument,
) {
    let servers = list(&program.servers);
    for pattern in step.selector.patterns_or_all() {
        // The scripts of a folder, and its front controller.
        let folder = pattern.trim_end_matches("**");
        if folder.contains('*') || !pattern.ends_with("**") {
            // A pattern of names: these are the scripts.
            let table = program_table(step, program, &pattern, &servers);
            push_program(table, program, document);
            continue;
        }
        let scripts = match folder {
            "/" => "*.php".to_string(),
            folder => format!("{folder}**.php"),
        };
        push_program(
            program_table(step, program, &scripts, &servers),
            program,
            document,
        );
        // Without an index, only scripts are executed.
        if program.index == "off" {
            continue;
        }
        let mut table = program_table(step, program, &pattern, &servers);
        if program.has_files {
            table = table.key("missing", "true");
        } else {
            report.note_difference(
                step.entry,
                "all other paths go to the index: there is no file_server",
            );
        }
        let script = match program.strip.is_empty() {
            true => format!("/{}", program.index.trim_start_matches('/')),
            false => format!(
                "{}/{}",
                program.strip,
                program.index.trim_start_matches('/')
            ),
        };
        push_program(table.key("script", quoted(&script)), program, document);
    }
}

fn program_table(
    step: &SiteStep,
    program: &ProgramAction,
    pattern: &str,
    servers: &str,
) -> ConfigTable {
    let table = ConfigTable::new("[[site.route]]").entry(step.entry);
    let mut table = table
        .key("pattern", quoted(pattern))
        .key("fastcgi", servers);
    for (name, value) in &program.keys {
        table = table.key(name, value);
    }
    step.selector.write_conditions(table)
}

fn push_program(table: ConfigTable, program: &ProgramAction, document: &mut ConfigDocument) {
    document.push(table);
    let env = program.env.iter().map(|(name, value)| (name, value));
    document.push_filled(ConfigTable::with_texts("[site.route.env]", env));
}

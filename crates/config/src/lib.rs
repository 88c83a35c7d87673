//! The configuration of Lowroad: one schema for the file and the command line.
//!
//! [`parse`] turns TOML into the plain structs of [`schema`]. It reports all problems at once, each with its line,
//! column, key and the allowed values; an unknown key is a problem. [`load`] reads a file and also checks that the
//! paths in it exist. [`value`] has the readers of single values (sizes, durations, addresses), which the command line
//! shares.
//!
//! [`reference`] documents the tables and keys for operators: `docs/configuration/` is rendered from it. The crate
//! opens no sockets and resolves no users or names. Developers begin with [`schema`].

#![forbid(unsafe_code)]

mod acme;
mod admin;
mod alias;
mod application;
mod authentication;
mod bandwidth;
mod buffering;
mod cache_keys;
mod caching;
mod check;
mod class;
mod compression;
mod conditions;
mod contradictions;
mod database;
mod destination;
mod document;
mod feature;
mod fixed_response;
mod format;
mod likely_mistakes;
mod logs;
mod map;
mod mirror;
mod module;
mod name;
mod named;
mod origin;
mod origin_url;
pub mod passwords;
mod paths;
mod pattern;
mod pattern_set;
mod prefix;
mod problem;
mod process;
mod reader;
mod redirect_loops;
pub mod reference;
mod request;
mod route;
mod rules;
pub mod schema;
mod secret;
pub mod server_address;
mod site;
mod site_marks;
mod site_policy;
mod site_rule;
mod source;
mod start_tables;
mod sticky;
mod tls;
mod traces;
mod unreachable;
pub mod value;

pub use check::NO_SOFTIRQ;
pub use destination::AllowedDestination;
pub use document::toml_text_to_json;
pub use document::{ConfigChange, ConfigDocument, EffectiveConfig, changes};
pub use feature::{BuildFeature, MissingFeature};
pub use format::{FormatError, format};
pub use map::{MAP_FILE_LEN_MAX, map_content_hash, map_file_entries};
pub use paths::{PathExpression, PathSelector, RequestPath, slash_forms, with_slashes};
pub use pattern::{PathPattern, PathPatternError};
pub use pattern_set::{MatchScope, PatternSet, PatternSetBuilder};
pub use prefix::{AddressPrefix, PrefixMap, PrefixSet};
pub use problem::{ConfigPlace, ConfigProblem};
pub use redirect_loops::ENDLESS_LOOP;
pub use schema::*;
pub use secret::{SECRET_LEN_MAX, SecretSource, SecretText, secret_text};
pub use source::{ConfigFiles, DiskFiles, FILES_MAX, INCLUDE_DEPTH_MAX, TEXT_LEN_MAX};
pub use start_tables::StartTables;
pub use tls::HSTS;

use reader::{ConfigSection, ConfigSource, KeyPosition};
use site_marks::SiteMarks;
use source::NoFiles;
use std::path::Path;

#[cfg(test)]
mod tests;

/// Reads a configuration from TOML text, without access to any other file.
///
/// `file` is the file name for problems; its folder is the base of relative paths. An included file is a problem, a
/// glob includes nothing, and the texts of secrets are empty.
///
/// # Errors
/// All problems of the text, in the order of their lines; after a syntax error only that error.
pub fn parse(text: &str, file: &Path) -> Result<Config, Vec<ConfigProblem>> {
    parse_with(text, file, &NoFiles)
}

/// Reads a configuration from TOML text and the files that it includes, without checks of the paths in it.
///
/// # Errors
/// As for [`parse`].
pub fn parse_with(
    text: &str,
    file: &Path,
    files: &dyn ConfigFiles,
) -> Result<Config, Vec<ConfigProblem>> {
    read(text.to_owned(), file, files, &[], |_, _, _| ())
}

/// Reads a configuration file, as [`parse`] does, and checks the paths in it.
///
/// Roots and folders of programs must be folders; error pages and modules must be files. A use of one of
/// `missing_features`, which this build lacks, is a problem.
///
/// # Errors
/// All problems found; a file that cannot be read is one problem, at line 1.
pub fn load(file: &Path, missing_features: &[BuildFeature]) -> Result<Config, Vec<ConfigProblem>> {
    load_with(file, missing_features, &DiskFiles)
}

/// Like [`load`], but `files` reads the configuration file, the files that it includes, and its secrets.
///
/// # Errors
/// As for [`load`].
pub fn load_with(
    file: &Path,
    missing_features: &[BuildFeature],
    files: &dyn ConfigFiles,
) -> Result<Config, Vec<ConfigProblem>> {
    let problem = |message: String| {
        let place = ConfigPlace {
            file: file.to_path_buf(),
            line: 1,
            column: 1,
        };
        vec![ConfigProblem::at(place, message)]
    };
    let bytes = files.read(file, TEXT_LEN_MAX);
    let bytes = bytes.map_err(|error| problem(format!("cannot be read: {error}")))?;
    if bytes.len() > TEXT_LEN_MAX {
        return Err(problem(format!("is longer than {TEXT_LEN_MAX} bytes")));
    }
    // TOML is UTF-8. Decoding before parsing gives the line of the first invalid byte.
    let text = String::from_utf8(bytes);
    let text = text.map_err(|error| vec![source::not_utf8(file, &error)])?;
    read(text, file, files, missing_features, check::paths)
}

fn read(
    text: String,
    file: &Path,
    files: &dyn ConfigFiles,
    missing_features: &[BuildFeature],
    extra_checks: impl FnOnce(
        &ConfigSource<'_>,
        &[(SiteConfig, SiteMarks)],
        &[(ModuleConfig, module::ModuleMarks)],
    ),
) -> Result<Config, Vec<ConfigProblem>> {
    let loaded = source::read_files(text, file, files)?;
    // The tables borrow from the texts.
    let texts = loaded.map.files.clone();
    let merged = source::merge(loaded, &texts)?;
    // The source collects problems, so that one run reports all of them.
    let source = ConfigSource::new(&merged.map, files);
    for problem in &merged.problems {
        source.report(&problem.position, &*problem.message, &*problem.allowed);
    }
    let top = ConfigSection::top(&source, &merged.table);
    top.allow(&["include", "template"]);
    let config = config(&source, top, missing_features, extra_checks);
    let (problems, readings) = source.into_findings();
    if problems.is_empty() {
        Ok(Config {
            start_tables: StartTables::new(&merged.table),
            document: ConfigDocument::new(&merged, readings),
            ..config
        })
    } else {
        Err(problems)
    }
}

fn config(
    source: &ConfigSource<'_>,
    top: ConfigSection<'_>,
    missing_features: &[BuildFeature],
    extra_checks: impl FnOnce(
        &ConfigSource<'_>,
        &[(SiteConfig, SiteMarks)],
        &[(ModuleConfig, module::ModuleMarks)],
    ),
) -> Config {
    // Templates in the other tables refer to maps.
    let maps = top.section("map").map(|section| map::maps(&section));
    let (maps, map_marks) = maps.unwrap_or_default();
    source.set_maps(maps.clone());
    let server_section = top.section("server");
    let server_position = server_section
        .as_ref()
        .map(|section| section.position.clone());
    let server = server_section
        .map(|section| process::server(section, missing_features))
        .unwrap_or_default();
    let limits = top
        .section("limits")
        .map(process::limits)
        .unwrap_or_default();
    let buffering = top
        .section("buffering")
        .map(buffering::buffering)
        .unwrap_or_default();
    let log = top.section("log").map(logs::log).unwrap_or_default();
    let (admin, admin_marks) = top.section("admin").map(admin::admin).unzip();
    let admin = admin.unwrap_or_default();
    let acme = top.section("acme").map(acme::acme);
    let (traces, traces_tls_mark) = top.section("traces").map(traces::traces).unzip();
    let modules: Vec<(ModuleConfig, module::ModuleMarks)> = top
        .sections("module")
        .into_iter()
        .filter_map(module::module)
        .collect();
    let databases: Vec<(DatabaseConfig, KeyPosition)> = top
        .sections("database")
        .into_iter()
        .filter_map(database::database)
        .collect();
    let applications: Vec<(ApplicationConfig, KeyPosition)> = top
        .sections("application")
        .into_iter()
        .filter_map(application::application)
        .collect();
    let origins: Vec<(OriginConfig, KeyPosition)> = top
        .sections("origin")
        .into_iter()
        .filter_map(origin::origin)
        .collect();
    let classes: Vec<(ClassConfig, KeyPosition)> = top
        .sections("class")
        .into_iter()
        .filter_map(class::class)
        .collect();
    let mut sites: Vec<(SiteConfig, SiteMarks)> =
        top.sections("site").into_iter().map(site::site).collect();
    // A missing `[[site]]` has no position in the text, so the problem is reported at the start of the file.
    if top.is_absent_or_empty("site") {
        let file = KeyPosition {
            key: String::new(),
            offset: 0,
        };
        source.report(&file, "no site is configured", "at least one [[site]]");
    }
    // `finish` reports all keys that were not looked up, so it follows the last look-up.
    top.finish();
    // Checks across tables run after all tables have been read, so that tables may appear in any order.
    let (origins, origin_marks): (Vec<OriginConfig>, Vec<KeyPosition>) =
        origins.into_iter().unzip();
    let origin_names = origins.iter().map(|it| &*it.name).zip(&origin_marks);
    named::check_unique(source, "origin", origin_names);
    // Origin names are first replaced by their definitions: `feature::check` below looks for https among the servers.
    origin::resolve(source, &mut sites, &origins);
    authentication::resolve_origins(source, &mut sites, &origins);
    for (site, marks) in &sites {
        authentication::check_conditions(source, site, marks);
    }
    cache_keys::check(source, &sites);
    contradictions::check(source, &sites, &server);
    contradictions::check_maps(source, &map_marks);
    unreachable::check(source, &sites);
    likely_mistakes::check_sites(source, &sites);
    likely_mistakes::check_early_data(source, &server, server_position.as_ref(), &sites);
    likely_mistakes::check_classes(source, &classes, &sites);
    redirect_loops::check(source, &sites);
    check::names_and_listeners(source, &sites);
    if let Some(marks) = &admin_marks {
        check::admin_listener(source, &marks.listen, &admin, &sites);
    }
    check::proxies(source, &sites, &server);
    tls::check(source, &sites, &server);
    acme::check(source, &sites, acme.as_ref());
    // `extra_checks` checks the paths on disk; it does nothing unless `load` passed it.
    extra_checks(source, &sites, &modules);
    feature::check(source, &sites, &modules, &databases, missing_features);
    let admin_tls_mark = admin_marks.and_then(|marks| marks.tls);
    for mark in [traces_tls_mark.flatten(), admin_tls_mark] {
        feature::check_tls(source, mark.as_ref(), missing_features);
    }
    let module_names = modules.iter().map(|(it, marks)| (&*it.name, &marks.name));
    named::check_unique(source, "module", module_names);
    let database_names = databases.iter().map(|(it, position)| (&*it.name, position));
    named::check_unique(source, "database", database_names);
    let application_names = applications
        .iter()
        .map(|(it, position)| (&*it.name, position));
    named::check_unique(source, "application", application_names);
    let class_names = classes.iter().map(|(it, position)| (&*it.name, position));
    named::check_unique(source, "class", class_names);
    class::check(source, &classes);
    // The positions are dropped: only problems need them.
    let modules: Vec<ModuleConfig> = modules.into_iter().map(|(module, _)| module).collect();
    let databases: Vec<DatabaseConfig> = databases.into_iter().map(|(base, _)| base).collect();
    route::check_names(source, &sites, &modules, &databases);
    if server.http3 {
        sites
            .iter_mut()
            .for_each(|(site, _)| tls::advertise_http3(site));
    }
    Config {
        modules,
        databases,
        applications: applications.into_iter().map(|(it, _)| it).collect(),
        server,
        limits,
        buffering,
        log,
        admin,
        acme,
        traces,
        classes: classes.into_iter().map(|(class, _)| class).collect(),
        start_tables: StartTables::default(),
        document: ConfigDocument::default(),
        maps,
        sites: sites.into_iter().map(|(site, _)| site).collect(),
    }
}

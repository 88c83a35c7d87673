//! Reads `[[site.route]]`: the paths of a route, its handler, and the handler's settings.
//!
//! The meaning and the defaults of the keys are in [`crate::schema`]. [`check_names`] verifies references to modules
//! and databases after the whole file has been read.

use crate::bandwidth;
use crate::caching;
use crate::compression::on_the_fly;
use crate::conditions::conditions;
use crate::mirror::mirror;
use crate::named::{self, DAY_MS, absolute_path, account, count, file_name};
use crate::origin;
use crate::reader::{ConfigSection, ConfigSource, ConfigValue};
use crate::request;
use crate::site_marks::{RouteMarks, SiteMarks};
use crate::value;
use crate::{
    BalanceConfig, CgiConfig, DatabaseConfig, FastCgiConfig, InterceptedErrors, ModuleConfig,
    PagesConfig, PathPattern, ResponseStorage, RouteConfig, RouteTo, SiteConfig, SiteName,
    StatusRange, UpstreamAddress,
};
use lowroad_variables::{Template, TemplateScope};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The handler keys; a route has exactly one of them.
const TARGETS: [&str; 5] = ["module", "cgi", "fastcgi", "origin", "pages"];

/// Keys that are valid with certain handlers only.
const KEYS_OF_TARGETS: [(&str, &[&str]); 28] = [
    ("request_buffering", &["module", "cgi", "fastcgi", "origin"]),
    (
        "response_buffering",
        &["module", "cgi", "fastcgi", "origin"],
    ),
    ("env", &["cgi", "fastcgi"]),
    ("head_len_max", &["cgi", "fastcgi"]),
    ("fields_max", &["cgi", "fastcgi"]),
    ("memory", &["cgi", "pages"]),
    ("cpu", &["cgi"]),
    ("processes", &["cgi"]),
    ("user", &["cgi"]),
    ("script", &["fastcgi"]),
    ("script_root", &["fastcgi"]),
    ("keep_connections", &["fastcgi"]),
    ("index", &["fastcgi"]),
    ("balance", &["fastcgi"]),
    ("connections", &["fastcgi", "origin"]),
    ("connect_timeout", &["origin"]),
    ("retry_body_max", &["origin"]),
    ("protocol", &["origin"]),
    ("tunnels", &["origin"]),
    ("client_share", &["origin"]),
    ("own_redirects", &["origin"]),
    ("strip_prefix", &["origin"]),
    ("add_prefix", &["origin"]),
    ("restore_prefix", &["origin"]),
    ("request", &["origin"]),
    ("internal_redirects", &["origin"]),
    ("mirror", &["origin"]),
    ("cache", &["origin", "cgi", "fastcgi"]),
];

/// The allowed range of `head_len_max`.
const HEAD_LENS: RangeInclusive<u64> = 1 << 10..=1 << 20;
/// The minimum address space (RLIMIT_AS) with which a program can start.
const MEMORY_LEN_MIN: u64 = 1 << 20;
const MEMORY_LEN_MAX: u64 = 1 << 40;

/// Reads the table of routes with this number: a route for each pattern. Also returns the positions of their values.
pub(crate) fn route(table: usize, section: ConfigSection<'_>) -> Vec<(RouteConfig, RouteMarks)> {
    let pattern_items = section.required("pattern");
    let pattern_items = pattern_items.filter(|item| !is_empty_list(item));
    let pattern_items = pattern_items.map_or_else(Vec::new, ConfigValue::one_or_many);
    // An invalid pattern was reported.
    let read = pattern_items
        .iter()
        .filter_map(|item| Some((item.pattern()?, item)));
    let (patterns, valid_items): (Vec<PathPattern>, Vec<_>) = read.unzip();
    // The handler key is read first: the other keys depend on the handler.
    let target = target(&section);
    let to = target
        .as_ref()
        .and_then(|(kind, item)| to(&section, kind, item, &patterns));
    // All keys are read even if an earlier one is invalid, so that all problems are reported at once.
    let missing = section.flag("missing", false);
    let internal = section.flag("internal", false);
    let timeout_ms = section.duration_ms("timeout", RouteConfig::TIMEOUT_MS, 1..=DAY_MS);
    let concurrency_max = count(
        &section,
        "concurrency",
        RouteConfig::CONCURRENCY_MAX,
        1..=65_536,
    );
    let conditions = conditions(&section);
    let body_len_max = section.optional_size("body_len_max", 0..=1 << 40);
    // The key is looked up only if the handler has it; otherwise `report_keys_of_other_targets` reports it.
    let read_count = |key, default, count_max| match target.as_ref() {
        Some((kind, _)) if is_valid_with(key, kind) => count(&section, key, default, 1..=count_max),
        _ => default,
    };
    let tunnels_max = read_count("tunnels", RouteConfig::TUNNELS_MAX, 65_536);
    let client_share_percent = read_count("client_share", RouteConfig::CLIENT_SHARE_PERCENT, 100);
    let kind = target.as_ref().map(|(kind, _)| *kind);
    let (head_len_max, head_fields_max) = match kind {
        Some("cgi" | "fastcgi") => (
            section.size("head_len_max", RouteConfig::HEAD_LEN_MAX as u64, HEAD_LENS),
            count(
                &section,
                "fields_max",
                RouteConfig::HEAD_FIELDS_MAX,
                8..=4096,
            ),
        ),
        _ => (
            RouteConfig::HEAD_LEN_MAX as u64,
            RouteConfig::HEAD_FIELDS_MAX,
        ),
    };
    // The two keys are looked up for origins only; for other handlers `finish` reports them as unknown.
    let own_redirects = kind != Some("origin") || section.flag("own_redirects", true);
    let internal_redirects = kind == Some("origin") && section.flag("internal_redirects", false);
    let bandwidth = bandwidth::bandwidth(&section);
    let intercepted_errors = section
        .item("intercept_errors")
        .map(|item| intercepted_errors(&item))
        .unwrap_or_default();
    let (prefixes, request) = match (kind, target.as_ref()) {
        (Some("origin"), Some((_, item))) => {
            let url_path = origin::url_path(item);
            let request = section.section("request");
            (
                request::prefixes(&section, &patterns, url_path),
                request.map(|it| request::request_rule(it, &patterns)),
            )
        }
        _ => Default::default(),
    };
    let (mirror, mirror_mark) = match kind {
        Some("origin") => mirror(&section).unzip(),
        _ => Default::default(),
    };
    // Pages always need the complete request and produce a complete response.
    let may_stream = kind.is_some_and(|kind| kind != "pages");
    let is_buffering_set = may_stream && section.item("request_buffering").is_some();
    let request_buffering = is_buffering_set.then(|| section.flag("request_buffering", true));
    let response_buffering = !may_stream || section.flag("response_buffering", true);
    let choices = [
        ("allowed", ResponseStorage::Allowed),
        ("shared", ResponseStorage::Shared),
        ("never", ResponseStorage::Never),
    ];
    let keep = section.choice("keep", &choices, ResponseStorage::default());
    let compress = section.item("compress").as_ref().and_then(on_the_fly);
    // This call follows after all keys of the handler were looked up.
    report_keys_of_other_targets(&section, kind);
    let caching = match kind {
        Some(kind @ ("origin" | "cgi" | "fastcgi")) => {
            let section = section.section("cache");
            section.map(|section| caching::caching(section, kind == "origin"))
        }
        _ => None,
    };
    let (caching, cache_marks) = caching.unwrap_or_default();
    section.finish();
    let (Some(to), Some((_, handler))) = (to, target) else {
        return Vec::new();
    };
    // For a folder of programs, the part of the path after the front names the program.
    if matches!(&to, RouteTo::Cgi(cgi) if cgi.path.is_some()) {
        let items = patterns.iter().zip(valid_items);
        items.for_each(|(pattern, item)| check_folder_pattern(pattern, item));
    }
    let route = RouteConfig {
        missing,
        body_len_max,
        conditions,
        timeout_ms,
        concurrency_max,
        tunnels_max,
        client_share_percent,
        own_redirects,
        request: request.unwrap_or_default(),
        internal_redirects,
        bandwidth,
        intercepted_errors,
        internal,
        head_len_max: usize::try_from(head_len_max).unwrap_or(usize::MAX),
        head_fields_max,
        request_buffering,
        response_buffering,
        keep,
        compress,
        caching,
        mirror,
        ..RouteConfig::new(PathPattern::everything(), to)
    };
    let marks = RouteMarks {
        table,
        handler: handler.position,
        mirror: mirror_mark,
        caching: cache_marks,
    };
    let mut prefixes = prefixes.into_iter();
    let with_pattern = |pattern| {
        let route = RouteConfig {
            pattern,
            prefixes: prefixes.next().unwrap_or_default(),
            ..route.clone()
        };
        (route, marks.clone())
    };
    patterns.into_iter().map(with_pattern).collect()
}

/// Reads `intercept_errors`: a boolean, or statuses with their replacements.
fn intercepted_errors(item: &ConfigValue<'_>) -> InterceptedErrors {
    const ALLOWED: &str =
        "true, false, or { STATUS = NEW }: { 500 = 503, \"4xx\" = 404, 410 = 200 }";
    match item.value_bool() {
        Some(true) => return InterceptedErrors::WithPage,
        Some(false) => return InterceptedErrors::None,
        None if !item.is_table() => {
            item.refuse("a boolean or a table", ALLOWED);
            return InterceptedErrors::None;
        }
        None => {}
    }
    let Some(section) = item.section() else {
        return InterceptedErrors::None;
    };
    // TOML sorts tables by key, so the order in the file has no meaning.
    let mut listed = Vec::new();
    for (key, position, value) in section.entries() {
        let range = caching::parse_status(key).filter(|range| range.contains_errors());
        let Some(range) = range else {
            let message = format!("{key:?} is not a status of an error");
            section.report_at(&position, message, "400 to 599, \"4xx\" or \"5xx\"");
            continue;
        };
        // Other statuses need fields or have no content.
        let status = value
            .read(value::count)
            .and_then(|it| u16::try_from(it).ok());
        match status.filter(|it| *it == 200 || (400..600).contains(it) && *it != 401) {
            Some(status) => listed.push((range, status)),
            None => value.refuse(
                "a status for an error page",
                "200, or 400 to 599 other than 401",
            ),
        }
    }
    // A status precedes its class, in whatever order they are written.
    listed.sort_by_key(|(range, _)| matches!(range, StatusRange::Class(_)));
    InterceptedErrors::Listed(listed)
}

/// Whether a value is an empty array, which is reported.
fn is_empty_list(item: &ConfigValue<'_>) -> bool {
    if item.is_empty_array() {
        item.report("the list is empty", "at least one pattern");
    }
    item.is_empty_array()
}

/// The number of captures that all patterns have.
pub(crate) fn common_captures(patterns: &[PathPattern]) -> usize {
    let has_capture = !patterns.is_empty() && patterns.iter().all(PathPattern::has_capture);
    usize::from(has_capture)
}

/// Whether a handler has a key.
fn is_valid_with(key: &str, target: &str) -> bool {
    KEYS_OF_TARGETS
        .iter()
        .any(|(known_key, targets)| *known_key == key && targets.contains(&target))
}

/// Reports keys that the handler does not have. Without a valid handler all of them are accepted.
fn report_keys_of_other_targets(section: &ConfigSection<'_>, target: Option<&str>) {
    for (key, targets) in KEYS_OF_TARGETS {
        match target {
            // The key is looked up so that `finish` does not report it as unknown.
            None => drop(section.item(key)),
            Some(target) if targets.contains(&target) => {}
            Some(_) => section.only_with(key, &targets.join(" or ")),
        }
    }
}

/// Reports undefined names of modules and databases in routes.
pub(crate) fn check_names(
    source: &ConfigSource<'_>,
    sites: &[(SiteConfig, SiteMarks)],
    modules: &[ModuleConfig],
    databases: &[DatabaseConfig],
) {
    let modules: Vec<&str> = modules.iter().map(|module| module.name.as_str()).collect();
    let databases: Vec<&str> = databases.iter().map(|base| base.name.as_str()).collect();
    let routes = sites
        .iter()
        .flat_map(|(site, marks)| site.routes.iter().zip(&marks.routes));
    for (route, marks) in routes {
        let position = &marks.handler;
        match &route.to {
            RouteTo::Module(name) => {
                named::check_defined(source, "module", name, position, &modules)
            }
            RouteTo::Pages(PagesConfig {
                database: Some(name),
                ..
            }) => named::check_defined(source, "database", name, position, &databases),
            RouteTo::Pages(_) | RouteTo::Cgi(_) | RouteTo::FastCgi(_) | RouteTo::Origin(_) => {}
        }
    }
}

/// The handler key of the section; none or several are a problem.
fn target<'d>(section: &ConfigSection<'d>) -> Option<(&'static str, ConfigValue<'d>)> {
    let present = TARGETS.map(|key| section.item(key).map(|item| (key, item)));
    let mut present = present.into_iter().flatten();
    // Two handler keys are enough for the message.
    let (first, second) = (present.next(), present.next());
    let message = match (&first, &second) {
        (Some(_), None) => return first,
        (None, _) => "the route has no handler".to_string(),
        (Some((first_key, _)), Some((second_key, _))) => {
            format!("{first_key} and {second_key} are two handlers")
        }
    };
    section.report(message, "one of module, cgi, fastcgi, origin and pages");
    None
}

fn to(
    section: &ConfigSection<'_>,
    kind: &str,
    item: &ConfigValue<'_>,
    patterns: &[PathPattern],
) -> Option<RouteTo> {
    match kind {
        "module" => named::name(item).map(RouteTo::Module),
        "cgi" => cgi(section, item, patterns).map(RouteTo::Cgi),
        "fastcgi" => fastcgi(section, item, patterns).map(RouteTo::FastCgi),
        "origin" => {
            let origin = origin::read_route_origin(section, item)?;
            Some(RouteTo::Origin(Box::new(origin)))
        }
        _ => pages(section, item).map(RouteTo::Pages),
    }
}

fn cgi(
    section: &ConfigSection<'_>,
    item: &ConfigValue<'_>,
    patterns: &[PathPattern],
) -> Option<CgiConfig> {
    // `cgi = true`: the programs are files of the site.
    let path = match item.value_bool() {
        Some(true) => None,
        _ => Some(item.path()),
    };
    let default = CgiConfig::new(path.clone().flatten());
    let cpu_ms_max = section.duration_ms("cpu", default.cpu_s_max * 1000, 1000..=DAY_MS);
    let memory = MEMORY_LEN_MIN..=MEMORY_LEN_MAX;
    let cgi = CgiConfig {
        env: environment(section, patterns),
        // 0 means no limit; with less than the minimum, no program could start.
        memory_len_max: section.size_or_zero("memory", default.memory_len_max, memory),
        // RLIMIT_CPU is in whole seconds.
        cpu_s_max: cpu_ms_max.div_ceil(1000),
        processes_max: section.count("processes", default.processes_max, 0..=65_536),
        user: account(section, "user"),
        ..default
    };
    // `Some(None)`: the path is present but invalid, and was reported.
    (path != Some(None)).then_some(cgi)
}

fn fastcgi(
    section: &ConfigSection<'_>,
    item: &ConfigValue<'_>,
    patterns: &[PathPattern],
) -> Option<FastCgiConfig> {
    let servers: Option<Vec<UpstreamAddress>> = match item.is_array() {
        true => item.items()?.iter().map(upstream).collect(),
        false => upstream(item).map(|address| vec![address]),
    };
    if item.is_empty_array() {
        item.report("no server is listed", "at least one address");
    }
    warn_of_repeated(item, servers.as_deref().unwrap_or_default());
    let default = FastCgiConfig::new(UpstreamAddress::Unix(PathBuf::new()));
    let connections = 1..=4096;
    let choices = [("round-robin", false), ("least-connections", true)];
    let fastcgi = FastCgiConfig {
        balance: match section.choice("balance", &choices, false) {
            false => BalanceConfig::RoundRobin,
            true => BalanceConfig::LeastConnections,
        },
        script: section.item("script").and_then(|item| script(&item)),
        script_root: section.item("script_root").and_then(|item| item.path()),
        index: section
            .item("index")
            .and_then(|item| file_name(&item))
            .unwrap_or(default.index),
        connections_max: count(section, "connections", default.connections_max, connections),
        keeps_connections: section.flag("keep_connections", default.keeps_connections),
        env: environment(section, patterns),
        ..default
    };
    Some(FastCgiConfig {
        servers: servers.filter(|servers| !servers.is_empty())?,
        ..fastcgi
    })
}

/// Warns of servers that are listed twice.
fn warn_of_repeated(item: &ConfigValue<'_>, servers: &[UpstreamAddress]) {
    let items = match item.is_array() {
        true => item.items().unwrap_or_default(),
        false => return,
    };
    for (index, (server, item)) in servers.iter().zip(&items).enumerate() {
        // A list has a few servers, so a search is cheap.
        if servers[..index].contains(server) {
            item.warn("the server is listed twice", "each address once");
        }
    }
}

/// Reads a script path; an empty text if the server is a single program.
fn script(item: &ConfigValue<'_>) -> Option<String> {
    match item.value_text() {
        // An empty text is not a path: it marks a server without scripts.
        Some("") => Some(String::new()),
        _ => absolute_path(item),
    }
}

fn pages(section: &ConfigSection<'_>, item: &ConfigValue<'_>) -> Option<PagesConfig> {
    let memory = MEMORY_LEN_MIN..=MEMORY_LEN_MAX;
    let memory_len_max = section.size("memory", PagesConfig::MEMORY_LEN_MAX as u64, memory);
    let database = match (item.value_bool(), item.value_text()) {
        (Some(true), _) => None,
        (None, Some(_)) => Some(named::name(item)?),
        _ => {
            item.refuse(
                "a database",
                "the name of a [[database]], or true for pages without one",
            );
            return None;
        }
    };
    Some(PagesConfig {
        database,
        memory_len_max: usize::try_from(memory_len_max).unwrap_or(usize::MAX),
    })
}

/// Reads the address of a FastCGI server.
fn upstream(item: &ConfigValue<'_>) -> Option<UpstreamAddress> {
    if let Some(path) = item
        .value_text()
        .and_then(|text| text.strip_prefix("unix:"))
    {
        let is_path = !path.is_empty() && !path.chars().any(char::is_control);
        if !is_path {
            item.refuse("a socket", "unix:/PATH");
        }
        return is_path.then(|| UpstreamAddress::Unix(item.resolve(path)));
    }
    item.read(|text| {
        let address = value::address(text).ok();
        // A listener may use a wildcard address or port 0, a connection cannot.
        let valid_address =
            address.filter(|candidate| candidate.port() != 0 && !candidate.ip().is_unspecified());
        let valid_address = valid_address
            .map(UpstreamAddress::Tcp)
            .or_else(|| named_upstream(text));
        valid_address.ok_or(value::InvalidValue {
            expected: "the address of a server",
            allowed: "unix:/PATH, HOST:PORT, ADDR:PORT, [ADDR6]:PORT, or a PORT of 127.0.0.1",
        })
    })
}

/// Parses `HOST:PORT` with a host name.
fn named_upstream(text: &str) -> Option<UpstreamAddress> {
    let (host, port) = text.rsplit_once(':')?;
    let Ok(SiteName::Exact(host)) = SiteName::parse(host) else {
        return None;
    };
    // A host without letters is an IP address; addresses were tried before.
    let is_name = host.bytes().any(|byte| byte.is_ascii_alphabetic());
    let port = value::count(port)
        .ok()
        .and_then(|port| u16::try_from(port).ok());
    let port = port.filter(|port| *port != 0 && is_name)?;
    Some(UpstreamAddress::Name { host, port })
}

fn environment(section: &ConfigSection<'_>, patterns: &[PathPattern]) -> Vec<(String, Template)> {
    let scope = TemplateScope::fields(common_captures(patterns));
    let env = section.section("env");
    env.map_or_else(Vec::new, |env| named::environment_templates(env, scope))
}

/// Checks that the text before the first wildcard ends in `/`: it is the path of the folder of programs.
fn check_folder_pattern(pattern: &PathPattern, item: &ConfigValue<'_>) {
    if !pattern.front().ends_with('/') {
        item.report(
            format!("{pattern} does not show which path is the folder of programs"),
            "a pattern with its first wildcard after a /: /cgi-bin/**",
        );
    }
}

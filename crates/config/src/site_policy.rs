//! Reads the policies of a whole site: `cors`, `maintenance`, `security_headers`, `canonical_host`, `trailing_slash`.

use lowroad_variables::Template;

use crate::class::list;
use crate::conditions;
use crate::named::DAY_MS;
use crate::reader::{ConfigSection, ConfigValue};
use crate::rules::{can_change, field_value, is_token};
use crate::value::InvalidValue;
use crate::{
    CorsConfig, CorsHeaders, CorsOrigin, HeaderRule, MaintenanceConfig, PathPattern,
    RequestConditions, SiteName, TrailingSlash,
};

/// The fields of `security_headers`, for responses without them.
const SECURITY_HEADERS: [(&str, &str); 5] = [
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "SAMEORIGIN"),
    ("Referrer-Policy", "strict-origin-when-cross-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    (
        "Content-Security-Policy",
        "base-uri 'self'; frame-ancestors 'self'; object-src 'none'",
    ),
];

/// Reads `[[site.cors]]`: a rule for each pattern.
pub(crate) fn cors(section: ConfigSection<'_>) -> Vec<CorsConfig> {
    let patterns = section.patterns_or_all();
    if section.item("origins").is_none() {
        section.report(
            "origins is missing",
            "\"*\", or a list: \"https://app.example\"",
        );
    }
    let origins = list(&section, "origins", |item| item.read(origin));
    // `list` reports an empty list, which must not mean the default.
    let mut methods = list(&section, "methods", |item| item.read(conditions::method));
    if methods.is_empty() {
        methods = ["GET", "HEAD", "POST"].map(str::to_owned).to_vec();
    }
    let headers = list(&section, "headers", |item| item.read(header_name));
    let expose = list(&section, "expose", |item| item.read(header_name));
    let credentials = section.flag("credentials", false);
    let max_age_ms = section.optional_duration_ms("max_age", 0..=DAY_MS);
    // Beside `*`, other names have no meaning.
    let is_all = |names: &[String]| names.iter().any(|name| name == "*");
    if credentials && (origins.contains(&CorsOrigin::All) || is_all(&expose)) {
        // Browsers refuse this combination (WHATWG Fetch §3.3.5), and any page could act as the user.
        section.report(
            "credentials with \"*\" is refused by browsers",
            "a list of origins and of fields",
        );
    }
    section.finish();
    if origins.is_empty() {
        return Vec::new();
    }
    let rule = |pattern| CorsConfig {
        pattern,
        origins: origins.clone(),
        methods: methods.clone(),
        headers: match is_all(&headers) {
            true => CorsHeaders::All,
            false => CorsHeaders::Names(headers.clone()),
        },
        expose: expose.clone(),
        credentials,
        max_age_s: max_age_ms.map(|ms| ms / 1000),
    };
    patterns.unwrap_or_default().into_iter().map(rule).collect()
}

/// An origin as browsers write it: in lower case, without a path and without the default port.
fn origin(text: &str) -> Result<CorsOrigin, InvalidValue> {
    let refused = InvalidValue {
        expected: "an origin",
        allowed: "\"*\", or SCHEME://HOST or SCHEME://HOST:PORT in lower case, without a path and the default port; *.HOST for all hosts below it",
    };
    if text == "*" {
        return Ok(CorsOrigin::All);
    }
    let (scheme, host) = text.split_once("://").ok_or(refused)?;
    let is_scheme = scheme.starts_with(|it: char| it.is_ascii_lowercase())
        && scheme
            .bytes()
            .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || b"+-.".contains(&it));
    // Only whole labels can be a wildcard: `https://*example.com` would also match evilexample.com.
    let (is_wildcard, name) = match host.strip_prefix("*.") {
        Some(name) => (true, name),
        None => (false, host),
    };
    let is_host_byte =
        |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-_.:[]".contains(&it);
    let is_host =
        !name.is_empty() && name.bytes().all(is_host_byte) && !name.starts_with(['.', ':']);
    // Browsers leave the default port out, so an origin with it would never match.
    let default_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "\n",
    };
    if !is_scheme || !is_host || name.ends_with(default_port) {
        return Err(refused);
    }
    Ok(match is_wildcard {
        false => CorsOrigin::Exact(text.to_owned()),
        true => CorsOrigin::Subdomains {
            scheme: format!("{scheme}://"),
            suffix: format!(".{name}"),
        },
    })
}

fn header_name(text: &str) -> Result<String, InvalidValue> {
    is_token(text).then(|| text.to_owned()).ok_or(InvalidValue {
        expected: "the name of a field",
        allowed: "letters, digits and !#$%&'+-.^_`|~, or \"*\" for all",
    })
}

/// Reads `[site.maintenance]`.
pub(crate) fn maintenance(section: ConfigSection<'_>) -> MaintenanceConfig {
    let file = section.item("file").and_then(|item| item.path());
    // Retry-After has whole seconds (RFC 9110 §10.2.3).
    let retry_after_ms = section.duration_ms("retry_after", 300_000, 1000..=30 * DAY_MS);
    let except = section.item("except");
    let exceptions = except.map(|item| {
        item.one_or_many()
            .iter()
            .filter_map(conditions::exception)
            .collect()
    });
    section.finish();
    MaintenanceConfig {
        file,
        retry_after_s: retry_after_ms / 1000,
        exceptions: exceptions.unwrap_or_default(),
    }
}

/// Reads `security_headers`: `true`, or a table with other values; `false` in it leaves a field out. The rule adds the
/// fields to responses without them.
pub(crate) fn security_headers(item: &ConfigValue<'_>) -> Option<HeaderRule> {
    let mut default: Vec<(String, String)> = SECURITY_HEADERS
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    match (item.value_bool(), item.is_table()) {
        (Some(true), _) => {}
        (Some(false), _) => return None,
        (None, false) => {
            item.refuse(
                "a boolean or a table",
                "true, false, or { FIELD = \"VALUE\" or false }",
            );
            return None;
        }
        (None, true) => {
            let section = item.section()?;
            for (name, position, value) in section.entries() {
                let report = |message: String, allowed: &str| {
                    section.report_at(&position, message, allowed);
                };
                if !can_change(name, &report) {
                    continue;
                }
                // Names are compared without case, so an operator's spelling replaces the default.
                default.retain(|(it, _)| !it.eq_ignore_ascii_case(name));
                if value.value_bool() != Some(false) {
                    default.extend(field_value(&value).map(|value| (name.to_owned(), value)));
                }
            }
        }
    }
    // No table of the file has these numbers.
    let table = usize::MAX - 1;
    Some(header_rule(
        PathPattern::everything(),
        table,
        Vec::new(),
        default,
    ))
}

/// The rule for the fields of responses that all origins may read: the same for all requests, so it can be stored.
pub(crate) fn cors_rules(cors: &[CorsConfig]) -> Vec<HeaderRule> {
    // Rules of which an earlier one may apply instead are evaluated for each request.
    let is_for_all = |rule: &&CorsConfig| rule.is_for_all() && cors.len() == 1;
    let rules = cors.iter().filter(is_for_all);
    let rules = rules.map(|rule| {
        let literal = |name: &str, value: &str| (name.to_owned(), Template::literal(value));
        let mut set = vec![literal("Access-Control-Allow-Origin", "*")];
        if !rule.expose.is_empty() {
            set.push(literal(
                "Access-Control-Expose-Headers",
                &rule.expose.join(", "),
            ));
        }
        header_rule(rule.pattern.clone(), usize::MAX - 2, set, Vec::new())
    });
    rules.collect()
}

fn header_rule(
    pattern: PathPattern,
    table: usize,
    set: Vec<(String, Template)>,
    default: Vec<(String, String)>,
) -> HeaderRule {
    HeaderRule {
        pattern,
        table,
        conditions: RequestConditions::default(),
        set,
        append: Vec::new(),
        default,
        remove: Vec::new(),
    }
}

/// Reads `canonical_host`: `true` for the first name of the site, or a host name.
pub(crate) fn canonical_host(item: &ConfigValue<'_>, names: &[SiteName]) -> Option<String> {
    let refuse = || {
        item.refuse(
            "a host name",
            "true for the first name of the site (without wildcard), or HOST, which is one of its names",
        );
        None
    };
    let name = match (item.value_bool(), item.value_text()) {
        (Some(false), _) => return None,
        (Some(true), _) => names.first().cloned(),
        (None, Some(text)) => SiteName::parse(text).ok(),
        (None, None) => None,
    };
    match name {
        // A host that leads to another site would be redirected there, and perhaps back.
        Some(SiteName::Exact(name)) if names.iter().any(|it| it.includes(name.as_bytes())) => {
            Some(name)
        }
        _ => refuse(),
    }
}

/// Reads `trailing_slash`.
pub(crate) fn trailing_slash(section: &ConfigSection<'_>) -> TrailingSlash {
    let choices = [
        ("keep", TrailingSlash::Keep),
        ("add", TrailingSlash::Add),
        ("remove", TrailingSlash::Remove),
    ];
    section.choice("trailing_slash", &choices, TrailingSlash::Keep)
}

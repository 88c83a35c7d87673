//! Reads `[[database]]`: databases for routes and pages, and their limits.
//!
//! Only the form of a URL is checked; whether a database answers there is found out by the server. URLs contain
//! passwords, so no problem quotes one.

use crate::DatabaseConfig;
use crate::named::count;
use crate::named::{self, HOUR_MS};
use crate::reader::{ConfigSection, ConfigValue, KeyPosition};
use crate::secret::SecretReading;

const ALLOWED: &str =
    "sqlite:FILE, mysql://USER:PASSWORD@HOST/NAME, postgres://USER:PASSWORD@HOST/NAME, or ${NAME}";

pub(crate) fn database(section: ConfigSection<'_>) -> Option<(DatabaseConfig, KeyPosition)> {
    let name_item = section.required("name");
    let name = name_item.as_ref().and_then(named::name);
    let url = section
        .required("url")
        .and_then(|item| match item.secret()? {
            SecretReading::Plain => url(&item, item.value_text().unwrap_or_default()),
            SecretReading::Text(text) => url(&item, &text),
            SecretReading::Unread => Some(String::new()),
        });
    let default = DatabaseConfig::new(name.unwrap_or_default(), url.unwrap_or_default());
    let connections = u64::from(default.connections_max);
    let connections = section.count("connections", connections, 1..=1024);
    let database = DatabaseConfig {
        connections_max: u32::try_from(connections).unwrap_or(default.connections_max),
        timeout_ms: section.duration_ms("timeout", default.timeout_ms, 1..=HOUR_MS),
        rows_max: count(&section, "rows", default.rows_max, 1..=1_000_000),
        ..default
    };
    section.finish();
    Some((database, name_item?.position))
}

/// The URL schemes of database servers; MySQL and PostgreSQL have two each.
const SERVERS: [&str; 4] = ["mysql", "mariadb", "postgres", "postgresql"];

/// Returns the URL without substituting its variables; a relative SQLite file is resolved against the configuration's
/// folder.
fn url(item: &ConfigValue<'_>, text: &str) -> Option<String> {
    if text.is_empty() || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        item.report(
            "not a URL",
            format!("{ALLOWED}; no spaces: %20 stands for one"),
        );
        return None;
    }
    // Problems name no part of the URL, which may contain a password.
    if !has_valid_variables(text) {
        item.report(
            "the URL has a ${ that names no variable",
            "${NAME} with letters, digits and _",
        );
        return None;
    }
    // If the whole URL comes from the environment, its scheme is known only when the server connects.
    if text.starts_with("${") {
        return Some(text.to_string());
    }
    match text.split_once(':') {
        Some(("sqlite", file)) => sqlite(item, file),
        Some((scheme, rest)) if SERVERS.contains(&scheme) => {
            if rest.strip_prefix("//").is_some_and(|rest| !rest.is_empty()) {
                return Some(text.to_string());
            }
            item.report(format!("a {scheme} URL begins with {scheme}://"), ALLOWED);
            None
        }
        Some((scheme, _)) if is_scheme(scheme) => {
            item.report(
                format!("{scheme}: is not a supported kind of database"),
                ALLOWED,
            );
            None
        }
        _ => {
            item.report("the URL does not name the kind of database", ALLOWED);
            None
        }
    }
}

fn sqlite(item: &ConfigValue<'_>, file: &str) -> Option<String> {
    // SQLite URL forms of other libraries (in memory, URI parameters, `sqlite://`) are refused rather than
    // misinterpreted.
    if file.is_empty() || file.starts_with("//") || file.starts_with([':', '?']) {
        item.report(
            "the URL names no SQLite file",
            "sqlite:FILE, absolute or relative to the folder of the configuration file",
        );
        return None;
    }
    // The variable may contain an absolute path.
    if file.starts_with("${") {
        return Some(format!("sqlite:{file}"));
    }
    Some(format!("sqlite:{}", item.resolve(file).display()))
}

fn is_scheme(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.bytes().all(plain) && text.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Whether each `${` begins a `${NAME}`.
fn has_valid_variables(text: &str) -> bool {
    text.split("${").skip(1).all(|rest| {
        rest.split_once('}')
            .is_some_and(|(name, _)| named::is_variable(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_url_variables_require_name_and_closing_brace() {
        for text in ["", "a", "${A}", "x${A_1}y${b}", "$", "}", "$A"] {
            assert!(has_valid_variables(text), "{text}");
        }
        for text in ["${", "${}", "${A", "${1A}", "${A B}", "${A${B}}", "x${A}${"] {
            assert!(!has_valid_variables(text), "{text}");
        }
    }
}

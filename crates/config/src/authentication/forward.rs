//! Reads `forward_auth`: a URL, or a table.

use crate::named::DAY_MS;
use crate::origin::split_path;
use crate::origin_url::url;
use crate::reader::{ConfigSection, ConfigValue};
use crate::request;
use crate::rules::{is_literal_name, remove};
use crate::value::InvalidValue;
use crate::{ForwardAuth, OriginConfig, OriginHost, named};

const ALLOWED: &str =
    "http://HOST/PATH, https://…, unix:/PATH, or NAME/PATH with the name of an [[origin]]";

pub(super) fn forward_auth(item: &ConfigValue<'_>) -> Option<ForwardAuth> {
    if !item.is_table() {
        let (origin, target) = server(item)?;
        return Some(ForwardAuth {
            origin,
            target,
            copied: Vec::new(),
            answered: ForwardAuth::ANSWERED.map(str::to_owned).into(),
            timeout_ms: ForwardAuth::TIMEOUT_MS,
        });
    }
    let section = item.section()?;
    let server = section.required("url").and_then(|item| server(&item));
    let copied = section
        .item("copy")
        .map_or_else(Vec::new, |item| copied(&item));
    let answered = section.item("answer").map(answered);
    let timeout_ms = section.duration_ms("timeout", ForwardAuth::TIMEOUT_MS, 1..=DAY_MS);
    section.finish();
    let (origin, target) = server?;
    Some(ForwardAuth {
        origin,
        target,
        copied,
        answered: answered.unwrap_or_else(|| ForwardAuth::ANSWERED.map(str::to_owned).into()),
        timeout_ms,
    })
}

/// Reads a URL or `NAME/PATH`: the server without its name resolved, and the target of requests.
pub(super) fn server(item: &ConfigValue<'_>) -> Option<(OriginConfig, String)> {
    let text = item.value_text().unwrap_or_default();
    let refused = InvalidValue {
        expected: "the URL of a server",
        allowed: ALLOWED,
    };
    let (server, target) = match text.contains(':') {
        true => split_path(text),
        false => text.split_at(text.find('/').unwrap_or(text.len())),
    };
    // The target is written unchanged into a request line.
    let is_target = target.is_empty()
        || target.starts_with('/')
            && target.bytes().all(|byte| byte.is_ascii_graphic())
            && !target.contains(['#', '\\']);
    if !is_target || server.is_empty() {
        item.refuse(refused.expected, refused.allowed);
        return None;
    }
    let origin = match text.contains(':') {
        true => OriginConfig {
            // The server is not one of the site: it gets the site's host in X-Forwarded-Host.
            host: OriginHost::Origin,
            ..OriginConfig::new(item.read(|_| url(server).map_err(|_| refused))?)
        },
        false => OriginConfig::named(item.read(|_| {
            let is_name = named::is_name(server);
            is_name.then(|| server.to_owned()).ok_or(refused)
        })?),
    };
    let target = if target.is_empty() { "/" } else { target };
    Some((origin, target.to_owned()))
}

/// Reads `copy`: names, or a table of request fields with the response fields that have their values.
fn copied(item: &ConfigValue<'_>) -> Vec<(String, String)> {
    // A table gives the fields other names.
    if item.is_table() {
        return item.section().map_or_else(Vec::new, request_fields);
    }
    let mut copied: Vec<(String, String)> = Vec::new();
    for item in item.items().unwrap_or_default() {
        let Some(name) = item.text() else { continue };
        if !can_set(name, &|message, allowed| item.report(message, allowed)) {
            continue;
        }
        if copied
            .iter()
            .any(|(known, _)| known.eq_ignore_ascii_case(name))
        {
            item.report(format!("{name} is listed twice"), "each field once");
        }
        copied.push((name.to_owned(), name.to_owned()));
    }
    copied
}

/// Reads a table of request fields, each with the name of the response field that has its value.
fn request_fields(section: ConfigSection<'_>) -> Vec<(String, String)> {
    crate::rules::field_lines(section, can_set, |item| {
        let name = item.text().filter(|name| is_literal_name(name));
        if name.is_none() {
            item.refuse("a field name", "letters, digits and !#$%&'*+-.^_`|~");
        }
        name.map(str::to_owned)
    })
}

/// Whether authentication may set a request field; if not, calls `report`.
pub(super) fn can_set(name: &str, report: &dyn Fn(String, &str)) -> bool {
    if name.contains('_') {
        // CGI maps both `-` and `_` to `_`, so a client could send another spelling of the field.
        report(format!("{name} contains _"), "a name with - instead");
        return false;
    }
    let is_reserved = ["authorization", "cookie", "host"]
        .iter()
        .any(|reserved| name.eq_ignore_ascii_case(reserved));
    if is_reserved {
        report(
            format!("{name} is a field of the client"),
            "a field that clients don't send",
        );
        return false;
    }
    request::can_change(name, report)
}

/// Reads `answer`: the names of response fields.
fn answered(item: ConfigValue<'_>) -> Vec<String> {
    remove(item, |name, report| {
        let is_allowed = ForwardAuth::ANSWERED
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known));
        is_allowed || crate::rules::can_change(name, report)
    })
}

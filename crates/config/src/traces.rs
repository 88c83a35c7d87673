//! Reads `[traces]`.

use std::path::PathBuf;

use crate::reader::{ConfigSection, ConfigValue, KeyPosition};
use crate::secret::SecretReading;
use crate::value::InvalidValue;
use crate::{OriginUrl, TracesConfig, TracesEndpoint, named, origin_url};

const MINUTE_MS: u64 = 60_000;

const REFUSED_URL: InvalidValue = InvalidValue {
    expected: "the URL of a collector",
    allowed: "http://HOST:PORT/PATH or https://…; without a path, /v1/traces is used",
};

const REFUSED_RATE: InvalidValue = InvalidValue {
    expected: "a share of all traces",
    allowed: "0 to 1, with at most 6 digits after the point",
};

/// Fields that the exporter sets.
const RESERVED_FIELDS: [&str; 6] = [
    "host",
    "connection",
    "content-length",
    "content-type",
    "content-encoding",
    "transfer-encoding",
];

/// Reads `[traces]`; also returns the position of an https URL, which needs TLS.
pub(crate) fn traces(section: ConfigSection<'_>) -> (TracesConfig, Option<KeyPosition>) {
    let default = TracesConfig::default();
    let endpoint_item = section.item("endpoint");
    let endpoint = endpoint_item.as_ref().and_then(|item| item.read(endpoint));
    let endpoint = endpoint.unwrap_or_default();
    let is_encrypted = endpoint.server.is_encrypted();
    if !is_encrypted {
        section.only_with("ca", "an endpoint whose URL is https:");
    }
    let mut names = Vec::new();
    let queue_default = default.queue_len_max as u64;
    let traces = TracesConfig {
        authorities: section.item("ca").and_then(|item| item.path()),
        headers: section
            .section("headers")
            .map_or_else(Vec::new, |it| headers(it, &mut names)),
        header_files: section
            .section("header_files")
            .map_or_else(Vec::new, |it| header_files(it, &mut names)),
        sample_millionths: section
            .item("sample")
            .and_then(|item| rate(&item))
            .unwrap_or(default.sample_millionths),
        accept_parent: section.flag("accept_parent", default.accept_parent),
        service_name: section
            .item("service_name")
            .and_then(|item| item.text())
            .map_or(default.service_name, str::to_owned),
        resource: section
            .section("resource")
            .map_or_else(Vec::new, named::settings),
        timeout_ms: section.duration_ms("timeout", default.timeout_ms, 100..=MINUTE_MS),
        queue_len_max: section.count("queue_max", queue_default, 16..=1 << 20) as usize,
        endpoint,
    };
    section.finish();
    let position = endpoint_item.map(|item| item.position);
    (traces, position.filter(|_| is_encrypted))
}

fn endpoint(text: &str) -> Result<TracesEndpoint, InvalidValue> {
    let authority_start = text.find("://").ok_or(REFUSED_URL)? + 3;
    let path_start = text[authority_start..].find(['/', '?']);
    let (server, target) = match path_start {
        Some(start) => text.split_at(authority_start + start),
        None => (text, ""),
    };
    let is_target_byte = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    if !target.bytes().all(is_target_byte) || target.starts_with('?') {
        return Err(REFUSED_URL);
    }
    let server = origin_url::url(server).map_err(|_| REFUSED_URL)?;
    // `unix:` has no `//`, but unix:///x would be read as a path.
    if matches!(server, OriginUrl::Unix(_)) {
        return Err(REFUSED_URL);
    }
    let target = match target {
        "" | "/" => TracesEndpoint::default().target,
        path => path.to_owned(),
    };
    Ok(TracesEndpoint { server, target })
}

/// Reads a share as millionths.
fn rate(item: &ConfigValue<'_>) -> Option<u32> {
    let millionths = item.plain_text().as_deref().and_then(millionths);
    if millionths.is_none() {
        item.refuse(REFUSED_RATE.expected, REFUSED_RATE.allowed);
    }
    millionths
}

fn millionths(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(decimals) || decimals.len() > 6 {
        return None;
    }
    let whole: u32 = whole.parse().ok()?;
    let decimals: u32 = format!("{decimals:0<6}").parse().ok()?;
    let sum = whole.checked_mul(1_000_000)?.checked_add(decimals)?;
    (sum <= 1_000_000).then_some(sum)
}

/// Reads the fields with a value. `names` collects the names of all fields.
fn headers(section: ConfigSection<'_>, names: &mut Vec<String>) -> Vec<(String, String)> {
    let headers = section.entries().filter_map(|(name, position, item)| {
        let is_valid = is_header(&section, name, &position, names);
        let text = match item.secret()? {
            SecretReading::Plain => item.text()?.to_owned(),
            SecretReading::Text(text) => text,
            SecretReading::Unread => String::new(),
        };
        let value = text.trim();
        // Other bytes would end up in the field in an encoding that the collector may not expect.
        if !value.is_ascii() || value.contains(|byte: char| byte.is_ascii_control()) {
            // The value may be a secret, so it is not quoted.
            item.report("not the value of a field", "ASCII, on one line");
            return None;
        }
        is_valid.then(|| (name.to_owned(), value.to_owned()))
    });
    headers.collect()
}

fn header_files(section: ConfigSection<'_>, names: &mut Vec<String>) -> Vec<(String, PathBuf)> {
    let files = section.entries().filter_map(|(name, position, item)| {
        let is_valid = is_header(&section, name, &position, names);
        let path = item.path()?;
        is_valid.then(|| (name.to_owned(), path))
    });
    files.collect()
}

/// Whether this can be the name of a field of export requests besides those of `names`, to which it is added; reports
/// another.
fn is_header(
    section: &ConfigSection<'_>,
    name: &str,
    position: &KeyPosition,
    names: &mut Vec<String>,
) -> bool {
    let lower_name = name.to_ascii_lowercase();
    let is_token_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let problem = if name.is_empty() || !name.bytes().all(is_token_byte) {
        "is not the name of a field"
    } else if RESERVED_FIELDS.contains(&&*lower_name) {
        "is set by the server"
    } else if names.contains(&lower_name) {
        "is set twice; the case of names does not matter"
    } else {
        names.push(lower_name);
        return true;
    };
    section.report_at(
        position,
        format!("{name:?} {problem}"),
        "a name like Authorization or x-api-key",
    );
    false
}

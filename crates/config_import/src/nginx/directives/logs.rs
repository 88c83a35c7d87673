//! Logs: `[log]` and `[[log.access]]`.

use super::process::not_a_value;
use super::{Handling::NotNeeded, Handling::Translate, TableLine};
use crate::nginx::level::Level;
use crate::nginx::settings::AccessLogSetting;
use crate::nginx::tree::Directive;
use crate::report::DirectiveOutcome;
use crate::toml_values::quoted;

/// Directives of logs.
pub const TABLE: &[TableLine] = &[
    ("access_log", Translate(access_log)),
    ("error_log", Translate(error_log)),
    ("log_format", Translate(log_format)),
    ("open_log_file_cache", NotNeeded("logs stay open")),
    ("rewrite_log", NotNeeded("`lowroad explain` shows rewrites")),
    (
        "uninitialized_variable_warn",
        NotNeeded("there are no variables to set"),
    ),
];

/// Variables of nginx with an equal of another name.
const RENAMED: [(&str, &str); 4] = [
    ("$upstream_cache_status", "$outcome"),
    ("$bytes_sent", "$body_bytes_sent"),
    ("$realip_remote_addr", "$remote_addr"),
    ("$proxy_protocol_addr", "$remote_addr"),
];

/// Variables that access logs know, other than `$http_NAME`.
const KNOWN: [&str; 26] = [
    "remote_addr",
    "remote_port",
    "remote_user",
    "time_local",
    "time_iso8601",
    "msec",
    "request",
    "request_method",
    "request_uri",
    "server_protocol",
    "uri",
    "args",
    "query_string",
    "scheme",
    "host",
    "status",
    "body_bytes_sent",
    "request_time",
    "request_time_us",
    "request_completion",
    "site",
    "server_name",
    "route",
    "level",
    "outcome",
    "ssl_protocol",
];

fn log_format(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let Some((name, parts)) = directive.args.split_first() else {
        return not_a_value();
    };
    let escape = parts.first().and_then(|it| it.strip_prefix("escape="));
    let parts = if escape.is_some() { &parts[1..] } else { parts };
    let (text, unknown) = known_variables(&parts.join(""));
    level
        .definitions()
        .log_formats
        .insert(name.clone(), (text, escape == Some("json")));
    DirectiveOutcome::Translated(match unknown.is_empty() {
        true => String::new(),
        false => format!("{} become -", unknown.join(", ")),
    })
}

/// The text with variables of Lowroad; unknown ones become `-` and are returned.
fn known_variables(text: &str) -> (String, Vec<String>) {
    let mut text = text.replace('\\', "");
    for (old, new) in RENAMED {
        text = text.replace(old, new);
    }
    let mut result = String::new();
    let mut unknown = Vec::new();
    let mut parts = text.split('$');
    result.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let inner = part.strip_prefix('{').unwrap_or(part);
        let len = inner
            .find(|it: char| !it.is_ascii_alphanumeric() && it != '_')
            .unwrap_or(inner.len());
        let name = &inner[..len];
        let is_known = KNOWN.contains(&name) || name.starts_with("http_");
        let end = if part.starts_with('{') {
            inner[len..].strip_prefix('}').unwrap_or(&inner[len..])
        } else {
            &inner[len..]
        };
        if is_known {
            let is_braced = part.starts_with('{');
            result.push_str(&if is_braced {
                format!("${{{name}}}")
            } else {
                format!("${name}")
            });
        } else {
            unknown.push(format!("${name}"));
            result.push('-');
        }
        result.push_str(end);
    }
    (result, unknown)
}

fn access_log(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    if level.begins_array("access_log") {
        level.settings.access_logs = Some(Vec::new());
    }
    let to = directive.arg(0);
    if to == "off" {
        level.settings.access_logs = Some(Vec::new());
        return DirectiveOutcome::translated();
    }
    let name = directive
        .args
        .get(1)
        .filter(|arg| !arg.contains('='))
        .map_or("combined", String::as_str);
    let condition = directive
        .args
        .iter()
        .find_map(|arg| arg.strip_prefix("if=$"));
    let statuses =
        match condition.map(|name| statuses_of_map(level, name)) {
            None => Vec::new(),
            Some(Some(statuses)) => statuses,
            Some(None) => return DirectiveOutcome::ByHand(
                "conditions are `status`, `path`, `min_duration` and `sample` of [[log.access]]"
                    .to_string(),
            ),
        };
    let (format, is_json) = match (name, level.definitions().log_formats.get(name)) {
        (_, Some(format)) => format.clone(),
        ("combined", None) => ("combined".to_string(), false),
        _ => return DirectiveOutcome::ByHand(format!("log_format {name} is missing")),
    };
    let Some(to) = target(to) else {
        return DirectiveOutcome::ByHand("write a [[log.access]] for it".to_string());
    };
    let log = AccessLogSetting {
        to,
        format,
        is_json,
        statuses,
    };
    level.settings.access_logs.get_or_insert_default().push(log);
    DirectiveOutcome::translated()
}

/// The target of a log. Lowroad's logs are in a separate folder, so that both servers can run side by side.
fn target(to: &str) -> Option<String> {
    match to.strip_prefix("syslog:server=") {
        Some(server) => {
            let address = server.split(',').next().unwrap_or_default();
            Some(match address.strip_prefix("unix:") {
                Some("/dev/log") => "syslog".to_string(),
                Some(path) => format!("syslog:unix:{path}"),
                None => format!("syslog:udp:{address}"),
            })
        }
        None if to == "/dev/stdout" => Some("stdout".to_string()),
        None if to == "/dev/stderr" || to == "stderr" => Some("stderr".to_string()),
        None if to.contains('$') || to.starts_with("memory:") => None,
        None => Some(match to.strip_prefix("/var/log/nginx/") {
            Some(name) => format!("/var/log/lowroad/{name}"),
            None if to.starts_with('/') => to.to_string(),
            None => format!("/var/log/lowroad/{}", to.trim_start_matches("logs/")),
        }),
    }
}

/// The conditions of a log by a map of `$status`: `~^[23] 0; default 1`.
fn statuses_of_map(level: &mut Level<'_>, name: &str) -> Option<Vec<String>> {
    let (source, pairs) = level.definitions().maps.get(name)?;
    if source != "$status" {
        return None;
    }
    let default = pairs
        .iter()
        .find(|(key, _)| key == "default")
        .is_some_and(|(_, value)| value != "0" && !value.is_empty());
    let mut statuses = Vec::new();
    for (key, value) in pairs.iter().filter(|(key, _)| key != "default") {
        let is_logged = value != "0" && !value.is_empty();
        if is_logged == default {
            continue;
        }
        let classes = match key.strip_prefix("~^") {
            Some(classes) => classes
                .trim_matches(['[', ']'])
                .chars()
                .filter(char::is_ascii_digit)
                .map(|it| format!("{it}xx"))
                .collect(),
            None => vec![key.clone()],
        };
        statuses.extend(
            classes
                .into_iter()
                .map(|it| if default { format!("!{it}") } else { it }),
        );
    }
    Some(statuses)
}

fn error_log(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let to = match directive.arg(0) {
        "/dev/null" | "off" => {
            return DirectiveOutcome::NotNeeded(
                "the error log is short; level in [log] selects severities".to_string(),
            );
        }
        to => target(to),
    };
    let Some(to) = to.filter(|to| !to.starts_with("syslog")) else {
        return DirectiveOutcome::NotNeeded(
            "the error log goes to the journal by standard error".to_string(),
        );
    };
    // Outer blocks are read first, so the log of the outermost block stays.
    if level
        .definitions()
        .process_keys
        .contains_key(&("log", "error"))
    {
        return DirectiveOutcome::Translated("one error log for all sites".to_string());
    }
    level.set_process_key("log", "error", quoted(&to), directive);
    let severity = match directive.arg(1) {
        "" => return DirectiveOutcome::translated(),
        "error" | "crit" | "alert" | "emerg" => "error",
        "warn" => "warn",
        "debug" => "debug",
        _ => "info",
    };
    level.set_process_key("log", "level", quoted(severity), directive);
    DirectiveOutcome::translated()
}

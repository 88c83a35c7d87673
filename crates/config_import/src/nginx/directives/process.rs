//! The process, and limits of clients: `[server]`, `[limits]`, `[buffering]`.

use super::{Handling::NotNeeded, Handling::Translate, TableLine};
use crate::nginx::level::Level;
use crate::nginx::settings::Sourced;
use crate::nginx::tree::Directive;
use crate::nginx::values::{bytes, duration};
use crate::report::DirectiveOutcome;
use crate::toml_values::{quoted, size};

const KERNEL: &str = "the server decides this by itself";
const BUFFERS: &str = "buffers grow as needed";

/// Directives of the process and of connections.
pub const TABLE: &[TableLine] = &[
    ("user", Translate(user)),
    ("worker_processes", Translate(workers)),
    ("worker_rlimit_nofile", Translate(fd_limit)),
    ("client_max_body_size", Translate(body_len)),
    ("client_body_timeout", Translate(timeout)),
    ("client_header_timeout", Translate(timeout)),
    ("send_timeout", Translate(timeout)),
    ("keepalive_timeout", Translate(timeout)),
    ("large_client_header_buffers", Translate(header_buffers)),
    ("client_body_buffer_size", Translate(body_buffer)),
    ("client_body_temp_path", Translate(temp_path)),
    (
        "keepalive_requests",
        NotNeeded(
            "connections have no such limit; requests_per_connection_max in [limits] sets one",
        ),
    ),
    (
        "worker_connections",
        NotNeeded("connections_max in [limits] is 65536"),
    ),
    ("events", NotNeeded(KERNEL)),
    ("multi_accept", NotNeeded("accept in [server] is 32")),
    ("use", NotNeeded(KERNEL)),
    ("accept_mutex", NotNeeded(KERNEL)),
    (
        "worker_cpu_affinity",
        NotNeeded("affinity in [server] pins workers"),
    ),
    (
        "worker_priority",
        NotNeeded("set Nice= of the systemd service"),
    ),
    (
        "worker_shutdown_timeout",
        NotNeeded("drain_timeout in [server] is 30s"),
    ),
    (
        "pcre_jit",
        NotNeeded("expressions are compiled at the start"),
    ),
    ("pid", NotNeeded("systemd knows the process")),
    ("daemon", NotNeeded("systemd knows the process")),
    ("master_process", NotNeeded(KERNEL)),
    ("lock_file", NotNeeded(KERNEL)),
    ("load_module", NotNeeded("features are built in")),
    (
        "env",
        NotNeeded("applications and programs get the server's environment or their own"),
    ),
    ("sendfile", NotNeeded(KERNEL)),
    ("sendfile_max_chunk", NotNeeded(KERNEL)),
    ("tcp_nopush", NotNeeded(KERNEL)),
    ("tcp_nodelay", NotNeeded(KERNEL)),
    ("aio", NotNeeded("threads of the server read files")),
    ("aio_write", NotNeeded("threads of the server read files")),
    ("thread_pool", NotNeeded("threads of the server read files")),
    ("directio", NotNeeded(KERNEL)),
    ("directio_alignment", NotNeeded(KERNEL)),
    ("output_buffers", NotNeeded(BUFFERS)),
    ("postpone_output", NotNeeded(BUFFERS)),
    ("client_header_buffer_size", NotNeeded(BUFFERS)),
    ("connection_pool_size", NotNeeded(BUFFERS)),
    ("request_pool_size", NotNeeded(BUFFERS)),
    ("client_body_in_file_only", NotNeeded(BUFFERS)),
    ("client_body_in_single_buffer", NotNeeded(BUFFERS)),
    ("reset_timedout_connection", NotNeeded(KERNEL)),
    ("lingering_close", NotNeeded(KERNEL)),
    ("lingering_time", NotNeeded(KERNEL)),
    ("lingering_timeout", NotNeeded(KERNEL)),
    (
        "keepalive_disable",
        NotNeeded("browsers with that mistake are gone"),
    ),
    ("server_tokens", NotNeeded("Server has no version")),
    ("server_names_hash_bucket_size", NotNeeded(BUFFERS)),
    ("server_names_hash_max_size", NotNeeded(BUFFERS)),
    ("types_hash_max_size", NotNeeded(BUFFERS)),
    ("types_hash_bucket_size", NotNeeded(BUFFERS)),
    ("variables_hash_max_size", NotNeeded(BUFFERS)),
    ("variables_hash_bucket_size", NotNeeded(BUFFERS)),
    ("map_hash_bucket_size", NotNeeded(BUFFERS)),
    ("map_hash_max_size", NotNeeded(BUFFERS)),
    (
        "server_name_in_redirect",
        NotNeeded("redirects keep the requested host"),
    ),
    (
        "port_in_redirect",
        NotNeeded("redirects keep the requested host"),
    ),
    (
        "absolute_redirect",
        NotNeeded("redirects keep the requested host"),
    ),
    (
        "merge_slashes",
        NotNeeded("paths are compared with slashes merged, and sent on unchanged"),
    ),
    (
        "underscores_in_headers",
        NotNeeded(
            "fields with underscores are never sent on: applications mix them up with others",
        ),
    ),
    (
        "ignore_invalid_headers",
        NotNeeded("invalid requests get 400"),
    ),
    (
        "resolver",
        NotNeeded("names are resolved by the system, every 10 s"),
    ),
    (
        "resolver_timeout",
        NotNeeded("names are resolved by the system, every 10 s"),
    ),
    ("max_ranges", NotNeeded("ranges are bounded")),
    ("http2", NotNeeded("HTTP/2 is always on with TLS")),
    ("limit_rate", Translate(bandwidth)),
    ("limit_rate_after", Translate(bandwidth_after)),
];

/// `limit_rate`: the lowest rate of Lowroad is 1 KB/s.
fn bandwidth(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let Some(rate) = bytes(directive.arg(0)) else {
        return not_a_value();
    };
    let is_limited = level.settings.bandwidth.take().is_some();
    if rate > 0 {
        let kilobytes = rate.div_ceil(1024).min(1 << 30);
        level.settings.bandwidth = Some(Sourced {
            value: format!("{kilobytes}KB/s"),
            entry: directive.id,
        });
        return DirectiveOutcome::translated();
    }
    match is_limited {
        true => DirectiveOutcome::ByHand(
            "the site's `rate` applies here, too: write a [[site.rule]] with another".to_string(),
        ),
        false => DirectiveOutcome::NotNeeded("0 is the default".to_string()),
    }
}

fn bandwidth_after(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let Some(len) = bytes(directive.arg(0)) else {
        return not_a_value();
    };
    level.settings.bandwidth_after = (len > 0).then(|| size(len));
    DirectiveOutcome::translated()
}

fn user(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    level.set_process_key("server", "user", quoted(directive.arg(0)), directive);
    if directive.args.len() > 1 {
        level.set_process_key("server", "group", quoted(directive.arg(1)), directive);
    }
    DirectiveOutcome::translated()
}

fn workers(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    match directive.arg(0) {
        "auto" => DirectiveOutcome::NotNeeded("auto is the default".to_string()),
        number if number.parse::<u16>().is_ok() => {
            level.set_process_key("server", "workers", number.to_string(), directive);
            DirectiveOutcome::translated()
        }
        _ => not_a_value(),
    }
}

fn fd_limit(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let Ok(number) = directive.arg(0).parse::<u64>() else {
        return not_a_value();
    };
    level.set_process_key(
        "server",
        "fd_limit",
        // A value outside of the key's range would be commented out; the nearest one is closer.
        number.clamp(64, 1_048_576).to_string(),
        directive,
    );
    DirectiveOutcome::translated()
}

/// The limit of bodies is one for all sites, so the largest is taken; 0 means no limit.
fn body_len(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let Some(len) = bytes(directive.arg(0)) else {
        return not_a_value();
    };
    // The key has no value for "unlimited"; its largest one is 1024G.
    let len = if len == 0 { 1 << 40 } else { len };
    let key = ("limits", "body_len_max");
    let present = level.definitions().process_keys.get(&key);
    let present = present.and_then(|it| bytes(it.value.trim_matches('"')));
    if present.is_some_and(|present| present >= len) {
        return DirectiveOutcome::Translated(
            "the limit is one for all sites: the largest".to_string(),
        );
    }
    // Another limit than the default is needed only if it is larger: 1M is nginx' default, too.
    level.set_process_key(key.0, key.1, size(len), directive);
    match present {
        Some(_) => {
            DirectiveOutcome::Translated("the limit is one for all sites: the largest".to_string())
        }
        None => DirectiveOutcome::translated(),
    }
}

fn timeout(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let key = match &*directive.name {
        "client_body_timeout" => "body_timeout",
        "client_header_timeout" => "header_timeout",
        "send_timeout" => "send_timeout",
        _ => "idle_timeout",
    };
    match duration(directive.arg(0)).as_deref() {
        None => not_a_value(),
        Some("\"0s\"") => DirectiveOutcome::NotNeeded(
            "connections can't be closed after each request".to_string(),
        ),
        Some(value) => {
            level.set_process_key("limits", key, value.to_string(), directive);
            DirectiveOutcome::translated()
        }
    }
}

fn header_buffers(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let count: Option<u64> = directive.arg(0).parse().ok();
    let (Some(count), Some(len)) = (count, bytes(directive.arg(1))) else {
        return not_a_value();
    };
    // In nginx, one buffer holds the whole request line, and all buffers together the head.
    let head_len = count.saturating_mul(len).clamp(512, 1 << 20);
    level.set_process_key("limits", "head_len_max", size(head_len), directive);
    level.set_process_key(
        "limits",
        "target_len_max",
        size(len.clamp(64, head_len)),
        directive,
    );
    DirectiveOutcome::translated()
}

fn body_buffer(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let Some(len) = bytes(directive.arg(0)) else {
        return not_a_value();
    };
    level.set_process_key(
        "buffering",
        "request_buffer",
        size(len.clamp(4096, 16 << 20)),
        directive,
    );
    DirectiveOutcome::translated()
}

fn temp_path(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let path = level.absolute_path(directive.arg(0));
    level.set_process_key("buffering", "temp_path", quoted(&path), directive);
    DirectiveOutcome::translated()
}

/// The outcome of a value that isn't understood.
pub fn not_a_value() -> DirectiveOutcome {
    DirectiveOutcome::ByHand("the value is not understood".to_string())
}

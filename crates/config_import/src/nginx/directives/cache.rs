//! Stored responses of origins and programs: `proxy_cache_…`, `fastcgi_cache_…`.

use super::process::not_a_value;
use super::{Handling, Handling::NotNeeded, Handling::Translate, TableLine};
use crate::nginx::level::Level;
use crate::nginx::settings::{CacheTime, Sourced, UpstreamSettings};
use crate::nginx::tree::Directive;
use crate::nginx::values::{bytes, duration};
use crate::report::DirectiveOutcome;
use crate::toml_values::{quoted, size};

const STORED: &str = "responses are stored by RFC 9111";

/// Directives of stored responses.
pub const TABLE: &[TableLine] = &[
    ("proxy_cache", Translate(cache)),
    ("proxy_cache_valid", Translate(cache_valid)),
    ("proxy_cache_use_stale", Translate(use_stale)),
    ("proxy_cache_path", Translate(cache_path)),
    ("fastcgi_cache_path", Translate(cache_path)),
    (
        "proxy_cache_background_update",
        NotNeeded("stale-while-revalidate does this"),
    ),
    (
        "proxy_cache_lock",
        NotNeeded("equal misses share one request (request coalescing)"),
    ),
    (
        "proxy_cache_lock_timeout",
        NotNeeded("equal misses share one request (request coalescing)"),
    ),
    (
        "proxy_cache_lock_age",
        NotNeeded("equal misses share one request (request coalescing)"),
    ),
    ("proxy_cache_revalidate", NotNeeded(STORED)),
    (
        "proxy_cache_min_uses",
        NotNeeded("the eviction keeps responses that are used again"),
    ),
    ("proxy_cache_methods", NotNeeded(STORED)),
    ("proxy_cache_key", Translate(cache_key)),
    ("proxy_cache_bypass", Translate(cache_exception)),
    ("proxy_no_cache", Translate(cache_exception)),
    (
        "proxy_cache_purge",
        Handling::ByHand("list the clients in purge_from (docs/operation.md)"),
    ),
    ("proxy_ignore_headers", Translate(ignored_fields)),
    (
        "proxy_store",
        Handling::ByHand("responses are stored in memory and in disk_cache"),
    ),
    ("fastcgi_cache", Translate(cache)),
    ("fastcgi_cache_valid", Translate(cache_valid)),
    ("fastcgi_cache_use_stale", Translate(use_stale)),
    ("fastcgi_cache_key", Translate(cache_key)),
    (
        "fastcgi_cache_lock",
        NotNeeded("equal misses share one request (request coalescing)"),
    ),
    (
        "fastcgi_cache_min_uses",
        NotNeeded("the eviction keeps responses that are used again"),
    ),
    (
        "fastcgi_cache_background_update",
        NotNeeded("stale-while-revalidate does this"),
    ),
    ("fastcgi_cache_bypass", Translate(cache_exception)),
    ("fastcgi_no_cache", Translate(cache_exception)),
    ("fastcgi_ignore_headers", Translate(ignored_fields)),
];

/// The settings that a directive changes: those of programs or of origins.
pub fn settings_of<'l>(
    level: &'l mut Level<'_>,
    directive: &Directive,
) -> &'l mut UpstreamSettings {
    match directive.name.starts_with("fastcgi") {
        true => &mut level.settings.fastcgi,
        false => &mut level.settings.proxy,
    }
}

/// `proxy_cache` and `fastcgi_cache`.
fn cache(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let is_cached = directive.arg(0) != "off";
    settings_of(level, directive).is_cached = is_cached;
    DirectiveOutcome::Translated(if is_cached {
        STORED.to_string()
    } else {
        String::new()
    })
}

/// `proxy_cache_valid`. A route that stores responses selects one lifetime, and reports the others.
fn cache_valid(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let is_first = level.begins_array(match directive.name.starts_with("fastcgi") {
        true => "fastcgi_cache_valid",
        false => "proxy_cache_valid",
    });
    let Some((time, statuses)) = directive.args.split_last() else {
        return not_a_value();
    };
    let Some(time) = duration(time) else {
        return not_a_value();
    };
    let settings = settings_of(level, directive);
    if is_first {
        settings.cache_times.clear();
    }
    let value = CacheTime {
        statuses: statuses.to_vec(),
        time,
    };
    settings.cache_times.push(Sourced {
        value,
        entry: directive.id,
    });
    DirectiveOutcome::NotNeeded("no route with this lifetime stores responses".to_string())
}

/// `proxy_ignore_headers` and `fastcgi_ignore_headers`.
fn ignored_fields(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let mut names = directive.args.iter();
    let has_lifetime = names.any(|it| it.eq_ignore_ascii_case("cache-control"));
    settings_of(level, directive).ignores_lifetimes = has_lifetime;
    match has_lifetime {
        true => DirectiveOutcome::Translated(
            "responses with no-store, private or Set-Cookie are not stored".to_string(),
        ),
        false => DirectiveOutcome::ByHand(
            "`cookies` in [site.route.cache] is for Set-Cookie; Vary and Expires are obeyed"
                .to_string(),
        ),
    }
}

/// `proxy_cache_bypass`, `proxy_no_cache` and those of FastCGI: until their conditions are translated by hand, nothing is
/// stored, since a response for one client might be given to others.
fn cache_exception(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    settings_of(level, directive).has_cache_exceptions = true;
    DirectiveOutcome::ByHand(
        "nothing of these routes is stored (keep = \"never\") until you replace that by the same conditions as `bypass` \
         in [site.route.cache]"
            .to_string(),
    )
}

/// `proxy_cache_use_stale`
fn use_stale(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    settings_of(level, directive).stale_uses = directive.args.clone();
    DirectiveOutcome::translated()
}

/// `proxy_cache_path`: the folder of stored responses.
fn cache_path(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let key = ("server", "disk_cache");
    if level.definitions().process_keys.contains_key(&key) {
        return DirectiveOutcome::Translated("one disk cache for all routes".to_string());
    }
    // nginx may run side by side, with files of another format in its folder.
    let theirs = level.absolute_path(directive.arg(0));
    let path = match theirs.replace("/nginx", "/lowroad") {
        same if same == theirs => format!("{}-lowroad", theirs.trim_end_matches('/')),
        own => own,
    };
    level.set_process_key(key.0, key.1, quoted(&path), directive);
    let max = directive
        .args
        .iter()
        .find_map(|arg| bytes(arg.strip_prefix("max_size=")?));
    if let Some(max) = max {
        level.set_process_key(
            "server",
            "disk_cache_max",
            size(max.max(64 << 20)),
            directive,
        );
    }
    DirectiveOutcome::Translated(
        "in a folder of Lowroad's own; memory is `cache` in [server]".to_string(),
    )
}

/// Keys of host and target are those of Lowroad.
fn cache_key(_: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let known = [
        "$scheme",
        "$request_method",
        "$proxy_host",
        "$http_host",
        "$host",
        "$request_uri",
        "$uri",
        "$is_args",
        "$args",
        "$server_name",
    ];
    let mut text = directive.args.join("");
    for name in known {
        text = text.replace(name, "");
    }
    if text
        .chars()
        .any(|it| it.is_ascii_alphanumeric() || it == '$')
    {
        return DirectiveOutcome::ByHand(
            "the key is host and target; send Vary for fields of the request".to_string(),
        );
    }
    DirectiveOutcome::NotNeeded("the key is scheme, host and target".to_string())
}

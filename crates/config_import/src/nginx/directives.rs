//! The table from directive to translator.
//!
//! A directive that becomes expressible later needs another line in one of the tables, and mostly a few lines of code.
//! Blocks (`server`, `location`, `upstream`, `map`, …) are read by [`super::blocks`].

use super::level::Level;
use super::tree::Directive;
use crate::report::DirectiveOutcome;

mod access;
mod cache;
mod changes;
mod conditions;
mod fastcgi;
mod fields;
mod files;
mod logs;
mod process;
mod proxy;
mod refusals;
mod targets;
mod tls;
mod upstream;

pub use changes::selected_paths;
pub use conditions::condition;
pub use targets::{change_of, is_to_https, own_host, returned, returned_url, strip_own_host};
pub use upstream::upstream_directive;

/// The treatment of a directive.
#[derive(Clone, Copy)]
pub enum Handling {
    /// A function changes the settings or the content of the block.
    Translate(fn(&mut Level<'_>, &Directive) -> DirectiveOutcome),
    /// The server needs no equal, for this reason.
    NotNeeded(&'static str),
    /// The configuration has no equal; the text is a way to get the same.
    ByHand(&'static str),
}

/// A line of a table.
pub type TableLine = (&'static str, Handling);

/// Translates a directive of `http`, `server` or `location`, or of the top level.
pub fn translate(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    match translate_line(level, directive) {
        // Without the handler, files would be sent: the sources of programs.
        DirectiveOutcome::ByHand(way) if is_handler(directive) => {
            level.content.has_unknown_handler = true;
            DirectiveOutcome::ByHand(format!("the paths are refused until then: {way}"))
        }
        outcome => outcome,
    }
}

/// Whether a directive creates the responses of its block.
pub fn is_handler(directive: &Directive) -> bool {
    let name = &*directive.name;
    let others = [
        "js_content",
        "perl",
        "passenger_enabled",
        "empty_gif",
        "random_index",
    ];
    let is_handler = name.ends_with("_pass") || name.starts_with("content_by_");
    (is_handler || others.contains(&name)) && directive.arg(0) != "off"
}

fn translate_line(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let tables = [
        access::TABLE,
        cache::TABLE,
        changes::TABLE,
        fastcgi::TABLE,
        fields::TABLE,
        files::TABLE,
        logs::TABLE,
        process::TABLE,
        proxy::TABLE,
        tls::TABLE,
    ];
    let line = tables
        .into_iter()
        .flatten()
        .find(|(name, _)| *name == directive.name);
    match line {
        Some((_, Handling::Translate(translate))) => translate(level, directive),
        Some((_, Handling::NotNeeded(reason))) => {
            DirectiveOutcome::NotNeeded((*reason).to_string())
        }
        Some((_, Handling::ByHand(way))) => DirectiveOutcome::ByHand((*way).to_string()),
        None if is_guard(&directive.name) => {
            // `auth_jwt off` ends the protection of an outer block.
            level.settings.access.has_unknown_guard = directive.arg(0) != "off";
            match unknown(directive) {
                DirectiveOutcome::ByHand(way) => {
                    DirectiveOutcome::ByHand(format!("the paths are refused until then: {way}"))
                }
                outcome => outcome,
            }
        }
        None => unknown(directive),
    }
}

/// Whether a directive of a module restricts access.
fn is_guard(name: &str) -> bool {
    let names = [
        "auth_jwt",
        "auth_ldap",
        "auth_pam",
        "auth_gss",
        "auth_digest",
        "auth_spnego",
        "auth_oidc",
        "js_access",
        "perl_access",
    ];
    names.contains(&name) || name.starts_with("access_by_") || name.starts_with("rewrite_by_")
}

/// Directives of modules, by their prefix.
fn unknown(directive: &Directive) -> DirectiveOutcome {
    // The first prefix that fits counts, so longer ones come before `uwsgi_` and `scgi_`.
    let families = [
        (
            "ssl_",
            Ok("the server's TLS settings are fixed or in [site.tls]"),
        ),
        ("http2_", Ok("HTTP/2 is always on with TLS")),
        (
            "open_file_cache",
            Ok("files are cached, and changes are noticed"),
        ),
        (
            "quic_",
            Ok("HTTP/3 is on with TLS, and its settings are fixed"),
        ),
        ("http3", Ok("HTTP/3 is on with TLS, see http3 in [server]")),
        ("uwsgi_temp_path", Ok("[buffering] has one folder")),
        ("scgi_temp_path", Ok("[buffering] has one folder")),
        (
            "uwsgi_param",
            Ok("uWSGI gets the request by HTTP, see uwsgi_pass"),
        ),
        (
            "uwsgi_",
            Err("start uWSGI with --http-socket and use its address as origin"),
        ),
        ("scgi_", Err("use FastCGI or HTTP")),
        ("grpc_", Err("see protocol in [[origin]]")),
        (
            "memcached_",
            Err("use an HTTP server in front of memcached"),
        ),
        ("dav_", Err("use an origin for WebDAV")),
        ("perl", Err("write a module (docs/modules.md)")),
        ("js_", Err("write a module (docs/modules.md)")),
        ("auth_jwt", Err("use jwt in [[site.rule]]")),
        ("split_clients", Err("use a route with the condition share")),
        ("sub_filter", Err("change the text in the application")),
        ("xslt_", Err("use a program")),
        ("image_filter", Err("use a program")),
        ("geoip", Err("write a module (docs/modules.md)")),
        (
            "passenger_",
            Err("start the application by [[application]] and use its address as origin"),
        ),
        ("pagespeed", Err("optimise files when you build them")),
        (
            "modsecurity",
            Err("use a web application firewall as origin"),
        ),
        ("brotli", Ok("br, zstd and gzip are on for text")),
        ("zstd", Ok("br, zstd and gzip are on for text")),
        ("gzip", Ok("the defaults suffice")),
    ];
    let is_lua = directive.name.contains("_by_lua") || directive.name.starts_with("lua_");
    if is_lua {
        return DirectiveOutcome::ByHand("write a module (docs/modules.md)".to_string());
    }
    match families
        .iter()
        .find(|(prefix, _)| directive.name.starts_with(prefix))
    {
        Some((_, Ok(reason))) => DirectiveOutcome::NotNeeded((*reason).to_string()),
        Some((_, Err(way))) => DirectiveOutcome::ByHand((*way).to_string()),
        None => DirectiveOutcome::ByHand("this directive is unknown to the import".to_string()),
    }
}

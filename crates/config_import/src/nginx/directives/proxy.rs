//! Requests to origins: `proxy_…`, `grpc_…`.

use super::cache::settings_of;
use super::process::not_a_value;
use super::{Handling, Handling::NotNeeded, Handling::Translate, TableLine};
use crate::nginx::level::Level;
use crate::nginx::settings::{Sourced, UpstreamSettings};
use crate::nginx::tree::Directive;
use crate::nginx::values::{duration, seconds};
use crate::report::DirectiveOutcome;
use crate::toml_values::quoted;

const BUFFERS: &str = "buffers grow as needed; [buffering] has limits";

const RETRIES: &str = "failed requests are repeated where that is safe (docs/accelerator.md)";

/// The outcome of a text with a variable that requests do not have.
pub const NO_VARIABLE: &str = "a variable of its value has no equal: set it in the application";

/// Directives of origins.
pub const TABLE: &[TableLine] = &[
    ("proxy_pass", Translate(pass)),
    ("proxy_set_header", Translate(set_header)),
    ("proxy_read_timeout", Translate(timeout)),
    ("proxy_connect_timeout", Translate(connect_timeout)),
    ("proxy_next_upstream_tries", Translate(tries)),
    ("proxy_request_buffering", Translate(request_buffering)),
    ("proxy_buffering", Translate(response_buffering)),
    ("proxy_redirect", Translate(redirect)),
    ("proxy_hide_header", Translate(hide_header)),
    ("proxy_ssl_verify", Translate(verify)),
    ("proxy_ssl_trusted_certificate", Translate(origin_tls)),
    ("proxy_ssl_certificate", Translate(origin_tls)),
    ("proxy_ssl_certificate_key", Translate(origin_tls)),
    ("proxy_ssl_name", Translate(origin_tls)),
    ("proxy_http_version", Translate(http_version)),
    ("grpc_pass", Translate(grpc_pass)),
    ("grpc_set_header", Translate(set_header)),
    ("grpc_read_timeout", Translate(timeout)),
    ("grpc_connect_timeout", Translate(connect_timeout)),
    (
        "grpc_send_timeout",
        NotNeeded("the route's timeout applies"),
    ),
    ("grpc_next_upstream_tries", Translate(tries)),
    ("grpc_next_upstream", NotNeeded(RETRIES)),
    ("grpc_next_upstream_timeout", NotNeeded(RETRIES)),
    ("grpc_buffer_size", NotNeeded(BUFFERS)),
    (
        "grpc_socket_keepalive",
        NotNeeded("broken connections are noticed"),
    ),
    ("grpc_hide_header", Translate(hide_header)),
    ("grpc_ssl_verify", Translate(verify)),
    ("grpc_ssl_trusted_certificate", Translate(origin_tls)),
    ("grpc_ssl_certificate", Translate(origin_tls)),
    ("grpc_ssl_certificate_key", Translate(origin_tls)),
    ("grpc_ssl_name", Translate(origin_tls)),
    (
        "grpc_ssl_server_name",
        NotNeeded("the name of the server is always sent (SNI)"),
    ),
    ("grpc_ssl_session_reuse", NotNeeded("sessions are resumed")),
    ("grpc_ssl_protocols", NotNeeded("TLS 1.3 and 1.2")),
    (
        "grpc_ssl_ciphers",
        NotNeeded("only secure ciphers are used"),
    ),
    ("grpc_ssl_verify_depth", NotNeeded("chains are bounded")),
    (
        "proxy_send_timeout",
        NotNeeded("the route's timeout applies"),
    ),
    ("proxy_buffers", NotNeeded(BUFFERS)),
    ("proxy_buffer_size", NotNeeded(BUFFERS)),
    ("proxy_busy_buffers_size", NotNeeded(BUFFERS)),
    ("proxy_max_temp_file_size", NotNeeded(BUFFERS)),
    ("proxy_temp_file_write_size", NotNeeded(BUFFERS)),
    ("proxy_temp_path", NotNeeded(BUFFERS)),
    ("proxy_headers_hash_max_size", NotNeeded(BUFFERS)),
    ("proxy_headers_hash_bucket_size", NotNeeded(BUFFERS)),
    ("proxy_next_upstream", NotNeeded(RETRIES)),
    ("proxy_next_upstream_timeout", NotNeeded(RETRIES)),
    (
        "proxy_socket_keepalive",
        NotNeeded("broken connections are noticed"),
    ),
    (
        "proxy_ignore_client_abort",
        NotNeeded("a request that others wait for continues"),
    ),
    (
        "proxy_pass_header",
        NotNeeded("fields of origins are sent on"),
    ),
    (
        "proxy_pass_request_headers",
        NotNeeded("requests are sent on unchanged"),
    ),
    (
        "proxy_pass_request_body",
        NotNeeded("requests are sent on unchanged"),
    ),
    (
        "proxy_ssl_server_name",
        NotNeeded("the name of the server is always sent (SNI)"),
    ),
    ("proxy_ssl_session_reuse", NotNeeded("sessions are resumed")),
    ("proxy_ssl_protocols", NotNeeded("TLS 1.3 and 1.2")),
    (
        "proxy_ssl_ciphers",
        NotNeeded("only secure ciphers are used"),
    ),
    ("proxy_ssl_verify_depth", NotNeeded("chains are bounded")),
    ("proxy_intercept_errors", Translate(intercept_errors)),
    (
        "proxy_cookie_path",
        Handling::ByHand("set the path of cookies in the application"),
    ),
    (
        "proxy_cookie_domain",
        Handling::ByHand("set the domain of cookies in the application"),
    ),
    (
        "proxy_cookie_flags",
        Handling::ByHand("set the flags of cookies in the application"),
    ),
    (
        "proxy_bind",
        Handling::ByHand("choose the source address by a route of the system"),
    ),
    (
        "proxy_method",
        Handling::ByHand("methods are sent on unchanged"),
    ),
    (
        "proxy_set_body",
        Handling::ByHand("bodies are sent on unchanged"),
    ),
    (
        "proxy_limit_rate",
        Handling::ByHand("`rate` of the route limits each response to a client"),
    ),
    ("mirror", Translate(mirror)),
    (
        "mirror_request_body",
        Handling::ByHand("methods and body_max of mirror select the requests"),
    ),
];

/// `mirror`: the copies are sent by another location, of which the routes read the origin.
fn mirror(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    if directive.arg(0) == "off" {
        level.settings.proxy.mirror = None;
        return DirectiveOutcome::NotNeeded("requests are not copied by default".to_string());
    }
    level.settings.proxy.mirror = Some(Sourced {
        value: directive.arg(0).to_string(),
        entry: directive.id,
    });
    // A route with the key changes the outcome.
    DirectiveOutcome::ByHand(
        "mirror of the route, with the name or URL of the other origin".to_string(),
    )
}

fn http_version(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let is_h2 = matches!(directive.arg(0), "2" | "2.0");
    level.settings.proxy.is_h2 = is_h2;
    match is_h2 {
        true => DirectiveOutcome::translated(),
        false => DirectiveOutcome::NotNeeded("origins get HTTP/1.1".to_string()),
    }
}

/// `grpc_pass` is `proxy_pass` over HTTP/2, without a path and perhaps without a scheme.
fn grpc_pass(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let value = level.substitute(directive.arg(0));
    match value.contains("://") {
        true => pass_to(level, directive, value),
        false => pass_to(level, directive, format!("grpc://{value}")),
    }
}

fn pass(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let value = level.substitute(directive.arg(0));
    // An origin without a path gets the client's unchanged target in any case.
    let is_plain = |url: &&str| {
        url.split_once("://")
            .is_some_and(|(_, rest)| !rest.contains('/'))
    };
    let plain = value.strip_suffix("$request_uri").filter(is_plain);
    level.content.passes_request_uri = plain.is_some();
    pass_to(level, directive, plain.unwrap_or(&value).to_string())
}

fn pass_to(level: &mut Level<'_>, directive: &Directive, value: String) -> DirectiveOutcome {
    if value.contains('$') {
        return DirectiveOutcome::ByHand(
            "an origin has no variables: write a route for each".to_string(),
        );
    }
    level.content.proxy = Some(Sourced {
        value,
        entry: directive.id,
    });
    DirectiveOutcome::translated()
}

/// Requests to origins have the client's Host and four fields about the client; other fields can't be set.
fn set_header(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    // One proxy_set_header in a block ends all inherited ones, also that of Host.
    if level.begins_array("proxy_set_header") {
        level.settings.proxy.host = None;
        level.settings.proxy.request_fields.clear();
    }
    let (name, value) = (
        directive.arg(0).to_ascii_lowercase(),
        level.substitute(directive.arg(1)),
    );
    let not_needed = |reason: &str| DirectiveOutcome::NotNeeded(reason.to_string());
    let access = &mut level.settings.access;
    let variables = access.auth_variables.iter();
    if let Some((_, field)) = variables
        .clone()
        .find(|(variable, _)| variable == directive.arg(1))
    {
        // The rule copies the field, for all requests that it admits.
        let copied = (directive.arg(0).to_string(), field.clone());
        access.auth_fields.push(copied);
        return DirectiveOutcome::translated();
    }
    // A field with the value of a map is the configuration's own.
    if level.is_map(&value) && name != "host" {
        return set_request_field(level, directive, &value);
    }
    match (&*name, &*value) {
        ("host", value) => set_host(level, value),
        (
            "x-forwarded-for",
            "$proxy_add_x_forwarded_for" | "$remote_addr" | "$http_x_forwarded_for",
        ) => not_needed("origins get X-Forwarded-For"),
        ("x-real-ip", "$remote_addr" | "$http_x_real_ip" | "$realip_remote_addr") => {
            not_needed("origins get X-Real-IP")
        }
        ("x-forwarded-proto", value) if value.starts_with('$') => {
            not_needed("origins get X-Forwarded-Proto")
        }
        ("x-forwarded-host", value) if value.starts_with('$') => {
            not_needed("origins get X-Forwarded-Host")
        }
        ("upgrade" | "connection", _) => not_needed("WebSocket and keep-alive need no fields"),
        ("accept-encoding", "") => {
            not_needed("the origin may compress: Lowroad doesn't change its text")
        }
        ("proxy", "") => not_needed("Proxy is never sent on"),
        ("early-data", _) => not_needed("the server marks requests in early data"),
        ("range" | "if-range", value) if value.starts_with("$http_") => {
            not_needed("requests are sent on unchanged")
        }
        ("x-forwarded-server" | "x-nginx-proxy", _) => not_needed("applications don't read it"),
        _ => set_request_field(level, directive, &value),
    }
}

fn set_request_field(
    level: &mut Level<'_>,
    directive: &Directive,
    value: &str,
) -> DirectiveOutcome {
    // The server appends the client to the field itself.
    let value = value.replace("$proxy_add_x_forwarded_for", "$remote_addr");
    let Some(text) = level.request_text(&value) else {
        return DirectiveOutcome::ByHand(NO_VARIABLE.to_string());
    };
    level.settings.proxy.request_fields.push(Sourced {
        value: (directive.arg(0).to_string(), text.to_string()),
        entry: directive.id,
    });
    DirectiveOutcome::translated()
}

fn set_host(level: &mut Level<'_>, value: &str) -> DirectiveOutcome {
    let host = match value {
        "$host" | "$http_host" | "$host:$server_port" | "$host:$proxy_port" | "$server_name" => {
            "client"
        }
        "$proxy_host" | "$proxy_host:$proxy_port" => "origin",
        literal if !literal.contains('$') => literal,
        _ => {
            return DirectiveOutcome::ByHand(
                "Host is the client's, the origin's or a text".to_string(),
            );
        }
    };
    level.settings.proxy.host = Some(host.to_string());
    if host == "client" {
        return DirectiveOutcome::NotNeeded("origins get the client's Host".to_string());
    }
    DirectiveOutcome::translated()
}

fn timeout(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    set_timeout(&mut level.settings.proxy, directive)
}

/// Sets the time for a response, of an origin or a program.
pub fn set_timeout(settings: &mut UpstreamSettings, directive: &Directive) -> DirectiveOutcome {
    let Some(value) = duration(directive.arg(0)) else {
        return not_a_value();
    };
    // The longest time is a day.
    let is_too_long = seconds(directive.arg(0)).is_some_and(|it| it > 86_400);
    settings.timeout = Some(if is_too_long { quoted("24h") } else { value });
    DirectiveOutcome::translated()
}

fn connect_timeout(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let value = duration(directive.arg(0));
    let outcome = value
        .as_ref()
        .map_or_else(not_a_value, |_| DirectiveOutcome::translated());
    level.settings.proxy.connect_timeout = value;
    outcome
}

fn tries(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    match directive.arg(0).parse::<u8>() {
        Ok(0) => DirectiveOutcome::NotNeeded(RETRIES.to_string()),
        Ok(tries) => {
            level.settings.proxy.tries = Some(tries.min(16).to_string());
            DirectiveOutcome::translated()
        }
        Err(_) => not_a_value(),
    }
}

fn request_buffering(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    level.settings.proxy.is_request_streamed = directive.arg(0) == "off";
    on_is_default(directive)
}

fn response_buffering(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    level.settings.proxy.is_response_streamed = directive.arg(0) == "off";
    on_is_default(directive)
}

/// The outcome of a switch that is on by default.
pub fn on_is_default(directive: &Directive) -> DirectiveOutcome {
    match directive.arg(0) {
        "off" => DirectiveOutcome::translated(),
        _ => DirectiveOutcome::NotNeeded("on is the default".to_string()),
    }
}

fn redirect(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let is_own = matches!(
        directive.arg(1),
        "/" | "$scheme://$host/" | "$scheme://$http_host/"
    );
    match directive.arg(0) {
        "off" => {
            level.settings.proxy.keeps_redirects = true;
            DirectiveOutcome::translated()
        }
        "default" => DirectiveOutcome::NotNeeded(
            "addresses of the origin in Location are removed".to_string(),
        ),
        _ if is_own => DirectiveOutcome::NotNeeded(
            "addresses of the origin in Location are removed".to_string(),
        ),
        _ => DirectiveOutcome::ByHand("set the address of the site in the application".to_string()),
    }
}

/// Fields that programs and origins may send, but clients don't get.
pub fn hide_header(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let name = directive.arg(0).to_string();
    let settings = match directive.name.starts_with("fastcgi") {
        true => &mut level.settings.fastcgi,
        false => &mut level.settings.proxy,
    };
    if !settings.hidden_fields.contains(&name) {
        settings.hidden_fields.push(name);
    }
    DirectiveOutcome::translated()
}

fn verify(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    level.settings.proxy.verifies = directive.arg(0) == "on";
    DirectiveOutcome::translated()
}

fn origin_tls(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let (key, is_path) = match &*directive.name {
        "proxy_ssl_trusted_certificate" | "grpc_ssl_trusted_certificate" => ("ca", true),
        "proxy_ssl_certificate" | "grpc_ssl_certificate" => ("certificate", true),
        "proxy_ssl_certificate_key" | "grpc_ssl_certificate_key" => ("key", true),
        _ => ("name", false),
    };
    let text = level.substitute(directive.arg(0));
    if text.contains('$') {
        return DirectiveOutcome::ByHand(format!("{key} in [origin.tls] has no variables"));
    }
    let text = if is_path {
        level.absolute_path(&text)
    } else {
        text
    };
    level.settings.proxy.tls.insert(key, quoted(&text));
    DirectiveOutcome::translated()
}

/// `proxy_intercept_errors` and `fastcgi_intercept_errors`
pub fn intercept_errors(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let is_on = directive.arg(0) == "on";
    settings_of(level, directive).intercepts_errors = is_on;
    match is_on {
        true => DirectiveOutcome::translated(),
        false => DirectiveOutcome::NotNeeded(
            "error pages of programs and origins are sent unchanged".to_string(),
        ),
    }
}

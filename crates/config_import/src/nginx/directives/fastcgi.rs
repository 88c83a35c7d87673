//! FastCGI servers: `fastcgi_…`.

use super::proxy::{NO_VARIABLE, hide_header, intercept_errors, on_is_default, set_timeout};
use super::{Handling::NotNeeded, Handling::Translate, TableLine};
use crate::nginx::level::Level;
use crate::nginx::settings::Sourced;
use crate::nginx::tree::Directive;
use crate::report::DirectiveOutcome;

const BUFFERS: &str = "buffers grow as needed; [buffering] has limits";

/// Directives of FastCGI servers.
pub const TABLE: &[TableLine] = &[
    ("fastcgi_pass", Translate(pass)),
    ("fastcgi_param", Translate(param)),
    ("fastcgi_index", Translate(index)),
    ("fastcgi_read_timeout", Translate(timeout)),
    ("fastcgi_request_buffering", Translate(request_buffering)),
    ("fastcgi_buffering", Translate(response_buffering)),
    ("fastcgi_keep_conn", Translate(keep_connections)),
    ("fastcgi_hide_header", Translate(hide_header)),
    ("fastcgi_intercept_errors", Translate(intercept_errors)),
    (
        "fastcgi_split_path_info",
        NotNeeded("the path after a script's name is PATH_INFO"),
    ),
    (
        "fastcgi_path_info",
        NotNeeded("the path after a script's name is PATH_INFO"),
    ),
    (
        "fastcgi_connect_timeout",
        NotNeeded("the route's timeout applies"),
    ),
    (
        "fastcgi_send_timeout",
        NotNeeded("the route's timeout applies"),
    ),
    ("fastcgi_buffers", NotNeeded(BUFFERS)),
    ("fastcgi_buffer_size", NotNeeded(BUFFERS)),
    ("fastcgi_busy_buffers_size", NotNeeded(BUFFERS)),
    ("fastcgi_temp_file_write_size", NotNeeded(BUFFERS)),
    ("fastcgi_max_temp_file_size", NotNeeded(BUFFERS)),
    ("fastcgi_temp_path", NotNeeded(BUFFERS)),
    (
        "fastcgi_ignore_client_abort",
        NotNeeded("a request that others wait for continues"),
    ),
    (
        "fastcgi_next_upstream",
        NotNeeded("requests are repeated if no connection was established"),
    ),
    (
        "fastcgi_pass_header",
        NotNeeded("fields of programs are sent on"),
    ),
    (
        "fastcgi_pass_request_headers",
        NotNeeded("requests are sent on"),
    ),
    (
        "fastcgi_socket_keepalive",
        NotNeeded("broken connections are noticed"),
    ),
];

fn pass(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let value = level.substitute(directive.arg(0));
    if value.contains('$') {
        return DirectiveOutcome::ByHand(
            "a FastCGI server has no variables: write a route for each".to_string(),
        );
    }
    level.content.fastcgi = Some(Sourced {
        value,
        entry: directive.id,
    });
    DirectiveOutcome::translated()
}

/// Programs get the variables of RFC 3875; others with a fixed value become `env`.
fn param(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    // SCRIPT_FILENAME is one of the parameters, so a block with others loses an inherited one.
    if level.begins_array("fastcgi_param") {
        level.settings.fastcgi.env.clear();
        level.settings.fastcgi.script = None;
    }
    let (name, value) = (directive.arg(0), level.substitute(directive.arg(1)));
    if name == "SCRIPT_FILENAME" || name == "PATH_TRANSLATED" {
        return script_filename(level, &value);
    }
    if is_standard(name) && level.is_map(&value) {
        return DirectiveOutcome::ByHand(
            "programs get this variable from the request: list a proxy in trusted_proxies"
                .to_string(),
        );
    }
    if name == "SERVER_NAME" && value == "$server_name" {
        return DirectiveOutcome::NotNeeded(
            "programs get this variable: the requested host".to_string(),
        );
    }
    if is_standard(name) || (value.is_empty() && name.starts_with("HTTP_")) {
        return DirectiveOutcome::NotNeeded("programs get this variable".to_string());
    }
    let Some(text) = level.request_text(&value) else {
        return DirectiveOutcome::ByHand(NO_VARIABLE.to_string());
    };
    let env = &mut level.settings.fastcgi.env;
    env.insert(name.to_string(), text.to_string());
    DirectiveOutcome::translated()
}

fn script_filename(level: &mut Level<'_>, value: &str) -> DirectiveOutcome {
    let script = ["$document_root", "$realpath_root", "$request_filename"]
        .iter()
        .find_map(|it| value.strip_prefix(it));
    match script {
        Some("$fastcgi_script_name" | "$script_name" | "/$fastcgi_script_name" | "") => {
            DirectiveOutcome::NotNeeded("programs get this variable".to_string())
        }
        Some(script) if !script.contains('$') => {
            level.settings.fastcgi.script = Some(format!("/{}", script.trim_start_matches('/')));
            DirectiveOutcome::translated()
        }
        None if value.ends_with("$fastcgi_script_name") => {
            DirectiveOutcome::NotNeeded("programs get this variable, below the root".to_string())
        }
        // A fixed file: it must be below the root, which is known when the site is written.
        None if !value.contains('$') => {
            level.settings.fastcgi.script = Some(value.to_string());
            DirectiveOutcome::translated()
        }
        _ => DirectiveOutcome::ByHand(
            "the script follows from the path, or is `script` of the route".to_string(),
        ),
    }
}

fn is_standard(name: &str) -> bool {
    const NAMES: [&str; 29] = [
        "QUERY_STRING",
        "REQUEST_METHOD",
        "CONTENT_TYPE",
        "CONTENT_LENGTH",
        "SCRIPT_NAME",
        "REQUEST_URI",
        "DOCUMENT_ROOT",
        "SERVER_PROTOCOL",
        "REQUEST_SCHEME",
        "HTTPS",
        "GATEWAY_INTERFACE",
        "SERVER_SOFTWARE",
        "REMOTE_ADDR",
        "REMOTE_PORT",
        "REMOTE_USER",
        "AUTH_USER",
        "SERVER_ADDR",
        "SERVER_PORT",
        "SERVER_NAME",
        "REDIRECT_STATUS",
        "PATH_INFO",
        "HTTP_HOST",
        "HTTP_PROXY",
        "ORIG_PATH_INFO",
        "SSL_PROTOCOL",
        "SSL_CIPHER",
        "SSL_CLIENT_VERIFY",
        "SSL_CLIENT_S_DN",
        "HTTP_X_FORWARDED_PROTO",
    ];
    NAMES.contains(&name)
}

fn index(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    if directive.arg(0) == "index.php" {
        level.settings.fastcgi.index = None;
        return DirectiveOutcome::NotNeeded("index.php is the default".to_string());
    }
    level.settings.fastcgi.index = Some(directive.arg(0).to_string());
    DirectiveOutcome::translated()
}

fn timeout(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    set_timeout(&mut level.settings.fastcgi, directive)
}

fn request_buffering(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    level.settings.fastcgi.is_request_streamed = directive.arg(0) == "off";
    on_is_default(directive)
}

fn response_buffering(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    level.settings.fastcgi.is_response_streamed = directive.arg(0) == "off";
    on_is_default(directive)
}

fn keep_connections(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    level.settings.fastcgi.keeps_connections = directive.arg(0) == "on";
    match directive.arg(0) {
        "on" => DirectiveOutcome::translated(),
        _ => DirectiveOutcome::NotNeeded("off is the default".to_string()),
    }
}

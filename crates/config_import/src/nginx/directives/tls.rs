//! TLS of servers: `[site.tls]`.

use super::process::not_a_value;
use super::{Handling::NotNeeded, Handling::Translate, TableLine};
use crate::nginx::level::Level;
use crate::nginx::tree::Directive;
use crate::report::DirectiveOutcome;
use crate::toml_values::quoted;

/// Directives of TLS. Others that begin with `ssl_` are not needed.
pub const TABLE: &[TableLine] = &[
    ("ssl", NotNeeded("a certificate turns TLS on")),
    ("ssl_reject_handshake", Translate(reject_handshake)),
    ("ssl_certificate", Translate(certificate)),
    ("ssl_certificate_key", Translate(key)),
    ("ssl_protocols", Translate(protocols)),
    ("ssl_client_certificate", Translate(client_ca)),
    ("ssl_verify_client", Translate(verify_client)),
    (
        "ssl_ciphers",
        NotNeeded("only secure ciphers are offered, for TLS 1.3 and 1.2"),
    ),
    (
        "ssl_conf_command",
        NotNeeded("only secure ciphers are offered, for TLS 1.3 and 1.2"),
    ),
    (
        "ssl_prefer_server_ciphers",
        NotNeeded("only secure ciphers are offered"),
    ),
    (
        "ssl_ecdh_curve",
        NotNeeded("hybrid post-quantum key exchange is offered first"),
    ),
    (
        "ssl_dhparam",
        NotNeeded("key exchange is by elliptic curves"),
    ),
    (
        "ssl_session_cache",
        NotNeeded("sessions are resumed by tickets"),
    ),
    (
        "ssl_session_tickets",
        NotNeeded("sessions are resumed by tickets"),
    ),
    (
        "ssl_session_timeout",
        NotNeeded("sessions are resumed by tickets"),
    ),
    (
        "ssl_session_ticket_key",
        NotNeeded("ticket_keys in [server] is a file with keys for several servers"),
    ),
    ("ssl_buffer_size", NotNeeded("records grow as needed")),
    (
        "ssl_early_data",
        NotNeeded("early data comes over HTTP/3 only, see early_data in [server]"),
    ),
    (
        "ssl_stapling",
        NotNeeded("authorities stop OCSP; staple in [site.tls] takes a response from a file"),
    ),
    ("ssl_stapling_verify", NotNeeded("authorities stop OCSP")),
    ("ssl_trusted_certificate", NotNeeded("it serves OCSP")),
];

/// The server has no content; the sites at its address get `strict_sni`.
fn reject_handshake(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    level.settings.rejects_handshakes = directive.arg(0) == "on";
    match directive.arg(0) {
        "on" => DirectiveOutcome::translated(),
        _ => DirectiveOutcome::NotNeeded("off is the default".to_string()),
    }
}

fn certificate(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    if level.begins_array("ssl_certificate") {
        level.settings.certificates.clear();
    }
    let path = level.substitute(directive.arg(0));
    if path.contains('$') {
        return DirectiveOutcome::ByHand(
            "list the certificates, or use automatic = true".to_string(),
        );
    }
    let path = level.absolute_path(&path);
    level.settings.certificates.push(path);
    DirectiveOutcome::translated()
}

fn key(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    if level.begins_array("ssl_certificate_key") {
        level.settings.keys.clear();
    }
    let path = level.substitute(directive.arg(0));
    if path.contains('$') || path.starts_with("engine:") {
        return DirectiveOutcome::ByHand("keys are files".to_string());
    }
    let path = level.absolute_path(&path);
    level.settings.keys.push(path);
    DirectiveOutcome::translated()
}

fn protocols(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let is_newest_only = directive.args.iter().all(|it| it == "TLSv1.3");
    if is_newest_only && !directive.args.is_empty() {
        level.settings.tls.insert("min_version", quoted("1.3"));
        return DirectiveOutcome::translated();
    }
    level.settings.tls.remove("min_version");
    DirectiveOutcome::NotNeeded("TLS 1.2 and 1.3 are offered, never older ones".to_string())
}

fn client_ca(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let path = level.absolute_path(directive.arg(0));
    level.settings.tls.insert("client_ca", quoted(&path));
    DirectiveOutcome::translated()
}

fn verify_client(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let policy = match directive.arg(0) {
        "on" => "require",
        "optional" => "request",
        "off" => return DirectiveOutcome::NotNeeded("off is the default".to_string()),
        "optional_no_ca" => {
            return DirectiveOutcome::ByHand("certificates are verified by client_ca".to_string());
        }
        _ => return not_a_value(),
    };
    level.settings.tls.insert("client", quoted(policy));
    DirectiveOutcome::translated()
}

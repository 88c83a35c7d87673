//! Reads `[admin]`.

use crate::reader::{ConfigSection, ConfigValue, KeyPosition};
use crate::{AdminClientConfig, AdminConfig, AdminTlsConfig, value};

/// The positions of keys that are compared with other tables.
pub(crate) struct AdminMarks {
    /// The position of `listen`.
    pub listen: KeyPosition,
    /// The position of the table, if it configures TLS.
    pub tls: Option<KeyPosition>,
}

/// Reads the table. Also returns positions, for comparisons with the sites and with the features of the build.
pub(crate) fn admin(section: ConfigSection<'_>) -> (AdminConfig, AdminMarks) {
    let file = |key| section.item(key).and_then(|item| item.path());
    let secret = |key| section.item(key).and_then(|item| item.secret_reference());
    let listen = section.item("listen");
    // `is_listen_set` is true even if the value of `listen` is invalid: that mistake is reported separately.
    let is_listen_set = listen.is_some();
    let is_set = |key| !section.is_absent_or_empty(key);
    let admin = AdminConfig {
        listen: listen.and_then(|item| item.read(value::address)),
        token: secret("token"),
        read_token: secret("read_token"),
        token_file: file("token_file"),
        read_token_file: file("read_token_file"),
        tls: tls(&section),
        changes: file("changes"),
    };
    for (key, file_key) in [("token", "token_file"), ("read_token", "read_token_file")] {
        if is_set(key) && is_set(file_key) {
            section.report(
                format!("{key} and {key}_file are two tokens"),
                "one of both",
            );
        }
    }
    let has_token = ["token", "token_file", "read_token", "read_token_file"]
        .into_iter()
        .any(is_set);
    let has_client_ca = !section.is_absent_or_empty("client_ca");
    // Without a token or client certificates, any client that can connect to the port could stop the server.
    if is_listen_set && !has_token && !has_client_ca {
        section.report(
            "listen is set, but neither token, read_token nor client_ca",
            "listen together with a token, or with client_ca",
        );
    }
    if !is_listen_set && has_token {
        section.report(
            "a token is set, but listen is not",
            "a token together with listen; the Unix socket needs none",
        );
    }
    if !is_listen_set && !section.is_absent_or_empty("certificate") {
        section.report(
            "certificate is set, but listen is not",
            "certificate together with listen; the Unix socket needs none",
        );
    }
    if section.is_empty() {
        section.report(
            "the table is empty, so it opens nothing",
            "listen together with a token",
        );
    }
    let position = |key: &str| KeyPosition {
        key: format!("admin.{key}"),
        offset: section.position.offset,
    };
    let marks = AdminMarks {
        listen: position("listen"),
        tls: admin.tls.as_ref().map(|_| position("certificate")),
    };
    section.finish();
    (admin, marks)
}

fn tls(section: &ConfigSection<'_>) -> Option<AdminTlsConfig> {
    let file = |key| section.item(key).and_then(|item| item.path());
    let (certificate, key) = (file("certificate"), file("key"));
    let clients = clients(section, certificate.is_some() || key.is_some());
    match (certificate, key) {
        (Some(certificate), Some(key)) => Some(AdminTlsConfig {
            certificate,
            key,
            clients,
        }),
        (None, None) => None,
        (Some(_), None) => {
            section.report("key is missing", "certificate and key");
            None
        }
        (None, Some(_)) => {
            section.report("certificate is missing", "certificate and key");
            None
        }
    }
}

fn clients(section: &ConfigSection<'_>, has_tls: bool) -> Option<AdminClientConfig> {
    let (authorities, full_clients) = (section.item("client_ca"), section.item("full_clients"));
    if let (Some(item), false) = (&authorities, has_tls) {
        item.report("has no effect here", "only with certificate and key");
    }
    if let (Some(item), None) = (&full_clients, &authorities) {
        item.report("has no effect here", "only with client_ca");
    }
    let full_subjects = full_clients
        .map(ConfigValue::one_or_many)
        .unwrap_or_default()
        .iter()
        .filter_map(ConfigValue::plain_text)
        .collect();
    Some(AdminClientConfig {
        authorities: authorities?.path()?,
        full_subjects,
    })
}

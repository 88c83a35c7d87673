//! Reads `[admin]`.

use crate::reader::{ConfigSection, KeyPosition};
use crate::{AdminConfig, value};

/// Reads the table. Also returns the position of `listen`, for comparisons with the sites.
pub(crate) fn admin(section: ConfigSection<'_>) -> (AdminConfig, KeyPosition) {
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
    // Without a token, any client that can connect to the port could stop the server.
    if is_listen_set && !has_token {
        section.report(
            "listen is set, but neither token nor read_token",
            "listen together with a token",
        );
    }
    if !is_listen_set && has_token {
        section.report(
            "a token is set, but listen is not",
            "a token together with listen; the Unix socket needs none",
        );
    }
    if section.is_empty() {
        section.report(
            "the table is empty, so it opens nothing",
            "listen together with a token",
        );
    }
    let position = KeyPosition {
        key: "admin.listen".to_owned(),
        offset: section.position.offset,
    };
    section.finish();
    (admin, position)
}

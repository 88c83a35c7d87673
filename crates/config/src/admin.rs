//! Reads `[admin]`.

use crate::reader::{ConfigSection, KeyPosition};
use crate::{AdminConfig, value};

/// Reads the table. Also returns the position of `listen`, for comparisons with the sites.
pub(crate) fn admin(section: ConfigSection<'_>) -> (AdminConfig, KeyPosition) {
    let file = |key| section.item(key).and_then(|item| item.path());
    let listen = section.item("listen");
    // `is_listen_set` is true even if the value of `listen` is invalid: that mistake is reported separately.
    let is_listen_set = listen.is_some();
    let admin = AdminConfig {
        listen: listen.and_then(|item| item.read(value::address)),
        token_file: file("token_file"),
        read_token_file: file("read_token_file"),
    };
    let has_token = admin.token_file.is_some() || admin.read_token_file.is_some();
    // Without a token, any client that can connect to the port could stop the server.
    if is_listen_set && !has_token {
        section.report(
            "listen is set, but neither token_file nor read_token_file",
            "listen together with a file of a token",
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
            "listen together with a file of a token",
        );
    }
    let position = KeyPosition {
        key: "admin.listen".to_owned(),
        offset: section.position.offset,
    };
    section.finish();
    (admin, position)
}

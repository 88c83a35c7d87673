//! `[admin]`: the result of valid tables, and the problem for each mistake.

use super::*;

#[test]
fn all_keys_of_admin_are_read() {
    let config = good(&in_site(
        "[admin]\nlisten = \"127.0.0.1:9145\"\ntoken_file = \"/full\"\nread_token_file = \"/read\"",
    ));
    let expected = AdminConfig {
        listen: Some("127.0.0.1:9145".parse().expect("an address")),
        token_file: Some("/full".into()),
        read_token_file: Some("/read".into()),
        ..AdminConfig::default()
    };
    assert_eq!(config.admin, expected);
    let one = good(&in_site(
        "[admin]\nlisten = \"[::1]:9145\"\nread_token_file = \"/read\"",
    ));
    assert_eq!(one.admin.token_file, None);
}

#[test]
fn admin_defaults() {
    assert_eq!(good(&in_site("")).admin, AdminConfig::default());
    assert_eq!(
        shown(&in_site("[admin]")),
        "3:1: admin: the table is empty, so it opens nothing (allowed: listen together with a token)"
    );
}

#[test]
fn admin_address_is_not_that_of_a_site() {
    let shown = |listen: &str| {
        shown(&format!(
            "[admin]\nlisten = \"{listen}\"\ntoken_file = \"/full\"\n[[site]]\nlisten = \"127.0.0.1:80\"\nroot = \"/\"\n"
        ))
    };
    for listen in ["127.0.0.1:80", "0.0.0.0:80"] {
        assert_eq!(
            shown(listen),
            format!(
                "1:1: admin.listen: {listen} is in use: site[0] listens at 127.0.0.1:80 \
                 (allowed: an address and port of its own)"
            )
        );
    }
}

#[test]
fn admin_listen_requires_token_file_and_vice_versa() {
    assert_eq!(
        shown(&in_site("[admin]\nlisten = \"127.0.0.1:9145\"")),
        "3:1: admin: listen is set, but neither token nor read_token \
         (allowed: listen together with a token)"
    );
    assert_eq!(
        shown(&in_site("[admin]\ntoken_file = \"/full\"")),
        "3:1: admin: a token is set, but listen is not \
         (allowed: a token together with listen; the Unix socket needs none)"
    );
}

#[test]
fn admin_mistakes_are_reported_with_position() {
    assert_eq!(
        shown(&in_site("[admin]\nlisen = \"127.0.0.1:9145\"")),
        "4:1: admin.lisen: unknown key; did you mean listen? (allowed: listen, token, read_token, token_file, read_token_file)"
    );
    assert!(
        shown(&in_site(
            "[admin]\nlisten = \"nowhere\"\ntoken_file = \"/full\""
        ))
        .starts_with("4:10: admin.listen: ")
    );
}

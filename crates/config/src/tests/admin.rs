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
        "3:1: admin: listen is set, but neither token, read_token nor client_ca \
         (allowed: listen together with a token, or with client_ca)"
    );
    assert_eq!(
        shown(&in_site("[admin]\ntoken_file = \"/full\"")),
        "3:1: admin: a token is set, but listen is not \
         (allowed: a token together with listen; the Unix socket needs none)"
    );
}

#[test]
fn admin_tls_is_read_and_checked() {
    let admin = |keys: &str| format!("[admin]\nlisten = \"127.0.0.1:9145\"\n{keys}");
    let files = "certificate = \"/cert\"\nkey = \"/key\"\n";
    let config = good(&in_site(&admin(&format!(
        "{files}client_ca = \"/ca\"\nfull_clients = [\"CN=a\", \"CN=b\"]"
    ))));
    let expected = AdminTlsConfig {
        certificate: "/cert".into(),
        key: "/key".into(),
        clients: Some(AdminClientConfig {
            authorities: "/ca".into(),
            full_subjects: vec!["CN=a".into(), "CN=b".into()],
        }),
    };
    assert_eq!(config.admin.tls, Some(expected));
    let token = "token_file = \"/full\"\n";
    let config = good(&in_site(&admin(&format!("{files}{token}"))));
    assert_eq!(config.admin.tls.and_then(|tls| tls.clients), None);
    for (keys, problem) in [
        (files.to_owned(), "nor client_ca"),
        (format!("{token}certificate = \"/cert\""), "key is missing"),
        (format!("{token}key = \"/key\""), "certificate is missing"),
        (
            format!("{token}client_ca = \"/ca\""),
            "admin.client_ca: has no effect",
        ),
        (
            format!("{token}{files}full_clients = \"CN=a\""),
            "admin.full_clients: has no effect",
        ),
    ] {
        let text = shown(&in_site(&admin(&keys)));
        assert!(text.contains(problem), "{keys}: {text}");
    }
    let text = shown(&in_site(&format!("[admin]\n{files}")));
    assert!(text.contains("listen is not"), "{text}");
}

#[test]
fn admin_mistakes_are_reported_with_position() {
    assert_eq!(
        shown(&in_site("[admin]\nlisen = \"127.0.0.1:9145\"")),
        "4:1: admin.lisen: unknown key; did you mean listen? (allowed: listen, token, read_token, token_file, read_token_file, certificate, key, client_ca, full_clients, changes)"
    );
    assert!(
        shown(&in_site(
            "[admin]\nlisten = \"nowhere\"\ntoken_file = \"/full\""
        ))
        .starts_with("4:10: admin.listen: ")
    );
}

//! `[acme]`: the result of valid tables, and the problem for each mistake.

use super::*;

const SITE: &str = "[[site]]\nroot = \"r\"\nnames = \"a.example\"\nlisten = \"*:80\"\n[site.tls]\nautomatic = true";

#[test]
fn all_keys_of_acme_are_read() {
    let config = good(&format!(
        r#"
        [acme]
        terms_agreed = true
        folder = "/acme"
        contact = ["mailto:a@b.example", "tel:+1"]
        challenge = "dns-01"
        hook = ["/hook", "zone"]
        hook_timeout = "30s"
        orders_per_hour = 7
        [[acme.authority]]
        directory = "https://ca.example/directory"
        key_id = "id"
        key_file = "/key"
        profile = "shortlived"
        roots = "/roots.pem"
        [[acme.authority]]
        directory = "http://127.0.0.1:14000/dir"
        [acme.on_demand]
        ask = "http://ask.example/?k=1"
        per_minute = 3
        names_max = 50
        {SITE}
        "#
    ));
    let mut first = AcmeAuthority::new("https://ca.example/directory");
    first.external = Some(("id".into(), ExternalKey::File("/key".into())));
    first.profile = Some("shortlived".into());
    first.roots = Some("/roots.pem".into());
    let expected = AcmeConfig {
        terms_agreed: true,
        folder: "/acme".into(),
        contact: vec!["mailto:a@b.example".into(), "tel:+1".into()],
        challenge: AcmeChallenge::Dns01 {
            hook: vec!["/hook".into(), "zone".into()],
            timeout_ms: 30_000,
        },
        authorities: vec![first, AcmeAuthority::new("http://127.0.0.1:14000/dir")],
        orders_per_hour: 7,
        on_demand: Some(OnDemandConfig {
            ask: "http://ask.example/?k=1".into(),
            per_minute: 3,
            names_max: 50,
        }),
    };
    assert_eq!(config.acme, Some(expected));
    let tls = config.sites[0].tls.as_ref();
    assert!(tls.is_some_and(|tls| tls.automatic && tls.certificates.is_empty()));
}

#[test]
fn acme_defaults() {
    let config = good(&format!("[acme]\nterms_agreed = true\n{SITE}"));
    let acme = config.acme.expect("a table");
    assert_eq!(acme.folder, Path::new("/var/lib/lowroad/acme"));
    assert_eq!(acme.challenge, AcmeChallenge::Http01);
    assert_eq!((acme.orders_per_hour, acme.on_demand), (100, None));
    let urls: Vec<&str> = acme.authorities.iter().map(|it| &*it.directory).collect();
    assert_eq!(urls, ["https://acme-v02.api.letsencrypt.org/directory"]);
}

#[test]
fn acme_mistakes_are_reported_with_position() {
    let agreed = |more: &str| format!("[acme]\nterms_agreed = true\n{more}\n{SITE}");
    let twice = "[[acme.authority]]\ndirectory = \"https://a\"\n".repeat(2);
    let site =
        |from: &str, to: &str| format!("[acme]\nterms_agreed = true\n{}", SITE.replace(from, to));
    for (text, line) in [
        (SITE.into(), "automatic, but no authority is configured"),
        (
            format!("[acme]\n{SITE}"),
            "acme: the terms of service of the authorities are not accepted",
        ),
        (
            agreed("contact = \"me\""),
            "acme.contact: \"me\" is not a URL",
        ),
        (agreed("challenge = \"dns-01\""), "acme: hook is missing"),
        (agreed("hook = [\"h\"]"), "acme.hook: has no effect here"),
        (
            agreed("challenge = \"dns-01\"\nhook = []"),
            "acme.hook: the command is empty",
        ),
        (
            agreed(&twice),
            "acme.authority[1].directory: the authority is listed twice",
        ),
        (
            agreed("[[acme.authority]]\ndirectory = \"http://a\""),
            "is not an allowed URL",
        ),
        (
            agreed("[[acme.authority]]\ndirectory = \"http://127.0.0.1.a\""),
            "is not an allowed URL",
        ),
        (
            agreed("[[acme.authority]]\ndirectory = \"https://a\"\nkey_id = \"k\""),
            "acme.authority[0]: one of key_id and key is missing",
        ),
        (
            agreed("[acme.on_demand]\nper_minute = 1"),
            "acme.on_demand: ask is missing",
        ),
        (
            site("a.example", "*.a.example"),
            "a name of the site is a wildcard",
        ),
        (
            site("a.example", "_"),
            "automatic, but the site has no name",
        ),
        (
            site("listen = \"*:80\"\n", ""),
            "automatic by http-01, but the site has no listener without TLS",
        ),
    ] {
        let said = shown(&text);
        assert!(said.contains(line), "{text}\n{said}");
    }
}

//! TLS of sites: the result of valid tables, and the problem for each mistake.

use super::*;

/// The problems of a site with these keys and this `[site.tls]`.
fn problem_lines(own: &str, tls: &str) -> String {
    shown(&format!("[[site]]\nroot = \"r\"\n{own}\n[site.tls]\n{tls}"))
}

/// Keys of a valid table.
const PAIR: &str = "certificate = \"c\"\nkey = \"k\"";

#[test]
fn all_keys_of_tls_are_read() {
    let config = good(
        r#"
        [[site]]
        root = "/srv"
        listen = "*:80"
        [site.tls]
        listen = ["192.0.2.1:443", "*:8443"]
        certificate = ["a.pem", "/b.pem"]
        key = ["a.key", "/b.pem"]
        staple = ["a.ocsp", "b.ocsp"]
        client = "require"
        client_ca = "ca.pem"
        client_paths = ["/admin", "/admin/**"]
        min_version = "1.3"
        hsts = "max-age=5; preload"
        redirect = true
        strict_sni = true
        "#,
    );
    let site = &config.sites[0];
    let files = |certificate: &str, key: &str, staple: &str| CertificateFiles {
        certificate: certificate.into(),
        key: key.into(),
        staple: Some(staple.into()),
    };
    let expected = TlsConfig {
        listen: addresses(&["192.0.2.1:443", "[::]:8443"]),
        certificates: vec![
            files("a.pem", "a.key", "a.ocsp"),
            files("/b.pem", "/b.pem", "b.ocsp"),
        ],
        local: false,
        automatic: false,
        clients: ClientAuthConfig::Require("ca.pem".into()),
        client_paths: ["/admin", "/admin/**"]
            .map(|text| PathPattern::parse(text).expect("a pattern"))
            .to_vec(),
        version_min: TlsVersion::Tls13,
        hsts: Some("max-age=5; preload".into()),
        redirect: true,
        strict_sni: true,
    };
    assert_eq!(site.tls, Some(expected));
    let set = &site.headers[0].set;
    let hsts = ("Strict-Transport-Security", "max-age=5; preload");
    assert_eq!(set, &[(hsts.0.into(), Template::literal(hsts.1))]);
}

#[test]
fn tls_defaults() {
    let config = good("[[site]]\nroot = \"r\"\n[site.tls]\nlocal = true");
    let site = &config.sites[0];
    assert!(site.listen.is_empty());
    let expected = TlsConfig {
        listen: addresses(&["[::]:443"]),
        local: true,
        ..TlsConfig::default()
    };
    assert_eq!(site.tls, Some(expected));
}

#[test]
fn tls_mistakes_are_reported_with_position() {
    let pair = |more: &str| format!("{PAIR}\n{more}");
    for (own, tls, line) in [
        (
            "",
            "listen = 1".to_string(),
            "site[0].tls: no certificate is configured",
        ),
        (
            "",
            "certificate = [\"a\", \"b\"]\nkey = \"k\"".into(),
            "site[0].tls: there are 2 certificates and 1 keys",
        ),
        (
            "",
            pair("staple = [\"a\", \"b\"]"),
            "site[0].tls: there are 1 certificates and 2 staples",
        ),
        (
            "",
            pair("client = \"require\""),
            "7:10: site[0].tls.client: client_ca is missing",
        ),
        (
            "",
            pair("client_ca = \"a\""),
            "site[0].tls.client_ca: has no effect here (allowed: only with client)",
        ),
        (
            "",
            pair("client_paths = \"/a\""),
            "site[0].tls.client_paths: has no effect here (allowed: only with client)",
        ),
        (
            "",
            pair("client = \"maybe\"\nclient_ca = \"a\""),
            "\"maybe\" is not an allowed value",
        ),
        (
            "",
            pair("min_version = \"1.1\""),
            "\"1.1\" is not an allowed value (allowed: \"1.2\", \"1.3\")",
        ),
        (
            "",
            pair("hsts = \"a year\""),
            "is not the value of Strict-Transport-Security",
        ),
        (
            "",
            pair("redirect = true"),
            "redirect, but the site has no listener without TLS",
        ),
        (
            "listen = 1",
            pair("hsts = true"),
            "hsts, but the site also has listeners without TLS",
        ),
        (
            "listen = 1",
            pair("listen = 1"),
            "127.0.0.1:1 is without TLS in site[0].listen",
        ),
        (
            "",
            pair("listen = []"),
            "site[0].tls.listen: no address is listed",
        ),
    ] {
        let problem_lines = problem_lines(own, &tls);
        assert!(problem_lines.contains(line), "{tls}: {problem_lines}");
    }
}

#[test]
fn sites_of_one_address_must_agree_on_settings_used_before_sni() {
    let site = |name: &str, keys: &str| {
        format!("[[site]]\nroot = \"r\"\nnames = \"{name}\"\n[site.tls]\n{PAIR}\n{keys}\n")
    };
    good(&format!("{}{}", site("a", ""), site("b", "")));
    let problem_lines = shown(&format!(
        "{}{}",
        site("a", ""),
        site("b", "min_version = \"1.3\"")
    ));
    assert!(
        problem_lines.contains("[::]:443 is an address of site[0] too, with another client"),
        "{problem_lines}"
    );
}

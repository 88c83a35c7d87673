//! Pages with MariaDB over TLS.

use lowroad_testkit::TempFolder;

use crate::authority::{Authority, loopback};
use crate::harness::{Site, database};
use crate::servers::{Kind, Server};

/// Restarts the server with TLS and a certificate for these hosts.
pub fn serve(authority: &Authority, server: &mut Server, hosts: &[&str], more: &[String]) {
    authority.sign("server", hosts);
    let mut args = vec![
        format!("--ssl-ca={}", authority.file("ca.pem")),
        format!("--ssl-cert={}", authority.file("server.pem")),
        format!("--ssl-key={}", authority.file("server.key")),
    ];
    args.extend_from_slice(more);
    server.restart_with(args);
}

const FILES: [(&str, &str); 3] = [
    ("form.lrp", "{{ csrf_field() }}"),
    (
        "version.lrp",
        "{{ row(\"SELECT VARIABLE_VALUE AS v FROM information_schema.SESSION_STATUS \
         WHERE VARIABLE_NAME = 'SSL_VERSION'\").v }};{{ row('SELECT CURRENT_USER() AS u').u }}",
    ),
    (
        "long.lrp",
        "{% set s = 'é' * 200000 %}{{ row('SELECT CONCAT(?, ?) AS s', s, s).s == s ~ s }};\
         {{ query('SELECT REPEAT(seq, 1000) AS s FROM seq_1_to_99') | length }}",
    ),
];

fn site(url: &str) -> Site {
    Site::with(TempFolder::new(), &FILES, vec![database(url)])
}

#[tokio::test(flavor = "multi_thread")]
async fn ssl_modes_verify_certificate_as_documented() {
    let Some(mut server) = Server::start(Kind::MariaDb, "mariadb_tls::modes") else {
        return;
    };
    let required = site(&format!("{}&ssl-mode=required", server.url));
    required
        .get("/version.lrp")
        .fails(503, "can't be used: the database server offers no TLS")
        .await;
    let authority = Authority::new();
    serve(&authority, &mut server, &["localhost"], &[]);
    let ca = format!("&ssl-ca={}", authority.file("ca.pem"));
    let elsewhere = server.url.replace("@localhost", "@elsewhere.example");
    for (url, settings, version) in [
        // A Unix socket needs no TLS.
        (&server.url, "", ""),
        (&server.url, "&ssl-mode=disabled", ""),
        (&server.url, "&ssl-mode=required", "TLSv1.3"),
        (&elsewhere, "&sslmode=REQUIRED", "TLSv1.3"),
        (&server.url, &*format!("&ssl-mode=verify_ca{ca}"), "TLSv1.3"),
        (&elsewhere, &*format!("&ssl-mode=verify_ca{ca}"), "TLSv1.3"),
        (
            &server.url,
            &*format!("&ssl-mode=verify_identity{ca}"),
            "TLSv1.3",
        ),
    ] {
        let site = site(&format!("{url}{settings}"));
        let text = site.get("/version.lrp").ok().await.text;
        assert_eq!(text, format!("{version};root@localhost"), "{settings}");
    }
    for (url, settings, reason) in [
        (
            &server.url,
            "&ssl-mode=verify_ca",
            "no trusted authority signed",
        ),
        (
            &server.url,
            "&ssl-mode=verify_identity",
            "no trusted authority signed",
        ),
        (
            &elsewhere,
            &*format!("&ssl-mode=verify_identity{ca}"),
            "is for other names",
        ),
        (
            &server.url,
            "&ssl-mode=verify_ca&ssl-ca=/nowhere.pem",
            "/nowhere.pem: No such file",
        ),
    ] {
        let site = site(&format!("{url}{settings}"));
        let failing = site.get("/version.lrp");
        failing.fails(503, reason).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_preferred_over_tcp() {
    let address = loopback();
    let Some(mut server) = Server::start_at(Kind::MariaDb, "mariadb_tls::network", Some(13306))
    else {
        return;
    };
    let bind = [format!("--bind-address={address}")];
    server.restart_with(bind.to_vec());
    let url = format!("mysql://root@{address}:13306/test");
    let tls_version = |url: String| async move {
        let text = site(&url).get("/version.lrp").ok().await.text;
        text.split(';').next().map(str::to_owned)
    };
    assert_eq!(tls_version(url.clone()).await.as_deref(), Some(""));
    let authority = Authority::new();
    serve(&authority, &mut server, &[&address], &bind);
    assert_eq!(tls_version(url.clone()).await.as_deref(), Some("TLSv1.3"));
    let disabled = tls_version(format!("{url}?ssl-mode=disabled")).await;
    assert_eq!(disabled.as_deref(), Some(""));
    let ca = authority.file("ca.pem");
    let verified = tls_version(format!("{url}?ssl-mode=verify_identity&ssl-ca={ca}")).await;
    assert_eq!(
        verified.as_deref(),
        Some("TLSv1.3"),
        "an address is a name, too"
    );
    let mut old = bind.to_vec();
    old.push("--tls-version=TLSv1.2".to_owned());
    serve(&authority, &mut server, &[&address], &old);
    assert_eq!(tls_version(url).await.as_deref(), Some("TLSv1.2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn long_values_and_reconnection_work_over_tls() {
    let Some(mut server) = Server::start(Kind::MariaDb, "mariadb_tls::long") else {
        return;
    };
    let authority = Authority::new();
    serve(&authority, &mut server, &["localhost"], &[]);
    let site = site(&format!("{}&ssl-mode=required", server.url));
    for _ in 0..3 {
        assert_eq!(site.get("/long.lrp").ok().await.text, "True;99");
    }
    // The connection was lost while it was idle.
    server.kill();
    site.get("/long.lrp").fails(503, "can't be used").await;
    server.launch();
    assert_eq!(site.get("/long.lrp").ok().await.text, "True;99");
}

#[tokio::test(flavor = "multi_thread")]
async fn user_with_require_x509_needs_client_certificate() {
    let Some(mut server) = Server::start(Kind::MariaDb, "mariadb_tls::users") else {
        return;
    };
    let authority = Authority::new();
    serve(&authority, &mut server, &["localhost"], &[]);
    authority.sign("shop", &[]);
    let root = site(&server.url);
    root.write(
        "user.lrp",
        "{% do execute(\"CREATE USER shop IDENTIFIED BY 'ge/heim' REQUIRE X509\") %}",
    );
    root.send_form("/form.lrp", "/user.lrp", "").await;
    let url = server
        .url
        .replace("root@localhost/test", "shop:ge%2Fheim@localhost/");
    let refused = site(&format!("{url}&ssl-mode=required"));
    refused
        .get("/version.lrp")
        .fails(503, "Access denied")
        .await;
    let (certificate, key) = (authority.file("shop.pem"), authority.file("shop.key"));
    let identity = format!("&ssl-cert={certificate}&ssl-key={key}");
    let site = site(&format!("{url}&ssl-mode=required{identity}"));
    assert_eq!(site.get("/version.lrp").ok().await.text, "TLSv1.3;shop@%");
}

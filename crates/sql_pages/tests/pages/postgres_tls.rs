//! Pages with PostgreSQL over TLS.

use std::process::Command;

use lowroad_testkit::TempFolder;

use crate::authority::{Authority, loopback};
use crate::harness::{Site, database};
use crate::servers::{Kind, Server};

const PAGE: (&str, &str) = (
    "version.lrp",
    "{{ row('SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()').version }}",
);

/// The environment variable with the server's address, for the child process.
const ADDRESS: &str = "LOWROAD_TEST_POSTGRES";

fn site(url: &str) -> Site {
    Site::with(TempFolder::new(), &[PAGE], vec![database(url)])
}

fn url(address: &str, settings: &str) -> String {
    format!("postgres://postgres@{address}/postgres?{settings}")
}

async fn has_tls(url: &str) {
    assert_eq!(
        site(url).get("/version.lrp").ok().await.text,
        "TLSv1.3",
        "{url}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ssl_modes_verify_certificate_as_documented() {
    let Some(mut server) = Server::start(Kind::Postgres, "postgres_tls::modes") else {
        return;
    };
    let (authority, address) = (Authority::new(), loopback());
    let (certificate, key) = authority.sign("server", &[&address]);
    server.serve_tls_at(&address, &certificate, &key);
    let ca = authority.file("ca.pem");
    has_tls(&url(&address, "sslmode=prefer")).await;
    has_tls(&url(&address, "sslmode=require")).await;
    has_tls(&url(
        &address,
        &format!("sslmode=verify-ca&sslrootcert={ca}"),
    ))
    .await;
    has_tls(&url(
        &address,
        &format!("sslmode=verify-full&sslrootcert={ca}"),
    ))
    .await;
    for (settings, reason) in [
        ("sslmode=verify-ca", "UnknownIssuer"),
        ("sslmode=verify-full", "UnknownIssuer"),
        (
            "sslmode=verify-full&sslrootcert=/nowhere.pem",
            "No such file",
        ),
    ] {
        let site = site(&url(&address, settings));
        site.get("/version.lrp").fails(503, reason).await;
    }
    let again = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "postgres_tls::system_authorities_are_trusted"])
        .args(["--ignored", "--nocapture"])
        .env("SSL_CERT_FILE", &ca)
        .env(ADDRESS, &address)
        .output()
        .expect("this program");
    assert!(again.status.success(), "{again:?}");
    assert!(
        String::from_utf8_lossy(&again.stdout).contains("1 passed"),
        "{again:?}"
    );
}

/// Runs in a child process with a system store that contains the test CA.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the test above starts it"]
async fn system_authorities_are_trusted() {
    let address = std::env::var(ADDRESS).expect("the server's address");
    has_tls(&url(&address, "sslmode=verify-ca")).await;
    has_tls(&url(&address, "sslmode=verify-full")).await;
    // The CA of the address is trusted in addition to those of the system.
    let other = Authority::new();
    let settings = format!("sslmode=verify-full&sslrootcert={}", other.file("ca.pem"));
    has_tls(&url(&address, &settings)).await;
}

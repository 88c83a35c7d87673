//! The admin service over TLS with client certificates, used with curl.

use std::process::Command;

use lowroad_testkit::{TempFolder, TestServer, wait_until};

use crate::support::{FULL, PROGRAM, run};

/// A folder with the certificates of an admin service and its clients.
struct AdminCertificates(TempFolder);

impl AdminCertificates {
    /// Makes two authorities, the certificate of the server, and client certificates: `deploy` and `watch` of the
    /// authority `ca`, `foreign` of the authority `other`.
    fn new() -> AdminCertificates {
        let certificates = AdminCertificates(TempFolder::new());
        certificates
            .0
            .file("server.ext", "subjectAltName=IP:127.0.0.1\n");
        certificates
            .0
            .file("client.ext", "extendedKeyUsage=clientAuth\n");
        for authority in ["ca", "other"] {
            certificates.openssl(&format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 5 \
                 -keyout {authority}.key -out {authority}.pem -subj /CN=authority"
            ));
        }
        for (name, authority, extensions) in [
            ("server", "ca", "server"),
            ("deploy", "ca", "client"),
            ("watch", "ca", "client"),
            ("foreign", "other", "client"),
        ] {
            certificates.certify(name, authority, extensions);
        }
        certificates
    }

    fn certify(&self, name: &str, authority: &str, extensions: &str) {
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key -out {name}.csr \
             -subj /O=Example/CN={name}"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial -out {name}.pem \
             -days 5 -extfile {extensions}.ext"
        ));
    }

    fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        let arguments = arguments.split_whitespace();
        let output = run(command.args(arguments).current_dir(self.0.path()), "");
        assert!(output.status.success(), "{output:?}");
    }

    /// Starts a server with these further keys of `[admin]`; returns it with the URL of its admin service.
    fn serve(&self, keys: &str) -> (TestServer, String) {
        self.0.file("root/index.html", "hello");
        let config = self.0.file(
            "lowroad.toml",
            format!(
                "[server]\nworkers = 1\nadmin = \"admin.sock\"\n\
                 [admin]\nlisten = \"127.0.0.1:0\"\ncertificate = \"server.pem\"\nkey = \"server.key\"\n{keys}\
                 [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n"
            ),
        );
        let mut command = Command::new(PROGRAM);
        command.args(["run", "-c"]).arg(config);
        let server = TestServer::spawn(command);
        let line = server.wait_for_error_line("metrics and commands at https://");
        let url = line
            .rsplit(' ')
            .next()
            .expect("a URL")
            .trim_end_matches('/');
        (server, url.to_owned())
    }

    /// The status of a request with the certificate of a client, or without one if `client` is empty; `None` if the
    /// handshake fails.
    fn status(&self, url: &str, client: &str, options: &[&str]) -> Option<u16> {
        let mut curl = Command::new("curl");
        curl.current_dir(self.0.path());
        curl.args(["-sS", "--max-time", "20", "--cacert", "ca.pem"]);
        curl.args(["-o", "body", "-w", "%{http_code}"]);
        if !client.is_empty() {
            curl.args(["--cert", &format!("{client}.pem")]);
            curl.args(["--key", &format!("{client}.key")]);
        }
        let output = run(curl.args(options).arg(url), "");
        let status = String::from_utf8_lossy(&output.stdout).into_owned();
        output
            .status
            .success()
            .then(|| status.parse().expect("a status"))
    }

    fn body(&self) -> String {
        std::fs::read_to_string(self.0.path().join("body")).expect("a body")
    }
}

#[test]
fn client_certificate_decides_the_permission() {
    let certificates = AdminCertificates::new();
    let (_server, url) =
        certificates.serve("client_ca = \"ca.pem\"\nfull_clients = \"CN=deploy,O=Example\"\n");
    let status = |client: &str, path: &str, options: &[&str]| {
        certificates.status(&format!("{url}{path}"), client, options)
    };
    let post = &["-X", "POST"];
    for version in ["--http1.1", "--http2"] {
        assert_eq!(status("", "/metrics", &[version]), None);
        assert_eq!(status("foreign", "/metrics", &[version]), None);
        assert_eq!(status("watch", "/metrics", &[version]), Some(200));
        assert!(certificates.body().contains("lowroad_workers 1"));
    }
    assert_eq!(status("watch", "/v1/purge?target=all", post), Some(403));
    let body = certificates.body();
    assert!(body.contains("full_clients: CN=watch,O=Example"), "{body}");
    assert_eq!(status("deploy", "/v1/purge?target=all", post), Some(200));
    // A request in clear text gets a message.
    let clear = url.replace("https", "http");
    assert_eq!(certificates.status(&clear, "", &[]), Some(400));
    assert!(
        certificates.body().contains("https"),
        "{}",
        certificates.body()
    );
}

#[test]
fn tokens_are_checked_over_tls() {
    let certificates = AdminCertificates::new();
    certificates.0.file("full.token", FULL);
    let (_server, url) = certificates.serve("token_file = \"full.token\"\n");
    let bearer = format!("Authorization: Bearer {FULL}");
    let purge = format!("{url}/v1/purge?target=all");
    assert_eq!(certificates.status(&purge, "", &["-X", "POST"]), Some(401));
    let options = ["-X", "POST", "-H", &bearer];
    assert_eq!(certificates.status(&purge, "", &options), Some(200));
}

#[test]
fn renewed_admin_certificate_is_used() {
    let certificates = AdminCertificates::new();
    let (_server, url) = certificates.serve("client_ca = \"ca.pem\"\n");
    let metrics = format!("{url}/metrics");
    assert_eq!(certificates.status(&metrics, "watch", &[]), Some(200));
    let snapshot = certificates.status(&format!("{url}/v1/snapshot"), "watch", &[]);
    assert_eq!(snapshot, Some(200));
    let snapshot: serde_json::Value = serde_json::from_str(&certificates.body()).expect("JSON");
    let listed = &snapshot["certificates"][0];
    assert_eq!(listed["names"], "127.0.0.1", "{snapshot}");
    assert!(listed["not_after_s"].is_u64() && listed["last_error"].is_null());
    assert_eq!(certificates.status(&metrics, "watch", &[]), Some(200));
    let expiry = "lowroad_certificate_expiry_timestamp_seconds{names=\"127.0.0.1\"";
    assert!(
        certificates.body().contains(expiry),
        "{}",
        certificates.body()
    );
    // The other authority is not in `ca.pem`, so the client sees which certificate the server has.
    certificates.certify("server", "other", "server");
    wait_until("the renewed certificate", || {
        let status = certificates.status(&metrics, "watch", &["--cacert", "other.pem"]);
        (status == Some(200)).then_some(())
    });
}

//! Certificates that come by themselves, from a real authority (pebble) over loopback. What the manager has to keep is
//! tested in `lowroad-acme`; here it is that the server answers its challenges and shows what it got.

use lowroad_testkit::wait_until;

use crate::kit::pebble::{Options, Pebble};
use crate::support::{PROGRAM, Place};

/// A site's certificate is got by this challenge, shown to clients, and still there after a restart.
fn comes_by(test: &str, challenge: &str) {
    let Some(mut pebble) = Pebble::start(test, Options::default()) else {
        return;
    };
    let place = Place::new();
    let port = |listener: Option<std::net::TcpListener>| {
        let listener = listener.expect("a port");
        listener.local_addr().expect("an address")
    };
    let (http, tls) = (port(pebble.http.take()), port(pebble.tls.take()));
    let authority = pebble.authority();
    let roots = authority.roots.expect("its certificates");
    std::fs::create_dir_all(place.path("site")).expect("a folder");
    std::fs::write(place.path("site/index.html"), "hello").expect("a page");
    let config = format!(
        "[acme]\nterms_agreed = true\nfolder = \"acme\"\nchallenge = \"{challenge}\"\n\
         [[acme.authority]]\ndirectory = \"{}\"\nroots = \"{}\"\n\
         [[site]]\nnames = [\"a.example\", \"b.example\"]\nlisten = \"{http}\"\nroot = \"site\"\n\
         [site.tls]\nlisten = \"{tls}\"\nautomatic = true\nredirect = true\n",
        authority.directory,
        roots.display()
    );
    let server = place.run(&config);
    let page = |name: &str| {
        let said = place.curl(tls, &["-k", "--http2", &format!("https://{name}/")]);
        (said.code == Some(0)).then(|| said.text())
    };
    assert_eq!(wait_until("a certificate", || page("b.example")), "hello");
    let status = std::process::Command::new(PROGRAM)
        .args(["status", "--admin"])
        .arg(place.path("admin"))
        .output();
    let status = String::from_utf8(status.expect("a status").stdout).expect("text");
    assert!(
        status.contains("a.example, b.example: valid until"),
        "{status}"
    );
    drop(server);
    pebble.down();
    let _server = place.run(&config);
    assert_eq!(page("a.example").as_deref(), Some("hello"));
}

#[test]
fn a_certificate_comes_by_an_answer_on_the_plain_port() {
    comes_by(
        "a_certificate_comes_by_an_answer_on_the_plain_port",
        "http-01",
    );
}

#[test]
fn a_certificate_comes_by_a_handshake() {
    comes_by("a_certificate_comes_by_a_handshake", "tls-alpn-01");
}

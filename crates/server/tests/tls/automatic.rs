//! Automatic certificates from a real ACME server (pebble) over loopback. `lowroad-acme` tests the certificate manager;
//! here the server answers challenges and presents the certificates.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lowroad_testkit::{skip, wait_until};

use crate::kit::fake::place_certificate;
use crate::kit::pebble::{Options, Pebble};
use crate::kit::web::{self, Answer};
use crate::support::{PROGRAM, Place, run, unix_s};

/// The addresses at which pebble validates challenges, and at which the server answers.
struct Ports {
    http: SocketAddr,
    tls: SocketAddr,
}

impl Ports {
    fn of(pebble: &mut Pebble) -> Ports {
        let port = |listener: Option<TcpListener>| {
            let listener = listener.expect("a port");
            listener.local_addr().expect("an address")
        };
        Ports {
            http: port(pebble.http.take()),
            tls: port(pebble.tls.take()),
        }
    }
}

/// The tables `[acme]`, with further keys, and `[[acme.authority]]`.
fn acme(pebble: &Pebble, keys: &str) -> String {
    let authority = pebble.authority();
    let roots = authority.roots.expect("its certificates");
    format!(
        "[acme]\nterms_agreed = true\nfolder = \"acme\"\n{keys}\n\
         [[acme.authority]]\ndirectory = \"{}\"\nroots = \"{}\"\n",
        authority.directory,
        roots.display()
    )
}

/// The page that a client gets with this SNI name; `None` if the handshake failed.
fn page(place: &Place, tls: SocketAddr, name: &str) -> Option<String> {
    let said = place.curl(tls, &["-k", "--http2", &format!("https://{name}/")]);
    (said.code == Some(0)).then(|| said.text())
}

/// The output of `lowroad status`.
fn status(place: &Place) -> String {
    let status = std::process::Command::new(PROGRAM)
        .args(["status", "--admin"])
        .arg(place.path("admin"))
        .output();
    String::from_utf8(status.expect("a status").stdout).expect("text")
}

/// Checks that a site gets its certificate by this challenge, presents it, and still has it after a restart.
fn assert_certificate_by(test: &str, challenge: &str) {
    let Some(mut pebble) = Pebble::start(test, Options::default()) else {
        return;
    };
    let place = Place::new();
    let Ports { http, tls } = Ports::of(&mut pebble);
    place.folder.file("site/index.html", "hello");
    let config = format!(
        "{}[[site]]\nnames = [\"a.example\", \"b.example\"]\nlisten = \"{http}\"\nroot = \"site\"\n\
         [site.tls]\nlisten = \"{tls}\"\nautomatic = true\nredirect = true\n",
        acme(&pebble, &format!("challenge = \"{challenge}\""))
    );
    let server = place.run(&config);
    let page = |name: &str| page(&place, tls, name);
    assert_eq!(wait_until("a certificate", || page("b.example")), "hello");
    let status = status(&place);
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
fn http_01_challenge_yields_a_certificate() {
    assert_certificate_by("http_01_challenge_yields_a_certificate", "http-01");
}

#[test]
fn tls_alpn_01_challenge_yields_a_certificate() {
    assert_certificate_by("tls_alpn_01_challenge_yields_a_certificate", "tls-alpn-01");
}

/// Starts a server that answers 200 for the wanted names. Also returns the list of queried names.
fn start_ask_server(wanted: &'static [&str]) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = asked.clone();
    let addr = web::serve(web::listen(), move |_, target| {
        let name = target.trim_start_matches("/ask?domain=");
        noted.lock().expect("names").push(name.to_owned());
        let status = if wanted.contains(&name) { 200 } else { 403 };
        Answer::new(status, "")
    });
    (addr, asked)
}

#[test]
fn certificates_are_ordered_on_demand() {
    let test = "certificates_are_ordered_on_demand";
    let Some(mut pebble) = Pebble::start(test, Options::default()) else {
        return;
    };
    let place = Place::new();
    let Ports { http, tls } = Ports::of(&mut pebble);
    place.folder.file("site/index.html", "hello");
    let (ask, asked) = start_ask_server(&["a.example", "d.example"]);
    let asked = || asked.lock().expect("names").clone();
    let demand = format!("on_demand = {{ ask = \"http://{ask}/ask\", per_minute = 2 }}");
    let config = format!(
        "{}[[site]]\nlisten = \"{http}\"\nroot = \"site\"\n\
         [site.tls]\nlisten = \"{tls}\"\nautomatic = true\n",
        acme(&pebble, &demand)
    );
    let server = place.run(&config);
    let started = Instant::now();
    let page = |name: &str| page(&place, tls, name);

    // Handshakes do not wait for a certificate: the first fails, a later one succeeds.
    assert_eq!(page("a.example"), None);
    assert_eq!(wait_until("a certificate", || page("a.example")), "hello");
    assert_eq!(asked(), ["a.example"], "once for all who have come");
    let shown = status(&place);
    assert!(shown.contains("a.example: valid until"), "{shown}");

    // The next name is not wanted; it gets no certificate.
    assert_eq!(page("B.example"), None);
    wait_until("a question", || (asked().len() == 2).then_some(()));
    assert_eq!(asked()[1], "b.example");
    assert_eq!(page("b.example"), None);

    // Within the minute, further names are not queried; names that can't have a certificate never are.
    let refused = place.count("tls.no_certificate");
    for name in ["d.example", "e.example", "localhost"] {
        assert_eq!(page(name), None);
    }
    assert_eq!(place.count("tls.no_certificate"), refused + 3);
    // On a slow machine the test may take more than a minute, and each minute allows further queries.
    let minutes = started.elapsed().as_secs() as usize / 60 + 1;
    assert!(asked().len() <= 2 * minutes, "{:?}", asked());

    // After a restart the server has the certificate, without contacting pebble.
    drop(server);
    pebble.down();
    let _server = place.run(&config);
    assert_eq!(page("a.example").as_deref(), Some("hello"));
    let about_it = asked().iter().filter(|name| *name == "a.example").count();
    assert_eq!(about_it, 1);
}

/// The configuration of a site that orders a certificate for `a.example` from an ACME server that does not answer.
const UNREACHABLE: &str = "[acme]\nterms_agreed = true\nfolder = \"acme\"\n\
    challenge = \"tls-alpn-01\"\n[[acme.authority]]\ndirectory = \"http://127.0.0.1:1/dir\"\n\
    [[site]]\nnames = \"a.example\"\nroot = \"site\"\n\
    [site.tls]\nlisten = \"127.0.0.1:0\"\nautomatic = true\n";

#[test]
fn failed_order_is_logged_and_counted() {
    let place = Place::new();
    place.folder.file("site/index.html", "hello");
    let server = place.run(UNREACHABLE);
    let line = server.wait_for_error_line("a.example: no certificate");
    assert!(line.contains("error"), "{line}");
    assert_eq!(place.count("acme.orders_failed"), 1);
    assert_eq!(place.count("acme.unreachable"), 1);
    assert_eq!(place.count("acme.missing"), 1);
}

/// No other process is involved: the changed file is detected immediately, and also after a reload.
#[test]
fn damaged_certificate_file_is_restored_immediately() {
    let place = Place::new();
    place.folder.file("site/index.html", "hello");
    let folder = place.path("acme");
    place_certificate(&folder, "a.example", unix_s());
    let file = folder.join("names/a.example/certificate.pem");
    let text = std::fs::read(&file).expect("a file");
    let server = place.run(UNREACHABLE);
    assert_eq!(place.count("acme.valid"), 1);
    std::fs::remove_file(&file).expect("a file");
    let line = server.wait_for_error_line("certificate.pem is missing; it was restored");
    assert!(line.contains("warn"), "{line}");
    assert_eq!(std::fs::read(&file).expect("a file"), text);
    // With other settings, another certificate manager is in charge.
    std::fs::write(&file, "rubbish").expect("a file");
    let config = std::fs::read_to_string(place.path("lowroad.toml")).expect("a file");
    let config = config.replace("[acme]", "[acme]\ncontact = \"mailto:a@a.example\"");
    place.folder.file("lowroad.toml", config);
    server.signal("HUP");
    server.wait_for_error_line("certificate.pem is damaged");
    assert_eq!(std::fs::read(&file).expect("a file"), text);
    assert_eq!(place.count("acme.valid"), 1);
    assert_eq!(place.count("acme.files_restored"), 2);
    assert_eq!(place.count("acme.orders"), 0);
}

/// `check` warns of files that the server's user can't use; `run` starts nevertheless.
#[test]
fn check_tests_acme_folder_as_the_servers_user() {
    if !rustix::process::geteuid().is_root() {
        return skip("check_tests_acme_folder_as_the_servers_user", "needs root");
    }
    let place = Place::new();
    place.folder.file("site/index.html", "hello");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.folder.path(), everybody).expect("a folder");
    let check = |user: &str| {
        let config = format!("[server]\nuser = \"{user}\"\n{UNREACHABLE}");
        let file = place.folder.file("check.toml", config);
        let said = run(
            std::process::Command::new(PROGRAM)
                .args(["check", "-c"])
                .arg(file),
            b"",
        );
        (said.code, said.all())
    };
    let says = |user: &str, texts: &[&str]| {
        let (code, said) = check(user);
        assert_eq!(code, Some(if texts.is_empty() { 0 } else { 3 }), "{said}");
        for text in texts {
            assert!(said.contains(text), "{text}: {said}");
        }
    };
    let give = |path: &std::path::Path| {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).expect("root");
    };
    let folder = place.path("acme");
    says("root", &[]);
    says(
        "nobody",
        &[
            "acme does not exist and cannot be created in",
            "Permission denied",
        ],
    );
    place_certificate(&folder, "a.example", unix_s());
    std::fs::remove_dir_all(folder.join("ca")).expect("a folder");
    let own = folder.join("names/a.example");
    let file = own.join("certificate.pem");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, private).expect("a file");
    says("nobody", &["acme cannot be written: Permission denied"]);
    give(&folder);
    says(
        "nobody",
        &[
            "names cannot be written",
            "names/a.example cannot be written",
            "certificate.pem cannot be read",
        ],
    );
    give(&folder.join("names"));
    give(&own);
    says("nobody", &["certificate.pem cannot be read"]);
    give(&file);
    says("nobody", &[]);
}

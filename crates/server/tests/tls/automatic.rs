//! Automatic certificates from a real authority (pebble) over loopback. `lowroad-acme` tests the manager; here the
//! server answers challenges and presents the certificates.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lowroad_testkit::{skip, wait_until};

use crate::kit::fake::place_certificate;
use crate::kit::pebble::{Options, Pebble};
use crate::kit::web::{self, Answer};
use crate::support::{PROGRAM, Place, run, unix_s};

/// The addresses at which the authority validates challenges, and the server answers.
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

/// The page that a client gets with this SNI name. `None`: its handshake failed.
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

/// A site gets its certificate by this challenge, presents it, and still has it after a restart.
fn comes_by(test: &str, challenge: &str) {
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

/// A server that answers 200 for these names. Also returns the queried names.
fn asker(wanted: &'static [&str]) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
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
fn certificates_come_for_names_that_somebody_wants() {
    let test = "certificates_come_for_names_that_somebody_wants";
    let Some(mut pebble) = Pebble::start(test, Options::default()) else {
        return;
    };
    let place = Place::new();
    let Ports { http, tls } = Ports::of(&mut pebble);
    place.folder.file("site/index.html", "hello");
    let (ask, asked) = asker(&["a.example", "d.example"]);
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

    // The next name is not wanted, and gets no other certificate.
    assert_eq!(page("B.example"), None);
    wait_until("a question", || (asked().len() == 2).then_some(()));
    assert_eq!(asked()[1], "b.example");
    assert_eq!(page("b.example"), None);

    // Further names are not queried within a minute; impossible names never are.
    let refused = place.count("tls.no_certificate");
    for name in ["d.example", "e.example", "localhost"] {
        assert_eq!(page(name), None);
    }
    assert_eq!(place.count("tls.no_certificate"), refused + 3);
    // A slow machine may enter another minute, with another allowance.
    let minutes = started.elapsed().as_secs() as usize / 60 + 1;
    assert!(asked().len() <= 2 * minutes, "{:?}", asked());

    // The next start has the certificate, and needs no authority.
    drop(server);
    pebble.down();
    let _server = place.run(&config);
    assert_eq!(page("a.example").as_deref(), Some("hello"));
    let about_it = asked().iter().filter(|name| *name == "a.example").count();
    assert_eq!(about_it, 1);
}

/// A site that gets a certificate for `a.example` from an authority that does not answer.
const UNREACHABLE: &str = "[acme]\nterms_agreed = true\nfolder = \"acme\"\n\
    challenge = \"tls-alpn-01\"\n[[acme.authority]]\ndirectory = \"http://127.0.0.1:1/dir\"\n\
    [[site]]\nnames = \"a.example\"\nroot = \"site\"\n\
    [site.tls]\nlisten = \"127.0.0.1:0\"\nautomatic = true\n";

#[test]
fn an_order_that_fails_is_an_error_and_counted() {
    let place = Place::new();
    place.folder.file("site/index.html", "hello");
    let server = place.run(UNREACHABLE);
    let line = server.wait_for_error_line("a.example: no certificate");
    assert!(line.contains("error"), "{line}");
    assert_eq!(place.count("acme.orders_failed"), 1);
    assert_eq!(place.count("acme.unreachable"), 1);
    assert_eq!(place.count("acme.missing"), 1);
}

/// Without another process: a changed file is checked at once, and also after a reload.
#[test]
fn a_damaged_file_is_written_back_at_once() {
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
    // Other settings belong to another manager.
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

/// The warnings of `check` about files that the server's user can't use: `run` starts nevertheless.
#[test]
fn check_looks_as_the_user_of_the_server() {
    if !rustix::process::geteuid().is_root() {
        return skip("check_looks_as_the_user_of_the_server", "needs root");
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

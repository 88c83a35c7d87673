//! Changes of routes under load, and the messages about them.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use lowroad_testkit::{TEST_TIMEOUT, TestClient, wait_until};

use crate::host::Host;
use crate::talk::{self, ask, post};

const ONE: &str = "[[site.route]]\npattern = \"/what\"\nmodule = \"linked\"\n\
                   [[site.route]]\npattern = \"/cgi/**\"\ncgi = \"DIR/cgi\"\n";
const TWO: &str = "[[site.route]]\npattern = \"/cgi/**\"\ncgi = \"DIR/cgi\"\n\
                   [[site.route]]\npattern = \"/what\"\nmodule = \"wasm\"\n\
                   [[site.route]]\npattern = \"/new\"\nmodule = \"library\"\n";

#[test]
fn no_request_fails_while_routes_are_reloaded() {
    let host = Host::with_routes(ONE, &[]);
    let address = host.address();
    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..4 {
            let (stop, answered) = (&stop, &answered);
            scope.spawn(move || {
                let mut client = TestClient::connect(address);
                let start = Instant::now();
                while start.elapsed() < TEST_TIMEOUT && !stop.load(Relaxed) {
                    let (got, _) = match number {
                        0 => talk::request_on(&mut client, "GET", "/cgi/say", ""),
                        1 => post(&mut client, "/cgi/say", "text"),
                        2 => talk::request_on(&mut client, "GET", "/what", ""),
                        _ => ask(address, "GET", "/what", ""),
                    };
                    assert_eq!(got.status, 200, "{got:?}");
                    let text = got.text();
                    let wasm = "Hello, World, from C\n";
                    assert!(
                        match number {
                            0 => text == "GET |",
                            1 => text == "POST 4|text",
                            _ => text == "Hi, world!\n" || text == wasm,
                        },
                        "{text}"
                    );
                    answered.fetch_add(1, Relaxed);
                }
            });
        }
        for round in 0..6 {
            let before = answered.load(Relaxed);
            wait_until("some load", || {
                (answered.load(Relaxed) > before + 50).then_some(())
            });
            let (routes, status) = if round % 2 == 0 {
                (TWO, 200)
            } else {
                (ONE, 404)
            };
            host.reload(routes);
            wait_until("the new routes", || {
                (ask(address, "GET", "/new", "").0.status == status).then_some(())
            });
        }
        stop.store(true, Relaxed);
    });
}

/// A module file that is incomplete because it is being written: when it changes, at a reload, and for `check`.
#[test]
fn incomplete_module_file_is_ignored() {
    let route = "[[site.route]]\npattern = \"/wasm\"\nmodule = \"wasm\"\n";
    let host = Host::with_routes(route, &[]);
    let path = host.path("hello.wasm");
    let whole = fs::read(&path).expect("a module");
    let check = || {
        let mut command = std::process::Command::new(crate::host::PROGRAM);
        let command = command.args(["check", "-c"]).arg(host.path("lowroad.toml"));
        let output = command.output().expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    };
    assert!(check().0, "{}", check().1);
    fs::write(&path, &whole[..whole.len() / 2]).expect("half of it");
    host.server
        .wait_for_error_line("the previous version stays in use");
    let (got, _) = ask(host.address(), "GET", "/wasm", "");
    assert_eq!(got.text(), "Hello, World, from C\n");
    host.server.signal("HUP");
    // The reload is refused, or the refused module is not used.
    host.server.wait_for_error_line("reload 1: ");
    let (got, _) = ask(host.address(), "GET", "/wasm", "");
    assert_eq!(got.text(), "Hello, World, from C\n");
    let (fine, said) = check();
    assert!(
        !fine && said.contains("module wasm: ") && said.contains("hello.wasm"),
        "{said}"
    );
    fs::write(&path, &whole).expect("all of it");
    host.server.wait_for_error_line("a new version is in use");
}

#[test]
fn requests_in_progress_finish_with_the_old_routes() {
    let script = "printf 'Content-Type: text/plain\\n\\nthe beginning'\n\
                  while ! [ -e DIR/state/go ]; do sleep 0.01; done\nprintf ' and the end'\n";
    let host = Host::with_routes(ONE, &[("slow", script)]);
    let mut client = host.connect();
    client.send("GET /cgi/slow HTTP/1.1\r\nHost: a\r\n\r\n");
    while !client.received.ends_with(b"the beginning\r\n") {
        assert!(client.receive_once());
    }
    host.reload("");
    wait_until("the new routes", || {
        (ask(host.address(), "GET", "/cgi/say", "").0.status == 404).then_some(())
    });
    host.file("state/go", "");
    let (got, _) = talk::answer(&mut client, "GET");
    assert_eq!(got.text(), "the beginning and the end");
    let (got, _) = talk::request_on(&mut client, "GET", "/file.txt", "");
    assert_eq!(got.text(), "a file\n");
}

#[test]
fn unusable_route_keeps_the_previous_configuration() {
    let host = Host::with_routes(ONE, &[]);
    host.reload("[[site.route]]\npattern = \"/cgi/**\"\ncgi = \"DIR/nowhere\"\n");
    let line = host
        .server
        .wait_for_error_line("the previous configuration stays in force");
    assert!(line.contains("nowhere"), "{line}");
    let (got, _) = ask(host.address(), "GET", "/cgi/say", "");
    assert_eq!(got.text(), "GET |");
}

#[test]
fn explain_names_handler_and_route() {
    let host = Host::start(&[]);
    let address = host.address();
    for (path, label) in [
        ("/linked", "module linked"),
        ("/wasm", "module wasm"),
        ("/cgi/say", "cgi "),
        ("/page.lrp", "pages"),
        ("/say.php", "fastcgi unix:"),
    ] {
        let said = host.command_output(&["explain", &format!("http://{address}{path}")]);
        assert!(said.contains("level                  handler"), "{said}");
        assert!(
            said.contains(&format!("route                  {label}")),
            "{said}"
        );
    }
    let script = host.command_output(&["explain", &format!("http://{address}/say.php/a/b")]);
    for text in [", for *.php\n", "SCRIPT_NAME /say.php, PATH_INFO /a/b\n"] {
        assert!(script.contains(text), "{text} in {script}");
    }
    let said = host.command_output(&["explain", &format!("http://{address}/file.txt")]);
    assert!(said.contains("level                  worker"), "{said}");
}

#[test]
fn access_log_names_the_handler_level() {
    let mut host = Host::start(&[]);
    let mut client = host.connect();
    for path in ["/linked", "/wasm", "/cgi/say", "/page.lrp", "/cgi/none"] {
        talk::request_on(&mut client, "GET", path, "");
    }
    talk::request_on(&mut client, "GET", "/file.txt", "");
    host.server.signal("TERM");
    assert!(host.server.wait_for_end().success());
    let log = fs::read_to_string(host.path("access")).expect("a log");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 6, "{log}");
    for line in &lines[..5] {
        assert!(line.contains("\"level\":\"handler\""), "{line}");
    }
    assert!(lines[5].contains("\"level\":\"worker\""), "{}", lines[5]);
}

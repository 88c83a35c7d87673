//! Rules of a site over real sockets: who is refused, by what path, address and method, how often one may ask, and who the
//! client is behind proxies.

use std::net::IpAddr;
use std::process::Command;

use lowroad_testkit::origin::Origin;
use lowroad_testkit::status::Status;
use lowroad_testkit::{Client, Folder, Response, Server};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// A server with one site of files and these lines in it.
struct Site {
    folder: Folder,
    server: Server,
}

impl Site {
    fn of(lines: &str) -> Site {
        Site::after(Folder::new(), lines)
    }

    /// With what is in the folder.
    fn after(folder: Folder, lines: &str) -> Site {
        for name in [
            "index.html",
            "a.txt",
            "admin/index.html",
            "admin/a b.txt",
            "admin/login.html",
            "big.txt",
            "private/x.txt",
        ] {
            folder.file(format!("root/{name}"), name.repeat(100));
        }
        let path = folder.path().display();
        let config = format!(
            "[server]\nadmin = \"{path}/admin.sock\"\n[log]\naccess = \"{path}/access.log\"\n\
             [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{path}/root\"\n{lines}"
        );
        let server = Server::run(PROGRAM, &folder, &config);
        Site { folder, server }
    }

    fn get(&self, path: &str, fields: &str) -> Response {
        self.server.connect().get(path, fields)
    }

    fn from(&self, address: &str, path: &str) -> u16 {
        let address: IpAddr = address.parse().expect("an address");
        let mut client = Client::connect_from(address, self.server.address());
        client.get(path, "").status
    }

    /// The status of a response to this request line and fields; HEAD has no body.
    fn ask(&self, line: &str, fields: &str) -> u16 {
        let mut client = self.server.connect();
        client.send(format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        match line.starts_with("HEAD") {
            true => client.response_to_head().status,
            false => client.response().status,
        }
    }

    fn explain(&self, path: &str, fields: &[&str]) -> String {
        self.say(
            &[
                "explain",
                &format!("http://{}{path}", self.server.address()),
            ],
            &fields.iter().flat_map(|it| ["-H", it]).collect::<Vec<_>>(),
        )
    }

    fn say(&self, first: &[&str], more: &[&str]) -> String {
        let output = Command::new(PROGRAM)
            .args(first)
            .args(more)
            .arg("--admin")
            .arg(self.folder.path().join("admin.sock"))
            .output()
            .expect("the command");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn count(&self, name: &str) -> u64 {
        Status::new(PROGRAM, self.folder.path().join("admin.sock")).value(name)
    }
}

#[test]
fn a_path_is_denied_by_whatever_way_it_is_asked_for() {
    let site = Site::of(
        "hidden = false\n\
         [[site.rule]]\npattern = \"/admin/**\"\ndeny = 403\n\
         [[site.rule]]\npattern = \"/private\"\ndeny = 404\n\
         [[site.rule]]\npattern = \"/big.txt\"\ndeny = 403\n",
    );
    site.folder.file("root/big.txt.br", "not really brotli");
    site.folder.file("root/a.txt.gz", "not really gzip");
    for path in [
        "/admin/",
        "/admin",
        "/admin/index.html",
        "/admin/a%20b.txt",
        "/%61dmin/a%20b.txt",
        "//admin//index.html",
        "/admin//",
        "/admin/?x",
        "/admin/none",
        "/big.txt",
        "/big.txt.br",
        "/big.tx%74",
        "/big.txt/",
    ] {
        assert_eq!(site.get(path, "").status, 403, "{path}");
    }
    for path in ["/private", "/private/", "/private/x.txt"] {
        assert_eq!(site.get(path, "").status, 404, "{path}");
    }
    for path in ["/", "/index.html", "/a.txt", "/a.txt.gz"] {
        assert_eq!(site.get(path, "").status, 200, "{path}");
    }
    // What can be read in two ways is refused before.
    for path in [
        "/x/../admin/index.html",
        "/admin%2findex.html",
        "/.\\admin/",
    ] {
        assert_eq!(site.get(path, "").status, 400, "{path}");
    }
    for line in [
        "HEAD /admin/index.html",
        "POST /admin/index.html",
        "OPTIONS /admin/index.html",
        "PROPFIND /admin/index.html",
        "GET http://a/admin/index.html",
        "GET http://a//admin/index.html",
    ] {
        assert_eq!(site.ask(line, ""), 403, "{line}");
    }
    // Conditions and ranges learn nothing either.
    for fields in [
        "If-None-Match: *\r\n",
        "Range: bytes=0-1\r\n",
        "If-Match: \"x\"\r\n",
    ] {
        assert_eq!(site.ask("GET /admin/index.html", fields), 403, "{fields}");
    }
    let refused = site.get("/admin/", "");
    assert_eq!(refused.field("cache-control"), Some("no-store"));
}

#[test]
fn what_is_stored_is_refused_as_what_is_not() {
    let site =
        Site::of("[[site.rule]]\npattern = \"/a.txt\"\nexcept = \"127.0.0.1\"\ndeny = 403\n");
    for _ in 0..2 {
        assert_eq!(site.from("127.0.0.1", "/a.txt"), 200);
        assert_eq!(site.from("127.0.0.2", "/a.txt"), 403);
    }
    assert_eq!(site.from("127.0.0.2", "/index.html"), 200);
}

#[test]
fn the_first_that_allows_or_denies_counts() {
    let site = Site::of(
        "[[site.rule]]\npattern = \"/admin/login.html\"\nallow = true\n\
         [[site.rule]]\npattern = \"/admin/**\"\naddresses = [\"127.0.0.2\", \"127.1.0.0/16\"]\nallow = true\n\
         [[site.rule]]\npattern = \"/admin/**\"\ndeny = 404\n\
         [[site.rule]]\nmethods = [\"POST\", \"GET\"]\naddresses = \"127.0.0.9\"\ndeny = 403\n",
    );
    for (from, path, status) in [
        ("127.0.0.1", "/admin/login.html", 200),
        ("127.0.0.1", "/admin/", 404),
        ("127.0.0.2", "/admin/", 200),
        ("127.1.2.3", "/admin/", 200),
        ("127.2.0.1", "/admin/", 404),
        ("127.0.0.9", "/a.txt", 403),
        ("127.0.0.9", "/admin/login.html", 200),
    ] {
        assert_eq!(site.from(from, path), status, "{from} {path}");
    }
    // What allows is for its own path only.
    assert_eq!(site.from("127.0.0.1", "/admin/login.html.gz"), 404);
    let told = site.explain("/admin/x", &[]);
    assert!(told.contains("404"), "{told}");
    assert!(
        told.contains("rule                   /admin/**: deny 404"),
        "{told}"
    );
    let told = site.explain("/admin/login.html", &[]);
    assert!(told.contains("/admin/login.html: allow"), "{told}");
}

#[test]
fn methods_are_denied_and_head_is_a_get() {
    let site = Site::of("[[site.rule]]\npattern = \"/a.txt\"\nmethods = \"GET\"\ndeny = 403\n");
    assert_eq!(site.ask("GET /a.txt", ""), 403);
    assert_eq!(site.ask("HEAD /a.txt", ""), 403);
    assert_eq!(site.ask("OPTIONS /a.txt", ""), 204);
    assert_eq!(site.ask("POST /a.txt", ""), 405);
}

#[test]
fn programs_are_behind_the_rules_and_so_is_what_they_answered_before() {
    let origin = Origin::saying(|_| {
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Control: public, max-age=600\r\n\r\nhi"
            .into()
    });
    let site = Site::of(&format!(
        "[[site.route]]\npattern = \"/**\"\norigin = \"{}\"\n\
         [[site.rule]]\npattern = \"/in.php\"\nexcept = \"127.0.0.1\"\ndeny = 403\n",
        origin.url()
    ));
    assert_eq!(site.from("127.0.0.2", "/in.php"), 403);
    assert_eq!(origin.count(), 0);
    for _ in 0..2 {
        assert_eq!(site.from("127.0.0.1", "/in.php"), 200);
        assert_eq!(site.from("127.0.0.1", "/in.php/info"), 200);
    }
    assert_eq!(origin.count(), 2, "they are stored");
    for path in [
        "/in.php",
        "/in.php/info",
        "/in.php?x",
        "//in.php",
        "/in%2ephp",
    ] {
        assert_eq!(site.from("127.0.0.2", path), 403, "{path}");
    }
    assert_eq!(site.from("127.0.0.2", "/in.phpx"), 200);
    assert_eq!(origin.count(), 3);
}

#[test]
fn each_client_may_ask_so_often() {
    let site = Site::of("[[site.rule]]\npattern = \"/a.txt\"\nrate = \"2/h\"\n");
    assert_eq!(
        site.from("127.0.0.1", "/a.txt"),
        200,
        "a burst of one, as for a second"
    );
    let refused = site.get("/a.txt", "");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.field("cache-control"), Some("no-store"));
    let wait: u64 = refused
        .field("retry-after")
        .expect("it says when")
        .parse()
        .expect("seconds");
    assert!((1..=1800).contains(&wait), "{wait}");
    assert_eq!(site.from("127.0.0.2", "/a.txt"), 200);
    assert_eq!(site.from("127.0.0.2", "/a.txt"), 429);
    assert_eq!(site.get("/index.html", "").status, 200);
    let told = site.explain("/a.txt", &[]);
    assert!(
        told.contains("200") && told.contains("/a.txt: rate 2/h, burst 1"),
        "{told}"
    );
    let status = site.say(&["status"], &[]);
    assert!(
        status.contains("/a.txt: rate 2/h, burst 1; 2 refused, 0 forgotten"),
        "{status}"
    );
    assert!(site.count("requests") >= 5);
}

#[test]
fn a_burst_may_come() {
    let site = Site::of("[[site.rule]]\nrate = \"1/h\"\nburst = 3\n");
    let statuses: Vec<u16> = (0..5).map(|_| site.get("/", "").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
}

#[test]
fn the_client_is_whom_a_trusted_proxy_names() {
    let origin = Origin::saying(|asked| {
        let seen = asked.field("x-forwarded-for").unwrap_or_default();
        let len = seen.len();
        format!("HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: {len}\r\n\r\n{seen}")
    });
    let site = Site::of(&format!(
        "trusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\"]\n\
         [[site.rule]]\npattern = \"/a.txt\"\naddresses = \"192.0.2.0/24\"\ndeny = 403\n\
         [[site.route]]\npattern = \"/app\"\norigin = \"{}\"\n",
        origin.url()
    ));
    let named = |name: &str| format!("X-Forwarded-For: {name}\r\n");
    assert_eq!(site.get("/a.txt", "").status, 200);
    assert_eq!(site.get("/a.txt", &named("192.0.2.1")).status, 403);
    assert_eq!(
        site.get("/a.txt", &named("192.0.2.1, 198.51.100.1")).status,
        200
    );
    assert_eq!(
        site.get("/a.txt", &named("198.51.100.1, 192.0.2.1, 10.0.0.7"))
            .status,
        403
    );
    // Programs and the log are told the same.
    assert_eq!(site.get("/app", &named("192.0.2.77")).text(), "192.0.2.77");
    let told = site.explain("/a.txt", &["X-Forwarded-For: 192.0.2.1"]);
    assert!(told.contains("client                 192.0.2.1"), "{told}");
    assert!(told.contains("403"), "{told}");
    // Nobody else is believed.
    let mut other = Client::connect_from("127.0.0.2".parse().expect("one"), site.server.address());
    assert_eq!(other.get("/app", &named("192.0.2.9")).text(), "127.0.0.2");
    let log = lowroad_testkit::wait_until("the log", || {
        let log = std::fs::read_to_string(site.folder.path().join("access.log")).ok()?;
        log.contains("127.0.0.2 ").then_some(log)
    });
    assert!(
        log.contains("192.0.2.77 - - ") && log.contains("\"GET /app "),
        "{log}"
    );
    assert!(!log.contains("192.0.2.9 "), "{log}");
}

#[test]
fn forwarded_that_can_be_read_in_two_ways_is_refused() {
    let site = Site::of("trusted_proxies = \"127.0.0.1\"\nclient_field = \"Forwarded\"\n");
    assert_eq!(site.get("/", "Forwarded: for=192.0.2.1\r\n").status, 200);
    assert_eq!(
        site.get("/", "Forwarded: for=\"x, for=192.0.2.1\r\n")
            .status,
        400
    );
    assert_eq!(site.get("/", "X-Forwarded-For: \"\r\n").status, 200);
}

//! A site's access rules over real sockets: denied paths, addresses and methods, rate limits, and client addresses
//! behind proxies.

use std::net::IpAddr;
use std::process::Command;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{ClientResponse, TempFolder, TestClient, TestServer};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// A server with one site of files, and with these lines in its configuration.
struct Site {
    folder: TempFolder,
    server: TestServer,
}

impl Site {
    fn of(lines: &str) -> Site {
        Site::after(TempFolder::new(), lines)
    }

    /// Starts a server for a folder with existing contents.
    fn after(folder: TempFolder, lines: &str) -> Site {
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
        let server = TestServer::run(PROGRAM, &folder, &config);
        Site { folder, server }
    }

    fn get(&self, path: &str, fields: &str) -> ClientResponse {
        self.server.connect().get(path, fields)
    }

    fn from(&self, address: &str, path: &str) -> u16 {
        let address: IpAddr = address.parse().expect("an address");
        let mut client = TestClient::connect_from(address, self.server.address());
        client.get(path, "").status
    }

    /// The status for this request line and fields. A response to HEAD has no body.
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
        StatusClient::new(PROGRAM, self.folder.path().join("admin.sock")).value(name)
    }
}

#[test]
fn denied_path_is_denied_in_every_spelling() {
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
    // Ambiguous paths are refused earlier.
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
    // Conditional and range requests must not reveal anything either.
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
fn deny_rule_applies_to_stored_responses() {
    let site =
        Site::of("[[site.rule]]\npattern = \"/a.txt\"\nexcept = \"127.0.0.1\"\ndeny = 403\n");
    for _ in 0..2 {
        assert_eq!(site.from("127.0.0.1", "/a.txt"), 200);
        assert_eq!(site.from("127.0.0.2", "/a.txt"), 403);
    }
    assert_eq!(site.from("127.0.0.2", "/index.html"), 200);
}

#[test]
fn first_matching_allow_or_deny_rule_applies() {
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
    // An allow rule applies to its own path only.
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
fn address_rules_keep_their_order_among_other_rules() {
    let deny = |path: &str, addresses: &str, status: u16| {
        let addresses = match addresses {
            "" => String::new(),
            some => format!("addresses = {some}\n"),
        };
        format!("[[site.rule]]\npattern = \"/{path}\"\n{addresses}deny = {status}\n")
    };
    let nested = "[\"127.0.0.0/8\", \"127.0.0.2\"]";
    let limit = "[[site.rule]]\npattern = \"/index.html\"\nrate = \"1/h\"\nburst = 2\n";
    let site = Site::of(
        &[
            deny("admin/**", "\"127.0.0.2\"", 404),
            deny("admin/**", "", 403),
            deny("a.txt", "\"127.0.0.0/8\"", 403),
            deny("a.txt", "\"127.0.0.2\"", 404),
            limit.replace("rate", &format!("addresses = {nested}\nrate")),
        ]
        .concat(),
    );
    for (from, path, status) in [
        ("127.0.0.1", "/admin/", 403),
        ("127.0.0.2", "/admin/", 404),
        ("127.0.0.2", "/a.txt", 403),
        // Two prefixes of the limit contain this address, but each request counts only once.
        ("127.0.0.2", "/index.html", 200),
        ("127.0.0.2", "/index.html", 200),
        ("127.0.0.2", "/index.html", 429),
    ] {
        assert_eq!(site.from(from, path), status, "{from} {path}");
    }
}

#[test]
fn method_rule_for_get_applies_to_head() {
    let site = Site::of("[[site.rule]]\npattern = \"/a.txt\"\nmethods = \"GET\"\ndeny = 403\n");
    assert_eq!(site.ask("GET /a.txt", ""), 403);
    assert_eq!(site.ask("HEAD /a.txt", ""), 403);
    assert_eq!(site.ask("OPTIONS /a.txt", ""), 204);
    assert_eq!(site.ask("POST /a.txt", ""), 405);
}

#[test]
fn deny_rule_applies_to_origins_and_their_stored_responses() {
    let origin = TestOrigin::with_response(|_| {
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
fn rate_limit_applies_to_each_client() {
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
fn rate_limit_allows_a_burst() {
    let site = Site::of("[[site.rule]]\nrate = \"1/h\"\nburst = 3\n");
    let statuses: Vec<u16> = (0..5).map(|_| site.get("/", "").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
}

#[test]
fn client_address_is_taken_from_a_trusted_proxy() {
    let origin = TestOrigin::with_response(|asked| {
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
    // Programs and the log get the same address.
    assert_eq!(site.get("/app", &named("192.0.2.77")).text(), "192.0.2.77");
    let told = site.explain("/a.txt", &["X-Forwarded-For: 192.0.2.1"]);
    assert!(told.contains("client                 192.0.2.1"), "{told}");
    assert!(told.contains("403"), "{told}");
    // Fields of untrusted clients are ignored.
    let mut other =
        TestClient::connect_from("127.0.0.2".parse().expect("one"), site.server.address());
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
fn ambiguous_forwarded_field_is_refused() {
    let site = Site::of("trusted_proxies = \"127.0.0.1\"\nclient_field = \"Forwarded\"\n");
    assert_eq!(site.get("/", "Forwarded: for=192.0.2.1\r\n").status, 200);
    assert_eq!(
        site.get("/", "Forwarded: for=\"x, for=192.0.2.1\r\n")
            .status,
        400
    );
    assert_eq!(site.get("/", "X-Forwarded-For: \"\r\n").status, 200);
}

/// A user file with cheap hashes: `ann` with bcrypt, `bob` with argon2.
fn users(folder: &TempFolder) {
    use argon2::password_hash::SaltString;
    use argon2::{Algorithm, Argon2, Params, PasswordHasher, Version};
    let ann = bcrypt::hash("secret of ann", 4).expect("a hash");
    let salt = SaltString::from_b64("c2FsdHNhbHQ").expect("a salt");
    let params = Params::new(64, 1, 1, None).expect("settings");
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let bob = argon2.hash_password(b"secret of bob", &salt);
    let bob = bob.expect("a hash").to_string();
    folder.file("users", format!("ann:{ann}\nbob:{bob}\n"));
}

fn basic(user: &str, password: &str) -> String {
    use base64::Engine;
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    format!("Authorization: Basic {pair}\r\n")
}

const AUTH: &str =
    "[[site.rule]]\npattern = \"/admin/**\"\nauth = \"users\"\nrealm = \"the staff\"\n";

fn with_users(lines: &str) -> Site {
    let folder = TempFolder::new();
    users(&folder);
    Site::after(folder, lines)
}

/// If a rule allows one form of a path, that form stays allowed if a password rule exists too.
#[test]
fn allow_rule_applies_together_with_password_rule() {
    let site = with_users(
        "[[site.rule]]\npattern = \"/api/*/public\"\nallow = true\n\
         [[site.rule]]\nauth = \"users\"\n\
         [[site.rule]]\npattern = \"/api/*/public\"\ndeny = 404\n\
         [[site.redirect]]\nfrom = \"/api/**\"\nto = \"https://a.example/\"\n",
    );
    let ann = basic("ann", "secret of ann");
    assert_eq!(site.get("/api/a/public", "").status, 301);
    // The decoded form of this path is /api/a/b/public, which only the password rule matches.
    let path = "/api/a%2Fb/public";
    assert_eq!(site.get(path, "").status, 401);
    assert_eq!(site.get(path, &ann).status, 301);
    assert_eq!(site.get("/api/a/b/public", &ann).status, 301);
}

#[test]
fn basic_authentication_is_required_and_verified() {
    let site = with_users(AUTH);
    let path = "/admin/a%20b.txt";
    let refused = site.get(path, "");
    assert_eq!(refused.status, 401);
    assert_eq!(
        refused.field("www-authenticate"),
        Some("Basic realm=\"the staff\", charset=\"UTF-8\"")
    );
    assert_eq!(refused.field("cache-control"), Some("no-store"));
    let (ann, bob) = (basic("ann", "secret of ann"), basic("bob", "secret of bob"));
    for fields in [&ann, &bob, &ann] {
        let got = site.get(path, fields);
        assert_eq!((got.status, got.text()), (200, "admin/a b.txt".repeat(100)));
    }
    // The response is stored by now; requests without valid credentials still do not get it.
    for fields in [
        "".to_string(),
        basic("ann", "secret of bob"),
        basic("ann", ""),
        basic("eve", "secret of ann"),
        basic("", ""),
        format!("{ann}{ann}"),
        ann.replace("Basic", "Bearer"),
    ] {
        assert_eq!(site.get(path, &fields).status, 401, "{fields}");
    }
    for line in [
        "HEAD /admin",
        "GET //admin/",
        "POST /admin/index.html",
        "OPTIONS /admin/x",
    ] {
        assert_eq!(site.ask(line, ""), 401, "{line}");
    }
    assert_eq!(site.ask("HEAD /admin/", &bob), 200);
    assert_eq!(site.get("/a.txt", "").status, 200);
    let url = format!("http://{}/admin/", site.server.address());
    assert!(site.say(&["explain", &url], &[]).contains("401"));
    let told = site.say(&["explain", &url, "-H", ann.trim()], &[]);
    assert!(
        told.contains("200") && told.contains("/admin/**: auth "),
        "{told}"
    );
}

#[test]
fn programs_get_the_authenticated_user() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempFolder::new();
    users(&folder);
    let script = folder.file(
        "cgi/who",
        concat!(
            "#!/bin/sh\nwho=\"$AUTH_TYPE $REMOTE_USER\"\n",
            "printf 'Content-Type: text/plain\\nContent-Length: %s\\n\\n%s' ${#who} \"$who\"\n"
        ),
    );
    std::fs::set_permissions(script, PermissionsExt::from_mode(0o755)).expect("a mode");
    let site = Site::after(
        folder,
        "[[site.rule]]\npattern = \"/cgi/who/in\"\nauth = \"users\"\n\
         [[site.rule]]\npattern = \"/only/**\"\nfallback = \"/cgi/who/in\"\n\
         [[site.route]]\npattern = \"/cgi/**\"\ncgi = \"cgi\"\n",
    );
    let ann = basic("ann", "secret of ann");
    // The second request uses the remembered verification.
    for _ in 0..2 {
        assert_eq!(site.get("/cgi/who/in", &ann).text(), "Basic ann");
    }
    // For paths without a password rule, programs get no authenticated user.
    for path in ["/cgi/who", "/cgi/who/out", "/only/x"] {
        assert_eq!(site.get(path, &basic("ann", "no")).text(), " ", "{path}");
    }
}

#[test]
fn pipelined_requests_wait_for_password_verification_in_order() {
    let site = with_users(AUTH);
    let mut client = site.server.connect();
    let (right, wrong) = (basic("ann", "secret of ann"), basic("ann", "no"));
    for fields in [&right, &wrong, "", &right] {
        client.send(format!("GET /admin/ HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    }
    let statuses: Vec<u16> = (0..4).map(|_| client.response().status).collect();
    assert_eq!(statuses, [200, 401, 401, 200]);
}

#[test]
fn request_body_waits_for_password_verification() {
    let origin = TestOrigin::with_response(|asked| {
        let body = String::from_utf8_lossy(&asked.body).into_owned();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    });
    let route = format!(
        "[[site.route]]\npattern = \"/admin/**\"\norigin = \"{}\"\n",
        origin.url()
    );
    let site = with_users(&format!("{AUTH}{route}"));
    let mut client = site.server.connect();
    let ann = basic("ann", "secret of ann");
    client.send(format!(
        "POST /admin/x HTTP/1.1\r\nHost: a\r\n{ann}Content-Length: 5\r\n\r\nhe"
    ));
    client.send("llo");
    let got = client.response();
    assert_eq!((got.status, got.text().as_str()), (200, "hello"));
    client.send("POST /admin/x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response().status, 401);
    assert_eq!(origin.count(), 1);
}

#[test]
fn password_guessing_is_throttled_for_each_client() {
    let site = with_users(AUTH);
    let ann = basic("ann", "secret of ann");
    let ask = |from: &str, fields: &str| {
        let from = from.parse().expect("an address");
        let mut client = TestClient::connect_from(from, site.server.address());
        client.get("/admin/", fields)
    };
    for number in 0..10 {
        let guess = basic("ann", &number.to_string());
        assert_eq!(ask("127.0.0.2", &guess).status, 401);
        // Correct passwords do not use up the limit.
        assert_eq!(ask("127.0.0.3", &ann).status, 200);
    }
    let refused = ask("127.0.0.2", &basic("ann", "more"));
    assert_eq!(refused.status, 429);
    assert!(refused.field("retry-after").is_some());
    assert_eq!(ask("127.0.0.3", &basic("ann", "more")).status, 401);
    assert!(site.say(&["status"], &[]).contains("11 wrong passwords"));
}

#[test]
fn removed_user_is_refused_and_malformed_user_file_is_ignored() {
    let site = with_users(AUTH);
    let (ann, bob) = (basic("ann", "secret of ann"), basic("bob", "secret of bob"));
    assert_eq!(site.get("/admin/", &ann).status, 200);
    assert_eq!(site.get("/admin/", &bob).status, 200);
    let file = site.folder.path().join("users");
    let all = std::fs::read_to_string(&file).expect("the users");
    site.folder.file("users", "ann:broken\n");
    lowroad_testkit::wait_until("the news", || {
        assert_eq!(site.get("/admin/", &ann).status, 200);
        let status = site.say(&["status"], &[]);
        status
            .contains("the file can't be used: line 1")
            .then_some(())
    });
    let only_bob = all
        .lines()
        .find(|line| line.starts_with("bob"))
        .expect("bob");
    site.folder.file("users", only_bob);
    lowroad_testkit::wait_until("ann to be gone", || {
        assert_eq!(site.get("/admin/", &bob).status, 200);
        (site.get("/admin/", &ann).status == 401).then_some(())
    });
}

#[test]
fn check_reports_an_unusable_user_file() {
    let folder = TempFolder::new();
    folder.file("c.toml", format!("[[site]]\nroot = \".\"\n{AUTH}"));
    let check = |users: &str| {
        folder.file("users", users);
        let check = Command::new(PROGRAM)
            .args(["check", "-c"])
            .arg(folder.path().join("c.toml"))
            .output()
            .expect("the command");
        let said = String::from_utf8_lossy(&check.stderr).into_owned();
        said + &String::from_utf8_lossy(&check.stdout)
    };
    // The traditional crypt(3), which takes the first 8 characters.
    let said = check("ann:rqXexS6ZhobKA\n");
    assert!(said.contains("line 1: not a hash of bcrypt"), "{said}");
    let said = check("ann:$apr1$lZL6V/ci$eIMz/iKDkbtys/uU7LEK00\n");
    assert!(said.contains("fast to try (ann: apr1)"), "{said}");
}

#[test]
fn fallback_serves_one_page_for_all_missing_paths() {
    let site = Site::of(
        "[[site.rule]]\npattern = \"/private/**\"\ndeny = 403\n\
         [[site.rule]]\npattern = \"/api/**\"\nfallback = \"/none.html\"\n\
         [[site.rule]]\nfallback = \"/index.html\"\n",
    );
    let page = "index.html".repeat(100);
    for path in ["/", "/users/7", "/users/7/", "/index.html", "/x.js"] {
        let got = site.get(path, "");
        assert_eq!((got.status, got.text()), (200, page.clone()), "{path}");
    }
    assert_eq!(site.get("/a.txt", "").text(), "a.txt".repeat(100));
    assert_eq!(site.get("/private/none", "").status, 403);
    // If the configured error page does not exist, the default one is used.
    assert_eq!(site.get("/api/x", "").status, 404);
    assert_eq!(site.ask("HEAD /users/7", ""), 200);
    assert_eq!(site.ask("POST /users/7", ""), 405);
    let etag = site.get("/users/7", "").field("etag").map(str::to_string);
    let known = format!("If-None-Match: {}\r\n", etag.expect("a tag"));
    assert_eq!(site.get("/users/8", &known).status, 304);
    let told = site.explain("/users/7", &[]);
    assert!(
        told.contains("200") && told.contains("/**: fallback /index.html"),
        "{told}"
    );
    // A change of the page applies to all paths.
    site.folder.file("root/index.html", "another");
    lowroad_testkit::wait_until("the change", || {
        (site.get("/users/7", "").text() == "another").then_some(())
    });
}

#[test]
fn fallback_may_be_answered_by_a_route() {
    let origin = TestOrigin::with_response(|asked| {
        let said = format!("{} {}", asked.target, String::from_utf8_lossy(&asked.body));
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{said}",
            said.len()
        )
    });
    let site = Site::of(&format!(
        "[[site.rule]]\nfallback = \"/front.php\"\n\
         [[site.route]]\npattern = \"*.php\"\norigin = \"{}\"\n",
        origin.url()
    ));
    assert_eq!(site.get("/a.txt", "").text(), "a.txt".repeat(100));
    assert_eq!(site.get("/blog/7?x", "").text(), "/blog/7?x ");
    let mut client = site.server.connect();
    client.send("POST /blog/7 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response().text(), "/blog/7 hello");
}

#[test]
fn route_setting_decides_which_responses_are_stored() {
    let origin = TestOrigin::with_response(|asked| {
        let control = asked.target.trim_start_matches('/').replace('+', ", ");
        format!("HTTP/1.1 200 OK\r\nCache-Control: {control}\r\nContent-Length: 2\r\n\r\nhi")
    });
    for (keep, path, asked) in [
        ("allowed", "/max-age=60", 1),
        ("shared", "/max-age=60", 2),
        ("shared", "/public+max-age=60", 1),
        ("shared", "/s-maxage=60", 1),
        ("never", "/public+max-age=60", 2),
    ] {
        let site = Site::of(&format!(
            "[[site.route]]\npattern = \"/**\"\norigin = \"{}\"\nkeep = \"{keep}\"\n",
            origin.url()
        ));
        let before = origin.count();
        for _ in 0..2 {
            assert_eq!(site.get(path, "").text(), "hi");
        }
        assert_eq!(origin.count() - before, asked, "{keep} {path}");
    }
}

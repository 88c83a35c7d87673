//! Selection of the site: by host name, by listener, and by a folder for each host.
//!
//! RFC 9110 §4.2.3 (spellings of one host), §7.4 (421), RFC 9112 §3.2 (Host and target).

use std::net::{IpAddr, SocketAddr};

use lowroad_testkit::{ClientResponse, TempFolder, TestClient, TestServer, skip, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// A folder for each site, with a file `who` that contains the site's name.
fn sites(names: &[&str]) -> TempFolder {
    let folder = TempFolder::new();
    for name in names {
        folder.file(format!("{name}/who"), name);
    }
    folder
}

/// A `[[site]]` table for the folder's subfolder `root` with further keys.
fn site(folder: &TempFolder, root: &str, keys: &str) -> String {
    let root = folder.path().join(root);
    format!("[[site]]\nroot = \"{}\"\n{keys}\n", root.display())
}

const ANY_PORT: &str = "listen = \"127.0.0.1:0\"";

fn ask(client: &mut TestClient, host: &str, path: &str) -> ClientResponse {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.response()
}

/// The content of the file `who` for a host, or the status.
fn who(client: &mut TestClient, host: &str) -> String {
    let got = ask(client, host, "/who");
    match got.status {
        200 => got.text(),
        status => status.to_string(),
    }
}

fn named_sites(folder: &TempFolder, default: bool) -> String {
    let mut config = String::new();
    for (root, names) in [
        (
            "exact",
            "\"example.com\", \"www.Example.com.\", \"192.0.2.1\", \"[2001:db8::1]\"",
        ),
        ("wildcard", "\"*.example.com\""),
        ("deeper", "\"*.deep.example.com\""),
        ("idna", "\"xn--bcher-kva.example\""),
    ] {
        config += &site(folder, root, &format!("names = [{names}]\n{ANY_PORT}"));
    }
    if default {
        config += &site(folder, "default", ANY_PORT);
    }
    config
}

#[test]
fn host_selects_exact_then_wildcard_then_default_site() {
    let folder = sites(&["exact", "wildcard", "deeper", "idna", "default"]);
    let server = TestServer::run(PROGRAM, &folder, &named_sites(&folder, true));
    let port = server.address().port();
    let mut client = server.connect();
    for (host, site) in [
        ("example.com", "exact"),
        ("EXAMPLE.Com", "exact"),
        ("example.com.", "exact"),
        ("example.com:80", "exact"),
        ("Example.COM.:8080", "exact"),
        ("example.com:", "exact"),
        ("www.example.com", "exact"),
        ("192.0.2.1", "exact"),
        ("192.0.2.1:99", "exact"),
        ("[2001:db8::1]", "exact"),
        ("[2001:DB8::1]:80", "exact"),
        ("a.example.com", "wildcard"),
        ("A.b.Example.com.", "wildcard"),
        ("deep.example.com", "wildcard"),
        ("a.deep.example.com:1", "deeper"),
        ("a.b.deep.example.com", "deeper"),
        ("XN--BCHER-KVA.example", "idna"),
        ("badexample.com", "default"),
        ("example.com.org", "default"),
        ("com", "default"),
        ("192.0.2.10", "default"),
        (&format!("127.0.0.1:{port}"), "default"),
    ] {
        assert_eq!(who(&mut client, host), site, "{host:?}");
    }
}

#[test]
fn http_1_0_without_host_gets_the_default_site() {
    let folder = sites(&["exact", "wildcard", "deeper", "idna", "default"]);
    let server = TestServer::run(PROGRAM, &folder, &named_sites(&folder, true));
    let mut client = server.connect();
    client.send("GET /who HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().text(), "default");
}

#[test]
fn unknown_host_gets_421_without_a_default_site() {
    let folder = sites(&["exact", "wildcard", "deeper", "idna"]);
    let server = TestServer::run(PROGRAM, &folder, &named_sites(&folder, false));
    let mut client = server.connect();
    for host in ["other.example", "127.0.0.1", "com"] {
        let got = ask(&mut client, host, "/who");
        assert_eq!(got.status, 421, "{host:?}");
        assert!(got.text().contains("421 Misdirected Request"), "{host:?}");
        // The connection still works for the server's own names.
        assert_eq!(who(&mut client, "example.com"), "exact");
    }
    client.send("GET /who HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().status, 421);
}

#[test]
fn absolute_target_overrides_the_host_field() {
    let folder = sites(&["exact", "wildcard", "deeper", "idna", "default"]);
    let server = TestServer::run(PROGRAM, &folder, &named_sites(&folder, true));
    let mut client = server.connect();
    for (target, host, site) in [
        ("http://example.com/who", "example.com", "exact"),
        ("http://a.example.com/who", "other.example", "wildcard"),
        ("HTTP://Example.com.:80/who?q", "a.example.com", "exact"),
    ] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.response().text(), site, "{target} {host}");
    }
}

/// The first address of the server with this ip.
fn address(server: &TestServer, ip: &str) -> SocketAddr {
    let ip: IpAddr = ip.parse().expect("an ip");
    let mut addresses = server.addresses.iter();
    *addresses
        .find(|address| address.ip() == ip)
        .expect("listens there")
}

#[test]
fn site_names_are_per_listener() {
    let folder = sites(&["one", "two", "both", "first", "second"]);
    let listen = |text: &str| format!("listen = [{text}]");
    let (l1, l2) = ("\"127.0.0.1:0\"", "\"127.0.0.2:0\"");
    let config = [
        site(
            &folder,
            "one",
            &format!("names = \"a.example\"\n{}", listen(l1)),
        ),
        site(
            &folder,
            "two",
            &format!("names = \"a.example\"\n{}", listen(l2)),
        ),
        site(
            &folder,
            "both",
            &format!("names = \"b.example\"\n{}", listen(&format!("{l1}, {l2}"))),
        ),
        site(&folder, "first", &listen(l1)),
    ]
    .concat();
    let server = TestServer::run(PROGRAM, &folder, &config);
    let mut first = TestClient::connect(address(&server, "127.0.0.1"));
    let mut second = TestClient::connect(address(&server, "127.0.0.2"));
    for (host, at_first, at_second) in [
        ("a.example", "one", "two"),
        ("b.example", "both", "both"),
        ("c.example", "first", "421"),
    ] {
        assert_eq!(who(&mut first, host), at_first, "{host}");
        assert_eq!(who(&mut second, host), at_second, "{host}");
    }
}

#[test]
fn ipv6_listener_works() {
    let folder = sites(&["six"]);
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return skip("ipv6_listener_works", "there is no IPv6");
    }
    let server = TestServer::run(
        PROGRAM,
        &folder,
        &site(&folder, "six", "listen = \"[::1]:0\""),
    );
    let mut client = server.connect();
    assert!(server.address().is_ipv6());
    assert_eq!(who(&mut client, &server.address().to_string()), "six");
}

#[test]
fn stored_responses_are_not_shared_between_sites() {
    let folder = sites(&["one", "two"]);
    folder.file("one/only", "of one");
    let config = site(
        &folder,
        "one",
        &format!("names = \"one.example\"\n{ANY_PORT}"),
    ) + &site(
        &folder,
        "two",
        &format!("names = \"two.example\"\n{ANY_PORT}"),
    );
    let server = TestServer::run(PROGRAM, &folder, &config);
    let mut client = server.connect();
    for _ in 0..2 {
        assert_eq!(who(&mut client, "one.example"), "one");
        assert_eq!(who(&mut client, "two.example"), "two");
        assert_eq!(ask(&mut client, "one.example", "/only").status, 200);
        assert_eq!(ask(&mut client, "two.example", "/only").status, 404);
    }
}

#[test]
fn host_placeholder_selects_a_folder() {
    let folder = TempFolder::new();
    for host in [
        "a.example",
        "b.example",
        "xn--bcher-kva.example",
        "127.0.0.1",
    ] {
        folder.file(format!("srv/{host}/htdocs/who"), host);
        folder.file(
            format!("srv/{host}/htdocs/index.html"),
            format!("home of {host}"),
        );
        folder.file(format!("srv/{host}/private"), "x");
    }
    folder.file("srv/file.example", "not a folder");
    folder.file("srv/bare.example/other", "x");
    folder.file("outside/htdocs/who", "outside");
    let link = folder.path().join("srv/link.example");
    std::os::unix::fs::symlink("../outside", link).expect("a link");
    let alias = folder.path().join("srv/alias.example");
    std::os::unix::fs::symlink("a.example", alias).expect("a link");
    let config = site(&folder, "srv/{host}/htdocs", ANY_PORT);
    let server = TestServer::run(PROGRAM, &folder, &config);
    let mut client = server.connect();
    for _ in 0..2 {
        for (host, answer) in [
            ("a.example", "a.example"),
            ("B.Example.:8080", "b.example"),
            ("XN--BCHER-KVA.example.", "xn--bcher-kva.example"),
            ("127.0.0.1:1", "127.0.0.1"),
            ("alias.example", "a.example"),
            ("missing.example", "404"),
            ("file.example", "404"),
            ("bare.example", "404"),
            // A symbolic link that leads out of the folder of all hosts.
            ("link.example", "403"),
        ] {
            assert_eq!(who(&mut client, host), answer, "{host}");
        }
    }
    assert_eq!(
        ask(&mut client, "a.example", "/").text(),
        "home of a.example"
    );
    assert_eq!(ask(&mut client, "a.example", "/private").status, 404);
    assert_eq!(ask(&mut client, "a.example", "/../private").status, 400);
    for host in [
        "..",
        ".",
        "a.example/..",
        "a..example",
        "%2e%2e",
        "a.example\0",
    ] {
        let mut client = server.connect();
        assert_eq!(ask(&mut client, host, "/who").status, 400, "{host:?}");
    }
}

#[test]
fn new_host_folder_is_served_without_reload() {
    let folder = TempFolder::new();
    folder.file("srv/a.example/who", "a");
    let config = site(&folder, "srv/{host}", ANY_PORT);
    let server = TestServer::run(PROGRAM, &folder, &config);
    let mut client = server.connect();
    assert_eq!(who(&mut client, "new.example"), "404");
    folder.file("srv/new.example/who", "new");
    wait_until("the new host", || {
        (who(&mut client, "new.example") == "new").then_some(())
    });
    std::fs::remove_dir_all(folder.path().join("srv/new.example")).expect("a folder");
    wait_until("the host's end", || {
        (who(&mut client, "new.example") == "404").then_some(())
    });
}

//! With the level, a client gets the same responses as without it. Restricted pages stay restricted, and clients that
//! the packet filter of the machine rejects are not answered.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, SystemTime};

use lowroad_softirq::layout::SETTING_ADMIT;
use lowroad_softirq::level::publisher;
use lowroad_softirq::now_ns;
use lowroad_testkit::net::{
    CLIENT, DEVICE, LinkMangling, NetNamespace, SERVER, TestPath, TestSite, WebServer,
};
use lowroad_testkit::{ClientResponse, TestClient, wait_until};
use socket2::{Domain, Socket, Type};

use crate::attached::{Attached, get, send_request, server_v4, servers};
use crate::skipped;

const MODULES: &str = "/usr/lib/apache2/modules";
/// Another address of the client.
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 77);

fn path() -> TestPath {
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let other = format!("{OTHER}/24");
    let add = ["address", "add", &other, "dev", DEVICE];
    path.client.run("ip", &add).expect("an address");
    path
}

/// Connects to the server from this address; fails after a timeout.
fn connect(path: &TestPath, from: Ipv4Addr) -> Result<TestClient, ErrorKind> {
    connect_to(path, from, server_v4(80))
}

fn connect_to(path: &TestPath, from: Ipv4Addr, to: SocketAddr) -> Result<TestClient, ErrorKind> {
    let socket = path.client.enter(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let from = SocketAddr::new(from.into(), 0);
        socket.bind(&from.into()).expect("an address of the client");
        let connected = socket.connect_timeout(&to.into(), Duration::from_secs(2));
        connected.map(|()| socket)
    });
    let socket = socket.map_err(|error| error.kind())?;
    Ok(TestClient::new(TcpStream::from(socket)))
}

fn asked(path: &TestPath, from: Ipv4Addr, page: &str) -> ClientResponse {
    connect(path, from).expect("a connection").get(page, "")
}

/// Repeats a request on new connections until the level answers.
fn until_hit(path: &TestPath, attached: &Attached, from: Ipv4Addr, page: &str) -> ClientResponse {
    let hits = attached.count("answer_hit");
    wait_until("a hit", || {
        let response = asked(path, from, page);
        (attached.count("answer_hit") > hits).then_some(response)
    })
}

fn assert_says(attached: &Attached, text: &str) {
    wait_until(text, || attached.output().contains(text).then_some(()));
}

/// Requests each page often enough to be stored; hits of the page `open` show when.
fn all_get(path: &TestPath, attached: &Attached, wanted: &[(&str, u16)], open: &str) {
    let ask = |page: &str| {
        path.client
            .enter(|| send_request(server_v4(80), &get(page)))
            .status
    };
    for _ in 0..10 {
        for (page, status) in wanted {
            assert_eq!(ask(page), *status, "{page}");
        }
    }
    for address in servers(80) {
        attached.warm(&path.client, address, &get(open));
    }
    let hits = attached.count("answer_hit");
    for (page, status) in wanted {
        assert_eq!(ask(page), *status, "{page}");
    }
    assert_eq!(attached.count("answer_hit"), hits);
    assert_eq!(publisher::published(&attached.level).len(), 2);
}

#[test]
fn restricted_pages_stay_restricted_with_apache() {
    if skipped("restricted_pages_stay_restricted_with_apache", &["apache2"]) {
        return;
    }
    let path = path();
    let site = TestSite::new(901, &[100, 200, 300]);
    let network = format!("{}/24", CLIENT.0);
    let directives = format!(
        "LoadModule authz_host_module {MODULES}/mod_authz_host.so
LoadModule status_module {MODULES}/mod_status.so
<Location /server-status>
  SetHandler server-status
  Require local
</Location>
<Location /1-200.bin>
  Require local
</Location>
<Location /2-300.bin>
  Require ip {network}
</Location>
"
    );
    let _apache = WebServer::apache(&path.server, &site, 80, &directives).expect("Apache");
    let attached = Attached::start(&path.server, 80, &["--ttl", "60"]);
    let wanted = [
        ("/server-status", 403),
        ("/1-200.bin", 403),
        ("/2-300.bin", 200),
    ];
    all_get(&path, &attached, &wanted, "/0-100.bin");
    let status = format!("http://{}/server-status has status 200", server_v4(80));
    assert_says(&attached, &status);
    assert_says(&attached, "http://test/1-200.bin is left to the server");
    let explained = path.server.run(
        env!("CARGO_BIN_EXE_lowroad"),
        &[
            "explain",
            "http://test/2-300.bin",
            "--netns",
            &path.server.path(),
        ],
    );
    let text = explained.expect("an explanation");
    assert!(
        text.contains("status 200 to this machine and 403"),
        "{text}"
    );
}

#[test]
fn restricted_pages_stay_restricted_with_nginx() {
    if skipped("restricted_pages_stay_restricted_with_nginx", &["nginx"]) {
        return;
    }
    let path = path();
    let site = TestSite::new(902, &[100, 200, 300, 400]);
    let fresh = "add_header Cache-Control max-age=60 always;";
    let directives = format!(
        "{fresh}
location = /1-200.bin {{ allow {}; deny all; {fresh} }}
location = /2-300.bin {{ allow {}; deny all; {fresh} }}
location = /3-400.bin {{ deny all; {fresh} }}
location = /metrics {{ {fresh} return 200 'numbers'; }}
",
        SERVER.0, CLIENT.0
    );
    let _nginx = WebServer::nginx(&path.server, &site, 80, &directives).expect("nginx");
    let attached = Attached::start(&path.server, 80, &[]);
    let wanted = [
        ("/1-200.bin", 403),
        ("/2-300.bin", 200),
        ("/3-400.bin", 403),
        ("/metrics", 200),
    ];
    all_get(&path, &attached, &wanted, "/0-100.bin");
    assert_says(&attached, "http://test/1-200.bin is left to the server");
}

#[test]
fn filtered_clients_are_not_answered() {
    if skipped("filtered_clients_are_not_answered", &["nginx", "nft"]) {
        return;
    }
    let path = path();
    let site = TestSite::new(903, &[100]);
    let page = "/0-100.bin";
    let directives = "add_header Cache-Control max-age=60;";
    let _nginx = WebServer::nginx(&path.server, &site, 80, directives).expect("nginx");
    let drop = |from: IpAddr| {
        let rule = format!("add rule inet f input ip saddr {from} tcp dport 80 drop");
        path.server.run("nft", &[&rule]).expect("a rule");
    };
    let chain = "add table inet f; add chain inet f input { type filter hook input priority 0; }";
    path.server.run("nft", &[chain]).expect("a chain");
    drop(CLIENT.0.into());
    let attached = Attached::start(&path.server, 80, &[]);
    assert_says(&attached, "this machine filters its input");
    assert!(connect(&path, CLIENT.0).is_err());
    assert!(publisher::published(&attached.level).is_empty());
    let response = until_hit(&path, &attached, OTHER, page);
    assert_eq!(response.body.len(), 100);
    assert!(attached.count("tcp_admitted") > 0);
    // Stored responses must not admit a client that the filter rejects.
    let hits = attached.count("answer_hit");
    assert!(connect(&path, CLIENT.0).is_err());
    assert_eq!(attached.count("answer_hit"), hits);
    // If the filter begins to reject a client, its open connection is not answered either.
    let mut live = wait_until("a connection of the level", || {
        let hits = attached.count("answer_hit");
        let mut client = connect(&path, OTHER).expect("a connection");
        client.get(page, "");
        (attached.count("answer_hit") > hits).then_some(client)
    });
    let rules_ns = attached.level.control().rules_ns;
    drop(OTHER.into());
    wait_until("the daemon", || {
        (attached.level.control().rules_ns > rules_ns).then_some(())
    });
    let hits = attached.count("answer_hit");
    live.send(get(page));
    wait_until("the request", || {
        (attached.count("up_unadmitted") > 0).then_some(())
    });
    assert!(connect(&path, OTHER).is_err());
    assert_eq!(attached.count("answer_hit"), hits);
    // Without filter rules, all clients are answered immediately.
    path.server
        .run("nft", &["delete table inet f"])
        .expect("a table");
    wait_until("the daemon", || {
        let settings = attached.level.control().settings;
        (settings & SETTING_ADMIT == 0).then_some(())
    });
    until_hit(&path, &attached, CLIENT.0, page);
}

/// A client is admitted separately at each address and port: rules may reject it only at some of them.
#[test]
fn admission_is_separate_for_addresses_and_ports() {
    let test = "admission_is_separate_for_addresses_and_ports";
    if skipped(test, &["nginx", "nft"]) {
        return;
    }
    let path = path();
    let site = TestSite::new(905, &[100]);
    let page = "/0-100.bin";
    let second = Ipv4Addr::new(10, 77, 0, 78);
    let text = format!("{second}/24");
    let add = ["address", "add", &text, "dev", DEVICE];
    path.server.run("ip", &add).expect("an address");
    let directives = "listen 81; add_header Cache-Control max-age=60;";
    let _nginx = WebServer::nginx(&path.server, &site, 80, directives).expect("nginx");
    let (client, server) = (CLIENT.0, SERVER.0);
    let rules = format!(
        "add table inet f; add chain inet f input {{ type filter hook input priority 0; }}; \
         add rule inet f input ip saddr {client} ip daddr {second} drop; \
         add rule inet f input ip saddr {client} tcp dport 81 drop"
    );
    path.server.run("nft", &[&rules]).expect("rules");
    let attached = Attached::start(&path.server, 80, &["81"]);
    assert_says(&attached, "this machine filters its input");
    let kept_from = [(second, 80), (server, 81)].map(SocketAddr::from);
    let hit = |from: Ipv4Addr, to: SocketAddr| {
        wait_until("a hit", || {
            let hits = attached.count("answer_hit");
            let mut client = connect_to(&path, from, to).expect("a connection");
            assert_eq!(client.get(page, "").body.len(), 100);
            (attached.count("answer_hit") > hits).then_some(())
        });
    };
    for to in kept_from {
        hit(OTHER, to);
    }
    hit(client, server_v4(80));
    for to in kept_from {
        assert!(connect_to(&path, client, to).is_err(), "{to}");
        hit(OTHER, to);
    }
}

#[test]
fn only_clients_of_allow_prefixes_are_answered() {
    if skipped("only_clients_of_allow_prefixes_are_answered", &["nginx"]) {
        return;
    }
    let path = path();
    let site = TestSite::new(904, &[100]);
    let page = "/0-100.bin";
    let _nginx = WebServer::nginx(&path.server, &site, 80, "").expect("nginx");
    let other = OTHER.to_string();
    let options = [
        "--ttl",
        "60",
        "--allow",
        "10.77.0.64/26",
        "--allow",
        "fd77::/64",
    ];
    let attached = Attached::start(&path.server, 80, &options);
    until_hit(&path, &attached, OTHER, page);
    let hits = attached.count("answer_hit");
    for _ in 0..5 {
        assert_eq!(asked(&path, CLIENT.0, page).status, 200);
    }
    assert_eq!(attached.count("answer_hit"), hits);
    assert!(attached.count("pass_denied") >= 5);
    attached.warm(&path.client, servers(80)[1], &get(page));
    drop(attached);
    let options = ["--ttl", "60", "--allow", "10.77.0.64/26", "--deny", &other];
    let attached = Attached::start(&path.server, 80, &options);
    for _ in 0..5 {
        assert_eq!(asked(&path, OTHER, page).status, 200);
    }
    assert_eq!(attached.count("answer_hit"), 0);
    let bad = path.server.run(
        env!("CARGO_BIN_EXE_lowroad"),
        &["attach", "81", "--allow", "10.0.0.0/33"],
    );
    assert!(bad.is_err());
}

#[test]
fn changed_old_file_is_sent_soon() {
    if skipped("changed_old_file_is_sent_soon", &["nginx"]) {
        return;
    }
    let path = path();
    let site = TestSite::new(905, &[100]);
    let days_ago = |days: u64| SystemTime::now() - Duration::from_secs(days * 86_400);
    site.folder()
        .file_modified_at("root/page", "old", days_ago(20));
    let _nginx = WebServer::nginx(&path.server, &site, 80, "").expect("nginx");
    let attached = Attached::start(&path.server, 80, &[]);
    let response = attached.warm(&path.client, server_v4(80), &get("/page"));
    assert_eq!(response.text(), "old");
    let published = publisher::published(&attached.level);
    let latest_ns = now_ns() + 5_000_000_000;
    assert!(published.iter().all(|one| one.expires_ns <= latest_ns));
    site.folder()
        .file_modified_at("root/page", "new", days_ago(10));
    wait_until("the edit", || {
        let hits = attached.count("answer_hit");
        let response = path
            .client
            .enter(|| send_request(server_v4(80), &get("/page")));
        (response.text() == "new" && attached.count("answer_hit") > hits).then_some(())
    });
}

#[test]
fn too_long_first_page_is_reported_at_start() {
    if skipped("too_long_first_page_is_reported_at_start", &["nginx"]) {
        return;
    }
    let path = path();
    let site = TestSite::new(906, &[100, 5000]);
    site.folder().file("root/index.html", [b'x'; 10_701]);
    let directives = "add_header Cache-Control max-age=60;";
    let _nginx = WebServer::nginx(&path.server, &site, 80, directives).expect("nginx");
    let attached = Attached::start(&path.server, 80, &[]);
    assert_says(
        &attached,
        &format!(
            "http://{}/ is not answered on the fast path while its response stays the same: the response has 10",
            server_v4(80)
        ),
    );
    // A page that is restricted and requested later is reported at its first request.
    wait_until("the daemon's word", || {
        path.client
            .enter(|| send_request(server_v4(80), &get("/1-5000.bin")));
        let text = "http://test/1-5000.bin is left to the server: the response has 5";
        attached.output().contains(text).then_some(())
    });
    let said = attached.output().matches("1-5000.bin").count();
    assert_eq!(said, 1);
    // After detaching, no route to the probe address remains.
    let routes = |namespace: &NetNamespace| {
        let show = ["route", "show", "table", "local"];
        namespace.run("ip", &show).expect("routes")
    };
    assert!(routes(&path.server).contains("203.0.113.254"));
    let mut attached = attached;
    attached.detach(&[]);
    assert!(!routes(&path.server).contains("203.0.113.254"));
}

//! A server with several addresses: a request to one address, also from a local client, gets the response of that
//! address, independent of the responses stored for other addresses.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener};
use std::thread;

use lowroad_softirq::level::publisher;
use lowroad_testkit::net::{
    DEVICE, LinkMangling, NetNamespace, SERVER, TestPath, TestSite, WebServer,
};
use lowroad_testkit::{TestClient, wait_until};

use crate::attached::{Attached, get, send_request, server_v4};
use crate::skipped;

/// Additional addresses of the server's device.
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 99);
const SECOND_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 0x99);
const NEAR: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x99);
const NEAR_CLIENT: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x98);

/// A link to a server that has all these addresses.
fn path() -> TestPath {
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let add = |namespace: &NetNamespace, address: String| {
        let words = ["address", "add", &address, "dev", DEVICE];
        let nodad: &[&str] = if address.contains(':') {
            &["nodad"]
        } else {
            &[]
        };
        let words = [&words, nodad].concat();
        namespace.run("ip", &words).expect("an address");
    };
    add(&path.server, format!("{SECOND}/24"));
    add(&path.server, format!("{SECOND_V6}/64"));
    add(&path.server, format!("{NEAR}/64"));
    add(&path.client, format!("{NEAR_CLIENT}/64"));
    path
}

/// The start of an nginx `server` block for one address; more lines may follow.
fn block(address: &IpAddr) -> String {
    let listen = SocketAddr::new(*address, 80);
    format!(
        "}}\nserver {{ listen {listen};\n\
         location = /page {{ add_header Cache-Control max-age=60; return 200 'at {address}'; }}\n"
    )
}

/// Server blocks for each address without a zone, and one for all other addresses.
fn blocks() -> String {
    let any = "location = /page { add_header Cache-Control max-age=60; return 200 'anywhere'; }\n";
    let addresses: [IpAddr; 4] = [
        SERVER.0.into(),
        SECOND.into(),
        SERVER.1.into(),
        SECOND_V6.into(),
    ];
    let special: String = addresses.iter().map(block).collect();
    format!("{any}{special}")
}

/// The interface index of the device.
fn index(namespace: &NetNamespace) -> u32 {
    let link = namespace.run("ip", &["-o", "link", "show", DEVICE]);
    let link = link.expect("the device");
    let index = link.split(':').next().and_then(|index| index.parse().ok());
    index.expect("a number")
}

/// All addresses with the texts that they must return.
fn wanted(path: &TestPath) -> Vec<(SocketAddr, String)> {
    let near = SocketAddrV6::new(NEAR, 80, 0, index(&path.client));
    let plain = |address: IpAddr| (SocketAddr::new(address, 80), format!("at {address}"));
    vec![
        plain(SERVER.0.into()),
        plain(SECOND.into()),
        plain(SERVER.1.into()),
        plain(SECOND_V6.into()),
        (near.into(), "anywhere".into()),
    ]
}

/// Requests the page at all addresses and checks the texts.
fn assert_own_text_at_each_address(path: &TestPath, wanted: &[(SocketAddr, String)]) {
    let attached = Attached::start(&path.server, 80, &[]);
    for (address, text) in wanted {
        let response = attached.warm(&path.client, *address, &get("/page"));
        assert_eq!(response.text(), *text, "learnt at {address}");
    }
    // The connections alternate: a response remembered for one connection must not answer another one.
    let connect = |address: &SocketAddr| path.client.enter(|| TestClient::connect(*address));
    let mut clients: Vec<TestClient> = wanted.iter().map(|(address, _)| connect(address)).collect();
    let hits = attached.count("answer_hit");
    for _ in 0..10 {
        for (client, (address, text)) in clients.iter_mut().zip(wanted) {
            client.send(get("/page"));
            assert_eq!(client.response().text(), *text, "asked at {address}");
        }
    }
    let hits = attached.count("answer_hit") - hits;
    assert_eq!(hits, 50, "{:?}", attached.counts());
    let published = publisher::published(&attached.level);
    assert_eq!(published.len(), wanted.len(), "{published:?}");
}

#[test]
fn responses_are_separate_for_addresses_of_one_socket() {
    let test = "responses_are_separate_for_addresses_of_one_socket";
    if skipped(test, &["nginx"]) {
        return;
    }
    let path = path();
    let site = TestSite::new(801, &[100]);
    let _nginx = WebServer::nginx(&path.server, &site, 80, &blocks()).expect("nginx");
    assert_own_text_at_each_address(&path, &wanted(&path));
}

#[test]
fn responses_are_separate_for_servers_at_different_addresses() {
    let test = "responses_are_separate_for_servers_at_different_addresses";
    if skipped(test, &[]) {
        return;
    }
    let path = path();
    let mut wanted = wanted(&path);
    for (address, text) in &mut wanted {
        *text = format!("only at {}", address.ip());
        let mut own = *address;
        if let SocketAddr::V6(v6) = &mut own
            && v6.scope_id() != 0
        {
            v6.set_scope_id(index(&path.server));
        }
        let listener = path.server.enter(|| TcpListener::bind(own));
        says(listener.expect("a port"), text.clone());
    }
    // Other machines can't reach this address.
    let local = path.server.enter(|| TcpListener::bind("127.0.0.1:80"));
    says(local.expect("a port"), "only to this machine".into());
    assert_own_text_at_each_address(&path, &wanted);
}

/// Starts a server that answers all requests with this text.
fn says(listener: TcpListener, text: String) {
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let text = text.clone();
            thread::spawn(move || -> std::io::Result<()> {
                let mut lines = BufReader::new(&stream).lines();
                while let Some(line) = lines.next().transpose()? {
                    if line.is_empty() {
                        let len = text.len();
                        let fields = format!("Cache-Control: max-age=60\r\nContent-Length: {len}");
                        let answer = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{text}");
                        (&stream).write_all(answer.as_bytes())?;
                    }
                }
                Ok(())
            });
        }
    });
}

#[test]
fn purge_applies_to_all_addresses() {
    if skipped("purge_applies_to_all_addresses", &["nginx"]) {
        return;
    }
    let path = path();
    let site = TestSite::new(803, &[100]);
    let _nginx = WebServer::nginx(&path.server, &site, 80, &blocks()).expect("nginx");
    let attached = Attached::start(&path.server, 80, &[]);
    let wanted = wanted(&path);
    for (address, _) in &wanted {
        attached.warm(&path.client, *address, &get("/page"));
    }
    let lowroad = |words: &[&str]| {
        let netns = path.server.path();
        let words = [words, &["--netns", &netns]].concat();
        let said = path.server.run(env!("CARGO_BIN_EXE_lowroad"), &words);
        said.unwrap_or_else(|error| panic!("{error}"))
    };
    let text = lowroad(&["explain", "http://test/page"]);
    for (address, _) in &wanted {
        assert!(text.contains(&address.ip().to_string()), "{text}");
    }
    let text = lowroad(&["explain", &format!("http://{SECOND}/page")]);
    let asked = format!("asked                  the server at {SECOND}:80");
    assert!(text.contains(&asked), "{text}");
    assert_eq!(
        lowroad(&["purge", "http://test/page"]),
        "purged 5 responses\n"
    );
    assert!(publisher::published(&attached.level).is_empty());
}

#[test]
fn removed_address_is_not_fetched_from() {
    if skipped("removed_address_is_not_fetched_from", &["nginx"]) {
        return;
    }
    let path = path();
    let site = TestSite::new(804, &[100]);
    let _nginx = WebServer::nginx(&path.server, &site, 80, &blocks()).expect("nginx");
    let attached = Attached::start(&path.server, 80, &[]);
    let client = || {
        path.client
            .enter(|| TestClient::connect((SECOND, 80).into()))
    };
    // The level has accepted these two connections at an address that is then removed.
    let mut clients = [client(), client()];
    path.client.enter(|| {
        wait_until("both", || {
            (attached.level.connections().open >= 2).then_some(())
        })
    });
    let address = format!("{SECOND}/24");
    let delete = ["address", "del", &address, "dev", DEVICE];
    path.server.run("ip", &delete).expect("it was there");
    for client in &mut clients {
        client.send(get("/page"));
    }
    wait_until("the daemon's word", || {
        attached
            .output()
            .contains("is no longer an address of this machine")
            .then_some(())
    });
    assert!(publisher::published(&attached.level).is_empty());
    let response = attached.warm(&path.client, server_v4(80), &get("/page"));
    assert_eq!(response.text(), format!("at {}", SERVER.0));
}

#[test]
fn excluded_paths_are_left_to_the_server() {
    if skipped("excluded_paths_are_left_to_the_server", &["nginx"]) {
        return;
    }
    let path = path();
    let site = TestSite::new(805, &[100]);
    let location = |name: &str| {
        format!(
            "location = /{name} {{ add_header Cache-Control max-age=60; return 200 'this is {name}'; }}\n"
        )
    };
    let directives: String = ["server-status", "open"].map(location).concat();
    let _nginx = WebServer::nginx(&path.server, &site, 80, &directives).expect("nginx");
    let options = ["--exclude", "/server-status", "--exclude", "/intern/"];
    let attached = Attached::start(&path.server, 80, &options);
    let spellings = [
        "/server-status",
        "/server-status?auto",
        "/%73erver-status",
        "//server-status",
        "/./x/../server-status",
    ];
    for _ in 0..10 {
        for spelling in spellings {
            let response = path
                .client
                .enter(|| send_request(server_v4(80), &get(spelling)));
            assert_eq!(response.text(), "this is server-status");
        }
    }
    attached.warm(&path.client, server_v4(80), &get("/open"));
    let hits = attached.count("answer_hit");
    for spelling in spellings {
        let ask = || send_request(server_v4(80), &get(spelling));
        assert_eq!(path.client.enter(ask).text(), "this is server-status");
    }
    assert_eq!(attached.count("answer_hit"), hits);
    assert_eq!(publisher::published(&attached.level).len(), 1);
    let url = "http://test/server-status";
    let netns = path.server.path();
    let text = path
        .server
        .run(
            env!("CARGO_BIN_EXE_lowroad"),
            &["explain", url, "--netns", &netns],
        )
        .expect("an explanation");
    assert!(text.contains("--exclude /server-status"), "{text}");
}

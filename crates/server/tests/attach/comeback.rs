//! Connections that the server above has had come back to this level, and go up again, in any order: each
//! answer is right, and the server's ends are closed.

use std::fs;
use std::net::{SocketAddr, TcpStream};

use lowroad_testkit::net::{Manglings, Namespace, Page, Path, Site, WebServer};
use lowroad_testkit::{Client, wait_until};

use crate::attached::{Attached, get, servers};
use crate::skipped;

/// Hot, hot, large.
const LENS: [usize; 3] = [200, 900, 30_000];

struct Net {
    path: Path,
    site: Site,
    _nginx: WebServer,
}

fn network(directives: &str) -> Net {
    let path = Path::new(&Manglings::default(), 1500).expect("a path");
    let site = Site::new(301, &LENS);
    let nginx = WebServer::nginx(&path.server, &site, 80, directives).expect("nginx");
    Net {
        path,
        site,
        _nginx: nginx,
    }
}

impl Net {
    fn attach(&self) -> Attached<'_> {
        let attached = Attached::start(&self.path.server, 80, &["--ttl", "600"]);
        for page in &self.site.pages[..2] {
            for server in servers(80) {
                attached.warm(&self.path.client, server, &get(&page.path));
            }
        }
        attached
    }

    fn connect(&self, server: SocketAddr) -> Client {
        let stream = self.path.client.enter(|| TcpStream::connect(server));
        Client::new(stream.expect("a connection"))
    }

    fn ask(&self, client: &mut Client, page: usize) {
        let page = &self.site.pages[page];
        let response = client.get(&page.path, "");
        assert_eq!(Page::of(&page.path, &response.body), *page);
    }
}

/// The states of what the server's kernel has for this client.
fn sockets(namespace: &Namespace, client: &Client) -> Vec<u8> {
    let port = client.stream().local_addr().expect("an address").port();
    let port = format!(":{port:04X}");
    let tables = ["tcp", "tcp6"].map(|family| format!("/proc/thread-self/net/{family}"));
    let read = || tables.map(|table| fs::read_to_string(table).unwrap_or_default());
    let state = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_its = words.get(1)?.ends_with(":0050") && words.get(2)?.ends_with(&port);
        is_its.then(|| u8::from_str_radix(words[3], 16).expect("a state"))
    };
    let tables = namespace.enter(read);
    let lines = tables.iter().flat_map(|table| table.lines());
    lines.filter_map(state).collect()
}

fn since(attached: &Attached, begin: [u64; 4]) -> [u64; 4] {
    let mut now = ["answer_hit", "tcp_handed", "tcp_taken_back", "tcp_ended"]
        .map(|reason| attached.count(reason));
    now.iter_mut()
        .zip(begin)
        .for_each(|(now, begin)| *now -= begin);
    now
}

#[test]
fn it_comes_and_goes_on_one_connection() {
    if skipped("it_comes_and_goes_on_one_connection", &["nginx"]) {
        return;
    }
    let net = network("");
    let attached = net.attach();
    for server in servers(80) {
        let begin = since(&attached, [0; 4]);
        let mut client = net.connect(server);
        net.ask(&mut client, 0);
        assert_eq!(since(&attached, begin), [1, 0, 0, 0]);
        for round in 1..=5 {
            net.ask(&mut client, 2);
            // The first that could be answered below goes up yet.
            net.ask(&mut client, 0);
            net.ask(&mut client, 1);
            net.ask(&mut client, 0);
            wait_until("its old socket's end", || {
                sockets(&net.path.server, &client).is_empty().then_some(())
            });
            let [hits, handed, back, _] = since(&attached, begin);
            assert_eq!([hits, handed, back], [1 + 2 * round, round, round]);
        }
        // Misses in between, which are followed too.
        net.ask(&mut client, 2);
        net.ask(&mut client, 2);
        net.ask(&mut client, 0);
        net.ask(&mut client, 2);
        assert_eq!(since(&attached, begin)[2], 5);
        net.ask(&mut client, 1);
        net.ask(&mut client, 1);
        assert_eq!(since(&attached, begin)[2], 6);
        client.finish();
        assert!(client.wait_for_close(), "a clean end");
    }
    eprintln!("{:?}", attached.counts());
}

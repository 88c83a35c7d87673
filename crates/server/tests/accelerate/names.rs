//! Names of origin servers: SRV records, time to live, and answers that are wrong, long or missing.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, TestServer, wait_until};
use simple_dns::rdata::{A, CNAME, RData, SRV};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};

use crate::front::{PROGRAM, response};

type Records = Vec<ResourceRecord<'static>>;

/// The names that get no answer before each of them has been asked for.
const TOGETHER: [&str; 3] = ["a.together.test", "b.together.test", "c.together.test"];

/// A name server with these records. A name without records does not exist, `silent.test` gets no answer.
struct NameServer {
    address: SocketAddr,
    records: Arc<Mutex<Records>>,
}

impl NameServer {
    fn start(records: Records) -> NameServer {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = tcp.local_addr().expect("an address");
        // Clients ask again over TCP at the same address.
        let udp = UdpSocket::bind(address).expect("the same port");
        let records = Arc::new(Mutex::new(records));
        let zone = records.clone();
        std::thread::spawn(move || {
            let mut query = [0; 512];
            let mut together = TogetherQueries::default();
            while let Ok((len, client)) = udp.recv_from(&mut query) {
                let due = together.add(&query[..len], client);
                for (query, client) in due {
                    if let Some(bytes) = answer(&query, &zone.lock().expect("a lock"), 512) {
                        let _ = udp.send_to(&bytes, client);
                    }
                }
            }
        });
        let zone = records.clone();
        std::thread::spawn(move || {
            for stream in tcp.incoming().flatten() {
                let _ = answer_stream(stream, &zone);
            }
        });
        NameServer { address, records }
    }

    fn replace(&self, records: Records) {
        *self.records.lock().expect("a lock") = records;
    }
}

/// Holds the queries for the names of [`TOGETHER`] back until there is one for each name.
#[derive(Default)]
struct TogetherQueries {
    names: BTreeSet<&'static str>,
    held: Vec<(Vec<u8>, SocketAddr)>,
    /// A query was repeated before the other names were asked for: these names never get an answer.
    is_late: bool,
}

impl TogetherQueries {
    /// Adds a query, and returns those that are due for an answer.
    fn add(&mut self, query: &[u8], client: SocketAddr) -> Vec<(Vec<u8>, SocketAddr)> {
        let new = (query.to_vec(), client);
        let Some(name) = name_together(query) else {
            return vec![new];
        };
        // Repeated queries have a new identifier.
        let is_all = self.names.len() == TOGETHER.len();
        self.is_late |= !is_all && self.held.iter().any(|(held, _)| held[2..] == query[2..]);
        if self.is_late {
            return Vec::new();
        }
        self.names.insert(name);
        self.held.push(new);
        match self.names.len() == TOGETHER.len() {
            true => std::mem::take(&mut self.held),
            false => Vec::new(),
        }
    }
}

/// The name of a query, if it is one of [`TOGETHER`].
fn name_together(query: &[u8]) -> Option<&'static str> {
    let query = Packet::parse(query).ok()?;
    let asked = &query.questions.first()?.qname;
    TOGETHER
        .into_iter()
        .find(|name| *asked == Name::new_unchecked(name))
}

fn answer_stream(mut stream: std::net::TcpStream, zone: &Mutex<Records>) -> std::io::Result<()> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut query = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut query)?;
    if let Some(bytes) = answer(&query, &zone.lock().expect("a lock"), 65_535) {
        stream.write_all(&(bytes.len() as u16).to_be_bytes())?;
        stream.write_all(&bytes)?;
    }
    Ok(())
}

fn answer(query: &[u8], records: &Records, len_max: usize) -> Option<Vec<u8>> {
    let query = Packet::parse(query).ok()?;
    let question = query.questions.first()?;
    if question.qname == Name::new_unchecked("silent.test") {
        return None;
    }
    let mut reply = query.clone().into_reply();
    let of_name = records.iter().filter(|it| it.name == question.qname);
    if of_name.clone().next().is_none() {
        *reply.rcode_mut() = RCODE::NameError;
    }
    let is_asked = |it: &&ResourceRecord<'static>| {
        let kind = it.rdata.type_code();
        kind == TYPE::CNAME || question.qtype == QTYPE::TYPE(kind)
    };
    reply.answers = of_name.filter(is_asked).cloned().collect();
    let bytes = reply.build_bytes_vec_compressed().ok()?;
    if bytes.len() <= len_max {
        return Some(bytes);
    }
    // A truncated answer need not have any complete record.
    reply.answers.clear();
    reply.set_flags(PacketFlag::TRUNCATION);
    reply.build_bytes_vec().ok()
}

fn record(name: &'static str, ttl: u32, data: RData<'static>) -> ResourceRecord<'static> {
    ResourceRecord::new(Name::new_unchecked(name), CLASS::IN, ttl, data)
}

fn address(name: &'static str, ttl: u32, address: Ipv4Addr) -> ResourceRecord<'static> {
    record(
        name,
        ttl,
        RData::A(A {
            address: address.into(),
        }),
    )
}

fn service(ttl: u32, priority: u16, origin: &TestOrigin) -> ResourceRecord<'static> {
    let (_, port) = origin
        .url()
        .rsplit_once(':')
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .expect("a port");
    let srv = SRV {
        priority,
        weight: 5,
        port: port.parse().expect("a number"),
        target: Name::new_unchecked("host.test"),
    };
    record("_http._tcp.app.test", ttl, RData::SRV(srv))
}

fn named(name: &'static str) -> TestOrigin {
    TestOrigin::with_response(move |_| response("200 OK", "Cache-Control: no-store\r\n", name))
}

/// A server in front of an origin with the server `url`. `names` resolves its name.
fn front(names: &NameServer, folder: &TempFolder, url: &str) -> TestServer {
    let config = format!(
        "[server]\nworkers = 1\nadmin = \"{}/admin\"\n[[site]]\nlisten = \"127.0.0.1:0\"\n\
         [[site.route]]\npattern = \"/**\"\norigin = \"app\"\n\
         [[origin]]\nname = \"app\"\nservers = \"{url}\"\nresolver = \"{}\"\n",
        folder.path().display(),
        names.address,
    );
    TestServer::run(PROGRAM, folder, &config)
}

#[test]
fn service_records_are_followed_by_priority_and_time_to_live() {
    let (a, b) = (named("a"), named("b"));
    let host = || address("host.test", 3_600, Ipv4Addr::LOCALHOST);
    let names = NameServer::start(vec![service(1, 10, &a), service(1, 20, &b), host()]);
    let folder = TempFolder::new();
    let server = front(&names, &folder, "http://_http._tcp.app.test");
    // The backup has the higher priority number.
    for _ in 0..4 {
        assert_eq!(server.connect().get("/", "").text(), "a");
    }
    // The old record expires after a second; a time to live of 0 counts as one.
    names.replace(vec![service(0, 10, &b), host()]);
    wait_until("the other server", || {
        (server.connect().get("/", "").text() == "b").then_some(())
    });
}

#[test]
fn unknown_name_is_a_server_that_is_down() {
    let origin = named("a");
    let (_, port) = origin
        .url()
        .rsplit_once(':')
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .expect("a port");
    let names = NameServer::start(Vec::new());
    let folder = TempFolder::new();
    let server = front(&names, &folder, &format!("http://late.test:{port}"));
    assert_eq!(server.connect().get("/", "").status, 503);
    server.wait_for_error_line("late.test does not exist");
    // A time to live of a week does not delay the next look-up, since none has succeeded.
    let alias = CNAME(Name::new_unchecked("host.test"));
    names.replace(vec![
        record("late.test", 604_800, RData::CNAME(alias)),
        address("host.test", 604_800, Ipv4Addr::LOCALHOST),
    ]);
    wait_until("the server", || {
        (server.connect().get("/", "").status == 200).then_some(())
    });
}

#[test]
fn a_thousand_addresses_come_by_tcp_and_are_bounded() {
    let many = (0..1_000_u32).map(|number| {
        let last = u32::from(Ipv4Addr::new(127, 9, 0, 1)) + number;
        address("many.test", 60, last.into())
    });
    let names = NameServer::start(many.collect());
    let folder = TempFolder::new();
    // The first look-up is complete when the server has started.
    let _server = front(&names, &folder, "http://many.test:9");
    let output = std::process::Command::new(PROGRAM)
        .args(["status", "--admin"])
        .arg(folder.path().join("admin"))
        .output()
        .expect("the status command");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let count = text.matches("origin app at http://127.9.").count();
    assert_eq!(count, 64, "{text}");
}

#[test]
fn loops_of_aliases_and_silent_name_servers_are_failures_with_a_reason() {
    let alias = |to: &'static str| RData::CNAME(CNAME(Name::new_unchecked(to)));
    let names = NameServer::start(vec![
        record("one.test", 60, alias("two.test")),
        record("two.test", 60, alias("one.test")),
    ]);
    let folder = TempFolder::new();
    let server = front(&names, &folder, "http://one.test");
    assert_eq!(server.connect().get("/", "").status, 503);
    server.wait_for_error_line("aliases");
    let folder = TempFolder::new();
    let server = front(&names, &folder, "http://silent.test");
    assert_eq!(server.connect().get("/", "").status, 503);
    server.wait_for_error_line("no answer in time");
}

#[test]
fn names_are_looked_up_at_the_same_time() {
    let origin = named("together");
    let url = origin.url();
    let (_, port) = url.rsplit_once(':').expect("a port");
    // A look-up after the other has no answer.
    let names = NameServer::start(
        TOGETHER
            .map(|name| address(name, 60, Ipv4Addr::LOCALHOST))
            .into(),
    );
    let folder = TempFolder::new();
    let mut config = format!(
        "[server]\nworkers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{}\"\n",
        folder.path().display(),
    );
    for (number, _) in TOGETHER.iter().enumerate() {
        config.push_str(&format!(
            "[[site.route]]\npattern = \"/{number}\"\norigin = \"app{number}\"\n"
        ));
    }
    for (number, name) in TOGETHER.iter().enumerate() {
        config.push_str(&format!(
            "[[origin]]\nname = \"app{number}\"\nservers = \"http://{name}:{port}\"\n\
             resolver = \"{}\"\n",
            names.address,
        ));
    }
    let server = TestServer::run(PROGRAM, &folder, &config);
    for number in 0..TOGETHER.len() {
        let answer = server.connect().get(&format!("/{number}"), "");
        assert_eq!((answer.status, answer.text().as_str()), (200, "together"));
    }
}

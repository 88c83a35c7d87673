//! Measures a coalesced miss: ten thousand clients request the same 10 MB, which the origin sends after 2 s. Prints the
//! time from the origin's first byte to each client's first byte, and the memory used.
//!
//! `cargo test --release -p lowroad --test shared_miss -- --ignored --nocapture --test-threads 1` prints the results,
//! and for comparison those of two threads that do nothing but send, which is the minimum on a machine. All but 20
//! clients read 4 KB and stop. See proc(5) for VmHWM.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, TestServer, skip};
use rustix::event::{Timespec, epoll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const LOWROAD: &str = env!("CARGO_BIN_EXE_lowroad");
const CLIENTS: usize = 10_000;
/// One client in this many reads to the end.
const READER_EACH: usize = 500;
const BODY_LEN: usize = 10_000_000;
const PIECE_LEN: usize = 4096;
const MADE_AFTER: Duration = Duration::from_secs(2);
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);
const GET_LARGE: &str = "GET /large HTTP/1.1\r\nHost: test\r\n\r\n";
const GET_SMALL: &str = "GET /small HTTP/1.1\r\nHost: test\r\n\r\n";
/// Fewer clients, since this process holds both ends of their connections.
const BARE_CLIENTS: usize = 9_900;

/// The clients' results.
struct ClientTimes {
    /// The time of each client's first byte.
    first: Vec<Instant>,
    /// When the last client that reads to the end had the whole body, if all did.
    all: Option<Instant>,
}

/// Connections of this many clients.
fn connected(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let connect = |_| TcpStream::connect(address).expect("a connection");
    (0..count).map(connect).collect()
}

/// Raises the descriptor limits of this process and the server; reports if that is not possible.
fn has_descriptors() -> bool {
    let maximum = getrlimit(Resource::Nofile).maximum;
    if maximum.is_some_and(|maximum| maximum < 2 * CLIENTS as u64) {
        let why = format!("{maximum:?} descriptors are too few (ulimit -Hn)");
        skip("ten thousand clients of one miss", &why);
        return false;
    }
    let current = maximum;
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).is_ok()
}

/// Clients that wait for their first bytes; some of them read to the end.
struct ReadingClients<'c> {
    clients: &'c mut [TcpStream],
    poll: OwnedFd,
    /// The body length for clients that read to the end.
    whole_len: Option<usize>,
    first: Vec<Option<Instant>>,
    /// The remaining bytes for each client that reads to the end.
    left: Vec<usize>,
    waiting: usize,
    reading: usize,
    all: Option<Instant>,
    piece: Vec<u8>,
}

impl<'c> ReadingClients<'c> {
    fn new(clients: &'c mut [TcpStream], whole_len: Option<usize>) -> ReadingClients<'c> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll instance");
        for (number, client) in clients.iter().enumerate() {
            client.set_nonblocking(true).expect("a socket");
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&poll, client.as_fd(), data, epoll::EventFlags::IN).expect("a place");
        }
        ReadingClients {
            poll,
            whole_len,
            first: vec![None; clients.len()],
            left: vec![0; clients.len()],
            waiting: clients.len(),
            reading: 0,
            all: None,
            piece: vec![0; 1 << 20],
            clients,
        }
    }

    fn run(mut self) -> ClientTimes {
        let begun = Instant::now();
        let mut events = Vec::with_capacity(1024);
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        while self.waiting + self.reading > 0 {
            let waiting = self.waiting;
            assert!(begun.elapsed() < GIVE_UP_AFTER, "{waiting} had nothing");
            events.clear();
            let space = rustix::buffer::spare_capacity(&mut events);
            epoll::wait(&self.poll, space, Some(&second)).expect("events");
            for event in &events {
                let number = event.data.u64() as usize;
                match self.first[number] {
                    None => self.begin(number),
                    Some(_) => self.read_on(number),
                }
            }
        }
        ClientTimes {
            first: self.first.into_iter().flatten().collect(),
            all: self.all,
        }
    }

    /// Reads a client's first bytes; after that, the client stops or reads to the end.
    fn begin(&mut self, number: usize) {
        let len = self.read(number, PIECE_LEN);
        self.first[number] = Some(Instant::now());
        self.waiting -= 1;
        let piece = &self.piece[..len];
        assert!(piece.starts_with(b"HTTP/1.1 200 OK"));
        match self.whole_len {
            Some(whole_len) if number.is_multiple_of(READER_EACH) => {
                let head_len = piece.windows(4).position(|four| four == b"\r\n\r\n");
                self.left[number] = head_len.expect("the end of a head") + 4 + whole_len - len;
                self.reading += 1;
            }
            _ => self.stop(number),
        }
    }

    fn read_on(&mut self, number: usize) {
        let len = self.read(number, self.piece.len());
        self.left[number] -= len;
        if self.left[number] == 0 {
            self.reading -= 1;
            self.all = Some(Instant::now());
            self.stop(number);
        }
    }

    fn read(&mut self, number: usize, len_max: usize) -> usize {
        let read = self.clients[number].read(&mut self.piece[..len_max]);
        let len = read.expect("some bytes");
        assert!(len > 0, "the response was cut");
        len
    }

    fn stop(&mut self, number: usize) {
        epoll::delete(&self.poll, self.clients[number].as_fd()).expect("it was there");
    }
}

/// A line of `/proc/PID/status`, in KiB.
fn kib(pid: u32, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process of ours");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    number
        .and_then(|number| number.parse().ok())
        .expect("a number")
}

/// A process's CPU time in ms.
fn cpu_ms(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process of ours");
    let fields = text.rsplit_once(')').expect("its name").1;
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    // USER_HZ is 100.
    ticks * 10
}

/// Resets the maximum resident set size (VmHWM).
fn reset_memory_peak(pid: u32) {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("a process of ours");
}

fn print_first(seen: &ClientTimes, begun: Instant) {
    let mut after: Vec<Duration> = seen.first.iter().map(|first| *first - begun).collect();
    after.sort();
    let ms = |part: f64| after[((after.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    println!(
        "first bytes of {} clients, ms after the origin's: median {:.0}, 99 % {:.0}, latest {:.0}",
        after.len(),
        ms(0.5),
        ms(0.99),
        ms(1.0)
    );
}

/// An origin with a delay before its body; reports the times of the first and last byte.
fn origin() -> (TestOrigin, Receiver<Instant>) {
    let (sender, times) = channel();
    let sender = Mutex::new(sender);
    let origin = TestOrigin::start(move |asked, stream| {
        let body_len = match &*asked.target {
            "/large" => BODY_LEN,
            _ => 1000,
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {body_len}\r\n\r\n"
        );
        let whole = [head.as_bytes(), &vec![b'x'; body_len]].concat();
        if body_len != BODY_LEN {
            return stream.write_all(&whole).is_ok();
        }
        thread::sleep(MADE_AFTER);
        let sender = sender.lock().expect("no panic");
        sender.send(Instant::now()).expect("it is heard");
        let is_sent = stream.write_all(&whole).is_ok();
        sender.send(Instant::now()).expect("it is heard");
        is_sent
    });
    (origin, times)
}

fn measure(options: &[&str]) {
    if !has_descriptors() {
        return;
    }
    let (origin, times) = origin();
    let folder = TempFolder::new();
    let disk = folder.path().join("disk").display().to_string();
    let url = origin.url();
    let mut arguments = vec!["accelerate", &url, "--listen", "127.0.0.1:0"];
    for option in options {
        arguments.push(if *option == "DISK" { &disk } else { option });
    }
    let server = TestServer::start(LOWROAD, &arguments);
    let mut clients = connected(server.address(), CLIENTS);
    for client in &mut clients {
        client.write_all(GET_SMALL.as_bytes()).expect("it takes it");
        let mut response = vec![0; 4096];
        assert!(client.read(&mut response).expect("a response") > 1000);
    }
    reset_memory_peak(server.pid());
    let idle_kib = kib(server.pid(), "VmRSS:");
    let asked = Instant::now();
    for client in &mut clients {
        client.write_all(GET_LARGE.as_bytes()).expect("it takes it");
    }
    let asking = asked.elapsed();
    let cpu = cpu_ms(server.pid());
    let seen = ReadingClients::new(&mut clients, Some(BODY_LEN)).run();
    let cpu = cpu_ms(server.pid()) - cpu;
    let highest_kib = kib(server.pid(), "VmHWM:");
    let begun = times.recv().expect("it has begun");
    let large = origin.requests();
    let large = large.iter().filter(|asked| asked.target == "/large");
    println!(
        "{options:?}: {} requests at the origin; all had asked after {} ms",
        large.count(),
        asking.as_millis()
    );
    print_first(&seen, begun);
    let since = |moment: Option<Instant>| moment.map(|moment| (moment - begun).as_millis());
    println!(
        "ms after the origin's first byte: the origin had sent all {:?}, {} clients had read all {:?}",
        since(times.recv_timeout(GIVE_UP_AFTER).ok()),
        CLIENTS / READER_EACH,
        since(seen.all),
    );
    println!(
        "resident: {idle_kib} KiB with idle connections, {} KiB more at most; {cpu} ms of processors",
        highest_kib.saturating_sub(idle_kib)
    );
}

#[test]
#[ignore = "a measurement: prints when 10,000 clients of one miss have their first bytes"]
fn time_to_first_byte_of_coalesced_miss() {
    measure(&[]);
}

#[test]
#[ignore = "a measurement: the same with a disk"]
fn time_to_first_byte_of_coalesced_miss_with_disk_cache() {
    measure(&["--disk-cache", "DISK"]);
}

#[test]
#[ignore = "a measurement: the same of two threads that do nothing but send"]
fn time_to_first_byte_of_plain_sending_threads() {
    if has_descriptors() {
        [1, 4 << 10, 16 << 10].into_iter().for_each(bare_threads);
    }
}

fn bare_threads(len: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let accepting = thread::spawn(move || -> Vec<TcpStream> {
        let all = listener.incoming().take(BARE_CLIENTS);
        all.map(|stream| stream.expect("a connection")).collect()
    });
    let mut clients = connected(address, BARE_CLIENTS);
    let mut servers = accepting.join().expect("all came");
    let (sender, begun) = channel();
    thread::scope(|scope| {
        for half in servers.chunks_mut(BARE_CLIENTS / 2) {
            let sender = sender.clone();
            scope.spawn(move || {
                // By then all clients are waiting.
                thread::sleep(MADE_AFTER);
                sender.send(Instant::now()).expect("it is heard");
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_LEN}\r\n\r\n");
                let whole = [head.as_bytes(), &vec![b'x'; len]].concat();
                for stream in half {
                    stream.write_all(&whole).expect("it takes it");
                }
            });
        }
        let seen = ReadingClients::new(&mut clients, None).run();
        println!("two bare threads, a head and {len} bytes:");
        print_first(&seen, begun.recv().expect("it has begun"));
    });
}

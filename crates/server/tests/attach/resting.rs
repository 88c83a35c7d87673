//! A level that brings no gain: fetches without later hits pause, and a level without hits is bypassed, falls asleep
//! and wakes up. The daemon runs in the test's process with short times.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::thread::{self, JoinHandle};

use lowroad_softirq::daemon::{AdmissionPolicy, DaemonContext};
use lowroad_softirq::fetch::address_fetcher::ServerConnector;
use lowroad_softirq::learner::bypass::LevelBypassRules;
use lowroad_softirq::learner::{LearnSettings, Trust};
use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::level::publisher;
use lowroad_softirq::machine::interfaces;
use lowroad_softirq::programs::loader::{ProgramTier, load};
use lowroad_softirq::programs::sizes::MapSizes;
use lowroad_softirq::programs::{folder, links};
use lowroad_softirq::{layout, now_ns};
use lowroad_testkit::net::{DEVICE, LinkMangling, NetNamespace, TestPath};
use lowroad_testkit::{TestClient, wait_until};

use crate::attached::{get, pin_folder, send_request, server_v4};
use crate::skipped;

/// A server that answers with the request's path, fresh for a minute, and counts its requests.
fn names(listener: TcpListener, asked: Arc<AtomicU64>) {
    let answer = |mut stream: TcpStream, asked: Arc<AtomicU64>| -> std::io::Result<()> {
        let mut byte = [0];
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte)?;
                head.push(byte[0]);
            }
            asked.fetch_add(1, SeqCst);
            let head = String::from_utf8_lossy(&head);
            let body = head.split(' ').nth(1).unwrap_or_default();
            let text = format!(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(text.as_bytes())?;
        }
    };
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let asked = asked.clone();
            thread::spawn(move || answer(stream, asked));
        }
    });
}

/// The level's programs at a namespace's outer device, and a daemon that runs in this process.
struct Resting {
    level: Arc<SoftirqLevel>,
    stop: Arc<AtomicBool>,
    daemon: Option<JoinHandle<()>>,
    place: PathBuf,
}

impl Resting {
    fn start(namespace: &NetNamespace, learning: LearnSettings, rest: LevelBypassRules) -> Resting {
        let place = pin_folder(namespace, 80);
        folder::create(&place).expect("a folder");
        let loaded = load(ProgramTier::Tc, MapSizes::default(), &place).expect("programs");
        namespace.enter(|| {
            let all = interfaces::all().expect("interfaces");
            let outer = all.iter().find(|one| one.interface.name == DEVICE);
            let outer = &outer.expect("the device").interface;
            links::attach(&loaded, outer, &place).expect("attached");
        });
        let level = Arc::new(SoftirqLevel::open(&place).expect("maps"));
        level
            .prepare(layout::SETTING_LEARN, 75, 1500)
            .expect("random numbers");
        level.set_ports(&[80]);
        level.set_mode(layout::MODE_SERVE);
        let stop = Arc::new(AtomicBool::new(false));
        let (of_daemon, stops) = (level.clone(), stop.clone());
        // A new thread inherits the namespace of its creator.
        let daemon = namespace.enter(move || {
            thread::spawn(move || {
                let connect: ServerConnector =
                    Arc::new(|server: SocketAddr, _| TcpStream::connect(server));
                let daemon = DaemonContext {
                    level: &of_daemon,
                    learning,
                    bypass_rules: rest,
                    connect,
                    is_lowroad: false,
                    offer_lookup: None,
                    admission: AdmissionPolicy::All,
                    on_answer: Box::new(|_| {}),
                    notify: Box::new(|text| eprintln!("{text}")),
                    short_lifetimes: &AtomicBool::new(false),
                    server_purges: &AtomicU32::new(0),
                    stop: &stops,
                };
                daemon.run().expect("it works until it is stopped");
            })
        });
        wait_until("the daemon", || {
            (level.control().heartbeat_ns > 0).then_some(())
        });
        Resting {
            level,
            stop,
            daemon: Some(daemon),
            place,
        }
    }

    fn answers(&self) -> u64 {
        self.level.requests().expect("counters").0
    }

    /// Waits for a condition of the control map.
    fn wait(&self, what: &str, is_so: impl Fn(&layout::control) -> bool) {
        wait_until(what, || is_so(&self.level.control()).then_some(()));
    }
}

impl Drop for Resting {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        if let Some(daemon) = self.daemon.take() {
            let _ = daemon.join();
        }
        let _ = folder::remove(&self.place);
    }
}

/// A link to a server, and the server's count of requests.
fn path_to_server() -> (TestPath, Arc<AtomicU64>) {
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let listener = path
        .server
        .enter(|| TcpListener::bind("0.0.0.0:80"))
        .expect("port 80");
    let asked = Arc::default();
    names(listener, Arc::clone(&asked));
    (path, asked)
}

#[test]
fn fetches_without_hits_pause() {
    if skipped("fetches_without_hits_pause", &[]) {
        return;
    }
    let (path, asked) = path_to_server();
    let learning = LearnSettings {
        budget_rules: Trust {
            initial_fetches: 8,
            after_pause_fetches: 2,
            // The pause is an hour, so that it does not end during the test.
            pause_ns_min: 3_600_000_000_000,
            pause_ns_max: 3_600_000_000_000,
            ..Trust::default()
        },
        ..LearnSettings::default()
    };
    let level = Resting::start(&path.server, learning, LevelBypassRules::default());
    let ask = |page: &str| {
        let response = path
            .client
            .enter(|| send_request(server_v4(80), &get(page)));
        assert_eq!(response.text(), page);
    };
    // Each page is requested twice and then never again, so fetches pause after the first ones.
    let mut scanned = 0;
    let is_paused = || level.level.control().pause_until_ns > 0;
    wait_until("a pause", || {
        scanned += 1;
        let page = format!("/{scanned}");
        (0..2).for_each(|_| ask(&page));
        is_paused().then_some(())
    });
    level.wait("nothing is reported", |control| {
        control.settings & layout::SETTING_LEARN == 0
    });
    let before = asked.load(SeqCst);
    // Pages that would be fetched at their second request without the pause.
    for page in 0..50 {
        (0..2).for_each(|_| ask(&format!("/more/{page}")));
    }
    assert_eq!(asked.load(SeqCst) - before, 100, "only clients asked");
    // Each of the eight pages was fetched from the probe address and from this machine's address.
    let fetched = before - 2 * scanned;
    assert_eq!(fetched, 16, "of {scanned} pages");
    // Stored responses are still answered. A purge by the operator ends the pause.
    let answers = level.answers();
    ask("/1");
    assert_eq!(level.answers() - answers, 1);
    publisher::purge(&level.level, &publisher::published(&level.level)).expect("a purge");
    wait_until("the end of the pause", || (!is_paused()).then_some(()));
    let answers = level.answers();
    wait_until("a hit", || {
        ask("/hot");
        (level.answers() > answers).then_some(())
    });
}

#[test]
fn level_without_hits_is_bypassed_sleeps_and_wakes() {
    if skipped("level_without_hits_is_bypassed_sleeps_and_wakes", &[]) {
        return;
    }
    let (path, _) = path_to_server();
    let seconds = |count: u64| count * 1_000_000_000;
    let rules = LevelBypassRules {
        window_ns: seconds(1) / 10,
        requests_min: 20,
        bypass_ns_min: seconds(8),
        bypass_ns_max: seconds(3600),
        settle_ns: 0,
        ..LevelBypassRules::default()
    };
    let level = Resting::start(&path.server, LearnSettings::default(), rules);
    let ask = |page: &str| {
        let response = path
            .client
            .enter(|| send_request(server_v4(80), &get(page)));
        assert_eq!(response.text(), page);
    };
    let mut count = 0;
    let mut ask_once = || {
        count += 1;
        ask(&format!("/{count}"));
    };
    let resting = || level.level.control().resting;
    // The level has accepted this connection, which has no request yet. It must stay usable.
    let mut open = path.client.enter(|| TestClient::connect(server_v4(80)));
    wait_until("a rest", || {
        ask_once();
        (resting() == layout::RESTING).then_some(())
    });
    let control = level.level.control();
    assert!(control.rest_until_ns > now_ns());
    assert_eq!(control.rest_answers, 0);
    assert!(control.rest_requests >= 20);
    // During the bypass, the daemon stores no responses.
    assert_eq!(control.settings & layout::SETTING_LEARN, 0);
    let handed_up = level.level.requests().expect("counters").1;
    // New connections go to the kernel, so the level's counters do not change.
    (0..20).for_each(|_| ask_once());
    let counts = level.level.requests().expect("counters");
    assert_eq!(counts, (0, handed_up), "the kernel has them from their SYN");
    assert_eq!(resting(), layout::RESTING, "one is ours yet");
    open.send(get("/open"));
    assert_eq!(open.response().text(), "/open");
    level.wait("sleep", |control| control.resting == layout::ASLEEP);
    open.send(get("/open"));
    assert_eq!(open.response().text(), "/open");
    assert_eq!(level.level.connections().open, 0);
    ask_once();

    level.wait("it wakes up", |control| control.resting == layout::AWAKE);
    // Connections opened during the bypass stay with the kernel; the next connection of the client goes to the level.
    open.send(get("/open"));
    assert_eq!(open.response().text(), "/open");
    wait_until("a hit", || {
        ask("/hot");
        (level.answers() > 0).then_some(())
    });

    // The earlier hits are too old by then. The next bypass period is longer, but a purge ends it.
    wait_until("another rest", || {
        ask_once();
        (resting() != layout::AWAKE).then_some(())
    });
    publisher::purge(&level.level, &publisher::published(&level.level)).expect("a purge");
    wait_until("a hit", || {
        ask("/other");
        (level.answers() > 1).then_some(())
    });
    assert_eq!(resting(), layout::AWAKE);
}

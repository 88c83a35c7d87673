//! Random histories: clients request resources that change, sequentially and concurrently. An oracle decides for each
//! response whether a cache may send it. `LOWROAD_SEED` selects a single history, `LOWROAD_SEEDS` sets the number of
//! histories. The simulator uses the same clients (`src/simulation/histories`).

use std::io::Write;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use lowroad_testkit::origin::{OriginRequest, TestOrigin};
use lowroad_testkit::{TempFolder, TestClient, TestServer};

use crate::front::{PROGRAM, TestAccelerator};
use visitor::{History, ModelClient, PendingRequest};
use world::World;

mod oracle;
mod visitor;
mod world;

const SEEDS: u64 = 200;
/// Number of histories with a disk cache; each contains a restart.
const SEEDS_WITH_DISK: u64 = 60;
/// Requests of a client that runs alone.
const ALONE: usize = 40;
/// Number of concurrent clients, and the requests of each.
const TOGETHER: (u64, usize) = (3, 15);

#[test]
fn random_histories_get_only_allowed_responses() {
    let world = Arc::new(World::default());
    let front = TestAccelerator::with_workers(2, origin_of(&world));
    for seed in seeds(SEEDS) {
        let address = front.server.address();
        let history = History::new(seed, &world);
        run((address, &front.origin), &history, || address);
    }
}

/// Memory has room for few objects, so most responses are read from the disk, after the restart all of them.
#[test]
fn random_histories_with_disk_get_only_allowed_responses() {
    let world = Arc::new(World::default());
    let (origin, folder) = (origin_of(&world), TempFolder::new());
    let start = || {
        let mut command = Command::new(PROGRAM);
        let cache = folder.path().join("cache");
        let url = origin.url();
        command.args(["accelerate", &url, "--listen", "127.0.0.1:0"]);
        command.args(["--workers", "2", "--cache", "64K", "--disk-cache"]);
        command.arg(cache).args(["--disk-cache-max", "64M"]);
        TestServer::spawn(command)
    };
    let mut server = start();
    for seed in seeds(SEEDS_WITH_DISK) {
        let front = (server.address(), &origin);
        run(front, &History::new(seed, &world), || {
            server.signal("TERM");
            assert!(server.wait_for_end().success());
            server = start();
            server.address()
        });
    }
}

fn seeds(count: u64) -> RangeInclusive<u64> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    match number("LOWROAD_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("LOWROAD_SEEDS").unwrap_or(count),
    }
}

fn origin_of(world: &Arc<World>) -> TestOrigin {
    let world = world.clone();
    TestOrigin::start(move |asked, stream| {
        let (head, body) = world.answer(asked);
        // Sent in two writes, so that heads arrive before bodies.
        let is_sent = stream.write_all(head.as_bytes()).is_ok();
        is_sent && (asked.method == "HEAD" || stream.write_all(&body).is_ok())
    })
}

/// Runs a history. `restarted` may replace the server after the concurrent requests.
fn run(
    front: (SocketAddr, &TestOrigin),
    history: &History,
    restarted: impl FnOnce() -> SocketAddr,
) {
    visit(front, ModelClient::of(history, 0, true), ALONE);
    thread::scope(|scope| {
        for name in 1..=TOGETHER.0 {
            scope.spawn(move || visit(front, ModelClient::of(history, name, false), TOGETHER.1));
        }
    });
    let last = ModelClient::of(history, TOGETHER.0 + 1, true);
    visit((restarted(), front.1), last, ALONE / 4);
}

fn visit(
    (front, origin): (SocketAddr, &TestOrigin),
    mut visitor: ModelClient<'_>,
    requests: usize,
) {
    let mut client = TestClient::connect(front);
    for _ in 0..requests {
        let Some(asking) = visitor.next() else {
            continue;
        };
        client.send(&asking.head);
        let response = match asking.has_body {
            true => client.response(),
            false => client.response_to_head(),
        };
        if let Err(why) = visitor.take(&asking, &response) {
            fail(origin.requests(), &asking, &why);
        }
    }
}

fn fail(asked: Vec<OriginRequest>, asking: &PendingRequest, why: &str) {
    let asked = visitor::requests_for_target(&asked, asking);
    panic!("{why}\nthe origin was asked:\n{asked}");
}

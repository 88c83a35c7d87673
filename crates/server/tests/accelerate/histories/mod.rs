//! Random histories: clients ask for resources that change meanwhile, one after the other and at the same time, and an
//! oracle says of each response whether a cache may give it. `LOWROAD_SEED` runs one alone, `LOWROAD_SEEDS` so many. The same
//! clients are in the simulator, too (`src/simulated/histories`).

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use lowroad_testkit::Client;
use lowroad_testkit::origin::{Asked, Origin};

use crate::front::Front;
use visitor::{Asking, History, Visitor};
use world::World;

mod oracle;
mod visitor;
mod world;

const SEEDS: u64 = 200;
/// Requests of a client that is alone.
const ALONE: usize = 40;
/// Clients at the same time, and the requests of each.
const TOGETHER: (u64, usize) = (3, 15);

#[test]
fn all_responses_are_allowed() {
    let world = Arc::new(World::default());
    let its_origin = world.clone();
    let origin = Origin::start(move |asked, stream| {
        let (head, body) = its_origin.answer(asked);
        // In two pieces, so that heads come before bodies.
        let is_sent = stream.write_all(head.as_bytes()).is_ok();
        is_sent && (asked.method == "HEAD" || stream.write_all(&body).is_ok())
    });
    let front = Front::of_workers(2, origin);
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let seeds = match number("LOWROAD_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("LOWROAD_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        run(&front, &History::new(seed, &world));
    }
}

fn run(front: &Front, history: &History) {
    let front = (front.server.address(), &front.origin);
    visit(front, Visitor::of(history, 0, true), ALONE);
    thread::scope(|scope| {
        for name in 1..=TOGETHER.0 {
            scope.spawn(move || visit(front, Visitor::of(history, name, false), TOGETHER.1));
        }
    });
    let last = Visitor::of(history, TOGETHER.0 + 1, true);
    visit(front, last, ALONE / 4);
}

fn visit((front, origin): (SocketAddr, &Origin), mut visitor: Visitor<'_>, requests: usize) {
    let mut client = Client::connect(front);
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
            fail(origin.asked(), &asking, &why);
        }
    }
}

fn fail(asked: Vec<Asked>, asking: &Asking, why: &str) {
    let asked = visitor::asked_of(&asked, asking);
    panic!("{why}\nthe origin was asked:\n{asked}");
}

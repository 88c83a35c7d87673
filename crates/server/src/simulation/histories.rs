//! The random histories of `tests/accelerate/histories` in the simulator, with the same clients and oracle, and two
//! workers. At points of the store where threads could interleave, one worker is interrupted while the other one, the
//! origin and the clients continue. The seed determines everything.

#[path = "../../tests/accelerate/histories/oracle.rs"]
mod oracle;
#[path = "../../tests/accelerate/histories/visitor.rs"]
mod visitor;
#[path = "../../tests/accelerate/histories/world.rs"]
mod world;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use lowroad_engine_sim::{SharedWorld, for_each_seed};
use lowroad_testkit::ClientResponse;
use lowroad_testkit::origin::OriginRequest;

use super::BETWEEN;
use super::accelerator::{SimAccelerator, config, lock};
use visitor::{Asking, History, Visitor};
use world::World;

/// Requests of each client. Clients run alone first, then concurrently.
const REQUESTS: usize = 40;
/// Concurrent clients.
const TOGETHER: u64 = 5;
/// Probability of an interruption at an interleaving point, in thousandths.
const INTERRUPTED: u64 = 300;
/// Maximum turns of the other worker during an interruption.
const TURNS_BETWEEN_MAX: u64 = 40;

/// A client with its connection.
struct HistoryClient {
    visitor: Visitor<'static>,
    id: usize,
    received: Vec<u8>,
    /// The request in progress.
    asking: Option<Asking>,
    left: usize,
    /// Requests to the origin, for failure messages.
    asked: Arc<Mutex<Vec<OriginRequest>>>,
}

#[test]
fn all_responses_are_allowed_whatever_comes_between() {
    for_each_seed(1..13, run);
}

fn run(seed: u64) {
    let world = Arc::new(World::default());
    let its_origin = world.clone();
    let script = Box::new(move |asked: &OriginRequest, stream: &mut Vec<u8>| {
        let (head, body) = its_origin.answer(asked);
        stream.extend_from_slice(head.as_bytes());
        if asked.method != "HEAD" {
            stream.extend_from_slice(&body);
        }
        true
    });
    let asked = Arc::default();
    let accelerator = Rc::new(SimAccelerator::new(
        seed,
        2,
        &config("", ""),
        script,
        Arc::clone(&asked),
    ));
    // Leaked: clients hold a reference to it until the test ends.
    let history: &'static History = Box::leak(Box::new(History::new(seed, &world)));
    // The last client runs alone again: a response must also be right after the concurrent ones.
    let phases = [(0..1, true), (1..1 + TOGETHER, false), (9..10, true)];
    for (names, is_alone) in phases {
        let client = |name| {
            HistoryClient::new(
                Visitor::of(history, name, is_alone),
                &accelerator.world,
                &asked,
            )
        };
        let clients: Vec<HistoryClient> = names.map(client).collect();
        let clients = Rc::new(RefCell::new(clients));
        come_between(&accelerator, &clients);
        accelerator.until("the end of all", |world| {
            step(&clients, world);
            clients
                .borrow()
                .iter()
                .all(HistoryClient::is_over)
                .then_some(())
        });
        BETWEEN.set(None);
        for client in &*clients.borrow() {
            accelerator.world.close(client.id);
        }
    }
}

/// Installs the interruption that lets the other worker run.
fn come_between(accelerator: &Rc<SimAccelerator>, clients: &Rc<RefCell<Vec<HistoryClient>>>) {
    let (accelerator, clients) = (Rc::downgrade(accelerator), clients.clone());
    let between = move || {
        // Weak: the action is stored in a thread-local, which would keep the accelerator alive.
        let Some(accelerator) = accelerator.upgrade() else {
            return;
        };
        let world = &accelerator.world;
        // The dice follow from the seed, so a failing history can be repeated.
        if world.dice(1000) >= INTERRUPTED {
            return;
        }
        accelerator.meanwhile(|| {
            for _ in 0..world.dice(TURNS_BETWEEN_MAX) {
                // The alarm guarantees an event, even if all parties wait for each other.
                world.alarm(world.now_ms() + 1);
                accelerator.turn();
                step(&clients, world);
            }
        });
    };
    BETWEEN.set(Some(Rc::new(between)));
}

fn step(clients: &RefCell<Vec<HistoryClient>>, world: &SharedWorld) {
    clients
        .borrow_mut()
        .iter_mut()
        .for_each(|client| client.step(world));
}

impl HistoryClient {
    fn new(
        visitor: Visitor<'static>,
        world: &SharedWorld,
        asked: &Arc<Mutex<Vec<OriginRequest>>>,
    ) -> HistoryClient {
        HistoryClient {
            visitor,
            id: world.connect(),
            received: Vec::new(),
            asking: None,
            left: REQUESTS,
            asked: asked.clone(),
        }
    }

    fn is_over(&self) -> bool {
        self.left == 0 && self.asking.is_none()
    }

    /// Takes the awaited response, if it is there, and sends the next request.
    fn step(&mut self, world: &SharedWorld) {
        if let Some(asking) = &self.asking {
            self.received.extend(world.take_read(self.id));
            let Some(response) = ClientResponse::take(&mut self.received, asking.has_body) else {
                assert!(!world.is_over(self.id), "the connection ended");
                return;
            };
            if let Err(why) = self.visitor.take(asking, &response) {
                let asked = visitor::asked_of(&lock(&self.asked), asking);
                panic!("{why}\nthe origin was asked:\n{asked}");
            }
            self.asking = None;
        }
        while self.asking.is_none() && self.left > 0 {
            self.left -= 1;
            self.asking = self.visitor.next();
        }
        if let Some(asking) = &self.asking {
            world.send(self.id, asking.head.as_bytes());
        }
    }
}

//! Runs the random histories of `tests/accelerate/histories` in the simulator, with the same clients and oracle, and
//! two workers. At points of the store where threads could interleave, one worker is interrupted while the other
//! worker, the origin and the clients continue. The seed determines the whole history.

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
use visitor::{History, ModelClient, PendingRequest};
use world::World;

/// Requests of each client. The first and the last client run alone, the others concurrently.
const REQUESTS: usize = 40;
/// Number of concurrent clients.
const TOGETHER: u64 = 5;
/// Probability in thousandths that an interleaving point interrupts the worker.
const INTERRUPTED: u64 = 300;
/// Maximum turns of the other worker during one interruption.
const TURNS_BETWEEN_MAX: u64 = 40;

/// A client of the history, with its connection.
struct HistoryClient {
    visitor: ModelClient<'static>,
    id: usize,
    received: Vec<u8>,
    /// The request in progress.
    asking: Option<PendingRequest>,
    left: usize,
    /// All requests to the origin, for failure messages.
    asked: Arc<Mutex<Vec<OriginRequest>>>,
}

#[test]
fn random_histories_with_interruptions_get_only_allowed_responses() {
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
    // The history is leaked, because clients hold a reference to it until the test ends.
    let history: &'static History = Box::leak(Box::new(History::new(seed, &world)));
    // The last client runs alone: responses must also be right after the concurrent clients.
    let phases = [(0..1, true), (1..1 + TOGETHER, false), (9..10, true)];
    for (names, is_alone) in phases {
        let client = |name| {
            HistoryClient::new(
                ModelClient::of(history, name, is_alone),
                &accelerator.world,
                &asked,
            )
        };
        let clients: Vec<HistoryClient> = names.map(client).collect();
        let clients = Rc::new(RefCell::new(clients));
        install_interruption(&accelerator, &clients);
        accelerator.run_until("the end of all", |world| {
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

/// Makes interleaving points interrupt the current worker and run the other one.
fn install_interruption(
    accelerator: &Rc<SimAccelerator>,
    clients: &Rc<RefCell<Vec<HistoryClient>>>,
) {
    let (accelerator, clients) = (Rc::downgrade(accelerator), clients.clone());
    let between = move || {
        // The action holds a weak reference: it is stored in a thread-local, which would keep the accelerator alive.
        let Some(accelerator) = accelerator.upgrade() else {
            return;
        };
        let world = &accelerator.world;
        // The random numbers are derived from the seed, so that a failing history can be repeated.
        if world.random_below(1000) >= INTERRUPTED {
            return;
        }
        accelerator.run_during_interruption(|| {
            for _ in 0..world.random_below(TURNS_BETWEEN_MAX) {
                // Guarantees that time advances, even if everything else waits.
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
        visitor: ModelClient<'static>,
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

    /// Takes the response to the current request if it has arrived, and sends the next request.
    fn step(&mut self, world: &SharedWorld) {
        if let Some(asking) = &self.asking {
            self.received.extend(world.take_read(self.id));
            let Some(response) = ClientResponse::take(&mut self.received, asking.has_body) else {
                assert!(!world.is_over(self.id), "the connection ended");
                return;
            };
            if let Err(why) = self.visitor.take(asking, &response) {
                let asked = visitor::requests_for_target(&lock(&self.asked), asking);
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

//! One case: a world by its seed, workers, a server and clients, until all is over; and what must be
//! true then. It knows nothing of what was drawn.

use std::sync::Arc;

use lowroad_config::{Symlinks, Upstream};
use lowroad_dynamic::fastcgi::FastCgiHandler;
use lowroad_dynamic::fastcgi::server::Servers;
use lowroad_engine::Local;
use lowroad_engine::driver::{Driver, Event};
use lowroad_engine::sim::{Elsewhere, Faults, Shared, SimDriver};

use crate::cgi_support::{Notices, fastcgi_route};
use crate::client::{Client, Outcome, Plan};
use crate::peer::{Manners, Server};

/// How often workers and server may be asked in vain before it is a busy loop.
const VAIN_MAX: usize = 40;
/// What the pool keeps for a while is closed by then, virtual ms.
const QUIET_MS: u64 = 30_000;

/// What a case is made of.
#[derive(Clone, Debug)]
pub struct Setting {
    pub workers: usize,
    pub tcp: bool,
    pub connections_max: usize,
    pub silence_ms: u64,
    /// Scripts are looked for in the file system.
    pub looks: bool,
    pub faults: Faults,
    pub elsewhere: Elsewhere,
    pub manners: Manners,
}

/// One case.
pub struct Case {
    pub world: Shared,
    pub clients: Vec<Client>,
    pub server: Server,
    handler: Arc<FastCgiHandler>,
    drivers: Vec<SimDriver>,
    turn: usize,
    locals: Vec<Local>,
    notices: Notices,
}

impl Case {
    pub fn new(seed: u64, setting: &Setting) -> Case {
        let world = Shared::new(seed, setting.faults.clone());
        world.set_elsewhere(setting.elsewhere.clone());
        let drivers: Vec<SimDriver> = (0..setting.workers).map(|_| world.driver()).collect();
        let locals: Vec<Local> = drivers
            .iter()
            .map(|driver| driver.local().clone())
            .collect();
        let address = match setting.tcp {
            true => Upstream::Tcp("192.0.2.9:9000".parse().expect("an address")),
            false => Upstream::Unix("/run/php.sock".into()),
        };
        let (mut route, mut fastcgi) = fastcgi_route("/**", address);
        route.timeout_ms = setting.silence_ms;
        fastcgi.connections_max = setting.connections_max;
        fastcgi.script = (!setting.looks).then(|| "/index.php".to_string());
        let (servers, notices) = (Servers::new(&locals), Notices::default());
        let (notice, symlinks) = (notices.notice(), Symlinks::Beneath);
        let handler = FastCgiHandler::new(&route, &fastcgi, symlinks, &servers, notice);
        Case {
            server: Server::new(&world, setting.manners.clone()),
            world,
            clients: Vec::new(),
            handler: Arc::new(handler),
            drivers,
            turn: 0,
            locals,
            notices,
        }
    }

    /// A client; times count from now.
    pub fn add(&mut self, mut plan: Plan) {
        let now_ms = self.world.now_ms();
        plan.start_ms += now_ms;
        plan.leave_ms = plan.leave_ms.map(|leave_ms| now_ms + leave_ms);
        self.world.alarm(plan.start_ms);
        plan.leave_ms
            .into_iter()
            .for_each(|ms| self.world.alarm(ms));
        self.clients.push(Client::new(plan));
    }

    /// Lets everything happen until all clients are done, and then until all is quiet.
    pub fn run(&mut self) {
        self.turn_until(|case| case.clients.iter().all(Client::is_over));
        let end_ms = self.world.now_ms() + QUIET_MS;
        self.world.alarm(end_ms);
        self.turn_until(|case| case.world.now_ms() >= end_ms);
        self.clients.iter().for_each(Client::check);
        self.check_nothing_is_left();
    }

    fn turn_until(&mut self, done: impl Fn(&Case) -> bool) {
        let mut vain = 0;
        for _ in 0..1_000_000 {
            if done(self) {
                return;
            }
            let before_ms = self.world.now_ms();
            let did = self.turn();
            vain = match did || self.world.now_ms() > before_ms {
                true => 0,
                false => vain + 1,
            };
            assert!(vain <= VAIN_MAX, "a busy loop");
        }
        let left = self.clients.iter().filter(|client| !client.is_over());
        let left: Vec<Plan> = left.map(|client| client.plan).collect();
        panic!("no end at {} ms of {left:#?}", self.world.now_ms());
    }

    /// One wait of the worker whose turn it is, and all that follows. Whether anything did.
    fn turn(&mut self) -> bool {
        self.turn = (self.turn + 1) % self.drivers.len();
        let (driver, local) = (&mut self.drivers[self.turn], &self.locals[self.turn]);
        let mut events = Vec::new();
        driver.wait(None, &mut events);
        let came = !events.is_empty();
        for event in events {
            if let Event::Outgoing(news) = event {
                local.sources.happened(news);
            }
        }
        local.run();
        let now_ms = self.world.now_ms();
        for client in &mut self.clients {
            client.step(now_ms, &self.handler, &self.locals);
        }
        self.server.step() || came
    }

    fn check_nothing_is_left(&self) {
        let counts = self.handler.pool();
        assert_eq!(counts.free, counts.connections_max, "leave that was lost");
        assert_eq!(counts.idle, 0, "kept for ever");
        assert_eq!(self.handler.answering(), 0, "a request that never ends");
        assert_eq!(self.world.open_count(), 0, "connections that nobody closes");
        for local in &self.locals {
            assert_eq!(local.tasks.count(), 0, "tasks");
            assert!(!local.tasks.is_held(), "a worker that can't end");
            assert_eq!(local.sources.count(), 0, "sockets' places");
            assert_eq!(local.timers.count(), 0, "timers");
        }
    }

    /// What came of a client, and how long after its start.
    pub fn outcome(&self, number: usize) -> (Outcome, u64) {
        let client = &self.clients[number];
        let outcome = client.outcome.lock().expect("a lock").clone();
        let (outcome, end_ms) = outcome.expect("it did not leave");
        (outcome, end_ms - client.plan.start_ms)
    }

    /// What the operator was told.
    pub fn told(&self) -> Vec<String> {
        self.notices.all()
    }
}

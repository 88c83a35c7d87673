//! A simulation case: a world generated from a seed, workers, a server and clients. It runs to the end, where
//! invariants are checked.

use std::sync::Arc;

use lowroad_config::{FastCgiConfig, RouteConfig, SymlinkPolicy, UpstreamAddress};
use lowroad_engine_sim::{FaultRates, PeerBehavior, SharedWorld, SimWorkers, turn_until};
use lowroad_gateway::fastcgi::FastCgiHandler;
use lowroad_gateway::fastcgi::server::FastCgiServers;

use crate::cgi_support::{Notices, fastcgi_route};
use crate::client::{Client, Outcome, Plan};
use crate::peer::{Server, ServerBehavior};

/// The virtual time, in ms, after which idle pooled connections must be closed.
const QUIET_MS: u64 = 30_000;

/// The parameters of a case.
#[derive(Clone, Debug)]
pub struct Setting {
    pub workers: usize,
    pub tcp: bool,
    pub connections_max: usize,
    pub silence_ms: u64,
    /// Whether scripts are looked up in the file system.
    pub looks: bool,
    pub faults: FaultRates,
    pub elsewhere: PeerBehavior,
    pub manners: ServerBehavior,
}

/// A simulation case.
pub struct Case {
    pub world: SharedWorld,
    pub clients: Vec<Client>,
    pub server: Server,
    handler: Arc<FastCgiHandler>,
    workers: SimWorkers,
    notices: Notices,
    servers: FastCgiServers,
    config: (RouteConfig, FastCgiConfig),
}

impl Case {
    pub fn new(seed: u64, setting: &Setting) -> Case {
        let world = SharedWorld::new(seed, setting.faults.clone());
        world.set_peer_behavior(setting.elsewhere.clone());
        let workers = SimWorkers::new(&world, setting.workers);
        let address = match setting.tcp {
            true => UpstreamAddress::Tcp("192.0.2.9:9000".parse().expect("an address")),
            false => UpstreamAddress::Unix("/run/php.sock".into()),
        };
        let (mut route, mut fastcgi) = fastcgi_route("/**", address);
        route.timeout_ms = setting.silence_ms;
        fastcgi.connections_max = setting.connections_max;
        fastcgi.script = (!setting.looks).then(|| "/index.php".to_string());
        let (servers, notices) = (FastCgiServers::new(workers.locals()), Notices::default());
        let (notice, symlinks) = (notices.notice(), SymlinkPolicy::Beneath);
        let handler = FastCgiHandler::new(&route, &fastcgi, symlinks, &servers, notice);
        Case {
            server: Server::new(&world, setting.manners.clone()),
            world,
            clients: Vec::new(),
            handler: Arc::new(handler),
            workers,
            notices,
            servers,
            config: (route, fastcgi),
        }
    }

    /// Replaces the handler by that of a configuration with another limit on connections, as a reload does.
    pub fn reload(&mut self, connections_max: usize) {
        let (route, fastcgi) = &mut self.config;
        fastcgi.connections_max = connections_max;
        let notice = self.notices.notice();
        let symlinks = SymlinkPolicy::Beneath;
        let handler = FastCgiHandler::new(route, fastcgi, symlinks, &self.servers, notice);
        self.handler = Arc::new(handler);
    }

    /// The limit on connections to the server.
    pub fn connections_max(&self) -> usize {
        self.handler.pool().expect("one server").connections_max
    }

    /// Adds a client; the times in `plan` are relative to the current time.
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

    /// Runs until all clients are done, and then until no events are left.
    pub fn run(&mut self) {
        self.turn_until(|case| case.clients.iter().all(Client::is_over));
        let end_ms = self.world.now_ms() + QUIET_MS;
        self.world.alarm(end_ms);
        self.turn_until(|case| case.world.now_ms() >= end_ms);
        self.clients.iter().for_each(Client::check);
        self.check_nothing_is_left();
    }

    fn turn_until(&mut self, done: impl Fn(&Case) -> bool) {
        let world = self.world.clone();
        turn_until(&world, self, Case::turn, done);
    }

    /// Runs one turn of the next worker, and all resulting events. Returns whether there were any.
    fn turn(&mut self) -> bool {
        let came = self.workers.turn();
        let now_ms = self.world.now_ms();
        for client in &mut self.clients {
            client.step(now_ms, &self.handler, self.workers.locals());
        }
        self.server.step() || came
    }

    fn check_nothing_is_left(&self) {
        let counts = self.handler.pool().expect("one server");
        assert_eq!(counts.in_use, 0, "a permit that was lost");
        assert_eq!(counts.idle, 0, "kept for ever");
        assert_eq!(
            self.handler.requests_in_progress(),
            0,
            "a request that never ends"
        );
        assert_eq!(self.world.open_count(), 0, "connections that nobody closes");
        self.workers.check_all_released();
    }

    /// The outcome of a client, and the time it took.
    pub fn outcome(&self, number: usize) -> (Outcome, u64) {
        let client = &self.clients[number];
        let outcome = client.outcome.lock().expect("a lock").clone();
        let (outcome, end_ms) = outcome.expect("it did not leave");
        (outcome, end_ms - client.plan.start_ms)
    }

    /// The notices to the operator.
    pub fn notices_so_far(&self) -> Vec<String> {
        self.notices.all()
    }
}

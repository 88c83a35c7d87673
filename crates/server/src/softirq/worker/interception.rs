//! Interception by a server in front of another: starts it before root is given up, reports readiness, and ends it
//! when the server receives an end signal or its supervisor has ended.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;

use lowroad_engine::panic_policy;
use lowroad_site::listeners::{ListenerSet, NewSockets};
use lowroad_softirq::programs::interception::{InterceptAddress, SocketInterception};
use signal_hook::consts::SIGTERM;

use crate::events::MainEvent;
use crate::level::FrontServer;
use crate::softirq::level_lock::LevelLock;
use crate::softirq::policy::AttachPolicy;

/// The byte written to standard input, a socket, when the server is ready.
pub const READY: u8 = b's';

/// An intercepted address.
#[derive(Clone, Copy, Debug)]
pub struct FrontAddress {
    /// The address that clients connect to.
    pub intercepted: SocketAddr,
    /// The workers' listen address.
    pub listen: SocketAddr,
}

/// The addresses to intercept, and the interception while it runs.
pub struct WorkerFront {
    addresses: Vec<FrontAddress>,
    policy: AttachPolicy,
    interception: Option<SocketInterception>,
    lock: LevelLock,
    drain_s: u32,
}

impl WorkerFront {
    /// Creates it for these addresses and the clients of this policy.
    pub fn new(
        addresses: Vec<FrontAddress>,
        policy: AttachPolicy,
        lock: LevelLock,
        drain_s: u32,
    ) -> WorkerFront {
        WorkerFront {
            addresses,
            policy,
            interception: None,
            lock,
            drain_s,
        }
    }
}

impl FrontServer for WorkerFront {
    fn intercept(
        &mut self,
        listeners: &mut ListenerSet,
        new_sockets: &NewSockets,
    ) -> Result<(), String> {
        let mut intercepts = Vec::new();
        for address in &self.addresses {
            let id = listeners.ids.get(&address.listen).copied();
            let sockets = new_sockets.iter().flatten();
            // One socket is enough: all workers' sockets share its port, and the kernel selects among them.
            let mut matching = sockets.filter(|(listener, _)| Some(*listener) == id);
            let (id, listener) = matching
                .next()
                .ok_or("sockets passed by a supervisor can't intercept")?;
            intercepts.push(InterceptAddress {
                address: address.intercepted,
                socket: listener.socket.as_fd(),
            });
            // The listener then stands for the address that clients connect to.
            listeners.set_address(*id, address.intercepted);
        }
        let clients = self.policy.clients();
        let result = SocketInterception::start(&intercepts, clients.denied(), clients.allowed());
        self.interception = Some(result.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn report_ready(&self, events: Sender<MainEvent>) -> std::io::Result<()> {
        let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        // Without a supervisor the write fails, which is no error.
        let _ = socket.write_all(&[READY]);
        panic_policy::start("starter", move || {
            // The read ends when the supervisor closes its end, at the latest with its process.
            while let Ok(1..) = (&socket).read(&mut [0; 16]) {}
            // The main thread may have ended.
            let _ = events.send(MainEvent::Signal(SIGTERM));
        })
    }

    fn end_interception(&mut self) {
        // Without the program the kernel gives new connections to the other server again.
        self.interception = None;
        self.lock.announce_end(self.drain_s);
    }
}

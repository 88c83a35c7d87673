//! The interception of another server's connections. It starts before root is given up, and ends when this server
//! receives a signal to end or its supervisor ends.

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
use crate::level::ConnectionInterceptor;
use crate::softirq::level_lock::LevelLock;
use crate::softirq::policy::AttachPolicy;

/// The byte that reports readiness to the supervisor, written to standard input, which is a socket.
pub const READY: u8 = b's';

/// An intercepted address.
#[derive(Clone, Copy, Debug)]
pub struct FrontAddress {
    /// The address that clients connect to.
    pub intercepted: SocketAddr,
    /// The listen address of this server's workers.
    pub listen: SocketAddr,
}

/// The addresses to intercept, and the running interception.
pub struct WorkerFront {
    addresses: Vec<FrontAddress>,
    policy: AttachPolicy,
    interception: Option<SocketInterception>,
    lock: LevelLock,
    drain_s: u32,
}

impl WorkerFront {
    /// Prepares the interception of these addresses, for the clients that the policy admits.
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

impl ConnectionInterceptor for WorkerFront {
    fn intercept(
        &mut self,
        listeners: &mut ListenerSet,
        new_sockets: &NewSockets,
    ) -> Result<(), String> {
        let mut intercepts = Vec::new();
        for address in &self.addresses {
            let id = listeners.ids.get(&address.listen).copied();
            let sockets = new_sockets.iter().flatten();
            // One socket is enough: the sockets of all workers share its port, and the kernel selects one of them.
            let mut matching = sockets.filter(|(listener, _)| Some(*listener) == id);
            let (id, listener) = matching
                .next()
                .ok_or("sockets passed by a supervisor can't intercept")?;
            intercepts.push(InterceptAddress {
                address: address.intercepted,
                socket: listener.socket.as_fd(),
            });
            // The listener is named by the address that clients connect to.
            listeners.set_address(*id, address.intercepted);
        }
        let clients = self.policy.clients();
        let result = SocketInterception::start(&intercepts, clients.denied(), clients.allowed());
        self.interception = Some(result.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn report_ready(&self, events: Sender<MainEvent>) -> std::io::Result<()> {
        let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        // The write fails if there is no supervisor, which is not an error.
        let _ = socket.write_all(&[READY]);
        panic_policy::start("starter", move || {
            // The read returns when the supervisor closes its end of the socket, at the latest when it ends.
            while let Ok(1..) = (&socket).read(&mut [0; 16]) {}
            // The send fails if the main thread has ended.
            let _ = events.send(MainEvent::Signal(SIGTERM));
        })
    }

    fn end_interception(&mut self) {
        // Dropping the interception removes the program, so that the kernel gives new connections to the other server
        // again.
        self.interception = None;
        self.lock.announce_end(self.drain_s);
    }
}

//! Interception by a server in front of another: starts it before root is given up, reports readiness, and ends it
//! when the server receives an end signal or its supervisor has ended.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;

use lowroad_engine::background;
use lowroad_site::listeners::{Listeners, Opened};
use lowroad_softirq::programs::intercept::{Interception, Taken};
use signal_hook::consts::SIGTERM;

use crate::level::FrontServer;
use crate::news::News;
use crate::softirq::hold::Held;
use crate::softirq::policy::AttachPolicy;

/// The byte written to standard input, a socket, when the server is ready.
pub const SERVES: u8 = b's';

/// An intercepted address.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The address that clients connect to.
    pub asked: SocketAddr,
    /// The workers' listen address.
    pub listen: SocketAddr,
}

/// The addresses to intercept, and the interception while it runs.
pub struct Front {
    places: Vec<Place>,
    policy: AttachPolicy,
    interception: Option<Interception>,
    held: Held,
    drain_s: u32,
}

impl Front {
    /// Creates it for these addresses and the clients of this policy.
    pub fn new(places: Vec<Place>, policy: AttachPolicy, (held, drain_s): (Held, u32)) -> Front {
        Front {
            places,
            policy,
            interception: None,
            held,
            drain_s,
        }
    }
}

impl FrontServer for Front {
    fn intercept(&mut self, listeners: &mut Listeners, opened: &Opened) -> Result<(), String> {
        let mut taken = Vec::new();
        for place in &self.places {
            let id = listeners.ids.get(&place.listen).copied();
            let sockets = opened.iter().flatten();
            // One socket is enough: all workers' sockets share its port, and the kernel selects among them.
            let mut own = sockets.filter(|(listener, _)| Some(*listener) == id);
            let (id, listener) = own
                .next()
                .ok_or("sockets of a supervisor can't intercept")?;
            taken.push(Taken {
                asked: place.asked,
                socket: listener.socket.as_fd(),
            });
            // The listener then stands for the address that clients connect to.
            listeners.stand_for(*id, place.asked);
        }
        let clients = self.policy.clients();
        let clients = (clients.denied(), clients.allowed());
        let started = Interception::start(&taken, clients).map_err(|error| error.to_string());
        self.interception = Some(started?);
        Ok(())
    }

    fn serves(&self, news: Sender<News>) -> std::io::Result<()> {
        let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        // Without a supervisor the write fails, which is no error.
        let _ = socket.write_all(&[SERVES]);
        background::start("starter", move || {
            // The read ends when the supervisor closes its end, at the latest with its process.
            while let Ok(1..) = (&socket).read(&mut [0; 16]) {}
            // The main thread may have ended.
            let _ = news.send(News::Signal(SIGTERM));
        })
    }

    fn let_go(&mut self) {
        // Without the program the kernel gives new connections to the other server again.
        self.interception = None;
        self.held.begin_end(self.drain_s);
    }
}

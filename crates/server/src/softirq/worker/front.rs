//! What a server has to do that stands in front of another: it has the kernel give it connections while it still may, says
//! when it serves, and lets go of the port when it is told to end or whoever started it is gone.

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

/// What is written to standard input, which is a socket, when it serves.
pub const SERVES: u8 = b's';

/// An address that is taken.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Where clients ask.
    pub asked: SocketAddr,
    /// Where the workers listen.
    pub listen: SocketAddr,
}

/// What is to be taken, and then the program that takes it.
pub struct Front {
    places: Vec<Place>,
    policy: AttachPolicy,
    interception: Option<Interception>,
    held: Held,
    drain_s: u32,
}

impl Front {
    /// Creates it for a server that listens at these places, for the clients of this policy.
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
            // Its port is that of all workers' sockets, of which the kernel chooses.
            let mut own = sockets.filter(|(listener, _)| Some(*listener) == id);
            let (id, listener) = own
                .next()
                .ok_or("sockets of a supervisor can't intercept")?;
            taken.push(Taken {
                asked: place.asked,
                socket: listener.socket.as_fd(),
            });
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
        // Who does not wait for it does not need it.
        let _ = socket.write_all(&[SERVES]);
        background::start("starter", move || {
            while let Ok(1..) = (&socket).read(&mut [0; 16]) {}
            // Who can't be told has ended.
            let _ = news.send(News::Signal(SIGTERM));
        })
    }

    fn let_go(&mut self) {
        self.interception = None;
        self.held.begin_end(self.drain_s);
    }
}

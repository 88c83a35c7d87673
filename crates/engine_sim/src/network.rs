//! Connections to elsewhere in the simulator, whose other end is the test, and helpers that are done
//! some time later. It knows nothing of time but what the world says.

use std::any::Any;
use std::io;

use super::Shared;
use super::world::{Happening, Name, Owner, UnderwaySend, Whose};
use lowroad_engine::background::contain;
use lowroad_engine::buffer::Buffer;
use lowroad_engine::driver::{Completion, Sent};
use lowroad_engine::helpers::QueueFull;
use lowroad_engine::network::{Connecting, Network, Remote, Socket, SourceId, Taken};
use lowroad_engine::offload::{Job, Offload};

/// One driver's.
pub struct SimNetwork {
    pub world: Shared,
    pub driver: usize,
}

impl SimNetwork {
    fn owner(&self, id: SourceId) -> Owner {
        Owner {
            driver: self.driver,
            name: Name::Elsewhere(id),
        }
    }
}

impl Network for SimNetwork {
    fn connect(&self, to: Remote<'_>, id: SourceId) -> io::Result<Connecting> {
        let mut world = self.world.lock();
        let chances = world.elsewhere.clone();
        let refused = world.dice(1000) < chances.refused;
        let connected = match to {
            Remote::Unix(_) if refused => return Err(io::ErrorKind::ConnectionRefused.into()),
            Remote::Unix(_) if world.dice(1000) < chances.queue_full => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Remote::Unix(_) => true,
            Remote::Tcp(_) | Remote::TcpFrom { .. } => false,
        };
        let id = world.add_socket(Some(self.owner(id)));
        if connected {
            world.socket(id).dialed = Some(Ok(()));
            world.dialed.push(id);
        } else if world.dice(1000) >= chances.unanswered {
            let at_ms = world.later();
            let result = match refused {
                true => Err(io::ErrorKind::ConnectionRefused),
                false => Ok(()),
            };
            world.put(at_ms, Happening::Dial(id, result));
        }
        drop(world);
        let world = self.world.clone();
        Ok(Connecting {
            socket: Box::new(SimOutgoing { id, world }),
            connected,
        })
    }

    fn adopt(&self, socket: &mut dyn Socket, id: SourceId) -> io::Result<()> {
        let socket: &mut dyn Any = socket;
        let Some(socket) = socket.downcast_mut::<SimOutgoing>() else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let mut world = self.world.lock();
        world.socket(socket.id).owner = Some(self.owner(id));
        let known = world.socket(socket.id);
        let readable = !known.incoming.is_empty() || known.ended;
        world.tell(socket.id, readable, true);
        Ok(())
    }
}

/// The driver's end of a connection to elsewhere.
struct SimOutgoing {
    id: usize,
    world: Shared,
}

impl Socket for SimOutgoing {
    fn connected(&mut self) -> io::Result<()> {
        match self.world.lock().socket(self.id).dialed {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(error.into()),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut world = self.world.lock();
        let socket = world.socket(self.id);
        if socket.broken {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let len = socket.incoming.len().min(into.len());
        for (place, byte) in into.iter_mut().zip(socket.incoming.drain(..len)) {
            *place = byte;
        }
        match len {
            0 if !socket.ended => Err(io::ErrorKind::WouldBlock.into()),
            len => Ok(len),
        }
    }

    fn send(&mut self, buffer: &mut Buffer) -> io::Result<Taken> {
        let mut world = self.world.lock();
        assert!(!world.socket(self.id).has_underway(), "one at a time");
        if world.dice(1000) < world.faults.late_sends {
            let send = UnderwaySend {
                whose: Whose::Task,
                buffer: std::mem::take(buffer),
            };
            world.send_later(self.id, send);
            return Ok(Taken::Underway);
        }
        match world.take(self.id, &buffer.pieces().concat()) {
            Sent::Bytes(len) => Ok(Taken::Bytes(len)),
            Sent::Broken => Err(io::ErrorKind::BrokenPipe.into()),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn sent(&mut self) -> Option<Completion> {
        self.world.lock().socket(self.id).completed.take()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.world.lock().socket(self.id).finished = true;
        Ok(())
    }
}

impl Drop for SimOutgoing {
    fn drop(&mut self) {
        self.world.lock().close(self.id);
    }
}

/// What is to be done is done some time later, in an order of its own.
pub struct SimHelpers(pub Shared);

impl Offload for SimHelpers {
    fn submit(&self, job: Job) -> Result<(), QueueFull> {
        let mut world = self.0.lock();
        if world.dice(1000) < world.faults.file_failures {
            return Err(QueueFull);
        }
        world.helped += 1;
        drop(world);
        self.0.later(move || contain(job));
        Ok(())
    }
}

//! Upstream connections in the simulator, with the test as their peer, and helpers that complete jobs after random
//! delays.

use std::any::Any;
use std::io;

use super::SharedWorld;
use super::sim_world::{EndRecipient, PendingSend, SimEvent, SocketName, SocketOwner};
use lowroad_engine::buffer::SendBuffer;
use lowroad_engine::driver::{SendCompletion, SendOutcome};
use lowroad_engine::helper_pool::QueueFull;
use lowroad_engine::offload::{BlockingOffload, OffloadJob};
use lowroad_engine::panic_policy::contain;
use lowroad_engine::upstream_network::{
    ConnectTarget, NetworkSocket, PendingConnect, SourceId, UpstreamNetwork, UpstreamSendOutcome,
};

/// The network of one driver.
pub struct SimNetwork {
    pub world: SharedWorld,
    pub driver: usize,
}

impl SimNetwork {
    fn owner(&self, id: SourceId) -> SocketOwner {
        SocketOwner {
            driver: self.driver,
            name: SocketName::Upstream(id),
        }
    }
}

impl UpstreamNetwork for SimNetwork {
    fn connect(&self, to: ConnectTarget<'_>, id: SourceId) -> io::Result<PendingConnect> {
        let mut world = self.world.lock();
        let chances = world.peer_behavior.clone();
        let refused = world.random_below(1000) < chances.refused;
        let connected = match to {
            ConnectTarget::Unix(_) if refused => {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            ConnectTarget::Unix(_) if world.random_below(1000) < chances.queue_full => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            ConnectTarget::Unix(_) => true,
            ConnectTarget::Tcp(_) | ConnectTarget::TcpFrom { .. } => false,
        };
        let id = world.add_socket(Some(self.owner(id)));
        if connected {
            // As in Linux, a Unix socket connects immediately.
            world.socket(id).dialed = Some(Ok(()));
            world.dialed.push(id);
        } else if world.random_below(1000) >= chances.unanswered {
            // Otherwise the connection is never established: only the caller's timeout ends the attempt.
            let due_ms = world.random_due_ms();
            let result = match refused {
                true => Err(io::ErrorKind::ConnectionRefused),
                false => Ok(()),
            };
            world.schedule_at_ms(due_ms, SimEvent::Dial(id, result));
        }
        drop(world);
        let world = self.world.clone();
        Ok(PendingConnect {
            socket: Box::new(SimUpstreamSocket { id, world }),
            connected,
        })
    }

    fn adopt(&self, socket: &mut dyn NetworkSocket, id: SourceId) -> io::Result<()> {
        let socket: &mut dyn Any = socket;
        let Some(socket) = socket.downcast_mut::<SimUpstreamSocket>() else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let mut world = self.world.lock();
        world.socket(socket.id).owner = Some(self.owner(id));
        let connection = world.socket(socket.id);
        let readable = !connection.incoming.is_empty() || connection.ended;
        // The current readiness is reported again, as by epoll_ctl(2).
        world.report(socket.id, readable, true);
        Ok(())
    }
}

/// The driver's end of an upstream connection.
struct SimUpstreamSocket {
    id: usize,
    world: SharedWorld,
}

impl NetworkSocket for SimUpstreamSocket {
    fn connected(&mut self) -> io::Result<()> {
        match self.world.lock().socket(self.id).dialed {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(error.into()),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut world = self.world.lock();
        let socket = world.socket(self.id);
        if socket.broken {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let len = socket.incoming.len().min(buffer.len());
        for (target, byte) in buffer.iter_mut().zip(socket.incoming.drain(..len)) {
            *target = byte;
        }
        match len {
            0 if !socket.ended => Err(io::ErrorKind::WouldBlock.into()),
            len => Ok(len),
        }
    }

    fn send(&mut self, buffer: &mut SendBuffer) -> io::Result<UpstreamSendOutcome> {
        let mut world = self.world.lock();
        assert!(!world.socket(self.id).has_pending_send(), "one at a time");
        if world.random_below(1000) < world.faults.late_sends {
            let send = PendingSend {
                recipient: EndRecipient::Task,
                buffer: std::mem::take(buffer),
            };
            world.send_later(self.id, send);
            return Ok(UpstreamSendOutcome::Underway);
        }
        match world.accept_bytes(self.id, &buffer.pieces().concat()) {
            SendOutcome::Bytes(len) => Ok(UpstreamSendOutcome::Bytes(len)),
            SendOutcome::Broken => Err(io::ErrorKind::BrokenPipe.into()),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn sent(&mut self) -> Option<SendCompletion> {
        self.world.lock().socket(self.id).completed.take()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.world.lock().socket(self.id).finished = true;
        Ok(())
    }
}

impl Drop for SimUpstreamSocket {
    fn drop(&mut self) {
        self.world.lock().close(self.id);
    }
}

/// Runs jobs after random delays, so in random order.
pub struct SimHelpers(pub SharedWorld);

impl BlockingOffload for SimHelpers {
    fn submit(&self, job: OffloadJob) -> Result<(), QueueFull> {
        let mut world = self.0.lock();
        if world.random_below(1000) < world.faults.file_failures {
            return Err(QueueFull);
        }
        world.helper_jobs += 1;
        drop(world);
        // As in the real pool, a panic ends only its job.
        self.0.call_later(move || contain(job));
        Ok(())
    }
}

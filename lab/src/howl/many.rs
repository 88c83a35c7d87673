//! Persistent connections with `epoll_wait`, `read` and `write` per request: the upper bound for keep-alive.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::REQUEST_MAX;
use super::one::{is_shortage, is_transient};
use super::site::{HowlReply, HowlSite};

/// Maximum number of events of one `epoll_wait`.
const EVENTS: usize = 256;

/// The listener's key in events; the key of a connection is its descriptor number.
const LISTENER: u64 = u64::MAX;

/// One connection.
struct HowlConnection {
    socket: OwnedFd,
    /// Replies that are not completely sent.
    replies: VecDeque<PendingReply>,
    close: bool,
}

/// A partly sent reply; its bytes from `sent_len` on are unsent.
struct PendingReply {
    reply: Arc<HowlReply>,
    head_only: bool,
    sent_len: usize,
}

/// The next operation on a connection.
#[derive(PartialEq)]
enum ConnectionStep {
    Read,
    Write,
    Close,
}

/// Accepts and serves connections without end.
pub fn serve(listener: &OwnedFd, site: &HowlSite) -> io::Result<()> {
    // The listener is non-blocking, since another worker may already have accepted the connection that an event
    // announced.
    rustix::io::ioctl_fionbio(listener, true)?;
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(
        &poll,
        listener,
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )?;
    let mut connections: Vec<Option<HowlConnection>> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS);
    let mut buffer = vec![0; REQUEST_MAX];
    loop {
        events.clear();
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            match event.data.u64() {
                LISTENER => accept(listener, &poll, &mut connections)?,
                number => {
                    let index = usize::try_from(number).expect("a descriptor's number");
                    handle_event(index, &poll, &mut connections, site, &mut buffer)?;
                }
            }
        }
    }
}

/// Accepts all waiting connections.
fn accept(
    listener: &OwnedFd,
    poll: &OwnedFd,
    connections: &mut Vec<Option<HowlConnection>>,
) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match rustix::net::accept_with(listener, flags) {
            Ok(socket) => socket,
            Err(Errno::AGAIN) => return Ok(()),
            // Established connections continue; the accept queue is checked again at the listener's next event.
            Err(error) if is_shortage(error) => return Ok(()),
            Err(error) if is_transient(error) => continue,
            Err(error) => return Err(error.into()),
        };
        // Descriptor numbers are small and dense, so they index a vector without hashing.
        let index = usize::try_from(socket.as_raw_fd()).expect("not negative");
        epoll::add(
            poll,
            &socket,
            EventData::new_u64(index as u64),
            EventFlags::IN,
        )?;
        if connections.len() <= index {
            connections.resize_with(index + 1, || None);
        }
        connections[index] = Some(HowlConnection {
            socket,
            replies: VecDeque::new(),
            close: false,
        });
    }
}

/// Handles an event of a connection, and registers the events that it needs next.
fn handle_event(
    index: usize,
    poll: &OwnedFd,
    connections: &mut [Option<HowlConnection>],
    site: &HowlSite,
    buffer: &mut [u8],
) -> io::Result<()> {
    let Some(connection) = &mut connections[index] else {
        return Ok(());
    };
    let wrote_before = !connection.replies.is_empty();
    let next = if wrote_before {
        connection.write()
    } else {
        connection.read(site, buffer)
    };
    let flags = match next {
        ConnectionStep::Close => {
            // The kernel removes a closed socket from the epoll instance.
            connections[index] = None;
            return Ok(());
        }
        // epoll_ctl is called only if the direction changes; most requests need no call.
        ConnectionStep::Write if !wrote_before => EventFlags::OUT,
        ConnectionStep::Read if wrote_before => EventFlags::IN,
        _ => return Ok(()),
    };
    Ok(epoll::modify(
        poll,
        &connection.socket,
        EventData::new_u64(index as u64),
        flags,
    )?)
}

impl HowlConnection {
    /// Reads input, which should consist of complete requests, and queues the replies.
    fn read(&mut self, site: &HowlSite, buffer: &mut [u8]) -> ConnectionStep {
        let len = match rustix::io::read(self.socket.as_fd(), &mut *buffer) {
            Ok(0) => return ConnectionStep::Close,
            Ok(len) => len,
            Err(Errno::AGAIN | Errno::INTR) => return ConnectionStep::Read,
            Err(_) => return ConnectionStep::Close,
        };
        let mut received = &buffer[..len];
        // A read may bring several pipelined requests.
        while !received.is_empty() && !self.close {
            let answer = site.answer(received);
            self.close = answer.close;
            self.replies.push_back(PendingReply {
                reply: Arc::clone(answer.reply),
                head_only: answer.head_only,
                sent_len: 0,
            });
            received = &received[answer.used_len..];
        }
        self.write()
    }

    fn write(&mut self) -> ConnectionStep {
        while let Some(reply) = self.replies.front_mut() {
            let rest = &reply.reply.bytes(reply.head_only)[reply.sent_len..];
            match rustix::io::write(&self.socket, rest) {
                Ok(len) if len == rest.len() => {
                    self.replies.pop_front();
                }
                Ok(len) => reply.sent_len += len,
                Err(Errno::INTR) => {}
                // The socket is full: the rest waits for EPOLLOUT.
                Err(Errno::AGAIN) => return ConnectionStep::Write,
                Err(_) => return ConnectionStep::Close,
            }
        }
        if self.close {
            ConnectionStep::Close
        } else {
            ConnectionStep::Read
        }
    }
}

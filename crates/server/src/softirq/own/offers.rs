//! Between our own server and the daemon of its level: one socket, on which the server tells that something
//! has changed, and the daemon asks for answers without a connection. Each packet is one message. It knows
//! nothing of how answers are made, or what becomes of them.

use std::collections::HashMap;
use std::io::{Error, stdin};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lowroad_engine::worker::Message;
use lowroad_site::answer::{Command, Offer};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

use crate::limits;
use crate::running::{Running, lock};

/// The server's words: something has changed; that, and from now on not all changes will be told.
const CHANGED: u8 = b'c';
const BRIEF: u8 = b'b';
/// What was purged: this, and patterns, one on each line.
const PURGED: u8 = b'p';
/// An answer: this, the question's number, and the bytes; none: it has to be asked for as others do.
const ANSWER: u8 = b'a';
const NUMBER_LEN: usize = 8;
/// Of a question: its number, port and address, and the request.
const QUESTION_HEAD_LEN: usize = NUMBER_LEN + 2 + 16;
/// No message is longer.
const MESSAGE_LEN_MAX: usize = 32 * 1024;

/// A server that does not answer within this time is asked as others do.
const PATIENCE: Duration = Duration::from_millis(500);

/// Both ends; nobody else inherits them.
///
/// # Errors
/// When descriptors run out.
pub fn pair() -> Result<(OwnedFd, OwnedFd), Error> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// How a message was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It will be heard.
    Yes,
    /// The other has not heard enough of the others yet.
    NotYet,
    /// Nobody hears any more.
    Never,
}

/// Tells the daemon.
pub fn tell(to: impl AsFd, word: &Word) -> Told {
    match word {
        Word::Changed => say(to, &[CHANGED]),
        Word::Brief => say(to, &[BRIEF]),
        Word::Purged(patterns) => say(to, &[&[PURGED], patterns.as_bytes()].concat()),
    }
}

fn say(to: impl AsFd, message: &[u8]) -> Told {
    match send(to, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(_) => Told::Yes,
        Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => Told::NotYet,
        Err(_) => Told::Never,
    }
}

/// The next message; `None`: the other end is closed.
fn hear(from: impl AsFd, buffer: &mut [u8]) -> Option<&[u8]> {
    loop {
        match recv(&from, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => return None,
            Ok((len, _)) => return Some(&buffer[..len]),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// The server's end: has questions answered by its workers until the other is closed.
pub fn answer(socket: &Arc<OwnedFd>, running: &Mutex<Running>) {
    let mut buffer = vec![0; MESSAGE_LEN_MAX];
    while let Some(question) = hear(&**socket, &mut buffer) {
        let Some((number, local, head)) = read_question(question) else {
            continue;
        };
        let socket = socket.clone();
        let reply = move |answer: Option<&[u8]>| {
            // One that is not told asks as others do.
            say(
                &*socket,
                &written_answer(number, answer.unwrap_or_default()),
            );
        };
        let running = lock(running);
        let Some(listener) = running.listeners.at(local) else {
            reply(None);
            continue;
        };
        let offer = Offer {
            head: head.to_vec(),
            limits: limits::settings(&running.config, &running.listeners, running.fd_limit).http,
            listener,
            peer: local.ip(),
            reply: Box::new(reply),
        };
        // All have the same in memory.
        let workers = u64::try_from(running.workers.len().max(1)).unwrap_or(1);
        let worker = usize::try_from(number % workers).unwrap_or(0);
        if let Some(worker) = running.workers.get(worker) {
            worker.post(Message::Command(Command::Offer(Box::new(offer))));
        }
    }
}

/// The daemon's end, which is its standard input.
pub struct Questions {
    number_next: AtomicU64,
    waiting: Mutex<HashMap<u64, Sender<Vec<u8>>>>,
}

/// What the server has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// Something has changed.
    Changed,
    /// What these patterns mean, one on each line.
    Purged(String),
    /// The same, and not all changes will be told.
    Brief,
}

impl Questions {
    /// Answers to an earlier daemon have other numbers.
    pub fn new() -> Questions {
        Questions {
            number_next: AtomicU64::new(u64::from(std::process::id()) << 32),
            waiting: Mutex::default(),
        }
    }

    /// What the server answers to a request at this address, if it does.
    pub fn ask(&self, local: SocketAddr, head: &[u8]) -> Option<Vec<u8>> {
        let number = self.number_next.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = channel();
        self.waiting().insert(number, tell);
        let question = written_question(number, local, head);
        let answer = match say(stdin(), &question) {
            Told::Yes => told.recv_timeout(PATIENCE).ok(),
            Told::NotYet | Told::Never => None,
        };
        self.waiting().remove(&number);
        answer.filter(|bytes| !bytes.is_empty())
    }

    /// The server's next word; answers that come before go to who asked. `None`: the server has ended.
    pub fn next_word(&self, buffer: &mut Vec<u8>) -> Option<Word> {
        buffer.resize(MESSAGE_LEN_MAX, 0);
        loop {
            match hear(stdin(), buffer)? {
                [CHANGED] => return Some(Word::Changed),
                [BRIEF] => return Some(Word::Brief),
                [PURGED, patterns @ ..] => {
                    let patterns = String::from_utf8_lossy(patterns);
                    return Some(Word::Purged(patterns.into_owned()));
                }
                message => self.take(message),
            }
        }
    }

    fn take(&self, message: &[u8]) {
        let Some((number, bytes)) = read_answer(message) else {
            return;
        };
        if let Some(waits) = self.waiting().remove(&number) {
            // It may have lost its patience.
            let _ = waits.send(bytes.to_vec());
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Sender<Vec<u8>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn written_question(number: u64, local: SocketAddr, head: &[u8]) -> Vec<u8> {
    let address = match local.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut message = number.to_le_bytes().to_vec();
    message.extend_from_slice(&local.port().to_be_bytes());
    message.extend_from_slice(&address.octets());
    message.extend_from_slice(head);
    message
}

fn read_question(message: &[u8]) -> Option<(u64, SocketAddr, &[u8])> {
    let (begin, head) = message.split_at_checked(QUESTION_HEAD_LEN)?;
    let (number, rest) = begin.split_first_chunk::<NUMBER_LEN>()?;
    let (port, address) = rest.split_first_chunk::<2>()?;
    let address: [u8; 16] = address.try_into().ok()?;
    let address = Ipv6Addr::from(address).to_canonical();
    let local = SocketAddr::new(address, u16::from_be_bytes(*port));
    Some((u64::from_le_bytes(*number), local, head))
}

fn written_answer(number: u64, bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![ANSWER];
    message.extend_from_slice(&number.to_le_bytes());
    message.extend_from_slice(bytes);
    message
}

fn read_answer(message: &[u8]) -> Option<(u64, &[u8])> {
    let (number, bytes) = message.strip_prefix(&[ANSWER])?.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_are_read_as_they_were_written() {
        for local in ["192.0.2.1:80", "[2001:db8::1]:8080"] {
            let local: SocketAddr = local.parse().expect("an address");
            let question = written_question(7 << 32, local, b"GET /");
            let read = read_question(&question);
            assert_eq!(read, Some((7 << 32, local, b"GET /".as_slice())));
            assert_eq!(read_question(&question[..25]), None);
        }
        let answer = written_answer(9, b"bytes");
        assert_eq!(read_answer(&answer), Some((9, b"bytes".as_slice())));
        assert_eq!(read_answer(&answer[..8]), None);
        assert_eq!(read_answer(b"c"), None);
    }

    #[test]
    fn nobody_waits_for_one_that_does_not_hear() {
        let (ours, theirs) = pair().expect("sockets");
        let mut count = 0;
        while tell(&ours, &Word::Changed) == Told::Yes {
            count += 1;
        }
        assert!(count > 10, "{count}");
        assert_eq!(tell(&ours, &Word::Changed), Told::NotYet);
        let mut buffer = [0; 16];
        assert_eq!(hear(&theirs, &mut buffer), Some([CHANGED].as_slice()));
        drop(theirs);
        assert_eq!(tell(&ours, &Word::Brief), Told::Never);
    }

    #[test]
    fn answers_go_to_who_asked() {
        let asks = Questions::new();
        let (tell, told) = channel();
        asks.waiting().insert(5, tell);
        asks.take(&written_answer(4, b"of another"));
        asks.take(&written_answer(5, b"ours"));
        asks.take(&written_answer(5, b"again"));
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [b"ours".to_vec()]);
    }
}

//! What the server and the process that starts programs say to each other: each message is one packet, whose numbers are
//! in the machine's byte order. Both ends are of one program, so what can't be read is a mistake, and ends the link.

use std::ffi::OsStr;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lowroad_children::limits::Limits;
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Rlimit, Signal};

/// How much of a message may wait. The system may allow less; longer environments are refused.
const ROOM_LEN: usize = 1 << 20;
/// The longest message.
pub const MESSAGE_LEN_MAX: usize = ROOM_LEN;

/// A program to be started.
pub struct Order {
    /// Its file, which is executable.
    pub file: PathBuf,
    /// The folder that it runs in.
    pub folder: PathBuf,
    /// Names and values of its environment, which has nothing else.
    pub environment: Environment,
    /// What it may use.
    pub limits: Limits,
    /// Its standard input, output and error.
    pub ends: [OwnedFd; 3],
}

/// Names and values, one after the other, as they are sent.
#[derive(Default)]
pub struct Environment(Vec<u8>);

impl Environment {
    /// Puts a variable in.
    pub fn put(&mut self, name: &[u8], value: &[u8]) {
        put_bytes(&mut self.0, name);
        put_bytes(&mut self.0, value);
    }
}

/// What the server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToSpawner {
    /// Send this to a program's group.
    Signal(u64, Signal),
    /// A program is of no interest any more; kill what is left of its group, or not.
    Release(u64, bool),
}

/// What becomes of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It can't be started, with this error number.
    NotStarted(i32),
    /// It ended with this status.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
}

/// What the server hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToServer {
    /// Of which program.
    pub id: u64,
    /// What became of it.
    pub news: News,
}

/// What the process that starts programs hears.
pub enum Heard {
    /// Start this program, to be called by this number.
    Start(u64, Order),
    /// An order for this number without its pipes, since this process may be out of descriptors.
    Incomplete(u64),
    /// Something about one that was started.
    Of(ToSpawner),
}

/// Lets a socket hold what may have to wait.
pub fn make_room(socket: &OwnedFd) -> rustix::io::Result<()> {
    set_socket_send_buffer_size(socket, ROOM_LEN)?;
    set_socket_recv_buffer_size(socket, ROOM_LEN)
}

/// Sends an order; waits for room.
///
/// # Errors
/// `MSGSIZE`: the order is longer than the peer accepts.
pub fn send_order(socket: &OwnedFd, id: u64, order: &Order) -> rustix::io::Result<()> {
    let mut bytes = Vec::with_capacity(256 + order.environment.0.len());
    bytes.push(b'o');
    bytes.extend_from_slice(&id.to_ne_bytes());
    put_limits(&mut bytes, &order.limits);
    put_bytes(&mut bytes, order.file.as_os_str().as_bytes());
    put_bytes(&mut bytes, order.folder.as_os_str().as_bytes());
    bytes.extend_from_slice(&order.environment.0);
    if bytes.len() > MESSAGE_LEN_MAX {
        return Err(Errno::MSGSIZE);
    }
    let ends: [BorrowedFd<'_>; 3] = [0, 1, 2].map(|at: usize| order.ends[at].as_fd());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&ends));
    send_packet(socket, &bytes, &mut control, true)
}

/// Sends something short; `waits` = for room, else `AGAIN` says that there is none.
pub fn send(socket: &OwnedFd, message: ToSpawner, waits: bool) -> rustix::io::Result<()> {
    let (kind, id, number) = match message {
        ToSpawner::Signal(id, signal) => (b's', id, signal.as_raw()),
        ToSpawner::Release(id, kill) => (b'r', id, i32::from(kill)),
    };
    send_packet(
        socket,
        &short(kind, id, number),
        &mut Default::default(),
        waits,
    )
}

/// Tells the server; waits for room.
pub fn send_news(socket: &OwnedFd, ToServer { id, news }: ToServer) -> rustix::io::Result<()> {
    let (kind, number) = match news {
        News::NotStarted(error) => (b'n', error),
        News::Exited(status) => (b'e', status),
        News::Signaled(signal) => (b'k', signal),
    };
    send_packet(
        socket,
        &short(kind, id, number),
        &mut Default::default(),
        true,
    )
}

/// Waits for news. `None` if there will be none.
pub fn receive(socket: &OwnedFd) -> Option<ToServer> {
    let mut bytes = [0; SHORT_LEN];
    let len = loop {
        match rustix::net::recv(socket, &mut bytes[..], RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            received => break received.ok()?.0,
        }
    };
    let (kind, id, number) = read_short(bytes.get(..len)?)?;
    let news = match kind {
        b'n' => News::NotStarted(number),
        b'e' => News::Exited(number),
        b'k' => News::Signaled(number),
        _ => return None,
    };
    Some(ToServer { id, news })
}

/// Takes a message that is there. `None` if there will be no more.
pub fn hear(socket: &OwnedFd, buffer: &mut [u8]) -> Option<Heard> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(buffer)];
        match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received.ok()?,
        }
    };
    if received.flags.contains(ReturnFlags::TRUNC) {
        return None;
    }
    let mut ends = Vec::with_capacity(3);
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            ends.extend(descriptors);
        }
    }
    let bytes = buffer.get(..received.bytes)?;
    match bytes.first()? {
        b'o' => match ends.try_into() {
            Ok(ends) => order(&bytes[1..], ends),
            Err(_) => take_u64(&mut &bytes[1..]).map(Heard::Incomplete),
        },
        _ => {
            let (kind, id, number) = read_short(bytes)?;
            Some(Heard::Of(match kind {
                b's' => ToSpawner::Signal(id, Signal::from_named_raw(number)?),
                b'r' => ToSpawner::Release(id, number != 0),
                _ => return None,
            }))
        }
    }
}

impl Order {
    /// The variables of the environment.
    pub fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let mut rest = &self.environment.0[..];
        std::iter::from_fn(move || {
            let (name, value) = (take_bytes(&mut rest)?, take_bytes(&mut rest)?);
            Some((OsStr::from_bytes(name), OsStr::from_bytes(value)))
        })
    }
}

fn order(mut rest: &[u8], ends: [OwnedFd; 3]) -> Option<Heard> {
    let id = take_u64(&mut rest)?;
    let limits = take_limits(&mut rest)?;
    let path = |bytes: &[u8]| Path::new(OsStr::from_bytes(bytes)).to_path_buf();
    let (file, folder) = (take_bytes(&mut rest)?, take_bytes(&mut rest)?);
    let order = Order {
        file: path(file),
        folder: path(folder),
        environment: Environment(rest.to_vec()),
        limits,
        ends,
    };
    Some(Heard::Start(id, order))
}

/// Kind, number of the program, and a number.
const SHORT_LEN: usize = 1 + 8 + 4;

fn short(kind: u8, id: u64, number: i32) -> [u8; SHORT_LEN] {
    let mut bytes = [kind; SHORT_LEN];
    bytes[1..9].copy_from_slice(&id.to_ne_bytes());
    bytes[9..].copy_from_slice(&number.to_ne_bytes());
    bytes
}

fn read_short(bytes: &[u8]) -> Option<(u8, u64, i32)> {
    let (kind, rest) = bytes.split_first()?;
    let (id, number) = rest.split_first_chunk()?;
    let number = i32::from_ne_bytes(number.try_into().ok()?);
    Some((*kind, u64::from_ne_bytes(*id), number))
}

fn put_limits(out: &mut Vec<u8>, limits: &Limits) {
    let Limits {
        memory_len_max,
        cpu_s_max,
        processes_max,
        user,
        descriptors,
        ends_with_parent,
    } = *limits;
    let (uid, gid) = user.unwrap_or_default();
    let number = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    let (soft, hard) = descriptors.map_or((0, 0), |it| (number(it.current), number(it.maximum)));
    let numbers = [
        memory_len_max,
        cpu_s_max,
        processes_max,
        user.is_some().into(),
        uid.into(),
        gid.into(),
        descriptors.is_some().into(),
        soft,
        hard,
        ends_with_parent.into(),
    ];
    for number in numbers {
        out.extend_from_slice(&number.to_ne_bytes());
    }
}

fn take_limits(rest: &mut &[u8]) -> Option<Limits> {
    let mut number = || take_u64(rest);
    let (memory_len_max, cpu_s_max, processes_max) = (number()?, number()?, number()?);
    let (is_other, uid, gid) = (number()? != 0, number()?, number()?);
    let user = (u32::try_from(uid).ok()?, u32::try_from(gid).ok()?);
    let (has_own, soft, hard) = (number()? != 0, number()?, number()?);
    let limit = |number: u64| (number != u64::MAX).then_some(number);
    let descriptors = Rlimit {
        current: limit(soft),
        maximum: limit(hard),
    };
    Some(Limits {
        memory_len_max,
        cpu_s_max,
        processes_max,
        user: is_other.then_some(user),
        descriptors: has_own.then_some(descriptors),
        ends_with_parent: number()? != 0,
    })
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_ne_bytes());
    out.extend_from_slice(bytes);
}

fn take_bytes<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let len = usize::try_from(take_u64(rest)?).ok()?;
    let (bytes, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(bytes)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u64::from_ne_bytes(*number))
}

fn send_packet(
    socket: &OwnedFd,
    bytes: &[u8],
    control: &mut SendAncillaryBuffer<'_, '_, '_>,
    waits: bool,
) -> rustix::io::Result<()> {
    let mut flags = SendFlags::NOSIGNAL;
    flags.set(SendFlags::DONTWAIT, !waits);
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], control, flags) {
            Err(Errno::INTR) => {}
            sent => return sent.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn what_is_sent_is_heard() {
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, other) = pair.expect("a pair");
        let mut environment = Environment::default();
        environment.put(b"A", b"one two");
        environment.put(b"B", b"");
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").expect("a file"));
        let limits = Limits {
            memory_len_max: 1,
            cpu_s_max: 2,
            processes_max: 3,
            user: Some((4, 5)),
            descriptors: Some(Rlimit {
                current: Some(6),
                maximum: None,
            }),
            ends_with_parent: true,
        };
        let sent = Order {
            file: "/a/b".into(),
            folder: "/a".into(),
            environment,
            limits,
            ends: [null(), null(), null()],
        };
        send_order(&ours, 7, &sent).expect("room");
        send(&ours, ToSpawner::Signal(8, Signal::TERM), false).expect("room");
        send(&ours, ToSpawner::Release(9, true), false).expect("room");
        let mut buffer = vec![0; 4096];
        let Some(Heard::Start(7, heard)) = hear(&other, &mut buffer) else {
            panic!("no order");
        };
        assert_eq!((&heard.file, &heard.folder), (&sent.file, &sent.folder));
        let variables: Vec<_> = heard.variables().collect();
        assert_eq!(variables, sent.variables().collect::<Vec<_>>());
        assert_eq!(variables.len(), 2);
        assert_eq!(heard.limits, limits);
        for want in [
            ToSpawner::Signal(8, Signal::TERM),
            ToSpawner::Release(9, true),
        ] {
            assert!(matches!(hear(&other, &mut buffer), Some(Heard::Of(heard)) if heard == want));
        }
        for news in [News::NotStarted(2), News::Exited(3), News::Signaled(9)] {
            send_news(&other, ToServer { id: 1, news }).expect("room");
            assert_eq!(receive(&ours), Some(ToServer { id: 1, news }));
        }
        drop(ours);
        assert!(hear(&other, &mut buffer).is_none());
    }

    /// A message that can't be sent or received whole is refused alone; the link stays usable.
    #[test]
    fn an_order_that_is_too_long_or_incomplete_ends_nothing() {
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, other) = pair.expect("a pair");
        make_room(&ours).expect("room");
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").expect("a file"));
        let mut environment = Environment::default();
        environment.put(b"A", &vec![b'x'; MESSAGE_LEN_MAX]);
        let long = Order {
            file: "/a/b".into(),
            folder: "/a".into(),
            environment,
            limits: Limits {
                memory_len_max: 1,
                cpu_s_max: 2,
                processes_max: 3,
                user: None,
                descriptors: None,
                ends_with_parent: true,
            },
            ends: [null(), null(), null()],
        };
        assert_eq!(send_order(&ours, 7, &long), Err(Errno::MSGSIZE));
        // The form in which it arrives when there is no room for descriptors.
        let mut bytes = vec![b'o'];
        bytes.extend_from_slice(&8_u64.to_ne_bytes());
        send_packet(&ours, &bytes, &mut Default::default(), true).expect("room");
        let mut buffer = vec![0; 4096];
        assert!(matches!(
            hear(&other, &mut buffer),
            Some(Heard::Incomplete(8))
        ));
        send(&ours, ToSpawner::Release(9, true), false).expect("room");
        assert!(matches!(hear(&other, &mut buffer), Some(Heard::Of(_))));
    }
}

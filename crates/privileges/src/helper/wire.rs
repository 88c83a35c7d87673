//! What the server and the helper with root's rights say to each other: a question and an answer, each one packet. A question
//! is a purpose and a path. An answer is a descriptor, or the reason why there is none.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The longest packet: a path has 4,096 bytes at most (PATH_MAX).
const PACKET_LEN_MAX: usize = 4096 + 512;
/// An answer takes a look at a few files. One that takes longer is given up, and the helper with it.
const ANSWER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To be read.
    Read,
    /// To be appended to, and created where it is missing.
    Append,
}

/// Asks for a descriptor, and waits for the answer: a file, or the reason why there is none.
///
/// # Errors
/// The helper is gone, or does not answer.
pub fn ask(
    socket: &OwnedFd,
    purpose: Purpose,
    path: &Path,
) -> rustix::io::Result<Result<File, String>> {
    set_socket_timeout(socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
    let kind = match purpose {
        Purpose::Read => b'r',
        Purpose::Append => b'a',
    };
    send(socket, kind, path.as_os_str().as_bytes(), None)?;
    let (kind, text, file) = receive(socket)?.ok_or(Errno::PIPE)?;
    match (kind, file) {
        (b'o', Some(file)) => Ok(Ok(File::from(file))),
        (b'e', None) => Ok(Err(String::from_utf8_lossy(&text).into_owned())),
        _ => Err(Errno::PROTO),
    }
}

/// Waits for a question. `None` once the server is gone.
pub fn next_question(socket: &OwnedFd) -> Option<(Purpose, PathBuf)> {
    let (kind, path, _) = receive(socket).ok()??;
    let purpose = match kind {
        b'r' => Purpose::Read,
        b'a' => Purpose::Append,
        _ => return None,
    };
    Some((purpose, PathBuf::from(OsStr::from_bytes(&path))))
}

/// Answers a question. `None` once the server is gone.
pub fn answer(socket: &OwnedFd, answer: Result<&File, &str>) -> Option<()> {
    match answer {
        Ok(file) => send(socket, b'o', b"", Some(file)).ok(),
        Err(reason) => {
            let len = reason.len().min(PACKET_LEN_MAX - 1);
            send(socket, b'e', &reason.as_bytes()[..len], None).ok()
        }
    }
}

fn send(socket: &OwnedFd, kind: u8, bytes: &[u8], file: Option<&File>) -> rustix::io::Result<()> {
    let files = file.map(|file| [file.as_fd()]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if let Some(files) = &files {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let kind = [kind];
    let parts = [IoSlice::new(&kind), IoSlice::new(bytes)];
    loop {
        match sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return sent.map(|_| ()),
        }
    }
}

/// A packet: its kind, its content, and the descriptor that came with it. `None` at the end.
type Packet = Option<(u8, Vec<u8>, Option<OwnedFd>)>;

fn receive(socket: &OwnedFd) -> rustix::io::Result<Packet> {
    let mut buffer = [0; PACKET_LEN_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut buffer)];
        match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    let mut file = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            file = descriptors.last();
        }
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE);
    }
    let content = buffer.get(1..received.bytes).unwrap_or_default().to_vec();
    Ok((received.bytes > 0).then(|| (buffer[0], content, file)))
}

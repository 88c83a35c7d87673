//! Messages between the server and its children over two kinds of sockets, with a common length limit and error type.
//!
//! `PacketChannel` is a SOCK_SEQPACKET socket. It preserves message boundaries, passes descriptors along with messages,
//! and accepts a message completely or not at all, so that threads share it without a lock. The socket's buffer limits
//! the length of messages. A [`stream`] carries longer messages, each with a length prefix. Both ends run the same
//! program, so messages need no version.

#[cfg(feature = "messages")]
mod content;
#[cfg(feature = "messages")]
pub mod stream;

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{
    Timeout, set_socket_recv_buffer_size, set_socket_send_buffer_size, set_socket_timeout,
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recv, recvmsg, sendmsg,
    shutdown, socketpair,
};

#[cfg(feature = "messages")]
pub use self::content::{decode, encode};

/// Maximum length of a message in bytes: more than a module's buffered response with its metadata.
pub const MESSAGE_LEN_MAX: usize = 64 << 20;
/// Requested buffer size of a channel in bytes. The system may permit less; longer messages are rejected.
const SOCKET_BUFFER_LEN: usize = 1 << 20;
/// Maximum number of descriptors in a message; further ones are closed.
const DESCRIPTORS_MAX: usize = 3;

/// The reason for which a message was not sent or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// The other process has closed its end.
    Closed,
    /// The message exceeds the socket's buffer or [`MESSAGE_LEN_MAX`].
    TooLong,
    /// The socket has no room, or no message arrived in time.
    NotReady,
    /// The bytes are not a message of this program.
    Malformed,
    /// Another system error.
    System(Errno),
}

impl From<Errno> for MessageError {
    fn from(error: Errno) -> MessageError {
        match error {
            Errno::PIPE | Errno::CONNRESET => MessageError::Closed,
            Errno::MSGSIZE => MessageError::TooLong,
            Errno::AGAIN => MessageError::NotReady,
            error => MessageError::System(error),
        }
    }
}

impl From<MessageError> for io::Error {
    fn from(error: MessageError) -> io::Error {
        match error {
            MessageError::Closed => Errno::PIPE.into(),
            MessageError::TooLong => Errno::MSGSIZE.into(),
            MessageError::NotReady => Errno::AGAIN.into(),
            MessageError::Malformed => {
                io::Error::new(io::ErrorKind::InvalidData, "malformed message")
            }
            MessageError::System(error) => error.into(),
        }
    }
}

/// The behaviour of a sender while the socket's buffer is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// Wait for room.
    Wait,
    /// Return [`MessageError::NotReady`].
    Try,
}

/// One end of a packet socket.
#[derive(Debug)]
pub struct PacketChannel(OwnedFd);

impl From<OwnedFd> for PacketChannel {
    fn from(socket: OwnedFd) -> PacketChannel {
        PacketChannel(socket)
    }
}

impl AsFd for PacketChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl PacketChannel {
    /// Creates a channel, and the socket at its other end. Other children inherit neither of them.
    ///
    /// # Errors
    /// If no descriptors are left.
    pub fn pair() -> io::Result<(PacketChannel, OwnedFd)> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (own_end, peer_end) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        // The send buffer also limits the length of a message.
        set_socket_send_buffer_size(&own_end, SOCKET_BUFFER_LEN)?;
        set_socket_recv_buffer_size(&own_end, SOCKET_BUFFER_LEN)?;
        Ok((PacketChannel(own_end), peer_end))
    }

    /// The channel to the parent process, in a child that has it as standard input.
    ///
    /// # Errors
    /// If no descriptors are left.
    pub fn to_parent() -> io::Result<PacketChannel> {
        Ok(PacketChannel(io::stdin().as_fd().try_clone_to_owned()?))
    }

    /// Bounds the waiting time of `receive`.
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn set_receive_timeout(&self, timeout: Duration) -> io::Result<()> {
        Ok(set_socket_timeout(&self.0, Timeout::Recv, Some(timeout))?)
    }

    /// Bounds the waiting time of `send` with [`SendMode::Wait`].
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn set_send_timeout(&self, timeout: Duration) -> io::Result<()> {
        Ok(set_socket_timeout(&self.0, Timeout::Send, Some(timeout))?)
    }

    /// Shuts the connection down for all processes that hold either end.
    pub fn close(&self) {
        // Fails only if the other process has closed its end.
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    /// Sends a message with descriptors.
    ///
    /// # Errors
    /// [`MessageError`] if the message was not sent.
    pub fn send(
        &self,
        content: &[u8],
        descriptors: &[BorrowedFd<'_>],
        mode: SendMode,
    ) -> Result<(), MessageError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        // A closed peer is an error here instead of a SIGPIPE.
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::DONTWAIT, mode == SendMode::Try);
        loop {
            match sendmsg(&self.0, &[IoSlice::new(content)], &mut control, flags) {
                Err(Errno::INTR) => {}
                sent => return Ok(sent.map(drop)?),
            }
        }
    }

    /// Waits for a message, stores its content in `buffer`, and returns its descriptors. Some of these are missing if
    /// this process has reached its descriptor limit.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn receive(&self, buffer: &mut Vec<u8>) -> Result<Vec<OwnedFd>, MessageError> {
        buffer.clear();
        buffer.resize(self.next_len()?, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(buffer)];
        // The message is already queued, so a signal can't interrupt this call.
        recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        Ok(descriptors)
    }

    /// Waits for a message and returns its length.
    fn next_len(&self) -> Result<usize, MessageError> {
        // With TRUNC, the call returns the length of the whole message, although the buffer is empty.
        let flags = RecvFlags::PEEK | RecvFlags::TRUNC;
        let len = loop {
            match recv(&self.0, &mut [0_u8; 0][..], flags) {
                Err(Errno::INTR) => {}
                received => break received?.1,
            }
        };
        match len {
            // End of the connection; an empty message would look the same.
            0 => Err(MessageError::Closed),
            1..=MESSAGE_LEN_MAX => Ok(len),
            _ => Err(MessageError::TooLong),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};

    fn pair() -> (PacketChannel, PacketChannel) {
        let (ours, other) = PacketChannel::pair().expect("sockets");
        (ours, other.into())
    }

    #[test]
    fn messages_arrive_complete_with_their_descriptors() {
        let (ours, other) = pair();
        let (mut read, write) = io::pipe().expect("a pipe");
        let long = vec![7; 100_000];
        ours.send(b"a", &[write.as_fd()], SendMode::Wait)
            .expect("room");
        ours.send(&long, &[], SendMode::Wait).expect("room");
        drop(write);
        let mut buffer = Vec::new();
        let descriptors = other.receive(&mut buffer).expect("a message");
        assert_eq!((&buffer[..], descriptors.len()), (&b"a"[..], 1));
        for descriptor in descriptors {
            let flags = rustix::io::fcntl_getfd(&descriptor).expect("open");
            // Other children must not inherit a received descriptor.
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
            File::from(descriptor)
                .write_all(b"through")
                .expect("a pipe");
        }
        let mut passed = String::new();
        read.read_to_string(&mut passed).expect("its end");
        assert_eq!(passed, "through");
        assert_eq!(other.receive(&mut buffer).expect("a message").len(), 0);
        assert_eq!(buffer, long);
    }

    #[test]
    fn errors_distinguish_closed_full_and_too_long() {
        let (ours, other) = pair();
        let mut count = 0;
        while ours.send(b"c", &[], SendMode::Try) == Ok(()) {
            count += 1;
        }
        assert!(count > 10, "{count}");
        assert_eq!(
            ours.send(b"c", &[], SendMode::Try),
            Err(MessageError::NotReady)
        );
        let mut buffer = Vec::new();
        assert!(other.receive(&mut buffer).is_ok());
        drop(other);
        assert_eq!(
            ours.send(b"c", &[], SendMode::Try),
            Err(MessageError::Closed)
        );
        let (ours, other) = pair();
        other
            .set_receive_timeout(Duration::from_millis(1))
            .expect("a timeout");
        let nothing = other.receive(&mut buffer).map(drop);
        assert_eq!(nothing, Err(MessageError::NotReady));
        // Longer than the socket's buffer, so the message would never fit.
        let long = vec![0; 8 << 20];
        assert_eq!(
            ours.send(&long, &[], SendMode::Wait),
            Err(MessageError::TooLong)
        );
        ours.close();
        let closed = other.receive(&mut buffer).map(drop);
        assert_eq!(closed, Err(MessageError::Closed));
    }
}

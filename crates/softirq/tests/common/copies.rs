//! Captures frames that TC programs send in addition to the current frame: clones that leave through the loopback
//! device, which is also the ingress device of test runs.

use std::os::fd::{AsFd, AsRawFd};

use lowroad_testkit::net::packet_socket::PacketSocket;

use super::frames::PORT;

const FRAME_LEN_MAX: usize = 2048;

/// The capturing socket.
pub struct Copies {
    socket: PacketSocket,
}

impl Copies {
    /// Opens the socket in the namespace of the thread.
    pub fn open() -> Copies {
        Copies {
            socket: PacketSocket::open("lo").expect("root"),
        }
    }

    /// The frames since the last call, in their order.
    pub fn take(&self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while let Some((kind, frame)) = self.receive() {
            // On the loopback device, each sent frame is also received.
            if kind == libc::PACKET_OUTGOING && is_of_server(&frame) {
                all.push(frame);
            }
        }
        all
    }

    fn receive(&self) -> Option<(u8, Vec<u8>)> {
        let mut buffer = [0; FRAME_LEN_MAX];
        // SAFETY: all-zero bytes are a valid `sockaddr_ll`.
        let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut from_len = libc::socklen_t::try_from(size_of_val(&from)).expect("20");
        // SAFETY: the pointers are to buffers of the given lengths, which outlive the call.
        let len = unsafe {
            libc::recvfrom(
                self.socket.as_fd().as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                0,
                (&raw mut from).cast(),
                &raw mut from_len,
            )
        };
        let len = usize::try_from(len).ok()?;
        Some((from.sll_pkttype, buffer[..len].to_vec()))
    }
}

fn is_of_server(frame: &[u8]) -> bool {
    let tcp_at = match frame.get(12..14) {
        Some([8, 0]) => 34,
        Some([0x86, 0xdd]) => 54,
        _ => return false,
    };
    frame.get(tcp_at..tcp_at + 2) == Some(&PORT.to_be_bytes())
}

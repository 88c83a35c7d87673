//! A socket that receives and sends complete Ethernet frames of one device (packet(7)).

// Unsafe code is needed only because rustix has no type for a link-layer address.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Room for several large downloads in flight.
const RECEIVE_BUFFER_LEN: usize = 32 << 20;

/// Room for jumbo frames, and for merged frames, so that these are detected.
const FRAME_LEN_MAX: usize = 70_000;

/// A non-blocking packet socket.
pub struct PacketSocket {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

/// A link-layer address that means all frames of a device.
struct FrameDevice(libc::sockaddr_ll);

// SAFETY: the pointer is to a sockaddr_ll, which is plain data, with its length.
unsafe impl SocketAddrArg for FrameDevice {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let len = SocketAddrLen::try_from(size_of::<libc::sockaddr_ll>()).expect("20");
        f((&raw const self.0).cast(), len)
    }
}

impl PacketSocket {
    /// A socket on this device of the calling thread's namespace.
    pub fn open(device: &str) -> io::Result<PacketSocket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // With protocol 0 the socket receives nothing before the bind, so no frames of other devices.
        let fd = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        let index = rustix::net::netdevice::name_to_index(&fd, device)?;
        // `SO_RCVBUFFORCE` exceeds the system's limit: with a full buffer, frames would be lost that the mangler should
        // have forwarded.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&fd, RECEIVE_BUFFER_LEN)?;
        rustix::net::bind(&fd, &FrameDevice(all_frames_address(index)))?;
        Ok(PacketSocket {
            fd,
            buffer: vec![0; FRAME_LEN_MAX],
        })
    }

    /// The next frame, except those sent with this socket; `None` if there is none now.
    pub fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        match rustix::net::recv(&self.fd, &mut self.buffer[..], RecvFlags::empty()) {
            Ok((len, _)) => Ok(Some(self.buffer[..len].to_vec())),
            // Interrupted: the caller polls again.
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a frame from the device; false if the device has no room or rejects it.
    pub fn send(&self, frame: &[u8]) -> bool {
        rustix::net::send(&self.fd, frame, SendFlags::empty()).is_ok()
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn all_frames_address(index: u32) -> libc::sockaddr_ll {
    let protocol = u16::try_from(libc::ETH_P_ALL).expect("3");
    libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).expect("17"),
        sll_protocol: protocol.to_be(),
        sll_ifindex: i32::try_from(index).expect("the kernel's own int"),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

//! A socket that receives and sends whole Ethernet frames of one device (packet(7)). Independent of their contents.

// Unsafe code is needed only because rustix has no type for a link-layer address.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Room for several large downloads in flight.
const RECEIVE_BUFFER_LEN: usize = 32 << 20;

/// Room for jumbo frames, and for merged frames, which are an error.
const FRAME_LEN_MAX: usize = 70_000;

/// A non-blocking packet socket.
pub struct PacketSocket {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

/// The address of all frames of a device.
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
        // Protocol 0 receives nothing until the bind, in particular no frames of other devices.
        let fd = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        let index = rustix::net::netdevice::name_to_index(&fd, device)?;
        // Forced beyond the system's limit: a full buffer would lose frames that the mangler did not choose.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&fd, RECEIVE_BUFFER_LEN)?;
        rustix::net::bind(&fd, &FrameDevice(all_frames_address(index)))?;
        Ok(PacketSocket {
            fd,
            buffer: vec![0; FRAME_LEN_MAX],
        })
    }

    /// The next frame that another sender sent to the device; `None` if there is none now. The kernel does not return a
    /// socket's own frames.
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

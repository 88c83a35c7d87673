//! A socket that receives and sends whole Ethernet frames of one device. Knows not what is in
//! them. packet(7).

// The only reason for unsafe code: rustix has no address of a device, so it is given one.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// A large download in flight, a few times.
const RECEIVE_BUFFER_LEN: usize = 32 << 20;

/// Jumbo frames, and merged ones that should not be.
const FRAME_LEN_MAX: usize = 70_000;

/// Such a socket, which never waits.
pub struct PacketSocket {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

/// All frames of a device.
struct Device(libc::sockaddr_ll);

// SAFETY: what is passed on is a sockaddr_ll, which is plain data, and its own length.
unsafe impl SocketAddrArg for Device {
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
        // Without a protocol it hears nothing before it is bound, from other devices above all.
        let fd = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        let index = rustix::net::netdevice::name_to_index(&fd, device)?;
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&fd, RECEIVE_BUFFER_LEN)?;
        rustix::net::bind(&fd, &Device(all_of(index)))?;
        Ok(PacketSocket {
            fd,
            buffer: vec![0; FRAME_LEN_MAX],
        })
    }

    /// The next frame that another has sent to the device; `None` if there is none now. The
    /// kernel does not give a socket what it sent itself.
    pub fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        match rustix::net::recv(&self.fd, &mut self.buffer[..], RecvFlags::empty()) {
            Ok((len, _)) => Ok(Some(self.buffer[..len].to_vec())),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a frame from the device; false if it has no room now or does not take this one.
    pub fn send(&self, frame: &[u8]) -> bool {
        rustix::net::send(&self.fd, frame, SendFlags::empty()).is_ok()
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn all_of(index: u32) -> libc::sockaddr_ll {
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

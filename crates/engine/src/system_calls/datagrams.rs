//! recvmmsg(2) and sendmmsg(2) with control messages for packet information, traffic class and segmentation.
//!
//! IPv4 addresses of an IPv6 socket are converted to and from the IPv4-mapped form, so callers see plain IPv4
//! addresses.

use std::ffi::c_int;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};

use libc::{cmsghdr, iovec, mmsghdr, msghdr, sockaddr_in, sockaddr_in6, sockaddr_storage};

/// Maximum number of messages of one call.
pub const MESSAGES_MAX: usize = 32;
/// Space for the control messages of a message, in words, as their headers are word-aligned. The enabled control
/// messages take at most 144 bytes.
const CONTROL_WORDS: usize = 32;

/// Memory for the addresses and control messages of a call.
pub struct MessageScratch {
    names: [sockaddr_storage; MESSAGES_MAX],
    controls: [[u64; CONTROL_WORDS]; MESSAGES_MAX],
}

impl MessageScratch {
    /// Memory that several sockets may share.
    pub fn new() -> Box<MessageScratch> {
        // SAFETY: structs and arrays of integers, for which zeros are sound.
        Box::new(unsafe { zeroed() })
    }
}

/// A received message without its bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// The sender; `None` if the kernel reports no IP address.
    pub peer: Option<SocketAddr>,
    /// The destination, from the packet information.
    pub local: Option<IpAddr>,
    /// The TOS byte or traffic class.
    pub traffic_class: u8,
    /// Length of each datagram, if the kernel has coalesced several.
    pub segment_len: Option<usize>,
    /// The number of datagrams that the socket has dropped so far because its buffer was full, if the kernel reports
    /// it.
    pub overflowed: Option<u32>,
    /// The number of bytes received.
    pub len: usize,
    /// Bytes or control messages were truncated.
    pub is_truncated: bool,
}

/// A message to send.
pub struct OutgoingMessage<'b> {
    /// The destination.
    pub peer: SocketAddr,
    /// The source; `None` leaves the choice to the kernel.
    pub local: Option<IpAddr>,
    /// The ECN bits.
    pub ecn_bits: u8,
    /// The kernel segments the bytes into datagrams of this length.
    pub segment_len: Option<u16>,
    /// The bytes.
    pub bytes: &'b [u8],
}

/// Receives available messages into slots of `memory`, each `slot_len` bytes long. Calls `on_message` for each message
/// with the index of its slot.
pub fn receive_messages(
    socket: impl AsFd,
    scratch: &mut MessageScratch,
    memory: &mut [u8],
    slot_len: usize,
    mut on_message: impl FnMut(usize, ReceivedMessage),
) -> io::Result<usize> {
    // SAFETY: structs of integers and pointers, for which zeros are sound.
    let mut headers: [mmsghdr; MESSAGES_MAX] = unsafe { zeroed() };
    // SAFETY: as above.
    let mut pieces: [iovec; MESSAGES_MAX] = unsafe { zeroed() };
    let mut count = 0;
    let slots = memory.chunks_exact_mut(slot_len).take(MESSAGES_MAX);
    for (index, slot) in slots.enumerate() {
        pieces[index] = iovec {
            iov_base: slot.as_mut_ptr().cast(),
            iov_len: slot_len,
        };
        let header = &mut headers[index].msg_hdr;
        header.msg_name = (&raw mut scratch.names[index]).cast();
        header.msg_namelen = size_of::<sockaddr_storage>() as _;
        header.msg_iov = &raw mut pieces[index];
        header.msg_iovlen = 1;
        header.msg_control = scratch.controls[index].as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&scratch.controls[index]) as _;
        count = index + 1;
    }
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: each header refers to a name, a slot and control messages of the lengths in it, all of them borrowed
    // until the end of this function, and to no other memory.
    let received = unsafe {
        libc::recvmmsg(
            fd,
            headers.as_mut_ptr(),
            count as _,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
        )
    };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    for (index, header) in headers[..received].iter().enumerate() {
        // SAFETY: the kernel has filled in this header, and name and control messages are still in place.
        let mut message = unsafe { read_control(&header.msg_hdr) };
        message.peer = read_name(&scratch.names[index], header.msg_hdr.msg_namelen as usize);
        message.len = header.msg_len as usize;
        on_message(index, message);
    }
    Ok(received)
}

/// Sends at most [`MESSAGES_MAX`] messages without blocking. Returns the number of messages sent; an error is that of
/// the first message. `is_ipv6`: the socket's family is IPv6.
pub fn send_messages<'b>(
    socket: impl AsFd,
    is_ipv6: bool,
    scratch: &mut MessageScratch,
    messages: impl Iterator<Item = OutgoingMessage<'b>>,
) -> io::Result<usize> {
    // SAFETY: structs of integers and pointers, for which zeros are sound.
    let mut headers: [mmsghdr; MESSAGES_MAX] = unsafe { zeroed() };
    // SAFETY: as above.
    let mut pieces: [iovec; MESSAGES_MAX] = unsafe { zeroed() };
    let mut count = 0;
    for (index, message) in messages.take(MESSAGES_MAX).enumerate() {
        pieces[index] = iovec {
            iov_base: message.bytes.as_ptr().cast_mut().cast(),
            iov_len: message.bytes.len(),
        };
        let header = &mut headers[index].msg_hdr;
        header.msg_namelen = write_name(&mut scratch.names[index], message.peer, is_ipv6) as _;
        header.msg_name = (&raw mut scratch.names[index]).cast();
        header.msg_iov = &raw mut pieces[index];
        header.msg_iovlen = 1;
        header.msg_controllen = write_control(&mut scratch.controls[index], &message) as _;
        if header.msg_controllen > 0 {
            header.msg_control = scratch.controls[index].as_mut_ptr().cast();
        }
        count = index + 1;
    }
    let fd = socket.as_fd().as_raw_fd();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: each header refers to a name, bytes and control messages of the lengths in it, all of them borrowed
    // until the end of this function. The call reads them, and writes lengths into the headers.
    let sent = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), count as _, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

fn read_name(name: &sockaddr_storage, len: usize) -> Option<SocketAddr> {
    let start = &raw const *name;
    match c_int::from(name.ss_family) {
        libc::AF_INET if len >= size_of::<sockaddr_in>() => {
            // SAFETY: the storage is long enough and aligned for both kinds of address, which are integers.
            let name = unsafe { &*start.cast::<sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 if len >= size_of::<sockaddr_in6>() => {
            // SAFETY: as above.
            let name = unsafe { &*start.cast::<sockaddr_in6>() };
            let (ip, port) = (
                Ipv6Addr::from(name.sin6_addr.s6_addr),
                u16::from_be(name.sin6_port),
            );
            Some(match ip.to_ipv4_mapped() {
                Some(ip) => SocketAddrV4::new(ip, port).into(),
                None => SocketAddrV6::new(ip, port, 0, name.sin6_scope_id).into(),
            })
        }
        _ => None,
    }
}

/// Writes a socket address. Returns its length.
fn write_name(name: &mut sockaddr_storage, address: SocketAddr, is_ipv6: bool) -> usize {
    let start = &raw mut *name;
    let address = match (address, is_ipv6) {
        (SocketAddr::V4(v4), false) => {
            let socket_address = start.cast::<sockaddr_in>();
            // SAFETY: the storage is long enough and aligned for both kinds of address, which are integers.
            unsafe {
                socket_address.write(zeroed());
                (*socket_address).sin_family = libc::AF_INET as _;
                (*socket_address).sin_port = v4.port().to_be();
                (*socket_address).sin_addr.s_addr = u32::from(*v4.ip()).to_be();
            }
            return size_of::<sockaddr_in>();
        }
        (SocketAddr::V4(v4), true) => SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0),
        (SocketAddr::V6(v6), _) => v6,
    };
    let socket_address = start.cast::<sockaddr_in6>();
    // SAFETY: as above.
    unsafe {
        socket_address.write(zeroed());
        (*socket_address).sin6_family = libc::AF_INET6 as _;
        (*socket_address).sin6_port = address.port().to_be();
        (*socket_address).sin6_addr.s6_addr = address.ip().octets();
        (*socket_address).sin6_scope_id = address.scope_id();
    }
    size_of::<sockaddr_in6>()
}

/// # Safety
/// The kernel has filled in the header, and its control messages are still in place.
unsafe fn read_control(header: &msghdr) -> ReceivedMessage {
    let cut = libc::MSG_TRUNC | libc::MSG_CTRUNC;
    let mut message = ReceivedMessage {
        is_truncated: header.msg_flags & cut != 0,
        ..ReceivedMessage::default()
    };
    // SAFETY: the caller's promise; these iterate over the headers within the control messages' length.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: as above.
        unsafe {
            read_control_message(next, &mut message);
            next = libc::CMSG_NXTHDR(header, next);
        }
    }
    message
}

/// # Safety
/// `header` points to a complete control message.
unsafe fn read_control_message(header: *const cmsghdr, message: &mut ReceivedMessage) {
    // SAFETY: the caller's promise; the lengths of values are compared before they are read.
    unsafe {
        match ((*header).cmsg_level, (*header).cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                if let Some(info) = read_value::<libc::in_pktinfo>(header) {
                    // `ipi_spec_dst` is the source address for responses; after a broadcast it differs from the
                    // destination. It is 0 if the kernel has no route for the packet.
                    let name = match info.ipi_spec_dst.s_addr {
                        0 => info.ipi_addr.s_addr,
                        source => source,
                    };
                    message.local = Some(Ipv4Addr::from(u32::from_be(name)).into());
                }
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                if let Some(info) = read_value::<libc::in6_pktinfo>(header) {
                    let ip = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                    // For an IPv4 packet, an IPv6 socket reports both kinds of packet information; they are equal
                    // except for broadcasts.
                    message.local.get_or_insert(ip.to_canonical());
                }
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                message.traffic_class = read_value::<u8>(header).unwrap_or(0);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                message.traffic_class = read_value::<c_int>(header).unwrap_or(0) as u8;
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let len = read_value::<c_int>(header).and_then(|len| usize::try_from(len).ok());
                message.segment_len = len.filter(|len| *len > 0);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => message.overflowed = read_value(header),
            _ => {}
        }
    }
}

/// # Safety
/// `header` points to a complete control message, and every bit pattern is a valid `T`.
unsafe fn read_value<T: Copy>(header: *const cmsghdr) -> Option<T> {
    // SAFETY: the message's length is compared; the value need not be aligned.
    unsafe {
        let needed = libc::CMSG_LEN(size_of::<T>() as _) as usize;
        // The field's type differs between C libraries.
        let len: usize = (*header).cmsg_len as _;
        let is_whole = len >= needed;
        is_whole.then(|| libc::CMSG_DATA(header).cast::<T>().read_unaligned())
    }
}

/// Writes the control messages of a message. Returns their length.
fn write_control(control: &mut [u64; CONTROL_WORDS], message: &OutgoingMessage<'_>) -> usize {
    let mut writer = ControlWriter { control, len: 0 };
    match message.local {
        Some(IpAddr::V4(ip)) => {
            // SAFETY: a struct of integers, for which zeros are sound.
            let mut info: libc::in_pktinfo = unsafe { zeroed() };
            info.ipi_spec_dst.s_addr = u32::from(ip).to_be();
            writer.push(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        Some(IpAddr::V6(ip)) => {
            // SAFETY: as above.
            let mut info: libc::in6_pktinfo = unsafe { zeroed() };
            info.ipi6_addr.s6_addr = ip.octets();
            writer.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
        None => {}
    }
    if message.ecn_bits != 0 {
        let bits = c_int::from(message.ecn_bits);
        match message.peer {
            SocketAddr::V4(_) => writer.push(libc::IPPROTO_IP, libc::IP_TOS, bits),
            SocketAddr::V6(_) => writer.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, bits),
        }
    }
    if let Some(len) = message.segment_len {
        writer.push(libc::SOL_UDP, libc::UDP_SEGMENT, len);
    }
    writer.len
}

struct ControlWriter<'c> {
    control: &'c mut [u64; CONTROL_WORDS],
    len: usize,
}

impl ControlWriter<'_> {
    fn push<T: Copy>(&mut self, level: c_int, kind: c_int, value: T) {
        let value_len = size_of::<T>() as libc::c_uint;
        // SAFETY: these compute lengths from a number.
        let (len, space) = unsafe {
            (
                libc::CMSG_LEN(value_len),
                libc::CMSG_SPACE(value_len) as usize,
            )
        };
        assert!(self.len + space <= size_of_val(self.control));
        // SAFETY: the assertion keeps header and value inside the words. Each space is a multiple of a word, so the
        // header is aligned; the value need not be.
        unsafe {
            let start = self.control.as_mut_ptr().cast::<u8>().add(self.len);
            let header = start.cast::<cmsghdr>();
            header.write(zeroed());
            (*header).cmsg_len = len as _;
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
        }
        self.len += space;
    }
}

#[cfg(test)]
mod tests;

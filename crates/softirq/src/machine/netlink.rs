//! Netlink queries about listening sockets, the socket of a connection, and nftables rules.

use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send,
    socket_with,
};

use lowroad_wire::width::{index, lower};

use crate::machine::listeners::SystemListener;

/// Values of one byte in the messages.
const V4: u8 = libc::AF_INET as u8;
const V6: u8 = libc::AF_INET6 as u8;
const TCP: u8 = libc::IPPROTO_TCP as u8;
const HEADER_LEN: usize = 16;
const REQUEST: u16 = 1;
/// A request that the kernel acknowledges.
const REQUEST_ACK: u16 = 5;
const REQUEST_DUMP: u16 = 0x301;
const MESSAGE_ERROR: u16 = 2;
const MESSAGE_DONE: u16 = 3;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
/// Length of struct inet_diag_msg.
const SOCKET_LEN: usize = 72;
/// Offset of the socket's cookie, the last field of its identity (struct inet_diag_sockid).
const COOKIE_AT: usize = 44;
const COOKIE_LEN: usize = 8;
const TCP_FIN_WAIT2: u32 = 5;
const TCP_TIME_WAIT: u32 = 6;
const TCP_LISTEN: u32 = 10;
/// The bit of `INET_DIAG_INFO`, which also requests `INET_DIAG_ULP_INFO`.
const WITH_INFO: u8 = 1 << 1;
const ATTRIBUTE_ULP: u16 = 19;
const ATTRIBUTE_ULP_NAME: u16 = 1;

const NFT_GET_TABLE: u16 = 10 << 8 | 1;
const NFT_GET_CHAIN: u16 = 10 << 8 | 4;
const NFT_GET_GENERATION: u16 = 10 << 8 | 16;
const ATTRIBUTE_GENERATION: u16 = 1;

/// The listening sockets on a TCP port in this thread's network namespace.
///
/// # Errors
/// If the kernel does not report them; the module `tcp_diag` may be missing.
pub fn listeners(port: u16) -> io::Result<Vec<SystemListener>> {
    let mut found = Vec::new();
    for family in [V4, V6] {
        // struct inet_diag_req_v2: family, protocol, extensions, padding, states, and no identity.
        let mut question = vec![family, TCP, WITH_INFO, 0];
        question.extend((1u32 << TCP_LISTEN).to_ne_bytes());
        question.extend([0; 48]);
        for message in dump(netlink::SOCK_DIAG, SOCK_DIAG_BY_FAMILY, &question)? {
            found.extend(listener(&message, port));
        }
    }
    Ok(found)
}

/// The kernel socket that receives the segments of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelSocket {
    /// No socket.
    None,
    /// A listener with room in its accept queue.
    Listener,
    /// A listener with a full accept queue.
    FullListener,
    /// A socket of this connection.
    Connection,
    /// A socket of this connection that the server has closed: in TIME_WAIT or FIN_WAIT2.
    Ended,
}

/// The kernel socket of a connection, given by its two addresses; IPv4 as `::ffff:a.b.c.d`.
///
/// # Errors
/// If the kernel does not report the socket.
pub fn socket_of(local: SocketAddrV6, remote: SocketAddrV6) -> io::Result<KernelSocket> {
    Ok(find(local, remote)?.map_or(KernelSocket::None, |info| kind_of(&info)))
}

/// Destroys the kernel socket of a connection: its process gets an error, its client an RST. Returns false if there is
/// no such socket.
///
/// # Errors
/// If the kernel does not support this (`CONFIG_INET_DIAG_DESTROY`), or the process lacks CAP_NET_ADMIN.
pub fn destroy(local: SocketAddrV6, remote: SocketAddrV6) -> io::Result<bool> {
    let Some(info) = find(local, remote)?.filter(|info| kind_of(info) == KernelSocket::Connection)
    else {
        return Ok(false);
    };
    // The socket is identified by its cookie: if the connection has just ended, the request would otherwise apply to
    // the listener.
    let mut question = identity(local, remote);
    let cookie_at = question.len() - COOKIE_LEN;
    question[cookie_at..].copy_from_slice(&info[COOKIE_AT..][..COOKIE_LEN]);
    match first_answer(SOCK_DESTROY, REQUEST_ACK, &question) {
        Err(error) if is_gone(&error) => Ok(false),
        other => other.map(|_| true),
    }
}

/// Whether the kernel can destroy sockets.
#[must_use]
pub fn can_destroy() -> bool {
    // No connection has these addresses, so only the support is tested.
    let unused = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0);
    match first_answer(SOCK_DESTROY, REQUEST_ACK, &identity(unused, unused)) {
        Ok(_) => true,
        Err(error) => is_gone(&error),
    }
}

/// Whether the socket no longer exists, or was replaced by another one.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESTALE)
}

/// The kernel socket of a connection, as a struct `inet_diag_msg`.
fn find(local: SocketAddrV6, remote: SocketAddrV6) -> io::Result<Option<Vec<u8>>> {
    match first_answer(SOCK_DIAG_BY_FAMILY, REQUEST, &identity(local, remote)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(Some(message)) if message.len() >= SOCKET_LEN => Ok(Some(message)),
        Ok(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn kind_of(info: &[u8]) -> KernelSocket {
    match u32::from(info[1]) {
        // For a listening socket, these fields are the length of the accept queue and its maximum.
        TCP_LISTEN if read_u32(&info[56..]) >= read_u32(&info[60..]) => KernelSocket::FullListener,
        TCP_LISTEN => KernelSocket::Listener,
        TCP_TIME_WAIT | TCP_FIN_WAIT2 => KernelSocket::Ended,
        _ => KernelSocket::Connection,
    }
}

/// Sends a request about sockets, and returns the first message of the reply.
fn first_answer(kind: u16, flags: u16, question: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let socket = open(netlink::SOCK_DIAG)?;
    send_request(&socket, kind, flags, question)?;
    let mut buffer = vec![0; 8192];
    let (len, _) = recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
    let mut messages = Vec::new();
    split_messages(&buffer[..len], &mut messages)?;
    Ok(messages.into_iter().next())
}

/// Encodes a request about one connection, given by its two addresses.
fn identity(local: SocketAddrV6, remote: SocketAddrV6) -> Vec<u8> {
    let v4 = local
        .ip()
        .to_ipv4_mapped()
        .zip(remote.ip().to_ipv4_mapped());
    let family = if v4.is_some() { V4 } else { V6 };
    // struct inet_diag_req_v2 with an identity: ports, addresses, no interface and no cookie.
    let mut question = vec![family, TCP, 0, 0];
    // Sockets in any state.
    question.extend(u32::MAX.to_ne_bytes());
    question.extend(local.port().to_be_bytes());
    question.extend(remote.port().to_be_bytes());
    for (v4, v6) in [
        (v4.map(|pair| pair.0), local),
        (v4.map(|pair| pair.1), remote),
    ] {
        let mut address = v6.ip().octets();
        if let Some(v4) = v4 {
            address = [0; 16];
            address[..4].copy_from_slice(&v4.octets());
        }
        question.extend(address);
    }
    question.extend([0; 4]);
    // INET_DIAG_NOCOOKIE: any socket with this identity.
    question.extend([0xff; 8]);
    question
}

/// Whether nftables has tables in this thread's network namespace.
///
/// # Errors
/// If the kernel does not report it.
pub fn has_tables() -> io::Result<bool> {
    Ok(!empty_if_unsupported(dump(netlink::NETFILTER, NFT_GET_TABLE, &[0; 4]))?.is_empty())
}

/// The nftables chains in this thread's network namespace, as messages without their headers.
///
/// # Errors
/// If the kernel does not report it.
pub fn chains() -> io::Result<Vec<Vec<u8>>> {
    empty_if_unsupported(dump(netlink::NETFILTER, NFT_GET_CHAIN, &[0; 4]))
}

/// The generation of the nftables rules, which changes with every change of them; 0 if there are none.
///
/// # Errors
/// If the kernel does not report it.
pub fn generation() -> io::Result<u32> {
    let socket = open(netlink::NETFILTER);
    let answer = empty_if_unsupported(socket.and_then(|socket| {
        send_request(&socket, NFT_GET_GENERATION, REQUEST, &[0; 4])?;
        let mut buffer = vec![0; 4096];
        let (len, _) = recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
        let mut messages = Vec::new();
        split_messages(&buffer[..len], &mut messages).map(|_| messages)
    }))?;
    let number = answer
        .first()
        .and_then(|body| attribute(body.get(4..)?, ATTRIBUTE_GENERATION)?.first_chunk());
    Ok(number.map_or(0, |bytes| u32::from_be_bytes(*bytes)))
}

/// Treats a kernel without nftables, or a namespace in which it was never used, as one without entries.
fn empty_if_unsupported(answer: io::Result<Vec<Vec<u8>>>) -> io::Result<Vec<Vec<u8>>> {
    match answer {
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EINVAL | libc::EPROTONOSUPPORT)
            ) =>
        {
            Ok(Vec::new())
        }
        answer => answer,
    }
}

/// The listener that a message describes, if it is on the port.
fn listener(message: &[u8], port: u16) -> Option<SystemListener> {
    let (socket, attributes) = message.split_at_checked(SOCKET_LEN)?;
    let local = u16::from_be_bytes([socket[4], socket[5]]);
    (local == port).then(|| SystemListener {
        // For a listening socket, the field of the send queue holds the maximum length of the accept queue.
        backlog: read_u32(&socket[60..]),
        is_mptcp: attribute(attributes, ATTRIBUTE_ULP)
            .and_then(|nested| attribute(nested, ATTRIBUTE_ULP_NAME))
            .is_some_and(|name| name.starts_with(b"mptcp\0")),
    })
}

/// The value of the first attribute of this kind.
pub(crate) fn attribute(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    while bytes.len() >= 4 {
        let len = usize::from(read_u16(bytes));
        // The upper two bits are flags.
        let actual_kind = read_u16(&bytes[2..]) & 0x3fff;
        let value = bytes.get(4..len)?;
        if actual_kind == kind {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

/// Dumps all objects of a kind; returns the messages without their headers.
fn dump(protocol: Protocol, kind: u16, question: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let socket = open(protocol)?;
    send_request(&socket, kind, REQUEST_DUMP, question)?;
    let mut messages = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let (len, _) = recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
        if split_messages(&buffer[..len], &mut messages)? {
            return Ok(messages);
        }
    }
}

fn open(protocol: Protocol) -> io::Result<OwnedFd> {
    let family = AddressFamily::NETLINK;
    Ok(socket_with(
        family,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(protocol),
    )?)
}

fn send_request(socket: &OwnedFd, kind: u16, flags: u16, question: &[u8]) -> io::Result<()> {
    let len = lower((HEADER_LEN + question.len()) as u64);
    let mut request = len.to_ne_bytes().to_vec();
    request.extend(kind.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    request.extend([0; 8]);
    request.extend_from_slice(question);
    send(socket, &request, SendFlags::empty())?;
    Ok(())
}

/// Splits a datagram into messages. Returns whether the dump is complete.
fn split_messages(mut datagram: &[u8], messages: &mut Vec<Vec<u8>>) -> io::Result<bool> {
    while datagram.len() >= HEADER_LEN {
        let len = index(read_u32(datagram));
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        let body = datagram.get(HEADER_LEN..len).ok_or_else(malformed)?;
        match read_u16(&datagram[4..]) {
            MESSAGE_DONE => return Ok(true),
            MESSAGE_ERROR => {
                let code = body.first_chunk().ok_or_else(malformed)?;
                return match i32::from_ne_bytes(*code) {
                    // An acknowledgement: the request was carried out.
                    0 => Ok(true),
                    number => Err(io::Error::from_raw_os_error(number.wrapping_neg())),
                };
            }
            _ => messages.push(body.to_vec()),
        }
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn read_u32(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(bytes[..4].try_into().expect("four bytes"))
}

fn read_u16(bytes: &[u8]) -> u16 {
    u16::from_ne_bytes(bytes[..2].try_into().expect("two bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_is_found_by_port() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = socket.local_addr().expect("an address").port();
        // Without the kernel module, there is nothing to test.
        let Ok(found) = listeners(port) else { return };
        assert_eq!(found.len(), 1);
        assert!(found[0].backlog > 0 && !found[0].is_mptcp);
    }

    #[test]
    fn connection_is_distinguished_from_its_listener() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = listener.local_addr().expect("an address");
        let stream = std::net::TcpStream::connect(server).expect("a connection");
        let client = stream.local_addr().expect("an address");
        let v6 = |address: std::net::SocketAddr| {
            let std::net::SocketAddr::V4(v4) = address else {
                panic!("not IPv4")
            };
            SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0)
        };
        let of = |client: SocketAddrV6| socket_of(v6(server), client);
        // Without the kernel module, there is nothing to test.
        let Ok(connection) = of(v6(client)) else {
            return;
        };
        assert_eq!(connection, KernelSocket::Connection);
        let mut other = v6(client);
        other.set_ip(std::net::Ipv4Addr::new(127, 9, 9, 9).to_ipv6_mapped());
        assert_eq!(of(other).expect("a listener"), KernelSocket::Listener);
        // Destroying a connection that does not exist must not destroy the listener.
        assert!(!destroy(v6(server), other).expect("nothing"));
        assert_eq!(of(other).expect("a listener"), KernelSocket::Listener);
        drop(listener);
        assert_eq!(of(other).expect("nothing"), KernelSocket::None);
    }

    #[test]
    fn attributes_are_found_by_kind_unless_truncated() {
        let mut bytes = Vec::new();
        bytes.extend([5u16.to_ne_bytes(), 3u16.to_ne_bytes()].concat());
        bytes.extend([9, 0, 0, 0]);
        // Kind 7 with the flag for nested attributes.
        bytes.extend([6u16.to_ne_bytes(), 0x8007u16.to_ne_bytes()].concat());
        bytes.extend([1, 2]);
        assert_eq!(attribute(&bytes, 7), Some(&[1, 2][..]));
        assert_eq!(attribute(&bytes, 3), Some(&[9][..]));
        assert_eq!(attribute(&bytes, 4), None);
        assert_eq!(attribute(&bytes[..bytes.len() - 1], 7), None);
        assert_eq!(attribute(&[0; 64], 7), None);
    }

    #[test]
    fn done_ends_a_dump_and_error_messages_fail() {
        let message = |kind: u16, body: &[u8]| {
            let mut bytes = u32::try_from(16 + body.len())
                .expect("short")
                .to_ne_bytes()
                .to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0; 10]);
            bytes.extend_from_slice(body);
            bytes
        };
        let mut found = Vec::new();
        let both = [message(20, &[7; 8]), message(MESSAGE_DONE, &[0; 4])].concat();
        assert!(matches!(split_messages(&both, &mut found), Ok(true)));
        assert_eq!(found, [[7; 8]]);
        let error = message(MESSAGE_ERROR, &(-2i32).to_ne_bytes());
        assert_eq!(
            split_messages(&error, &mut found)
                .expect_err("an error")
                .raw_os_error(),
            Some(2)
        );
        assert!(split_messages(&[1; 20], &mut found).is_err());
        assert!(matches!(split_messages(&[], &mut found), Ok(false)));
    }
}

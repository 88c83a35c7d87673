//! Kernel sockets that remain after the server has closed its connections, with sequence numbers chosen by a trace. Use
//! these functions in the network namespace of the thread.

use std::fs;
use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use lowroad_testkit::net::{CLIENT, SERVER};
use lowroad_testkit::wait_until;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketAddrV4, SocketAddrV6, SocketType, bind, connect, socket};

use super::bench::Bench;
use super::frames::PORT;

const FIN_WAIT_2: &str = "05";
const TIME_WAIT: &str = "06";

/// Connects a kernel socket with this client port, and with this initial sequence number if one is given.
pub fn connected(is_v6: bool, port: u16, isn: Option<u32>) -> OwnedFd {
    let family = if is_v6 {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let client_socket = socket(family, SocketType::STREAM, None).expect("a socket");
    if let Some(isn) = isn {
        set_initial_sequence_number(&client_socket, isn).expect("root");
    }
    if is_v6 {
        bind(&client_socket, &SocketAddrV6::new(CLIENT.1, port, 0, 0)).expect("a free port");
        connect(&client_socket, &SocketAddrV6::new(SERVER.1, PORT, 0, 0)).expect("a listener");
    } else {
        bind(&client_socket, &SocketAddrV4::new(CLIENT.0, port)).expect("a free port");
        connect(&client_socket, &SocketAddrV4::new(SERVER.0, PORT)).expect("a listener");
    }
    client_socket
}

/// Leaves a socket in TIME_WAIT: the server closes, then the client. `mark` will be the next sequence number of the
/// client.
pub fn time_wait(bench: &Bench, is_v6: bool, port: u16, mark: u32, stamped: bool) {
    // 2: timestamps without a random offset.
    let timestamps = if stamped { "2" } else { "0" };
    let set = bench.namespace.set("ipv4/tcp_timestamps", timestamps);
    set.expect("a setting");
    // SYN and FIN of the client have a sequence number each.
    let isn = mark.wrapping_sub(2);
    let mut client = TcpStream::from(connected(is_v6, port, Some(isn)));
    drop(bench.accept(port));
    assert_eq!(client.read(&mut [0]).expect("the end"), 0);
    drop(client);
    wait_for_time_wait(port);
}

/// Waits until the server's socket is in TIME_WAIT.
pub fn wait_for_time_wait(port: u16) {
    wait_until("TIME_WAIT", || (state(port)? == TIME_WAIT).then_some(()));
}

/// Leaves a socket in FIN_WAIT_2: the server closes, but the client does not.
pub fn fin_wait(bench: &Bench, is_v6: bool, port: u16) -> OwnedFd {
    let client = connected(is_v6, port, None);
    drop(bench.accept(port));
    wait_until("FIN_WAIT_2", || (state(port)? == FIN_WAIT_2).then_some(()));
    client
}

/// Waits until the kernel has no socket for this client.
pub fn wait_for_no_socket(port: u16) {
    wait_until("the end of TIME_WAIT", || {
        state(port).is_none().then_some(())
    });
}

/// The state of the server's socket for this client port.
fn state(port: u16) -> Option<String> {
    let wanted = (format!(":{PORT:04X}"), format!(":{port:04X}"));
    ["tcp", "tcp6"].iter().find_map(|family| {
        let table = fs::read_to_string(format!("/proc/thread-self/net/{family}")).ok()?;
        table.lines().find_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (local, remote, state) = (words.next()?, words.next()?, words.next()?);
            let is_match = local.ends_with(&wanted.0) && remote.ends_with(&wanted.1);
            is_match.then(|| state.to_owned())
        })
    })
}

/// Makes the client disappear without sending a segment, as in a power failure.
pub fn vanish(stream: TcpStream) {
    set(&stream, &[(libc::TCP_REPAIR, 1)]).expect("root");
}

/// Sets the initial sequence number of a socket, which is possible only in repair mode.
fn set_initial_sequence_number(socket: &OwnedFd, isn: u32) -> io::Result<()> {
    const SEND_QUEUE: u32 = 2;
    const OFF_WITHOUT_PROBE: u32 = u32::MAX;
    let options = [
        (libc::TCP_REPAIR, 1),
        (libc::TCP_REPAIR_QUEUE, SEND_QUEUE),
        (libc::TCP_QUEUE_SEQ, isn),
        (libc::TCP_REPAIR, OFF_WITHOUT_PROBE),
    ];
    set(socket, &options)
}

fn set(socket: &impl AsRawFd, options: &[(libc::c_int, u32)]) -> io::Result<()> {
    for (name, value) in options {
        // SAFETY: the descriptor is open, and the value has the given size.
        let status = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                *name,
                std::ptr::from_ref(value).cast(),
                libc::socklen_t::try_from(size_of_val(value)).expect("small"),
            )
        };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

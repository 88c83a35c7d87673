//! Kernel TLS for sending: sets the socket options, sends alerts, and probes for kernel support. The TLS session
//! provides the keys. See the kernel's Documentation/networking/tls.rst.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::driver::SendOutcome;
use crate::system_calls;

/// The content type of an alert (RFC 8446, section 5.1).
const ALERT: u8 = 21;

/// Lets the kernel encrypt all later bytes. `keys` is a `struct tls12_crypto_info_*` of linux/tls.h.
///
/// # Errors
/// The kernel has no TLS module, or the module does not support the cipher. The socket remains unencrypted.
pub(crate) fn enable_kernel_tls(socket: impl AsFd, keys: &[u8]) -> io::Result<()> {
    // The upper-layer protocol has to be attached before its keys are set.
    begin(&socket)?;
    system_calls::set_option_bytes(socket, libc::SOL_TLS, libc::TLS_TX, keys)
}

fn begin(socket: impl AsFd) -> io::Result<()> {
    system_calls::set_option_bytes(socket, libc::SOL_TCP, libc::TCP_ULP, b"tls")
}

/// Sends an alert, and all earlier bytes.
///
/// The kernel accepts a record once it is encrypted. If the socket is full, kernel TLS keeps the record, and a close
/// would drop it. When poll reports the socket as writable, at least a third of its send buffer is free, which is more
/// than one record: a kept record and the alert after it are then passed to TCP immediately, and TCP transmits them
/// even after a close.
pub(crate) fn send_alert(socket: impl AsFd, alert: &[u8]) -> SendOutcome {
    let mut poll_fds = [PollFd::new(&socket, PollFlags::OUT)];
    // If the socket is full, the poll also arms the edge-triggered writable event.
    match poll(&mut poll_fds, Some(&Timespec::default())) {
        Ok(1..) => {}
        Ok(_) | Err(Errno::INTR | Errno::NOMEM) => return SendOutcome::Full,
        Err(_) => return SendOutcome::Broken,
    }
    match system_calls::send_record(socket, ALERT, alert) {
        Ok(len) => SendOutcome::Bytes(len),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => SendOutcome::Full,
        Err(_) => SendOutcome::Broken,
    }
}

/// Probes for kernel TLS. May load the module.
///
/// # Errors
/// The reason why kernel TLS is not available: usually "No such file or directory", as there is no module.
pub fn probe() -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let unconnected = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    match begin(&unconnected) {
        // If the module exists, it refuses an unconnected socket with ENOTCONN.
        Err(error) if error.raw_os_error() != Some(libc::ENOTCONN) => return Err(error),
        _ => {}
    }
    // Without loopback the cipher can't be tested.
    let Ok((connected, _listener)) = connected() else {
        return Ok(());
    };
    // The key does not matter, as nothing is sent.
    enable_kernel_tls(&connected, &aes_128_gcm())
}

/// A connection, and its listener, without which the connection would be reset.
fn connected() -> io::Result<(TcpStream, TcpListener)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok((TcpStream::connect(listener.local_addr()?)?, listener))
}

/// A `struct tls12_crypto_info_aes_gcm_128` for TLS 1.3 with a key of zeros.
fn aes_128_gcm() -> [u8; 40] {
    let mut info = [0; 40];
    info[..2].copy_from_slice(&0x0304_u16.to_ne_bytes());
    info[2..4].copy_from_slice(&libc::TLS_CIPHER_AES_GCM_128.to_ne_bytes());
    info
}

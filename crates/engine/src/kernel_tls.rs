//! TLS of the kernel for what is sent: the options of the socket, the record of an alert, and whether this machine has it.
//! What the kernel is told is made by the layer; nothing here knows what is in it. See the kernel's
//! Documentation/networking/tls.rst.

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

/// Has the kernel seal what is sent from now on. `keys` is a `struct tls12_crypto_info_*` of linux/tls.h.
///
/// # Errors
/// There is no such module, or it does not know the cipher. What is sent goes as before.
pub(crate) fn enable_kernel_tls(socket: impl AsFd, keys: &[u8]) -> io::Result<()> {
    begin(&socket)?;
    system_calls::set_option_bytes(socket, libc::SOL_TLS, libc::TLS_TX, keys)
}

fn begin(socket: impl AsFd) -> io::Result<()> {
    system_calls::set_option_bytes(socket, libc::SOL_TCP, libc::TCP_ULP, b"tls")
}

/// Sends an alert, and all that was sent before it.
///
/// The kernel says that it took a record when it has sealed it, though it may keep it because the socket is full; a close throws
/// such a record away. Where the socket says that there is room, it is a third of its memory at least, which is more than one
/// record: then the one that was kept and the alert behind it go to TCP at once, and TCP sends them even after a close.
pub(crate) fn send_alert(socket: impl AsFd, alert: &[u8]) -> SendOutcome {
    let mut wanted = [PollFd::new(&socket, PollFlags::OUT)];
    // If there is no room, this sees to it that a writable event follows.
    match poll(&mut wanted, Some(&Timespec::default())) {
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

/// Whether this machine's kernel can seal. May load the module.
///
/// # Errors
/// Why not: usually "No such file or directory", if there is no module.
pub fn probe() -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let unconnected = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    match begin(&unconnected) {
        // Where the module is, it refuses the socket.
        Err(error) if error.raw_os_error() != Some(libc::ENOTCONN) => return Err(error),
        _ => {}
    }
    // Without loopback it remains to be seen whether it knows the cipher.
    let Ok((connected, _listener)) = connected() else {
        return Ok(());
    };
    // Any key does: nothing is sent.
    enable_kernel_tls(&connected, &aes_128_gcm())
}

/// A connection, and who would accept it: without that it is ended.
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

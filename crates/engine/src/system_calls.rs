//! System calls without a safe wrapper in rustix, each behind a safe function.
//!
//! All unsafe code of the engine is here, in the submodule `datagrams`, and in `arena`, which divides the mapping into
//! slices.

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

pub mod datagrams;

/// A file mapped readable and writable, shared.
pub struct FileMapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory at a fixed address; the contract of `bytes` and `bytes_mut` regulates access to
// its bytes.
unsafe impl Send for FileMapping {}
// SAFETY: as above.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    /// Maps the first `len` bytes of a file that is at least that long and never shrinks.
    pub fn new(file: impl AsFd, len: usize) -> io::Result<FileMapping> {
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no other memory.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file,
                0,
            )
        }?;
        let start = NonNull::<u8>::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // Small pages only: punching a hole into a huge page zeroes the range in place, while a socket may still send
        // it. Kernels without huge pages refuse the advice, which does no harm. SAFETY: the mapping is new, and this
        // advice never changes its content.
        let _ = unsafe {
            rustix::mm::madvise(
                start.as_ptr().cast(),
                len,
                rustix::mm::Advice::LinuxNoHugepage,
            )
        };
        Ok(FileMapping { start, len })
    }

    /// # Safety
    /// No thread writes to these bytes while the slice lives.
    #[inline]
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: the assertion keeps the range inside the mapping, which lives as long as self;
        // the caller excludes writers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), len) }
    }

    /// # Safety
    /// No other code reads or writes these bytes while the slice lives.
    #[allow(clippy::mut_from_ref)] // disjoint ranges of one mapping; the caller's duty above
    pub unsafe fn bytes_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: as in `bytes`; the caller excludes all other access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(offset), len) }
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; slices borrow self, so none is left. A failure leaves the memory
        // mapped, which is harmless.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The wall clock in ms, as of the kernel's last tick. Read through the C library, like that of the helper threads, so that
/// a preloaded library can step the clock of the whole process.
pub fn unix_ms() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes a time to the structure, and nothing else. It can't fail for a clock that exists.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut time) };
    (time.tv_sec as u64) * 1000 + (time.tv_nsec as u64) / 1_000_000
}

/// The number of bytes in a socket's send queue (`SIOCOUTQ`); 0 if the kernel refuses the query. For TCP these are
/// unsent and unacknowledged bytes; for a Unix socket, the kernel memory of bytes that the peer has not read.
pub fn unread_len(socket: impl AsFd) -> usize {
    let mut queued: c_int = 0;
    // SAFETY: SIOCOUTQ (the same number as TIOCOUTQ, tcp(7)) writes one int to the address given.
    let done = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &mut queued) };
    if done == 0 {
        usize::try_from(queued).unwrap_or(0)
    } else {
        0
    }
}

/// Makes a TCP socket drop all segments with a TTL or hop limit below `hops`; 0 disables this. `IP_MINTTL` in ip(7);
/// for IPv6, `IPV6_MINHOPCOUNT` (RFC 5082).
pub fn require_hops_left(socket: impl AsFd, hops: u8) -> io::Result<()> {
    let domain = rustix::net::sockopt::socket_domain(&socket)?;
    if domain == rustix::net::AddressFamily::INET6 {
        set_option(
            &socket,
            libc::IPPROTO_IPV6,
            libc::IPV6_MINHOPCOUNT,
            hops.into(),
        )?;
    }
    // An IPv6 socket also accepts IPv4 connections, if it is bound to `[::]`.
    set_option(socket, libc::IPPROTO_IP, libc::IP_MINTTL, hops.into())
}

/// Sets a socket option of type int; see ip(7), ipv6(7), tcp(7).
pub fn set_option(socket: impl AsFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    set_option_bytes(socket, level, option, &value.to_ne_bytes())
}

/// Sets a socket option of any type.
pub fn set_option_bytes(
    socket: impl AsFd,
    level: c_int,
    option: c_int,
    value: &[u8],
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads `len` bytes from the address given, which are the slice's.
    match unsafe { libc::setsockopt(fd, level, option, value.as_ptr().cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends a TLS record of this type over a socket with kernel TLS (`TLS_SET_RECORD_TYPE` in the kernel's
/// Documentation/networking/tls.rst).
pub fn send_record(socket: impl AsFd, kind: u8, content: &[u8]) -> io::Result<usize> {
    // A control message with one byte of data, aligned like its header.
    let mut control = [0_u64; 4];
    let mut piece = libc::iovec {
        iov_base: content.as_ptr().cast_mut().cast(),
        iov_len: content.len(),
    };
    // SAFETY: a struct of integers and pointers, for which zeros are sound.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: computes the length of a control message from a number: 24, less than the size of `control`.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(1) } as _;
    // SAFETY: `control` has room for a header and a byte behind it, so the first header exists; it is not shared. All
    // memory that the message refers to lives until the end of the call, which only reads it.
    let sent = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_TLS;
        (*header).cmsg_type = libc::TLS_SET_RECORD_TYPE;
        (*header).cmsg_len = libc::CMSG_LEN(1) as _;
        libc::CMSG_DATA(header).write(kind);
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, flags)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Attaches an open `/dev/net/tun` to a tap device, which is created if it does not exist. Each frame is preceded by a
/// `struct virtio_net_hdr`; frames that are read may have incomplete checksums. With `is_queue` the file becomes one of
/// several queues of the device.
pub fn join_tap(file: impl AsFd, name: &str, is_queue: bool) -> io::Result<()> {
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if is_queue {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    // SAFETY: a struct of integers and arrays of them, for which zeros are sound.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_flags = flags as i16; // 0x5002, 0x5102
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the kernel reads and writes one ifreq at the address given.
    if unsafe { libc::ioctl(fd, libc::TUNSETIFF, &raw mut request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the argument is a number.
    match unsafe { libc::ioctl(fd, libc::TUNSETOFFLOAD, libc::TUN_F_CSUM) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Binds the calling thread to one CPU.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Marks all inherited descriptors except standard input, output and error as close-on-exec: see close_range(2).
///
/// # Errors
/// The kernel is older than 5.11.
pub fn set_descriptors_cloexec() -> io::Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC as c_int;
    // SAFETY: no descriptor is closed before exec(2).
    match unsafe { libc::close_range(3, u32::MAX, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

unsafe extern "C" {
    /// environ(7)
    static mut environ: *mut *mut c_char;
}

/// Removes a variable from the environment of this process, and zeroes its value in the memory that
/// `/proc/PID/environ` shows. Returns false and does nothing unless this is the only thread.
pub fn remove_env_variable(name: &str) -> bool {
    let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count);
    if !matches!(threads, Ok(1)) {
        return false;
    }
    // SAFETY: no other thread accesses the environment, as there is none. It is an array of pointers to C strings with
    // a null at its end (environ(7)); only bytes before the strings' ends are overwritten.
    unsafe {
        let mut entry = (&raw const environ).read();
        while !entry.is_null() && !(*entry).is_null() {
            let bytes = CStr::from_ptr(*entry).to_bytes();
            let rest = bytes.strip_prefix(name.as_bytes());
            if let Some(value) = rest.and_then(|rest| rest.strip_prefix(b"=")) {
                let (offset, len) = (bytes.len() - value.len(), value.len());
                (*entry).add(offset).write_bytes(0, len);
            }
            entry = entry.add(1);
        }
        std::env::remove_var(name);
    }
    true
}

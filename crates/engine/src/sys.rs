//! System calls without a safe wrapper in rustix, each behind a safe function of ours.
//!
//! Everything unsafe of the engine is here and in `arena`, which hands out the mapping's slices.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

/// A file mapped readable and writable, shared.
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory at a fixed place; who may touch which bytes of it when is the
// contract of `bytes` and `bytes_mut`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a file that is at least that long and never shrinks.
    pub fn new(file: impl AsFd, len: usize) -> io::Result<Mapping> {
        // SAFETY: a new mapping at a place of the kernel's choice overlaps nothing of ours.
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
        // Holes are punched by small pages; in a huge page a hole would be zeroed in place, under
        // the eyes of sockets that still send it. Kernels without huge pages refuse, which is fine.
        // SAFETY: advice on our own fresh mapping; this one never changes its content.
        let _ = unsafe {
            rustix::mm::madvise(
                start.as_ptr().cast(),
                len,
                rustix::mm::Advice::LinuxNoHugepage,
            )
        };
        Ok(Mapping { start, len })
    }

    /// # Safety
    /// Nobody writes to these bytes while the slice lives.
    #[inline]
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: the assertion keeps the range inside the mapping, which lives as long as self;
        // the caller excludes writers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), len) }
    }

    /// # Safety
    /// Nobody else reads or writes these bytes while the slice lives.
    #[allow(clippy::mut_from_ref)] // disjoint ranges of one mapping; the caller's duty above
    pub unsafe fn bytes_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: as in `bytes`; the caller excludes everybody else.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(offset), len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; slices borrow self, so none is left. A failure
        // leaves the memory mapped, which harms nobody.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Bytes that were sent on a TCP socket and are not acknowledged yet; 0 if the kernel won't say.
pub fn unacknowledged(socket: impl AsFd) -> usize {
    let mut queued: c_int = 0;
    // SAFETY: SIOCOUTQ (the same number as TIOCOUTQ, tcp(7)) writes one int to the address given.
    let done = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &mut queued) };
    if done == 0 {
        usize::try_from(queued).unwrap_or(0)
    } else {
        0
    }
}

/// Makes a listener drop new connection attempts (their SYN, which the client repeats), while
/// handshakes under way still finish: what has to be done before it is drained and closed.
pub fn refuse_new_connections(listener: impl AsFd) -> io::Result<()> {
    // A socket filter sees the segment from its TCP header on; byte 13 holds the flags.
    const SYN: u32 = 0x02;
    let load = |k| libc::sock_filter {
        code: 0x30,
        jt: 0,
        jf: 0,
        k,
    }; // BPF_LD|BPF_B|BPF_ABS
    let test = |k| libc::sock_filter {
        code: 0x45,
        jt: 0,
        jf: 1,
        k,
    }; // BPF_JMP|BPF_JSET|BPF_K
    let ret = |k| libc::sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k,
    }; // BPF_RET|BPF_K
    let mut program = [load(13), test(SYN), ret(0), ret(u32::MAX)];
    let filter = libc::sock_fprog {
        len: 4,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program of `len` instructions during the call.
    let done = unsafe {
        libc::setsockopt(
            listener.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sets an option of TCP that is an int.
pub fn set_tcp_option(socket: impl AsFd, option: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the kernel reads one int from the address given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Binds the calling thread to one CPU.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

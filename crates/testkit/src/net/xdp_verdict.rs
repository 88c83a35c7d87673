//! Minimal XDP programs, which return the same verdict for all frames.
//!
//! With XDP_PASS attached, a veth device receives frames that an XDP program at its peer sends with XDP_TX. GRO alone
//! enables NAPI on the device, but the flush after XDP_TX checks for a program at the peer, and does not schedule NAPI
//! without one (`veth_xdp_flush` in Linux 6.18): frames stay in the ring until an ordinary packet passes. See bpf(2).

// Unsafe code is needed only for bpf(2), which rustix lacks.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const COMMAND_PROG_LOAD: libc::c_int = 5;
const COMMAND_LINK_CREATE: libc::c_int = 28;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
/// The program accepts frames in several fragments; otherwise the MTU would be limited.
const PROG_HAS_FRAGS: u32 = 1 << 5;
/// Attaches in the driver, as the purpose is the behaviour of veth with a native program.
const LINK_IN_DRIVER: u32 = 1 << 2;

/// `r0 = IMMEDIATE` and `exit`.
const SET_R0: u8 = 0xb7;
const EXIT: u8 = 0x95;

/// The verdict for each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameVerdict {
    /// XDP_DROP: dropped.
    Drop = 1,
    /// XDP_PASS: passed to the kernel.
    Pass = 2,
    /// XDP_TX: sent back unchanged.
    Tx = 3,
}

#[repr(C)]
struct BpfInstruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl BpfInstruction {
    const fn new(code: u8, immediate: i32) -> BpfInstruction {
        BpfInstruction {
            code,
            registers: 0,
            offset: 0,
            immediate,
        }
    }
}

/// The start of `union bpf_attr` for BPF_PROG_LOAD; the kernel assumes zeros for the rest.
#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// The start of `union bpf_attr` for BPF_LINK_CREATE.
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    interface_index: u32,
    attach_type: u32,
    flags: u32,
}

/// A program attached to a device; detached on drop.
pub struct XdpVerdict {
    _link: OwnedFd,
}

impl XdpVerdict {
    /// Attaches a program to a device of the calling thread's namespace.
    pub fn attach(device: &str, verdict: FrameVerdict) -> io::Result<XdpVerdict> {
        // The ioctl that returns the interface index works with any socket.
        let any_socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::DGRAM,
            None,
        )?;
        let interface_index = rustix::net::netdevice::name_to_index(&any_socket, device)?;
        let program = load(verdict)?;
        let link = LinkCreate {
            prog_fd: u32::try_from(program.as_raw_fd()).expect("an open descriptor"),
            interface_index,
            attach_type: ATTACH_TYPE_XDP,
            flags: LINK_IN_DRIVER,
        };
        // SAFETY: no field is an address.
        let link = unsafe { bpf(COMMAND_LINK_CREATE, &link)? };
        // The link keeps the program loaded, and detaches it when the descriptor is closed.
        Ok(XdpVerdict { _link: link })
    }
}

fn load(verdict: FrameVerdict) -> io::Result<OwnedFd> {
    let program = [
        BpfInstruction::new(SET_R0, verdict as i32),
        BpfInstruction::new(EXIT, 0),
    ];
    let license = c"GPL";
    let load = ProgLoad {
        prog_type: PROG_TYPE_XDP,
        instruction_count: 2,
        instructions: program.as_ptr().addr() as u64,
        license: license.as_ptr().addr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: PROG_HAS_FRAGS,
    };
    // SAFETY: `program` has two instructions and outlives the call; the license ends with a NUL.
    unsafe { bpf(COMMAND_PROG_LOAD, &load) }
}

/// # Safety
///
/// All addresses in `attributes` refer to memory that the command may read.
unsafe fn bpf<A>(command: libc::c_int, attributes: &A) -> io::Result<OwnedFd> {
    let len = size_of::<A>();
    // SAFETY: the kernel reads `len` bytes of `attributes`, and memory that is valid by this function's contract.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attributes, len) };
    match i32::try_from(fd) {
        // SAFETY: both commands return a new descriptor without another owner.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

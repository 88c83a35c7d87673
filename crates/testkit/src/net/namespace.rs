//! Network namespaces for tests: creates them, runs programs and closures in them, and connects them with veth pairs.
//!
//! A namespace has no name in the file system: a file descriptor of this process keeps it alive. So it is removed even
//! if the test crashes: when the last descriptor is closed, the kernel deletes the namespace and its devices.
//!
//! To enter a namespace while a test runs: `nsenter --net=PATH`, with the path from `NetNamespace::path`.

// Unsafe code is needed only for `unshare`, and between fork and exec.
#![allow(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use rustix::process::{Pid, Signal};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use super::xdp_verdict::{FrameVerdict, XdpVerdict};

/// Why a network could not be created.
#[derive(Debug)]
pub enum NetError {
    /// The kernel refused the namespace.
    Namespace(io::Error),
    /// A program could not be started.
    Start(String, io::Error),
    /// A program failed, with its command line and output.
    Failed(String, String),
    /// The setting at this path could not be written.
    Setting(String, io::Error),
    /// A packet socket on this device could not be opened.
    Socket(String, io::Error),
    /// A program could not be attached to this device.
    Program(String, io::Error),
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetError::Namespace(error) => {
                write!(f, "no network namespace ({error}): run the test as root")
            }
            NetError::Start(program, error) => {
                write!(f, "{program} does not start ({error}): install it")
            }
            NetError::Failed(line, output) => write!(f, "`{line}` failed: {output}"),
            NetError::Setting(path, error) => write!(f, "{path} can't be written: {error}"),
            NetError::Socket(device, error) => {
                write!(f, "no packet socket on {device} ({error}): run as root")
            }
            NetError::Program(device, error) => {
                write!(
                    f,
                    "no XDP program on {device} ({error}): run as root, Linux 5.18 on"
                )
            }
        }
    }
}

impl std::error::Error for NetError {}

/// A network namespace with its loopback device up. The kernel deletes it when nothing uses it any more.
pub struct NetNamespace {
    name: String,
    /// Shared with prepared commands, which need it when they start.
    file: Arc<File>,
}

impl NetNamespace {
    /// Creates a namespace. The name is for messages only.
    pub fn new(name: &str) -> Result<NetNamespace, NetError> {
        // Unsharing moves the calling thread permanently, so a separate thread does it.
        let file = thread::spawn(unshare).join().expect("it does not panic");
        let file = Arc::new(file.map_err(NetError::Namespace)?);
        let name = name.to_owned();
        let namespace = NetNamespace { name, file };
        namespace.run("ip", &["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// The namespace's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path for `ip link set netns` and `nsenter --net=`, valid while this value exists.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Runs a closure on a new thread in the namespace. Threads that the closure starts are in the namespace too, and
    /// sockets stay in the namespace where they were created. Panics are propagated.
    ///
    /// A program that was prepared with `NetNamespace::prepare` is killed when the thread that starts it ends, so such
    /// programs must not be started by the closure.
    pub fn enter<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            move_into(&self.file).expect("root may enter its own namespace");
            run()
        };
        // The thread ends with the closure, so no thread of the test stays in the namespace.
        thread::scope(|scope| {
            scope
                .spawn(inside)
                .join()
                .unwrap_or_else(|e| resume_unwind(e))
        })
    }

    /// Makes a command run in the namespace, in a new process group, and be killed when the thread that starts it ends.
    ///
    /// Only the network namespace changes: mounts, including `/sys/fs/bpf`, are the same (`ip netns exec` mounts
    /// another `/sys`).
    pub fn prepare(&self, command: &mut Command) {
        let file = Arc::clone(&self.file);
        let parent = rustix::process::getpid();
        // The program leads a process group of its own, so that its children are killed too.
        command.process_group(0);
        // SAFETY: between fork and exec the closure makes only system calls, by rustix without libc's state; it
        // allocates no memory and takes no lock.
        unsafe { command.pre_exec(move || enter_in_child(&file, parent)) };
    }

    /// Starts a command in the namespace; it and its children are killed on drop.
    pub fn spawn(&self, mut command: Command) -> Result<NamespaceProgram, NetError> {
        self.prepare(&mut command);
        let child = command.spawn();
        let child = child.map_err(|error| NetError::Start(command_line(&command), error))?;
        Ok(NamespaceProgram { child })
    }

    /// Runs a command in the namespace to its end; returns its standard output.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String, NetError> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        self.prepare(&mut command);
        let output = command.output();
        let output = output.map_err(|error| NetError::Start(program.to_owned(), error))?;
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(NetError::Failed(command_line(&command), stderr))
        }
    }

    /// Sets a kernel parameter of this namespace, by its path such as `ipv4/tcp_syncookies`.
    pub fn set(&self, parameter: &str, value: &str) -> Result<(), NetError> {
        let path = format!("/proc/sys/net/{parameter}");
        // /proc/sys/net shows the parameters of the namespace of the thread that opens it.
        let result = self.enter(|| std::fs::write(&path, value));
        result.map_err(|error| NetError::Setting(path, error))
    }

    /// Disables the offloads of a device: sent frames have complete checksums and do not exceed the MTU, and received
    /// frames are not merged.
    pub fn offload_off(&self, device: &str) -> Result<(), NetError> {
        let features = [
            "tx", "off", "rx", "off", "tso", "off", "gso", "off", "gro", "off",
        ];
        let arguments = [["-K", device].as_slice(), features.as_slice()].concat();
        self.run("ethtool", &arguments).map(drop)
    }

    /// Attaches an XDP program to the device, one end of a veth pair, while the returned value exists: only then does
    /// the device receive frames that a program at the other end sends with XDP_TX. Attaching the program enables GRO,
    /// but with this size limit no frames are merged.
    pub fn accept_xdp(&self, device: &str) -> Result<XdpVerdict, NetError> {
        self.run("ip", &["link", "set", device, "gro_max_size", "1"])?;
        let attached = self.enter(|| XdpVerdict::attach(device, FrameVerdict::Pass));
        attached.map_err(|error| NetError::Program(device.to_owned(), error))
    }
}

/// A program in a namespace, killed on drop with its process group.
pub struct NamespaceProgram {
    child: Child,
}

impl NamespaceProgram {
    /// The process, for its output and its status.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The program's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for NamespaceProgram {
    fn drop(&mut self) {
        // The child was not reaped yet, so its process id still belongs to it and its group.
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        // Waiting avoids a zombie.
        let _ = self.child.wait();
    }
}

/// One end of a veth pair.
pub struct CableEnd<'n> {
    /// The namespace of this end.
    pub namespace: &'n NetNamespace,
    /// The device's name in that namespace.
    pub device: &'n str,
    /// The addresses of this end (/24 and /64), if it has any.
    pub addresses: Option<(Ipv4Addr, Ipv6Addr)>,
}

impl CableEnd<'_> {
    fn set_up(&self, mtu: u16) -> Result<(), NetError> {
        let ip = |arguments: &[&str]| self.namespace.run("ip", arguments).map(drop);
        let mtu = mtu.to_string();
        if let Some((v4, v6)) = self.addresses {
            ip(&["address", "add", &format!("{v4}/24"), "dev", self.device])?;
            // Without nodad, the address could not be used for a second, during duplicate address detection.
            let v6 = format!("{v6}/64");
            ip(&["address", "add", &v6, "dev", self.device, "nodad"])?;
        } else {
            // An end without addresses only forwards frames, and must send none itself, such as router solicitations.
            self.namespace
                .set(&format!("ipv6/conf/{}/disable_ipv6", self.device), "1")?;
        }
        ip(&["link", "set", self.device, "mtu", &mtu, "up"])
    }
}

/// Connects two namespaces by a veth pair with this MTU (usually 1500). Both ends are up.
pub fn pair(a: &CableEnd, b: &CableEnd, mtu: u16) -> Result<(), NetError> {
    let peer = b.namespace.path();
    a.namespace.run(
        "ip",
        &[
            "link", "add", a.device, "type", "veth", "peer", "name", b.device, "netns", &peer,
        ],
    )?;
    a.set_up(mtu)?;
    b.set_up(mtu)
}

/// Moves the calling thread, which must end afterwards, to a new namespace. Returns the namespace as a file.
fn unshare() -> io::Result<File> {
    // SAFETY: file descriptors are not unshared, only the network of a thread that is about to end.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET)? };
    File::open("/proc/thread-self/ns/net")
}

fn move_into(file: &File) -> io::Result<()> {
    let network = Some(LinkNameSpaceType::Network);
    Ok(rustix::thread::move_into_link_name_space(
        file.as_fd(),
        network,
    )?)
}

/// Runs in the child before exec, so it makes only system calls.
fn enter_in_child(file: &File, parent: Pid) -> io::Result<()> {
    // The signal is sent when the thread that started the child ends, not its process.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(parent) {
        // The parent ended before the death signal was set.
        return Err(io::ErrorKind::Interrupted.into());
    }
    move_into(file)
}

fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

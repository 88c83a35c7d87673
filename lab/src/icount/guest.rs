//! Runs a guest: QEMU without acceleration, with the counting plugin, on its own network. All its files are in memory,
//! its tap device ends with QEMU, and QEMU ends with this program, so nothing is left behind. Independent of servers
//! and HTTP.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};

use super::boot::{BootMedia, BootSpec, arguments, disk_len};
use super::kernel::{BOOTED, READY, run, start_script};
use super::life::GuestLifeline;
use super::steps::{GuestTime, StepRequirements};
use super::{monitor, saved};

/// Maximum boot time.
const BOOT_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum time to resume from a saved state.
const RESUME_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time from boot or resume until the server listens.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which conditions are checked that the guest can't signal.
const STEP: Duration = Duration::from_millis(10);
/// Bytes moved by a repeated string instruction that count as one instruction.
const STRING_STEP: u64 = 16;
pub(super) const MAC: &str = "52:54:00:12:34:56";

/// Names and addresses of a guest's network.
#[derive(Clone, Debug)]
pub struct GuestNetwork {
    /// The name of the tap device.
    pub name: String,
    /// The host's address.
    pub host: Ipv4Addr,
    /// The guest's address.
    pub guest: Ipv4Addr,
    /// Length of the network's prefix.
    pub prefix: u8,
    /// The MTU, if not the default.
    pub mtu: Option<u32>,
}

impl GuestNetwork {
    /// Chooses a network by process id, so that no other process uses it, from the range reserved for benchmarks (RFC
    /// 2544, 198.18.0.0/15).
    #[expect(clippy::new_without_default, reason = "each is another")]
    pub fn new() -> GuestNetwork {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Relaxed));
        let base = u32::from(Ipv4Addr::new(198, 18, 0, 0));
        // The ids of concurrent processes are often close; multiplicative hashing makes their networks differ.
        let spread = process.wrapping_mul(0x9e37_79b9) >> 17;
        // The range has 2^17 addresses, and so 2^15 networks of four.
        let first = base + 4 * ((spread + number) % (1 << 15));
        GuestNetwork {
            // An interface name has at most 15 bytes (IFNAMSIZ).
            name: format!("ic{process}-{number}"),
            host: Ipv4Addr::from(first + 1),
            guest: Ipv4Addr::from(first + 2),
            // A /30 has four addresses, of which hosts can use two.
            prefix: 30,
            mtu: None,
        }
    }

    /// The network of an image with a fixed address.
    pub fn with_guest_address(guest: Ipv4Addr) -> GuestNetwork {
        let [a, b, c, d] = guest.octets();
        let host = Ipv4Addr::new(a, b, c, if d == 1 { 2 } else { 1 });
        GuestNetwork {
            host,
            guest,
            prefix: 24,
            ..GuestNetwork::new()
        }
    }

    /// Replaces `{guest}` and `{host}` with the addresses.
    pub fn fill_in(&self, text: &str) -> String {
        text.replace("{guest}", &self.guest.to_string())
            .replace("{host}", &self.host.to_string())
    }

    /// Configures the tap device after QEMU has created it. A permanent neighbour entry avoids ARP during measurements.
    fn create(&self) -> Result<(), String> {
        let (name, address) = (self.name.as_str(), format!("{}/{}", self.host, self.prefix));
        // Without IPv6 the host sends no unsolicited packets. If the host has no IPv6, the write fails, which is
        // harmless.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        let guest = self.guest.to_string();
        let neighbour = [
            "neigh",
            "replace",
            &guest,
            "lladdr",
            MAC,
            "nud",
            "permanent",
            "dev",
            name,
        ];
        if let Some(mtu) = self.mtu {
            run(Command::new("ip").args(["link", "set", name, "mtu", &mtu.to_string()]))?;
        }
        run(Command::new("ip").args(["addr", "add", &address, "dev", name]))?;
        run(Command::new("ip").args(["link", "set", name, "up"]))?;
        run(Command::new("ip").args(neighbour)).map(drop)
    }

    fn exists(&self) -> bool {
        Path::new("/sys/class/net").join(&self.name).exists()
    }
}

/// A running guest. Dropping it ends the guest.
pub struct QemuGuest {
    qemu: Child,
    life: GuestLifeline,
    /// Output of the guest's console.
    console: File,
    /// Output of QEMU.
    stderr: File,
    count: File,
    /// Instructions by translated block.
    profile: Option<File>,
    /// Pipes and names to stop the guest, if it can run in steps.
    steps: Option<StepRequirements>,
    network: GuestNetwork,
    linux: bool,
}

impl QemuGuest {
    /// Starts QEMU. The guest boots, or resumes from a saved state, in the background: see [`QemuGuest::wait_for`].
    ///
    /// # Errors
    /// QEMU does not start; the text gives the reason.
    pub fn boot(
        boot: &BootSpec,
        plugin: &Path,
        network: GuestNetwork,
    ) -> Result<QemuGuest, String> {
        let state = saved::state(boot, plugin, &network)?;
        let started = QemuGuest::start(boot, plugin, network, state.as_deref());
        let mut guest = started.map_err(|error| saved::failure(error, state.as_deref()))?;
        if boot.system.is_some() {
            // A saved state was taken after the boot, so only a booting guest must be awaited.
            if state.is_none() {
                guest.wait_until_booted()?;
            }
            guest.send_command(&start_script())?;
        }
        Ok(guest)
    }

    /// Starts QEMU and does not wait for the guest. With `state` the guest resumes from that state.
    ///
    /// # Errors
    /// QEMU does not start; the text gives the reason.
    pub(super) fn start(
        boot: &BootSpec,
        plugin: &Path,
        network: GuestNetwork,
        state: Option<&Path>,
    ) -> Result<QemuGuest, String> {
        // A page in a shared file, to which the plugin counts: the host can read the counts without stopping the guest.
        let count = memory_file(&[0; 4096])?;
        let profile = boot.has_profile.then(|| memory_file(b"")).transpose()?;
        let steps = boot.has_steps.then(|| StepRequirements::new(&network));
        let steps = steps.transpose()?;
        let (console, stderr) = (memory_file(b"")?, memory_file(b"")?);
        let files = boot.system.as_ref().map(|system| {
            let disk = memory_file(&system.content)?;
            let len = disk_len(system.content.len()) as u64;
            // The length in whole sectors, at least that of the content.
            disk.set_len(len)
                .map_err(|error| format!("a file in memory: {error}"))?;
            Ok::<_, String>([memory_file(&system.base)?, disk])
        });
        let files = files.transpose()?;
        let media = files.as_ref().map(|[base, content]| BootMedia {
            base: path(base),
            content: path(content),
        });
        let copy = |file: &File| {
            file.try_clone()
                .map_err(|error| format!("descriptor: {error}"))
        };
        // setpriv --pdeathsig: the kernel kills QEMU when the thread that started it ends for any reason.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
            .args(arguments(boot, plugin, &network, media.as_ref()))
            .args(
                state
                    .iter()
                    .flat_map(|file| monitor::incoming_arguments(file)),
            )
            .env("INSN_FILE", path(&count))
            .envs(profile.as_ref().map(|file| ("INSN_PROFILE", path(file))))
            .envs(steps.iter().flat_map(StepRequirements::environment))
            // A separate process group: Ctrl-C at the terminal must not reach QEMU, which would wait for a stopped
            // guest.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(copy(&console)?)
            .stderr(copy(&stderr)?);
        let qemu = command
            .spawn()
            .map_err(|error| format!("setpriv: {error}"))?;
        let mut guest = QemuGuest {
            life: GuestLifeline::from_child(&qemu).map_err(|error| format!("QEMU: {error}"))?,
            qemu,
            console,
            stderr,
            count,
            profile,
            steps,
            network,
            linux: boot.system.is_some(),
        };
        guest.wait_until(BOOT_TIMEOUT, "no network device from QEMU", |guest| {
            guest.network.exists()
        })?;
        // QEMU creates the tap device, which ends with QEMU.
        guest.network.create()?;
        // After it has created the network device, QEMU still reads the boot files. They must exist until the first
        // counted instruction proves that the machine runs.
        let timeout = state.map_or(BOOT_TIMEOUT, |_| RESUME_TIMEOUT);
        guest.wait_until(timeout, "QEMU does not start", |guest| {
            guest.instructions() > 0
        })?;
        Ok(guest)
    }

    /// Waits until the guest's shell accepts commands.
    pub(super) fn wait_until_booted(&mut self) -> Result<(), String> {
        self.wait_until(BOOT_TIMEOUT, "the guest does not boot", |guest| {
            text(&guest.console).contains(BOOTED)
        })
    }

    /// Runs a command in the guest's shell.
    fn send_command(&mut self, command: &str) -> Result<(), String> {
        let stdin = self.qemu.stdin.as_mut().filter(|_| self.linux);
        let stdin = stdin.ok_or_else(|| format!("{command}: the guest has no shell"))?;
        let written = stdin.write_all(format!("{command}\n").as_bytes());
        written.map_err(|error| format!("{command}: {error}"))
    }

    /// Waits until a server accepts connections at `port`.
    ///
    /// # Errors
    /// The guest ended or no server listens; the text includes the output of console and server.
    pub fn wait_for(&mut self, port: u16) -> Result<SocketAddr, String> {
        if self.linux {
            self.wait_until(BOOT_TIMEOUT, "the guest does not boot", |guest| {
                text(&guest.console).contains(READY)
            })?;
        }
        let address = SocketAddr::from((self.network.guest, port));
        // A bare image prints nothing while it boots, so the time limit for connection attempts must include the boot.
        let timeout = if self.linux {
            LISTEN_TIMEOUT
        } else {
            BOOT_TIMEOUT
        };
        self.wait_until(timeout, &format!("no answer at port {port}"), |_| {
            // The timeout is shorter than the first retransmission timeout of a SYN, 1 s (RFC 6298), so that a new
            // attempt is made first.
            TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok()
        })?;
        Ok(address)
    }

    /// The lifeline, which detects the guest's end.
    pub fn life(&self) -> GuestLifeline {
        self.life.clone()
    }

    /// Number of instructions so far; repeated string instructions count by the bytes that they moved.
    pub fn instructions(&self) -> u64 {
        let mut words = [0; 16];
        let read = self.count.read_exact_at(&mut words, 0);
        read.expect("a page in memory");
        let (plain, string_bytes) = words.split_at(8);
        let number = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("eight bytes"));
        number(plain) + number(string_bytes) / STRING_STEP
    }

    /// Bytes moved by repeated string instructions so far: in the kernel, copies and cleared pages.
    pub fn moved_len(&self) -> u64 {
        let mut word = [0; 8];
        let read = self.count.read_exact_at(&mut word, 8);
        read.expect("a page in memory");
        u64::from_le_bytes(word)
    }

    /// Waits until the guest is idle and returns the instructions so far, so that they include the work after a
    /// response.
    pub fn instructions_when_idle(&self) -> u64 {
        /// A timer tick of an idle guest costs some thousands of instructions, a response more than this.
        const REST: u64 = 20_000;
        let end = Instant::now() + Duration::from_secs(2);
        let mut count_before = self.instructions();
        loop {
            // The interval covers several timer ticks; if the count hardly grows, the guest is idle.
            sleep(STEP * 3);
            let now = self.instructions();
            if now - count_before < REST || Instant::now() > end {
                return now;
            }
            count_before = now;
        }
    }

    /// Stops the guest. Its time then advances only while a caller waits for it, by one nanosecond per instruction, in
    /// steps of at most `step_ns`.
    ///
    /// # Errors
    /// The guest was not booted with step support, or does not stop.
    pub fn step_by(&self, step_ns: u64) -> Result<GuestTime, String> {
        let steps = self.steps.as_ref().ok_or("the guest can't be stopped")?;
        steps.begin(self.pid(), &self.life, &self.count, step_ns)
    }

    /// Number of instructions so far by block address; empty without a profile.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut bytes = Vec::new();
        if let Some(file) = &self.profile {
            bytes.resize(file.metadata().map_or(0, |found| found.len()) as usize, 0);
            file.read_exact_at(&mut bytes, 0).expect("pages in memory");
        }
        let number = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("eight bytes"));
        let slots: Vec<(u64, u64)> = bytes
            .chunks_exact(16)
            .map(|slot| (number(&slot[..8]), number(&slot[8..])))
            .collect();
        // Address 0 marks a free slot in the plugin's hash table.
        slots.into_iter().filter(|(address, _)| *address != 0)
    }

    /// Returns the output of a shell command in the guest. The output is sent over the network, because the console is
    /// slow.
    ///
    /// # Errors
    /// There is no shell, or no output.
    pub fn output_of(&mut self, command: &str) -> Result<String, String> {
        let failed = |error: std::io::Error| format!("{command}: {error}");
        let listener = TcpListener::bind((self.network.host, 0)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let line = format!("{command} 2>/dev/null | nc {} {port}", self.network.host);
        self.send_command(&line)?;
        // accept has no timeout, and the guest may never connect.
        listener.set_nonblocking(true).map_err(failed)?;
        let end = Instant::now() + LISTEN_TIMEOUT;
        let mut stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if Instant::now() > end => return Err(failed(error)),
                Err(_) => sleep(STEP),
            }
        };
        stream.set_nonblocking(false).map_err(failed)?;
        stream
            .set_read_timeout(Some(LISTEN_TIMEOUT))
            .map_err(failed)?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).map_err(failed)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Adds the guest's status and output to the message of a failure.
    pub fn failure(&mut self, what_failed: &str) -> String {
        // If QEMU has ended, the guest's shell has too, so only the recorded output is left.
        if let Ok(Some(status)) = self.qemu.try_wait() {
            return format!(
                "{what_failed}: the guest ended ({status})\n{}\n{}",
                tail(&text(&self.stderr)),
                tail(&text(&self.console))
            );
        }
        let server = self.server_log();
        format!(
            "{what_failed}\n{}",
            tail(server.as_deref().unwrap_or(&text(&self.console)))
        )
    }

    /// Whether QEMU runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.qemu.try_wait(), Ok(None))
    }

    /// The server's output, read through the guest's shell; `None` if there is no shell.
    fn server_log(&mut self) -> Option<String> {
        const END: &str = "ICOUNT-END";
        let (from, end_offset) = (
            text(&self.console).len(),
            Instant::now() + Duration::from_secs(5),
        );
        // The command has the end mark in lower case, so that the shell's echo of the command does not match.
        let command = format!("cat /tmp/*.log; echo {END} | tr a-z A-Z").replace(END, "icount-end");
        self.send_command(&command).ok()?;
        while Instant::now() < end_offset {
            let console_text = text(&self.console).get(from..)?.to_owned();
            if console_text.contains(END) {
                let lines = console_text
                    .lines()
                    .filter(|line| !line.to_lowercase().contains("icount-end"));
                return Some(lines.collect::<Vec<_>>().join("\n"));
            }
            sleep(STEP);
        }
        None
    }

    fn wait_until(
        &mut self,
        timeout: Duration,
        what_failed: &str,
        met: impl Fn(&QemuGuest) -> bool,
    ) -> Result<(), String> {
        let end = Instant::now() + timeout;
        while !met(self) {
            if !self.runs() || Instant::now() > end {
                return Err(self.failure(what_failed));
            }
            sleep(STEP);
        }
        Ok(())
    }

    /// QEMU's process id.
    pub fn pid(&self) -> u32 {
        self.qemu.id()
    }
}

impl Drop for QemuGuest {
    fn drop(&mut self) {
        // The wait is needed: the tap device and its addresses disappear only with the process.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// Creates an anonymous file in memory, which exists until its last descriptor is closed.
pub(super) fn memory_file(content: &[u8]) -> Result<File, String> {
    let failed = |error: std::io::Error| format!("a file in memory: {error}");
    let file =
        memfd_create("lowroad-lab", MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let file = File::from(file);
    file.write_all_at(content, 0).map_err(failed)?;
    Ok(file)
}

/// The path by which another process of this user can open a memory file.
pub(super) fn path(file: &impl AsRawFd) -> String {
    // A memory file has no name in the file system, but the link in /proc can be opened again.
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

fn text(file: &File) -> String {
    let mut bytes = vec![0; file.metadata().map_or(0, |found| found.len()) as usize];
    // The serial console ends lines by CR LF.
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => String::from_utf8_lossy(&bytes).replace('\r', ""),
        Err(_) => String::new(),
    }
}

/// The last lines of a text.
fn tail(text: &str) -> String {
    const LINES: usize = 15;
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_networks_are_distinct_with_valid_interface_names() {
        let (one, two) = (GuestNetwork::new(), GuestNetwork::new());
        assert_ne!(one.name, two.name);
        assert_ne!(one.guest, two.guest);
        assert!(one.name.len() < 16, "the kernel's limit: {}", one.name);
        assert_eq!(u32::from(one.guest), u32::from(one.host) + 1);
        assert_eq!(one.guest.octets()[0], 198);
    }

    #[test]
    fn host_address_is_chosen_next_to_a_fixed_guest_address() {
        let network = GuestNetwork::with_guest_address(Ipv4Addr::new(10, 88, 0, 2));
        assert_eq!(network.host, Ipv4Addr::new(10, 88, 0, 1));
        assert_eq!(
            network.fill_in("ip={guest} gw={host}"),
            "ip=10.88.0.2 gw=10.88.0.1"
        );
        assert_eq!(
            GuestNetwork::with_guest_address(Ipv4Addr::new(10, 0, 0, 1))
                .host
                .octets()[3],
            2
        );
    }

    #[test]
    fn log_tail_has_fifteen_lines() {
        let long: String = (0..100)
            .map(|number| format!("line {number}\n\n"))
            .collect();
        assert_eq!(tail(&long).lines().count(), 15);
        assert!(tail(&long).ends_with("line 99"));
        assert_eq!(tail(""), "");
    }
}

//! Runs the image's program as a process on a tap device, for debugging and for tests without a virtual machine. Each
//! core is a thread with an event loop around `lowroad_unikernel::UnikernelServer`, as in the image's kernel.

mod core;
mod link;

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Instant;

use lowroad_engine::tap_device::TapDevice;
use lowroad_unikernel::archive::SiteArchive;
use lowroad_unikernel::{CoreSet, MachineSetup, UnikernelServer};

use self::core::{CoreWakeups, HostedCore};
use self::link::TapLink;
use super::address::ImageAddress;
use super::tap::HostTap;
use crate::signals;
use crate::terminal_output;

const MTU: u16 = 1500;

/// The parameters of a hosted image.
pub struct HostedImage<'h> {
    /// The site.
    pub archive: SiteArchive,
    /// The tap device's name.
    pub tap: &'h str,
    /// The source of the image's address.
    pub ip: ImageAddress,
    /// Memory in bytes for the pools and tables of all cores.
    pub memory_len: usize,
    /// Number of threads, each with its own queue of the device: 1 to [`CoreSet::COUNT_MAX`].
    pub cores: u16,
}

/// Runs the image until a signal.
///
/// # Errors
/// A message for the operator, with a remedy.
pub fn run(hosted: &HostedImage<'_>) -> Result<(), String> {
    let (name, count) = (hosted.tap, hosted.cores);
    let device = HostTap::prepare(name, hosted.ip, count.into())?;
    let taps = taps(name, count)?;
    let secret = secret()?;
    // `cores` is leaked, because the servers keep references to it for the life of the process.
    let cores: &'static CoreSet = Box::leak(Box::new(CoreSet::new(count, &secret)));
    let wakeups = CoreWakeups::new(count)?;
    let started = Instant::now();
    let stop = signals::receive_end_signals()?;
    let serve = |core: u16, tap: TapDevice, stop: Option<UnixStream>| {
        // When one core ends, even by a panic, all cores end.
        let _shutdown_guard = wakeups.shutdown_guard();
        let machine = MachineSetup {
            mac: mac(name),
            mtu: MTU,
            address: hosted.ip.address(),
            // Each core has its own memory pools and gets an equal share.
            memory_len: hosted.memory_len / usize::from(count),
            secret,
            cores: (count > 1).then_some((cores, core)),
        };
        let server = UnikernelServer::new(hosted.archive, machine)?;
        HostedCore::new(core, server, TapLink(tap), &wakeups, stop, started).serve(name)
    };
    let lost = thread::scope(|scope| {
        let mut taps = (0..count).zip(taps);
        let (_, first) = taps.next().ok_or("no core")?;
        let serve = &serve;
        let handles: Vec<_> = taps
            .map(|(core, tap)| scope.spawn(move || serve(core, tap, None)))
            .collect();
        // Core 0 runs on this thread, and alone receives the signals.
        let mut total = serve(0, first, Some(stop));
        for handle in handles {
            let lost = handle.join().map_err(|_| "a core has panicked".to_string());
            // Only the first error is reported; later ones are its consequences.
            total = total.and_then(|total| Ok(total + lost??));
        }
        total
    });
    // The device is removed only after the cores have closed their queues.
    drop(device);
    match lost? {
        0 => {}
        lost => terminal_output::note(format_args!("{name} did not accept {lost} frames")),
    }
    Ok(())
}

/// Opens `count` queues of the device.
fn taps(name: &str, count: u16) -> Result<Vec<TapDevice>, String> {
    let devices = match count {
        1 => TapDevice::open(name).map(|tap| vec![tap]),
        _ => (0..count).map(|_| TapDevice::open_queue(name)).collect(),
    };
    devices.map_err(|error| match (error.kind(), count) {
        // The kernel refuses IFF_MULTI_QUEUE for a device created without it, and requires it for one created with it.
        (ErrorKind::InvalidInput, 2..) => format!(
            "the tap device {name} has only one queue; create it with `ip tuntap add dev {name} \
             mode tap multi_queue`"
        ),
        (ErrorKind::InvalidInput, _) => {
            format!("the tap device {name} has several queues: use --cores, or create it without `multi_queue`")
        }
        _ => format!("the tap device {name}: {error}"),
    })
}

/// Derives a MAC address from the device's name (FNV-1a). It must not change between starts, because neighbours cache
/// it. Bit 1 of the first byte marks a locally administered address.
fn mac(name: &str) -> [u8; 6] {
    let hash = name.bytes().fold(0x811c_9dc5u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let [a, b, c, d] = hash.to_be_bytes();
    [0x02, b'l', a, b, c, d]
}

fn secret() -> Result<[u8; 32], String> {
    let mut secret = [0; 32];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut secret));
    read.map_err(|error| format!("/dev/urandom: {error}"))?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_are_local_and_distinct() {
        assert_eq!(mac("tap0")[0] & 3, 2);
        assert_ne!(mac("tap0"), mac("tap1"));
    }
}

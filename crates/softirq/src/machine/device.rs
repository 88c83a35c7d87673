//! Properties of a network device, queried by ioctl, netlink and sysfs.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketType, socket};

/// The device strips VLAN tags from frames: a bit of [`flags`], `ETH_FLAG_RXVLAN` of linux/ethtool.h.
pub const STRIPS_VLAN: u32 = 1 << 8;
/// The device merges segments: a bit of [`flags`], `ETH_FLAG_LRO` of linux/ethtool.h.
pub const MERGES: u32 = 1 << 15;

const GET_DRIVER: u32 = 3;
const GET_FLAGS: u32 = 0x25;
const GET_CHANNELS: u32 = 0x3c;

/// The device's MTU.
pub fn mtu(name: &str) -> io::Result<u32> {
    let mut request = request_for(name)?;
    send_ioctl(&mut request, libc::SIOCGIFMTU)?;
    // SAFETY: the kernel has filled in the MTU.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The driver's name.
pub fn driver(name: &str) -> io::Result<String> {
    // The command, then 32 bytes of the driver's name, then more (struct ethtool_drvinfo).
    let mut words = [0; 49];
    words[0] = GET_DRIVER;
    ethtool(name, &mut words)?;
    let bytes: Vec<u8> = words[1..9]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    let driver = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    Ok(driver.to_string_lossy().into_owned())
}

/// The device's offload flags: [`STRIPS_VLAN`], [`MERGES`] and others.
pub fn flags(name: &str) -> io::Result<u32> {
    let mut words = [GET_FLAGS, 0];
    ethtool(name, &mut words)?;
    Ok(words[1])
}

/// Queues in use, and their maximum number: of queue pairs, or of receive queues if rx and tx are separate.
pub fn queues(name: &str) -> io::Result<(u32, u32)> {
    // struct ethtool_channels: the maximum numbers of rx, tx, other and combined queues, then the current ones.
    let mut words = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
    ethtool(name, &mut words)?;
    Ok(match words[4] {
        0 => (words[5], words[1]),
        queues_max => (words[8], queues_max),
    })
}

/// The XDP features (`NETDEV_XDP_ACT_…`), and the id of the attached program, or 0.
pub fn xdp(index: i32) -> io::Result<(u64, u32)> {
    let mut options = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: the options contain their size, and outlive the call.
    let status = unsafe { libbpf_sys::bpf_xdp_query(index, 0, &raw mut options) };
    match status {
        0.. => {}
        number => return Err(io::Error::from_raw_os_error(-number)),
    }
    let programs = [
        options.prog_id,
        options.drv_prog_id,
        options.skb_prog_id,
        options.hw_prog_id,
    ];
    let program = programs.into_iter().find(|id| *id != 0);
    Ok((options.feature_flags, program.unwrap_or(0)))
}

/// The features negotiated by a virtio device and its driver. `/sys` may show another network namespace, so the
/// interface index is compared.
pub fn virtio(name: &str, index: i32) -> Option<u64> {
    let folder = format!("/sys/class/net/{name}");
    let ifindex = fs::read_to_string(format!("{folder}/ifindex")).ok()?;
    if ifindex.trim() != index.to_string() {
        return None;
    }
    bits(
        fs::read_to_string(format!("{folder}/device/features"))
            .ok()?
            .trim(),
    )
}

/// Parses a bit string with one digit per bit, the lowest bit first.
fn bits(text: &str) -> Option<u64> {
    let mut value = 0;
    for (at, digit) in text.bytes().enumerate().take(64) {
        match digit {
            b'1' => value |= 1 << at,
            b'0' => {}
            _ => return None,
        }
    }
    Some(value)
}

/// Sends an ethtool command; the kernel overwrites the words with its reply.
fn ethtool(name: &str, words: &mut [u32]) -> io::Result<()> {
    let mut request = request_for(name)?;
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    send_ioctl(&mut request, libc::SIOCETHTOOL)
}

fn request_for(name: &str) -> io::Result<libc::ifreq> {
    let name = CString::new(name)?;
    // SAFETY: an ifreq is plain data, for which all zeros are a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    for (to, from) in request.ifr_name.iter_mut().zip(name.to_bytes()).take(15) {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    Ok(request)
}

fn send_ioctl(request: &mut libc::ifreq, command: libc::Ioctl) -> io::Result<()> {
    let control_socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: the request names an interface. If it points to a buffer, that has the size that the command fills, and
    // outlives the call.
    match unsafe { libc::ioctl(control_socket.as_raw_fd(), command, &raw mut *request) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtio_feature_digits_are_parsed() {
        assert_eq!(bits("0110000000"), Some(0b110));
        assert_eq!(bits(&"1".repeat(70)), Some(u64::MAX));
        assert_eq!(bits("01x"), None);
    }

    #[test]
    fn lo_has_an_mtu_and_no_driver_with_xdp() {
        assert!(mtu("lo").is_ok_and(|mtu| mtu >= 1500));
        assert!(mtu("no-such-one").is_err());
    }
}

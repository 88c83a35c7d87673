//! A tap device, which sends and receives Ethernet frames and leaves checksums and segmentation to the kernel.
//!
//! See Documentation/networking/tuntap.rst, and struct virtio_net_hdr in linux/virtio_net.h.

use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::os::fd::{AsFd, BorrowedFd};

use crate::system_calls;

/// Bytes of `struct virtio_net_hdr` before each frame.
const HEADER_LEN: usize = 10;
const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_TCPV4: u8 = 1;
/// The offset of the checksum in a TCP header.
const TCP_CHECKSUM_AT: u16 = 16;
/// The longest frame with its header.
pub const BUFFER_LEN: usize = 65_536 + HEADER_LEN;

/// The process's end of a tap device. The device exists at least as long as this value.
pub struct TapDevice {
    file: File,
    lost: u64,
}

/// Work on a frame that is left to the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct TapOffload {
    /// The kernel completes the checksum of the TCP header at this offset.
    pub checksum_at: Option<u16>,
    /// The kernel segments the frame: the first number is the length of its headers, the second that of each segment's
    /// payload.
    pub segmentation: Option<(u16, u16)>,
}

impl TapDevice {
    /// Opens or creates the device. Reads and writes never block.
    ///
    /// # Errors
    /// Those of `/dev/net/tun`: `PermissionDenied` without CAP_NET_ADMIN if the device does not exist or belongs to
    /// another user, `ResourceBusy` if it is in use.
    pub fn open(name: &str) -> io::Result<TapDevice> {
        TapDevice::join(name, false)
    }

    /// Opens a queue of a multi-queue device, which is created if it does not exist: each call opens another queue. The
    /// kernel delivers the frames of a flow to the queue that last sent a frame of the flow.
    ///
    /// # Errors
    /// Those of [`TapDevice::open`]; `InvalidInput` if the device exists and is not multi-queue.
    pub fn open_queue(name: &str) -> io::Result<TapDevice> {
        TapDevice::join(name, true)
    }

    fn join(name: &str, is_queue: bool) -> io::Result<TapDevice> {
        let file = File::options()
            .read(true)
            .write(true)
            .open("/dev/net/tun")?;
        system_calls::join_tap(&file, name, is_queue)?;
        rustix::io::ioctl_fionbio(&file, true)?;
        Ok(TapDevice { file, lost: 0 })
    }

    /// The next frame, and whether its checksums need not be checked. `None` if there is no frame now. `buffer` has
    /// [`BUFFER_LEN`] bytes.
    ///
    /// # Errors
    /// The device was removed.
    pub fn receive<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<(&'b [u8], bool)>> {
        let len = match (&self.file).read(buffer) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        let received = buffer.get(..len).unwrap_or_default();
        let Some((header, frame)) = received.split_at_checked(HEADER_LEN) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        // The kernel leaves the checksums of frames from this host incomplete (`NEEDS_CSUM`).
        Ok(Some((frame, header[0] & (NEEDS_CSUM | DATA_VALID) != 0)))
    }

    /// Sends a frame, in parts. A frame that the device does not accept is dropped and counted.
    pub fn send(&mut self, parts: [&[u8]; 3], offload: TapOffload) {
        let header = header(offload);
        let [one, session, three] = parts;
        let parts = [&header[..], one, session, three].map(IoSlice::new);
        if rustix::io::writev(&self.file, &parts).is_err() {
            self.lost += 1;
        }
    }

    /// The number of frames that [`TapDevice::send`] lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl AsFd for TapDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The `virtio_net_hdr` of a frame, in native byte order (`TUNSETVNETLE` is not set).
fn header(offload: TapOffload) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    if let Some(tcp_at) = offload.checksum_at {
        header[0] = NEEDS_CSUM;
        header[6..8].copy_from_slice(&tcp_at.to_ne_bytes());
        header[8..10].copy_from_slice(&TCP_CHECKSUM_AT.to_ne_bytes());
    }
    if let Some((head_len, segment_len)) = offload.segmentation {
        header[1] = GSO_TCPV4;
        header[2..4].copy_from_slice(&head_len.to_ne_bytes());
        header[4..6].copy_from_slice(&segment_len.to_ne_bytes());
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtio_header_requests_checksum_and_segmentation() {
        assert_eq!(header(TapOffload::default()), [0; HEADER_LEN]);
        let left = TapOffload {
            checksum_at: Some(34),
            segmentation: Some((54, 1460)),
        };
        let [len, segment, tcp, at] = [54u16, 1460, 34, 16].map(u16::to_ne_bytes);
        let numbers = [len, segment, tcp, at].concat();
        assert_eq!(header(left).as_slice(), [&[1, 1][..], &numbers].concat());
    }
}

//! A network device: what is agreed on with it, and its two halves. Our own driver, since the crate `virtio-drivers` takes
//! none of what saves work per byte: sums made and verified by the device, segments cut by it, buffers that are sent from
//! where they are. Buffers are not merged: no frame is longer than one, as frames are not glued together on the way in.
//!
//! Read first: VIRTIO 1.2, 5.1.

use lowroad_net::Offload;

use super::receive::Receiver;
use super::send::Sender;
use super::{EVENT_IDX, Error, Transport, agree, begin};
use crate::cpu::Registers;

const SUM: u64 = 1 << 0;
const RECEIVED_SUM: u64 = 1 << 1;
const MTU: u64 = 1 << 3;
const MAC: u64 = 1 << 5;
const CUT_TCP4: u64 = 1 << 11;

/// A device that works.
pub struct Net {
    /// What comes in.
    pub receiver: Receiver,
    /// What goes out.
    pub sender: Sender,
    /// Its address.
    pub mac: [u8; 6],
    /// 576 to 1500.
    pub mtu: u16,
    /// What interrupts were taken is written there, if anywhere.
    pub acknowledgement: Option<Registers>,
}

/// Agrees with the device and begins.
pub fn open(device: &dyn Transport) -> Result<Net, Error> {
    let features = agree(
        device,
        SUM | RECEIVED_SUM | MTU | MAC | CUT_TCP4 | EVENT_IDX,
    )?;
    if features & MAC == 0 {
        return Err("the device has no address");
    }
    let own = device.own();
    let mac = core::array::from_fn(|n| own.read(n));
    let mtu = if features & MTU != 0 {
        own.read::<u16>(10).min(1500)
    } else {
        1500
    };
    if mtu < 576 {
        return Err("the device's MTU is below 576");
    }
    let has_events = features & EVENT_IDX != 0;
    let sum = features & SUM != 0;
    let offload = Offload {
        sum,
        segmentation: sum && features & CUT_TCP4 != 0,
    };
    let mut receiver = Receiver::open(device, has_events)?;
    let sender = Sender::open(device, has_events, offload)?;
    begin(device);
    receiver.refill();
    Ok(Net {
        receiver,
        sender,
        mac,
        mtu,
        acknowledgement: device.acknowledgement(),
    })
}

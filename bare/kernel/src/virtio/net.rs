//! A network device: what is agreed on with it, and its pairs of queues, one for each core. Our own driver, since the crate
//! `virtio-drivers` takes none of what saves work per byte: sums made and verified by the device, segments cut by it,
//! buffers that are sent from where they are. Buffers are not merged: no frame is longer than one, as frames are not
//! glued together on the way in.
//!
//! Read first: VIRTIO 1.2, 5.1.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lowroad_net::Offload;

use super::control::Control;
use super::receive::Receiver;
use super::send::Sender;
use super::transport::{EVENT_IDX, Error, Transport, agree, begin};
use crate::cpu::Registers;

const SUM: u64 = 1 << 0;
const RECEIVED_SUM: u64 = 1 << 1;
const MTU: u64 = 1 << 3;
const MAC: u64 = 1 << 5;
const CUT_TCP4: u64 = 1 << 11;
/// A control queue, and several pairs of queues.
const SEVERAL: u64 = 1 << 17 | 1 << 22;

/// What the device's own registers hold, as offsets.
const PAIRS_AT: usize = 8;
const MTU_AT: usize = 10;
/// Pairs of queues that a device may have (5.1.4.1).
const PAIRS_MAX: u16 = 0x8000;

/// A device with which is agreed on what it does.
pub struct Device {
    transport: Box<dyn Transport>,
    features: u64,
    /// Its address.
    pub mac: [u8; 6],
    /// 576 to 1500.
    pub mtu: u16,
    /// Pairs of queues that it has, each with an interrupt of its own.
    pub pairs_max: u16,
    /// Pairs of queues that it has in all: behind them is the control queue.
    pairs: u16,
}

/// A pair of queues of a device that works.
pub struct Net {
    /// What comes in.
    pub receiver: Receiver,
    /// What goes out.
    pub sender: Sender,
    /// What interrupts were taken is written there, if anywhere.
    pub acknowledgement: Option<Registers>,
}

// SAFETY: what it points to is its own, and the device's; any core may use it, one after the other.
unsafe impl Send for Net {}

impl Device {
    /// Agrees with the device: on several pairs of queues only if `many` are wanted.
    pub fn open(transport: Box<dyn Transport>, many: bool) -> Result<Device, Error> {
        let mut device = Device {
            transport,
            features: 0,
            mac: [0; 6],
            mtu: 1500,
            pairs_max: 1,
            pairs: 1,
        };
        device.agree(many)?;
        Ok(device)
    }

    fn agree(&mut self, many: bool) -> Result<(), Error> {
        let transport = &*self.transport;
        let wanted = SUM | RECEIVED_SUM | MTU | MAC | CUT_TCP4 | EVENT_IDX;
        let features = agree(transport, |offered| {
            // The one is of no use without the other, and may not be taken alone.
            let has_both = offered & SEVERAL == SEVERAL;
            wanted | if many && has_both { SEVERAL } else { 0 }
        })?;
        if features & MAC == 0 {
            return Err("the device has no address");
        }
        let own = transport.own();
        self.mac = core::array::from_fn(|n| own.read(n));
        if features & MTU != 0 {
            self.mtu = own.read::<u16>(MTU_AT).min(1500);
        }
        if self.mtu < 576 {
            return Err("the device's MTU is below 576");
        }
        self.pairs = if features & SEVERAL == SEVERAL {
            own.read(PAIRS_AT)
        } else {
            1
        };
        if !(1..=PAIRS_MAX).contains(&self.pairs) {
            return Err("the device has a number of queues that can't be");
        }
        self.pairs_max = self.pairs.min(transport.messages_max());
        self.features = features;
        Ok(())
    }

    /// Makes `count` pairs of queues, at most `pairs_max`, and begins.
    pub fn begin(&self, count: u16) -> Result<Vec<Net>, Error> {
        let transport = &*self.transport;
        let has_events = self.features & EVENT_IDX != 0;
        let sum = self.features & SUM != 0;
        let offload = Offload {
            sum,
            segmentation: sum && self.features & CUT_TCP4 != 0,
        };
        let pair = |n| {
            Ok(Net {
                receiver: Receiver::open(transport, n, has_events)?,
                sender: Sender::open(transport, n, has_events, offload)?,
                acknowledgement: transport.acknowledgement(),
            })
        };
        let mut all = (0..count).map(pair).collect::<Result<Vec<Net>, Error>>()?;
        let control = match count {
            1 => None,
            _ => Some(Control::open(transport, 2 * self.pairs, has_events)?),
        };
        begin(transport);
        for net in &mut all {
            net.receiver.refill();
        }
        match control {
            None => Ok(all),
            Some(control) => control.set_pairs(count).map(|()| all),
        }
    }

    /// Begins with one pair, as a device that has no more, after [`Device::begin`] has failed with more.
    pub fn begin_alone(&mut self) -> Result<Vec<Net>, Error> {
        self.agree(false)?;
        self.begin(1)
    }
}

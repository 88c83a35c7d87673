//! The network device: feature negotiation, and its pairs of queues, one for each core. The crate `virtio-drivers` is
//! not used, since it lacks the features that save work for each byte: checksum offload in both directions,
//! segmentation offload, and sending without copies. Receive buffers are not merged: a frame always fits one, since
//! receive coalescing is not negotiated.
//!
//! Read first: VIRTIO 1.2, 5.1.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lowroad_net::DeviceOffload;

use super::control::ControlQueue;
use super::receive_queue::FrameReceiver;
use super::transmit_queue::FrameSender;
use super::transport::{EVENT_IDX, VirtioError, VirtioTransport, begin, negotiate_features};
use crate::cpu::DeviceRegisters;

const SUM: u64 = 1 << 0;
const RECEIVED_SUM: u64 = 1 << 1;
const MTU: u64 = 1 << 3;
const MAC: u64 = 1 << 5;
const HOST_TSO4: u64 = 1 << 11;
/// A control queue, and multiple pairs of queues.
const CTRL_VQ_AND_MQ: u64 = 1 << 17 | 1 << 22;

/// Offsets in the device's configuration.
const PAIRS_AT: usize = 8;
const MTU_AT: usize = 10;
/// Maximum number of queue pairs of a device (5.1.4.1).
const PAIRS_MAX: u16 = 0x8000;

/// A device after feature negotiation.
pub struct VirtioNetDevice {
    transport: Box<dyn VirtioTransport>,
    features: u64,
    /// The device's MAC address.
    pub mac: [u8; 6],
    /// The device's MTU, 576 to 1500.
    pub mtu: u16,
    /// Number of queue pairs that can be used: each has an interrupt of its own.
    pub pairs_max: u16,
    /// Number of all queue pairs of the device. The control queue follows them.
    pairs: u16,
}

/// A pair of queues of a running device.
pub struct NetQueuePair {
    /// The receiving queue.
    pub receiver: FrameReceiver,
    /// The transmitting queue.
    pub sender: FrameSender,
    /// The register for acknowledging interrupts, if needed.
    pub acknowledgement: Option<DeviceRegisters>,
}

// SAFETY: the memory belongs to the queues and the device alone; any core may use it, one at a time.
unsafe impl Send for NetQueuePair {}

impl VirtioNetDevice {
    /// Negotiates features. Multiple queue pairs are negotiated only if `is_multicore`.
    pub fn open(
        transport: Box<dyn VirtioTransport>,
        is_multicore: bool,
    ) -> Result<VirtioNetDevice, VirtioError> {
        let mut device = VirtioNetDevice {
            transport,
            features: 0,
            mac: [0; 6],
            mtu: 1500,
            pairs_max: 1,
            pairs: 1,
        };
        device.negotiate(is_multicore)?;
        Ok(device)
    }

    fn negotiate(&mut self, is_multicore: bool) -> Result<(), VirtioError> {
        let transport = &*self.transport;
        let base_features = SUM | RECEIVED_SUM | MTU | MAC | HOST_TSO4 | EVENT_IDX;
        let features = negotiate_features(transport, |offered| {
            // Multiqueue needs the control queue, and may not be negotiated alone (5.1.3.1).
            let has_multiqueue = offered & CTRL_VQ_AND_MQ == CTRL_VQ_AND_MQ;
            base_features
                | if is_multicore && has_multiqueue {
                    CTRL_VQ_AND_MQ
                } else {
                    0
                }
        })?;
        if features & MAC == 0 {
            return Err("the device has no MAC address");
        }
        let config = transport.device_config();
        self.mac = core::array::from_fn(|n| config.read(n));
        if features & MTU != 0 {
            self.mtu = config.read::<u16>(MTU_AT).min(1500);
        }
        // The stack supports no smaller MTU.
        if self.mtu < 576 {
            return Err("the device's MTU is below 576");
        }
        self.pairs = if features & CTRL_VQ_AND_MQ == CTRL_VQ_AND_MQ {
            config.read(PAIRS_AT)
        } else {
            1
        };
        if !(1..=PAIRS_MAX).contains(&self.pairs) {
            return Err("the device reports an invalid number of queues");
        }
        self.pairs_max = self.pairs.min(transport.messages_max());
        self.features = features;
        Ok(())
    }

    /// Creates `count` queue pairs, at most `pairs_max`, and starts the device.
    pub fn begin(&self, count: u16) -> Result<Vec<NetQueuePair>, VirtioError> {
        let transport = &*self.transport;
        let has_events = self.features & EVENT_IDX != 0;
        let sum = self.features & SUM != 0;
        let offload = DeviceOffload {
            sum,
            segmentation: sum && self.features & HOST_TSO4 != 0,
        };
        let pair = |n| {
            Ok(NetQueuePair {
                receiver: FrameReceiver::open(transport, n, has_events)?,
                sender: FrameSender::open(transport, n, has_events, offload)?,
                acknowledgement: transport.acknowledgement(),
            })
        };
        let mut queue_pairs = (0..count)
            .map(pair)
            .collect::<Result<Vec<NetQueuePair>, VirtioError>>()?;
        let control = match count {
            1 => None,
            _ => Some(ControlQueue::open(transport, 2 * self.pairs, has_events)?),
        };
        // Buffers are offered only now: the device may be notified after DRIVER_OK only (3.1.1).
        begin(transport);
        for net in &mut queue_pairs {
            net.receiver.refill();
        }
        match control {
            None => Ok(queue_pairs),
            Some(control) => control.set_pairs(count).map(|()| queue_pairs),
        }
    }

    /// Restarts the device with one queue pair, after `VirtioNetDevice::begin` failed with more.
    pub fn begin_single(&mut self) -> Result<Vec<NetQueuePair>, VirtioError> {
        self.negotiate(false)?;
        self.begin(1)
    }
}

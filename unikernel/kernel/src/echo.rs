//! A stand-in for the server, to test the kernel alone: answers ARP and ICMP echo requests to its address. Datagrams to
//! certain UDP ports cause faults ([`PANIC`] and the following), or a segment that the device must split ([`LONG`]).
//! Each core answers the frames of its queue. The first byte of a datagram names the core that executes the action;
//! other cores only answer with their number.

use alloc::string::String;
use core::net::Ipv4Addr;

use lowroad_net::{AddressSource, LinkDevice, OutgoingFrame, ReceivedFrame};
use lowroad_unikernel::{CurrentTime, MachineSetup};

/// UDP ports, each with the action that a datagram to it causes.
const PANIC: u16 = 1;
const PAGE_FAULT: u16 = 2;
const STACK_OVERFLOW: u16 = 3;
const WRITE_TO_CODE: u16 = 6;
const RUN_DATA: u16 = 7;
const NULL: u16 = 8;
/// Answer.
const ANSWER: u16 = 0;
/// Send a segment that the device must split.
const LONG: u16 = 4;
/// Send one datagram in three descriptors, half of it from static memory.
const PARTS: u16 = 5;

/// Answer after [`LATER_US`], for which the core must be woken.
const LATER: u16 = 9;

const TICK_US: u64 = 1_000_000;
const LATER_US: u64 = 50_000;
/// Length of a delayed answer.
const KEPT_LEN: usize = 64;
static LASTING: [u8; 40_000] = [b'l'; 40_000];

/// The stand-in for the server.
pub struct EchoServer {
    core: u8,
    mac: [u8; 6],
    address: Ipv4Addr,
    next_us: u64,
    /// A delayed answer, its length, and the time at which it is due.
    delayed: Option<([u8; KEPT_LEN], usize, u64)>,
    stopping: bool,
    message: Option<String>,
}

impl EchoServer {
    pub fn new(machine: MachineSetup) -> Result<EchoServer, String> {
        let AddressSource::Static { address, .. } = machine.address else {
            return Err(String::from("ip= is needed"));
        };
        crate::check::bytes();
        crate::check::heap();
        let core = machine.cores.map_or(0, |(_, core)| core as u8);
        let message = Some(alloc::format!(
            "core {core} answers pings at {address}, {} MiB",
            machine.memory_len >> 20
        ));
        Ok(EchoServer {
            core,
            mac: machine.mac,
            address,
            next_us: 0,
            delayed: None,
            stopping: false,
            message,
        })
    }

    pub fn received(
        &mut self,
        now: CurrentTime,
        link: &mut impl LinkDevice,
        received: ReceivedFrame<'_>,
    ) {
        let frame = received.frame;
        let mut buffer = [0; 1514];
        let Some(answer) = buffer
            .get_mut(..frame.len())
            .filter(|answer| answer.len() >= 42)
        else {
            return;
        };
        answer.copy_from_slice(frame);
        answer.copy_within(6..12, 0);
        answer[6..12].copy_from_slice(&self.mac);
        let octets = self.address.octets();
        match (&frame[12..14], frame[23]) {
            ([8, 6], _) if frame[38..42] == octets && frame[21] == 1 => {
                answer[21] = 2;
                answer.copy_within(22..32, 32);
                answer[22..28].copy_from_slice(&self.mac);
                answer[28..32].copy_from_slice(&octets);
                send(link, answer, &[]);
            }
            ([8, 0], 1) if frame[30..34] == octets => {
                swap_addresses(answer);
                answer[34] = 0;
                let (sum, carry) =
                    u16::from_be_bytes([answer[36], answer[37]]).overflowing_add(0x0800);
                answer[36..38].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
                send(link, answer, &[]);
            }
            ([8, 0], 17) if frame[30..34] == octets => {
                swap_addresses(answer);
                // The answer has no UDP checksum, since the checksum of a frame from this host may be partial.
                answer[40..42].fill(0);
                let mut port = u16::from_be_bytes([frame[36], frame[37]]);
                let has_payload = frame[38..40] > [0, 8][..];
                if has_payload && let Some(core) = answer.get_mut(42) {
                    if *core != self.core {
                        port = ANSWER;
                    }
                    *core = self.core;
                }
                if port == LATER {
                    let mut delayed = [0; KEPT_LEN];
                    let len = answer.len().min(KEPT_LEN);
                    delayed[..len].copy_from_slice(&answer[..len]);
                    self.delayed = Some((delayed, len, now.mono_us + LATER_US));
                } else {
                    datagram(link, answer, port);
                }
            }
            _ => {}
        }
    }

    /// The first core's timer expires every second; those of other cores only when an answer is due, so that only the
    /// tested event wakes them.
    pub fn tick(&mut self, now: CurrentTime, link: &mut impl LinkDevice) -> Option<u64> {
        if now.mono_us >= self.next_us {
            self.next_us = now.mono_us + TICK_US;
        }
        if let Some((delayed, len, _)) = self
            .delayed
            .take_if(|(_, _, due_us)| now.mono_us >= *due_us)
        {
            send(link, &delayed[..len], &[]);
        }
        let delayed_us = self.delayed.map(|(_, _, due_us)| due_us);
        match self.core {
            0 => Some(delayed_us.map_or(self.next_us, |us| us.min(self.next_us))),
            _ => delayed_us,
        }
    }

    pub fn take_wakes(&mut self) -> u64 {
        0
    }

    pub fn prepare_sleep(&self) -> bool {
        true
    }

    pub fn on_wake(&self) {}

    pub fn stop(&mut self) {
        self.stopping = true;
    }

    pub fn is_stopped(&self, _now: CurrentTime) -> bool {
        self.stopping
    }

    pub fn take_message(&mut self) -> Option<String> {
        self.message.take()
    }
}

fn swap_addresses(answer: &mut [u8]) {
    let source: [u8; 4] = core::array::from_fn(|n| answer[26 + n]);
    answer.copy_within(30..34, 26);
    answer[30..34].copy_from_slice(&source);
}

fn send(link: &mut impl LinkDevice, head: &[u8], static_bytes: &'static [u8]) {
    let (head, copied) = head.split_at(34);
    link.send(&OutgoingFrame {
        head,
        copied,
        static_bytes,
        partial_sum: None,
        segment_len: None,
    });
}

fn datagram(link: &mut impl LinkDevice, answer: &mut [u8], port: u16) {
    match port {
        PANIC => panic!("as asked for"),
        // SAFETY: none; the fault is intended.
        PAGE_FAULT => unsafe { core::ptr::without_provenance_mut::<u8>(1 << 40).write_volatile(1) },
        // SAFETY: none; the fault is intended.
        WRITE_TO_CODE => unsafe { (set_len as *const () as *mut u8).write_volatile(1) },
        // SAFETY: none; the fault is intended.
        RUN_DATA => unsafe {
            core::mem::transmute::<*const u8, extern "C" fn()>(LASTING.as_ptr())()
        },
        // SAFETY: none; the fault is intended.
        NULL => unsafe {
            core::arch::asm!("mov byte ptr [{0}], 1", in(reg) 0_u64);
        },
        STACK_OVERFLOW => _ = deep(u64::from(port)),
        LONG => long(link, answer),
        PARTS => {
            let mut head = [0; 42];
            head.copy_from_slice(&answer[..42]);
            let copied = [b'c'; 500];
            head[38..42].copy_from_slice(&[
                ((8 + 1000) >> 8) as u8,
                ((8 + 1000) & 0xff) as u8,
                0,
                0,
            ]);
            set_len(&mut head, 28 + 1000);
            link.send(&OutgoingFrame {
                head: &head,
                copied: &copied,
                static_bytes: &LASTING[..500],
                partial_sum: None,
                segment_len: None,
            });
        }
        _ => send(link, answer, &[]),
    }
}

/// Sends a TCP segment that belongs to no connection, for the device to checksum and split.
fn long(link: &mut impl LinkDevice, answer: &[u8]) {
    let mut head = [0; 54];
    head[..34].copy_from_slice(&answer[..34]);
    head[23] = 6;
    head[46] = 5 << 4;
    head[47] = 0x10;
    let len = 40 + LASTING.len();
    set_len(&mut head, len as u16);
    let mut sum = 6 + 20 + LASTING.len() as u32;
    for pair in head[26..34].chunks_exact(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
    }
    let sum = (sum & 0xffff) + (sum >> 16);
    head[50..52].copy_from_slice(&((sum & 0xffff) as u16 + (sum >> 16) as u16).to_be_bytes());
    let Some(offload) = Some(link.offload()).filter(|offload| offload.segmentation) else {
        return;
    };
    let frame = OutgoingFrame {
        head: &head,
        copied: &[],
        static_bytes: &LASTING,
        partial_sum: offload.sum.then_some(34),
        segment_len: Some(1460),
    };
    link.send(&frame);
}

/// Sets the length of an IPv4 packet, and its checksum.
fn set_len(head: &mut [u8], len: u16) {
    head[16..18].copy_from_slice(&len.to_be_bytes());
    head[24..26].fill(0);
    let sum: u32 = head[14..34]
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    head[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[inline(never)]
#[allow(unconditional_recursion)]
fn deep(n: u64) -> u64 {
    let pad = core::hint::black_box([n; 64]);
    deep(pad[3]) + pad[5]
}

//! Tests machines with several processors. A network device with several queues needs a tap device, hence a network
//! namespace and root. Each core answers datagrams with its number.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use crate::guest::{Guest, Machine, Q35, skip};

/// Set in a test process that runs within its own network namespace.
const IN_NETWORK: &str = "LOWROAD_TEST_NETWORK";
const GUEST: &str = "192.0.2.2";
const OWN: &str = "192.0.2.1";
/// The port to which the guest answers after a delay.
const LATER: u16 = 9;
/// The guest's port at which a datagram causes a panic.
const PANIC: u16 = 1;
/// The guest's port at which a datagram causes a page fault.
const PAGE_FAULT: u16 = 2;
/// The guest's port at which a datagram causes a stack overflow.
const STACK_OVERFLOW: u16 = 3;

/// Whether this test process runs in its own network namespace, with a tap device of two queues. If not, runs the test
/// again in such a process.
#[track_caller]
fn has_network(test: &str) -> bool {
    if std::env::var_os(IN_NETWORK).is_some() {
        for line in [
            "link set lo up",
            "tuntap add dev tap0 mode tap multi_queue",
            "address add 192.0.2.1/24 dev tap0",
            // No other traffic may wake a core.
            "link set tap0 addrgenmode none",
            "link set tap0 up",
        ] {
            let done = Command::new("ip").args(line.split(' ')).status().unwrap();
            assert!(done.success(), "ip {line}");
        }
        return true;
    }
    if std::env::var_os("LOWROAD_KERNEL").is_none() {
        skip("LOWROAD_KERNEL is not set");
        return false;
    }
    let unshare = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--net", program]);
        command
    };
    if !unshare("ip")
        .arg("-V")
        .output()
        .is_ok_and(|done| done.status.success())
    {
        skip("no network of its own: that takes root, unshare and ip");
        return false;
    }
    let own = std::env::current_exe().unwrap();
    let done = unshare(own.to_str().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(IN_NETWORK, "1")
        .status();
    assert!(done.unwrap().success(), "{test} in a network of its own");
    false
}

/// Starts a machine with this many processors and two queues.
#[track_caller]
fn start(test: &str, processors: u16, more: &[&str]) -> Option<Machine> {
    start_with(test, processors, "vectors=6", more)
}

/// As [`start`], with options for the network device.
#[track_caller]
fn start_with(test: &str, processors: u16, device: &str, more: &[&str]) -> Option<Machine> {
    if !has_network(test) {
        return None;
    }
    let machine = [
        "-M",
        "q35",
        "-device",
        &format!("virtio-net-pci,netdev=n,mac=52:54:00:12:34:56,mq=on,{device}"),
        "-smp",
        &processors.to_string(),
    ];
    let netdev = "tap,id=n,ifname=tap0,script=no,downscript=no,queues=2";
    Machine::start(netdev, test, &machine, more)
}

/// Returns the core that answers a datagram between these ports. Both are the same, since the guest does not swap them.
fn core_of(port: u16) -> u8 {
    let socket = UdpSocket::bind((OWN, port)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let mut answer = [0; 8];
    for _ in 0..30 {
        socket.send_to(&[0xff, 7], (GUEST, port)).unwrap();
        if let Ok(2) = socket.recv(&mut answer) {
            assert_eq!(answer[1], 7);
            return answer[0];
        }
    }
    panic!("no answer at port {port}");
}

/// Sends from one port after another until both cores have answered.
fn wait_for_both_cores() {
    let mut cores = BTreeSet::new();
    for port in 1000..1200 {
        cores.insert(core_of(port));
        if cores.len() == 2 {
            break;
        }
    }
    assert_eq!(cores, BTreeSet::from([0, 1]));
}

/// Sends a command to a core, from many ports, since it is not known in advance which queue receives a datagram.
fn send_command(core: u8, port: u16) {
    for from in 2000..2064 {
        let socket = UdpSocket::bind((OWN, from)).unwrap();
        socket.send_to(&[core], (GUEST, port)).unwrap();
    }
}

/// Waits for a core's delayed answer, for which only the core's timer wakes it.
fn wait_for_delayed_answer(core: u8) {
    let socket = UdpSocket::bind((OWN, LATER)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    for _ in 0..30 {
        send_command(core, LATER);
        let mut answer = [0; 8];
        // Other cores answer immediately, to the sender's port or this one.
        while let Ok(len) = socket.recv(&mut answer) {
            if answer[..len] == [core] {
                return;
            }
        }
    }
    panic!("core {core} gives no answer after a while");
}

#[test]
fn device_with_one_queue_is_used_by_one_core() {
    let Some(guest) = Guest::start(Q35, &["-smp", "4", "-no-reboot"]) else {
        return;
    };
    guest.expect_line("1 of 4 processors used: the network device has no more queues");
    guest.expect_line("core 0 answers pings");
    guest.ping(56);
}

#[test]
fn both_cores_answer_immediately_and_by_timer() {
    let test = "cores::both_cores_answer_immediately_and_by_timer";
    let Some(machine) = start(test, 2, &["-no-reboot"]) else {
        return;
    };
    machine.expect_line("lowroad: 2 cores");
    wait_for_both_cores();
    wait_for_delayed_answer(0);
    wait_for_delayed_answer(1);
}

#[test]
fn processors_without_a_queue_are_not_used() {
    let test = "cores::processors_without_a_queue_are_not_used";
    let Some(machine) = start(test, 5, &["-no-reboot"]) else {
        return;
    };
    machine.expect_line("2 of 5 processors used: the network device has no more queues");
    wait_for_both_cores();
}

/// Checks that a device has queues for only one core, regardless of its other features.
#[track_caller]
fn check_only_one_core_is_used(test: &str, device: &str) {
    let Some(machine) = start_with(test, 2, device, &["-no-reboot"]) else {
        return;
    };
    machine.expect_line("1 of 2 processors used: the network device has no more queues");
    for port in 1000..1020 {
        assert_eq!(core_of(port), 0);
    }
}

#[test]
fn without_a_control_queue_one_core_is_used() {
    let test = "cores::without_a_control_queue_one_core_is_used";
    // The device still offers several queues.
    check_only_one_core_is_used(
        test,
        "vectors=6,ctrl_vq=off,ctrl_rx=off,ctrl_vlan=off,ctrl_guest_offloads=off,guest_announce=off,ctrl_mac_addr=off",
    );
}

#[test]
fn with_one_interrupt_one_core_is_used() {
    let test = "cores::with_one_interrupt_one_core_is_used";
    check_only_one_core_is_used(test, "vectors=1");
}

#[test]
fn one_processor_uses_one_queue() {
    let test = "cores::one_processor_uses_one_queue";
    let Some(machine) = start(test, 1, &["-no-reboot"]) else {
        return;
    };
    machine.expect_line("core 0 answers pings");
    for port in 1000..1020 {
        assert_eq!(core_of(port), 0);
    }
}

#[test]
fn faults_of_any_core_are_reported_and_restart_the_machine() {
    let test = "cores::faults_of_any_core_are_reported_and_restart_the_machine";
    let Some(machine) = start(test, 2, &[]) else {
        return;
    };
    let faults = [
        (
            1,
            PANIC,
            "core 1: panicked",
            "lowroad_kernel::main_loop::run",
        ),
        (
            1,
            PAGE_FAULT,
            "core 1: page fault (14, error 0x2)",
            "lowroad_kernel::main_loop::run",
        ),
        (
            1,
            STACK_OVERFLOW,
            "core 1: page fault (14, error 0x2)",
            "echo::deep",
        ),
        (
            0,
            PAGE_FAULT,
            "core 0: page fault (14, error 0x2)",
            "lowroad_kernel::main_loop::run",
        ),
    ];
    for (n, (core, port, fault, function)) in faults.into_iter().enumerate() {
        machine.expect_line("lowroad: 2 cores");
        wait_for_both_cores();
        send_command(core, port);
        machine.expect_line(fault);
        machine.expect_line(function);
        machine.expect_line("by PVH");
        machine.expect_line(&format!("restarted after fault {}: core {core}: ", n + 1));
    }
    machine.expect_line("lowroad: 2 cores");
    wait_for_both_cores();
}

#[test]
fn power_button_stops_all_cores() {
    let test = "cores::power_button_stops_all_cores";
    let Some(mut machine) = start(test, 2, &["-no-reboot"]) else {
        return;
    };
    machine.expect_line("lowroad: 2 cores");
    wait_for_both_cores();
    machine.press_button();
    machine.expect_line("power button: stopping");
    let line = machine.expect_line("lowroad: ");
    assert!(line.contains(" sent, 0 dropped"), "{line}");
    assert!(machine.qemu.wait().unwrap().success());
}

//! Boots the kernel, built with the feature `echo`, in QEMU, and exchanges frames or datagrams with it. `try.sh` builds
//! the kernel and runs these tests; without `LOWROAD_KERNEL` or QEMU, they count as skipped.

mod cores;
mod guest;

use guest::{Guest, MAC, MICROVM, OWN_MAC, Q35, checksum, packet};

#[track_caller]
fn answers(machine: &[&str], more: &[&str]) {
    let Some(guest) = Guest::start(machine, more) else {
        return;
    };
    guest.expect_line("by PVH, 63 MiB");
    guest.expect_line("unknown word on the command line: odd");
    guest.expect_line("52:54:00:12:34:56, MTU 1500, site of 6 bytes");
    guest.expect_line("core 0 answers pings at 192.0.2.2");
    let mut arp = [
        &[0xff; 6][..],
        &OWN_MAC,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
        &OWN_MAC,
        &[192, 0, 2, 1],
    ]
    .concat();
    arp.extend([0, 0, 0, 0, 0, 0, 192, 0, 2, 2]);
    let answer = guest.exchange(&arp, |frame| frame.get(12..14) == Some(&[8, 6]));
    assert_eq!(answer[22..28], MAC);
    // More frames than the queues hold, up to the maximum length.
    for n in 0..600 {
        guest.ping(if n % 3 == 0 { 1472 } else { n });
    }
    let parts = guest.exchange(&packet(17, &[0, 9, 0, 5, 0, 8, 0, 0]), |frame| {
        frame.get(23) == Some(&17)
    });
    assert_eq!(checksum(&parts[14..34]), [0, 0]);
    assert!(
        parts[42..542].iter().all(|byte| *byte == b'c')
            && parts[542..].iter().all(|byte| *byte == b'l')
    );
    assert_eq!(parts.len(), 1042);
}

#[test]
fn answers_on_q35() {
    answers(Q35, &["-no-reboot"]);
}

#[test]
fn answers_on_microvm() {
    answers(MICROVM, &["-no-reboot"]);
}

#[test]
fn answers_on_pc() {
    answers(
        &[
            "-M",
            "pc",
            "-device",
            "virtio-net-pci,netdev=n,mac=52:54:00:12:34:56",
        ],
        &["-no-reboot"],
    );
}

#[test]
fn answers_without_event_idx() {
    answers(
        &[
            "-M",
            "q35",
            "-device",
            "virtio-net-pci,netdev=n,mac=52:54:00:12:34:56,event_idx=off",
        ],
        &["-no-reboot"],
    );
}

#[test]
fn power_button_stops_the_machine() {
    let Some(mut guest) = Guest::start(Q35, &["-no-reboot"]) else {
        return;
    };
    guest.expect_line("answers pings");
    guest.ping(56);
    guest.machine.press_button();
    guest.expect_line("power button: stopping");
    guest.expect_line(" sent, 0 dropped");
    assert!(guest.machine.qemu.wait().unwrap().success());
}

#[test]
fn faults_are_reported_and_restart_the_machine() {
    let Some(guest) = Guest::start(Q35, &[]) else {
        return;
    };
    guest.expect_line("answers pings");
    let faults = [
        (1, "as asked for", "lowroad_kernel::main_loop::run"),
        (
            2,
            "page fault (14, error 0x2)",
            "lowroad_kernel::main_loop::run",
        ),
        (3, "page fault (14, error 0x2)", "echo::deep"),
        (
            6,
            "page fault (14, error 0x3)",
            "lowroad_kernel::main_loop::run",
        ),
        (7, "page fault (14, error 0x11)", "lowroad_kernel::serve"),
        (
            8,
            "page fault (14, error 0x2)",
            "lowroad_kernel::main_loop::run",
        ),
    ];
    for (n, (port, fault, function)) in faults.into_iter().enumerate() {
        guest.ping(56);
        guest.datagram(port);
        guest.expect_line(fault);
        guest.expect_line(function);
        guest.expect_line("by PVH");
        guest.expect_line(&format!("restarted after fault {}: ", n + 1));
        guest.expect_line("answers pings");
    }
}

#[test]
fn machine_without_network_device_stops() {
    let Some(mut guest) =
        Guest::start(&["-M", "q35", "-device", "e1000,netdev=n"], &["-no-reboot"])
    else {
        return;
    };
    guest.expect_line("no usable network device");
    assert!(guest.machine.qemu.wait().unwrap().success());
}

#[test]
fn machine_without_memory_for_the_site_stops() {
    let Some(mut guest) = Guest::start(Q35, &["-no-reboot", "-m", "16"]) else {
        return;
    };
    guest.expect_line("the site lies beyond the end of memory");
    assert!(guest.machine.qemu.wait().unwrap().success());
}

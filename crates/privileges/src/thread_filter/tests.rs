use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::Command;

use lowroad_testkit::system_call::{call, without_arguments};

use super::*;

/// The numbers of the errors of system calls (errno(3)).
const PERM: i32 = libc::EPERM;

/// Runs `test` on a thread with this filter.
fn filtered(filter: ThreadFilter, test: impl FnOnce() + Send) {
    start_filtered(&filter, test).expect("a kernel with seccomp");
}

fn request_filter() -> ThreadFilter {
    ThreadFilter::for_requests().expect("a known processor")
}

/// The error number of a socket of this family and type.
fn socket_error(family: i32, kind: i32) -> Option<i32> {
    let made = call(libc::SYS_socket, [family as u64, kind as u64]);
    made.err().and_then(|error| error.raw_os_error())
}

#[test]
fn denied_calls_fail_with_eperm() {
    // Without a filter, these calls succeed or report their missing arguments.
    for number in [
        libc::SYS_execve,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_clone3,
    ] {
        let error = without_arguments(number).err();
        let error = error.and_then(|error| error.raw_os_error());
        assert!(
            ![Some(PERM), Some(libc::ENOSYS)].contains(&error),
            "{number}: {error:?}"
        );
    }
    filtered(request_filter(), || {
        for number in DENIED {
            let error = without_arguments(*number).expect_err("denied");
            assert_eq!(error.raw_os_error(), Some(PERM), "{number}");
        }
        let error = without_arguments(libc::SYS_clone3).expect_err("denied");
        assert_eq!(error.raw_os_error(), Some(libc::ENOSYS));
        for flag in NAMESPACES {
            let error = call(libc::SYS_clone, [flag as u64, 0]).expect_err("denied");
            assert_eq!(error.raw_os_error(), Some(PERM), "{flag:x}");
        }
    });
}

#[test]
fn programs_and_sockets_for_packets_are_denied() {
    assert!(Command::new("true").status().is_ok());
    filtered(request_filter(), || {
        let started = Command::new("true").status();
        assert_eq!(
            started.map_err(|error| error.kind()).err(),
            Some(ErrorKind::PermissionDenied)
        );
        for (family, kind) in [
            (libc::AF_PACKET, libc::SOCK_RAW),
            (libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC),
            (libc::AF_INET, libc::SOCK_RAW),
            (libc::AF_INET6, libc::SOCK_RAW | libc::SOCK_NONBLOCK),
            (libc::AF_INET, SOCK_PACKET),
            (libc::AF_ALG, libc::SOCK_SEQPACKET),
            (libc::AF_VSOCK, libc::SOCK_STREAM),
        ] {
            assert_eq!(socket_error(family, kind), Some(PERM), "{family} {kind}");
        }
        assert_eq!(socket_error(libc::AF_NETLINK, libc::SOCK_RAW), None);
    });
}

#[test]
fn work_of_requests_is_allowed_and_threads_inherit_the_filter() {
    filtered(request_filter(), || {
        let inherited = thread::spawn(|| Command::new("true").status().is_err());
        assert!(inherited.join().expect("no panic"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("open");
        let (mut served, _) = listener.accept().expect("a client");
        client.write_all(b"a").expect("open");
        served.read_exact(&mut [0]).expect("a byte");
        UdpSocket::bind("[::]:0")
            .or_else(|_| UdpSocket::bind("0.0.0.0:0"))
            .expect("a port");
        UnixStream::pair().expect("a pair");
        assert!("localhost:80".to_socket_addrs().is_ok());
        let file = std::env::temp_dir().join(format!("lowroad-filter-{}", std::process::id()));
        fs::write(&file, "x")
            .and_then(|()| fs::remove_file(&file))
            .expect("a file");
    });
}

#[test]
fn helper_has_no_sockets() {
    filtered(
        ThreadFilter::for_helpers().expect("a known processor"),
        || {
            for family in FAMILIES {
                assert_eq!(
                    socket_error(family, libc::SOCK_DGRAM),
                    Some(PERM),
                    "{family}"
                );
            }
            assert!(fs::read("/proc/self/status").is_ok());
        },
    );
}

/// Prints the time of a system call with and without the filter.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_system_call() {
    const CALLS: u32 = 2_000_000;
    let measure = || {
        let start = std::time::Instant::now();
        (0..CALLS).for_each(|_| drop(without_arguments(libc::SYS_getppid)));
        start.elapsed() / CALLS
    };
    println!("without: {:?}", (measure(), measure()));
    filtered(request_filter(), || {
        println!("with: {:?}", (measure(), measure()))
    });
}

//! The memory use of an idle connection, as counted by the allocator. A single test on one thread, in its own process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use lowroad_tls::authority::LocalAuthority;
use lowroad_tls::certificates::{CertificateMap, CertificateStore};
use lowroad_tls::{
    ClientConnector, ServerTrust, TicketKeys, TicketService, TlsAcceptor, TlsClient, TlsClock,
    TlsServer, TlsServerSettings,
};

struct CountingAllocator;

static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

// SAFETY: each function passes its arguments unchanged to the system allocator; the counter has no influence on the
// result.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller satisfies the contract of `GlobalAlloc`, which is that of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller satisfies the contract of `GlobalAlloc`, which is that of the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

const NOW_S: u64 = 1_795_473_525;
/// The limit for an idle connection, without the allocations of aws-lc for its keys (see below).
const IDLE_MAX: isize = 4096;

fn exchange_bytes(server: &mut TlsServer, client: &mut TlsClient, mut to_server: Vec<u8>) {
    let (mut plain, mut to_client) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let done = server.receive(&mut to_server, &mut plain, &mut to_client);
        done.expect("the server is content");
        to_server.clear();
        let done = client.receive(&mut to_client, &mut plain, &mut to_server);
        done.expect("the client is content");
        to_client.clear();
    }
}

/// The resident memory of the process in bytes, including allocations of aws-lc.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages = status.split(' ').nth(1).expect("resident pages");
    pages.parse::<usize>().expect("a number") * 4096
}

#[test]
fn idle_connection_keeps_no_buffers() {
    let folder = std::env::temp_dir().join(format!("lowroad-tls-memory-{}", std::process::id()));
    let authority = LocalAuthority::open(&folder, "here", NOW_S).unwrap();
    let pair = authority.sign(&[], NOW_S).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let clock = TlsClock::new(NOW_S);
    let mut certificates = CertificateMap::new();
    certificates.add(&pair);
    let mut settings = TlsServerSettings::new(CertificateStore::new(certificates), clock.clone());
    let keys = TicketKeys::new(3600, NOW_S).unwrap();
    settings.tickets = Some(TicketService::new(keys, clock.clone()).unwrap());
    let acceptor = TlsAcceptor::new(&settings).unwrap();
    let trust = ServerTrust::from_pem(authority.pem().as_bytes()).unwrap();
    let connector = ClientConnector::new(&trust, &["http/1.1"], None, 0, clock).unwrap();

    let connect = || {
        let mut to_server = Vec::new();
        let mut client = connector.connect("localhost", &mut to_server).unwrap();
        let mut server = Box::new(acceptor.accept().unwrap());
        exchange_bytes(&mut server, &mut client, to_server);
        server.settle().unwrap();
        // An incomplete record in between must not leave a buffer behind.
        let mut wire = Vec::new();
        client.encrypt(&[&[b'q'; 40_000]], &mut wire, 0).unwrap();
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        let (first, second) = wire.split_at_mut(20_000);
        server.receive(first, &mut plain, &mut out).unwrap();
        server.receive(second, &mut plain, &mut out).unwrap();
        assert_eq!(plain.len(), 40_000);
        // Sending must not leave a buffer behind, either.
        server.encrypt(&[&[b'a'; 40_000]], &mut out, 0).unwrap();
        server
    };
    // Memory that is allocated only once must not count.
    let warm: Vec<_> = (0..10).map(|_| connect()).collect();
    let before = ALLOCATED.load(Ordering::Relaxed);
    let one = connect();
    let taken = ALLOCATED.load(Ordering::Relaxed) - before;
    println!("an idle connection: {taken} bytes of Rust's");
    assert!(taken <= IDLE_MAX, "{taken}");

    let resident = resident_bytes();
    // Enough connections for a precise result, although memory is measured in pages.
    let many: Vec<_> = (0..2000).map(|_| connect()).collect();
    let each = (resident_bytes() - resident) / many.len();
    println!("with C's, as the process grows: {each} bytes");
    assert!(each <= 8192, "{each}");
    drop((warm, one));
}

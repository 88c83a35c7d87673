//! The memory of an idle connection, counted by the allocator. Alone in its process, on one thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use lowroad_tls::authority::LocalAuthority;
use lowroad_tls::certificates::{CertificateMap, CertificateStore};
use lowroad_tls::{
    ClientConnector, ServerTrust, TicketKeys, TicketService, TlsAcceptor, TlsClient, TlsClock,
    TlsServer, TlsServerSettings,
};

struct Counting;

static TAKEN: AtomicIsize = AtomicIsize::new(0);

// SAFETY: each call is passed to the system allocator unchanged; the counter has no influence on it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller upholds the rules of `GlobalAlloc`, which are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller upholds the rules of `GlobalAlloc`, which are the system allocator's.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const NOW_S: u64 = 1_795_473_525;
/// The limit for an idle connection, without the C allocations of its keys (below).
const IDLE_MAX: isize = 4096;

fn talk(server: &mut TlsServer, client: &mut TlsClient, mut to_server: Vec<u8>) {
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

/// Resident bytes of the process, which include the allocations of aws-lc.
fn in_use() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages = status.split(' ').nth(1).expect("resident pages");
    pages.parse::<usize>().expect("a number") * 4096
}

#[test]
fn an_idle_connection_keeps_no_buffers() {
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
        talk(&mut server, &mut client, to_server);
        server.settle().unwrap();
        // Traffic with an incomplete record in between must leave no buffer behind.
        let mut wire = Vec::new();
        client.encrypt(&[&[b'q'; 40_000]], &mut wire, 0).unwrap();
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        let (first, second) = wire.split_at_mut(20_000);
        server.receive(first, &mut plain, &mut out).unwrap();
        server.receive(second, &mut plain, &mut out).unwrap();
        assert_eq!(plain.len(), 40_000);
        // Sending must not leave a buffer either.
        server.encrypt(&[&[b'a'; 40_000]], &mut out, 0).unwrap();
        server
    };
    // Memory that is allocated once must not count.
    let warm: Vec<_> = (0..10).map(|_| connect()).collect();
    let before = TAKEN.load(Ordering::Relaxed);
    let one = connect();
    let taken = TAKEN.load(Ordering::Relaxed) - before;
    println!("an idle connection: {taken} bytes of Rust's");
    assert!(taken <= IDLE_MAX, "{taken}");

    let resident = in_use();
    // Enough connections that pages of 4 KiB measure precisely.
    let many: Vec<_> = (0..2000).map(|_| connect()).collect();
    let each = (in_use() - resident) / many.len();
    println!("with C's, as the process grows: {each} bytes");
    assert!(each <= 8192, "{each}");
    drop((warm, one));
}

//! The memory of an idle connection of a server, as counted by the allocator. A single test on one thread, in its own
//! process.

#[path = "simulation/http_peers.rs"]
mod http_peers;
#[path = "simulation/network.rs"]
mod network;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::Instant;

use lowroad_quic::{QuicCipher, QuicClientCipher, QuicEndpoint};
use lowroad_tls::authority::LocalAuthority;
use lowroad_tls::certificates::{CertificateMap, CertificateStore};
use lowroad_tls::{
    ClientConnector, ServerTrust, TicketKeys, TicketService, TlsAcceptor, TlsClock,
    TlsServerSettings,
};

use crate::http_peers::{HttpClient, HttpServer};
use crate::network::{Faults, NOW_S, World, config};

struct CountingAllocator;

static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

/// The size of a block in glibc: with its header, a multiple of 16.
fn block_len(layout: Layout) -> isize {
    (layout.size().max(24) + 8).next_multiple_of(16) as isize
}

// SAFETY: each function passes its arguments unchanged to the system allocator; the counter has no influence on the
// result.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(block_len(layout), Ordering::Relaxed);
        // SAFETY: the caller satisfies the contract of `GlobalAlloc`, which is that of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(block_len(layout), Ordering::Relaxed);
        // SAFETY: the caller satisfies the contract of `GlobalAlloc`, which is that of the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

/// The limit for an idle connection after one request, without and with the allocations of aws-lc. 17.2 KB were measured.
const IDLE_MAX: isize = 16_500;
const IDLE_MAX_WITH_KEYS: isize = 17_900;
const CONNECTIONS: usize = 200;

/// Fields of `mallinfo2` (mallinfo(3)).
#[repr(C)]
#[derive(Default)]
struct MallocInfo {
    arena: usize,
    free_blocks: usize,
    fast_blocks: usize,
    mapped_blocks: usize,
    mapped_len: usize,
    unused: usize,
    fast_len: usize,
    used_len: usize,
    free_len: usize,
    top_len: usize,
}

unsafe extern "C" {
    fn mallinfo2() -> MallocInfo;
}

/// The used bytes of glibc's heap, with the allocations of aws-lc for its keys.
fn heap_bytes() -> isize {
    // SAFETY: the function has no arguments, and the layout is that of glibc 2.33 and later.
    let info = unsafe { mallinfo2() };
    (info.used_len + info.mapped_len) as isize
}

/// Opens connections with one request each, and frees the clients, so that their memory does not count.
fn connect(world: &mut World, cipher: &QuicClientCipher, requests: u64, count: usize) {
    let mut server = HttpServer::new(1000);
    for _ in 0..count {
        let mut client = HttpClient::new(requests);
        world.connect(cipher);
        world.run(&mut client, &mut server, |_, client, _| client.is_done());
        assert_eq!(client.body_lens().len() as u64, requests);
        // The last acknowledgements.
        world.run_for(&mut client, &mut server, 30_000);
    }
    // The server's connections do not notice.
    let client = config(1, 0, QuicCipher::null());
    world.ends[0] = QuicEndpoint::client(&client, Instant::now());
}

#[test]
fn an_idle_connection_is_small() {
    let folder = std::env::temp_dir().join(format!("lowroad-quic-memory-{}", std::process::id()));
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
    let connector = ClientConnector::new(&trust, &[], None, 0, clock).unwrap();
    let cipher = QuicClientCipher::tls(connector.for_quic());

    let mut server = config(1, 1, QuicCipher::tls(acceptor.for_quic()));
    // The connections must not end while others are opened.
    server.settings.idle_timeout_ms = 3_600_000;
    let faults = Faults {
        latency_us: 1000,
        ..Faults::default()
    };
    let mut world = World::new(1, 1, faults, &server);
    // Memory that is allocated only once must not count.
    connect(&mut world, &cipher, 1, 10);
    for requests in [1, 8, 40] {
        let before = ALLOCATED.load(Ordering::Relaxed);
        let heap = heap_bytes();
        connect(&mut world, &cipher, requests, CONNECTIONS);
        let each = (ALLOCATED.load(Ordering::Relaxed) - before) / CONNECTIONS as isize;
        let grown = (heap_bytes() - heap) / CONNECTIONS as isize;
        println!("idle after {requests} requests: {each} bytes; {grown} with those of aws-lc");
        // More requests at the same time leave more entries in the maps of streams.
        let growth = requests as isize * 700;
        assert!(each <= IDLE_MAX + growth, "{each}");
        assert!(grown <= IDLE_MAX_WITH_KEYS + growth, "{grown}");
        // At least the state of `quinn-proto`: the connections are still there.
        assert!(each > 5000, "{each}");
    }
}

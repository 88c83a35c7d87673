//! Tasks on a worker's thread and their upstream connections, with real sockets and epoll.

use std::future::{pending, poll_fn};
use std::io::{IoSlice, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use lowroad_engine::WorkerHandle;
use lowroad_engine::driver::{DriverEvent, IoDriver};
use lowroad_engine::epoll::EpollDriver;
use lowroad_engine::helper_pool::HelperPool;
use lowroad_engine::stream::{StreamItem, stream};
use lowroad_engine::upstream_socket::{ConnectTarget, UpstreamSocket, UpstreamSockets};
use lowroad_testkit::TempFolder;

/// A worker without connections.
struct Loop {
    driver: EpollDriver,
    local: WorkerHandle,
}

impl Loop {
    fn new() -> Loop {
        let driver = EpollDriver::new(HelperPool::start(1).expect("a thread")).expect("an epoll");
        let local = driver.local().clone();
        Loop { driver, local }
    }

    /// One turn; returns whether there were events. Waits only if `wait`.
    fn turn(&mut self, wait: bool) -> bool {
        let mut events = Vec::new();
        let timeout_ms = if wait { Some(10_000) } else { Some(0) };
        self.driver.wait(timeout_ms, &mut events);
        let came = !events.is_empty();
        for event in events {
            if let DriverEvent::Outgoing(news) = event {
                self.local.sources.handle_event(news);
            }
        }
        self.local.run();
        came
    }

    /// Runs a future to its end.
    fn run<T: Send + 'static>(&mut self, work: impl Future<Output = T> + Send + 'static) -> T {
        let result = Arc::new(Mutex::new(None));
        let to = result.clone();
        let task = self.local.tasks.start(async move {
            let value = work.await;
            *to.lock().expect("a lock") = Some(value);
        });
        for _ in 0..10_000 {
            if let Some(value) = result.lock().expect("a lock").take() {
                drop(task);
                return value;
            }
            self.turn(true);
        }
        panic!("no end");
    }
}

/// A listening Unix socket, and its path.
fn listener() -> (TempFolder, PathBuf, UnixListener) {
    let folder = TempFolder::new();
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).expect("a socket");
    (folder, path, listener)
}

/// Both ends of a connection.
fn pair(world: &mut Loop) -> (UpstreamSocket, UnixStream) {
    let (_folder, path, listener) = listener();
    let sources = world.local.sources.clone();
    let outgoing = world.run(async move { connect(&sources, &path).await });
    let (peer, _) = listener.accept().expect("a connection");
    (outgoing, peer)
}

async fn connect(sources: &UpstreamSockets, path: &std::path::Path) -> UpstreamSocket {
    let connected = UpstreamSocket::connect(sources, ConnectTarget::Unix(path)).await;
    connected.expect("it listens")
}

async fn read(outgoing: &mut UpstreamSocket) -> Vec<u8> {
    let mut buffer = [0; 100];
    let len = poll_fn(|context| outgoing.poll_recv(context, &mut buffer)).await;
    buffer[..len.expect("no error")].to_vec()
}

async fn write(outgoing: &mut UpstreamSocket, bytes: &[u8]) -> std::io::Result<usize> {
    poll_fn(|context| outgoing.poll_send(context, &[IoSlice::new(bytes)])).await
}

#[test]
fn what_came_before_and_what_comes_after_is_read_and_so_is_the_end() {
    let mut world = Loop::new();
    let (mut outgoing, mut peer) = pair(&mut world);
    peer.write_all(b"before").expect("it is there");
    let (got, mut outgoing) = world.run(async move { (read(&mut outgoing).await, outgoing) });
    assert_eq!(got, b"before");
    let writer = std::thread::spawn(move || {
        peer.write_all(b"after").expect("it is there");
        peer
    });
    let (got, mut outgoing) = world.run(async move { (read(&mut outgoing).await, outgoing) });
    assert_eq!(got, b"after");
    let mut peer = writer.join().expect("no panic");
    // Bytes and the end at once: both are read.
    peer.write_all(b"last").expect("it is there");
    drop(peer);
    let all = world.run(async move {
        let last = read(&mut outgoing).await;
        (last, read(&mut outgoing).await)
    });
    assert_eq!(all, (b"last".to_vec(), Vec::new()));
}

#[test]
fn the_end_of_an_idle_connection_is_seen_without_waiting() {
    let mut world = Loop::new();
    let (mut outgoing, peer) = pair(&mut world);
    let idle = |outgoing: &mut UpstreamSocket| {
        let mut context = std::task::Context::from_waker(Waker::noop());
        outgoing.poll_recv(&mut context, &mut [0]).is_pending()
    };
    assert!(idle(&mut outgoing));
    drop(peer);
    world.turn(true);
    assert!(!idle(&mut outgoing));
}

#[test]
fn a_full_connection_waits_for_room() {
    let mut world = Loop::new();
    let (mut outgoing, mut peer) = pair(&mut world);
    const LEN: usize = 4 << 20;
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).expect("no error");
        all.len()
    });
    world.run(async move {
        let bytes = vec![1; LEN];
        let mut at = 0;
        while at < LEN {
            at += write(&mut outgoing, &bytes[at..]).await.expect("a reader");
        }
    });
    assert_eq!(reader.join().expect("no panic"), LEN);
}

#[test]
fn a_connection_whose_peer_reads_wakes_nobody() {
    let mut world = Loop::new();
    let (mut outgoing, mut peer) = pair(&mut world);
    while world.turn(false) {}
    let outgoing = world.run(async move {
        write(&mut outgoing, b"hello").await.expect("room");
        outgoing
    });
    peer.read_exact(&mut [0; 5]).expect("it came");
    assert!(!world.turn(false), "news that nobody asked for");
    drop(outgoing);
}

#[test]
fn news_of_a_closed_connection_do_not_reach_the_next() {
    let mut world = Loop::new();
    let (first, mut peer) = pair(&mut world);
    while world.turn(false) {}
    // The event is read first, and then the connection is closed and its slot reused.
    peer.write_all(b"x").expect("it is there");
    let mut events = Vec::new();
    world.driver.wait(Some(10_000), &mut events);
    drop(first);
    let (_folder, path, listener) = listener();
    let sources = world.local.sources.clone();
    let mut connecting = Box::pin(async move { connect(&sources, &path).await });
    let mut context = std::task::Context::from_waker(Waker::noop());
    let Poll::Ready(mut second) = connecting.as_mut().poll(&mut context) else {
        panic!("unix sockets connect at once");
    };
    let (mut peer, _) = listener.accept().expect("a connection");
    while world.turn(false) {}
    let polls = Arc::new(AtomicUsize::new(0));
    let count = polls.clone();
    let task = world.local.tasks.start(poll_fn(move |context| {
        count.fetch_add(1, SeqCst);
        second.poll_recv(context, &mut [0]).map(drop)
    }));
    let mut stale = 0;
    for event in events {
        if let DriverEvent::Outgoing(news) = event {
            stale += 1;
            world.local.sources.handle_event(news);
        }
    }
    assert_eq!(stale, 1);
    world.local.run();
    assert_eq!(polls.load(SeqCst), 1, "woken by stale news");
    peer.write_all(b"y").expect("it is there");
    world.turn(true);
    assert_eq!(polls.load(SeqCst), 2);
    drop(task);
}

#[test]
fn who_is_given_up_while_waiting_closes_its_connection() {
    let mut world = Loop::new();
    let (mut outgoing, mut peer) = pair(&mut world);
    let task = world.local.tasks.start(async move {
        read(&mut outgoing).await;
    });
    world.turn(false);
    assert_eq!(world.local.tasks.count(), 1);
    drop(task);
    assert_eq!(world.local.tasks.count(), 0);
    assert_eq!(peer.read(&mut [0]).expect("no error"), 0);
}

#[test]
fn a_connection_moves_to_another_worker() {
    let (mut from, mut to) = (Loop::new(), Loop::new());
    let (mut outgoing, mut peer) = pair(&mut from);
    while from.turn(false) {}
    peer.write_all(b"one").expect("it is there");
    outgoing
        .move_to(&to.local.sources)
        .expect("it can be moved");
    let (got, mut outgoing) = to.run(async move { (read(&mut outgoing).await, outgoing) });
    assert_eq!(got, b"one");
    peer.write_all(b"two").expect("it is there");
    let got = to.run(async move { read(&mut outgoing).await });
    assert_eq!(got, b"two");
    assert!(!from.turn(false), "it is there no more");
}

#[test]
fn tcp_connects_or_says_why_not() {
    let mut world = Loop::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let sources = world.local.sources.clone();
    let echo = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a connection");
        let mut all = [0; 5];
        peer.read_exact(&mut all).expect("five bytes");
        peer.write_all(&all).expect("somebody");
    });
    let connecting = sources.clone();
    let got = world.run(async move {
        let to = ConnectTarget::Tcp(address);
        let mut outgoing = UpstreamSocket::connect(&connecting, to)
            .await
            .expect("a peer");
        write(&mut outgoing, b"hello").await.expect("room");
        read(&mut outgoing).await
    });
    assert_eq!(got, b"hello");
    echo.join().expect("no panic");
    let refused = world.run(async move {
        let connected = UpstreamSocket::connect(&sources, ConnectTarget::Tcp(address)).await;
        connected.err().map(|error| error.kind())
    });
    assert_eq!(refused, Some(std::io::ErrorKind::ConnectionRefused));
    let none = world.run(async move {
        let connected =
            UpstreamSocket::connect(&UpstreamSockets::none(), ConnectTarget::Tcp(address)).await;
        connected.is_err()
    });
    assert!(none);
}

#[test]
fn tcp_connects_from_an_address_that_is_named() {
    let mut world = Loop::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("an address");
    let from = "127.0.0.77".parse().expect("an address");
    let sources = world.local.sources.clone();
    let _outgoing = world.run(async move {
        let connected =
            UpstreamSocket::connect(&sources, ConnectTarget::TcpFrom { to, from }).await;
        connected.expect("a peer")
    });
    let (_, peer) = listener.accept().expect("a connection");
    assert_eq!(peer.ip(), from);
}

#[test]
fn a_task_is_woken_from_another_thread_while_the_worker_sleeps_and_while_it_works() {
    let mut world = Loop::new();
    for round in 0..2000 {
        let (sender, receiver) = stream(1);
        let maker = std::thread::spawn(move || {
            if round % 2 == 0 {
                std::thread::yield_now();
            }
            sender.push(vec![1].into()).expect("somebody");
        });
        let next = world.run(async move { receiver.next().await });
        assert!(matches!(next, StreamItem::Bytes(_)));
        maker.join().expect("no panic");
    }
}

#[test]
fn tasks_that_wake_themselves_leave_sockets_their_turn() {
    let mut world = Loop::new();
    let (mut outgoing, mut peer) = pair(&mut world);
    let restless = world.local.tasks.start(poll_fn(|context| {
        context.waker().wake_by_ref();
        Poll::<()>::Pending
    }));
    peer.write_all(b"x").expect("it is there");
    let got = world.run(async move { read(&mut outgoing).await });
    assert_eq!(got, b"x");
    drop(restless);
}

#[test]
fn a_task_that_panics_is_over_and_others_go_on() {
    let mut world = Loop::new();
    let task = world.local.tasks.spawn(async {
        assert!(lowroad_engine::tasks::polls());
        panic!("as it should")
    });
    assert!(!lowroad_engine::tasks::polls());
    assert_eq!(world.run(async { 7 }), 7);
    world.turn(false);
    assert_eq!(world.local.tasks.count(), 0);
    drop(task);
}

#[test]
fn a_task_may_give_itself_up_and_what_ends_takes_all_along() {
    let mut world = Loop::new();
    let own = Arc::new(Mutex::new(None));
    let held = own.clone();
    let task = world.local.tasks.spawn(async move {
        drop(held.lock().expect("a lock").take());
        pending::<()>().await;
    });
    *own.lock().expect("a lock") = Some(task);
    world.turn(false);
    assert_eq!(world.local.tasks.count(), 0);
    let alive = Arc::new(());
    let held = alive.clone();
    let last = async move {
        let _held = held;
        pending::<()>().await;
    };
    world.local.tasks.start(last).detach();
    world.turn(false);
    assert_eq!(Arc::strong_count(&alive), 2);
    world.local.tasks.end();
    assert_eq!(Arc::strong_count(&alive), 1);
    world
        .local
        .tasks
        .spawn(async { panic!("too late") })
        .detach();
    world.turn(false);
}

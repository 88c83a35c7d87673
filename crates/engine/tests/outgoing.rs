//! Tests of tasks and their upstream connections, with real sockets and epoll.

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

/// A worker that only runs tasks.
struct TaskWorker {
    driver: EpollDriver,
    local: WorkerHandle,
}

impl TaskWorker {
    fn new() -> TaskWorker {
        let driver = EpollDriver::new(HelperPool::start(1).expect("a thread")).expect("an epoll");
        let local = driver.worker_handle().clone();
        TaskWorker { driver, local }
    }

    /// Runs one turn, and waits only if `wait`. Returns whether there were events.
    fn turn(&mut self, wait: bool) -> bool {
        let mut events = Vec::new();
        let timeout_ms = if wait { Some(10_000) } else { Some(0) };
        self.driver.wait(timeout_ms, &mut events);
        let has_events = !events.is_empty();
        for event in events {
            if let DriverEvent::UpstreamReady(socket_event) = event {
                self.local.sources.handle_event(socket_event);
            }
        }
        self.local.run();
        has_events
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
fn pair(world: &mut TaskWorker) -> (UpstreamSocket, UnixStream) {
    let (_folder, path, listener) = listener();
    let sources = world.local.sources.clone();
    let upstream = world.run(async move { connect(&sources, &path).await });
    let (peer, _) = listener.accept().expect("a connection");
    (upstream, peer)
}

async fn connect(sources: &UpstreamSockets, path: &std::path::Path) -> UpstreamSocket {
    let connected = UpstreamSocket::connect(sources, ConnectTarget::Unix(path)).await;
    connected.expect("it listens")
}

async fn read(upstream: &mut UpstreamSocket) -> Vec<u8> {
    let mut buffer = [0; 100];
    let len = poll_fn(|context| upstream.poll_recv(context, &mut buffer)).await;
    buffer[..len.expect("no error")].to_vec()
}

async fn write(upstream: &mut UpstreamSocket, bytes: &[u8]) -> std::io::Result<usize> {
    poll_fn(|context| upstream.poll_send(context, &[IoSlice::new(bytes)])).await
}

#[test]
fn bytes_before_and_after_the_read_and_the_end_are_read() {
    let mut world = TaskWorker::new();
    let (mut upstream, mut peer) = pair(&mut world);
    peer.write_all(b"before").expect("it is there");
    let (got, mut upstream) = world.run(async move { (read(&mut upstream).await, upstream) });
    assert_eq!(got, b"before");
    let writer = std::thread::spawn(move || {
        peer.write_all(b"after").expect("it is there");
        peer
    });
    let (got, mut upstream) = world.run(async move { (read(&mut upstream).await, upstream) });
    assert_eq!(got, b"after");
    let mut peer = writer.join().expect("no panic");
    // The last bytes and the end arrive together; both are read.
    peer.write_all(b"last").expect("it is there");
    drop(peer);
    let all = world.run(async move {
        let last = read(&mut upstream).await;
        (last, read(&mut upstream).await)
    });
    assert_eq!(all, (b"last".to_vec(), Vec::new()));
}

#[test]
fn end_of_an_idle_connection_is_seen_without_waiting() {
    let mut world = TaskWorker::new();
    let (mut upstream, peer) = pair(&mut world);
    let idle = |upstream: &mut UpstreamSocket| {
        let mut context = std::task::Context::from_waker(Waker::noop());
        upstream.poll_recv(&mut context, &mut [0]).is_pending()
    };
    assert!(idle(&mut upstream));
    drop(peer);
    world.turn(true);
    assert!(!idle(&mut upstream));
}

#[test]
fn write_to_a_full_socket_waits_for_room() {
    let mut world = TaskWorker::new();
    let (mut upstream, mut peer) = pair(&mut world);
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
            at += write(&mut upstream, &bytes[at..]).await.expect("a reader");
        }
    });
    assert_eq!(reader.join().expect("no panic"), LEN);
}

#[test]
fn reading_peer_causes_no_event() {
    let mut world = TaskWorker::new();
    let (mut upstream, mut peer) = pair(&mut world);
    while world.turn(false) {}
    let upstream = world.run(async move {
        write(&mut upstream, b"hello").await.expect("room");
        upstream
    });
    peer.read_exact(&mut [0; 5]).expect("it came");
    assert!(!world.turn(false), "news that nobody asked for");
    drop(upstream);
}

#[test]
fn event_of_a_closed_socket_does_not_reach_the_next_in_its_slot() {
    let mut world = TaskWorker::new();
    let (first, mut peer) = pair(&mut world);
    while world.turn(false) {}
    // The event is read from the kernel, then the connection is closed and its slot reused.
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
        if let DriverEvent::UpstreamReady(socket_event) = event {
            stale += 1;
            world.local.sources.handle_event(socket_event);
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
fn cancelled_task_closes_its_connection() {
    let mut world = TaskWorker::new();
    let (mut upstream, mut peer) = pair(&mut world);
    let task = world.local.tasks.start(async move {
        read(&mut upstream).await;
    });
    world.turn(false);
    assert_eq!(world.local.tasks.count(), 1);
    drop(task);
    assert_eq!(world.local.tasks.count(), 0);
    assert_eq!(peer.read(&mut [0]).expect("no error"), 0);
}

#[test]
fn connection_can_be_moved_to_another_worker() {
    let (mut from, mut to) = (TaskWorker::new(), TaskWorker::new());
    let (mut upstream, mut peer) = pair(&mut from);
    while from.turn(false) {}
    peer.write_all(b"one").expect("it is there");
    upstream
        .move_to(&to.local.sources)
        .expect("it can be moved");
    let (got, mut upstream) = to.run(async move { (read(&mut upstream).await, upstream) });
    assert_eq!(got, b"one");
    peer.write_all(b"two").expect("it is there");
    let got = to.run(async move { read(&mut upstream).await });
    assert_eq!(got, b"two");
    assert!(!from.turn(false), "it is there no more");
}

#[test]
fn tcp_connect_succeeds_or_returns_the_error() {
    let mut world = TaskWorker::new();
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
        let mut upstream = UpstreamSocket::connect(&connecting, to)
            .await
            .expect("a peer");
        write(&mut upstream, b"hello").await.expect("room");
        read(&mut upstream).await
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
fn tcp_connects_from_the_given_source_address() {
    let mut world = TaskWorker::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("an address");
    let from = "127.0.0.77".parse().expect("an address");
    let sources = world.local.sources.clone();
    let _upstream = world.run(async move {
        let connected =
            UpstreamSocket::connect(&sources, ConnectTarget::TcpFrom { to, from }).await;
        connected.expect("a peer")
    });
    let (_, peer) = listener.accept().expect("a connection");
    assert_eq!(peer.ip(), from);
}

#[test]
fn task_is_woken_from_another_thread() {
    let mut world = TaskWorker::new();
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
fn self_waking_task_does_not_starve_sockets() {
    let mut world = TaskWorker::new();
    let (mut upstream, mut peer) = pair(&mut world);
    let self_waking = world.local.tasks.start(poll_fn(|context| {
        context.waker().wake_by_ref();
        Poll::<()>::Pending
    }));
    peer.write_all(b"x").expect("it is there");
    let got = world.run(async move { read(&mut upstream).await });
    assert_eq!(got, b"x");
    drop(self_waking);
}

#[test]
fn panicking_task_ends_alone() {
    let mut world = TaskWorker::new();
    let task = world.local.tasks.spawn(async {
        assert!(lowroad_engine::tasks::is_polling());
        panic!("as it should")
    });
    assert!(!lowroad_engine::tasks::is_polling());
    assert_eq!(world.run(async { 7 }), 7);
    world.turn(false);
    assert_eq!(world.local.tasks.count(), 0);
    drop(task);
}

#[test]
fn task_may_cancel_itself_and_end_cancels_all_tasks() {
    let mut world = TaskWorker::new();
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

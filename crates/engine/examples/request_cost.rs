//! A worker with a service that answers `/LEN` with a body of that length, to measure the cost of a request in the
//! engine and the kernel.
//!
//! `lowroad-lab icount --file target/release/examples/request_cost --cmd 'request_cost 80 &' --url /1024 --url /102400`

use std::collections::HashMap;
use std::sync::Arc;

use lowroad_engine::arena::{ArenaBlock, ResponseArena};
use lowroad_engine::counters::WorkerCounters;
use lowroad_engine::driver::{IoDriver, ListenerId};
use lowroad_engine::epoll::EpollDriver;
use lowroad_engine::helper_pool::HelperPool;
use lowroad_engine::listener::ListenSocket;
use lowroad_engine::mailbox::WorkerMailbox;
use lowroad_engine::service::{ConnectionRefusal, Exchange, HttpService, ServiceOutcome};
use lowroad_engine::settings::WorkerSettings;
use lowroad_engine::worker::{MailboxMessage, Worker};
use lowroad_engine::{BodyPart, ResponseWriter};
use lowroad_http::h1::BodyLen;
use lowroad_http::request::{PartialRequest, Request, RequestTarget};
use lowroad_http::status::StatusCode;
use lowroad_limits::ConnectionLimit;

const BODY_LEN_MAX: usize = 1 << 20;
/// Shorter bodies are copied behind the head, like those of stored responses.
const BLOCK_LEN_MIN: usize = 32 * 1024;

/// Bodies, each in its own block, which the first request creates.
struct Bodies {
    arena: Arc<ResponseArena>,
    blocks: HashMap<usize, ArenaBlock>,
}

impl Bodies {
    fn block_of_len(&mut self, len: usize) -> ArenaBlock {
        let arena = &self.arena;
        let block = self.blocks.entry(len).or_insert_with(|| {
            let mut draft = arena.allocate(len.max(1)).expect("space");
            draft.fill(b'x');
            draft.finish()
        });
        block.clone()
    }
}

impl HttpService for Bodies {
    type Pending = ();
    type Outcome = ();
    type Record = u64;
    type Command = ();

    fn request(
        &mut self,
        request: &Request<'_>,
        _: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<(), u64> {
        let len = match request.target {
            RequestTarget::Origin { path, .. } => std::str::from_utf8(&path[1..]).unwrap_or(""),
            _ => "",
        };
        let len = len.parse().unwrap_or(0).min(BODY_LEN_MAX);
        if response
            .head(StatusCode::OK)
            .end(BodyLen::Known(len as u64))
        {
            let block = self.block_of_len(len);
            match len < BLOCK_LEN_MIN {
                true => response.write_copied(&block[..len]),
                false => response.write_part(BodyPart::Block {
                    block,
                    range: 0..len,
                }),
            }
        }
        ServiceOutcome::Ready(Some(1))
    }

    fn resume(
        &mut self,
        (): (),
        (): (),
        _: &mut Exchange,
        _: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<(), u64> {
        ServiceOutcome::Ready(None)
    }

    fn body_dropped(
        &mut self,
        (): (),
        _: &mut Exchange,
        _: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<(), u64> {
        ServiceOutcome::Ready(None)
    }

    fn refuse(
        &mut self,
        _: ConnectionRefusal,
        _: &PartialRequest<'_>,
        _: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> Option<u64> {
        response.head(StatusCode::BAD_REQUEST).end(BodyLen::None);
        None
    }

    fn sent(&mut self, _: u64, _: u64, _: bool, _: u64) {}
    fn command(&mut self, (): ()) {}
    fn turn_ended(&mut self, _: u64) {}
}

fn settings() -> WorkerSettings {
    WorkerSettings {
        accept_max: 16,
        header_timeout_ms: 10_000,
        body_timeout_ms: 10_000,
        idle_timeout_ms: 60_000,
        send_timeout_ms: 10_000,
        rate_min: 0,
        rate_grace_ms: 10_000,
        connections_max: 10_000,
        connections_per_address_max: 10_000,
        requests_max: 0,
        proxy_protocol_listeners: Vec::new(),
        h2: lowroad_http::h2::H2Settings::default(),
        h3: lowroad_http::h3::H3Settings::default(),
        http: lowroad_http::limits::RequestLimits::default(),
    }
}

fn main() {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok());
    let address = ([0, 0, 0, 0], port.unwrap_or(8080)).into();
    let helpers = HelperPool::start(1).expect("a thread");
    let driver = EpollDriver::new(helpers).expect("an epoll");
    let arena = ResponseArena::new(8 * BODY_LEN_MAX).expect("memory");
    let mailbox = WorkerMailbox::new(driver.waker());
    let listener = ListenSocket::open(address).expect("a free port");
    mailbox.post(MailboxMessage::Listen(ListenerId(0), listener));
    let (admission, counters) = (
        Arc::<ConnectionLimit>::default(),
        Arc::<WorkerCounters>::default(),
    );
    let service = Bodies {
        arena,
        blocks: HashMap::new(),
    };
    let settings = Arc::new(settings());
    Worker::new(driver, service, mailbox, settings, admission, counters).run();
}

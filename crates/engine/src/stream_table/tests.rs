use std::net::Ipv4Addr;

use super::*;
use crate::driver::ListenerId;
use crate::response::ResponseWriter;
use crate::service::{ConnectionRefusal, ServiceOutcome};
use lowroad_http::request::{PartialRequest, Request};
use lowroad_http::version::HttpVersion;

pub(crate) struct NoopService;

impl HttpService for NoopService {
    type Pending = u32;
    type Outcome = ();
    type Record = ();
    type Command = ();

    fn request(
        &mut self,
        _: &Request<'_>,
        _: &mut Exchange,
        _: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<u32, ()> {
        ServiceOutcome::Ready(None)
    }

    fn resume(
        &mut self,
        _: u32,
        (): (),
        _: &mut Exchange,
        _: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<u32, ()> {
        ServiceOutcome::Ready(None)
    }

    fn body_dropped(
        &mut self,
        _: u32,
        _: &mut Exchange,
        _: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<u32, ()> {
        ServiceOutcome::Ready(None)
    }

    fn refuse(
        &mut self,
        _: ConnectionRefusal,
        _: &PartialRequest<'_>,
        _: &mut Exchange,
        _: &mut ResponseWriter<'_>,
    ) -> Option<()> {
        None
    }

    fn sent(&mut self, (): (), _: u64, _: bool, _: u64) {}
    fn command(&mut self, (): ()) {}
    fn turn_ended(&mut self, _: u64) {}
}

fn exchange_for(stream: StreamId) -> Exchange {
    let mut exchange = Exchange::without_client(
        ListenerId(0),
        Ipv4Addr::LOCALHOST.into(),
        HttpVersion::Http11,
        0,
        0,
    );
    exchange.id.stream = stream;
    exchange
}

fn table_of_three() -> StreamTable<NoopService> {
    let mut exchanges = StreamTable::default();
    for stream in 1..=3 {
        exchanges.get_or_insert(StreamId(stream)).deferred = Some(DeferredRequest {
            pending: stream * 10,
            exchange: exchange_for(StreamId(stream)),
            resume_reason: ResumeReason::Pending,
            cancel_on_disconnect: stream == 2,
            interims: Vec::new(),
        });
    }
    exchanges
}

fn streams(exchanges: &StreamTable<NoopService>) -> Vec<u32> {
    exchanges.iter().map(|it| it.stream.0).collect()
}

#[test]
fn due_requests_are_taken_oldest_first() {
    let mut exchanges = table_of_three();
    assert!(exchanges.take_due().is_none());
    for stream in [3, 1] {
        let waiting = exchanges.deferred(StreamId(stream)).expect("it waits");
        waiting.resume_reason = ResumeReason::Outcome(());
    }
    assert!(exchanges.deferred(StreamId(4)).is_none());
    let mut due = std::iter::from_fn(|| exchanges.take_due());
    let mut next = || due.next().map(|it| (it.exchange.id.stream.0, it.pending));
    assert_eq!(next(), Some((1, 10)), "the oldest first");
    assert_eq!(next(), Some((3, 30)));
    assert_eq!(next(), None);
    exchanges.tidy();
    assert_eq!(streams(&exchanges), [2]);
    assert!(exchanges.has_deferred() && exchanges.has_cancellable());
}

#[test]
fn tidy_removes_only_finished_exchanges() {
    for over in 1..=3 {
        let mut exchanges = table_of_three();
        exchanges.get_or_insert(StreamId(over)).deferred = None;
        exchanges.tidy();
        let left: Vec<u32> = (1..=3).filter(|stream| *stream != over).collect();
        assert_eq!(streams(&exchanges), left);
    }
    let mut exchanges = table_of_three();
    exchanges.clear();
    assert!(exchanges.is_empty());
}

#[test]
fn end_of_body_resumes_only_its_own_request() {
    let mut exchanges = table_of_three();
    for stream in [1, 3] {
        let (to, _) = crate::stream::stream(1);
        let it = exchanges.get_or_insert(StreamId(stream));
        it.incoming = Some(RequestBodyStream::new(to, 0));
        it.deferred.as_mut().expect("it waits").resume_reason =
            ResumeReason::Body { is_complete: false };
    }
    assert_eq!(exchanges.next_incoming(None), Some(StreamId(1)));
    assert_eq!(
        exchanges.next_incoming(Some(StreamId(1))),
        Some(StreamId(3))
    );
    assert_eq!(exchanges.next_incoming(Some(StreamId(3))), None);
    exchanges.end_incoming(StreamId(3));
    let due = exchanges.take_due().map(|it| it.exchange.id.stream.0);
    assert_eq!(due, Some(3));
    assert!(exchanges.take_due().is_none() && exchanges.has_incoming());
}

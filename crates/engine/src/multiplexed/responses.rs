//! Written responses of streams.

use bytes::Bytes;
use lowroad_http::fields::FieldLines;
use lowroad_http::protocol::StreamId;

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::multiplexed::StreamAbort;
use crate::multiplexed::unframed::UnframedResponse;
use crate::response_body::BodyPart;
use crate::service::HttpService;
use crate::stream_body::RemainingBody;

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Handles a written response: its head is in the output, and its body becomes ready for its stream.
    pub(crate) fn on_stream_response_written(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        record: Option<V::Record>,
    ) {
        if std::mem::take(&mut worker.out.is_abandoned) {
            self.cut_stream(worker, stream, StreamAbort::Cancelled);
        }
        self.commit_output(worker, stream);
        self.announce_response(worker, stream, record);
        self.end_output(stream);
    }

    fn announce_response(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        record: Option<V::Record>,
    ) {
        let start = worker.unframed.end();
        let end = worker.out.body.len();
        if !worker.out.parts.is_empty() {
            // The bytes that were copied precede the parts.
            let copied = Bytes::copy_from_slice(&worker.out.body[start..]);
            worker.out.body.truncate(start);
            let parts = std::iter::once(BodyPart::Bytes(copied)).chain(worker.out.parts.drain(..));
            let body = RemainingBody::new(parts, record);
            self.exchanges.get_or_insert(stream).body = Some(Box::new(body));
            if let Some(tunnel_return) = worker.out.tunnel_return.take() {
                self.begin_stream_tunnel(worker, stream, *tunnel_return);
            }
            return self.advance(worker, stream);
        }
        let Some(session) = self.protocol.multiplexed() else {
            return;
        };
        let len = (end - start) as u64;
        let announced = match len {
            0 => session
                .http
                .announce_end(stream, FieldLines::NONE)
                .map(|()| false),
            _ => session.http.announce_whole(stream, len),
        };
        match announced {
            Ok(true) => worker.unframed.list.push(UnframedResponse {
                stream,
                offset: start,
                end,
                sent: 0,
                record,
            }),
            Ok(false) => {
                worker.out.body.truncate(start);
                self.end_response(worker, record, 0);
            }
            Err(_) => {
                worker.out.body.truncate(start);
                self.abort_stream(worker, stream, StreamAbort::Failed);
                if let Some(record) = record {
                    worker
                        .service
                        .sent(record, 0, false, worker.driver.now_ms());
                }
            }
        }
    }

    /// Moves the unsent rest of copied bodies to their streams.
    pub(crate) fn store_unframed(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        for unframed in worker.unframed.list.drain(..) {
            let rest = &worker.out.body[unframed.offset..unframed.end];
            if rest.is_empty() {
                continue;
            }
            if self.is_closed() {
                if let Some(record) = unframed.record {
                    worker.service.sent(record, unframed.sent, false, now_ms);
                }
                continue;
            }
            let (len, part) = (rest.len() as u64, Bytes::copy_from_slice(rest));
            let body = RemainingBody::from_rest(
                BodyPart::Bytes(part),
                len,
                unframed.sent,
                unframed.record,
            );
            self.exchanges.get_or_insert(unframed.stream).body = Some(Box::new(body));
        }
        worker.unframed.next = 0;
        worker.out.body.clear();
    }
}

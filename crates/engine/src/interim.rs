//! Responses before the one that counts (1xx, but for 100 and 101): sent to the client at once, while its request goes on
//! waiting. Knows not who makes them, nor how many there may be.

use lowroad_http::fields::{Fields, Lines};
use lowroad_http::h1::put_fields;
use lowroad_http::status::Status;

use crate::connection::Connection;
use crate::context::WorkerContext;
use crate::driver::Driver;
use crate::service::Service;
use crate::underway::StreamId;

/// A response before the one that counts.
#[derive(Clone, Debug)]
pub struct Interim {
    /// 102 to 199.
    pub status: Status,
    /// Its fields.
    pub fields: Fields,
}

impl Interim {
    /// Whether a response with this status may come before the one that counts. The server says 100 by itself, and 101
    /// is no interim response here: nothing follows it.
    pub fn is_one(status: Status) -> bool {
        (102..200).contains(&status.code())
    }
}

impl<D: Driver, V: Service> Connection<D, V> {
    /// A deferred request has an interim response. It leaves behind earlier responses, and not at all if its own has
    /// been written.
    pub(crate) fn interim(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        interim: &Interim,
    ) {
        let is_multiplexed = self.protocol.is_multiplexed();
        let Some(waiting) = self.exchanges.waiting(stream) else {
            return;
        };
        if !Interim::is_one(interim.status) {
            return;
        }
        let mut lines = Vec::new();
        put_fields(&interim.fields, &mut lines);
        let out = match is_multiplexed {
            true => &mut worker.out.bytes,
            false => &mut waiting.interims,
        };
        self.protocol
            .interim(stream, interim.status, Lines::of(&lines), out);
        match is_multiplexed {
            true => self.flush(worker),
            false => self.send_interims(worker),
        }
    }

    /// Sends the interim responses that are due, unless earlier responses are on their way.
    pub(crate) fn send_interims(&mut self, worker: &mut WorkerContext<D, V>) {
        if self.is_closed() {
            return;
        }
        if self.sending.is_some() {
            return;
        }
        if let Some(bytes) = self.exchanges.take_interims() {
            worker.out.bytes.extend_from_slice(&bytes);
            self.flush(worker);
        }
    }
}

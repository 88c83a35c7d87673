//! Responses before the one that counts (1xx, but for 100 and 101): sent to the client at once, while its request goes on
//! waiting. Knows not who makes them, nor how many there may be.

use lowroad_http::fields::{Fields, Lines};
use lowroad_http::h1::put_fields;
use lowroad_http::protocol::ServerProtocol;
use lowroad_http::status::Status;

use crate::driver::Driver;
use crate::service::Service;
use crate::underway::StreamId;
use crate::worker::Worker;

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

impl<D: Driver, V: Service> Worker<D, V> {
    /// A deferred request has an interim response. It leaves behind earlier responses, and not at all if its own has
    /// been written.
    pub(crate) fn interim(&mut self, id: usize, stream: StreamId, interim: &Interim) {
        let connection = &mut self.connections[id];
        let is_two = connection.two.is_some();
        let Some(waiting) = connection.exchanges.waiting(stream) else {
            return;
        };
        if !Interim::is_one(interim.status) {
            return;
        }
        if is_two {
            return self.stream_interim(id, stream, interim);
        }
        let mut lines = Vec::new();
        put_fields(&interim.fields, &mut lines);
        let out = &mut waiting.interims;
        connection
            .http
            .interim(stream, interim.status, Lines::of(&lines), out);
        self.send_interims(id);
    }

    /// Sends the interim responses that are due, unless earlier responses are on their way.
    pub(crate) fn send_interims(&mut self, id: usize) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        if connection.sending.is_some() {
            return;
        }
        if let Some(bytes) = connection.exchanges.take_interims() {
            self.out.bytes.extend_from_slice(&bytes);
            self.flush(id);
        }
    }
}

//! Requests whose bodies stream to who answers them: the answer is made while the body comes.
//!
//! What is on its way is in [`Incoming`]; here the worker moves it, and hears of both streams of a
//! connection: the request's body, and the answer's, which `transmit` sends.

use std::task::Context;

use lowroad_http::body::BodyReader;
use lowroad_http::request::Request;

use crate::connection::{State, Transfer};
use crate::driver::{Driver, Received};
use crate::exchange::Step;
use crate::incoming::{Incoming, WAITING_LEN_MAX};
use crate::service::{Refused, Service};
use crate::stream::stream;
use crate::worker::Worker;

impl<D: Driver, V: Service> Worker<D, V> {
    /// Puts a request whose body streams in. What has come of the body goes first: often it is all,
    /// and then the connection can stay open whatever the answer.
    pub(crate) fn stream_body(
        &mut self,
        id: usize,
        request: &Request<'_>,
        input: &[u8],
        reader: BodyReader,
    ) -> Step {
        let now_ms = self.driver.now_ms();
        let (sender, receiver) = stream(WAITING_LEN_MAX);
        let mut incoming = Box::new(Incoming::new(reader, sender, now_ms));
        let (used, done) = match incoming.feed(&input[request.head_len..], now_ms) {
            Ok(fed) => fed,
            Err(refusal) => {
                self.counters.refused.bump();
                self.refuse(id, Refused::Request(refusal), input);
                return Step::Used(input.len());
            }
        };
        self.connections[id].incoming = (!done).then_some(incoming);
        self.answer(id, request, input, Some(receiver), None);
        self.watch_incoming(id);
        Step::Used(request.head_len + used)
    }

    /// Reads on in a body that streams to who answers.
    pub(crate) fn incoming(&mut self, id: usize, input: &[u8]) -> Step {
        let now_ms = self.driver.now_ms();
        let connection = &mut self.connections[id];
        let Some(incoming) = &mut connection.incoming else {
            return Step::Stop;
        };
        match incoming.feed(input, now_ms) {
            Ok((used, true)) => {
                connection.incoming = None;
                Step::Used(used)
            }
            Ok((0, false)) => Step::Stop,
            Ok((used, false)) => {
                self.watch_incoming(id);
                Step::Used(used)
            }
            Err(refusal) => {
                self.counters.refused.bump();
                self.break_incoming(id, Refused::Request(refusal));
                Step::Used(input.len())
            }
        }
    }

    /// Has the worker told when there is room for more of a body, and looks at its pace.
    fn watch_incoming(&mut self, id: usize) {
        let now_ms = self.driver.now_ms();
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        let waker = self.stream_waker(connection.token(id));
        let connection = &mut self.connections[id];
        let Some(incoming) = &mut connection.incoming else {
            return;
        };
        if incoming.full {
            incoming.look_for_room(&mut Context::from_waker(&waker), now_ms);
        }
        if matches!(connection.state, State::Waiting(_)) {
            self.waiting_expired(id); // not yet: finds out when to look at its pace
            self.note(id);
        }
    }

    /// The rest of a body will not come, or not as it should.
    pub(crate) fn break_incoming(&mut self, id: usize, why: Refused) {
        let connection = &mut self.connections[id];
        connection.leave_body_unread();
        // Where the answer is on its way, who makes it finds the body cut.
        if matches!(connection.state, State::Waiting(_)) {
            self.refuse(id, why, &[]);
        }
    }

    /// The client has sent its last byte while somebody works for it who would like to know. Whoever
    /// says nothing more has most probably hung up; one in a million listens on.
    pub(crate) fn gone_while_waiting(&mut self, id: usize) {
        let connection = &mut self.connections[id];
        let works = matches!(&connection.state, State::Waiting(waiting) if waiting.hold.is_some());
        if !works || !connection.input.is_empty() {
            return;
        }
        match self.driver.receive(&connection.socket, &mut self.scratch) {
            Received::End | Received::Broken => self.close_broken(id),
            Received::Bytes(len) => connection.input.extend_from_slice(&self.scratch[..len]),
            Received::Empty => {}
        }
    }

    /// A stream of this connection's has bytes, or room for some.
    pub(crate) fn stream_moved(&mut self, id: usize) {
        let connection = &mut self.connections[id];
        if connection
            .incoming
            .as_ref()
            .is_some_and(|incoming| incoming.full)
        {
            self.watch_incoming(id);
            self.go_on(id);
        }
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        if let State::Sending(sending) = &mut connection.state
            && matches!(sending.transfer, Transfer::Awaiting)
        {
            self.transmit(id);
        }
        self.resume(id);
    }
}

//! Accepts or refuses clients, and keeps the answers of the endpoint itself.

use quinn_proto::{Incoming, Transmit};

use crate::admission::{Admission, ConnectionAttempt};
use crate::endpoint::QuicEndpoint;
use crate::event::OutgoingTrain;

impl<P> QuicEndpoint<P> {
    /// Decides about a client that wants to open a connection.
    pub(crate) fn admit(
        &mut self,
        incoming: Incoming,
        admit: impl FnOnce(&ConnectionAttempt) -> Admission<P>,
    ) {
        let attempt = ConnectionAttempt {
            from: incoming.remote_address(),
            local_ip: incoming.local_ip(),
            is_validated: incoming.remote_address_validated(),
            connections: self.connection_count,
            handshakes: self.handshakes,
        };
        let admission = match self.limits.check(&attempt, &mut self.counters) {
            // The caller's decision may cost locks that are shared by workers.
            Some(limited) => limited,
            None => {
                let admission = admit(&attempt);
                self.counters.refused += u64::from(matches!(admission, Admission::Refuse));
                admission
            }
        };
        let mut answer = Vec::new();
        match admission {
            Admission::Accept(permit) => self.accept(incoming, permit),
            // A client that has answered a Retry must not get another one (RFC 9000 §17.2.5.2).
            Admission::Retry if incoming.may_retry() => {
                self.counters.retried += 1;
                if let Ok(transmit) = self.endpoint.retry(incoming, &mut answer) {
                    self.push_answer(transmit, answer);
                }
            }
            Admission::Retry | Admission::Refuse => {
                let transmit = self.endpoint.refuse(incoming, &mut answer);
                self.push_answer(transmit, answer);
            }
            Admission::Ignore => {
                self.counters.ignored += 1;
                self.endpoint.ignore(incoming);
            }
        }
    }

    fn accept(&mut self, incoming: Incoming, permit: P) {
        let (now, mut answer) = (self.instant(self.now_us), Vec::new());
        let is_validated = incoming.remote_address_validated();
        self.counters.accepted += 1;
        match self.endpoint.accept(incoming, now, &mut answer, None) {
            Ok((handle, connection)) => {
                let key = self.add(handle, connection, permit);
                if let Some(connection) = self.find(key) {
                    connection.reads_early_data = is_validated;
                }
            }
            // The permit is dropped here.
            Err(fault) => {
                self.counters.failed += 1;
                if let Some(transmit) = fault.response {
                    self.push_answer(transmit, answer);
                }
            }
        }
    }

    pub(crate) fn push_answer(&mut self, transmit: Transmit, bytes: Vec<u8>) {
        if self.answers.len() as u32 >= self.limits.answers_max {
            // The client repeats its datagram.
            self.counters.dropped_answers += 1;
            return;
        }
        self.counters.answers += 1;
        self.answers.push_back((transmit, bytes));
    }

    /// Writes the next datagram of the endpoint itself to `out`, which is cleared before.
    pub fn emit_answer(&mut self, out: &mut Vec<u8>) -> Option<OutgoingTrain> {
        out.clear();
        let (transmit, bytes) = self.answers.pop_front()?;
        out.extend_from_slice(&bytes[..transmit.size]);
        Some(OutgoingTrain::new(&transmit))
    }
}

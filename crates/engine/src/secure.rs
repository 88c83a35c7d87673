//! Connections with a layer, as TLS: what becomes of one when its layer has moved. What a layer is, is told in `layer`; how
//! its bytes leave, in `transport`.

use crate::driver::Driver;
use crate::layer::{Inside, LayerFault};
use crate::service::{Refused, Service};
use crate::transport::Moved;
use crate::worker::Worker;
use lowroad_http::protocol::ServerProtocol;

impl<D: Driver, V: Service> Worker<D, V> {
    /// The layer of a connection took what came. Whether there is something in it for the connection to go on with.
    pub(crate) fn layer_moved(&mut self, id: usize, plain: &[u8]) -> bool {
        let connection = &mut self.connections[id];
        match connection.transport.fault() {
            None => {}
            Some(_) if connection.lingering => return false,
            Some(LayerFault::ClearText) => {
                self.counters.clear_text.bump();
                connection.transport.strip();
                self.refuse(id, Refused::ClearText, plain);
                return false;
            }
            Some(LayerFault::Broken) => {
                self.counters.handshake_failures.bump();
                // The alert should arrive.
                connection.leftover = true;
                self.finish(id);
                return false;
            }
        }
        if connection.transport.is_handshaking() {
            return false;
        }
        if connection.transport.take_new() {
            self.secured(id);
        } else if connection.transport.is_worn() {
            self.wear_out(id);
        }
        self.connections.contains(id)
    }

    /// The kernel should not seal any more: what is under way is the last. A request that has come since is not answered.
    fn wear_out(&mut self, id: usize) {
        let connection = &mut self.connections[id];
        if connection.http.is_tunnel() {
            self.close(id);
        } else if connection.is_idle() {
            self.finish(id);
        } else {
            // A response that has not begun says so.
            connection.http.close();
        }
    }

    /// Takes what followed the word of who the client is.
    pub(crate) fn open_rest(&mut self, id: usize, bytes: &[u8]) {
        let connection = &mut self.connections[id];
        let token = connection.token(id);
        let mut plain = std::mem::take(&mut self.plain);
        let transport = &mut connection.transport;
        if !transport.open(&mut self.driver, token, bytes, &mut plain) {
            self.take_in(id, bytes);
        } else if self.layer_moved(id, &plain) {
            self.take_in(id, &plain);
        }
        self.plain = plain;
    }

    /// Both sides have agreed: now the client may take its time for its first request.
    fn secured(&mut self, id: usize) {
        let now_ms = self.driver.now_ms();
        let timeout_ms = self.idle_timeout_ms();
        self.counters.handshakes.bump();
        let connection = &mut self.connections[id];
        connection.begun = false;
        connection.deadline_ms = now_ms + timeout_ms;
        let secured = connection.transport.secured();
        if secured.is_some_and(|it| it.inside == Inside::Http2) {
            self.begin_h2(id);
        } else {
            self.note(id);
        }
    }

    /// Says the end of a connection that is over. Whether that has left: if not, the connection ends when it has.
    pub(crate) fn end_layer(&mut self, id: usize) -> bool {
        match self.connections[id].is_over() {
            true => self.say_end(id),
            false => true,
        }
    }

    /// Says that nothing more will be sent. Whether that has left.
    pub(crate) fn say_end(&mut self, id: usize) -> bool {
        let transport = &mut self.connections[id].transport;
        transport.say_end();
        if !transport.has_sealed() {
            return true;
        }
        self.start_sending(id, Some((0, 0)), 0);
        false
    }

    /// There may be room for what the layer has sealed.
    pub(crate) fn push_sealed(&mut self, id: usize) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        // What is being sent pushes by itself.
        if connection.sending.is_some() || !connection.transport.has_sealed() {
            return;
        }
        let token = connection.token(id);
        if connection.transport.push(&mut self.driver, token) == Moved::Broken {
            self.close_broken(id);
        }
    }

    pub(crate) fn has_sending(&self, id: usize) -> bool {
        let connection = self.connections.get(id);
        connection.is_some_and(|connection| connection.sending.is_some())
    }
}

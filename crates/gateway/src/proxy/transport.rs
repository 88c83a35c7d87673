//! The connection of an exchange: leased for it alone (HTTP/1.1), or shared with others (HTTP/2).

use std::task::{Context, Poll};

use bytes::Bytes;

use super::h2::H2Exchange;
use super::link::{OriginConnector, OriginFault, ResponseEvent};

/// A connection that is leased for one request.
pub type OriginLease = lowroad_origin::Lease<OriginConnector>;

/// The connection of an exchange.
pub enum ExchangeTransport {
    /// A connection with HTTP/1.1.
    Exclusive(OriginLease),
    /// A stream of a connection with HTTP/2.
    Multiplexed(H2Exchange),
}

impl ExchangeTransport {
    /// Waits for the next event of the response.
    ///
    /// # Errors
    /// The connection or the stream is unusable.
    pub fn poll_event(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<ResponseEvent, OriginFault>> {
        match self {
            ExchangeTransport::Exclusive(lease) => {
                let event = lease.connection.poll_event(context);
                if let Poll::Ready(Ok(_)) = &event {
                    // The server has responded, so the lease no longer counts as unproven.
                    lease.mark_proven();
                }
                event
            }
            ExchangeTransport::Multiplexed(exchange) => exchange.poll_event(context),
        }
    }

    /// The whole body, if it was received together with the head.
    pub fn take_rest(&mut self) -> Option<Bytes> {
        match self {
            ExchangeTransport::Exclusive(lease) => lease.connection.take_rest(),
            ExchangeTransport::Multiplexed(_) => None,
        }
    }

    /// Whether a part of a response was received that is no event yet.
    pub fn has_input(&self) -> bool {
        match self {
            ExchangeTransport::Exclusive(lease) => lease.connection.has_input(),
            ExchangeTransport::Multiplexed(_) => false,
        }
    }

    /// The leased connection of HTTP/1.1.
    pub fn lease(&mut self) -> Option<&mut OriginLease> {
        match self {
            ExchangeTransport::Exclusive(lease) => Some(lease),
            ExchangeTransport::Multiplexed(_) => None,
        }
    }

    /// Whether a failed request of which no response arrived may have met a connection that the origin was closing, or
    /// was certainly not processed. `is_lost`: the connection was lost.
    pub fn is_stale(&self, is_lost: bool) -> bool {
        match self {
            ExchangeTransport::Exclusive(lease) => lease.is_reused && is_lost,
            ExchangeTransport::Multiplexed(exchange) => {
                let is_closed = exchange.is_reused && is_lost && !exchange.is_reset;
                exchange.is_unprocessed || is_closed
            }
        }
    }
}

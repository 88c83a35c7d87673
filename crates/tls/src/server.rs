//! One connection to a client. What is offered to it is the [`Acceptor`]'s.

use std::sync::Arc;

use rustls::server::{ServerConfig, UnbufferedServerConnection};
use rustls::{HandshakeKind, ProtocolVersion};

mod asked;
mod settings;

pub use settings::{Acceptor, ClientCertificates, Settings, Version};

use crate::failure::{Failure, Fault};
use crate::identity::ClientCertificate;
use crate::ktls::{CryptoInfo, Kernel, Offload};
use crate::opening::{Opening, opening};
use crate::session::{Ended, Progress, Session};

/// TLS with one client.
///
/// [`Server::receive`] is given what has come, [`Server::seal`] what is to be said; both add what is to be sent to a
/// buffer of the caller's, which must leave in that order. Between calls nothing is kept but secrets, and the start
/// of what has not come whole.
pub struct Server {
    session: Session<UnbufferedServerConnection>,
    has_begun: bool,
    server_name: Option<Box<str>>,
}

impl Server {
    pub(crate) fn new(config: Arc<ServerConfig>) -> Result<Server, Failure> {
        let connection = UnbufferedServerConnection::new(config).map_err(Failure::of)?;
        Ok(Server {
            session: Session::new(connection),
            has_begun: false,
            server_name: None,
        })
    }

    /// Understands bytes of the wire, in pieces of any length. They are decrypted where they lie, so `wire` is worth
    /// nothing afterwards. The application's bytes are added to `plain`, what must be sent to `to_send`. After
    /// close_notify, and after a failure, nothing is understood any more.
    ///
    /// # Errors
    /// The connection is over: send what is in `to_send`, which tells the client why, and close. With
    /// [`Fault::PlainHttp`] nothing is in it, and an answer in plain text is understood.
    pub fn receive(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        to_send: &mut Vec<u8>,
    ) -> Result<Progress, Failure> {
        if self.session.is_established() {
            return self.session.receive(wire, plain, to_send);
        }
        if self.has_begun || wire.is_empty() {
            return self.shake_hands(wire, plain, to_send);
        }
        self.has_begun = true;
        match opening(wire) {
            Opening::Http => {
                self.session.give_up();
                Err(Fault::PlainHttp.into())
            }
            Opening::Tls => self.shake_hands(wire, plain, to_send),
            // It is told so in TLS: what else would be understood?
            Opening::Unknown => match self.shake_hands(wire, plain, to_send) {
                Err(_) => Err(Fault::NotTls.into()),
                progress => progress,
            },
        }
    }

    fn shake_hands(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        to_send: &mut Vec<u8>,
    ) -> Result<Progress, Failure> {
        let receive = || self.session.receive(wire, plain, to_send);
        let (progress, server_name) = asked::noting(receive);
        self.server_name = server_name.or(self.server_name.take());
        progress
    }

    /// Seals the application's bytes, pieces one behind the other, and adds the records to `to_send`: a small one
    /// first after a pause, full ones otherwise. `now_ms` counts from anywhere.
    ///
    /// # Errors
    /// [`Fault::NotReady`] before the handshake is over and after a failure; [`Fault::Exhausted`].
    pub fn seal(
        &mut self,
        pieces: &[&[u8]],
        to_send: &mut Vec<u8>,
        now_ms: u64,
    ) -> Result<(), Failure> {
        self.session.seal(pieces, to_send, now_ms)
    }

    /// Says that nothing more will be sent (close_notify). What the client sends is still understood.
    ///
    /// # Errors
    /// [`Fault::NotReady`], as above.
    pub fn close(&mut self, to_send: &mut Vec<u8>) -> Result<(), Failure> {
        self.session.close(to_send)
    }

    /// The client's bytes have ended: what that means.
    pub fn ended(&self) -> Ended {
        self.session.ended()
    }

    /// Whether the handshake is over.
    pub fn is_established(&self) -> bool {
        self.session.is_established()
    }

    /// The name that the client has asked for (SNI).
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// What both sides will speak (ALPN).
    pub fn protocol(&self) -> Option<&[u8]> {
        self.session.connection().alpn_protocol()
    }

    /// Whether it goes on with a session that there was before.
    pub fn is_resumed(&self) -> bool {
        self.session.connection().handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Which version is spoken.
    pub fn version(&self) -> Option<Version> {
        match self.session.connection().protocol_version()? {
            ProtocolVersion::TLSv1_2 => Some(Version::Tls12),
            ProtocolVersion::TLSv1_3 => Some(Version::Tls13),
            _ => None,
        }
    }

    /// The cipher suite, for logs.
    pub fn cipher(&self) -> Option<&'static str> {
        let suite = self.session.connection().negotiated_cipher_suite()?;
        suite.suite().as_str()
    }

    /// The key exchange, for logs.
    pub fn key_exchange(&self) -> Option<&'static str> {
        let group = self.session.connection().negotiated_key_exchange_group()?;
        group.name().as_str()
    }

    /// Who the client is, if it has shown a certificate. It was verified in this handshake, or in the one that
    /// began the session.
    pub fn client_certificate(&self) -> Option<ClientCertificate> {
        let chain = self.session.connection().peer_certificates()?;
        ClientCertificate::of(chain.first()?)
    }

    /// Lets the kernel go on with the records. All that was to be sent must have left, and all that was received
    /// must have been whole records.
    ///
    /// # Errors
    /// [`Fault::NotReady`]: something is half done. [`Fault::Internal`]: the [`Acceptor`] was not told that this
    /// would be asked for, or the kernel does not know the cipher.
    pub fn into_kernel(self) -> Result<(Offload, Kernel), Failure> {
        let connection = self.session.into_connection()?;
        let extracted = connection.dangerous_into_kernel_connection();
        let (secrets, kernel) = extracted.map_err(Failure::of)?;
        let version = kernel.protocol_version();
        let to_send = CryptoInfo::new(version, secrets.tx.0, &secrets.tx.1);
        let to_receive = CryptoInfo::new(version, secrets.rx.0, &secrets.rx.1);
        match (to_send, to_receive) {
            (Some(to_send), Some(to_receive)) => {
                let offload = Offload {
                    to_send,
                    to_receive,
                };
                Ok((offload, Kernel::new(kernel)))
            }
            _ => Err(Fault::Internal.into()),
        }
    }
}

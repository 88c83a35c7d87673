//! One connection to a client. What is offered to it is the [`Acceptor`]'s.

use std::mem;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConfig, UnbufferedServerConnection};
use rustls::{HandshakeKind, ProtocolVersion};

mod alert;
mod asked;
mod settings;

pub use settings::{Acceptor, ClientCertificates, Settings, Version};

use crate::clock::Clock;
use crate::failure::{Failure, Fault};
use crate::identity::ClientCertificate;
use crate::ktls::CryptoInfo;
use crate::opening::{Opening, opening};
use crate::session::{Ended, Progress, Session};
use crate::settled::Settled;
use crate::x509::Certificate;

/// TLS with one client.
///
/// [`Server::receive`] is given what has come, [`Server::seal`] what is to be said; both add what is to be sent to a
/// buffer of the caller's, which must leave in that order. Between calls nothing is kept but secrets, and the start
/// of what has not come whole.
pub struct Server {
    spoken: Spoken,
    has_begun: bool,
    server_name: Option<Box<str>>,
    /// During the handshake, where clients are asked who they are.
    clock: Option<Clock>,
}

/// How far it is. Each has memory of its own: most connections are settled, which is much smaller.
enum Spoken {
    Session(Box<Session<UnbufferedServerConnection>>),
    Settled(Box<Settled>),
    /// It failed in between.
    Over,
}

impl Server {
    /// `clock` is given where clients are asked who they are.
    pub(crate) fn new(config: Arc<ServerConfig>, clock: Option<Clock>) -> Result<Server, Failure> {
        let connection = UnbufferedServerConnection::new(config).map_err(Failure::of)?;
        Ok(Server {
            spoken: Spoken::Session(Box::new(Session::new(connection))),
            has_begun: false,
            server_name: None,
            clock,
        })
    }

    /// Forgets the handshake, which is over: from now on records cost less, and an idle connection less memory. What was
    /// agreed on can't be asked for any more, except for the server's name. Without effect with TLS 1.2.
    ///
    /// # Errors
    /// [`Fault::NotReady`]: the handshake is not over, or more has ended than that.
    pub fn settle(&mut self) -> Result<(), Failure> {
        if self.version() != Some(Version::Tls13) {
            return Ok(());
        }
        let Spoken::Session(session) = mem::replace(&mut self.spoken, Spoken::Over) else {
            return Err(Fault::NotReady.into());
        };
        let (connection, pending, records) = session.into_parts()?;
        let extracted = connection.dangerous_into_kernel_connection();
        let (secrets, connection) = extracted.map_err(Failure::of)?;
        let settled = Settled::new(connection, secrets.tx, secrets.rx, pending, records)?;
        self.spoken = Spoken::Settled(Box::new(settled));
        Ok(())
    }

    fn session(&self) -> Option<&Session<UnbufferedServerConnection>> {
        match &self.spoken {
            Spoken::Session(session) => Some(session),
            _ => None,
        }
    }

    fn connection(&self) -> Option<&UnbufferedServerConnection> {
        self.session().map(Session::connection)
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
        match &mut self.spoken {
            Spoken::Settled(settled) => return settled.receive(wire, plain, to_send),
            Spoken::Session(session) if session.is_established() => {
                return session.receive(wire, plain, to_send);
            }
            Spoken::Over => return Ok(Progress::default()),
            Spoken::Session(_) => {}
        }
        if self.has_begun || wire.is_empty() {
            return self.shake_hands(wire, plain, to_send);
        }
        self.has_begun = true;
        match opening(wire) {
            Opening::Http => {
                self.spoken = Spoken::Over;
                Err(Fault::PlainHttp.into())
            }
            Opening::Ssl3 => {
                self.spoken = Spoken::Over;
                to_send.extend_from_slice(&alert::PROTOCOL_VERSION);
                Err(Fault::NothingInCommon.into())
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
        let Spoken::Session(session) = &mut self.spoken else {
            return Ok(Progress::default());
        };
        let (plain_len, to_send_len) = (plain.len(), to_send.len());
        let (progress, server_name) = asked::noting(|| session.receive(wire, plain, to_send));
        self.server_name = server_name.or(self.server_name.take());
        let progress = progress.inspect_err(|failure| {
            let version = session.connection().protocol_version();
            let is_tls13 = version == Some(ProtocolVersion::TLSv1_3);
            if let Some(error) = failure.error() {
                alert::correct(error, is_tls13, to_send);
            }
        })?;
        if progress.established
            && let Some(clock) = self.clock.take()
            && self.goes_on_expired(&clock)
        {
            // Nor does it get another ticket by this one. No alert can be sealed in the place of that.
            plain.truncate(plain_len);
            to_send.truncate(to_send_len);
            self.spoken = Spoken::Over;
            return Err(Fault::CertificateExpired.into());
        }
        Ok(progress)
    }

    /// Whether the client goes on with a session for which it has shown a certificate whose time is over by now: certificates
    /// are verified in full handshakes only, and each session that is resumed begins another.
    fn goes_on_expired(&self, clock: &Clock) -> bool {
        let chain = self.connection().and_then(|it| it.peer_certificates());
        let now_s = i64::try_from(clock.unix_s()).unwrap_or(i64::MAX);
        let is_over = |certificate: &CertificateDer<'_>| {
            let known = Certificate::parse(certificate);
            known.is_none_or(|known| known.not_after_s < now_s)
        };
        self.is_resumed() && chain.is_some_and(|chain| chain.iter().any(is_over))
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
        match &mut self.spoken {
            Spoken::Session(session) => session.seal(pieces, to_send, now_ms),
            Spoken::Settled(settled) => settled.seal(pieces, to_send, now_ms),
            Spoken::Over => Err(Fault::NotReady.into()),
        }
    }

    /// Says that nothing more will be sent (close_notify). What the client sends is still understood.
    ///
    /// # Errors
    /// [`Fault::NotReady`], as above.
    pub fn close(&mut self, to_send: &mut Vec<u8>) -> Result<(), Failure> {
        match &mut self.spoken {
            Spoken::Session(session) => session.close(to_send),
            Spoken::Settled(settled) => settled.close(to_send),
            Spoken::Over => Err(Fault::NotReady.into()),
        }
    }

    /// What the kernel must know to seal what is sent from now on, once all that was sealed has been given to the socket.
    /// `None`: it can't, or the connection is not [settled](Server::settle).
    pub fn kernel_keys(&self) -> Option<CryptoInfo> {
        match &self.spoken {
            Spoken::Settled(settled) => settled.kernel_keys(),
            _ => None,
        }
    }

    /// The kernel seals from now on, by its [keys](Server::kernel_keys). Nothing can be sealed here any more; what is
    /// added to `to_send` is the content of one alert, not sealed.
    pub fn leave_to_kernel(&mut self) {
        if let Spoken::Settled(settled) = &mut self.spoken {
            settled.leave_to_kernel();
        }
    }

    /// Whether the client wants other keys than the kernel has, which can't be changed: what has begun may be sent, no more.
    pub fn is_worn(&self) -> bool {
        matches!(&self.spoken, Spoken::Settled(settled) if settled.is_worn())
    }

    /// The client's bytes have ended: what that means.
    pub fn ended(&self) -> Ended {
        match &self.spoken {
            Spoken::Session(session) => session.ended(),
            Spoken::Settled(settled) => settled.ended(),
            Spoken::Over => Ended::InHandshake,
        }
    }

    /// Whether the handshake is over.
    pub fn is_established(&self) -> bool {
        match &self.spoken {
            Spoken::Session(session) => session.is_established(),
            Spoken::Settled(_) => true,
            Spoken::Over => false,
        }
    }

    /// The name that the client has asked for (SNI).
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// What both sides will speak (ALPN).
    pub fn protocol(&self) -> Option<&[u8]> {
        self.connection()?.alpn_protocol()
    }

    /// Whether it goes on with a session that there was before.
    pub fn is_resumed(&self) -> bool {
        self.connection().and_then(|it| it.handshake_kind()) == Some(HandshakeKind::Resumed)
    }

    /// Which version is spoken.
    pub fn version(&self) -> Option<Version> {
        match self.connection()?.protocol_version()? {
            ProtocolVersion::TLSv1_2 => Some(Version::Tls12),
            ProtocolVersion::TLSv1_3 => Some(Version::Tls13),
            _ => None,
        }
    }

    /// The cipher suite, for logs.
    pub fn cipher(&self) -> Option<&'static str> {
        let suite = self.connection()?.negotiated_cipher_suite()?;
        suite.suite().as_str()
    }

    /// The key exchange, for logs.
    pub fn key_exchange(&self) -> Option<&'static str> {
        let group = self.connection()?.negotiated_key_exchange_group()?;
        group.name().as_str()
    }

    /// Who the client is, if it has shown a certificate. It was verified in this handshake, or in the one that
    /// began the session.
    pub fn client_certificate(&self) -> Option<ClientCertificate> {
        let chain = self.connection()?.peer_certificates()?;
        ClientCertificate::of(chain.first()?)
    }
}

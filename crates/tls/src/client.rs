//! The client's side: whom to trust, and one connection to a server.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, Resumption, UnbufferedClientConnection};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{DigitallySignedStruct, Error, HandshakeKind, RootCertStore, SignatureScheme};

use crate::certificates::Pair;
use crate::clock::Clock;
use crate::failure::Failure;
use crate::provider::provider;
use crate::session::{Ended, Progress, Session};

/// Whom a client believes that it is who it says.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Whoever is signed for by these authorities, in PEM.
    Pem(Vec<u8>),
    /// The same, in DER. Those that cannot be used are passed over, as one finds them on old systems.
    Der(Vec<Vec<u8>>),
    /// Anybody who holds the key of what is shown.
    Anybody,
}

/// Makes connections; all that it makes share their sessions.
#[derive(Clone)]
pub struct Connector(Arc<ClientConfig>);

impl Connector {
    /// Trusts these, offers these protocols, the preferred first, shows `identity` to who asks for it, and keeps so
    /// many sessions for resumption.
    ///
    /// # Errors
    /// Nobody would be trusted, or an authority is unusable; says which.
    pub fn new(
        trust: &Trust,
        protocols: &[&str],
        identity: Option<&Pair>,
        sessions_max: usize,
        clock: Clock,
    ) -> Result<Connector, Failure> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(Failure::of)?;
        let builder = match roots(trust).map_err(Failure::of)? {
            Some(roots) => builder.with_root_certificates(roots),
            None => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anybody)),
        };
        let mut config = match identity {
            Some(pair) => {
                let shown = SingleCertAndKey::from(pair.certified().clone());
                builder.with_client_cert_resolver(Arc::new(shown))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        config.resumption = match sessions_max {
            0 => Resumption::disabled(),
            max => Resumption::in_memory_sessions(max),
        };
        config.time_provider = Arc::new(clock);
        Ok(Connector(Arc::new(config)))
    }

    /// Begins with a server of this name, a host's or an address; what is to be sent first is added to `to_send`.
    ///
    /// # Errors
    /// The name is none that a certificate can have.
    pub fn connect(&self, name: &str, to_send: &mut Vec<u8>) -> Result<Client, Failure> {
        let name = ServerName::try_from(name.to_owned());
        let name = name.map_err(|error| Failure::of(Error::General(error.to_string())))?;
        let connection = UnbufferedClientConnection::new(self.0.clone(), name);
        let mut session = Session::new(connection.map_err(Failure::of)?);
        session.start(to_send)?;
        Ok(Client { session })
    }
}

/// TLS with one server. Used as a [`Server`](crate::Server) is.
pub struct Client {
    session: Session<UnbufferedClientConnection>,
}

impl Client {
    /// See [`Server::receive`](crate::Server::receive).
    ///
    /// # Errors
    /// As there.
    pub fn receive(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        to_send: &mut Vec<u8>,
    ) -> Result<Progress, Failure> {
        self.session.receive(wire, plain, to_send)
    }

    /// See [`Server::seal`](crate::Server::seal).
    ///
    /// # Errors
    /// As there.
    pub fn seal(
        &mut self,
        pieces: &[&[u8]],
        to_send: &mut Vec<u8>,
        now_ms: u64,
    ) -> Result<(), Failure> {
        self.session.seal(pieces, to_send, now_ms)
    }

    /// See [`Server::close`](crate::Server::close).
    ///
    /// # Errors
    /// As there.
    pub fn close(&mut self, to_send: &mut Vec<u8>) -> Result<(), Failure> {
        self.session.close(to_send)
    }

    /// The server's bytes have ended: what that means.
    pub fn ended(&self) -> Ended {
        self.session.ended()
    }

    /// Whether the handshake is over.
    pub fn is_established(&self) -> bool {
        self.session.is_established()
    }

    /// What the server chose of the protocols that were offered.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.session.connection().alpn_protocol()
    }

    /// Whether it goes on with a session that there was before.
    pub fn is_resumed(&self) -> bool {
        self.session.connection().handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The server's certificate, in DER.
    pub fn server_certificate(&self) -> Option<&[u8]> {
        let chain = self.session.connection().peer_certificates()?;
        chain.first().map(|own| own.as_ref())
    }

    /// The key exchange, for logs.
    pub fn key_exchange(&self) -> Option<&'static str> {
        let group = self.session.connection().negotiated_key_exchange_group()?;
        group.name().as_str()
    }
}

/// `None`: anybody is trusted.
fn roots(trust: &Trust) -> Result<Option<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    match trust {
        Trust::Anybody => return Ok(None),
        Trust::Der(authorities) => {
            let authorities = authorities.iter().map(|der| CertificateDer::from(&der[..]));
            roots.add_parsable_certificates(authorities);
        }
        Trust::Pem(text) => {
            let found = crate::certificates::all(text);
            for certificate in found.map_err(|reason| Error::General(reason.to_string()))? {
                roots.add(certificate)?;
            }
        }
    }
    match roots.is_empty() {
        true => Err(Error::General("there are no authorities to trust".into())),
        false => Ok(Some(roots)),
    }
}

/// Trusts anybody, but still checks that they hold the key of what they show.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

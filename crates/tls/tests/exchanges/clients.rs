//! Client certificates: verification, and resumption of sessions with them.

use lowroad_tls::certificates::CertificatePair;
use lowroad_tls::{
    ClientConnector, ClientVerification, TicketService, TlsAcceptor, TlsClock, TlsFault,
};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};

use crate::pair::{Exchange, SideFailure, clock, load, settings, tickets, trust};

/// An authority for client certificates.
pub struct ClientCa {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl ClientCa {
    pub fn new(name: &str) -> ClientCa {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        ClientCa { pem, issuer }
    }

    pub fn sign(&self, days: i32) -> CertificatePair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["alice.example".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Example, Inc.");
        params.distinguished_name.push(DnType::CommonName, "Alice");
        params.serial_number = Some(0x0123_4567_u64.into());
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_after = rcgen::date_time_ymd(2026 + days / 365, 1, 2);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        load(&certificate.pem(), &key.serialize_pem())
    }
}

fn acceptor(clients: ClientVerification, tickets: Option<TicketService>) -> TlsAcceptor {
    let mut settings = settings();
    settings.clients = clients;
    settings.tickets = tickets;
    TlsAcceptor::new(&settings).unwrap()
}

/// A client with a certificate.
pub fn connector(identity: Option<&CertificatePair>) -> ClientConnector {
    ClientConnector::new(&trust(), &["http/1.1"], identity, 16, clock()).unwrap()
}

fn fault(acceptor: &TlsAcceptor, connector: &ClientConnector) -> Option<TlsFault> {
    let mut exchange = Exchange::new(acceptor, connector, "localhost");
    match exchange.run() {
        Ok(()) => None,
        Err(SideFailure::Server(failure)) => Some(failure.fault),
        Err(SideFailure::Client(failure)) => panic!("{failure}"),
    }
}

#[test]
fn verified_client_certificate_is_available() {
    let clients = ClientCa::new("Clients");
    let alice = clients.sign(3650);
    let acceptor = acceptor(ClientVerification::Require(clients.pem.into()), None);
    let exchange = Exchange::established(&acceptor, &connector(Some(&alice)));
    let shown = exchange.server.client_certificate().unwrap();
    assert_eq!(shown.subject, "CN=Alice,O=Example\\, Inc.");
    assert!(shown.issuer.contains("CN=Clients"), "{}", shown.issuer);
    assert_eq!(shown.serial, "01234567");
    assert_eq!(
        shown
            .names
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["DNS:alice.example"]
    );
    assert_eq!(shown.fingerprint, alice.fingerprint());
    assert_eq!(shown.not_after, "2036-01-02 00:00:00 UTC");
    assert!(shown.pem.starts_with("-----BEGIN CERTIFICATE-----\nMII"));
    assert!(shown.pem.ends_with("\n-----END CERTIFICATE-----\n"));
    assert!(shown.pem.lines().all(|line| line.len() <= 64));
}

#[test]
fn missing_required_client_certificate_is_refused() {
    let clients = ClientCa::new("Clients");
    let requires = acceptor(
        ClientVerification::Require(clients.pem.clone().into()),
        None,
    );
    assert_eq!(
        fault(&requires, &connector(None)),
        Some(TlsFault::CertificateMissing)
    );
    // With `Request`, the certificate is optional.
    let requests = acceptor(ClientVerification::Request(clients.pem.into()), None);
    assert_eq!(fault(&requests, &connector(None)), None);
}

#[test]
fn client_certificate_of_unknown_ca_or_expired_is_refused() {
    let clients = ClientCa::new("Clients");
    // An invalid certificate is rejected even if none is required.
    for kind in [ClientVerification::Request, ClientVerification::Require] {
        let acceptor = acceptor(kind(clients.pem.clone().into()), None);
        let stranger = ClientCa::new("Others").sign(3650);
        assert_eq!(
            fault(&acceptor, &connector(Some(&stranger))),
            Some(TlsFault::CertificateIssuer)
        );
        // A CA with the same name but another key.
        let forger = ClientCa::new("Clients").sign(3650);
        assert_eq!(
            fault(&acceptor, &connector(Some(&forger))),
            Some(TlsFault::Certificate)
        );
        let expired = clients.sign(0);
        assert_eq!(
            fault(&acceptor, &connector(Some(&expired))),
            Some(TlsFault::CertificateExpired)
        );
    }
}

#[test]
fn session_is_not_resumed_after_certificate_expiry() {
    // 2027-01-02 00:00:00 UTC.
    const ENDS_S: u64 = 1_798_848_000;
    let clients = ClientCa::new("Clients");
    let clock = TlsClock::new(ENDS_S - 60);
    let mut settings = settings();
    settings.clients = ClientVerification::Require(clients.pem.clone().into());
    settings.tickets = Some(tickets(&clock));
    settings.clock = clock.clone();
    let acceptor = TlsAcceptor::new(&settings).unwrap();
    let connector = connector(Some(&clients.sign(365)));
    for is_resumed in [false, true] {
        let exchange = Exchange::established(&acceptor, &connector);
        assert_eq!(exchange.server.is_resumed(), is_resumed);
    }
    clock.set(ENDS_S + 60);
    // First with each of the client's tickets, then without a ticket.
    for _ in 0..6 {
        let fault = fault(&acceptor, &connector);
        assert_eq!(fault, Some(TlsFault::CertificateExpired));
    }
}

#[test]
fn resumed_session_has_client_certificate_and_is_bound_to_listener_rules() {
    let clients = ClientCa::new("Clients");
    let tickets = tickets(&clock());
    let authorities: Vec<u8> = clients.pem.clone().into();
    let requires = acceptor(
        ClientVerification::Require(authorities.clone()),
        Some(tickets.clone()),
    );
    let alice = clients.sign(3650);
    let connector = connector(Some(&alice));
    assert!(
        !Exchange::established(&requires, &connector)
            .server
            .is_resumed()
    );
    let again = Exchange::established(&requires, &connector);
    assert!(again.server.is_resumed());
    assert_eq!(
        again.server.client_certificate().unwrap().fingerprint,
        alice.fingerprint()
    );
    for other in [
        ClientVerification::None,
        ClientVerification::Request(authorities),
    ] {
        let other = acceptor(other, Some(tickets.clone()));
        assert!(
            !Exchange::established(&other, &connector)
                .server
                .is_resumed()
        );
    }
}

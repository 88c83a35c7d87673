//! Wraps the TLS 1.3 decrypters of `rustls` for servers: reports to `session` when a key is installed and when a record
//! cannot be decrypted, and rejects plaintext records once records must be encrypted.
//!
//! Trial decryption: a server that rejects early data skips the records that its key cannot decrypt (RFC 8446, section
//! 4.2.10). The unbuffered interface of `rustls` 0.23 skips such a record, but doesn't tell its caller to discard it.
//! The next call would try the record again and count it twice.

use std::cell::Cell;

use rustls::crypto::CryptoProvider;
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter, MessageEncrypter,
    Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::{
    CipherSuiteCommon, ConnectionTrafficSecrets, ContentType, Error, PeerMisbehaved,
    SupportedCipherSuite, Tls13CipherSuite,
};

use crate::established::{APPLICATION_DATA, SEALED_LEN_MAX};
use crate::ktls::ALERT;
use crate::session::HEADER_LEN;

const CHANGE_CIPHER_SPEC: u8 = 20;

thread_local! {
    static EVENTS: Cell<SessionEvents> = const { Cell::new(SessionEvents { has_failed: false, has_key: false }) };
    /// The error with which the next record is rejected.
    static REFUSAL: Cell<Option<Error>> = const { Cell::new(None) };
}

/// Events during one call into `rustls`.
#[derive(Clone, Copy, Default)]
pub(crate) struct SessionEvents {
    /// A record could not be decrypted.
    pub has_failed: bool,
    /// A decryption key was installed: from now on, records must be encrypted.
    pub has_key: bool,
}

/// Calls `process` and returns the decryption events of this call.
pub(crate) fn watch<T>(process: impl FnOnce() -> T) -> (T, SessionEvents) {
    EVENTS.set(SessionEvents::default());
    let done = process();
    // An unused error must not fail a record of another connection of this thread.
    REFUSAL.set(None);
    (done, EVENTS.take())
}

fn record_event(change: impl FnOnce(&mut SessionEvents)) {
    let mut events = EVENTS.get();
    change(&mut events);
    EVENTS.set(events);
}

/// A dummy record that fails with `error` when `rustls` processes it after a key was installed.
///
/// So the caller chooses the error, and `rustls` encrypts the matching alert.
pub(crate) fn refused_record(error: Error) -> [u8; HEADER_LEN + 1] {
    REFUSAL.set(Some(error));
    [APPLICATION_DATA, 3, 3, 0, 1, 0]
}

/// Checks the header of a record that must be encrypted, or be of a type that may still be sent in plaintext.
pub(crate) fn header_error(header: [u8; HEADER_LEN]) -> Option<Error> {
    let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
    match header[0] {
        APPLICATION_DATA if len > SEALED_LEN_MAX => Some(Error::PeerSentOversizedRecord),
        APPLICATION_DATA => None,
        // Middlebox compatibility mode: a record of one byte, which is ignored (RFC 8446, section 5).
        CHANGE_CIPHER_SPEC if len == 1 => None,
        ALERT if len == 2 => None,
        _ => Some(unexpected_record()),
    }
}

/// An error that `rustls` answers with the alert unexpected_message (RFC 8446, section 5).
fn unexpected_record() -> Error {
    PeerMisbehaved::IllegalMiddleboxChangeCipherSpec.into()
}

/// Wraps the provider's TLS 1.3 suites with these decrypters. The suites are leaked, so a process may call this only
/// once.
pub(crate) fn observed(provider: &CryptoProvider) -> CryptoProvider {
    let mut provider = provider.clone();
    for suite in &mut provider.cipher_suites {
        if let SupportedCipherSuite::Tls13(inner) = *suite {
            *suite = SupportedCipherSuite::Tls13(Box::leak(Box::new(observed_suite(inner))));
        }
    }
    provider
}

fn observed_suite(inner: &'static Tls13CipherSuite) -> Tls13CipherSuite {
    Tls13CipherSuite {
        common: CipherSuiteCommon { ..inner.common },
        hkdf_provider: inner.hkdf_provider,
        aead_alg: Box::leak(Box::new(ObservedAead(inner.aead_alg))),
        quic: inner.quic,
    }
}

struct ObservedAead(&'static dyn Tls13AeadAlgorithm);

impl Tls13AeadAlgorithm for ObservedAead {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        self.0.encrypter(key, iv)
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        record_event(|events| events.has_key = true);
        Box::new(ObservedDecrypter(self.0.decrypter(key, iv)))
    }

    fn key_len(&self) -> usize {
        self.0.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv)
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

struct ObservedDecrypter(Box<dyn MessageDecrypter>);

impl MessageDecrypter for ObservedDecrypter {
    fn decrypt<'a>(
        &mut self,
        record: InboundOpaqueMessage<'a>,
        sequence: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        if let Some(error) = REFUSAL.take() {
            return Err(error);
        }
        // `rustls` decrypts records of any outer type and would fail with bad_record_mac instead of unexpected_message.
        if record.typ != ContentType::ApplicationData {
            return Err(unexpected_record());
        }
        let opened = self.0.decrypt(record, sequence);
        // The failure is only recorded: `rustls` decides whether to skip the record (trial decryption).
        if matches!(opened, Err(Error::DecryptError)) {
            record_event(|events| events.has_failed = true);
        }
        opened.and_then(|record| match is_allowed(&record) {
            true => Ok(record),
            false => Err(unexpected_record()),
        })
    }
}

/// Whether a decrypted record is valid: only application data may be empty, and an alert fills exactly one record (RFC
/// 8446, section 5.1).
fn is_allowed(record: &InboundPlainMessage<'_>) -> bool {
    match record.typ {
        ContentType::ApplicationData => true,
        ContentType::Handshake => !record.payload.is_empty(),
        ContentType::Alert => record.payload.len() == 2,
        _ => false,
    }
}

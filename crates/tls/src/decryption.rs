//! Decrypters of TLS 1.3 for servers that report to `session` what `rustls` does not, and that accept encrypted records only.
//!
//! Trial decryption: a server that rejects early data skips the records that its key cannot decrypt (RFC 8446, section
//! 4.2.10). The unbuffered interface of `rustls` 0.23 skips such a record but doesn't tell its caller to discard it. With the
//! next call it would be tried, and counted, again.

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

thread_local! {
    static HAS_FAILED: Cell<bool> = const { Cell::new(false) };
}

/// Calls `process`; whether a record could not be decrypted meanwhile.
pub(crate) fn watch<T>(process: impl FnOnce() -> T) -> (T, bool) {
    HAS_FAILED.set(false);
    let done = process();
    (done, HAS_FAILED.replace(false))
}

/// The provider with these decrypters. Its cipher suites are never freed: a process makes them once.
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
        // `rustls` decrypts whatever the outer type is, and fails with bad_record_mac. Right is unexpected_message (RFC 8446,
        // section 5), which it sends for this error.
        if record.typ != ContentType::ApplicationData {
            return Err(PeerMisbehaved::IllegalMiddleboxChangeCipherSpec.into());
        }
        let opened = self.0.decrypt(record, sequence);
        if matches!(opened, Err(Error::DecryptError)) {
            HAS_FAILED.set(true);
        }
        opened
    }
}

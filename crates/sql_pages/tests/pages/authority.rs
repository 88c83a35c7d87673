//! A certificate authority for tests, and the certificates that it signs.

use lowroad_testkit::TempFolder;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// An authority and its files.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempFolder,
}

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "an authority of the test");
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let folder = TempFolder::new();
        folder.file("ca.pem", issuer.pem());
        Authority { issuer, folder }
    }

    /// The path of one of the authority's files.
    pub fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Signs a certificate, stores it in `NAME.pem` and its key in `NAME.key`, and returns both.
    pub fn sign(&self, name: &str, hosts: &[&str]) -> (String, String) {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a signature");
        let (certificate, key) = (certificate.pem(), key.serialize_pem());
        self.folder.file(format!("{name}.pem"), &certificate);
        self.folder.file(format!("{name}.key"), &key);
        (certificate, key)
    }
}

/// A loopback address that no other test process uses, so that its ports are free.
pub fn loopback() -> String {
    let id = std::process::id();
    let [_, a, b, c] = id.to_be_bytes();
    format!("127.{}.{b}.{c}", 64 + a)
}

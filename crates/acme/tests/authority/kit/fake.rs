//! A simulated authority, and certificates that were issued before the test.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use lowroad_acme::{AcmeSettings, AuthoritySettings};
use lowroad_tls::authority::LocalAuthority;

use super::web::{self, Answer};
use super::{Folder, names};

/// An authority that creates accounts; `order` answers all other requests, by target and base URL.
pub fn fake(order: impl Fn(&str, &str) -> Answer + Send + Sync + 'static) -> SocketAddr {
    let own = Arc::new(OnceLock::<SocketAddr>::new());
    let known = own.clone();
    let addr = web::serve(web::listen(), move |_, target| {
        let base = format!("http://{}", known.get().expect("known"));
        let answer = match target {
            "/dir" => Answer::new(
                200,
                format!(
                    r#"{{"newNonce":"{base}/nonce","newAccount":"{base}/account",
                        "newOrder":"{base}/order","renewalInfo":"{base}/window"}}"#
                ),
            ),
            "/nonce" => Answer::new(200, ""),
            "/account" => {
                Answer::new(201, r#"{"status":"valid"}"#).with("location", format!("{base}/1"))
            }
            _ => order(target, &base),
        };
        answer.with("replay-nonce", "bm9uY2U")
    });
    own.set(addr).expect("once");
    addr
}

/// Settings with this authority, and a certificate for `a.example`.
pub fn settings(folder: &Folder, addr: SocketAddr) -> AcmeSettings {
    let mut settings = AcmeSettings::new(folder.path());
    settings.terms_agreed = true;
    settings.authorities = vec![AuthoritySettings {
        directory: format!("http://{addr}/dir"),
        ..AuthoritySettings::default()
    }];
    settings.sites = vec![names(&["a.example"])];
    settings
}

/// Writes a certificate that is valid for about 13 months into a folder, as if it had been issued at this time.
pub fn place_certificate(folder: &Path, name: &str, unix_s: u64) {
    let local = LocalAuthority::open(&folder.join("ca"), "test", unix_s);
    let pem = local.expect("an authority").sign_pem(&[name], unix_s);
    let (chain, key) = pem.expect("a certificate");
    let own = folder.join("names").join(name);
    fs::create_dir_all(&own).expect("a folder");
    fs::write(own.join("certificate.pem"), format!("{key}{chain}")).expect("a file");
}

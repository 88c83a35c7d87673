//! Reading certificate and key files, and the problems that are reported for them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use lowroad_tls::authority::LocalAuthority;
use lowroad_tls::certificates::{CertificatePaths, CertificateProblem, ProblemReason, read};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, Issuer, KeyPair};

use crate::pair::tempdir::Folder;
use crate::pair::{AUTHORITY, NOW_S};

struct CertificateFolder {
    folder: Folder,
    files: CertificatePaths,
}

impl CertificateFolder {
    fn new(certificates: &str, key: &str) -> CertificateFolder {
        let folder = Folder::new("site");
        let files = CertificatePaths {
            certificates: folder.path().join("cert.pem"),
            key: folder.path().join("key.pem"),
            staple: None,
        };
        fs::write(&files.certificates, certificates).unwrap();
        fs::write(&files.key, key).unwrap();
        for (path, mode) in [(&files.certificates, 0o644), (&files.key, 0o600)] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        CertificateFolder { folder, files }
    }

    fn signed() -> CertificateFolder {
        let (chain, key) = AUTHORITY.sign_pem(&[], NOW_S).unwrap();
        CertificateFolder::new(&chain, &key)
    }

    fn warnings(&self, unix_s: u64) -> Vec<ProblemReason> {
        let (_, problems) = read(&self.files, unix_s).unwrap();
        assert!(problems.iter().all(|problem| !problem.is_fatal()));
        problems.into_iter().map(|problem| problem.reason).collect()
    }

    fn fatal_problem(&self) -> CertificateProblem {
        let problem = read(&self.files, NOW_S).unwrap_err();
        assert!(problem.is_fatal());
        problem
    }
}

#[test]
fn valid_files_have_no_warnings() {
    let site = CertificateFolder::signed();
    assert_eq!(site.warnings(NOW_S), []);
    let (pair, _) = read(&site.files, NOW_S).unwrap();
    assert_eq!(pair.dns_names().collect::<Vec<_>>(), ["localhost"]);
    assert_eq!(pair.names().len(), 3);
    assert!(pair.not_after_s() > NOW_S as i64);
}

#[test]
fn key_of_another_certificate_is_reported() {
    let site = CertificateFolder::signed();
    fs::write(
        &site.files.key,
        KeyPair::generate().unwrap().serialize_pem(),
    )
    .unwrap();
    let problem = site.fatal_problem();
    assert_eq!(problem.reason, ProblemReason::KeyMismatch);
    let key = site.files.key.display();
    assert_eq!(
        problem.to_string(),
        format!("{key}: the key does not match the certificate")
    );
}

#[test]
fn expired_or_not_yet_valid_certificate_is_reported() {
    let site = CertificateFolder::signed();
    let year_s = 366 * 86_400;
    assert!(matches!(
        site.warnings(NOW_S + 2 * year_s)[..],
        [ProblemReason::Expired(_)]
    ));
    assert!(matches!(
        site.warnings(NOW_S - year_s)[..],
        [ProblemReason::NotYetValid(_)]
    ));
}

/// A certificate signed by a CA named "Between", with one access method in its Authority Information Access, and its
/// key.
fn signed_with(method: &[u8]) -> (String, String) {
    let element = |tag: u8, content: &[u8]| {
        let mut element = vec![tag, u8::try_from(content.len()).unwrap()];
        element.extend_from_slice(content);
        element
    };
    let access_description =
        [element(0x06, method), element(0x86, b"http://a.example/ca")].concat();
    let information = element(0x30, &element(0x30, &access_description));
    let access = CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], information);
    let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
    params.custom_extensions.push(access);
    let mut between = CertificateParams::new([]).unwrap();
    between.distinguished_name = DistinguishedName::new();
    between
        .distinguished_name
        .push(DnType::CommonName, "Between");
    let issuer = Issuer::new(between, KeyPair::generate().unwrap());
    let key = KeyPair::generate().unwrap();
    let own = params.signed_by(&key, &issuer).unwrap();
    (own.pem(), key.serialize_pem())
}

#[test]
fn incomplete_or_misordered_chain_is_reported() {
    let (chain, key) = AUTHORITY.sign_pem(&[], NOW_S).unwrap();
    let own = chain
        .split_inclusive("-----END CERTIFICATE-----\n")
        .next()
        .unwrap();
    // A private root may sign server certificates directly; clients that trust the root have its certificate.
    assert_eq!(CertificateFolder::new(own, &key).warnings(NOW_S), []);
    // Certificates of public CAs contain the URL of the intermediate (RFC 5280, section 4.2.2.1).
    let (own, key) = signed_with(&[0x2b, 6, 1, 5, 5, 7, 0x30, 2]);
    let name = "CN=Between".to_owned();
    assert_eq!(
        CertificateFolder::new(&own, &key).warnings(NOW_S),
        [ProblemReason::IncompleteChain(name)]
    );
    let (own, key) = signed_with(&[0x2b, 6, 1, 5, 5, 7, 0x30, 1]);
    assert_eq!(
        CertificateFolder::new(&own, &key).warnings(NOW_S),
        [],
        "only a place for OCSP"
    );
    let (chain, key) = AUTHORITY.sign_pem(&[], NOW_S).unwrap();
    let own = chain
        .split_inclusive("-----END CERTIFICATE-----\n")
        .next()
        .unwrap();

    let other = Folder::new("other");
    let other = LocalAuthority::open(other.path(), "elsewhere", NOW_S).unwrap();
    let wrong = CertificateFolder::new(&format!("{own}{}", other.pem()), &key);
    assert_eq!(wrong.warnings(NOW_S), [ProblemReason::WrongOrder(2)]);
}

#[test]
fn certificate_without_names_is_reported() {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::default();
    let certificate = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let site = CertificateFolder::new(&certificate.pem(), &issuer.key().serialize_pem());
    assert_eq!(site.warnings(NOW_S), [ProblemReason::NoName]);
}

#[test]
fn unsafe_file_modes_are_reported() {
    let site = CertificateFolder::signed();
    fs::set_permissions(&site.files.key, Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(&site.files.certificates, Permissions::from_mode(0o666)).unwrap();
    assert_eq!(
        site.warnings(NOW_S),
        [
            ProblemReason::WorldAccessibleKey(0o644),
            ProblemReason::WritableByOthers(0o666)
        ]
    );
    // A key file that is readable for the group causes no problem.
    fs::set_permissions(&site.files.key, Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(&site.files.certificates, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(site.warnings(NOW_S), []);
}

#[test]
fn unusable_certificate_or_key_is_reported() {
    let (chain, key) = AUTHORITY.sign_pem(&[], NOW_S).unwrap();
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let broken_key = "-----BEGIN PRIVATE KEY-----\nMAAA\n-----END PRIVATE KEY-----\n";
    for (certificates, key, expected) in [
        ("", &key[..], "NoCertificate"),
        (&key, &key, "NoCertificate"),
        ("-----BEGIN CERTIFICATE-----\n%%%", &key, "Malformed"),
        (garbage, &key, "Malformed"),
        (&chain, &chain, "NoKey"),
        (&chain, "", "NoKey"),
        (&chain, encrypted, "EncryptedKey"),
        (&chain, broken_key, "UnusableKey"),
    ] {
        let reason = format!(
            "{:?}",
            CertificateFolder::new(certificates, key)
                .fatal_problem()
                .reason
        );
        assert!(
            reason.starts_with(expected),
            "{reason} instead of {expected}"
        );
    }
    let site = CertificateFolder::signed();
    fs::remove_file(&site.files.key).unwrap();
    let problem = site.fatal_problem();
    assert!(matches!(problem.reason, ProblemReason::Unreadable(_)));
    assert_eq!(problem.file, site.files.key);
}

#[test]
fn unusable_ocsp_response_is_reported() {
    let mut site = CertificateFolder::signed();
    let staple = site.folder.path().join("staple.der");
    for (bytes, is_response) in [
        (&[0x30, 3, 0x0a, 1, 0][..], true),
        (&[0x30, 3, 0x0a, 1, 6], false),
        (b"HTTP/1.1 404", false),
    ] {
        fs::write(&staple, bytes).unwrap();
        site.files.staple = Some(staple.clone());
        assert_eq!(site.warnings(NOW_S).is_empty(), is_response, "{bytes:?}");
    }
    fs::remove_file(&staple).unwrap();
    assert_eq!(site.fatal_problem().file, staple);
}

#[test]
fn changed_files_are_read_again() {
    let site = CertificateFolder::signed();
    let before = read(&site.files, NOW_S).unwrap().0;
    let (chain, key) = AUTHORITY.sign_pem(&["new.example"], NOW_S).unwrap();
    fs::write(&site.files.certificates, chain).unwrap();
    fs::write(&site.files.key, key).unwrap();
    let after = read(&site.files, NOW_S).unwrap().0;
    assert_ne!(before.fingerprint(), after.fingerprint());
    assert!(after.dns_names().any(|name| name == "new.example"));
    assert!(site.folder.path().exists());
}

#[test]
fn local_authority_is_created_once_with_safe_modes() {
    let folder = Folder::new("authority");
    let path = folder.path().join("ca");
    let first = LocalAuthority::open(&path, "a host", NOW_S).unwrap();
    let mode = |name: &str| path.join(name).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!(
        path.metadata().unwrap().permissions().mode() & 0o7777,
        0o700
    );
    assert_eq!(
        (mode("authority.key"), mode("authority.pem")),
        (0o600, 0o644)
    );
    let again = LocalAuthority::open(&path, "renamed", NOW_S + 1000).unwrap();
    assert_eq!(first.pem(), again.pem());
    assert!(
        first
            .how_to_trust()
            .contains(&*first.certificate_file().to_string_lossy())
    );
    // Certificates signed by the reopened authority are valid under the certificate of the first one.
    let (chain, key) = again.sign_pem(&["x.test", "10.0.0.1"], NOW_S).unwrap();
    let site = CertificateFolder::new(&chain, &key);
    assert_eq!(site.warnings(NOW_S), []);
    let expiring = NOW_S + 3600 * 86_400;
    let renewed = LocalAuthority::open(&path, "a host", expiring).unwrap();
    assert_ne!(first.pem(), renewed.pem());
    fs::write(path.join("authority.pem"), "garbage").unwrap();
    assert!(LocalAuthority::open(&path, "a host", NOW_S).is_err());
    assert!(LocalAuthority::open(&path.join("ca/x"), "h", NOW_S).is_ok());
}

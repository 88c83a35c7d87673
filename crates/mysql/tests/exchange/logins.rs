//! Logins: the ways in which servers request the password.

use lowroad_mysql::{LoginRequest, MySqlError, MySqlLimits, TlsPolicy};
use rsa::pkcs8::{EncodePublicKey, LineEnding};
use rsa::traits::PublicKeyParts;
use rsa::{BigUint, RsaPublicKey};

use crate::server::{ClientHarness, Dialect, OK, greeting};

fn login(trusts_key: bool) -> ClientHarness {
    let login = LoginRequest {
        user: "me".into(),
        password: "geheim".into(),
        database: "shop".into(),
        trusts_key,
        ..LoginRequest::default()
    };
    ClientHarness::new(login, MySqlLimits::default())
}

#[test]
fn login_contains_user_database_and_plugin() {
    let mut harness = login(false);
    harness
        .receive_packet(0, &greeting(Dialect::New, "mysql_native_password"))
        .expect("a greeting");
    let said = harness.take_output();
    assert_eq!(said[3], 1, "it follows the greeting");
    assert_eq!(&said[36..39], b"me\0");
    assert_eq!(said[39], 20, "the proof's length");
    assert!(said.ends_with(b"shop\0mysql_native_password\0"));
    harness
        .receive_packet(2, b"\xff\x15\x04#28000Access denied")
        .unwrap_err();
    assert_eq!(harness.take_events(), ["Failed 1045 28000 Access denied"]);
}

#[test]
fn cached_password_needs_challenge_response_only() {
    let mut harness = login(false);
    harness
        .receive_packet(0, &greeting(Dialect::New, "caching_sha2_password"))
        .expect("a greeting");
    assert_eq!(harness.take_output()[39], 32, "the proof's length");
    harness.receive_packet(2, &[1, 3]).expect("enough");
    harness.receive_packet(3, OK).expect("a login");
    harness.receive_packet(1, OK).expect("a setting");
    assert!(harness.client.is_idle());
}

#[test]
fn auth_switch_request_is_followed() {
    let mut harness = login(false);
    harness
        .receive_packet(0, &greeting(Dialect::New, "caching_sha2_password"))
        .expect("a greeting");
    let first = harness.take_output();
    harness
        .receive_packet(2, b"\xfemysql_native_password\0abcdefghijabcdefghij\0")
        .expect("another one");
    let said = harness.take_output();
    assert_eq!((said[0], said[3]), (20, 3));
    assert_ne!(first[40..60], said[4..24]);
    harness.receive_packet(4, OK).expect("a login");
    for (plugin, word) in [
        ("client_ed25519", "ed25519"),
        ("mysql_clear_password", "in clear"),
        ("new", "unknown"),
    ] {
        let mut harness = login(false);
        harness
            .receive_packet(0, &greeting(Dialect::New, plugin))
            .expect("a greeting");
        let switch = format!("\u{0}{plugin}\0abcdefghijabcdefghij\0").into_bytes();
        let switch: Vec<u8> = [&[0xfe], &switch[1..]].concat();
        let error = harness.receive_packet(2, &switch).expect_err("unsupported");
        assert!(error.to_string().contains(word), "{error}");
        assert!(
            !harness
                .take_output()
                .windows(6)
                .any(|part| part == b"geheim")
        );
    }
}

#[test]
fn full_password_requires_trusted_key() {
    let password_request = |trusts_key: bool| {
        let mut harness = login(trusts_key);
        harness
            .receive_packet(0, &greeting(Dialect::New, "caching_sha2_password"))
            .expect("a greeting");
        harness.take_output();
        (harness.receive_packet(2, &[1, 4]), harness)
    };
    assert!(
        matches!(password_request(false).0, Err(MySqlError::Unsupported(why)) if why.contains("full password"))
    );
    let (asked, mut harness) = password_request(true);
    asked.expect("asked for");
    assert_eq!(harness.take_output()[3..], [3, 2], "the key is asked for");
    // Only the length, that of the key, is checked here; `auth` tests the encryption.
    let modulus = BigUint::from_bytes_be(&[0xc5; 128]);
    let key = RsaPublicKey::new(modulus, BigUint::from(65_537_u32)).expect("a key");
    let pem = key.to_public_key_pem(LineEnding::LF).expect("PEM");
    harness
        .receive_packet(4, &[&[1], pem.as_bytes()].concat())
        .expect("a key");
    let said = harness.take_output();
    assert_eq!(said.len(), 4 + key.size());
    harness.receive_packet(6, OK).expect("a login");
    let (_, mut harness) = password_request(true);
    assert!(matches!(
        harness.receive_packet(4, b"\x01no key"),
        Err(MySqlError::Protocol(_))
    ));
}

#[test]
fn malformed_or_refusing_greeting_fails() {
    for payload in [
        &b"\x09old"[..],
        b"\x0a5.0\0\x01\0\0\x0001234567\0\xff\xf7\x08\x02\0\0\0\x08\0\0\0\0\0\0\0\0\0\0",
        b"\x0a",
        b"",
    ] {
        let mut harness = login(false);
        assert!(harness.receive_packet(0, payload).is_err());
    }
    let mut harness = login(false);
    assert_eq!(
        harness.receive_packet(0, b"\xff\x10\x04Too many connections"),
        Err(MySqlError::LoginRefused)
    );
    assert_eq!(
        harness.take_events(),
        ["Failed 1040 HY000 Too many connections"]
    );
}

/// The offset of the second capability byte in the greeting: after version, version text, connection id, salt and a
/// zero.
const CAPABILITIES_AT: usize = 1 + b"8.0.40\0".len() + 4 + 8 + 1 + 1;
/// The TLS flag in that byte.
const TLS: u8 = 1 << 3;

/// A client after the greeting of a server with or without TLS.
fn greeted(
    tls: TlsPolicy,
    offers_tls: bool,
    plugin: &str,
) -> (Result<(), MySqlError>, ClientHarness) {
    let login = LoginRequest {
        user: "me".into(),
        password: "geheim".into(),
        tls,
        ..LoginRequest::default()
    };
    let mut harness = ClientHarness::new(login, MySqlLimits::default());
    let mut payload = greeting(Dialect::New, plugin);
    payload[CAPABILITIES_AT] &= !TLS;
    payload[CAPABILITIES_AT] |= if offers_tls { TLS } else { 0 };
    (harness.receive_packet(0, &payload), harness)
}

#[test]
fn tls_is_requested_as_policy_and_server_permit() {
    use TlsPolicy::{IfOffered, Never, Required};
    for (tls, offers_tls) in [(Never, false), (Never, true), (IfOffered, false)] {
        let (heard, mut harness) = greeted(tls, offers_tls, "mysql_native_password");
        assert_eq!(heard, Ok(()));
        let said = harness.take_output();
        assert_eq!((said[3], said[5] & TLS), (1, 0), "{tls:?}");
        assert!(said.ends_with(b"mysql_native_password\0"));
        assert!(harness.take_events().is_empty() && harness.client.tls_started().is_err());
    }
    let (heard, mut harness) = greeted(Required, false, "mysql_native_password");
    assert_eq!(
        (heard, harness.take_output().len()),
        (Err(MySqlError::NoTls), 0)
    );
    for tls in [IfOffered, Required] {
        let (heard, mut harness) = greeted(tls, true, "mysql_native_password");
        assert_eq!(
            (heard, harness.take_events()),
            (Ok(()), vec!["StartTls".into()])
        );
        let asked = harness.take_output();
        assert_eq!((asked.len(), asked[0], asked[3]), (36, 32, 1));
        assert_eq!(asked[5] & TLS, TLS);
        harness.client.tls_started().expect("nothing came before");
        let said = harness.take_output();
        assert_eq!(
            (said[3], &said[4..36]),
            (2, &asked[4..]),
            "it repeats the request"
        );
        assert_eq!(&said[36..39], b"me\0");
        harness.receive_packet(3, OK).expect("a login");
        harness.receive_packet(1, OK).expect("a setting");
        assert!(harness.client.is_idle());
    }
}

#[test]
fn bytes_before_tls_handshake_end_the_connection() {
    // A complete packet after the greeting, and the start of one.
    let (_, mut harness) = greeted(TlsPolicy::Required, true, "mysql_native_password");
    assert!(matches!(
        harness.receive_packet(2, OK),
        Err(MySqlError::Protocol(_))
    ));
    let (_, mut harness) = greeted(TlsPolicy::Required, true, "mysql_native_password");
    harness.input(&[7, 0]).expect("no packet yet");
    assert!(harness.client.tls_started().is_err());
    assert!(harness.take_output().is_empty());
}

#[test]
fn full_password_is_sent_inside_tls() {
    for plugin in ["caching_sha2_password", "sha256_password"] {
        let (_, mut harness) = greeted(TlsPolicy::Required, true, plugin);
        harness.take_output();
        harness.client.tls_started().expect("nothing came before");
        assert!(
            !harness
                .take_output()
                .windows(6)
                .any(|part| part == b"geheim")
        );
        let password_request = match plugin {
            "caching_sha2_password" => vec![1, 4],
            _ => b"\xfesha256_password\0abcdefghijabcdefghij\0".to_vec(),
        };
        harness
            .receive_packet(3, &password_request)
            .expect("the whole password");
        assert_eq!(harness.take_output(), b"\x07\0\0\x04geheim\0");
        harness.receive_packet(5, OK).expect("a login");
    }
}

#[test]
fn sha256_password_without_tls_requires_trusted_key() {
    let password_request = b"\xfesha256_password\0abcdefghijabcdefghij\0";
    for trusts_key in [false, true] {
        let mut harness = login(trusts_key);
        harness
            .receive_packet(0, &greeting(Dialect::New, "caching_sha2_password"))
            .expect("a greeting");
        harness.take_output();
        let heard = harness.receive_packet(2, password_request);
        assert_eq!(heard.is_ok(), trusts_key);
        let said = harness.take_output();
        assert_eq!(
            said,
            if trusts_key {
                &b"\x01\0\0\x03\x01"[..]
            } else {
                b""
            }
        );
    }
}

#[test]
fn session_variables_are_set_from_login() {
    let set = |charset: &str, collation: &str, time_zone: &str| {
        let login = LoginRequest {
            charset: charset.into(),
            collation: collation.into(),
            time_zone: time_zone.into(),
            ..LoginRequest::default()
        };
        let mut harness = ClientHarness::new(login, MySqlLimits::default());
        harness
            .receive_packet(0, &greeting(Dialect::New, "mysql_native_password"))
            .expect("a greeting");
        harness.take_output();
        harness.receive_packet(2, OK).expect("a login");
        String::from_utf8_lossy(&harness.take_output()).into_owned()
    };
    for (charset, collation, time_zone, end) in [
        (
            "",
            "",
            "",
            "time_zone='+00:00',NAMES utf8mb4 COLLATE utf8mb4_unicode_ci",
        ),
        (
            "utf8mb4",
            "",
            "",
            "NAMES utf8mb4 COLLATE utf8mb4_unicode_ci",
        ),
        ("", "utf8mb4_bin", "", "NAMES utf8mb4 COLLATE utf8mb4_bin"),
        ("latin1", "", "+02:00", "time_zone='+02:00',NAMES latin1"),
    ] {
        let text = set(charset, collation, time_zone);
        assert!(text.ends_with(end), "{text}");
    }
}

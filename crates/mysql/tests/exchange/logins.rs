//! Logins: the forms in which the password is requested.

use lowroad_mysql::{LoginRequest, MySqlError, MySqlLimits, TlsPolicy};
use rsa::pkcs8::{EncodePublicKey, LineEnding};
use rsa::traits::PublicKeyParts;
use rsa::{BigUint, RsaPublicKey};

use crate::server::{Dialect, OK, Talk, greeting};

fn login(trusts_key: bool) -> Talk {
    let login = LoginRequest {
        user: "me".into(),
        password: "geheim".into(),
        database: "shop".into(),
        trusts_key,
        ..LoginRequest::default()
    };
    Talk::new(login, MySqlLimits::default())
}

#[test]
fn the_answer_names_user_database_and_plugin() {
    let mut talk = login(false);
    talk.hear(0, &greeting(Dialect::New, "mysql_native_password"))
        .expect("a greeting");
    let said = talk.said();
    assert_eq!(said[3], 1, "it follows the greeting");
    assert_eq!(&said[36..39], b"me\0");
    assert_eq!(said[39], 20, "the proof's length");
    assert!(said.ends_with(b"shop\0mysql_native_password\0"));
    talk.hear(2, b"\xff\x15\x04#28000Access denied")
        .unwrap_err();
    assert_eq!(talk.told(), ["Failed 1045 28000 Access denied"]);
}

#[test]
fn a_server_that_knows_the_password_wants_a_proof_only() {
    let mut talk = login(false);
    talk.hear(0, &greeting(Dialect::New, "caching_sha2_password"))
        .expect("a greeting");
    assert_eq!(talk.said()[39], 32, "the proof's length");
    talk.hear(2, &[1, 3]).expect("enough");
    talk.hear(3, OK).expect("a login");
    talk.hear(1, OK).expect("a setting");
    assert!(talk.client.is_idle());
}

#[test]
fn another_plugin_may_be_wanted() {
    let mut talk = login(false);
    talk.hear(0, &greeting(Dialect::New, "caching_sha2_password"))
        .expect("a greeting");
    let first = talk.said();
    talk.hear(2, b"\xfemysql_native_password\0abcdefghijabcdefghij\0")
        .expect("another one");
    let said = talk.said();
    assert_eq!((said[0], said[3]), (20, 3));
    assert_ne!(first[40..60], said[4..24]);
    talk.hear(4, OK).expect("a login");
    for (plugin, word) in [
        ("client_ed25519", "ed25519"),
        ("mysql_clear_password", "in clear"),
        ("new", "unknown"),
    ] {
        let mut talk = login(false);
        talk.hear(0, &greeting(Dialect::New, plugin))
            .expect("a greeting");
        let switch = format!("\u{0}{plugin}\0abcdefghijabcdefghij\0").into_bytes();
        let switch: Vec<u8> = [&[0xfe], &switch[1..]].concat();
        let error = talk.hear(2, &switch).expect_err("unsupported");
        assert!(error.to_string().contains(word), "{error}");
        assert!(!talk.said().windows(6).any(|part| part == b"geheim"));
    }
}

#[test]
fn the_whole_password_is_for_a_key_that_is_trusted() {
    let wanted = |trusts_key: bool| {
        let mut talk = login(trusts_key);
        talk.hear(0, &greeting(Dialect::New, "caching_sha2_password"))
            .expect("a greeting");
        talk.said();
        (talk.hear(2, &[1, 4]), talk)
    };
    assert!(
        matches!(wanted(false).0, Err(MySqlError::Unsupported(why)) if why.contains("full password"))
    );
    let (asked, mut talk) = wanted(true);
    asked.expect("asked for");
    assert_eq!(talk.said()[3..], [3, 2], "the key is asked for");
    // Only the length is checked here, which is the key's; `auth` tests the decryption.
    let modulus = BigUint::from_bytes_be(&[0xc5; 128]);
    let key = RsaPublicKey::new(modulus, BigUint::from(65_537_u32)).expect("a key");
    let pem = key.to_public_key_pem(LineEnding::LF).expect("PEM");
    talk.hear(4, &[&[1], pem.as_bytes()].concat())
        .expect("a key");
    let said = talk.said();
    assert_eq!(said.len(), 4 + key.size());
    talk.hear(6, OK).expect("a login");
    let (_, mut talk) = wanted(true);
    assert!(matches!(
        talk.hear(4, b"\x01no key"),
        Err(MySqlError::Protocol(_))
    ));
}

#[test]
fn servers_that_can_not_be_talked_to() {
    for payload in [
        &b"\x09old"[..],
        b"\x0a5.0\0\x01\0\0\x0001234567\0\xff\xf7\x08\x02\0\0\0\x08\0\0\0\0\0\0\0\0\0\0",
        b"\x0a",
        b"",
    ] {
        let mut talk = login(false);
        assert!(talk.hear(0, payload).is_err());
    }
    let mut talk = login(false);
    assert_eq!(
        talk.hear(0, b"\xff\x10\x04Too many connections"),
        Err(MySqlError::LoginRefused)
    );
    assert_eq!(talk.told(), ["Failed 1040 HY000 Too many connections"]);
}

/// The offset of the second capability byte in the greeting: after version, thread, salt and a zero.
const CAPABILITIES_AT: usize = 1 + b"8.0.40\0".len() + 4 + 8 + 1 + 1;
/// TLS in that byte.
const TLS: u8 = 1 << 3;

/// A client after the greeting of a server with or without TLS.
fn greeted(tls: TlsPolicy, offers_tls: bool, plugin: &str) -> (Result<(), MySqlError>, Talk) {
    let login = LoginRequest {
        user: "me".into(),
        password: "geheim".into(),
        tls,
        ..LoginRequest::default()
    };
    let mut talk = Talk::new(login, MySqlLimits::default());
    let mut payload = greeting(Dialect::New, plugin);
    payload[CAPABILITIES_AT] &= !TLS;
    payload[CAPABILITIES_AT] |= if offers_tls { TLS } else { 0 };
    (talk.hear(0, &payload), talk)
}

#[test]
fn tls_is_asked_for_where_it_is_wanted_and_offered() {
    use TlsPolicy::{IfOffered, Never, Required};
    for (tls, offers_tls) in [(Never, false), (Never, true), (IfOffered, false)] {
        let (heard, mut talk) = greeted(tls, offers_tls, "mysql_native_password");
        assert_eq!(heard, Ok(()));
        let said = talk.said();
        assert_eq!((said[3], said[5] & TLS), (1, 0), "{tls:?}");
        assert!(said.ends_with(b"mysql_native_password\0"));
        assert!(talk.told().is_empty() && talk.client.tls_started().is_err());
    }
    let (heard, mut talk) = greeted(Required, false, "mysql_native_password");
    assert_eq!((heard, talk.said().len()), (Err(MySqlError::NoTls), 0));
    for tls in [IfOffered, Required] {
        let (heard, mut talk) = greeted(tls, true, "mysql_native_password");
        assert_eq!((heard, talk.told()), (Ok(()), vec!["StartTls".into()]));
        let asked = talk.said();
        assert_eq!((asked.len(), asked[0], asked[3]), (36, 32, 1));
        assert_eq!(asked[5] & TLS, TLS);
        talk.client.tls_started().expect("nothing came before");
        let said = talk.said();
        assert_eq!(
            (said[3], &said[4..36]),
            (2, &asked[4..]),
            "it repeats the request"
        );
        assert_eq!(&said[36..39], b"me\0");
        talk.hear(3, OK).expect("a login");
        talk.hear(1, OK).expect("a setting");
        assert!(talk.client.is_idle());
    }
}

#[test]
fn bytes_before_the_tls_handshake_end_the_connection() {
    // A whole packet after the greeting, in one piece with it or not, and the beginning of one.
    let (_, mut talk) = greeted(TlsPolicy::Required, true, "mysql_native_password");
    assert!(matches!(talk.hear(2, OK), Err(MySqlError::Protocol(_))));
    let (_, mut talk) = greeted(TlsPolicy::Required, true, "mysql_native_password");
    talk.input(&[7, 0]).expect("no packet yet");
    assert!(talk.client.tls_started().is_err());
    assert!(talk.said().is_empty());
}

#[test]
fn the_whole_password_is_sent_inside_tls() {
    for plugin in ["caching_sha2_password", "sha256_password"] {
        let (_, mut talk) = greeted(TlsPolicy::Required, true, plugin);
        talk.said();
        talk.client.tls_started().expect("nothing came before");
        assert!(!talk.said().windows(6).any(|part| part == b"geheim"));
        let wanted = match plugin {
            "caching_sha2_password" => vec![1, 4],
            _ => b"\xfesha256_password\0abcdefghijabcdefghij\0".to_vec(),
        };
        talk.hear(3, &wanted).expect("the whole password");
        assert_eq!(talk.said(), b"\x07\0\0\x04geheim\0");
        talk.hear(5, OK).expect("a login");
    }
}

#[test]
fn sha256_password_without_tls_wants_a_key_that_is_trusted() {
    let wanted = b"\xfesha256_password\0abcdefghijabcdefghij\0";
    for trusts_key in [false, true] {
        let mut talk = login(trusts_key);
        talk.hear(0, &greeting(Dialect::New, "caching_sha2_password"))
            .expect("a greeting");
        talk.said();
        let heard = talk.hear(2, wanted);
        assert_eq!(heard.is_ok(), trusts_key);
        let said = talk.said();
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
fn the_session_has_the_settings_of_the_login() {
    let set = |charset: &str, collation: &str, time_zone: &str| {
        let login = LoginRequest {
            charset: charset.into(),
            collation: collation.into(),
            time_zone: time_zone.into(),
            ..LoginRequest::default()
        };
        let mut talk = Talk::new(login, MySqlLimits::default());
        talk.hear(0, &greeting(Dialect::New, "mysql_native_password"))
            .expect("a greeting");
        talk.said();
        talk.hear(2, OK).expect("a login");
        String::from_utf8_lossy(&talk.said()).into_owned()
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

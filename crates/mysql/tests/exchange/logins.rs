//! Logins: how the password is asked for.

use lowroad_mysql::{Error, Limits, Login};
use rsa::pkcs8::{EncodePublicKey, LineEnding};
use rsa::traits::PublicKeyParts;
use rsa::{BigUint, RsaPublicKey};

use crate::server::{Dialect, OK, Talk, greeting};

fn login(trusts_key: bool) -> Talk {
    let login = Login {
        user: "me".into(),
        password: "geheim".into(),
        database: "shop".into(),
        trusts_key,
        ..Login::default()
    };
    Talk::new(login, Limits::default())
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
        matches!(wanted(false).0, Err(Error::Unsupported(why)) if why.contains("whole password"))
    );
    let (asked, mut talk) = wanted(true);
    asked.expect("asked for");
    assert_eq!(talk.said()[3..], [3, 2], "the key is asked for");
    // Whoever can open it is not of interest here (`auth` has that); it is as long as the key.
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
        Err(Error::Protocol(_))
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
        Err(Error::LoginRefused)
    );
    assert_eq!(talk.told(), ["Failed 1040 HY000 Too many connections"]);
}

#[test]
fn a_server_that_can_do_tls_is_left_to_others() {
    let greeted = |yields_to_tls, offers_tls: bool| {
        let login = Login {
            yields_to_tls,
            ..Login::default()
        };
        let mut talk = Talk::new(login, Limits::default());
        let mut payload = greeting(Dialect::New, "mysql_native_password");
        // The second byte of the capabilities, behind version, thread, salt and a zero.
        payload[1 + b"8.0.40\0".len() + 4 + 8 + 1 + 1] &= !(1 << 3);
        payload[1 + b"8.0.40\0".len() + 4 + 8 + 1 + 1] |= u8::from(offers_tls) << 3;
        (talk.hear(0, &payload), talk.said().is_empty())
    };
    assert_eq!(greeted(false, true), (Ok(()), false));
    assert_eq!(greeted(true, false), (Ok(()), false));
    assert_eq!(greeted(true, true), (Err(Error::OffersTls), true));
}

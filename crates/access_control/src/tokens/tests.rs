use super::*;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use lowroad_config::{SecretText, TokenAlgorithm, TokenKeys};
use lowroad_http::h1::parse;
use lowroad_http::limits::RequestLimits;
use serde_json::json;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// In the year 2100.
const LATER: u64 = 4_102_444_800;

fn config(keys: TokenKeys) -> TokenAuth {
    TokenAuth {
        algorithms: TokenAlgorithm::all_with_symmetry(matches!(keys, TokenKeys::Secret(_))),
        keys,
        issuers: vec!["https://id".into()],
        audiences: vec!["api".into(), "web".into()],
        leeway_s: 30,
        cookie: None,
        required: vec![("scope".into(), "orders".into())],
        fields: vec![
            ("X-User".into(), "sub".into()),
            ("X-Groups".into(), "groups".into()),
        ],
    }
}

fn verifier(config: &TokenAuth) -> TokenVerifier {
    let keys = TokenKeySet::open(&config.keys).expect("keys");
    TokenVerifier::new(config, Arc::new(keys))
}

fn with_secret() -> TokenVerifier {
    verifier(&config(TokenKeys::Secret(SecretText::new(SECRET))))
}

/// The result for a request with these field lines.
fn ask(verifier: &TokenVerifier, lines: &str) -> Result<Authentication, TokenFault> {
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let limits = RequestLimits {
        head_len_max: 64 << 10,
        ..RequestLimits::default()
    };
    let head = parse(head.as_bytes(), &limits)
        .expect("valid")
        .expect("complete");
    verifier.verify(&head.request)
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn claims() -> serde_json::Value {
    json!({
        "iss": "https://id", "aud": ["other", "api"], "exp": LATER, "sub": "ann",
        "scope": "read orders", "groups": ["a", "b"],
    })
}

fn with_claim(name: &str, value: serde_json::Value) -> serde_json::Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

fn signed(claims: &serde_json::Value) -> String {
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    encode(&Header::new(Algorithm::HS256), claims, &key).expect("a token")
}

/// A token from its parts as texts, signed with the secret.
fn signed_text(header: &str, claims: &str) -> String {
    let parts = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part));
    let message = parts.join(".");
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256);
    format!("{message}.{}", signature.expect("a signature"))
}

#[test]
fn valid_token_sets_fields_and_user() {
    let admitted = ask(&with_secret(), &bearer(&signed(&claims()))).expect("admitted");
    assert_eq!(admitted.user.as_deref(), Some("ann"));
    assert_eq!(admitted.lines, b"X-User: ann\r\nX-Groups: a,b\r\n");
    let cookie = TokenAuth {
        cookie: Some("session".into()),
        ..config(TokenKeys::Secret(SecretText::new(SECRET)))
    };
    let cookie = verifier(&cookie);
    let line = format!("Cookie: a=b; session={}\r\n", signed(&claims()));
    assert!(ask(&cookie, &line).is_ok());
    assert_eq!(
        ask(&cookie, &bearer(&signed(&claims()))),
        Err(TokenFault::Missing)
    );
}

#[test]
fn claims_must_be_present_and_right() {
    let verifier = with_secret();
    for (name, value, reason) in [
        ("exp", json!(1_000_000_000), "expired"),
        ("exp", json!(null), "exp, iss or aud is missing"),
        ("nbf", json!(LATER - 1), "not valid yet"),
        ("iss", json!("https://other"), "from another issuer"),
        ("iss", json!(null), "exp, iss or aud is missing"),
        ("aud", json!("other"), "for another audience"),
        (
            "scope",
            json!("read orders2"),
            "a required claim is missing",
        ),
        ("scope", json!(null), "a required claim is missing"),
        (
            "groups",
            json!(["a\r\nX-Admin: 1"]),
            "a claim can't be a field value",
        ),
    ] {
        let mut claims = with_claim(name, value);
        claims
            .as_object_mut()
            .expect("claims")
            .retain(|_, value| !value.is_null());
        let got = ask(&verifier, &bearer(&signed(&claims)));
        assert_eq!(got, Err(TokenFault::Invalid(reason)), "{claims}");
    }
}

#[test]
fn token_without_signature_or_with_another_key_is_refused() {
    let verifier = with_secret();
    let text = claims().to_string();
    let none = signed_text(r#"{"alg":"none"}"#, &text);
    let unsigned = format!("{}.", none.rsplit_once('.').expect("parts").0);
    let other = EncodingKey::from_secret(&[b'x'; 32]);
    let other = encode(&Header::default(), &claims(), &other).expect("a token");
    for token in [
        &none,
        &unsigned,
        &other,
        "a",
        "a.b",
        "a.b.c",
        "..",
        "\u{e9}.a.b",
    ] {
        let got = ask(&verifier, &bearer(token));
        assert!(
            matches!(got, Err(TokenFault::Invalid(_))),
            "{token}: {got:?}"
        );
    }
    for algorithm in ["None", "NONE", "nOnE", "HS257", ""] {
        let header = format!("{{\"alg\":\"{algorithm}\"}}");
        let got = ask(&verifier, &bearer(&signed_text(&header, &text)));
        assert!(matches!(got, Err(TokenFault::Invalid(_))), "{algorithm}");
    }
    assert_eq!(ask(&verifier, ""), Err(TokenFault::Missing));
    // Spaces at the end are no part of a field value, so this one is the scheme alone.
    assert_eq!(ask(&verifier, &bearer("")), Err(TokenFault::Missing));
    assert_eq!(
        ask(&verifier, "Authorization: Basic YTpi\r\n"),
        Err(TokenFault::Missing)
    );
}

/// The library takes the last of two claims, other parsers the first.
#[test]
fn claim_that_occurs_twice_is_refused() {
    let text = claims().to_string();
    let twice = text.replacen('{', "{\"sub\":\"root\",", 1);
    let token = signed_text(r#"{"alg":"HS256"}"#, &twice);
    let got = ask(&with_secret(), &bearer(&token));
    assert_eq!(got, Err(TokenFault::Invalid("malformed")));
    assert!(
        ask(
            &with_secret(),
            &bearer(&signed_text(r#"{"alg":"HS256"}"#, &text))
        )
        .is_ok()
    );
}

#[test]
fn huge_and_repeated_tokens_are_refused() {
    let verifier = with_secret();
    let huge = signed(&with_claim("sub", json!("x".repeat(9000))));
    let got = ask(&verifier, &bearer(&huge));
    assert_eq!(got, Err(TokenFault::Invalid("longer than 8 KiB")));
    let two = bearer(&signed(&claims())).repeat(2);
    assert_eq!(ask(&verifier, &two), Err(TokenFault::Invalid("two tokens")));
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(2000), "]".repeat(2000));
    let got = ask(
        &verifier,
        &bearer(&signed_text(r#"{"alg":"HS256"}"#, &deep)),
    );
    assert_eq!(got, Err(TokenFault::Invalid("malformed")));
}

/// A public key is not secret: a token that is signed with its text as a secret must be invalid (key confusion).
#[test]
fn public_key_is_no_secret() {
    let folder = lowroad_testkit::TempFolder::new();
    let file = folder.file("key.pem", PUBLIC_KEY);
    let mut config = config(TokenKeys::File(file));
    for algorithms in [
        TokenAlgorithm::all_with_symmetry(false),
        vec![TokenAlgorithm::Hs256],
    ] {
        config.algorithms = algorithms;
        let verifier = verifier(&config);
        for secret in [PUBLIC_KEY, PUBLIC_KEY.trim_end()] {
            let key = EncodingKey::from_secret(secret.as_bytes());
            let token = encode(&Header::new(Algorithm::HS256), &claims(), &key).expect("a token");
            let got = ask(&verifier, &bearer(&token));
            assert!(matches!(got, Err(TokenFault::Invalid(_))), "{got:?}");
        }
    }
}

#[test]
fn keys_of_a_set_are_selected_by_identifier_and_algorithm() {
    let key = |id: &str, kind: &str| {
        let x = URL_SAFE_NO_PAD.encode([7; 32]);
        json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "use": kind, "x": x })
    };
    let url = lowroad_config::OriginConfig::named("id".into());
    let set =
        Arc::new(TokenKeySet::open(&TokenKeys::Url(Box::new(url), "/".into())).expect("none"));
    let config = config(TokenKeys::Secret(SecretText::default()));
    let verifier = TokenVerifier::new(&config, set.clone());
    let token = bearer(&signed(&claims()));
    assert_eq!(ask(&verifier, &token), Err(TokenFault::NoKeys));
    let keys = json!({ "keys": [key("a", "sig"), key("b", "enc"), { "kty": "oct", "k": "AAAA", "kid": "c" }] });
    assert_eq!(set.replace(keys.to_string().as_bytes()), Ok(()));
    assert_eq!(set.status(), "1 keys");
    assert!(!set.take_refresh_request());
    // No key is for this algorithm, so the issuer may have a new one.
    assert!(matches!(
        ask(&verifier, &token),
        Err(TokenFault::Invalid(_))
    ));
    assert!(set.take_refresh_request() && !set.take_refresh_request());
    let current = set.current();
    assert!(
        current[0].fits(Algorithm::EdDSA, Some("a")) && current[0].fits(Algorithm::EdDSA, None)
    );
    assert!(
        !current[0].fits(Algorithm::EdDSA, Some("b")) && !current[0].fits(Algorithm::RS256, None)
    );
    for unusable in [
        "",
        "{}",
        "{\"keys\":[]}",
        &json!({ "keys": vec![key("a", "sig"); 65] }).to_string(),
    ] {
        assert!(set.replace(unusable.as_bytes()).is_err(), "{unusable:.40}");
    }
    assert_eq!(set.current().len(), 1, "the old key stays in force");
    assert!(set.fault().is_some());
}

/// By openssl genpkey -algorithm ed25519.
const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
-----END PUBLIC KEY-----
";

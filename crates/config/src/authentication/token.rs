//! Reads `jwt`: keys, and requirements for claims.

use crate::class::list;
use crate::reader::{ConfigSection, ConfigValue};
use crate::rules::{field_lines, is_literal_name};
use crate::secret::SecretReading;
use crate::{SecretText, TokenAlgorithm, TokenAuth, TokenKeys};

use super::forward::{can_set, server};

/// The shortest secret, in bytes: a shorter one can be found by trying (RFC 7518 §3.2).
const SECRET_LEN_MIN: usize = 32;

const KEYS: [&str; 3] = ["secret", "key", "jwks"];

pub(super) fn token_auth(item: &ConfigValue<'_>) -> Option<TokenAuth> {
    let section = item.section()?;
    let keys = keys(&section);
    let algorithms = algorithms(&section, keys.as_ref());
    let texts = |key| list(&section, key, |item| item.text().map(str::to_owned));
    let (issuers, audiences) = (texts("issuer"), texts("audience"));
    let leeway_ms = section.duration_ms("leeway", 30_000, 0..=600_000);
    let cookie = section.item("cookie").and_then(|item| cookie(&item));
    let required = section.section("require").map_or_else(Vec::new, claims);
    let fields = section.section("fields").map_or_else(Vec::new, |section| {
        field_lines(section, can_set, |item| item.text().map(str::to_owned))
    });
    section.finish();
    Some(TokenAuth {
        keys: keys?,
        algorithms: algorithms?,
        issuers,
        audiences,
        leeway_s: leeway_ms / 1000,
        cookie,
        required,
        fields,
    })
}

fn keys(section: &ConfigSection<'_>) -> Option<TokenKeys> {
    let [secret, key, jwks] = KEYS.map(|key| section.item(key));
    match (secret, key, jwks) {
        (Some(item), None, None) => shared_secret(&item).map(TokenKeys::Secret),
        (None, Some(item), None) => item.path().map(TokenKeys::File),
        (None, None, Some(item)) => match item.value_text().is_some_and(|it| it.contains(':')) {
            true => {
                let (origin, target) = server(&item)?;
                Some(TokenKeys::Url(Box::new(origin), target))
            }
            false => item.path().map(TokenKeys::File),
        },
        _ => {
            section.report("not one source of keys", "one of secret, key and jwks");
            None
        }
    }
}

fn shared_secret(item: &ConfigValue<'_>) -> Option<SecretText> {
    let secret = match item.secret()? {
        SecretReading::Text(text) => text,
        // A reader without access to files has no text to check.
        SecretReading::Unread => return Some(SecretText::default()),
        SecretReading::Plain => item.text()?.to_owned(),
    };
    if secret.len() < SECRET_LEN_MIN {
        let message = format!("a secret of {} bytes can be guessed", secret.len());
        item.report(message, format!("at least {SECRET_LEN_MIN} random bytes"));
        return None;
    }
    Some(SecretText::new(secret))
}

/// The permitted algorithms. Those of secrets and those of public keys are never mixed: with a public key used as
/// a secret, every client could sign tokens.
fn algorithms(
    section: &ConfigSection<'_>,
    keys: Option<&TokenKeys>,
) -> Option<Vec<TokenAlgorithm>> {
    let is_symmetric = matches!(keys, Some(TokenKeys::Secret(_)));
    if section.is_absent_or_empty("algorithms") {
        // An empty list is reported by `list`.
        let _ = list(section, "algorithms", |_| None::<()>);
        return Some(TokenAlgorithm::all_with_symmetry(is_symmetric));
    }
    let mut all = Some(Vec::new());
    for item in section.item("algorithms")?.one_or_many() {
        let Some(algorithm) = item.choice(&TokenAlgorithm::ALL) else {
            all = None;
            continue;
        };
        if keys.is_some() && algorithm.is_symmetric() != is_symmetric {
            let allowed = match is_symmetric {
                true => "HS256, HS384, HS512 with secret",
                false => "RS…, PS…, ES… and EdDSA with key and jwks",
            };
            item.report(
                format!("{} does not fit the keys", item.to_display()),
                allowed,
            );
            all = None;
        }
        all.iter_mut().for_each(|all| all.push(algorithm));
    }
    all
}

fn cookie(item: &ConfigValue<'_>) -> Option<String> {
    let name = item.text().filter(|name| is_literal_name(name));
    if name.is_none() {
        item.refuse("the name of a cookie", "letters, digits, - and _");
    }
    name.map(str::to_owned)
}

fn claims(section: ConfigSection<'_>) -> Vec<(String, String)> {
    let entries = section.entries();
    let texts = entries.filter_map(|(name, _, item)| Some((name.to_owned(), item.plain_text()?)));
    texts.collect()
}

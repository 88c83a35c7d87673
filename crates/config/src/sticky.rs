//! Reads `sticky` of `[[origin]]`: sticky sessions.

use crate::named::DAY_MS;
use crate::reader::ConfigValue;
use crate::rules::is_literal_name;
use crate::secret::SecretReading;
use crate::{OriginSticky, SameSite, SecretText};

/// The longest lifetime that browsers accept (RFC 6265bis §5.5), in milliseconds.
const LIFETIME_MS_MAX: u64 = 400 * DAY_MS;
/// The shortest secret; a shorter one could be guessed from a cookie.
const SECRET_LEN_MIN: usize = 16;

/// Reads a table, the name of a cookie, or true.
pub(crate) fn sticky(item: &ConfigValue<'_>, origin: &str) -> Option<OriginSticky> {
    let with_name = |cookie: String| OriginSticky {
        cookie,
        lifetime_s: None,
        is_secure: None,
        is_http_only: true,
        same_site: SameSite::default(),
        secret: None,
    };
    let default = with_name(format!("sticky_{origin}"));
    if !item.is_table() {
        return match item.value_bool() {
            Some(enabled) => enabled.then_some(default),
            None => cookie_name(item).map(with_name),
        };
    }
    let section = item.section()?;
    let cookie = section.item("cookie");
    let lifetime_ms = section.optional_duration_ms("lifetime", 1_000..=LIFETIME_MS_MAX);
    let secure = section.item("secure");
    let sticky = OriginSticky {
        cookie: cookie
            .as_ref()
            .and_then(cookie_name)
            .unwrap_or(default.cookie),
        lifetime_s: lifetime_ms.map(|ms| ms / 1_000),
        is_secure: secure.is_some().then(|| section.flag("secure", true)),
        is_http_only: section.flag("http_only", true),
        same_site: section.choice(
            "same_site",
            &[
                ("lax", SameSite::Lax),
                ("strict", SameSite::Strict),
                ("none", SameSite::None),
            ],
            SameSite::default(),
        ),
        secret: section.item("secret").and_then(|item| secret(&item)),
    };
    section.finish();
    let has_secure_name = ["__Secure-", "__Host-"]
        .iter()
        .any(|prefix| sticky.cookie.starts_with(prefix));
    // Browsers would refuse the cookie.
    if let Some(item) = secure.filter(|_| sticky.is_secure == Some(false)) {
        if has_secure_name {
            item.report(
                "a cookie with this name needs Secure",
                "secure = true, or a name without __Secure- or __Host-",
            );
        }
        if sticky.same_site == SameSite::None {
            item.report(
                "a cookie with SameSite=None needs Secure",
                "secure = true, or same_site = \"lax\"",
            );
        }
    }
    Some(sticky)
}

fn cookie_name(item: &ConfigValue<'_>) -> Option<String> {
    let name = item.text()?;
    if !is_literal_name(name) || name.len() > 64 {
        item.refuse(
            "the name of a cookie",
            "true, or letters, digits, _ and -, at most 64",
        );
        return None;
    }
    Some(name.to_owned())
}

fn secret(item: &ConfigValue<'_>) -> Option<SecretText> {
    let text = match item.secret()? {
        SecretReading::Text(text) => text,
        // Without access to the secret, the rest of the configuration can still be checked.
        SecretReading::Unread => return Some(SecretText::default()),
        SecretReading::Plain => item.text()?.to_owned(),
    };
    if text.len() < SECRET_LEN_MIN {
        item.report(
            format!("the secret is shorter than {SECRET_LEN_MIN} bytes"),
            "a random text, such as from openssl rand -hex 32",
        );
        return None;
    }
    Some(SecretText::new(text))
}

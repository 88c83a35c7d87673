//! Reads `[acme]`, and checks that its challenge can prove the names of the sites with `automatic = true`. The network
//! is not accessed.

use std::path::PathBuf;

use crate::named::HOUR_MS;
use crate::reader::{ConfigSection, ConfigSource, ConfigValue};
use crate::site_marks::SiteMarks;
use crate::{
    AcmeAuthority, AcmeChallenge, AcmeConfig, ExternalKey, OnDemandConfig, SiteConfig, SiteName,
};

const FOLDER: &str = "/var/lib/lowroad/acme";
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
const HOOK_TIMEOUT_MS: u64 = 120_000;

/// Reads `[acme]`.
pub(crate) fn acme(section: ConfigSection<'_>) -> AcmeConfig {
    let terms_agreed = section.flag("terms_agreed", false);
    // RFC 8555 §7.3: an account requires the agreement.
    if !terms_agreed {
        section.report(
            "the terms of service of the authorities are not accepted",
            "terms_agreed = true, after you have read them",
        );
    }
    let mut authorities: Vec<AcmeAuthority> = Vec::new();
    for table in section.sections("authority") {
        authorities.extend(authority(table, &authorities));
    }
    // Let's Encrypt is the default only if no [[acme.authority]] is present: an invalid authority must not be replaced
    // by the default.
    if section.is_absent_or_empty("authority") {
        authorities.push(AcmeAuthority::new(LETS_ENCRYPT));
    }
    let folder = section.item("folder").and_then(|item| item.path());
    let acme = AcmeConfig {
        terms_agreed,
        folder: folder.unwrap_or_else(|| PathBuf::from(FOLDER)),
        contact: contact(&section),
        challenge: challenge(&section),
        authorities,
        orders_per_hour: section.count("orders_per_hour", 100, 1..=100_000),
        on_demand: section.section("on_demand").and_then(on_demand),
    };
    section.finish();
    acme
}

fn contact(section: &ConfigSection<'_>) -> Vec<String> {
    let items = section.item("contact").map(ConfigValue::one_or_many);
    let url = |item: &ConfigValue<'_>| {
        let text = item.text()?;
        // Only a colon after the scheme is checked: the authority decides which contacts it supports (RFC 8555 §7.3).
        if !text.contains(':') {
            item.refuse("a URL", "like \"mailto:admin@example.com\"");
            return None;
        }
        Some(text.to_owned())
    };
    items.unwrap_or_default().iter().filter_map(url).collect()
}

fn challenge(section: &ConfigSection<'_>) -> AcmeChallenge {
    let choices = [("http-01", 0), ("tls-alpn-01", 1), ("dns-01", 2)];
    // http-01 is the default: it needs port 80 only.
    let chosen = section.choice("challenge", &choices, 0);
    if chosen != 2 {
        section.only_with("hook", "challenge = \"dns-01\"");
        section.only_with("hook_timeout", "challenge = \"dns-01\"");
        // The hook keys were reported above: only dns-01 has a hook.
        return match chosen {
            0 => AcmeChallenge::Http01,
            _ => AcmeChallenge::TlsAlpn01,
        };
    }
    let timeout_ms = section.duration_ms("hook_timeout", HOOK_TIMEOUT_MS, 1000..=HOUR_MS);
    let hook = section.required("hook").and_then(|item| command(&item));
    AcmeChallenge::Dns01 {
        hook: hook.unwrap_or_default(),
        timeout_ms,
    }
}

/// A program and its arguments.
fn command(item: &ConfigValue<'_>) -> Option<Vec<String>> {
    let texts = item.items()?;
    let command: Option<Vec<String>> = texts.iter().map(ConfigValue::plain_text).collect();
    let command = command?;
    if command.first().is_none_or(String::is_empty) {
        item.report("the command is empty", "[\"PROGRAM\", \"ARGUMENT\", …]");
        return None;
    }
    Some(command)
}

fn authority(section: ConfigSection<'_>, earlier: &[AcmeAuthority]) -> Option<AcmeAuthority> {
    let directory = section.required("directory");
    let url = directory.as_ref().and_then(|item| url(item, true));
    let is_known = |url: &&String| earlier.iter().any(|it| it.directory == **url);
    if let (Some(item), Some(_)) = (&directory, url.as_ref().filter(is_known)) {
        item.report("the authority is listed twice", "each once");
    }
    let key_id = section.item("key_id").and_then(|item| item.plain_text());
    let (file, text) = (section.item("key_file"), section.item("key"));
    let has_key = file.is_some() || text.is_some();
    if file.is_some() && text.is_some() {
        section.report("key and key_file are two keys", "one of both");
    }
    let file = file.and_then(|item| item.path()).map(ExternalKey::File);
    let text = text.and_then(|item| item.secret_reference());
    let key = file.or(text.map(ExternalKey::Text));
    // External account binding needs a key ID and a key (RFC 8555 §7.3.4).
    if key_id.is_some() != has_key {
        section.report(
            "one of key_id and key is missing",
            "key_id together with key or key_file, or none",
        );
    }
    let authority = AcmeAuthority {
        directory: url.unwrap_or_default(),
        external: key_id.zip(key),
        profile: section.item("profile").and_then(|item| item.plain_text()),
        roots: section.item("roots").and_then(|item| item.path()),
    };
    section.finish();
    (!authority.directory.is_empty()).then_some(authority)
}

fn on_demand(section: ConfigSection<'_>) -> Option<OnDemandConfig> {
    let ask = section.required("ask").and_then(|item| url(&item, false));
    let per_minute = section.count("per_minute", 10, 1..=10_000);
    let names_max = section.count("names_max", 10_000, 1..=1_000_000);
    section.finish();
    Some(OnDemandConfig {
        ask: ask?,
        per_minute,
        names_max,
    })
}

/// Reads a URL; only its beginning is checked. With `tls`, plain http is accepted for loopback hosts only.
fn url(item: &ConfigValue<'_>, tls: bool) -> Option<String> {
    let text = item.text()?;
    // A test authority on this machine needs no certificate.
    let local = ["http://localhost", "http://127.0.0.1", "http://[::1]"];
    let is_local = local.iter().any(|start| {
        let rest = text.strip_prefix(start);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
    });
    if text.starts_with("https://") || is_local || (!tls && text.starts_with("http://")) {
        return Some(text.to_owned());
    }
    item.refuse(
        "an allowed URL",
        if tls {
            "https://…"
        } else {
            "http://…, https://…"
        },
    );
    None
}

/// Checks that an authority is configured for sites with `automatic`, and that the challenge of `[acme]` can prove
/// their names.
pub(crate) fn check(
    source: &ConfigSource<'_>,
    sites: &[(SiteConfig, SiteMarks)],
    acme: Option<&AcmeConfig>,
) {
    for (site, marks) in sites {
        let automatic = site.tls.as_ref().is_some_and(|tls| tls.automatic);
        let Some(position) = marks.tls.first().filter(|_| automatic) else {
            continue;
        };
        let Some(acme) = acme else {
            source.report(
                position,
                "automatic, but no authority is configured",
                "[acme]",
            );
            continue;
        };
        let is_dns = matches!(acme.challenge, AcmeChallenge::Dns01 { .. });
        // The authority connects to port 80 without TLS (RFC 8555 §8.3).
        if acme.challenge == AcmeChallenge::Http01 && site.listen.is_empty() {
            source.report(
                position,
                "automatic by http-01, but the site has no listener without TLS",
                "listen = \"*:80\" in [[site]], or another challenge in [acme]",
            );
        }
        // Only DNS can prove control of a wildcard name (RFC 8555 §7.1.3).
        let is_wildcard = |name: &&SiteName| matches!(name, SiteName::Wildcard(_));
        if !is_dns && site.names.iter().any(|name| is_wildcard(&name)) {
            source.report(
                position,
                "automatic, but a name of the site is a wildcard",
                "challenge = \"dns-01\" in [acme]",
            );
        }
        let is_default = |name: &SiteName| matches!(name, SiteName::Default);
        // An order needs a name; with on-demand certificates the client's SNI provides it.
        if site.names.iter().all(is_default) && acme.on_demand.is_none() {
            source.report(
                position,
                "automatic, but the site has no name",
                "names in [[site]], or [acme.on_demand]",
            );
        }
    }
}

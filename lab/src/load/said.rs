//! Parses short forms on the command line (rates with k and M, URL files, credentials), and records the command line in
//! the JSON output.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

/// Parses a rate per second: `1k`, `2.5M`, `300`.
pub fn rate(text: &str) -> Result<f64, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => match text.strip_suffix('M') {
            Some(digits) => (digits, 1e6),
            None => (text, 1.0),
        },
    };
    let number: Option<f64> = digits.parse().ok();
    let rate = number.map(|number| number * unit);
    rate.filter(|rate| rate.is_finite() && *rate > 0.0)
        .ok_or_else(|| "give more than 0 a second, optionally with k or M: 500, 1k".into())
}

/// Parses a duration: `10s`, `500ms`, `2m`, `1h`, `10` (seconds).
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_s = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("give a number with ms, s, m or h: 10s".into()),
    };
    let number: f64 = digits
        .parse()
        .map_err(|_| "give a number with ms, s, m or h: 10s".to_string())?;
    Duration::try_from_secs_f64(number * unit_s).map_err(|_| "out of range".to_string())
}

/// Reads a file with one URL on each line. Empty lines and lines that begin with `#` are skipped.
pub(super) fn read_urls(file: &Path) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("can't read URLs from {}", file.display()))?;
    let lines = text.lines().map(str::trim);
    let urls: Vec<String> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    ensure!(!urls.is_empty(), "{}: no URL in it", file.display());
    Ok(urls)
}

/// The `Authorization` field for `name:password` (RFC 7617).
pub(super) fn authorization(user: &str) -> anyhow::Result<(String, String)> {
    ensure!(
        user.contains(':'),
        "--user: give name and password with a colon between them"
    );
    let credentials = STANDARD.encode(user);
    Ok(("Authorization".into(), format!("Basic {credentials}")))
}

/// The context of a run for the JSON output.
#[derive(Debug, Serialize)]
struct RunDescription {
    version: &'static str,
    /// When the run ended, in seconds since 1970.
    unix_s: u64,
    /// The command line without secrets.
    command: Vec<String>,
}

/// Formats the figures of a run and its context as JSON.
pub(super) fn json(outcome: &impl Serialize) -> serde_json::Result<String> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let setting = RunDescription {
        version: env!("CARGO_PKG_VERSION"),
        unix_s: since_epoch.map_or(0, |duration| duration.as_secs()),
        command: hide_secrets(std::env::args().skip(1)),
    };
    let mut document = serde_json::to_value(outcome)?;
    // An array has no place for the settings that follow.
    if document.is_array() {
        document = serde_json::json!({ "runs": document });
    }
    document["setting"] = serde_json::to_value(setting)?;
    serde_json::to_string_pretty(&document)
}

/// The words of a command line, with secrets replaced.
fn hide_secrets(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut secret = false;
    words
        .map(|word| {
            // The value of -u is the next argument, or follows directly: -uNAME:PASSWORD.
            let (hide, is_field) = (secret, word.to_ascii_lowercase());
            secret = ["-u", "--user"].contains(&&*word);
            match word.split_once('=') {
                _ if hide || is_field.starts_with("authorization:") => "…".into(),
                Some(("--user", _)) => "--user=…".into(),
                _ if word.starts_with("-u") && word.len() > 2 => "-u…".into(),
                _ => word,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_accept_k_and_m_prefixes() {
        assert_eq!(rate("1k"), Ok(1000.0));
        assert_eq!(rate("2.5M"), Ok(2_500_000.0));
        assert_eq!(rate("0.5"), Ok(0.5));
        for wrong in ["", "k", "0", "-1", "inf", "1x"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_accept_units() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        for wrong in ["", "s", "-1s", "3 s", "5d", "1e400s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn user_becomes_basic_authorization_field() {
        let (name, value) = authorization("Aladdin:open sesame").expect("a user");
        assert_eq!(
            (&*name, &*value),
            ("Authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")
        );
        assert!(authorization("Aladdin").is_err());
    }

    #[test]
    fn passwords_are_removed_from_recorded_command_line() {
        let words = [
            "load",
            "http://h/",
            "-u",
            "a:b",
            "--user=a:b",
            "-ua:b",
            "-H",
            "Authorization: x",
            "-n",
            "3",
        ];
        let shown = hide_secrets(words.into_iter().map(str::to_owned));
        let expected = [
            "load",
            "http://h/",
            "-u",
            "…",
            "--user=…",
            "-u…",
            "-H",
            "…",
            "-n",
            "3",
        ];
        assert_eq!(shown, expected);
    }
}

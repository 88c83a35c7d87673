//! Purge commands: parses the target (all responses, one URL or a URL prefix, a host, a tag or a group), and formats
//! the server's report.
//!
//! In doubt, a response is purged, as in `lowroad_cache::pattern`: a needless purge costs one fetch, a missed one
//! leaves a stale response.

use std::fmt;
use std::str::FromStr;

use lowroad_cache::pattern::RequestPattern;
use lowroad_cache::query_rules::QueryRules;
use lowroad_store::SharedStore;
use lowroad_store::clock;
use lowroad_store::purge_rules::{PurgeMode, PurgeRequest};

/// The prefix of a tag.
const TAG: &str = "tag:";
/// The prefix of a group.
const GROUP: &str = "group:";
/// The prefix of a host.
const HOST: &str = "host:";

/// The responses to purge.
#[derive(Debug, PartialEq, Eq)]
pub enum PurgeTarget {
    /// By URL.
    Urls(RequestPattern),
    /// By a tag in Cache-Tag or Surrogate-Key.
    Tag(String),
    /// By a group in Cache-Groups (RFC 9875), for any host.
    Group(String),
}

impl FromStr for PurgeTarget {
    type Err = String;

    /// Parses `all`, `host:NAME`, `tag:NAME`, `group:NAME` or a URL, with `*` at its end for a prefix; the scheme may
    /// be omitted.
    fn from_str(text: &str) -> Result<PurgeTarget, String> {
        if let Some(name) = text.strip_prefix(TAG) {
            let name = name.trim();
            // Stored tags are separated by commas, so a name with a comma could never match.
            return match name.is_empty() || name.contains(',') {
                true => Err(format!(
                    "{text}: a tag must be a name without commas: tag:NAME"
                )),
                false => Ok(PurgeTarget::Tag(name.to_string())),
            };
        }
        if let Some(name) = text.strip_prefix(GROUP) {
            return match name.is_empty() {
                true => Err(format!("{text}: a group must have a name: group:NAME")),
                false => Ok(PurgeTarget::Group(name.to_string())),
            };
        }
        // A single word is more likely a typing error than the URL of a host's front page.
        if is_word(text) {
            return Err(format!(
                "{text}: neither a URL nor all, host:NAME, tag:NAME or group:NAME; host:{text} \
                 purges a whole host, http://{text}/ its front page"
            ));
        }
        let url = match text == "all"
            || text.starts_with(HOST)
            || text.contains("://")
            || text.starts_with('/')
        {
            true => text.to_owned(),
            false => format!("http://{text}"),
        };
        RequestPattern::parse(&url)
            .map(PurgeTarget::Urls)
            .map_err(|error| format!("{text}: {error}"))
    }
}

/// The effect of a purge in these servers, for people, without a line break.
pub fn summary(reports: &[PurgeReport], is_soft: bool) -> String {
    // If one server has not counted, the sum is unknown.
    let removed: Option<u64> = reports.iter().map(|report| report.removed).sum();
    let responses = |count: u64| match count {
        1 => "1 stored response".to_owned(),
        count => format!("{count} stored responses"),
    };
    match (removed, is_soft) {
        (None, _) => "purged at once; the matching responses were not counted, because there is a \
                      disk cache, or very many are stored"
            .into(),
        (Some(0), _) => {
            "no stored response matched; responses being fetched now will not be reused".into()
        }
        (Some(count), false) => format!("removed {}", responses(count)),
        (Some(count), true) => format!("made {} stale", responses(count)),
    }
}

/// Whether a text is a single word: it does not look like a URL or a common host name.
fn is_word(text: &str) -> bool {
    let is_part_of_url = |byte: u8| b"./:*[".contains(&byte);
    text != "all" && text != "localhost" && !text.bytes().any(is_part_of_url)
}

impl PurgeTarget {
    /// The targets that have to be purged as well where keys follow these rules.
    pub fn normalized<'r>(&self, rules: impl Iterator<Item = &'r QueryRules>) -> Vec<PurgeTarget> {
        let PurgeTarget::Urls(pattern) = self else {
            return Vec::new();
        };
        let changed = rules.filter(|rules| !rules.is_empty());
        let mut targets: Vec<PurgeTarget> = Vec::new();
        for pattern in changed.filter_map(|rules| pattern.normalized(rules)) {
            let target = PurgeTarget::Urls(pattern);
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        targets
    }

    /// Purges matching responses in the store and in flight.
    pub fn purge(&self, store: &SharedStore, kind: PurgeMode) {
        let purge = match self {
            PurgeTarget::Urls(pattern) => PurgeRequest::Urls(pattern),
            PurgeTarget::Tag(name) => PurgeRequest::Tag(name.as_bytes()),
            PurgeTarget::Group(name) => PurgeRequest::Group(b"", name.as_bytes()),
        };
        store.purge(&purge, kind);
    }
}

/// The purge mode: soft (stale from now on) or hard (deleted).
pub fn kind(is_soft: bool) -> PurgeMode {
    match is_soft {
        true => PurgeMode::Soft {
            at_ms: clock::now_ms(),
        },
        false => PurgeMode::Hard,
    }
}

/// A server's report about a purge, sent to the command as one line of text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PurgeReport {
    /// The ports on which the server listens.
    pub ports: Vec<u16>,
    /// The purge survives a restart.
    pub is_durable: bool,
    /// Number of stored responses that matched; variants count separately. `None` if they were not counted.
    pub removed: Option<u64>,
}

/// The start of the last word of the report, before the number of responses.
const RESPONSES: &str = "responses=";
/// The first word of the report.
const PURGED: &str = "purged";
/// The first word of the report if a restart may undo the purge.
const PURGED_FOR_NOW: &str = "purged-for-now";

impl fmt::Display for PurgeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_durable {
            PURGED
        } else {
            PURGED_FOR_NOW
        })?;
        self.ports
            .iter()
            .try_for_each(|port| write!(f, " {port}"))?;
        if let Some(removed) = self.removed {
            write!(f, " {RESPONSES}{removed}")?;
        }
        writeln!(f)
    }
}

impl FromStr for PurgeReport {
    type Err = ();

    fn from_str(line: &str) -> Result<PurgeReport, ()> {
        let mut words = line.split_whitespace();
        let is_durable = match words.next() {
            Some(PURGED) => true,
            Some(PURGED_FOR_NOW) => false,
            _ => return Err(()),
        };
        let mut report = PurgeReport {
            is_durable,
            ..PurgeReport::default()
        };
        for word in words {
            match word.strip_prefix(RESPONSES) {
                Some(count) => report.removed = Some(count.parse().map_err(|_| ())?),
                None => report.ports.push(word.parse().map_err(|_| ())?),
            }
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_of_a_url_may_be_omitted() {
        let all: PurgeTarget = "all".parse().expect("it is");
        assert_eq!(all, PurgeTarget::Urls(RequestPattern::All));
        assert_eq!("a/x*".parse::<PurgeTarget>(), "http://a/x*".parse());
        let message = "/x".parse::<PurgeTarget>().expect_err("no host");
        assert!(message.starts_with("/x: not `all`, host:NAME"), "{message}");
        assert_eq!("https://a/".parse::<PurgeTarget>(), "http://a/".parse());
        assert_ne!("http://a:80/".parse::<PurgeTarget>(), "http://a/".parse());
        assert!("ftp://a/".parse::<PurgeTarget>().is_err());
        for almost in ["tags:news", "/x"] {
            let message = almost.parse::<PurgeTarget>().expect_err(almost);
            assert!(message.contains("tag:NAME"), "{message}");
        }
    }

    #[test]
    fn single_word_is_not_a_url() {
        for word in ["nonsense", "news", "ALL", ""] {
            let message = word.parse::<PurgeTarget>().expect_err(word);
            assert!(
                message.contains("neither a URL") && message.contains("tag:NAME"),
                "{message}"
            );
        }
        for url in [
            "localhost",
            "a.example",
            "a:8080",
            "intranet/",
            "host:intranet",
            "[::1]",
        ] {
            assert!(url.parse::<PurgeTarget>().is_ok(), "{url}");
        }
    }

    #[test]
    fn tag_without_name_is_rejected() {
        assert_eq!("tag: news ".parse(), Ok(PurgeTarget::Tag("news".into())));
        for wrong in ["tag:", "tag: ", "tag:a,b"] {
            let message = wrong.parse::<PurgeTarget>().expect_err("no name");
            assert!(message.contains("tag:NAME"), "{message}");
        }
    }

    #[test]
    fn group_or_host_without_name_is_rejected() {
        assert_eq!("group:a, b".parse(), Ok(PurgeTarget::Group("a, b".into())));
        assert!("group:".parse::<PurgeTarget>().is_err());
        let host = PurgeTarget::Urls(RequestPattern::Host(b"a.example".to_vec()));
        assert_eq!("host:A.example".parse(), Ok(host));
        assert!("host:".parse::<PurgeTarget>().is_err());
    }

    #[test]
    fn summary_counts_responses_of_all_servers() {
        let text = |counts: &[Option<u64>], is_soft| {
            let report = |removed: &Option<u64>| PurgeReport {
                removed: *removed,
                ..PurgeReport::default()
            };
            summary(&counts.iter().map(report).collect::<Vec<_>>(), is_soft)
        };
        assert_eq!(text(&[Some(1)], false), "removed 1 stored response");
        assert_eq!(
            text(&[Some(0), Some(2)], true),
            "made 2 stored responses stale"
        );
        assert!(text(&[Some(0)], false).starts_with("no stored response matched"));
        assert!(text(&[Some(2), None], false).contains("not counted"));
    }

    #[test]
    fn purge_report_round_trips() {
        for (ports, is_durable, removed) in [
            (vec![], true, None),
            (vec![80, 8080], true, Some(0)),
            (vec![80], false, Some(12)),
        ] {
            let purged = PurgeReport {
                ports,
                is_durable,
                removed,
            };
            assert_eq!(purged.to_string().parse(), Ok(purged));
        }
        assert!("not-mine".parse::<PurgeReport>().is_err());
        assert!("purged 80 responses=x".parse::<PurgeReport>().is_err());
        assert!("".parse::<PurgeReport>().is_err());
    }
}

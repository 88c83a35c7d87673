//! The target of a purge: all responses, one URL or a URL prefix, a host, a tag or a group.
//!
//! An ambiguous pattern matches more rather than less, as in `lowroad_cache::pattern`: an unnecessary deletion costs
//! one call, a missed deletion leaves a stale response.

use std::fmt;
use std::str::FromStr;

use lowroad_cache::pattern::Pattern;
use lowroad_store::SharedStore;
use lowroad_store::clock;
use lowroad_store::purging::{Kind, Purge};

/// The prefix of a tag.
const TAG: &str = "tag:";
/// The prefix of a group.
const GROUP: &str = "group:";
/// The prefix of a host.
const HOST: &str = "host:";

/// The responses to purge.
#[derive(Debug, PartialEq, Eq)]
pub enum Meant {
    /// By URL.
    Urls(Pattern),
    /// Those with this tag in Cache-Tag or Surrogate-Key.
    Tag(String),
    /// Those of this group, at any host (RFC 9875).
    Group(String),
}

impl FromStr for Meant {
    type Err = String;

    /// Parses `all`, `host:NAME`, `tag:NAME`, `group:NAME` or a URL, with `*` at its end for a prefix; the scheme may
    /// be omitted.
    fn from_str(text: &str) -> Result<Meant, String> {
        if let Some(name) = text.strip_prefix(TAG) {
            let name = name.trim();
            return match name.is_empty() || name.contains(',') {
                true => Err(format!("{text}: a tag is a name without commas: tag:NAME")),
                false => Ok(Meant::Tag(name.to_string())),
            };
        }
        if let Some(name) = text.strip_prefix(GROUP) {
            return match name.is_empty() {
                true => Err(format!("{text}: a group has a name: group:NAME")),
                false => Ok(Meant::Group(name.to_string())),
            };
        }
        // A single word is more likely a typing error than a host whose front page is meant.
        if is_word(text) {
            return Err(format!(
                "{text}: this is neither a URL nor all, host:NAME, tag:NAME or group:NAME; if it is a host, host:{text} purges all of it, \
                 and http://{text}/ its front page"
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
        Pattern::parse(&url)
            .map(Meant::Urls)
            .map_err(|error| format!("{text}: {error}"))
    }
}

/// The output of the command if no server and no level had a matching object.
pub const NOTHING_MEANT: &str =
    "nothing that is stored was meant; what is being made now will not be used after\n";

/// Whether a text has no part of a URL, and is not a common host name.
fn is_word(text: &str) -> bool {
    let is_part_of_url = |byte: u8| b"./:*[".contains(&byte);
    text != "all" && text != "localhost" && !text.bytes().any(is_part_of_url)
}

impl Meant {
    /// Purges the store of the target, and of matching responses in flight.
    pub fn purge(&self, store: &SharedStore, kind: Kind) {
        let purge = match self {
            Meant::Urls(pattern) => Purge::Urls(pattern),
            Meant::Tag(name) => Purge::Tag(name.as_bytes()),
            Meant::Group(name) => Purge::Group(b"", name.as_bytes()),
        };
        store.purge(&purge, kind);
    }
}

/// The kind of purge: deletion, or staleness from now on.
pub fn kind(is_soft: bool) -> Kind {
    match is_soft {
        true => Kind::Soft {
            at_ms: clock::now_ms(),
        },
        false => Kind::Hard,
    }
}

/// A server's report about a purge: one line of text to the command.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// The ports at which it listens.
    pub ports: Vec<u16>,
    /// The purge outlives a restart.
    pub is_kept: bool,
    /// No stored response matched.
    pub is_unmatched: bool,
}

/// The last word of the report if no response matched.
const UNMATCHED: &str = "unmatched";
/// The first word of the report.
const PURGED: &str = "purged";
/// The first word if a restart may undo the purge.
const PURGED_FOR_NOW: &str = "purged-for-now";

impl fmt::Display for Purged {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(if self.is_kept { PURGED } else { PURGED_FOR_NOW })?;
        self.ports
            .iter()
            .try_for_each(|port| write!(to, " {port}"))?;
        if self.is_unmatched {
            write!(to, " {UNMATCHED}")?;
        }
        writeln!(to)
    }
}

impl FromStr for Purged {
    type Err = ();

    fn from_str(line: &str) -> Result<Purged, ()> {
        let mut words = line.split_whitespace();
        let is_kept = match words.next() {
            Some(PURGED) => true,
            Some(PURGED_FOR_NOW) => false,
            _ => return Err(()),
        };
        let mut is_unmatched = false;
        let is_port = |word: &&str| {
            is_unmatched |= *word == UNMATCHED;
            *word != UNMATCHED
        };
        let words = words.filter(is_port);
        let ports = words.map(str::parse).collect::<Result<_, _>>();
        Ok(Purged {
            ports: ports.map_err(|_| ())?,
            is_kept,
            is_unmatched,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_may_lack_their_scheme() {
        let all: Meant = "all".parse().expect("it is");
        assert_eq!(all, Meant::Urls(Pattern::All));
        assert_eq!("a/x*".parse::<Meant>(), "http://a/x*".parse());
        let said = "/x".parse::<Meant>().expect_err("no host");
        assert!(said.starts_with("/x: a purge takes"), "{said}");
        assert_ne!("https://a/".parse::<Meant>(), "http://a/".parse());
        assert!("ftp://a/".parse::<Meant>().is_err());
        for almost in ["tags:news", "/x"] {
            let said = almost.parse::<Meant>().expect_err(almost);
            assert!(said.contains("tag:NAME"), "{said}");
        }
    }

    #[test]
    fn a_word_is_no_url() {
        for word in ["nonsense", "news", "ALL", ""] {
            let said = word.parse::<Meant>().expect_err(word);
            assert!(
                said.contains("neither a URL") && said.contains("tag:NAME"),
                "{said}"
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
            assert!(url.parse::<Meant>().is_ok(), "{url}");
        }
    }

    #[test]
    fn tags_have_names() {
        assert_eq!("tag: news ".parse(), Ok(Meant::Tag("news".into())));
        for wrong in ["tag:", "tag: ", "tag:a,b"] {
            let said = wrong.parse::<Meant>().expect_err("no name");
            assert!(said.contains("tag:NAME"), "{said}");
        }
    }

    #[test]
    fn groups_and_hosts_have_names() {
        assert_eq!("group:a, b".parse(), Ok(Meant::Group("a, b".into())));
        assert!("group:".parse::<Meant>().is_err());
        let host = Meant::Urls(Pattern::Host(b"a.example".to_vec()));
        assert_eq!("host:A.example".parse(), Ok(host));
        assert!("host:".parse::<Meant>().is_err());
    }

    #[test]
    fn what_was_done_is_read_as_it_is_written() {
        for (ports, is_kept, is_unmatched) in [
            (vec![], true, false),
            (vec![80, 8080], true, true),
            (vec![80], false, false),
        ] {
            let purged = Purged {
                ports,
                is_kept,
                is_unmatched,
            };
            assert_eq!(purged.to_string().parse(), Ok(purged));
        }
        assert!("not-mine".parse::<Purged>().is_err());
        assert!("".parse::<Purged>().is_err());
    }
}

//! Which kept responses a purge means: all, those of one URL or of URLs that begin alike, those of
//! a tag. Knows nothing of who asks.
//!
//! In doubt more is meant than less, as below the socket (`lowroad_cache::pattern`): a response
//! that is made again for nothing costs a run, one that is forgotten is a stale answer.

use std::fmt;
use std::str::FromStr;

use lowroad_cache::pattern::Pattern;

use crate::store::SharedStore;
use crate::store::key;
use crate::store::validity::Lifetime;

/// What begins the name of a tag.
const TAG: &str = "tag:";

/// What is to go.
#[derive(Debug, PartialEq, Eq)]
pub enum Meant {
    /// By URL.
    Urls(Pattern),
    /// What its program named so.
    Tag(String),
}

impl FromStr for Meant {
    type Err = String;

    /// `all`, `tag:NAME`, or a URL, with `*` at its end for all that begin so; a URL may be written
    /// without its scheme.
    fn from_str(text: &str) -> Result<Meant, String> {
        if let Some(name) = text.strip_prefix(TAG) {
            let name = name.trim();
            return match name.is_empty() || name.contains(',') {
                true => Err(format!("{text}: a tag is a name without commas: tag:NAME")),
                false => Ok(Meant::Tag(name.to_string())),
            };
        }
        let url = match text == "all" || text.contains("://") || text.starts_with('/') {
            true => text.to_owned(),
            false => format!("http://{text}"),
        };
        Pattern::parse(&url)
            .map(Meant::Urls)
            .map_err(|error| format!("{text}: {error}"))
    }
}

impl Meant {
    /// Takes what is meant out of a store, and what is being made now; says how many there were.
    pub fn purge(&self, store: &SharedStore) -> u64 {
        store.purge(|key, object| {
            let lifetime = object.validity.lifetime();
            match (key::parts_of_program(key), lifetime) {
                (Some((host, target)), Some(lifetime)) => !self.takes(lifetime, host, target),
                _ => true,
            }
        })
    }

    /// Whether a response of this lifetime, stored for this Host and target, is meant.
    pub fn takes(&self, lifetime: &Lifetime, host: &[u8], target: &[u8]) -> bool {
        match self {
            Meant::Urls(pattern) => pattern.takes(host, None, target),
            Meant::Tag(name) => lifetime.has_tag(name.as_bytes()),
        }
    }
}

/// What a server did: on the way between it and the command, a line of numbers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// How many responses went.
    pub gone: u64,
    /// Where it listens.
    pub ports: Vec<u16>,
}

impl fmt::Display for Purged {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}", self.gone)?;
        self.ports
            .iter()
            .try_for_each(|port| write!(to, " {port}"))?;
        writeln!(to)
    }
}

impl FromStr for Purged {
    type Err = std::num::ParseIntError;

    fn from_str(line: &str) -> Result<Purged, Self::Err> {
        let mut numbers = line.split_whitespace();
        Ok(Purged {
            gone: numbers.next().unwrap_or_default().parse()?,
            ports: numbers.map(str::parse).collect::<Result<_, _>>()?,
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
        assert!("https://a/".parse::<Meant>().is_err());
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
    fn what_was_done_is_read_as_it_is_written() {
        for (gone, ports) in [(0, vec![]), (7, vec![80, 8080])] {
            let purged = Purged { gone, ports };
            assert_eq!(purged.to_string().parse(), Ok(purged));
        }
        assert!("not-mine".parse::<Purged>().is_err());
        assert!("".parse::<Purged>().is_err());
    }

    fn takes(what: &str, tags: &str, target: &str) -> bool {
        let lifetime = Lifetime {
            tags: tags.as_bytes().into(),
            ..Lifetime::until(0)
        };
        let meant: Meant = what.parse().expect("it is");
        meant.takes(&lifetime, b"a:8080", target.as_bytes())
    }

    #[test]
    fn a_tag_means_what_carries_it() {
        assert!(takes("tag:news", "news", "/"));
        assert!(takes("tag:news", "a, News ,b", "/"));
        assert!(takes("tag:news", "a,b,news", "/"));
        assert!(!takes("tag:news", "newsletter, old news", "/"));
        assert!(!takes("tag:news", "", "/"));
    }

    #[test]
    fn a_url_means_what_was_asked_so() {
        assert!(takes("all", "", "/x"));
        assert!(takes("a:8080/x?y", "", "/x?y"));
        assert!(takes("a:8080/*", "", "/x?y"));
        assert!(takes("a:8080/%78", "", "/x"));
        assert!(!takes("a:8080/x", "", "/x?y"));
        assert!(!takes("b:8080/x", "", "/x"));
        assert!(!takes("a:81/x", "", "/x"));
    }
}

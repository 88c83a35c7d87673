//! `lowroad purge`: responses out of the levels of this namespace, at once.

use clap::Args;
use lowroad_softirq::key::Key;
use lowroad_softirq::level::Level;
use lowroad_softirq::pattern::Pattern;
use lowroad_softirq::publish::{self, Published};

use super::{levels, place};
use crate::say;

/// `lowroad purge`.
#[derive(Args)]
pub struct Purge {
    /// What: a URL, a URL with * at its end for all that begin so, or `all`
    #[arg(value_name = "URL")]
    pub what: String,
    /// Only what was asked at this port
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// In which network namespace: a path, a process's number or a name of `ip netns`
    #[arg(long, value_name = "NAMESPACE")]
    pub netns: Option<String>,
}

/// A daemon that was about to publish when the purge began may do so once. It hears of the purge
/// before it publishes again.
const ROUNDS: usize = 3;

/// Purges, and says how many responses went.
///
/// # Errors
/// A text for the user.
pub fn purge(args: &Purge) -> Result<(), String> {
    let pattern = pattern(&args.what)?;
    if let Some(namespace) = &args.netns {
        place::enter_namespace(namespace)?;
    }
    let mut gone = 0;
    for level in levels::at_least_one(args.port)? {
        gone += purge_level(&level, &pattern, args.port)?;
    }
    say::out(match gone {
        0 => "nothing of it was published\n".to_owned(),
        1 => "purged 1 response\n".to_owned(),
        _ => format!("purged {} responses\n", levels::grouped(gone)),
    })
}

/// Also where nothing matches the purge is told: what is being fetched now was made before it.
fn purge_level(level: &Level, pattern: &Pattern, port: Option<u16>) -> Result<u64, String> {
    let mut gone = 0;
    for round in 0..ROUNDS {
        let mut found = publish::published(level);
        found.retain(|one| is_meant(one, pattern, port));
        if round > 0 && found.is_empty() {
            break;
        }
        publish::purge(level, &found).map_err(|error| error.to_string())?;
        gone += u64::try_from(found.len()).expect("fits");
    }
    Ok(gone)
}

fn is_meant(one: &Published, pattern: &Pattern, port: Option<u16>) -> bool {
    // What can't be read goes too: nobody could name it.
    let Some(key) = Key::read(&one.key) else {
        return true;
    };
    port.is_none_or(|port| key.parts().port == port) && pattern.matches(&key)
}

/// A URL may be written without its scheme, as for `explain`.
fn pattern(text: &str) -> Result<Pattern, String> {
    let url = match text == "all" || text.contains("://") || text.starts_with('/') {
        true => text.to_owned(),
        false => format!("http://{text}"),
    };
    Pattern::parse(&url).map_err(|error| format!("{text}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_may_lack_their_scheme() {
        assert_eq!(pattern("all"), Ok(Pattern::All));
        assert_eq!(pattern("a/x*"), pattern("http://a/x*"));
        let said = pattern("/x").expect_err("no host");
        assert!(said.starts_with("/x: a purge takes"), "{said}");
        assert!(pattern("https://a/").is_err());
    }
}

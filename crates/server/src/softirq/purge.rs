//! `lowroad purge`: removes responses from running servers and from the levels of this namespace. Servers are purged
//! first, because a level could otherwise fetch a purged response again.

use lowroad_response_cache::purge::{self, PurgeReport, PurgeTarget};
use lowroad_softirq::key::RequestKey;
use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::level::publisher::{self, PublishedResponse};
use lowroad_softirq::pattern::{self, RequestPattern};

use super::{levels, namespace};
use crate::admin::{self, PurgeFailure};
use crate::cli::servers::PurgeArgs;
use crate::terminal_output;

/// Number of purges of a level, which are repeated because its daemon may just be publishing a response when the first
/// purge begins. The daemon notices the purge before it publishes the next response.
const ROUNDS: usize = 3;

/// Purges servers and levels. Prints the numbers of responses removed from both.
///
/// # Errors
/// A message for the user.
pub fn purge(args: &PurgeArgs) -> Result<(), String> {
    let target: PurgeTarget = args.what.parse()?;
    let reports = match &args.netns {
        Some(namespace) => {
            namespace::enter_namespace(namespace)?;
            admin::request_purge(args, &namespace::is_in_namespace)
        }
        None => admin::request_purge(args, admin::EVERY_SERVER),
    };
    let (servers, failure) = match reports {
        Ok(servers) => (servers, None),
        Err(failure) => (Vec::new(), Some(failure)),
    };
    let servers = &servers[..];
    let purged = match (purge_levels(args, &target, servers), failure) {
        (Err(no_level), Some(PurgeFailure::NoServer(reason))) if args.admin.is_none() => {
            return Err(format!("{reason}; and {no_level}"));
        }
        // A server that was named, or that has refused the purge, is meant rather than a level.
        (Err(_), Some(failure)) => return Err(failure.into_text()),
        (purged, _) => purged?,
    };
    let count = match purged {
        1 => "1 response".to_owned(),
        _ => format!("{} responses", levels::group_digits(purged)),
    };
    terminal_output::out(match (servers.is_empty(), purged) {
        (true, 0) => "no published response matched\n".to_owned(),
        (true, _) => format!("purged {count}\n"),
        (false, 0) => format!("{}\n", purge::summary(servers, args.soft)),
        (false, _) => format!(
            "{}; purged {count} of the levels below\n",
            purge::summary(servers, args.soft)
        ),
    })
}

/// Purges the levels. It is an error if there is no suitable level and no server was purged either.
fn purge_levels(
    args: &PurgeArgs,
    target: &PurgeTarget,
    servers: &[PurgeReport],
) -> Result<u64, String> {
    let found = if servers.is_empty() {
        if matches!(target, PurgeTarget::Tag(_) | PurgeTarget::Group(_)) {
            return Err("only servers support tags and groups".into());
        }
        levels::at_least_one(args.port)?
    } else {
        // If a server was purged, it is not an error that maps can't be opened without privileges.
        let (mut found, broken) = levels::all().unwrap_or_default();
        broken.iter().for_each(terminal_output::note);
        found.retain(|level| args.port.is_none_or(|port| level.ports().contains(&port)));
        found
    };
    let mut purged = 0;
    for level in found {
        purged += match target {
            PurgeTarget::Urls(pattern) => purge_level(&level, pattern, |port| {
                args.port.is_none_or(|only| only == port)
            })?,
            // Levels do not store tags and groups, so all responses of these servers' ports are removed.
            PurgeTarget::Tag(_) | PurgeTarget::Group(_) => {
                purge_level(&level, &RequestPattern::All, |port| {
                    args.port.is_none_or(|only| only == port)
                        && servers.iter().any(|server| server.ports.contains(&port))
                })?
            }
        };
    }
    Ok(purged)
}

/// Purges a level. The purge is also counted if no response matches, so that fetches in progress are not stored.
fn purge_level(
    level: &SoftirqLevel,
    pattern: &RequestPattern,
    is_selected: impl Fn(u16) -> bool,
) -> Result<u64, String> {
    let mut purged = 0;
    for round in 0..ROUNDS {
        let mut found = publisher::published(level);
        found.retain(|response| matches(response, pattern, &is_selected));
        // The first round purges even without a match, because the daemon must notice it.
        if round > 0 && found.is_empty() {
            break;
        }
        publisher::purge(level, &found).map_err(|error| error.to_string())?;
        purged += found.len() as u64;
    }
    Ok(purged)
}

fn matches(
    response: &PublishedResponse,
    pattern: &RequestPattern,
    is_selected: impl Fn(u16) -> bool,
) -> bool {
    // A response with a malformed key can't match any pattern, so every purge removes it.
    let Some(key) = RequestKey::read(&response.key) else {
        return true;
    };
    is_selected(key.parts().port) && pattern::matches_pattern(pattern, &key)
}

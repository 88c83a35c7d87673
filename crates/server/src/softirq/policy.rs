//! The policy of one `lowroad attach`: which clients, requests and responses it serves. It is parsed once from the
//! command line. The level below the socket and the workers above it use the same policy, so that they follow the same
//! rules.

use lowroad_cache::excluded_paths::ExcludedPaths;
use lowroad_config::{CacheBypass, CacheConfig, CookieStorage};
use lowroad_softirq::layout;
use lowroad_softirq::learner::LearnSettings;

use crate::cli::softirq::AttachArgs;

use super::clients::ClientRanges;

/// The options of one command that select clients, requests and responses.
#[derive(Debug)]
pub struct AttachPolicy {
    /// The lifetime of responses without freshness information; `None` selects a heuristic one.
    ttl_s: Option<u64>,
    /// Paths for which requests are always sent to the server.
    excluded: ExcludedPaths,
    /// The same paths as text.
    excluded_paths: Vec<String>,
    /// Whether requests with Cookie may be answered from the cache.
    ignores_cookies: bool,
    /// Whether requests with Cache-Control or Pragma may be answered from the cache.
    ignores_cache_control: bool,
    clients: ClientRanges,
}

impl AttachPolicy {
    /// Parses the policy from a command line.
    ///
    /// # Errors
    /// A message for the user that names the malformed option.
    pub fn from_args(args: &AttachArgs) -> Result<AttachPolicy, String> {
        let excluded_paths = ExcludedPaths::with_well_known(&args.exclude);
        let excluded =
            ExcludedPaths::read(&excluded_paths).map_err(|error| format!("--exclude {error}"))?;
        Ok(AttachPolicy {
            ttl_s: args.ttl,
            excluded,
            excluded_paths,
            ignores_cookies: args.ignore_cookies,
            ignores_cache_control: args.ignore_cache_control,
            clients: ClientRanges::from_arguments(&args.deny, &args.allow)?,
        })
    }

    /// Which clients are left to the server.
    pub fn clients(&self) -> &ClientRanges {
        &self.clients
    }

    /// The rules by which the level's daemon stores responses, within these bounds.
    pub fn learning(&self, bounds: LearnSettings) -> LearnSettings {
        LearnSettings {
            ttl_secs: self.ttl_s,
            excluded: self.excluded.clone(),
            ..bounds
        }
    }

    /// The policy as bits of the programs' settings.
    pub fn setting_bits(&self) -> u32 {
        let bit_if = |is_set, bit| if is_set { bit } else { 0 };
        bit_if(self.ignores_cookies, layout::SETTING_IGNORE_COOKIES)
            | bit_if(
                self.ignores_cache_control,
                layout::SETTING_IGNORE_CACHE_CONTROL,
            )
            | bit_if(!self.clients.includes_all(), layout::SETTING_DENY)
    }

    /// The workers' cache settings, equal to the rules of the level's daemon.
    pub fn caching(&self) -> CacheConfig {
        CacheConfig {
            ttl_s: self.ttl_s,
            guessed_s_max: LearnSettings::default().guessed_secs_max,
            // A response for one cookie must not be sent to clients with another one.
            cookies: CookieStorage::Never,
            // The level does not store 403, 429 and 451 either, because these may be meant for a single client.
            refusals: false,
            // The level also distinguishes requests by Accept-Encoding, whether or not Vary names it.
            encoding_in_key: true,
            bypass: Some(CacheBypass {
                cookies: !self.ignores_cookies,
                cache_control: !self.ignores_cache_control,
                paths: self.excluded_paths.clone(),
            }),
            ..CacheConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{CliCommand, CommandLine};
    use clap::Parser;

    fn policy(options: &[&str]) -> AttachPolicy {
        let words = [&["lowroad", "attach", "80"], options].concat();
        match CommandLine::try_parse_from(words).map(|cli| cli.command) {
            Ok(CliCommand::Attach(args)) => AttachPolicy::from_args(&args).expect("a policy"),
            _ => panic!("{options:?}"),
        }
    }

    /// Each option affects both the level and the workers.
    #[test]
    fn options_apply_to_level_and_workers() {
        for options in [
            &[][..],
            &["--ttl", "7", "--exclude", "/a", "--exclude", "/b"],
            &["--ignore-cookies"],
            &["--ignore-cache-control", "--deny", "10.0.0.0/8"],
        ] {
            let policy = policy(options);
            let learning = policy.learning(LearnSettings::default());
            let (bits, caching) = (policy.setting_bits(), policy.caching());
            let bypass = caching.bypass.expect("there is one");
            assert_eq!(caching.ttl_s, learning.ttl_secs);
            assert_eq!(caching.guessed_s_max, learning.guessed_secs_max);
            assert_eq!(ExcludedPaths::read(&bypass.paths), Ok(learning.excluded));
            let has = |bit| bits & bit != 0;
            assert_eq!(!bypass.cookies, has(layout::SETTING_IGNORE_COOKIES));
            let passes_over = has(layout::SETTING_IGNORE_CACHE_CONTROL);
            assert_eq!(!bypass.cache_control, passes_over);
            assert!(!caching.refusals && caching.cookies == CookieStorage::Never);
        }
    }
}

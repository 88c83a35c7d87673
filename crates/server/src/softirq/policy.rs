//! The policy of one `lowroad attach`: the clients, requests and responses that it serves. Built once from the command
//! line, and used by the level below the socket and by the workers above it, so that both follow the same rules.

use lowroad_cache::exclude::Excluded;
use lowroad_config::{CacheBypass, Caching, Cookies};
use lowroad_softirq::layout;
use lowroad_softirq::learn::Settings;

use crate::cli::softirq::Attach;

use super::clients::ClientRanges;

/// The options of one command for the clients, requests and responses of its server.
#[derive(Debug)]
pub struct AttachPolicy {
    /// The lifetime of responses without freshness information; none selects a heuristic one.
    ttl_s: Option<u64>,
    /// Paths that are never answered from the cache.
    excluded: Excluded,
    /// The same paths as texts.
    excluded_paths: Vec<String>,
    /// Whether requests with Cookie are answered, too.
    ignores_cookies: bool,
    /// Whether requests with Cache-Control or Pragma are answered, too.
    ignores_cache_control: bool,
    clients: ClientRanges,
}

impl AttachPolicy {
    /// Reads the policy from a command line.
    ///
    /// # Errors
    /// A text for the user that names the malformed option.
    pub fn of(args: &Attach) -> Result<AttachPolicy, String> {
        let excluded_paths = Excluded::with_well_known(&args.exclude);
        let excluded =
            Excluded::read(&excluded_paths).map_err(|error| format!("--exclude {error}"))?;
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

    /// The rules by which the level's daemon learns, with this room.
    pub fn learning(&self, room: Settings) -> Settings {
        Settings {
            ttl_secs: self.ttl_s,
            excluded: self.excluded.clone(),
            ..room
        }
    }

    /// The bits of the programs' settings.
    pub fn setting_bits(&self) -> u32 {
        let when = |wanted, bit| if wanted { bit } else { 0 };
        when(self.ignores_cookies, layout::SETTING_IGNORE_COOKIES)
            | when(
                self.ignores_cache_control,
                layout::SETTING_IGNORE_CACHE_CONTROL,
            )
            | when(!self.clients.is_everybody(), layout::SETTING_DENY)
    }

    /// The workers' cache settings, by the terms of the level's daemon.
    pub fn caching(&self) -> Caching {
        Caching {
            ttl_s: self.ttl_s,
            guessed_s_max: Settings::default().guessed_secs_max,
            // Pages of one cookie must not be given to another one.
            cookies: Cookies::Never,
            // As the level, which stores no 403, 429 and 451: these may be meant for one client.
            refusals: false,
            // As the level, which distinguishes requests by Accept-Encoding, whether Vary names it or not.
            encoding_in_key: true,
            bypass: Some(CacheBypass {
                cookies: !self.ignores_cookies,
                cache_control: !self.ignores_cache_control,
                paths: self.excluded_paths.clone(),
            }),
            ..Caching::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn policy(options: &[&str]) -> AttachPolicy {
        let words = [&["lowroad", "attach", "80"], options].concat();
        match Cli::try_parse_from(words).map(|cli| cli.command) {
            Ok(Command::Attach(args)) => AttachPolicy::of(&args).expect("a policy"),
            _ => panic!("{options:?}"),
        }
    }

    /// The level and the workers apply the same options: each option is in both.
    #[test]
    fn the_level_and_the_workers_have_one_policy() {
        for options in [
            &[][..],
            &["--ttl", "7", "--exclude", "/a", "--exclude", "/b"],
            &["--ignore-cookies"],
            &["--ignore-cache-control", "--deny", "10.0.0.0/8"],
        ] {
            let policy = policy(options);
            let learning = policy.learning(Settings::default());
            let (bits, caching) = (policy.setting_bits(), policy.caching());
            let bypass = caching.bypass.expect("there is one");
            assert_eq!(caching.ttl_s, learning.ttl_secs);
            assert_eq!(caching.guessed_s_max, learning.guessed_secs_max);
            assert_eq!(Excluded::read(&bypass.paths), Ok(learning.excluded));
            let has = |bit| bits & bit != 0;
            assert_eq!(!bypass.cookies, has(layout::SETTING_IGNORE_COOKIES));
            let passes_over = has(layout::SETTING_IGNORE_CACHE_CONTROL);
            assert_eq!(!bypass.cache_control, passes_over);
            assert!(!caching.refusals && caching.cookies == Cookies::Never);
        }
    }
}

//! The sites of the previous configuration, indexed for the state that new sites reuse.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use lowroad_access_control::passwords::PasswordFile;
use lowroad_config::{self as config, SiteName};

use super::fingerprint::SiteFingerprint;
use super::{Site, SiteTable};

/// The sites of the previous configuration.
#[derive(Default)]
pub struct EarlierSites<'b> {
    /// The sites that no new site has continued so far, by the key of their fingerprint.
    remaining: HashMap<u64, Vec<&'b Arc<Site>>>,
    by_names: HashMap<(&'b [SiteName], &'b [SocketAddr]), &'b Arc<Site>>,
    /// The password files in force, by path.
    users: HashMap<&'b Path, &'b Arc<PasswordFile>>,
}

impl<'b> EarlierSites<'b> {
    /// Indexes the sites of the previous configuration.
    pub fn new(previous: &'b SiteTable) -> EarlierSites<'b> {
        let mut earlier = EarlierSites::default();
        for site in &previous.all {
            let same_key = earlier.remaining.entry(site.identity.key()).or_default();
            same_key.push(site);
            let names = (
                site.rules.config.names.as_slice(),
                site.rules.config.listen.as_slice(),
            );
            earlier.by_names.entry(names).or_insert(site);
            let policies = site.access_policy.iter();
            let users = policies.flat_map(|policy| policy.passwords());
            earlier.users.extend(users.map(|it| (it.file(), it)));
        }
        earlier
    }

    /// Takes the site with the stored responses that the new site may use. A site is continued by at most one new site.
    pub fn take_continued(&mut self, identity: &SiteFingerprint) -> Option<&'b Arc<Site>> {
        let same_key = self.remaining.get_mut(&identity.key())?;
        let is_continued = |old: &&Arc<Site>| identity.continues(&old.identity);
        let index = same_key.iter().position(is_continued)?;
        // The site is removed, so that two new sites do not share the keys of one old site.
        Some(same_key.swap_remove(index))
    }

    /// The site with the same names and addresses.
    pub fn with_names(&self, rules: &config::SiteConfig) -> Option<&'b Arc<Site>> {
        let names = (rules.names.as_slice(), rules.listen.as_slice());
        self.by_names.get(&names).copied()
    }

    /// The password file in force for a path.
    pub fn users(&self, file: &Path) -> Option<Arc<PasswordFile>> {
        self.users.get(file).map(|users| (*users).clone())
    }
}

//! Loads the certificates and keys of all sites, and reloads them when their files change. Independent of addresses.

use std::collections::HashMap;
use std::path::PathBuf;

use lowroad_config::{self as config, CertificateFiles, SiteName};
use lowroad_file_stamp::FileStamp;
use lowroad_log::ErrorLogger;
use lowroad_privileges::helper;
use lowroad_store::watch::{FolderWatcher, PathWatch};
use lowroad_tls::certificates::{self, CertificatePair, CertificatePaths, CertificateProblem};
use lowroad_tls::x509::{self, AltName};

use super::local_authority;
use crate::certificate_status::CertificateStatus;

/// The certificates of all sites.
pub struct KeyPairSet {
    files: Vec<LoadedCertificate>,
    /// Positions in `files`, by the paths of a certificate.
    by_files: HashMap<CertificatePaths, usize>,
    /// Certificates signed by the local authority, by the names of the site.
    local: HashMap<Vec<SiteName>, CertificatePair>,
}

/// A certificate from files.
pub(super) struct LoadedCertificate {
    files: CertificatePaths,
    pair: CertificatePair,
    /// The files' stamps when they were loaded.
    loaded_stamps: FileStampSet,
    /// The files' stamps at the last check. Changed files are loaded once their stamps are equal in two successive
    /// checks, since an operator replaces the certificate and the key one after the other.
    seen_stamps: FileStampSet,
    /// Reports changes since the last check; `None`: the next check compares the stamps.
    watch: Option<PathWatch>,
    is_unreadable: bool,
    /// Only the privileged helper process can read the files, so they cannot be watched; they are checked once a
    /// minute.
    is_hidden: bool,
}

type FileStampSet = Vec<Option<FileStamp>>;

impl KeyPairSet {
    /// Reads the certificates of all sites. If files have become unreadable, the certificate from `previous` stays in
    /// use. Also returns warnings.
    ///
    /// # Errors
    /// The unusable files, one line each.
    pub fn read(
        sites: &[config::SiteConfig],
        unix_s: u64,
        previous: Option<&KeyPairSet>,
    ) -> Result<(KeyPairSet, Vec<String>), String> {
        let mut pairs = KeyPairSet {
            files: Vec::new(),
            by_files: HashMap::new(),
            local: HashMap::new(),
        };
        let (mut warnings, mut fatal) = (Vec::new(), Vec::new());
        for site in sites {
            let Some(tls) = &site.tls else { continue };
            for named in &tls.certificates {
                let files = files(named);
                if pairs.by_files.contains_key(&files) {
                    continue;
                }
                let in_use = previous.and_then(|previous| previous.find_files(&files));
                let (read, problems) = match (LoadedCertificate::read(files, unix_s), in_use) {
                    (Ok(read), _) => read,
                    // Only an unreadable file is tolerated; an invalid file is an error.
                    (Err(problem), Some(in_use)) if problem.is_unreadable() => {
                        warnings.push(format!("the previous certificate stays in use: {problem}"));
                        (in_use.clone_in_use(), Vec::new())
                    }
                    (Err(problem), _) => {
                        fatal.push(problem.to_string());
                        continue;
                    }
                };
                warnings.extend(problems.iter().map(CertificateProblem::to_string));
                pairs.by_files.insert(read.files.clone(), pairs.files.len());
                pairs.files.push(read);
            }
            if tls.local {
                match local_authority::sign(site, unix_s) {
                    Ok(pair) => drop(pairs.local.insert(site.names.clone(), pair)),
                    Err(error) => fatal.push(error),
                }
            }
        }
        if !fatal.is_empty() {
            return Err(fatal.join("\n"));
        }
        // Sites with automatic certificates may get theirs later.
        let uses_own_files =
            |site: &&config::SiteConfig| site.tls.as_ref().is_some_and(|tls| !tls.automatic);
        let own_sites = sites.iter().filter(uses_own_files);
        warnings.extend(own_sites.flat_map(|site| pairs.uncovered(site)));
        Ok((pairs, warnings))
    }

    fn find_files(&self, files: &CertificatePaths) -> Option<&LoadedCertificate> {
        self.files.get(*self.by_files.get(files)?)
    }

    /// The certificates of a site.
    pub fn site_pairs(&self, site: &config::SiteConfig) -> impl Iterator<Item = &CertificatePair> {
        let named = site.tls.iter().flat_map(|tls| &tls.certificates);
        let from_files = named.filter_map(|named| Some(&self.find_files(&files(named))?.pair));
        let is_local = site.tls.as_ref().is_some_and(|tls| tls.local);
        let local = is_local.then(|| self.local.get(&site.names)).flatten();
        from_files.chain(local)
    }

    /// The warnings for names of a site that no certificate covers.
    fn uncovered(&self, site: &config::SiteConfig) -> Vec<String> {
        let mut covered = lowroad_tls::certificates::CertificateMap::new();
        self.site_pairs(site).for_each(|pair| covered.add(pair));
        let names = site.names.iter().filter_map(|name| match name {
            SiteName::Exact(host) if !is_address(host) && !covered.covers(host) => {
                Some(host.clone())
            }
            // Only a wildcard certificate covers a wildcard name, so any host name at that level is a valid test.
            SiteName::Wildcard(host) if !covered.covers(&format!("any.{host}")) => {
                Some(format!("*.{host}"))
            }
            _ => None,
        });
        names
            .map(|name| format!("the site has no certificate for {name}"))
            .collect()
    }

    /// Checks the files, and loads changed ones. Returns whether a certificate has changed. If files are invalid, the
    /// error is logged, and the previous certificate stays in use.
    pub fn follow(
        &mut self,
        watcher: Option<&FolderWatcher>,
        unix_s: u64,
        logger: &ErrorLogger,
    ) -> bool {
        let changed = self
            .files
            .iter_mut()
            .map(|it| it.follow(watcher, unix_s, logger));
        // Not `any`, which would stop at the first change and leave the other files unchecked.
        changed.filter(|has_changed| *has_changed).count() > 0
    }

    /// The status of each certificate, for metrics.
    pub fn status(&self) -> impl Iterator<Item = CertificateStatus> {
        self.pairs().map(|(pair, source)| status(pair, source))
    }

    /// A line about each certificate, for `lowroad status`.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        self.pairs().map(|(pair, source)| text(pair, &source))
    }

    /// Each certificate with its source.
    fn pairs(&self) -> impl Iterator<Item = (&CertificatePair, String)> {
        let from_files = self.files.iter().map(|it| (&it.pair, it.source()));
        let local = self.local.values().map(|pair| (pair, "local".into()));
        from_files.chain(local)
    }
}

fn status(pair: &CertificatePair, source: String) -> CertificateStatus {
    CertificateStatus {
        names: plain_names(pair),
        source,
        not_after_s: u64::try_from(pair.not_after_s()).ok(),
        renewal_s: None,
        last_error: None,
    }
}

fn text(pair: &CertificatePair, source: &str) -> String {
    let until = x509::display_time(pair.not_after_s());
    format!("{} until {until}, {source}", joined_names(pair))
}

fn joined_names(pair: &CertificatePair) -> String {
    let names: Vec<String> = pair.names().iter().map(ToString::to_string).collect();
    names.join(" ")
}

/// The names without their types, without duplicates.
fn plain_names(pair: &CertificatePair) -> String {
    let mut names: Vec<String> = Vec::new();
    for name in pair.names() {
        let name = match name {
            AltName::Dns(name) | AltName::Email(name) | AltName::Uri(name) => name.to_string(),
            AltName::Ip(ip) => ip.to_string(),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(" ")
}

impl LoadedCertificate {
    /// Reads and checks the files. Also returns warnings.
    ///
    /// # Errors
    /// The files are unreadable or invalid.
    pub(super) fn read(
        files: CertificatePaths,
        unix_s: u64,
    ) -> Result<(LoadedCertificate, Vec<CertificateProblem>), CertificateProblem> {
        // The stamps are taken before the files are read, so that a change in between causes another load.
        let stamps = stamps(&files);
        let is_hidden = is_hidden(&files);
        let (pair, warnings) = certificates::read_with(&files, unix_s, helper::open)?;
        let read = LoadedCertificate {
            files,
            pair,
            seen_stamps: stamps.clone(),
            loaded_stamps: stamps,
            watch: None,
            is_unreadable: false,
            is_hidden,
        };
        Ok((read, warnings))
    }

    /// The certificate in use.
    pub(super) fn pair(&self) -> &CertificatePair {
        &self.pair
    }

    /// The status, for metrics.
    pub(super) fn status(&self) -> CertificateStatus {
        status(&self.pair, self.source())
    }

    /// A line for `lowroad status`.
    pub(super) fn text(&self) -> String {
        text(&self.pair, &self.source())
    }

    fn source(&self) -> String {
        self.files.certificates.display().to_string()
    }

    /// A copy without a watch.
    fn clone_in_use(&self) -> LoadedCertificate {
        LoadedCertificate {
            files: self.files.clone(),
            pair: self.pair.clone(),
            loaded_stamps: self.loaded_stamps.clone(),
            seen_stamps: self.seen_stamps.clone(),
            watch: None,
            is_unreadable: self.is_unreadable,
            is_hidden: self.is_hidden,
        }
    }

    /// Checks the files, and loads changed ones; returns whether the certificate has changed. See
    /// [`KeyPairSet::follow`].
    pub(super) fn follow(
        &mut self,
        watcher: Option<&FolderWatcher>,
        unix_s: u64,
        logger: &ErrorLogger,
    ) -> bool {
        let is_unchanged = self.watch.as_ref().is_some_and(PathWatch::is_unchanged);
        // Only calls without a watcher, once a minute, check hidden files.
        if watcher.is_some() && (is_unchanged || self.is_hidden) {
            return false;
        }
        // The watch is created before the stamps are taken, so that a change in between triggers the next check.
        let watch = watcher.and_then(|watcher| PathWatch::new(watcher, paths(&self.files)));
        // Until the stamps are settled there is no watch, so the next check compares them again.
        self.watch = None;
        // `is_hidden` is updated, since the first load may have happened with root privileges.
        self.is_hidden = is_hidden(&self.files);
        let now = stamps(&self.files);
        let is_lost = now.contains(&None);
        // The loss is logged once, until the files reappear.
        if is_lost {
            if !self.is_unreadable {
                logger.warn(format_args!(
                    "{}: changes can't be detected: the files are missing, or the server's user \
                     may not access them",
                    self.files.certificates.display()
                ));
            }
            self.is_unreadable = true;
            self.watch = watch;
            return false;
        }
        self.is_unreadable = false;
        // Hidden files are checked once a minute, so they are loaded immediately, without waiting for stable stamps; if
        // the key does not match yet, the next check loads them again.
        let is_settled = now == self.seen_stamps || self.is_hidden;
        self.seen_stamps = now.clone();
        if !is_settled {
            return false;
        }
        self.watch = watch;
        if now == self.loaded_stamps {
            return false;
        }
        // The stamps are recorded before loading, so that invalid files are not loaded again until they change.
        self.loaded_stamps = now;
        match certificates::read_with(&self.files, unix_s, helper::open) {
            Ok((pair, warnings)) => {
                for warning in warnings {
                    logger.warn(format_args!("{warning}"));
                }
                let until = x509::display_time(pair.not_after_s());
                logger.info(format_args!(
                    "{}: reloaded, valid until {until}",
                    self.files.certificates.display()
                ));
                self.pair = pair;
                true
            }
            Err(problem) => {
                logger.error(format_args!(
                    "the previous certificate stays in use: {problem}"
                ));
                false
            }
        }
    }
}

pub(super) fn files(named: &CertificateFiles) -> CertificatePaths {
    CertificatePaths {
        certificates: named.certificate.clone(),
        key: named.key.clone(),
        staple: named.staple.clone(),
    }
}

fn paths(files: &CertificatePaths) -> impl Iterator<Item = PathBuf> {
    let paths = [
        Some(&files.certificates),
        Some(&files.key),
        files.staple.as_ref(),
    ];
    paths.into_iter().flatten().cloned()
}

fn is_hidden(files: &CertificatePaths) -> bool {
    paths(files).any(|path| helper::is_hidden(&path))
}

fn stamps(files: &CertificatePaths) -> FileStampSet {
    paths(files).map(|path| helper::file_stamp(&path)).collect()
}

fn is_address(host: &str) -> bool {
    host.trim_matches(['[', ']'])
        .parse::<std::net::IpAddr>()
        .is_ok()
}

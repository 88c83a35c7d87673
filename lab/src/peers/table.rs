//! The table of peers: name, packages, description, and settings.

use std::collections::BTreeMap;

use super::PeerFailure;

/// A server that can be measured.
#[derive(Debug)]
pub struct PeerDescription {
    /// Its name in experiments.
    pub name: &'static str,
    /// The Debian packages that contain it.
    pub packages: &'static [&'static str],
    /// The programs that it needs.
    pub programs: &'static [&'static str],
    /// Its description.
    pub description: &'static str,
    /// Its settings.
    pub settings: &'static [PeerSetting],
    /// Why the peer can't run, if it is not implemented yet.
    pub unavailable: Option<&'static str>,
}

/// A setting of a peer.
#[derive(Debug)]
pub struct PeerSetting {
    /// Its name.
    pub name: &'static str,
    /// Its default, as text.
    pub default: &'static str,
    /// Its type.
    pub kind: SettingKind,
    /// Its meaning.
    pub description: &'static str,
}

/// The type of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// `on` or `off`.
    Switch,
    /// A number of at least 1.
    Number,
    /// Any text, such as a path.
    Text,
}

const fn setting(
    name: &'static str,
    kind: SettingKind,
    default: &'static str,
    description: &'static str,
) -> PeerSetting {
    PeerSetting {
        name,
        default,
        kind,
        description,
    }
}

const SENDFILE: PeerSetting = setting(
    "sendfile",
    SettingKind::Switch,
    "on",
    "send files without copying them",
);
const MEMORY: PeerSetting = setting("memory_mb", SettingKind::Number, "256", "size of the cache");
const PROCESSES: PeerSetting = setting(
    "processes",
    SettingKind::Number,
    "512",
    "most connections at a time, each with a process",
);
const THREADS: PeerSetting = setting(
    "threads",
    SettingKind::Number,
    "64",
    "threads of each process",
);
const PHP_ROOT: PeerSetting = setting(
    "php_root",
    SettingKind::Text,
    "",
    "folder of the PHP programs (else the one that is served)",
);
const CHILDREN: PeerSetting = setting("php_children", SettingKind::Number, "16", "PHP processes");
const DATA: PeerSetting = setting(
    "specweb99_data",
    SettingKind::Text,
    "",
    "folder with Custom.Ads and the like",
);
const DB: PeerSetting = setting(
    "db",
    SettingKind::Text,
    "",
    "the data base: path of a socket, or HOST:PORT",
);

const BINARY: PeerSetting = setting(
    "binary",
    SettingKind::Text,
    "",
    "the program (else next to this one, else in PATH)",
);
const FRONTS: PeerSetting = setting(
    "fronts",
    SettingKind::Text,
    "",
    "folder of the dynamic set in C, built",
);
const FASTCGI: PeerSetting = setting(
    "processes",
    SettingKind::Number,
    "16",
    "processes of the FastCGI program",
);

const fn peer(
    name: &'static str,
    packages: &'static [&'static str],
    programs: &'static [&'static str],
    description: &'static str,
    settings: &'static [PeerSetting],
) -> PeerDescription {
    PeerDescription {
        name,
        packages,
        programs,
        description,
        settings,
        unavailable: None,
    }
}

const fn unavailable(
    name: &'static str,
    description: &'static str,
    reason: &'static str,
) -> PeerDescription {
    PeerDescription {
        name,
        packages: &[],
        programs: &[],
        description,
        settings: &[],
        unavailable: Some(reason),
    }
}

static PEERS: &[PeerDescription] = &[
    peer(
        "lowroad",
        &[],
        &[],
        "Lowroad on sockets and epoll",
        &[BINARY],
    ),
    peer(
        "lowroad-softirq",
        &[],
        &[],
        "Lowroad, hot small answers in the soft interrupt (as root); with specweb99_data, the module too",
        &[BINARY, FRONTS, DATA],
    ),
    peer(
        "howl",
        &[],
        &[],
        "four system calls a request: the bound for user space",
        &[setting(
            "keep_alive",
            SettingKind::Switch,
            "off",
            "keep connections open (epoll_wait, read, write)",
        )],
    ),
    peer(
        "nginx",
        &["nginx-light"],
        &["nginx"],
        "event loops, a process each",
        &[SENDFILE],
    ),
    peer(
        "apache-prefork",
        &["apache2"],
        &["apache2"],
        "a process for each connection",
        &[SENDFILE, PROCESSES],
    ),
    peer(
        "apache-softirq",
        &["apache2"],
        &["apache2"],
        "apache-prefork, Lowroad attached before it: hot answers in the soft interrupt (as root)",
        &[BINARY, SENDFILE, PROCESSES],
    ),
    peer(
        "apache-event",
        &["apache2"],
        &["apache2"],
        "threads, and one that waits for all",
        &[SENDFILE, THREADS],
    ),
    peer(
        "lighttpd",
        &["lighttpd"],
        &["lighttpd"],
        "event loops, a process each",
        &[SENDFILE],
    ),
    peer(
        "caddy",
        &["caddy"],
        &["caddy"],
        "threads on all processors, in Go",
        &[],
    ),
    peer("h2o", &["h2o"], &["h2o"], "event loops, a thread each", &[]),
    peer(
        "varnish",
        &["varnish", "nginx-light"],
        &["varnishd", "nginx"],
        "a cache in memory, in front of nginx",
        &[MEMORY],
    ),
    peer(
        "haproxy",
        &["haproxy", "nginx-light"],
        &["haproxy", "nginx"],
        "a proxy with a small cache, in front of nginx",
        &[MEMORY],
    ),
    peer(
        "squid",
        &["squid", "nginx-light"],
        &["squid", "nginx"],
        "a cache in memory, one process whatever the workers, in front of nginx",
        &[MEMORY],
    ),
    peer(
        "trafficserver",
        &["trafficserver", "nginx-light"],
        &["traffic_server", "nginx"],
        "Apache Traffic Server, a cache in memory over a file, in front of nginx",
        &[MEMORY],
    ),
    peer(
        "nginx-cache",
        &["nginx-light"],
        &["nginx"],
        "nginx with its cache, in front of another nginx",
        &[SENDFILE, MEMORY],
    ),
    peer(
        "lowroad-accelerate",
        &["nginx-light"],
        &["nginx"],
        "Lowroad as a cache in memory, in front of nginx",
        &[BINARY, MEMORY],
    ),
    peer(
        "nginx-php",
        &["nginx-light", "php-fpm", "php-mysql"],
        &["nginx", "php-fpm"],
        "nginx, PHP behind it",
        &[SENDFILE, PHP_ROOT, CHILDREN, DATA, DB],
    ),
    peer(
        "apache-php",
        &["apache2", "php-fpm", "php-mysql"],
        &["apache2", "php-fpm"],
        "Apache (event), PHP behind it",
        &[SENDFILE, THREADS, PHP_ROOT, CHILDREN, DATA, DB],
    ),
    peer(
        "apache-mod-php",
        &["apache2", "libapache2-mod-php", "php-mysql"],
        &["apache2"],
        "Apache, a process for each connection with PHP in it",
        &[SENDFILE, PROCESSES, PHP_ROOT, DATA, DB],
    ),
    peer(
        "mariadb",
        &["mariadb-server"],
        &["mariadbd", "mariadb", "mariadb-install-db"],
        "the data base of paper 003, a private instance",
        &[setting(
            "schema",
            SettingKind::Text,
            "",
            "a file with SQL to begin with",
        )],
    ),
    peer(
        "lowroad-module",
        &[],
        &[],
        "Lowroad, the dynamic set as a module (shared library)",
        &[BINARY, FRONTS, DATA],
    ),
    peer(
        "lowroad-wasm",
        &[],
        &[],
        "Lowroad, the dynamic set as a module (WebAssembly)",
        &[BINARY, FRONTS, DATA, FASTCGI],
    ),
    peer(
        "lowroad-fastcgi",
        &[],
        &[],
        "Lowroad, the dynamic set by FastCGI",
        &[BINARY, FRONTS, DATA, FASTCGI],
    ),
    peer(
        "lowroad-cgi",
        &[],
        &[],
        "Lowroad, the dynamic set by CGI",
        &[BINARY, FRONTS, DATA],
    ),
    peer(
        "nginx-fastcgi",
        &["nginx-light"],
        &["nginx"],
        "nginx, the dynamic set in C behind it by FastCGI",
        &[SENDFILE, FRONTS, DATA, FASTCGI],
    ),
    peer(
        "lowroad-pages",
        &[],
        &[],
        "Lowroad with pages out of a data base",
        &[BINARY, PHP_ROOT, DB],
    ),
    unavailable(
        "lowroad-bare",
        "Lowroad without an operating system",
        "it is not a process at a loopback port but a machine: `lowroad-lab icount --paper 003` \
         and `--server lowroad-bare` boot it, and so does `lowroad image run`",
    ),
    unavailable(
        "lowroad-uring",
        "Lowroad on io_uring",
        "the io_uring driver does not exist yet",
    ),
];

/// All peers, in display order.
pub fn all() -> &'static [PeerDescription] {
    PEERS
}

/// Finds the peer with that name.
///
/// # Errors
/// The peer is unknown, or is not implemented yet.
pub fn named(name: &str) -> Result<&'static PeerDescription, PeerFailure> {
    let peer = listed(name)?;
    match peer.unavailable {
        Some(reason) => Err(PeerFailure::Absent(format!("{name} can't run: {reason}"))),
        None => Ok(peer),
    }
}

/// Whether a peer, if it can run on this machine, has a setting.
pub fn has_setting(peer: &str, setting: &str) -> bool {
    named(peer).is_ok_and(|peer| {
        peer.settings
            .iter()
            .any(|setting_description| setting_description.name == setting)
    })
}

/// Finds the peer with that name, even if it can't run on this machine: another machine may execute its plan.
///
/// # Errors
/// The peer is unknown.
pub fn listed(name: &str) -> Result<&'static PeerDescription, PeerFailure> {
    let matching = PEERS.iter().find(|peer| peer.name == name);
    matching.ok_or_else(|| {
        let names: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
        PeerFailure::Unknown(format!(
            "unknown peer {name:?}; the peers are {}",
            names.join(", ")
        ))
    })
}

/// The checked settings of a peer, with defaults for those not given.
#[derive(Debug)]
pub struct CheckedSettings(BTreeMap<&'static str, String>);

impl CheckedSettings {
    /// Checks the given settings.
    ///
    /// # Errors
    /// The peer has no setting of that name, or the value is invalid.
    pub fn new(
        peer: &PeerDescription,
        raw_settings: &BTreeMap<String, String>,
    ) -> Result<CheckedSettings, PeerFailure> {
        if let Some(name) = raw_settings
            .keys()
            .find(|name| !peer.settings.iter().any(|allowed| allowed.name == **name))
        {
            return Err(PeerFailure::Unknown(unknown_setting(peer, name)));
        }
        let mut values = BTreeMap::new();
        for setting in peer.settings {
            let value = raw_settings
                .get(setting.name)
                .map_or(setting.default, String::as_str);
            check(peer, setting, value).map_err(PeerFailure::Unknown)?;
            values.insert(setting.name, value.to_owned());
        }
        Ok(CheckedSettings(values))
    }

    /// The value of a setting; empty if the peer does not have it.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Whether a switch is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.text(name) == "on"
    }

    /// The value of a number.
    pub fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(1)
    }
}

fn unknown_setting(peer: &PeerDescription, name: &str) -> String {
    let names: Vec<&str> = peer.settings.iter().map(|names| names.name).collect();
    if names.is_empty() {
        return format!("{} has no setting {name:?}, nor any other", peer.name);
    }
    format!(
        "{} has no setting {name:?}; it has {}",
        peer.name,
        names.join(", ")
    )
}

fn check(peer: &PeerDescription, setting: &PeerSetting, value: &str) -> Result<(), String> {
    let allowed = match setting.kind {
        SettingKind::Switch if value != "on" && value != "off" => "on or off",
        SettingKind::Number if !matches!(value.parse::<u64>(), Ok(1..=1_000_000)) => {
            "a number from 1 to 1000000"
        }
        SettingKind::Text if !is_plain(value) => "a text without quotes, braces, #, $, % and \\",
        _ => return Ok(()),
    };
    Err(format!(
        "{} of {} must be {allowed}, not {value:?}",
        setting.name, peer.name
    ))
}

/// Whether a text can be used in the configuration language of every server without quoting.
pub fn is_plain(text: &str) -> bool {
    !text
        .chars()
        .any(|it| it.is_control() || "\"'`{}#$%\\|<>;".contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(peer: &str, name: &str, value: &str) -> Result<CheckedSettings, String> {
        let given = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let peer = named(peer).expect("a peer");
        CheckedSettings::new(peer, &given).map_err(|failure| failure.to_string())
    }

    #[test]
    fn peer_names_are_unique_and_listed_on_a_typo() {
        let mut names: Vec<_> = all().iter().map(|peer| peer.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().len());
        let text = named("ngnix").expect_err("misspelt").to_string();
        assert!(text.contains("nginx") && text.contains("howl"), "{text}");
    }

    #[test]
    fn unavailable_peers_have_a_reason() {
        for (name, why) in [
            ("lowroad-uring", "does not exist yet"),
            ("lowroad-bare", "not a process"),
        ] {
            let failure = named(name).expect_err("not there");
            assert!(matches!(failure, PeerFailure::Absent(ref text) if text.contains(why)));
        }
    }

    #[test]
    fn invalid_peer_settings_are_rejected() {
        assert!(settings("nginx", "sendfile", "off").is_ok_and(|it| !it.is_on("sendfile")));
        assert!(settings("nginx", "sendfile", "maybe").is_err_and(|it| it.contains("on or off")));
        assert!(
            settings("nginx", "sendfiel", "off").is_err_and(|it| it.contains("it has sendfile"))
        );
        assert!(settings("h2o", "sendfile", "off").is_err_and(|it| it.contains("nor any other")));
        assert!(settings("varnish", "memory_mb", "0").is_err());
        assert!(settings("nginx-php", "db", "a\"b").is_err());
    }

    #[test]
    fn default_settings_are_valid() {
        for peer in all() {
            CheckedSettings::new(peer, &BTreeMap::new()).expect("defaults");
        }
    }
}

//! `lowroad check`: finds problems of a configuration that depend on this machine. Each part of the server checks its
//! own settings; this module checks users, logs, variables, libraries and address prefixes.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use lowroad_config::{AddressPrefix, Config, ModuleCode, RouteTo, RuleAction, SiteRoot};
use lowroad_disk::{DiskFolder, FolderError};
use lowroad_handler::spool;
use lowroad_privileges::account;
use lowroad_privileges::helper;
use lowroad_routes::applications;
use nix::unistd::{Group, User};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::admin::access::AdminAccess;
use crate::admin::listeners;
use crate::traces::TraceExport;
use crate::{cli, secret_file, terminal_output};

mod auth_check;
mod log_check;
mod log_targets;

/// The result of a check without errors: `run` would start with this configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// No problems.
    Fine,
    /// Only warnings: some clients may be affected.
    Warnings,
}

/// Exit code of `check` if there are warnings but no errors.
pub const WARNINGS_CODE: u8 = 3;

/// Prints the problems of a configuration file, or that there are none.
///
/// # Errors
/// All problems, one a line.
pub fn check(file: &Path) -> Result<CheckOutcome, String> {
    let config = cli::load(file)?;
    let mut problems = Vec::new();
    let mut warnings = narrow_rules(&config);
    warnings.extend(log_check::served_logs(&config));
    warnings.extend(log_targets::missing_receivers(&config));
    let traces = config.traces.as_ref();
    warnings.extend(traces.and_then(log_targets::other_protocol));
    warnings.extend(host_bits(&config));
    warnings.extend(body_limits(&config));
    warnings.extend(auth_check::weak_passwords(&config));
    let mut located_warnings = log_check::unknown_sites(&config);
    located_warnings.extend(config.document.warnings.iter().map(ToString::to_string));
    accounts(&config, &mut problems);
    ticket_keys(&config, &mut problems);
    #[cfg(feature = "programs")]
    origins(&config, &mut problems);
    // If only root can change the path of a log file, the privileged helper opens it, also after root is given up; so
    // such files are checked as root.
    let (as_root, as_user): (Vec<&Path>, Vec<&Path>) =
        log_check::log_files(&config).partition(|path| helper::is_roots(path));
    log_check::writable(&as_root, &mut problems);
    variables(&config, &mut problems);
    admin_socket(&config, &mut warnings);
    let tokens = AdminAccess::new(&config.admin);
    problems.extend(tokens.err().map(|error| format!("admin: {error}")));
    warnings.extend(AdminAccess::warnings(&config.admin));
    warnings.extend(secret_file::warnings(config.document.secret_files()));
    problems.extend(TraceExport::open(config.traces.as_ref()).err());
    disk_cache(&config, &mut warnings);
    // The server opens certificates and keys before it gives up root, so they are checked as root.
    let (tls_problems, tls_warnings) = lowroad_tls_listener::check(&config);
    warnings.extend(tls_warnings);
    // Changes to the server's user, as `run` does, so that the checks below have the same permissions.
    if problems.is_empty()
        && let (Some(account), _) = account::account(&config)?
    {
        account.leave_root(Some(file))?;
        cli::load(file)?;
        // A running server rereads changed certificates as its user.
        let (current_problems, _) = lowroad_tls_listener::check(&config);
        let new = current_problems.iter().flat_map(|text| text.lines());
        // Problems that were already found as root are not reported again.
        let new = new.filter(|line| !tls_problems.iter().any(|text| text.contains(line)));
        warnings.extend(new.map(|line| format!("after the start: {line}")));
    }
    problems.extend(tls_problems);
    problems.extend(spool::check_folder(&config.buffering).err());
    log_check::writable(&as_user, &mut problems);
    roots(&config, &mut problems);
    reach_disk_cache(&config, &mut warnings);
    match applications::check(&config.applications) {
        Ok(failures) => warnings.extend(failures),
        Err(refusal) => problems.push(refusal),
    }
    libraries(&config, &mut problems);
    #[cfg(feature = "wasm")]
    problems.extend(lowroad_routes::modules::check(&config).err());
    // The texts serve only to find line numbers: if a file can't be read again, its problems are printed without them.
    let texts = config.document.files.iter().map(|file| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        (file.as_path(), text)
    });
    let lines = PathLines::new(texts);
    if !problems.is_empty() {
        problems.extend(warnings);
        let mut lines = lines.locate(&problems.join("\n"));
        lines.extend(located_warnings);
        return Err(lines.join("\n"));
    }
    if !warnings.is_empty() || !located_warnings.is_empty() {
        let mut lines = lines.locate(&warnings.join("\n"));
        lines.extend(located_warnings);
        terminal_output::note(format_args!("{}", lines.join("\n")));
        return Ok(CheckOutcome::Warnings);
    }
    let count = config.sites.len();
    let sites = if count == 1 { "site" } else { "sites" };
    terminal_output::out(format_args!(
        "{}: {count} {sites}, no problems\n",
        file.display()
    ))?;
    Ok(CheckOutcome::Fine)
}

/// Finds deny rules that match only a folder itself, not its contents.
fn narrow_rules(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    for rule in config.sites.iter().flat_map(|site| &site.access) {
        let text = rule.pattern.to_string();
        // A pattern with a trailing slash matches only the folder itself.
        let is_folder = text.len() > 1 && text.ends_with('/') && !text.contains('*');
        if is_folder && matches!(rule.action, RuleAction::Deny(_)) {
            warnings.push(format!(
                "rule {text}: the content of the folder is not denied; {text}** denies that, too"
            ));
        }
    }
    warnings
}

/// Finds limits for bodies that are larger than the limit of the server, which applies in their place.
fn body_limits(config: &Config) -> Vec<String> {
    let server_len_max = config.limits.body_len_max;
    let sites = config.sites.iter().filter_map(|site| site.body_len_max);
    let routes = config.sites.iter().flat_map(|site| &site.routes);
    let limits = sites.chain(routes.filter_map(|route| route.body_len_max));
    let useless = limits.filter(|len_max| *len_max > server_len_max);
    let warning = |len_max| {
        format!(
            "body_len_max: {len_max} is more than {server_len_max} of [limits], which applies to all sites; raise that one"
        )
    };
    useless.map(warning).collect()
}

/// Finds prefixes with host bits: the operator may have meant the single address.
fn host_bits(config: &Config) -> Vec<String> {
    let mut lists: Vec<(&str, &[AddressPrefix])> = Vec::new();
    for site in &config.sites {
        lists.push(("trusted_proxies", &site.trusted_proxies.addresses));
        lists.push(("proxy_protocol", &site.proxy_protocol));
        lists.push(("purge_from", &site.purge_from));
        for rule in &site.access {
            lists.push(("rule addresses", &rule.conditions.addresses));
            let exceptions = rule.conditions.exceptions.iter();
            lists.extend(exceptions.map(|it| ("rule except", &it.addresses[..])));
        }
    }
    for class in &config.classes {
        lists.push(("class addresses", &class.members.addresses));
    }
    let all = lists
        .into_iter()
        .flat_map(|(key, prefixes)| prefixes.iter().map(move |prefix| (key, prefix)));
    let loose = all.filter(|(_, prefix)| prefix.network() != **prefix);
    let warning = |(key, prefix): (&str, &AddressPrefix)| {
        let network = prefix.network();
        format!("{key}: {prefix} is all of {network}; write that, or one address without /BITS")
    };
    loose.map(warning).collect()
}

/// Maps each quoted path of a configuration to the file and the first line that contain it.
pub struct PathLines(HashMap<String, (PathBuf, usize)>);

impl PathLines {
    /// Collects the quoted strings of the files, as paths relative to the folder of each.
    pub fn new<'f>(texts: impl Iterator<Item = (&'f Path, String)>) -> PathLines {
        let mut lines = HashMap::new();
        for (file, text) in texts {
            let folder = file.parent().unwrap_or(Path::new(""));
            for (number, line) in text.lines().enumerate() {
                // Every second piece is inside quotes.
                let quoted = line.split('"').skip(1).step_by(2);
                for path in quoted.filter(|it| !it.is_empty()) {
                    // Relative paths are relative to the folder of their file.
                    let path = folder.join(path).display().to_string();
                    lines.entry(path).or_insert((file.to_owned(), number + 1));
                }
            }
        }
        PathLines(lines)
    }

    /// Prefixes each problem with the place of the first line that contains the problem's path, if there is one.
    pub fn locate(&self, problems: &str) -> Vec<String> {
        let locate = |problem: &str| match self.find(problem) {
            Some((file, line)) => format!("{}:{line}: {problem}", file.display()),
            None => problem.to_owned(),
        };
        problems.lines().map(locate).collect()
    }

    /// The place of the longest known path in the problem's text.
    fn find(&self, problem: &str) -> Option<&(PathBuf, usize)> {
        // A path may end at a colon, space or comma, and may itself contain these characters, so all possible ends are
        // tried.
        let starts = problem.match_indices(' ').map(|(at, _)| at + 1);
        let words = [0].into_iter().chain(starts).flat_map(|start| {
            let rest = &problem[start..];
            let ends = rest.match_indices([':', ' ', ',']).map(|(at, _)| at);
            ends.chain([rest.len()]).map(|end| &rest[..end])
        });
        let matches = words.filter_map(|word| Some((word.len(), self.0.get(word)?)));
        // The longest path is the most specific: a folder's path is a prefix of the paths of its files.
        matches.max_by_key(|(len, _)| *len).map(|(_, place)| place)
    }
}

fn accounts(config: &Config, problems: &mut Vec<String>) {
    let server = &config.server;
    if let Some(name) = &server.user
        && !matches!(User::from_name(name), Ok(Some(_)))
    {
        problems.push(format!("server.user: user {name} does not exist"));
    }
    if let Some(name) = &server.group
        && !matches!(Group::from_name(name), Ok(Some(_)))
    {
        problems.push(format!("server.group: group {name} does not exist"));
    }
    let routes = config.sites.iter().flat_map(|site| &site.routes);
    let users = routes.filter_map(|route| match &route.to {
        RouteTo::Cgi(cgi) => cgi.user.as_deref(),
        _ => None,
    });
    for name in users.collect::<BTreeSet<_>>() {
        if !matches!(User::from_name(name), Ok(Some(_))) {
            problems.push(format!("cgi: user {name} does not exist"));
        }
    }
}

/// Checks the ticket key file. `run` opens it before it gives up root.
fn ticket_keys(config: &Config, problems: &mut Vec<String>) {
    let Some(path) = &config.server.ticket_keys else {
        return;
    };
    let writable = log_check::can_write(path).map_err(|error| error.to_string());
    if let Err(error) = writable.and_then(|()| lowroad_tls_listener::check_ticket_keys(path)) {
        problems.push(format!("ticket_keys: {}: {error}", path.display()));
    }
}

/// Checks the configured admin socket. `run` opens it before it gives up root, and continues without the socket if that
/// fails. The default path is not checked, since it depends on how the server is started.
fn admin_socket(config: &Config, warnings: &mut Vec<String>) {
    let path = config.server.admin.as_deref();
    warnings.extend(path.and_then(|path| listeners::check(path).err()));
}

/// Checks the disk cache's folder. `run` locks it before it gives up root, and continues without a disk cache if that
/// fails. A locked folder is no problem: a running server may use it.
fn disk_cache(config: &Config, warnings: &mut Vec<String>) {
    let path = config.server.disk_cache.as_deref();
    let failure = path.and_then(|path| DiskFolder::check(path).err());
    warnings.extend(failure.map(|error| disk_cache_warning(&error)));
}

/// Checks whether the server's user can reach the disk cache's folder, since files in it are opened as that user.
fn reach_disk_cache(config: &Config, warnings: &mut Vec<String>) {
    let Some(path) = &config.server.disk_cache else {
        return;
    };
    let found = path.symlink_metadata();
    let denied = found
        .err()
        .filter(|it| it.kind() == io::ErrorKind::PermissionDenied);
    let warning = denied.map(|error| disk_cache_warning(&FolderError::System(path.clone(), error)));
    // If the process already ran as that user, `disk_cache` has reported the same warning.
    warnings.extend(warning.filter(|warning| !warnings.contains(warning)));
}

fn disk_cache_warning(reason: &FolderError) -> String {
    format!("continues without disk_cache: {reason}")
}

/// Checks the files for TLS to origins. The privileged helper opens those that only root can read.
#[cfg(feature = "programs")]
fn origins(config: &Config, problems: &mut Vec<String>) {
    let routes = config.sites.iter().flat_map(|site| &site.routes);
    let mut failures = BTreeSet::new();
    // Mirrors have further files.
    for origin in routes.flat_map(lowroad_config::RouteConfig::origins) {
        if let Err(error) = lowroad_routes::gateway_handlers::check_tls(origin) {
            failures.insert(error);
        }
    }
    problems.extend(failures);
}

/// Checks that the document roots can be read.
fn roots(config: &Config, problems: &mut Vec<String>) {
    for site in &config.sites {
        let root = match &site.root {
            SiteRoot::Folder(folder) => Some(folder),
            // The folders of single hosts are opened at the first request for each.
            SiteRoot::PerHost { prefix, .. } => Some(prefix),
            SiteRoot::None => None,
        };
        let aliases = site.aliases.iter().map(|alias| &alias.folder);
        for folder in root.into_iter().chain(aliases) {
            if let Err(error) = access(folder, Access::READ_OK | Access::EXEC_OK) {
                let folder = folder.display();
                problems.push(format!("the folder {folder} can't be served: {error}"));
            }
        }
    }
}

fn access(path: &Path, mode: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, mode, AtFlags::EACCESS)?)
}

/// Checks the environment variables (`${NAME}`) of database URLs.
fn variables(config: &Config, problems: &mut Vec<String>) {
    for database in &config.databases {
        for text in database.url.split("${").skip(1) {
            let name = text.split('}').next().unwrap_or_default();
            if std::env::var_os(name).is_none() {
                problems.push(format!(
                    "database {}: ${{{name}}} is not set in this environment",
                    database.name
                ));
            }
        }
    }
}

/// Checks the ELF headers of native modules. The modules are not loaded, since loading would run their code.
fn libraries(config: &Config, problems: &mut Vec<String>) {
    for module in &config.modules {
        let ModuleCode::Library(path) = &module.code else {
            continue;
        };
        // The start of the ELF header, up to `e_machine`, the last field that is checked.
        let mut header = [0; 20];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
        if let Err(error) = read {
            problems.push(format!(
                "module {}: {}: {error}",
                module.name,
                path.display()
            ));
        } else if !is_library(&header) {
            problems.push(format!(
                "module {}: {} is no shared library for this machine",
                module.name,
                path.display()
            ));
        }
    }
}

/// Whether a file begins as a 64-bit ELF shared object for this architecture (System V ABI, ELF header).
fn is_library(header: &[u8; 20]) -> bool {
    const SHARED_OBJECT: u16 = 3;
    let machine: u16 = match std::env::consts::ARCH {
        "x86_64" => 62,
        "aarch64" => 183,
        _ => return header.starts_with(b"\x7fELF"),
    };
    // `e_type` is at offset 16, `e_machine` at 18.
    let number = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    header.starts_with(b"\x7fELF\x02\x01") && number(16) == SHARED_OBJECT && number(18) == machine
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_with_host_bits_are_warnings() {
        let text = "[[site]]\nroot = \"/srv\"\ntrusted_proxies = [\"10.0.0.1/8\", \"10.0.0.1\", \"0.0.0.0/0\"]\n\
                    purge_from = [\"2001:db8::1/32\", \"2001:db8::/32\"]\n\
                    [[site.rule]]\nexcept = \"192.0.2.9/24\"\naddresses = \"192.0.2.9/32\"\ndeny = 403\n";
        let config = lowroad_config::parse(text, Path::new("lowroad.toml"));
        let found = host_bits(&config.expect("a configuration"));
        let meaning = "; write that, or one address without /BITS";
        let expected = [
            "trusted_proxies: 10.0.0.1/8 is all of 10.0.0.0/8",
            "purge_from: 2001:db8::1/32 is all of 2001:db8::/32",
            "rule except: 192.0.2.9/24 is all of 192.0.2.0/24",
        ];
        assert_eq!(found, expected.map(|text| format!("{text}{meaning}")));
    }

    #[test]
    fn problem_is_located_by_its_path() {
        let text = "root = \"/srv\"\n# a\ncertificate = [\"x.pem\", \"/srv/x.pem\"]\nkey = \"x.key\" # \"x.key\"\n";
        let file = Path::new("/etc/lowroad/lowroad.toml");
        let lines = PathLines::new([(file, text.to_owned())].into_iter());
        for (problem, want) in [
            ("/etc/lowroad/x.pem: cannot be read", Some(3)),
            ("can't write /etc/lowroad/x.key: no", Some(4)),
            ("/srv/x.pem: cannot be read", Some(3)),
            ("/srv/x.pem.old: cannot be read", None),
            ("/mnt/etc/lowroad/x.key: no", None),
            ("the site has no certificate for a.example", None),
        ] {
            let line = lines.find(problem).map(|(_, line)| *line);
            assert_eq!(line, want, "{problem}");
        }
    }
}

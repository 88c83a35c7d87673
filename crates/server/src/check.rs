//! `lowroad check`: what would keep a configuration from working on this machine, beyond what its text says. Each part
//! of the server is asked for its own; here are those that have no other place: users, logs, variables, libraries.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use lowroad_config::{Config, LogTarget, ModuleCode};
use nix::unistd::{Group, User};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::cli;
use crate::programs::modules;
use crate::say;
use crate::tls;

/// Says what is wrong with a configuration file, or that nothing is.
///
/// # Errors
/// All that is wrong with it, a line each.
pub fn check(file: &Path) -> Result<(), String> {
    let config = cli::load(file)?;
    let mut problems = Vec::new();
    accounts(&config, &mut problems);
    logs(&config, &mut problems);
    variables(&config, &mut problems);
    libraries(&config, &mut problems);
    problems.extend(modules::check(&config).err());
    problems.extend(tls::check(&config).err());
    if !problems.is_empty() {
        let lines = placed(&problems.join("\n"), file);
        return Err(lines.join("\n"));
    }
    let count = config.sites.len();
    let sites = if count == 1 { "site" } else { "sites" };
    say::out(format_args!(
        "{}: {count} {sites}, nothing wrong\n",
        file.display()
    ))
}

/// Problems, with the line of the file that names what each is about, where that is a path.
fn placed(problems: &str, file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let folder = file.parent().unwrap_or(Path::new(""));
    let place = |problem: &str| match line_of(problem, &text, folder) {
        Some(line) => format!("{}:{line}: {problem}", file.display()),
        None => problem.to_owned(),
    };
    problems.lines().map(place).collect()
}

/// The first line of a configuration with the longest path in it that a problem names.
fn line_of(problem: &str, text: &str, folder: &Path) -> Option<usize> {
    let mut found: Option<(usize, usize)> = None;
    for (number, line) in text.lines().enumerate() {
        for quoted in line
            .split('"')
            .skip(1)
            .step_by(2)
            .filter(|it| !it.is_empty())
        {
            let path = folder.join(quoted).display().to_string();
            let is_longer = found.is_none_or(|(len, _)| path.len() > len);
            if is_longer && names(problem, &path) {
                found = Some((path.len(), number + 1));
            }
        }
    }
    found.map(|(_, line)| line)
}

/// Whether a text has a path as a word, and not as the start of another.
fn names(text: &str, path: &str) -> bool {
    let ends = |after: &str| after.is_empty() || after.starts_with([':', ' ', ',']);
    let begins = |before: &str| before.is_empty() || before.ends_with(' ');
    text.match_indices(path)
        .any(|(at, _)| begins(&text[..at]) && ends(&text[at + path.len()..]))
}

fn accounts(config: &Config, problems: &mut Vec<String>) {
    let server = &config.server;
    if let Some(name) = &server.user
        && !matches!(User::from_name(name), Ok(Some(_)))
    {
        problems.push(format!("server.user: there is no user {name}"));
    }
    if let Some(name) = &server.group
        && !matches!(Group::from_name(name), Ok(Some(_)))
    {
        problems.push(format!("server.group: there is no group {name}"));
    }
}

/// Whoever checks is taken for whoever starts the server: it opens its logs before it becomes somebody else.
fn logs(config: &Config, problems: &mut Vec<String>) {
    let access = config.log.access.as_ref().map(|access| &access.path);
    for target in [Some(&config.log.error), access].into_iter().flatten() {
        let LogTarget::File(path) = target else {
            continue;
        };
        let writes = |at: &Path| accessat(CWD, at, Access::WRITE_OK, AtFlags::EACCESS);
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let able = match path.exists() {
            true => writes(path),
            false => writes(folder.unwrap_or(Path::new("."))),
        };
        if let Err(error) = able {
            problems.push(format!("log: can't write {}: {error}", path.display()));
        }
    }
}

/// `${NAME}` in the URLs of databases.
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

/// Native modules are not loaded, as that would run their code; but what is no shared library of this machine is none.
fn libraries(config: &Config, problems: &mut Vec<String>) {
    for module in &config.modules {
        let ModuleCode::Library(path) = &module.code else {
            continue;
        };
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
    let number = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    header.starts_with(b"\x7fELF\x02\x01") && number(16) == SHARED_OBJECT && number(18) == machine
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_has_the_line_of_its_path() {
        let text = "root = \"/srv\"\n# a\ncertificate = [\"x.pem\", \"/srv/x.pem\"]\nkey = \"x.key\" # \"x.key\"\n";
        let line = |problem: &str| line_of(problem, text, Path::new("/etc/lowroad"));
        for (problem, want) in [
            ("/etc/lowroad/x.pem: cannot be read", Some(3)),
            ("can't write /etc/lowroad/x.key: no", Some(4)),
            ("/srv/x.pem: cannot be read", Some(3)),
            ("/srv/x.pem.old: cannot be read", None),
            ("/mnt/etc/lowroad/x.key: no", None),
            ("no certificate of its site is for a.example", None),
        ] {
            assert_eq!(line(problem), want, "{problem}");
        }
    }
}

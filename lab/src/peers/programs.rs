//! Finds the programs of peers and of the lab, and their versions.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::table::PeerDescription;

/// Folders of servers that may be missing in a user's PATH.
const SYSTEM: [&str; 4] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin"];

/// The path of a program; `php-fpm` stands for the newest `php-fpm8.2` or the like.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path)
        .chain(SYSTEM.iter().map(PathBuf::from))
        .collect();
    let exact = folders
        .iter()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    if exact.is_some() || name != "php-fpm" {
        return exact;
    }
    folders
        .iter()
        .flat_map(|folder| versions_of(folder, name))
        .max()
}

fn versions_of(folder: &Path, name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_version = |path: &PathBuf| {
        let file = path
            .file_name()
            .and_then(|file| file.to_str())
            .unwrap_or_default();
        let rest = file.strip_prefix(name).unwrap_or_default();
        rest.starts_with(|digit: char| digit.is_ascii_digit())
    };
    entries
        .map(|entry| entry.path())
        .filter(is_version)
        .collect()
}

/// The path of the lab's program: the running one or, in the lab's tests, the one built next to it.
pub fn lab() -> Result<PathBuf, String> {
    let own_path = std::env::current_exe()
        .map_err(|error| format!("cannot find the lab's own program: {error}"))?;
    if own_path
        .file_name()
        .is_some_and(|name| name == "lowroad-lab")
    {
        return Ok(own_path);
    }
    sibling(&own_path, "lowroad-lab")
        .ok_or_else(|| format!("lowroad-lab not found next to {}", own_path.display()))
}

/// The path of `lowroad`: the configured one, else the one next to the lab's program, else the one in PATH.
pub fn lowroad(configured: &str) -> Result<PathBuf, String> {
    if !configured.is_empty() {
        let path =
            std::path::absolute(configured).map_err(|error| format!("{configured}: {error}"))?;
        if path.is_file() {
            return Ok(path);
        }
        return Err(format!(
            "program {configured} not found (setting binary of lowroad)"
        ));
    }
    let own_path = std::env::current_exe().ok();
    own_path.and_then(|lab_path| sibling(&lab_path, "lowroad")).or_else(|| find("lowroad")).ok_or_else(|| {
        "lowroad is neither next to this program nor in PATH: build it (cargo build --release -p \
         lowroad), or name it with the setting binary"
            .to_owned()
    })
}

/// Searches the folder of `program` and that folder's parent, since tests run from a subfolder.
fn sibling(program: &Path, name: &str) -> Option<PathBuf> {
    let folders = program.ancestors().skip(1).take(2);
    folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Whether a peer is a level of Lowroad.
pub fn is_lowroad(peer: &str) -> bool {
    peer == "lowroad" || peer.starts_with("lowroad-")
}

/// Whether a peer needs Lowroad's program: its levels, and servers behind one of them.
pub fn needs_lowroad(peer: &str) -> bool {
    is_lowroad(peer) || peer.ends_with("-softirq")
}

/// Whether a peer runs programs in PHP.
pub fn runs_php(peer: &str) -> bool {
    peer.ends_with("-php")
}

/// Whether all programs of a peer are installed.
pub fn installed(peer: &PeerDescription) -> bool {
    match peer.name {
        name if is_lowroad(name) && peer.unavailable.is_none() => lowroad("").is_ok(),
        _ => peer.unavailable.is_none() && peer.programs.iter().all(|name| find(name).is_some()),
    }
}

/// A peer's version: the first line of each of its programs.
pub fn version(peer: &PeerDescription, lowroad: Option<&Path>) -> String {
    match peer.name {
        "howl" => format!("howl {}", env!("CARGO_PKG_VERSION")),
        name if is_lowroad(name) => {
            lowroad.map_or_else(String::new, |path| first_line(path, "--version"))
        }
        _ => {
            let servers = peer
                .programs
                .iter()
                .take(2)
                // MariaDB's clients and installers are not the server.
                .filter(|name| !name.starts_with("mariadb-"));
            let lines: Vec<String> = servers
                .filter(|name| **name != "mariadb")
                .filter_map(|name| Some(first_line(&find(name)?, flag(name))))
                .collect();
            lines.join(", ")
        }
    }
}

fn flag(program: &str) -> &'static str {
    match program {
        "varnishd" | "traffic_server" => "-V",
        "mariadbd" => "--version",
        "caddy" => "version",
        _ => "-v",
    }
}

fn first_line(program: &Path, flag: &str) -> String {
    let Ok(output) = Command::new(program)
        .arg(flag)
        .stdin(Stdio::null())
        .output()
    else {
        return String::new();
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    shorten(text.lines().next().unwrap_or_default())
}

/// Removes the parts that all versions of a program share.
fn shorten(line: &str) -> String {
    let line = line.trim();
    let line = line.strip_prefix("nginx version: ").unwrap_or(line);
    let line = line.strip_prefix("Server version: ").unwrap_or(line);
    let end = [" (built", " - ", " for debian", " revision"]
        .iter()
        .filter_map(|mark| line.find(mark))
        .min();
    let line = line[..end.unwrap_or(line.len())].trim();
    // "/usr/sbin/mariadbd  Ver 10", "varnishd (varnish-7"
    let line = line
        .rsplit_once("/mariadbd  Ver ")
        .map_or(line, |(_, rest)| rest);
    // "Traffic Server 9.2.9 Apr  4 2026 14:52:39 localhost"
    let built = |rest: &str| rest.find(' ');
    let name = "Traffic Server ";
    let end = line.strip_prefix(name).and_then(built);
    let line = end.map_or(line, |end| &line[..name.len() + end]);
    line.strip_prefix("varnishd (").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_shortened() {
        assert_eq!(shorten("nginx version: nginx/1.22.1"), "nginx/1.22.1");
        assert_eq!(
            shorten("lighttpd/1.4.69 (ssl) - a light and fast webserver"),
            "lighttpd/1.4.69 (ssl)"
        );
        assert_eq!(
            shorten("varnishd (varnish-7.1.1 revision 7cee1)"),
            "varnish-7.1.1"
        );
        assert_eq!(
            shorten("Traffic Server 9.2.9 Apr  4 2026 14:52:39 localhost"),
            "Traffic Server 9.2.9"
        );
        let mariadb = "/usr/sbin/mariadbd  Ver 10.11.19-MariaDB for debian-linux-gnu";
        assert_eq!(shorten(mariadb), "10.11.19-MariaDB");
    }

    #[test]
    fn missing_program_is_not_found() {
        assert_eq!(find("no-program-has-this-name"), None);
        assert!(lowroad("/nowhere/lowroad").is_err_and(|text| text.contains("setting binary")));
    }
}

//! The plan of a peer: its files and commands, for one run of the peer.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::job::JobStep;
use super::table::CheckedSettings;

/// The parameters of a run, which the peer's files contain.
#[derive(Clone, Copy)]
pub struct PeerRun<'a> {
    /// The served folder.
    pub root: &'a Path,
    /// The peer's processes or threads.
    pub workers: u32,
    /// The peer's address.
    pub address: SocketAddr,
    /// The address of a server behind the peer, if it can't be a Unix socket.
    pub origin: SocketAddr,
    /// The temporary folder of this peer.
    pub folder: &'a Path,
    /// The peer's settings.
    pub settings: &'a CheckedSettings,
    /// Whether the peer runs as root.
    pub as_root: bool,
}

/// A peer's files and commands.
#[derive(Debug, Default)]
pub struct PeerPlan {
    /// Files in the peer's folder: name, text.
    pub files: Vec<(String, String)>,
    /// The steps, in order.
    pub steps: Vec<JobStep>,
    /// A Unix socket on which the peer answers too.
    pub socket: Option<PathBuf>,
    /// Whether the peer does not speak HTTP: it is ready when the steps are done.
    pub silent: bool,
}

impl PeerPlan {
    /// Adds a file.
    pub fn file(&mut self, name: &str, text: String) {
        self.files.push((name.to_owned(), text));
    }

    /// Adds a step that starts a program, which keeps running.
    pub fn start(&mut self, words: &[&str]) {
        self.steps.push(JobStep::Start(owned(words)));
    }

    /// Adds a step that runs a program, which must succeed.
    pub fn run(&mut self, words: &[&str], input: Option<PathBuf>) {
        self.steps.push(JobStep::Run(owned(words), input));
    }

    /// The plan as text for the report: commands, then files.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for step in &self.steps {
            if let JobStep::Start(words) | JobStep::Run(words, _) = step {
                text.push_str(&format!("$ {}\n", words.join(" ")));
            }
        }
        for (name, content) in &self.files {
            text.push_str(&format!("\n==> {name} <==\n{}\n", content.trim_end()));
        }
        text
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

impl PeerRun<'_> {
    /// A path in the peer's folder, as text.
    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Fills in a template with the values of the run and with `extra_values`.
    pub fn fill(&self, template: &str, extra_values: &[(&str, &str)]) -> String {
        let root = self.root.display().to_string();
        let folder = self.folder.display().to_string();
        let address = self.address.to_string();
        let ip = self.address.ip().to_string();
        let port = self.address.port().to_string();
        let origin_ip = self.origin.ip().to_string();
        let origin_port = self.origin.port().to_string();
        let workers = self.workers.to_string();
        let php_root = match self.settings.text("php_root") {
            "" => &root,
            configured => configured,
        };
        let mut values = vec![
            ("root", root.as_str()),
            ("folder", &folder),
            ("listen", &address),
            ("ip", &ip),
            ("port", &port),
            ("origin_ip", &origin_ip),
            ("origin_port", &origin_port),
            ("workers", &workers),
            ("php_root", php_root),
        ];
        for name in [
            "sendfile",
            "memory_mb",
            "php_children",
            "specweb99_data",
            "db",
        ] {
            values.push((name, self.settings.text(name)));
        }
        values.extend_from_slice(extra_values);
        fill(template, &values)
    }
}

/// Replaces each `{{name}}`; if a name occurs several times in `values`, its last value applies.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut parts = template.split("{{");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").expect("templates close their braces");
        let value = values
            .iter()
            .rev()
            .find(|(value_name, _)| *value_name == name);
        text.push_str(value.expect("templates use known names").1);
        text.push_str(rest);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_placeholders_are_replaced() {
        let values = [("a", "1"), ("b", "2"), ("a", "3")];
        assert_eq!(fill("x{{a}}y{{b}}{{a}}", &values), "x3y23");
        assert_eq!(fill("plain { }", &values), "plain { }");
    }
}

//! The servers of the standard table: their packages, their configurations, and their start commands in the guest.
//! Independent of QEMU and traffic. The configurations (lab/icount) follow the servers' own recommendations for static
//! files: one worker, no log.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::drive::{ConnectionMode, NAME};
use super::guest::{GuestNetwork, memory_file};
use super::kernel::{CopiedPath, GuestContent, build_once, cache, run, wait_until_printed};
use super::table::CountColumn;
use crate::peers::programs::find as program;

/// A server that can be measured.
#[derive(Clone, Copy, Debug)]
pub struct CountedServer {
    /// Its name on the command line and in the table.
    pub name: &'static str,
    /// Its program on the host.
    program: &'static str,
    /// The Debian package that contains it; `None` for Lowroad.
    pub package: Option<&'static str>,
    /// The argument that prints its version.
    version: &'static str,
    /// Its configuration files: path and text.
    files: &'static [(&'static str, &'static str)],
    /// Files that the server loads at run time: folder, and prefix of the name.
    loads: &'static [(&'static str, &'static str)],
    /// The command that starts it in the guest.
    command: &'static str,
    /// Configuration files for TLS, and the command that starts the server with them, on port 443 in addition to
    /// `command`.
    tls: Option<(&'static [(&'static str, &'static str)], &'static str)>,
    /// Whether it accepts HTTP/3 with this configuration.
    http3: bool,
    /// The port for keep-alive connections, if not 80.
    keep_alive_port: u16,
    /// Whether Lowroad's fast path (softirq level) is attached in front of the server.
    level: bool,
    /// Whether it is a bare image of the site, built by `program`, without Linux and files.
    pub is_image: bool,
    /// Whether it is a reverse proxy for an origin server on the host's side of the network.
    pub is_proxy: bool,
    /// Whether it is measured without `--server`.
    pub is_default: bool,
    /// A mode that the server does not support, with the reason.
    unsupported: Option<(ConnectionMode, &'static str)>,
}

/// The defaults of all servers.
const USUAL: CountedServer = CountedServer {
    name: "",
    program: "",
    package: None,
    version: "--version",
    files: &[],
    loads: &[],
    command: "",
    tls: None,
    http3: false,
    keep_alive_port: 80,
    level: false,
    is_image: false,
    is_proxy: false,
    is_default: true,
    unsupported: None,
};

const LOWROAD: CountedServer = CountedServer {
    name: "lowroad",
    program: "lowroad",
    command: "lowroad serve /srv --listen 0.0.0.0:80 --workers 1 &",
    tls: Some((
        &[(
            "etc/lowroad-tls.toml",
            include_str!("../../icount/lowroad-tls.toml"),
        )],
        "lowroad run -c /etc/lowroad-tls.toml &",
    )),
    http3: true,
    ..USUAL
};

const NGINX: CountedServer = CountedServer {
    name: "nginx",
    program: "nginx",
    package: Some("nginx-light"),
    version: "-v",
    files: &[("etc/nginx.conf", include_str!("../../icount/nginx.conf"))],
    command: "nginx -c /etc/nginx.conf",
    tls: Some((
        &[(
            "etc/nginx-tls.conf",
            include_str!("../../icount/nginx-tls.conf"),
        )],
        "nginx -c /etc/nginx-tls.conf",
    )),
    ..USUAL
};

const HAPROXY: CountedServer = CountedServer {
    name: "haproxy",
    program: "haproxy",
    package: Some("haproxy"),
    version: "-v",
    files: &[(
        "etc/haproxy.conf",
        include_str!("../../icount/haproxy.conf"),
    )],
    command: "httpd -p 127.0.0.1:8080 -h /srv; haproxy -f /etc/haproxy.conf &",
    tls: Some((
        &[(
            "etc/haproxy-tls.conf",
            include_str!("../../icount/haproxy-tls.conf"),
        )],
        "haproxy -f /etc/haproxy-tls.conf &",
    )),
    unsupported: Some((
        ConnectionMode::Close,
        "its cache bypasses HTTP/1.0 requests",
    )),
    ..USUAL
};

const APACHE_PREFORK: CountedServer = CountedServer {
    name: "apache-prefork",
    program: "apache2",
    package: Some("apache2-bin"),
    version: "-v",
    files: &[
        (
            "etc/apache.conf",
            include_str!("../../icount/apache-prefork.conf"),
        ),
        APACHE_COMMON,
    ],
    loads: &[
        (APACHE_MODULES, "mod_mpm_prefork.so"),
        (APACHE_MODULES, "mod_authz_core.so"),
        (APACHE_MODULES, "mod_mime.so"),
    ],
    command: "apache2 -f /etc/apache.conf",
    ..USUAL
};

/// Attaches the fast path to the port of the running server. The fast path gets a fixed freshness lifetime: the files
/// are so new that their dates give no heuristic freshness.
const ATTACH: &str = "lowroad attach 80 --interface eth0 --ttl 600 &";
/// Output of `lowroad attach` when the fast path answers requests.
pub const ATTACHED: &str = "attached to port";

const APACHE_COMMON: (&str, &str) = (
    "etc/apache-common.conf",
    include_str!("../../icount/apache-common.conf"),
);
const APACHE_MODULES: &str = "/usr/lib/apache2/modules";

/// All servers, in the table's order.
pub const ALL: [CountedServer; 20] = [
    LOWROAD,
    CountedServer {
        name: "lowroad-log-binary",
        program: "lowroad",
        files: &[(
            "etc/lowroad.toml",
            include_str!("../../icount/lowroad-log-binary.toml"),
        )],
        command: "lowroad run -c /etc/lowroad.toml &",
        is_default: false,
        ..USUAL
    },
    CountedServer {
        name: "lowroad-log-combined",
        program: "lowroad",
        files: &[(
            "etc/lowroad.toml",
            include_str!("../../icount/lowroad-log-combined.toml"),
        )],
        command: "lowroad run -c /etc/lowroad.toml &",
        is_default: false,
        ..USUAL
    },
    CountedServer {
        name: "lowroad-ktls",
        tls: Some((
            &[(
                "etc/lowroad-tls.toml",
                include_str!("../../icount/lowroad-ktls.toml"),
            )],
            "lowroad run -c /etc/lowroad-tls.toml &",
        )),
        http3: false,
        ..LOWROAD
    },
    CountedServer {
        name: "lowroad-softirq",
        program: "lowroad",
        command: "lowroad serve /srv --listen 0.0.0.0:80 --workers 1 --softirq auto &",
        ..USUAL
    },
    CountedServer {
        name: "lowroad-bare",
        program: "lowroad",
        is_image: true,
        ..USUAL
    },
    NGINX,
    CountedServer {
        name: "nginx-ktls",
        tls: Some((
            &[(
                "etc/nginx-tls.conf",
                include_str!("../../icount/nginx-ktls.conf"),
            )],
            "nginx -c /etc/nginx-tls.conf",
        )),
        ..NGINX
    },
    CountedServer {
        name: "nginx-softirq",
        level: true,
        ..NGINX
    },
    CountedServer {
        name: "lighttpd",
        program: "lighttpd",
        package: Some("lighttpd"),
        version: "-v",
        files: &[(
            "etc/lighttpd.conf",
            include_str!("../../icount/lighttpd.conf"),
        )],
        loads: &[("/usr/lib/lighttpd", "mod_")],
        command: "lighttpd -f /etc/lighttpd.conf",
        ..USUAL
    },
    CountedServer {
        name: "h2o",
        program: "h2o",
        package: Some("h2o"),
        files: &[("etc/h2o.conf", include_str!("../../icount/h2o.conf"))],
        command: "h2o -c /etc/h2o.conf &",
        tls: Some((
            &[(
                "etc/h2o-tls.conf",
                include_str!("../../icount/h2o-tls.conf"),
            )],
            "h2o -c /etc/h2o-tls.conf &",
        )),
        ..USUAL
    },
    CountedServer {
        name: "apache-event",
        program: "apache2",
        package: Some("apache2-bin"),
        version: "-v",
        files: &[
            (
                "etc/apache.conf",
                include_str!("../../icount/apache-event.conf"),
            ),
            APACHE_COMMON,
        ],
        loads: &[
            (APACHE_MODULES, "mod_mpm_event.so"),
            (APACHE_MODULES, "mod_authz_core.so"),
            (APACHE_MODULES, "mod_mime.so"),
        ],
        command: "apache2 -f /etc/apache.conf",
        ..USUAL
    },
    APACHE_PREFORK,
    CountedServer {
        name: "apache-softirq",
        level: true,
        ..APACHE_PREFORK
    },
    CountedServer {
        name: "varnish",
        program: "varnishd",
        package: Some("varnish"),
        version: "-V",
        files: &[("etc/varnish.vcl", VARNISH)],
        // The guest has no compiler, so the configuration is compiled on the host.
        command: "httpd -p 127.0.0.1:8080 -h /srv; mkdir -p /tmp/varnish; \
                  varnishd -j none -n /tmp/varnish -a :80 -s malloc,64m -f /etc/varnish.vcl \
                  -p cc_command='exec cp /usr/lib/vcl.so %o' -p thread_pools=1 \
                  -p thread_pool_min=20",
        ..USUAL
    },
    HAPROXY,
    CountedServer {
        name: "lowroad-proxy",
        program: "lowroad",
        command: "lowroad accelerate http://{host}:8080 --listen 0.0.0.0:80 --workers 1 &",
        is_proxy: true,
        is_default: false,
        ..USUAL
    },
    CountedServer {
        name: "nginx-proxy",
        files: &[(
            "etc/nginx.conf",
            include_str!("../../icount/nginx-proxy.conf"),
        )],
        is_proxy: true,
        is_default: false,
        ..NGINX
    },
    CountedServer {
        name: "haproxy-proxy",
        files: &[(
            "etc/haproxy.conf",
            include_str!("../../icount/haproxy-proxy.conf"),
        )],
        command: "haproxy -f /etc/haproxy.conf &",
        is_proxy: true,
        is_default: false,
        unsupported: None,
        ..HAPROXY
    },
    CountedServer {
        name: "howl",
        program: "lowroad-lab",
        command: "lowroad-lab howl /srv --listen 0.0.0.0:80 & \
                  lowroad-lab howl /srv --listen 0.0.0.0:81 --keep-alive &",
        keep_alive_port: 81,
        ..USUAL
    },
];

const VARNISH: &str = include_str!("../../icount/varnish.vcl");

/// Finds the server with that name.
///
/// # Errors
/// The name is unknown; the text lists the known ones.
pub fn find_server(name: &str) -> Result<CountedServer, String> {
    let matching = ALL.into_iter().find(|server| server.name == name);
    matching.ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|server| server.name).collect();
        format!(
            "unknown server {name:?}; the servers are {}",
            names.join(", ")
        )
    })
}

impl CountedServer {
    /// The path of the server's program; `lowroad` overrides the default path of Lowroad's program.
    ///
    /// # Errors
    /// The program is not installed; the text names a remedy.
    pub fn installed(&self, lowroad: Option<&Path>) -> Result<PathBuf, String> {
        match (self.name, self.package) {
            ("howl", _) => {
                env::current_exe().map_err(|error| format!("this program's path: {error}"))
            }
            (_, None) => lowroad_path(lowroad),
            (_, Some(package)) => program(self.program)
                .ok_or_else(|| format!("not installed: apt-get install {package}, or --install")),
        }
    }

    /// The server's version: the first word of its output that begins with a digit.
    pub fn version(&self, program: &Path) -> String {
        let output = Command::new(program).arg(self.version).output();
        let printed = output.map_or(String::new(), |output| {
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        });
        parse_version(&printed).unwrap_or("?").to_owned()
    }

    /// The port for the requests of a column.
    pub fn port(&self, column: CountColumn) -> u16 {
        match column {
            CountColumn::Page(ConnectionMode::KeepAlive, _) => self.keep_alive_port,
            CountColumn::Page(ConnectionMode::Close, _) | CountColumn::Mix(_) => 80,
            CountColumn::Page(_, _) => 443,
        }
    }

    /// The reason why the server can't have this figure.
    pub fn unsupported_reason(&self, column: CountColumn) -> Option<String> {
        let CountColumn::Page(mode, _) = column else {
            return None;
        };
        if mode.is_tls() && self.tls.is_none() {
            return Some("not measured over TLS".into());
        }
        if mode.is_http3() && !self.http3 {
            return Some("not measured over HTTP/3".into());
        }
        let (unsupported_mode, reason) = self.unsupported?;
        (unsupported_mode == mode).then(|| format!("{}: {reason}", mode.title()))
    }

    /// The content of the guest apart from the site; `lowroad` overrides the default path of Lowroad's program, and
    /// `over_tls` adds the TLS configuration.
    ///
    /// # Errors
    /// A file can't be read or built.
    pub fn content(
        &self,
        program: &Path,
        lowroad: Option<&Path>,
        network: &GuestNetwork,
        over_tls: bool,
    ) -> Result<GuestContent, String> {
        let mut content = GuestContent {
            command: self.command.to_owned(),
            ..GuestContent::default()
        };
        // The fast path is attached to the port of the running server, so it starts after the server.
        if self.level {
            content.command = format!(
                "{}\n{ATTACH}\n{}",
                self.command,
                wait_until_printed(ATTACHED)
            );
            content.copied.push(CopiedPath {
                source: lowroad_path(lowroad)?,
                path: "usr/bin/lowroad".into(),
            });
        }
        content.copied.push(CopiedPath {
            source: program.to_owned(),
            path: format!("usr/bin/{}", self.program),
        });
        let mut files = self.files.to_vec();
        if let Some((tls_files, command)) = self.tls.filter(|_| over_tls) {
            files.extend(tls_files);
            content.command = format!("{}\n{command}", content.command);
            content.generated.push(("etc/tls.pem".to_owned(), pair()?));
        }
        for (path, text) in files {
            content
                .generated
                .push((path.to_owned(), network.fill_in(text).into_bytes()));
        }
        for (folder, start) in self.loads {
            content.copied.extend(read_folder(folder, start)?);
        }
        if self.name == "varnish" {
            content.copied.push(CopiedPath {
                source: compiled_vcl(program, VARNISH)?,
                path: "usr/lib/vcl.so".into(),
            });
        }
        Ok(content)
    }
}

/// A key (ECDSA P-256) and its self-signed certificate for the guest's name; all servers then send a chain of one
/// certificate.
fn pair() -> Result<Vec<u8>, String> {
    let generated = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]);
    let generated = generated.map_err(|error| format!("a certificate: {error}"))?;
    Ok(
        [generated.signing_key.serialize_pem(), generated.cert.pem()]
            .concat()
            .into_bytes(),
    )
}

fn read_folder(folder: &str, start: &str) -> Result<Vec<CopiedPath>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{folder}: {error}"))?;
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let matching = paths.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(start) && name.ends_with(".so")
    });
    let copied = matching.map(|source| CopiedPath {
        path: source.display().to_string(),
        source,
    });
    Ok(copied.collect())
}

/// The `lowroad` binary from an option, or else [`built_lowroad`].
///
/// # Errors
/// The binary does not exist; the text explains how to get it.
pub fn lowroad_path(configured: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(path) = configured {
        let existing = path.is_file().then(|| path.to_owned());
        return existing.ok_or_else(|| format!("{}: no such file", path.display()));
    }
    built_lowroad().map_err(|error| format!("{error}, or give --lowroad PATH"))
}

/// The `lowroad` binary of the release build; counts of a debug build would be useless.
///
/// # Errors
/// The binary is not built; the text explains how to build it.
pub fn built_lowroad() -> Result<PathBuf, String> {
    let own_path = env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    // The lab's program is in the folder of a build profile, which is in the target folder.
    let target_folder = own_path.parent().and_then(Path::parent);
    let binary = target_folder.map(|target| target.join("release/lowroad"));
    let existing = binary
        .filter(|path| path.is_file())
        .or_else(|| program("lowroad"));
    existing.ok_or_else(|| {
        "lowroad is not built: run cargo build --release -p lowroad, or have it in PATH".into()
    })
}

/// Compiles Varnish's configuration on the host. Varnish would compile it at its start, but the guest has no compiler.
///
/// # Errors
/// Varnish or the compiler failed; the text is the output.
pub fn compiled_vcl(varnishd: &Path, text: &str) -> Result<PathBuf, String> {
    // The key includes metadata of the program, since another version compiles to another file.
    let program =
        fs::metadata(varnishd).map_err(|error| format!("{}: {error}", varnishd.display()))?;
    let sum = crc32fast::hash(format!("{text}{program:?}").as_bytes());
    build_once(&cache()?.join(format!("vcl-{sum:08x}.so")), |file| {
        let source = file.with_extension("c");
        // The text is passed by standard input, because Varnish reads files as another user, without access to the
        // cache folder.
        let mut command = Command::new(varnishd);
        command.args(["-C", "-f", "/dev/stdin"]);
        let result = command.stdin(memory_file(text.as_bytes())?).output();
        let output = result.map_err(|error| format!("varnishd: {error}"))?;
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        // Warnings precede the source: the Unix socket of an origin does not exist yet.
        let program = printed.find("/* ---===").map(|start| &printed[start..]);
        let program = program.ok_or_else(|| format!("varnishd -C: {printed}"))?;
        fs::write(&source, program).map_err(|error| format!("{}: {error}", source.display()))?;
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-pthread", "-fpic", "-shared", "-w", "-o"]);
        let compiled = run(gcc.arg(file).arg(&source));
        let _ = fs::remove_file(&source);
        compiled.map(drop)
    })
}

fn parse_version(output: &str) -> Option<&str> {
    let words =
        output.split(|letter: char| !(letter.is_ascii_alphanumeric() || ".-+~_".contains(letter)));
    let words = words.map(|word| word.trim_start_matches("varnish-").trim_end_matches('.'));
    words
        .filter(|word| word.contains('.'))
        .map(|word| word.split(['-', '+']).next().unwrap_or(word))
        .find(|word| word.starts_with(|letter: char| letter.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_extracted_from_server_output() {
        let cases = [
            ("nginx version: nginx/1.22.1", "1.22.1"),
            (
                "lighttpd/1.4.69 (ssl) - a light and fast webserver",
                "1.4.69",
            ),
            ("h2o version 2.2.5\nOpenSSL: OpenSSL 3.0.9", "2.2.5"),
            (
                "Server version: Apache/2.4.62 (Debian)\nServer built: 2024",
                "2.4.62",
            ),
            ("varnishd (varnish-7.1.1 revision 7cee1c58)", "7.1.1"),
            ("HAProxy version 2.6.12-1+deb12u1 2023/12/16", "2.6.12"),
            ("lowroad 0.1.0", "0.1.0"),
        ];
        for (said, version) in cases {
            assert_eq!(parse_version(said), Some(version), "{said}");
        }
        assert_eq!(parse_version("no idea"), None);
    }

    #[test]
    fn unknown_server_error_lists_known_names() {
        assert_eq!(find_server("nginx").expect("known").name, "nginx");
        let why = find_server("zeus").expect_err("unknown");
        assert!(why.contains("zeus") && why.contains("apache-prefork"));
    }
}

//! The man page sections that clap doesn't generate: files, signals, exit status, examples, references.

const FILES: &str = "\
.SH FILES
.TP
.I /etc/lowroad/lowroad.toml
The configuration, see
.BR lowroad.toml (5).
.TP
.I /run/lowroad
The admin socket of a server that root started; otherwise it is in \\fI$XDG_RUNTIME_DIR/lowroad\\fR.
.TP
.I /var/lib/lowroad
Certificates of ACME and other persistent data.
.TP
.I /var/cache/lowroad
A disk cache, if the configuration has one.
.TP
.I /var/log/lowroad
Logs of the service.
.TP
.I /usr/share/doc/lowroad/docs
The documentation.
";

const SIGNALS: &str = "\
.SH SIGNALS
.TP
.BR SIGTERM \", \" SIGINT \", \" SIGQUIT
Graceful shutdown: no new connections; requests in progress have \\fBdrain_timeout\\fR (30 s). A second signal ends the server at once.
.TP
.B SIGHUP
Reloads the configuration and reopens the logs. If the configuration has errors, the old one stays in use.
.TP
.B SIGUSR1
Reopens the logs.
";

const EXIT_STATUS: &str = "\
.SH EXIT STATUS
.TP
.B 0
Success; of a server, a graceful shutdown.
.TP
.B 1
Failure; standard error has the reason.
.TP
.B 2
The command line is wrong.
";

const EXIT_STATUS_OF_CHECK: &str = "\
.SH EXIT STATUS
.TP
.B 0
No problems.
.TP
.B 1
\\fBlowroad run\\fR would refuse the configuration.
.TP
.B 2
The command line is wrong.
.TP
.B 3
Warnings only: the server would start.
";

const EXIT_STATUS_OF_WAIT: &str = "\
.SH EXIT STATUS
.TP
.B 0
Success; with \\fB--wait\\fR, the servers have no requests.
.TP
.B 1
Failure; standard error has the reason.
.TP
.B 2
The command line is wrong.
.TP
.B 3
The servers get no new requests, but had some in progress when the time of \\fB--wait\\fR was over.
";

const EXIT_STATUS_OF_UPGRADE: &str = "\
.SH EXIT STATUS
.TP
.B 0
The new process has taken over; with \\fB--wait\\fR, the processes before it have ended.
.TP
.B 1
The running process continues; standard error has the reason.
.TP
.B 2
The command line is wrong.
.TP
.B 3
The new process has taken over, but an earlier one still had requests when the time of \\fB--wait\\fR was over.
";

const EXIT_STATUS_OF_LOG: &str = "\
.SH EXIT STATUS
.TP
.B 0
All records were read.
.TP
.B 1
There is no log, a file is no binary log or can't be read, or the output can't be written.
.TP
.B 2
The command line is wrong.
.TP
.B 3
Records are missing, as standard error reports; all others were read.
";

/// Pages of the commands that run a server, which handles signals.
const SERVERS: [&str; 4] = [
    "lowroad",
    "lowroad-accelerate",
    "lowroad-run",
    "lowroad-serve",
];

/// A page's name, and its example commands with explanations.
type PageExamples = (&'static str, &'static [(&'static str, &'static str)]);

const EXAMPLES: &[PageExamples] = &[
    (
        "lowroad",
        &[
            (
                "lowroad serve /srv/www",
                "Serves a folder at 127.0.0.1:8080.",
            ),
            (
                "lowroad accelerate http://127.0.0.1:3000 -l *:80",
                "Puts a cache in front of an application.",
            ),
            (
                "lowroad check -c lowroad.toml",
                "Reports the problems of a configuration.",
            ),
            ("lowroad run -c lowroad.toml", "Serves its sites."),
            ("lowroad reload", "Applies the changed configuration."),
            (
                "lowroad attach 80",
                "Answers hot requests in the kernel, in front of the server on port 80.",
            ),
        ],
    ),
    (
        "lowroad-serve",
        &[
            (
                "lowroad serve /srv/www -l *:80",
                "Serves a folder at port 80 of all addresses.",
            ),
            (
                "lowroad serve --tls --listing .",
                "Serves the current folder over TLS, with lists of files.",
            ),
        ],
    ),
    (
        "lowroad-accelerate",
        &[
            (
                "lowroad accelerate http://127.0.0.1:3000 -l *:80",
                "Puts a cache in front of a running application.",
            ),
            (
                "lowroad accelerate http://127.0.0.1:3000 -- node server.js",
                "Also starts and supervises the application.",
            ),
        ],
    ),
    (
        "lowroad-run",
        &[(
            "lowroad run -c /etc/lowroad/lowroad.toml",
            "Serves the sites of the configuration.",
        )],
    ),
    (
        "lowroad-check",
        &[(
            "lowroad check -c lowroad.toml",
            "Reports all problems of a configuration.",
        )],
    ),
    (
        "lowroad-config-docs",
        &[
            (
                "lowroad config docs",
                "Prints the reference of the configuration.",
            ),
            (
                "lowroad config docs reference",
                "Writes one page a table into the folder.",
            ),
        ],
    ),
    (
        "lowroad-reload",
        &[(
            "lowroad reload",
            "Applies the changed configuration; fails if it has errors.",
        )],
    ),
    (
        "lowroad-maintenance",
        &[
            (
                "lowroad maintenance on --site example.com",
                "Answers requests for a site with 503 from now on.",
            ),
            ("lowroad maintenance off", "Answers all sites as always."),
        ],
    ),
    (
        "lowroad-origin-list",
        &[(
            "lowroad origin list",
            "Prints a line for each server of each origin.",
        )],
    ),
    (
        "lowroad-origin-show",
        &[(
            "lowroad origin show app",
            "Prints a line for each server of an origin.",
        )],
    ),
    (
        "lowroad-origin-drain",
        &[
            (
                "lowroad origin drain app 10.0.0.1:3000",
                "Sends the server requests of its sticky sessions only.",
            ),
            (
                "lowroad origin drain app --all",
                "Drains all servers of the origin: other requests get 503.",
            ),
        ],
    ),
    (
        "lowroad-origin-down",
        &[(
            "lowroad origin down app 10.0.0.1:3000 --wait=5m",
            "Sends the server no new requests, and waits at most 5 minutes for the end of the others.",
        )],
    ),
    (
        "lowroad-origin-ready",
        &[(
            "lowroad origin ready app --all",
            "Ends drain, down and force for all servers of the origin.",
        )],
    ),
    (
        "lowroad-origin-force",
        &[(
            "lowroad origin force app 10.0.0.1:3000",
            "Sends the server requests, whatever its health checks show.",
        )],
    ),
    (
        "lowroad-origin-weight",
        &[
            (
                "lowroad origin weight app 10.0.0.1:3000 10",
                "Sends the server ten times as many requests as one of weight 1.",
            ),
            (
                "lowroad origin weight app 10.0.0.1:3000 configured",
                "Uses the configured weight again.",
            ),
        ],
    ),
    (
        "lowroad-origin-add",
        &[
            (
                "lowroad origin add app 10.0.0.3:3000 --weight 2",
                "Adds a server until the next restart.",
            ),
            (
                "lowroad origin add app 10.0.0.3:3000 --persist",
                "Adds a server, also after restarts.",
            ),
        ],
    ),
    (
        "lowroad-origin-remove",
        &[(
            "lowroad origin remove app 10.0.0.3:3000",
            "Removes a server that was added.",
        )],
    ),
    (
        "lowroad-deny-list",
        &[(
            "lowroad deny list",
            "Prints a line for each entry of the deny list.",
        )],
    ),
    (
        "lowroad-deny-add",
        &[
            (
                "lowroad deny add 192.0.2.7 --for 10m",
                "Refuses the address for ten minutes, and closes its connections.",
            ),
            (
                "lowroad deny add 198.51.100.0/24 2001:db8::/48",
                "Refuses two prefixes until they are removed or the server restarts.",
            ),
        ],
    ),
    (
        "lowroad-deny-remove",
        &[(
            "lowroad deny remove 192.0.2.7",
            "Accepts connections of the address again.",
        )],
    ),
    (
        "lowroad-upgrade",
        &[
            (
                "lowroad upgrade",
                "Starts the installed program, which takes over all ports; fails if it can't start.",
            ),
            (
                "lowroad upgrade --wait=5m",
                "Also waits until the old process has completed its requests and ended.",
            ),
        ],
    ),
    (
        "lowroad-stop",
        &[(
            "lowroad stop",
            "Ends the server after the requests in progress.",
        )],
    ),
    (
        "lowroad-explain",
        &[(
            "lowroad explain http://127.0.0.1:8080/a.css -H 'Accept-Encoding: br'",
            "Shows how a request is answered, and why.",
        )],
    ),
    (
        "lowroad-status",
        &[(
            "lowroad status",
            "Prints the counters of the running server.",
        )],
    ),
    (
        "lowroad-top",
        &[
            (
                "lowroad top",
                "Shows the running server and attached levels. ? lists the keys.",
            ),
            ("lowroad top --once", "Prints one report as text."),
            (
                "lowroad top --port 80",
                "Shows only the level that is attached to port 80.",
            ),
        ],
    ),
    (
        "lowroad-dashboard",
        &[
            (
                "lowroad dashboard",
                "Prints a link to a page that shows the running server. The link works once, on this machine.",
            ),
            (
                "lowroad dashboard --read-only",
                "The same, without the permission to purge.",
            ),
            (
                "lowroad dashboard --admin /run/lowroad/80.sock",
                "Shows one of several servers.",
            ),
        ],
    ),
    (
        "lowroad-purge",
        &[
            (
                "lowroad purge http://example.com/a.html",
                "Removes the stored response of a URL.",
            ),
            (
                "lowroad purge http://example.com/img/*",
                "Removes those of all URLs that begin so.",
            ),
            ("lowroad purge tag:news", "Removes those with a tag."),
        ],
    ),
    (
        "lowroad-log-cat",
        &[
            (
                "lowroad log cat /var/log/lowroad/access.lrlog --since 1h --status 5xx",
                "Prints the server errors of the last hour, rotated files included.",
            ),
            (
                "lowroad log cat --format json --site example.com",
                "Prints the records of a site from the log that the configuration names.",
            ),
        ],
    ),
    (
        "lowroad-log-tail",
        &[(
            "lowroad log tail -f /var/log/lowroad/access.lrlog",
            "Follows a log through rotation.",
        )],
    ),
    (
        "lowroad-log-grep",
        &[(
            "lowroad log grep bot /var/log/lowroad/access.lrlog",
            "Prints the records whose line contains a text.",
        )],
    ),
    (
        "lowroad-log-stats",
        &[(
            "lowroad log stats --since 1d",
            "Prints a report of the last day.",
        )],
    ),
    (
        "lowroad-log-top",
        &[(
            "lowroad log top --by client --status 404",
            "Prints the clients with most requests for missing files.",
        )],
    ),
    (
        "lowroad-log-export",
        &[(
            "lowroad log export --format w3c -o access.w3c",
            "Writes the log in the format of the W3C.",
        )],
    ),
    (
        "lowroad-attach",
        &[
            (
                "lowroad attach 80",
                "Answers hot requests to port 80 in the kernel, on all interfaces.",
            ),
            (
                "lowroad attach 80 --interface eth0",
                "The same on one interface.",
            ),
        ],
    ),
    (
        "lowroad-detach",
        &[("lowroad detach 80", "Undoes \\fBlowroad attach 80\\fR.")],
    ),
    (
        "lowroad-doctor",
        &[(
            "lowroad doctor",
            "Shows what the machine supports, and what to change.",
        )],
    ),
    (
        "lowroad-image-build",
        &[(
            "lowroad image build /srv/www -o site.img",
            "Builds a bootable image of a folder.",
        )],
    ),
    (
        "lowroad-image-run",
        &[(
            "lowroad image run site.img",
            "Boots it in a virtual machine.",
        )],
    ),
    (
        "lowroad-new-module",
        &[(
            "lowroad new module greeting",
            "Creates the folder of a module with a test.",
        )],
    ),
    (
        "lowroad-completions",
        &[(
            "lowroad completions bash",
            "Prints the completions for bash.",
        )],
    ),
];

/// The sections to append to a man page, by the page's name (`lowroad-run`).
pub(super) fn for_page(name: &str) -> String {
    let is_server = SERVERS.contains(&name);
    let mut text = String::from("\n");
    if is_server {
        text += FILES;
        text += SIGNALS;
    }
    text += match name {
        "lowroad-check" => EXIT_STATUS_OF_CHECK,
        "lowroad-origin-drain" | "lowroad-origin-down" => EXIT_STATUS_OF_WAIT,
        "lowroad-upgrade" => EXIT_STATUS_OF_UPGRADE,
        name if name.starts_with("lowroad-log") => EXIT_STATUS_OF_LOG,
        _ => EXIT_STATUS,
    };
    if let Some((_, examples)) = EXAMPLES.iter().find(|(page, _)| *page == name) {
        text += ".SH EXAMPLES\n";
        for (command, meaning) in *examples {
            // groff prints a plain - as a hyphen and ' as a closing quote, so a copied command would fail.
            let command = command.replace('-', "\\-").replace('\'', "\\(aq");
            text += &format!(".TP\n\\fB{command}\\fR\n{meaning}\n");
        }
    }
    text += ".SH SEE ALSO\n";
    text += match name {
        "lowroad" => ".BR lowroad.toml (5)\n",
        _ => ".BR lowroad (1),\n.BR lowroad.toml (5)\n",
    };
    text
}

/// The names of all pages with examples, and their command lines.
#[cfg(test)]
pub(super) fn examples() -> impl Iterator<Item = (&'static str, &'static str)> {
    let pages = EXAMPLES.iter();
    pages.flat_map(|(name, examples)| examples.iter().map(|(command, _)| (*name, *command)))
}

//! Whole configurations: the result of valid configurations, and the exact problem line for each kind of mistake.

use super::*;
use lowroad_variables::{Template, TemplateScope};
use std::net::SocketAddr;
use std::path::PathBuf;

mod acme;
mod admin;
mod class;
mod dynamic;
mod effective;
mod include;
mod likely_mistakes;
mod secret;
mod site_rule;
mod template;
mod tls;
mod traces;

fn good(text: &str) -> Config {
    match parse(text, Path::new("lowroad.toml")) {
        // The words of the file are excluded from comparisons.
        Ok(config) => Config {
            document: ConfigDocument::default(),
            ..config
        },
        Err(problems) => panic!("{}", lines(&problems)),
    }
}

fn lines(problems: &[ConfigProblem]) -> String {
    problems
        .iter()
        .map(|problem| format!("{problem}\n"))
        .collect()
}

/// All problems of a text as displayed, without the file name.
fn shown(text: &str) -> String {
    let problems = parse(text, Path::new("f")).expect_err("the text is wrong");
    problems
        .iter()
        .map(|problem| problem.to_string().replacen("f:", "", 1))
        .collect::<Vec<_>>()
        .join("\n")
}

/// A site with these lines, the first of which is line 3 of the text.
fn in_site(lines: &str) -> String {
    format!("[[site]]\nroot = \"r\"\n{lines}\n")
}

fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
    texts
        .iter()
        .map(|text| text.parse().expect("an address"))
        .collect()
}

#[test]
fn minimal_file_has_all_defaults() {
    let config = good("[[site]]\nroot = \"/srv/www\"\n");
    let expected = Config {
        sites: vec![site_for_folder("/srv/www".into())],
        ..Config::default()
    };
    assert_eq!(config, expected);
    assert_eq!(
        // An empty table is equivalent to a missing one.
        good(
            "server = {}\nlimits = {}\nbuffering = {}\nlog = {}\nsite = [{ root = \"/srv/www\" }]"
        ),
        expected
    );
}

#[test]
fn defaults_of_process_tables_are_as_documented() {
    let Config {
        server,
        limits,
        buffering,
        log,
        sites,
        ..
    } = Config::default();
    assert_eq!(
        (buffering.request_buffer_len, buffering.response_buffer_len),
        (16 << 10, 64 << 10)
    );
    assert_eq!(
        (buffering.temp_file_len_max, buffering.temp_total_len_max),
        (1 << 30, 4 << 30)
    );
    assert_eq!(buffering.temp_path, None);
    assert_eq!(
        (server.workers, server.affinity, server.accept),
        (0, false, AcceptLimit::UpTo(32))
    );
    assert_eq!(
        (server.cache_len_max, server.cache_object_len_max),
        (256 << 20, 1 << 20)
    );
    assert_eq!(
        (server.helpers, server.drain_timeout_ms, server.fd_limit),
        (4, 30_000, 0)
    );
    assert_eq!(
        (limits.header_timeout_ms, limits.body_timeout_ms),
        (15_000, 30_000)
    );
    assert_eq!(
        (limits.idle_timeout_ms, limits.send_timeout_ms),
        (60_000, 30_000)
    );
    assert_eq!((limits.rate_min, limits.rate_grace_ms), (128, 10_000));
    assert_eq!(
        (limits.connections_max, limits.connections_per_address_max),
        (65_536, 16_384)
    );
    assert_eq!(
        (limits.requests_per_connection_max, limits.body_len_max),
        (0, 1 << 20)
    );
    assert_eq!(
        (
            limits.head_len_max,
            limits.target_len_max,
            limits.fields_max
        ),
        (16_384, 8192, 100)
    );
    assert_eq!(
        log,
        LogConfig {
            access: Vec::new(),
            error: LogTarget::Stderr,
            level: ErrorLogLevel::Info
        }
    );
    assert!(sites.is_empty());
}

#[test]
fn all_keys_of_process_tables_are_read() {
    let config = good(
        r#"
        [server]
        workers = 3
        affinity = true
        hardening = false
        accept = "one"
        user = "www-data"
        group = "www"
        cache = "64M"
        cache_object = 4096
        cache_variants = 100
        disk_cache = "/var/cache/lowroad"
        disk_cache_max = "100G"
        ticket_keys = "tickets"
        kernel_tls = true
        http3 = false
        early_data = true
        helpers = 8
        drain_timeout = "500ms"
        upgrade_timeout = "2m"
        admin = "run/admin.sock"
        softirq = "eth0"
        fd_limit = 65536
        [limits]
        header_timeout = 1
        body_timeout = "2s"
        idle_timeout = "3m"
        send_timeout = "4h"
        rate_min = "1K"
        rate_grace = 0
        connections_max = 10
        connections_per_address_max = 20
        requests_per_connection_max = 30
        streams_per_connection_max = 40
        head_len_max = "32K"
        target_len_max = 100
        fields_max = 50
        body_len_max = 0
        calls_max = 8
        calls_waiting_max = 9
        compressors_max = 7
        [buffering]
        temp_path = "waiting"
        request_buffer = "4K"
        response_buffer = "1M"
        temp_file_max = 0
        temp_total_max = "1G"
        [log]
        access = "access.log"
        format = "json"
        error = "/var/log/error.log"
        level = "debug"
        [[site]]
        root = "r"
        "#,
    );
    let server = ProcessConfig {
        workers: 3,
        affinity: true,
        hardening: false,
        accept: AcceptLimit::One,
        user: Some("www-data".into()),
        group: Some("www".into()),
        cache_len_max: 64 << 20,
        // True if the key is present, even with the default value.
        is_cache_chosen: true,
        cache_object_len_max: 4096,
        cache_variants_max: 100,
        disk_cache: Some("/var/cache/lowroad".into()),
        disk_cache_len_max: 100 << 30,
        ticket_keys: Some("tickets".into()),
        kernel_tls: true,
        http3: false,
        early_data: true,
        helpers: 8,
        drain_timeout_ms: 500,
        upgrade_timeout_ms: 120_000,
        admin: Some("run/admin.sock".into()),
        softirq: SoftirqMode::Interface("eth0".into()),
        fd_limit: 65_536,
    };
    let limits = LimitsConfig {
        header_timeout_ms: 1000,
        body_timeout_ms: 2000,
        idle_timeout_ms: 180_000,
        send_timeout_ms: 14_400_000,
        rate_min: 1024,
        rate_grace_ms: 0,
        connections_max: 10,
        connections_per_address_max: 20,
        requests_per_connection_max: 30,
        streams_per_connection_max: 40,
        head_len_max: 32_768,
        target_len_max: 100,
        fields_max: 50,
        body_len_max: 0,
        calls_max: 8,
        calls_waiting_max: 9,
        compressors_max: 7,
    };
    let access = AccessLogConfig::new(LogTarget::File("access.log".into()), AccessLogFormat::Json);
    let error = LogTarget::File("/var/log/error.log".into());
    assert_eq!(config.server, server);
    assert_eq!(config.limits, limits);
    let buffering = BufferConfig {
        temp_path: Some("waiting".into()),
        request_buffer_len: 4096,
        response_buffer_len: 1 << 20,
        temp_file_len_max: 0,
        temp_total_len_max: 1 << 30,
    };
    assert_eq!(config.buffering, buffering);
    assert_eq!(
        config.log,
        LogConfig {
            access: vec![access],
            error,
            level: ErrorLogLevel::Debug
        }
    );
}

#[test]
fn all_keys_of_site_are_read() {
    let config = good(
        r#"
        [[site]]
        names = ["Example.com.", "*.example.com"]
        listen = ["192.0.2.1:80", "*:8080"]
        root = "/srv/www"
        index = ["index.html", "index.htm"]
        listing = true
        etag = "content"
        hidden = true
        symlinks = "follow"
        purge_from = ["127.0.0.1", "10.0.0.0/8"]
        compress = { enabled = false, len_min = "1K", encodings = ["gzip", "br"], precompressed = false, programs = true }
        types = { webmanifest = "application/manifest+json", txt = "text/plain; charset=utf-8" }
        error_pages = { 404 = "/404.html", 503 = "/e/busy.html" }
        [[site.cache_control]]
        pattern = "*.css"
        value = "max-age=60, public"
        [[site.redirect]]
        from = "/old/**"
        to = "/new/$1"
        status = 308
        [[site.redirect]]
        from = "/a"
        to = "https://other.example/"
        [[site.header]]
        set = { X-Frame-Options = "DENY", Server = "" }
        append = { Link = "</a>" }
        default = { X-Robots-Tag = "none" }
        remove = "X-Powered-By"
        "#,
    );
    let pattern = |text| PathPattern::parse(text).expect("a pattern");
    let expected = SiteConfig {
        // Lower case, without the trailing dot.
        names: vec![
            SiteName::Exact("example.com".into()),
            SiteName::Wildcard("example.com".into()),
        ],
        // `*` is the IPv6 wildcard, which covers IPv4.
        listen: addresses(&["192.0.2.1:80", "[::]:8080"]),
        index: vec!["index.html".into(), "index.htm".into()],
        listing: true,
        hidden: true,
        symlinks: SymlinkPolicy::Follow,
        etag: EntityTags::Content,
        purge_from: ["127.0.0.1", "10.0.0.0/8"]
            .map(|text| AddressPrefix::parse(text).expect("a prefix"))
            .into(),
        compress: CompressConfig {
            enabled: false,
            len_min: 1024,
            encodings: vec![OfferedCoding::Gzip, OfferedCoding::Br],
            precompressed: false,
            // The default of the key is none; this site sets `true`, the fast codings.
            programs: vec![OfferedCoding::Zstd, OfferedCoding::Gzip],
        },
        types: vec![
            ("txt".into(), "text/plain; charset=utf-8".into()),
            ("webmanifest".into(), "application/manifest+json".into()),
        ],
        error_pages: [(404, "/404.html".into()), (503, "/e/busy.html".into())].into(),
        cache_control: vec![PatternRule {
            pattern: pattern("*.css"),
            value: "max-age=60, public".into(),
        }],
        redirects: vec![
            RedirectConfig {
                from: PathSelector::Pattern(pattern("/old/**")),
                to: Template::parse("/new/$1", TemplateScope::url(1)).expect("a template"),
                status: 308,
                conditions: RequestConditions::default(),
            },
            RedirectConfig {
                from: PathSelector::Pattern(pattern("/a")),
                to: Template::literal("https://other.example/"),
                status: 301,
                conditions: RequestConditions::default(),
            },
        ],
        headers: vec![HeaderRule {
            pattern: PathPattern::everything(),
            table: 0,
            conditions: RequestConditions::default(),
            set: vec![
                // An empty value is valid (RFC 9110 §5.5).
                ("Server".into(), Template::literal("")),
                ("X-Frame-Options".into(), Template::literal("DENY")),
            ],
            append: vec![("Link".into(), Template::literal("</a>"))],
            default: vec![("X-Robots-Tag".into(), "none".into())],
            // Names to remove are compared in lower case.
            remove: vec!["x-powered-by".into()],
        }],
        ..site_for_folder("/srv/www".into())
    };
    assert_eq!(config.sites, [expected]);
}

#[test]
fn single_value_counts_as_array_and_number_as_text() {
    let config = good(
        "[server]\naccept = 7\nworkers = \"auto\"\n[[site]]\nroot = \"r\"\nnames = \"_\"\nlisten = 9090\nindex = \"i\"",
    );
    let site = &config.sites[0];
    assert_eq!(
        (config.server.accept, config.server.workers),
        (AcceptLimit::UpTo(7), 0)
    );
    assert_eq!(
        (&site.names[..], &site.listen[..]),
        (
            &[SiteName::Default][..],
            &addresses(&["127.0.0.1:9090"])[..]
        )
    );
    assert_eq!(site.index, ["i"]);
    assert_eq!(
        // An empty list of names is the default site, an empty list of index files is allowed.
        good(&in_site("names = []\nindex = []")).sites[0].names,
        [SiteName::Default]
    );
}

#[test]
fn defaults_are_reduced_to_smaller_configured_limits() {
    let config = good("server.cache = \"1M\"\nlimits.head_len_max = 512\n[[site]]\nroot = \"r\"");
    assert_eq!(
        (
            config.server.cache_object_len_max,
            config.limits.target_len_max
        ),
        // A quarter of the cache, and the whole head.
        (256 << 10, 512)
    );
    let off = good("server.cache = 0\nserver.cache_object = \"1M\"\n[[site]]\nroot = \"r\"");
    assert_eq!(
        off.server.cache_len_max, 0,
        "without a cache no object is too large for it"
    );
}

#[test]
fn log_targets_are_parsed() {
    for (value, target) in [
        ("stdout", Some(LogTarget::Stdout)),
        ("stderr", Some(LogTarget::Stderr)),
        ("off", None),
    ] {
        let config = good(&format!("log.access = \"{value}\"\n[[site]]\nroot = \"r\""));
        assert_eq!(
            config
                .log
                .access
                .into_iter()
                .next()
                .map(|access| access.path),
            target
        );
    }
    let config = good("log.error = \"stdout\"\nlog.format = \"json\"\n[[site]]\nroot = \"r\"");
    assert_eq!(
        config.log,
        LogConfig {
            error: LogTarget::Stdout,
            ..LogConfig::default()
        }
    );
}

#[test]
fn relative_paths_are_resolved_against_folder_of_file() {
    let text = "server.admin = \"a\"\nlog.access = \"l\"\n[[site]]\nroot = \"site\"\n[[site]]\nlisten = 1\nroot = \"/abs\"\n";
    let config = parse(text, Path::new("/etc/lowroad/lowroad.toml")).expect("good");
    assert_eq!(config.server.admin, Some(PathBuf::from("/etc/lowroad/a")));
    let access = config
        .log
        .access
        .into_iter()
        .next()
        .map(|access| access.path);
    assert_eq!(access, Some(LogTarget::File("/etc/lowroad/l".into())));
    assert_eq!(
        config.sites[0].root,
        SiteRoot::Folder("/etc/lowroad/site".into())
    );
    assert_eq!(config.sites[1].root, SiteRoot::Folder("/abs".into()));
}

#[test]
fn root_with_host_placeholder_is_per_host() {
    for (root, prefix, suffix) in [
        ("/srv/{host}", "/srv", ""),
        ("/srv/{host}/", "/srv", ""),
        ("/srv/{host}/htdocs", "/srv", "htdocs"),
        ("/srv/sites/{host}/a//b", "/srv/sites", "a/b"),
        ("/{host}", "/", ""),
        ("{host}/www", "", "www"),
    ] {
        let config = good(&format!("[[site]]\nroot = \"{root}\""));
        let expected = SiteRoot::PerHost {
            prefix: prefix.into(),
            suffix: suffix.into(),
        };
        assert_eq!(config.sites[0].root, expected, "{root}");
    }
}

#[test]
fn syntax_error_is_reported_alone_with_position() {
    // After the syntax error the text cannot be interpreted, so later mistakes are not reported.
    let problems = parse("[[site]]\nroot = \"r\nlisten = 80x\n", Path::new("f"))
        .expect_err("no closing quote");
    assert_eq!(
        (problems.len(), problems[0].line, problems[0].key.as_str()),
        (1, 2, "")
    );
    let problems =
        parse("[server]\ncache = 1\ncache = 2\n", Path::new("f")).expect_err("a key twice");
    assert_eq!(
        (problems.len(), problems[0].line, problems[0].column),
        (1, 3, 1)
    );
}

#[test]
fn unknown_keys_are_reported_with_suggestion() {
    assert_eq!(
        shown(&in_site("lisen = 80\nxyz = 1")),
        "3:1: site[0].lisen: unknown key; did you mean listen? (allowed: names, tls, listen, root, error_pages, \
         route, rule, alias, redirect, rewrite, proxy_protocol, cors, canonical_host, security_headers, header, index, listing, hidden, symlinks, etag, compress, types, cache_control, maintenance, trailing_slash, trusted_proxies, client_field, body_len_max, rate, after, purge_from)\n\
         4:1: site[0].xyz: unknown key (allowed: names, tls, listen, root, error_pages, \
         route, rule, alias, redirect, rewrite, proxy_protocol, cors, canonical_host, security_headers, header, index, listing, hidden, symlinks, etag, compress, types, cache_control, maintenance, trailing_slash, trusted_proxies, client_field, body_len_max, rate, after, purge_from)"
    );
    assert_eq!(
        shown("sites = 1\n[[site]]\nroot = \"r\"\n[log]\nlevl = \"info\""),
        "1:1: sites: unknown key; did you mean site? (allowed: include, template, map, server, limits, buffering, log, admin, acme, traces, module, database, application, origin, class, site)\n\
         5:1: log.levl: unknown key; did you mean level? (allowed: access, format, escape, fields, block_age, rotate_len, rotate_age, total_len_max, error, level)"
    );
    assert_eq!(
        shown(&in_site(
            "[site.compress]\nlen_max = 1\n[[site.cache_control]]\npatern = \"/\"\nvalue = \"x\""
        )),
        "4:1: site[0].compress.len_max: unknown key; did you mean len_min? \
         (allowed: enabled, len_min, encodings, precompressed, programs)\n\
         5:1: site[0].cache_control[0]: pattern is missing\n\
         6:1: site[0].cache_control[0].patern: unknown key; did you mean pattern? (allowed: pattern, value)"
    );
}

#[test]
fn missing_keys_are_reported() {
    assert_eq!(
        shown(""),
        "1:1: no site is configured (allowed: at least one [[site]])"
    );
    assert_eq!(
        shown("site = []"),
        "1:1: no site is configured (allowed: at least one [[site]])"
    );
    assert_eq!(
        shown("\n[[site]]\n[[site]]\nlisten = 1\n[[site.redirect]]\n"),
        "2:1: site[0]: root is missing\n\
         3:1: site[1]: root is missing\n\
         5:1: site[1].redirect[0]: from is missing (allowed: from, or regex)\n\
         5:1: site[1].redirect[0]: to is missing"
    );
}

#[test]
fn site_with_only_redirects_needs_no_root() {
    let redirect = "[[site]]\nlisten = \"127.0.0.1:80\"\n[[site.redirect]]\nfrom = \"/old\"\nto = \"https://a.example/\"\n";
    let config = good(redirect);
    // Error pages are files of the root.
    assert_eq!(config.sites[0].root, SiteRoot::None);
    let with_pages = format!("{redirect}[site.error_pages]\n502 = \"/e.html\"\n");
    assert_eq!(
        shown(&with_pages),
        "7:7: site[0].error_pages.502: the site has no root for the page (allowed: only with root; programs and origins have their own error pages)"
    );
    // FastCGI scripts are files of the root, too.
    let with_scripts = format!("{redirect}[[site.route]]\npattern = \"*.php\"\nfastcgi = 9000\n");
    assert!(shown(&with_scripts).contains("root is missing"));
}

#[test]
fn single_log_and_several_logs_are_reported_together() {
    let single = "[log]\naccess = \"a\"\n";
    let several = "[[log.access]]\nto = \"b\"\n";
    for text in [format!("{single}{several}"), format!("{several}{single}")] {
        let problem = shown(&text);
        assert!(
            problem.contains("access in [log] defines the only access log"),
            "{problem}"
        );
    }
    let other = shown("[log]\nerror = \"a\"\nerror = \"b\"\n[[log.access]]\nto = \"b\"\n");
    assert!(other.ends_with("duplicate key"), "{other}");
}

#[test]
fn a_binary_log_has_keys_of_its_own() {
    let binary = "[log]\naccess = \"a\"\nformat = \"binary\"\n";
    let site = "[[site]]\nroot = \"/srv\"\n";
    let keys =
        "block_age = \"500ms\"\nrotate_len = \"1M\"\nrotate_age = \"1h\"\ntotal_len_max = \"4M\"\n";
    let access = good(&format!("{binary}{keys}{site}")).log.access;
    let expected = AccessLogConfig {
        binary: BinaryLogConfig {
            block_age_max_ms: 500,
            file_len_max: 1 << 20,
            file_age_max_ms: 3_600_000,
            total_len_max: 4 << 20,
        },
        ..AccessLogConfig::new(LogTarget::File("a".into()), AccessLogFormat::Binary)
    };
    assert_eq!(access, [expected]);
    let default = good(&format!("{binary}{site}")).log.access;
    assert_eq!(default[0].binary, BinaryLogConfig::default());
    for (lines, problem) in [
        (
            "[log]\nrotate_len = \"1M\"\n",
            "rotate_len is set, but format is not",
        ),
        (
            "[log]\naccess = \"stdout\"\nformat = \"binary\"\n",
            "can't go to stdout",
        ),
        (
            "[log]\naccess = \"a\"\nformat = \"binary\"\nrotate_len = \"1G\"\n",
            "less than four times rotate_len",
        ),
        (
            "[log]\nformat = \"binary\"\n",
            "format is \"binary\", but access is not set",
        ),
        (
            "[log]\naccess = \"off\"\nformat = \"binary\"\n",
            "format is \"binary\", but access is not set",
        ),
        (
            "[log]\naccess = \"a\"\nerror = \"a\"\n",
            "a is the file of an access log and of the error log",
        ),
    ] {
        let shown = shown(&format!("{lines}{site}"));
        assert!(shown.contains(problem), "{shown}");
    }
}

#[test]
fn formats_of_logs_are_checked_at_line_and_column() {
    for (lines, problem) in [
        (
            "format = '$remote_addr $reqest'",
            "3:24: log.format: unknown variable $reqest; did you mean $request? (allowed: http_NAME",
        ),
        (
            "format = \"\\\"$request\\\" $statu\"",
            "3:24: log.format: unknown variable $statu; did you mean $status?",
        ),
        (
            "format = '$status \"$host'",
            "3:19: log.format: a quote that is not closed",
        ),
        (
            "format = 'common'",
            "3:10: log.format: \"common\" is not a format",
        ),
        (
            "format = 'json'\nfields = ['status', 'hosst']",
            "4:21: log.fields[1]: unknown variable $hosst; did you mean $host?",
        ),
        (
            "format = '{$host}'\nescape = 'json'",
            "3:12: log.format: $host is not in double quotes",
        ),
        ("escape = 'json'", "3:10: log.escape: has no effect here"),
        ("fields = ['uri']", "3:10: log.fields: has no effect here"),
    ] {
        let text = format!("[log]\naccess = \"a\"\n{lines}\n[[site]]\nroot = \"/srv\"\n");
        let shown = shown(&text);
        assert!(shown.starts_with(problem), "{shown}");
    }
}

#[test]
fn access_logs_go_to_syslog_and_the_journal() {
    use lowroad_log::syslog::MessageTarget;
    for (place, target) in [
        ("journald", MessageTarget::Journal),
        ("syslog", MessageTarget::SyslogUnix("/dev/log".into())),
        (
            "syslog:unix:/run/a",
            MessageTarget::SyslogUnix("/run/a".into()),
        ),
        (
            "syslog:udp:a.example",
            MessageTarget::SyslogUdp("a.example".into(), 514),
        ),
        (
            "syslog:tcp:[::1]:601",
            MessageTarget::SyslogTcp("::1".into(), 601),
        ),
    ] {
        let site = "[[site]]\nroot = \"/srv\"\n";
        let text =
            format!("[[log.access]]\nto = {place:?}\nfacility = \"user\"\ntag = \"web\"\n{site}");
        let log = &good(&text).log.access[0];
        assert_eq!(log.path, LogTarget::Messages(target));
        assert_eq!((log.facility, &*log.tag), (1, "web"));
        good(&format!("[log]\naccess = {place:?}\n{site}"));
        let problem = shown(&format!(
            "[log]\naccess = {place:?}\nformat = \"binary\"\n{site}"
        ));
        assert!(
            problem.contains("a binary access log can't go to"),
            "{problem}"
        );
    }
    let problem = shown("[[log.access]]\nto = \"a\"\ntag = \"web\"\n[[site]]\nroot = \"/srv\"\n");
    assert!(
        problem.contains("log.access[0].tag: has no effect here"),
        "{problem}"
    );
}

#[test]
fn several_logs_have_conditions() {
    let text = "[log]\n[[log.access]]\nto = \"a\"\nformat = '$status'\nsite = \"a.example\"\n\
                status = [\"5xx\", \"!503\"]\npath = [\"/a/**\", \"!*.css\"]\nmin_duration = \"1s\"\nsample = 10\n\
                [[log.access]]\nto = \"stdout\"\n[[site]]\nroot = \"/srv\"\n";
    let logs = good(text).log.access;
    let [first, second] = &logs[..] else {
        panic!("{logs:?}");
    };
    assert_eq!(
        *second,
        AccessLogConfig::new(LogTarget::Stdout, AccessLogFormat::Combined)
    );
    let conditions = &first.conditions;
    let [site] = &conditions.sites[..] else {
        panic!("{:?}", conditions.sites);
    };
    assert_eq!((&site.name[..], site.place.line), ("a.example", 5));
    // A moved line is no change, which would need an upgrade.
    let moved = good(&format!("# a comment\n{text}")).log;
    assert_eq!(moved.access[0], *first);
    let status = |first, last, is_excluded| StatusCondition {
        first,
        last,
        is_excluded,
    };
    assert_eq!(
        conditions.statuses,
        [status(500, 599, false), status(503, 503, true)]
    );
    let excluded: Vec<bool> = conditions
        .paths
        .iter()
        .map(|path| path.is_excluded)
        .collect();
    assert_eq!(excluded, [false, true]);
    assert_eq!((conditions.duration_min_ms, conditions.sample), (1000, 10));
    for (lines, problem) in [
        (
            "[log]\nformat = 'json'\n[[log.access]]\nto = 'a'",
            "2:10: log.format: has no effect here",
        ),
        (
            "[log]\naccess = 'a'\nformat = '\"\\$args\"'\nescape = 'json'",
            "3:13: log.format: a backslash before $args is no escape of JSON",
        ),
        (
            "[[log.access]]\nformat = 'json'",
            "log.access[0]: to is missing",
        ),
        (
            "[[log.access]]\nto = 'a'\nstatus = '6xx'",
            "log.access[0].status: \"6xx\" is not a status",
        ),
        (
            "[[log.access]]\nto = 'a'\npath = '!a/b'",
            "log.access[0].path: \"!a/b\" is not a pattern",
        ),
        (
            "[[log.access]]\nto = 'a'\nsample = 0",
            "log.access[0].sample: 0 is out of range",
        ),
        (
            "[[log.access]]\nto = 'a'\n[[log.access]]\nto = 'a'",
            "a is the file of an access log and of another access log",
        ),
    ] {
        let shown = shown(&format!("{lines}\n[[site]]\nroot = \"/srv\"\n"));
        assert!(shown.contains(problem), "{shown}");
    }
}

#[test]
fn logs_go_to_files_and_standard_streams_only() {
    for (place, keys) in [
        ("syslog:server=127.0.0.1", &["access", "error"][..]),
        ("syslog:udp:a b", &["access", "error"]),
        ("syslog:tcp:a:0", &["access", "error"]),
        ("syslog:unix:a", &["access", "error"]),
        ("syslog", &["error"]),
        ("udp://127.0.0.1:514", &["access", "error"]),
        ("journald", &["error"]),
        ("|/usr/bin/rotatelogs a", &["access", "error"]),
    ] {
        for key in keys {
            let text = format!("[log]\n{key} = {place:?}\n[[site]]\nroot = \"/srv\"\n");
            let problem = shown(&text);
            assert!(
                problem.contains("is not a target for logs (allowed: a file, stdout or stderr"),
                "{problem}"
            );
        }
    }
    // Names that only resemble the notation of other servers.
    for place in [
        "access.log",
        "/var/log/a:b.log",
        "./syslog",
        "logs/syslog:1",
        "a.b:c",
        "stdout",
    ] {
        let text = format!("[log]\naccess = {place:?}\n[[site]]\nroot = \"/srv\"\n");
        good(&text);
    }
}

#[test]
fn values_of_wrong_type_are_refused() {
    let boolean = "(allowed: true or false)";
    for (line, expected) in [
        ("listing = \"yes\"", format!("3:11: site[0].listing: \"yes\" is not a boolean {boolean}")),
        ("listing = 1.5", format!("3:11: site[0].listing: 1.5 is not a boolean {boolean}")),
        ("listing = 1979-05-27", format!("3:11: site[0].listing: 1979-05-27 is not a boolean {boolean}")),
        ("compress = []", "3:12: site[0].compress: an array is not a table (allowed: keys with values)".into()),
        ("redirect = 1", "3:12: site[0].redirect: 1 is not an array of tables (allowed: [[site[0].redirect]] before its keys)".into()),
        ("redirect = [7]", "3:13: site[0].redirect[0]: 7 is not a table (allowed: keys with values)".into()),
        ("compress.encodings = \"br\"", "3:22: site[0].compress.encodings: \"br\" is not an array (allowed: […])".into()),
        ("index = [true]", "3:10: site[0].index[0]: true is not a text (allowed: a string, not empty, without control characters)".into()),
        ("index = \"\"", "3:9: site[0].index: \"\" is not a text (allowed: a string, not empty, without control characters)".into()),
    ] {
        assert_eq!(shown(&in_site(line)), expected, "{line}");
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    let sizes =
        "a number of bytes, or a number with K, M or G (powers of 1024): 65536, 64K, 256M, 1G";
    let durations =
        "a number of seconds, or a number with ms, s, m, h, d, w or y: 15, 500ms, 15s, 2m, 1h, 7d";
    for (line, expected) in [
        (
            "limits.head_len_max = 511",
            "1:23: limits.head_len_max: 511 is out of range (allowed: 512 to 1M)",
        ),
        (
            "limits.head_len_max = \"2M\"",
            "1:23: limits.head_len_max: \"2M\" is out of range (allowed: 512 to 1M)",
        ),
        (
            "limits.target_len_max = \"17K\"",
            "1:25: limits.target_len_max: \"17K\" is out of range (allowed: 64 to 16K)",
        ),
        (
            "limits.idle_timeout = 0",
            "1:23: limits.idle_timeout: 0 is out of range (allowed: 1ms to 24h)",
        ),
        (
            "limits.idle_timeout = \"25h\"",
            "1:23: limits.idle_timeout: \"25h\" is out of range (allowed: 1ms to 24h)",
        ),
        (
            "limits.fields_max = 7",
            "1:21: limits.fields_max: 7 is out of range (allowed: 8 to 4096)",
        ),
        (
            "limits.fields_max = -7",
            "1:21: limits.fields_max: -7 is not a number (allowed: a whole number)",
        ),
        (
            "limits.connections_max = 0",
            "1:26: limits.connections_max: 0 is out of range (allowed: 1 to 1048576)",
        ),
        (
            "server.helpers = 0",
            "1:18: server.helpers: 0 is out of range (allowed: 1 to 256)",
        ),
        (
            "server.cache = \"63K\"",
            "1:16: server.cache: \"63K\" is out of range (allowed: 0 (off), or 64K to 1024G)",
        ),
        (
            "server.fd_limit = 63",
            "1:19: server.fd_limit: 63 is out of range (allowed: 0 (as many as the hard limit allows), or 64 to 1048576)",
        ),
        (
            "server.cache_object = \"65M\"",
            "1:23: server.cache_object: \"65M\" is more than a quarter of the cache (allowed: at most 64M)",
        ),
        (
            "server.group = \"g\"",
            "1:1: server: group is set, but user is not (allowed: group together with user)",
        ),
        (
            "server.accept = 0",
            "1:17: server.accept: 0 is not an accept strategy (allowed: \"one\", \"all\", or a number from 1 to 65536)",
        ),
        (
            "server.workers = 1025",
            "1:18: server.workers: 1025 is not a number of workers (allowed: \"auto\" (one for each CPU), or a number from 1 to 1024)",
        ),
        (
            "log.level = \"warning\"",
            "1:13: log.level: \"warning\" is not an allowed value (allowed: \"error\", \"warn\", \"info\", \"debug\")",
        ),
        (
            "log.format = 1",
            "1:14: log.format: 1 is not a format (allowed: \"combined\", \"extended\", \"json\", \"binary\", or a text with variables: '$remote_addr \"$request\" $status')",
        ),
    ] {
        assert_eq!(shown(&format!("{line}\n[[site]]\nroot = \"r\"")), expected);
    }
    let both = shown("server.cache = 1.5\nserver.drain_timeout = \"30 s\"\n[[site]]\nroot = \"r\"");
    let expected = format!(
        "1:16: server.cache: 1.5 is not a size (allowed: {sizes})\n\
         2:24: server.drain_timeout: \"30 s\" is not a duration (allowed: {durations})"
    );
    assert_eq!(both, expected);
}

#[test]
fn invalid_site_values_are_refused() {
    let names = "example.com, *.example.com (one or more labels in front), an address (192.0.2.1, [2001:db8::1]), \
                 or _ for every other host; no port; letters beyond ASCII as A-labels (xn--…)";
    let listen = "ADDR:PORT, [ADDR6]:PORT, PORT (127.0.0.1 only), *:PORT (all addresses, IPv4 and IPv6); PORT 0 is any free one";
    let pattern =
        "/PATH or a FILE NAME, with * (within a segment) and ** (across segments): /img/**, *.css";
    let page = "/PATH of a file, without empty segments, . and ..";
    let media = "type/subtype, with parameters or without: text/css; charset=utf-8";
    for (line, expected) in [
        // Line 3 is the first line within the site.
        ("listen = [\"80x\"]", format!("3:11: site[0].listen[0]: \"80x\" is not ADDR:PORT (allowed: {listen})")),
        ("listen = \"a:80\"", format!("3:10: site[0].listen: \"a:80\" is not ADDR:PORT (allowed: {listen})")),
        ("listen = []", "3:10: site[0].listen: no address is listed (allowed: at least one ADDR:PORT; or leave the key out)".into()),
        ("listen = [1, 1]", "3:14: site[0].listen[1]: 127.0.0.1:1 is listed twice (allowed: each address once)".into()),
        ("names = [\"a:80\"]", format!("3:10: site[0].names[0]: \"a:80\" is not a host name (allowed: {names})")),
        ("index = \"a/b\"", "3:9: site[0].index: \"a/b\" is not a file name (allowed: a name without /)".into()),
        ("symlinks = \"yes\"", "3:12: site[0].symlinks: \"yes\" is not an allowed value (allowed: \"beneath\", \"none\", \"follow\")".into()),
        ("compress.encodings = []", "3:22: site[0].compress.encodings: the list is empty (allowed: at least one; or enabled = false and precompressed = false)".into()),
        ("compress.encodings = [\"br\", \"br\"]", "3:29: site[0].compress.encodings[1]: \"br\" is listed twice (allowed: each coding once)".into()),
        ("compress.encodings = [\"lz4\"]", "3:23: site[0].compress.encodings[0]: \"lz4\" is not an allowed value (allowed: \"br\", \"zstd\", \"gzip\")".into()),
        ("types.PNG = \"image/png\"", "3:7: site[0].types.PNG: \"PNG\" is not a file name extension (allowed: lower-case letters, digits, - _ + ~, without a dot)".into()),
        ("types.png = \"image\"", format!("3:13: site[0].types.png: \"image\" is not a media type (allowed: {media})")),
        ("types.png = \"image/png; x\"", format!("3:13: site[0].types.png: \"image/png; x\" is not a media type (allowed: {media})")),
        ("types.png = \"a/b/c\"", format!("3:13: site[0].types.png: \"a/b/c\" is not a media type (allowed: {media})")),
        ("error_pages.200 = \"/a\"", "3:13: site[0].error_pages.200: \"200\" is not a status of an error (allowed: 400 to 599, or \"4xx\" or \"5xx\")".into()),
        ("error_pages.0404 = \"/a\"", "3:13: site[0].error_pages.0404: \"0404\" is not a status of an error (allowed: 400 to 599, or \"4xx\" or \"5xx\")".into()),
        ("error_pages.404 = \"a.html\"", format!("3:19: site[0].error_pages.404: \"a.html\" is not a path under the root (allowed: {page})")),
        ("error_pages.404 = \"/../a\"", format!("3:19: site[0].error_pages.404: \"/../a\" is not a path under the root (allowed: {page})")),
        ("cache_control = [{ pattern = \"a/b\", value = \"x\" }]", format!("3:30: site[0].cache_control[0].pattern: \"a/b\" is not a pattern (allowed: {pattern})")),
        ("cache_control = [{ pattern = \"*\", value = \"a\\r\\nb\" }]", "3:43: site[0].cache_control[0].value: \"a\\r\\nb\" is not a field value (allowed: visible ASCII characters, with spaces and tabs between them)".into()),
    ] {
        assert_eq!(shown(&in_site(line)), expected, "{line}");
    }
}

#[test]
fn invalid_roots_are_refused() {
    let whole = "{host} once, as a whole component: /srv/{host}/htdocs";
    for (root, expected) in [
        (
            "/srv/x{host}",
            format!("\"/srv/x{{host}}\" has {{host}} in the wrong place (allowed: {whole})"),
        ),
        (
            "/{host}/{host}",
            format!("\"/{{host}}/{{host}}\" has {{host}} in the wrong place (allowed: {whole})"),
        ),
        (
            "/srv/{host}/..",
            "\"/srv/{host}/..\" leaves the folder of the host (allowed: no . and .. after {host})"
                .into(),
        ),
        (
            "",
            "\"\" is not a text (allowed: a string, not empty, without control characters)".into(),
        ),
    ] {
        assert_eq!(
            shown(&format!("[[site]]\nroot = \"{root}\"")),
            format!("2:8: site[0].root: {expected}")
        );
    }
}

#[test]
fn invalid_redirects_are_refused() {
    let to = "/PATH, http://HOST/PATH or https://HOST/PATH in visible ASCII; in HOST no variable but $host and $authority";
    // Destinations that could lead to another host, or are no URL.
    for value in [
        "",
        "x",
        "//evil",
        "/\\\\evil",
        "https://",
        "https://$1",
        "https://a$1/",
        "https://u@h/",
        "https://$host@h/",
        "https://$path",
        "https://$host$1",
        "https://$scheme/",
        "$host",
        "ftp://h/",
        "/a b",
        "/ü",
        "/a\\n",
    ] {
        let text = in_site(&format!(
            "redirect = [{{ from = \"/x/*\", to = \"{value}\" }}]"
        ));
        let problem = &parse(&text, Path::new("f")).expect_err(value)[0];
        assert_eq!(
            (problem.key.as_str(), problem.allowed.as_str()),
            ("site[0].redirect[0].to", to),
            "{value}"
        );
    }
    for (rule, expected) in [
        (
            "from = \"/x\", to = \"/y\", status = 304",
            "3:48: site[0].redirect[0].status: 304 is not a status of a redirect (allowed: 301, 302, 303, 307, 308)",
        ),
        (
            "from = \"/x\", to = \"/y/$1\"",
            "3:37: site[0].redirect[0].to: $1 has no meaning here, because nothing is captured (allowed: $host, $authority, $scheme, $method, $path, $query, $request_uri, $site, $arg_NAME, $map_NAME, $$ for a dollar sign)",
        ),
        (
            // `/**` matches every destination.
            "from = \"/**\", to = \"/y?$1\"",
            "3:34: site[0].redirect[0].to: \"/y?$1\" is redirected by the same rule again, in an endless loop (allowed: a destination that /** does not match)",
        ),
    ] {
        assert_eq!(
            shown(&in_site(&format!("redirect = [{{ {rule} }}]"))),
            expected
        );
    }
}

#[test]
fn invalid_header_rules_are_refused() {
    for (rule, expected) in [
        (
            "",
            "3:11: site[0].header[0]: the rule does nothing (allowed: set, append, default or remove)",
        ),
        (
            "remove = []",
            "3:11: site[0].header[0]: the rule does nothing (allowed: set, append, default or remove)",
        ),
        (
            "set = { \"a b\" = \"c\" }",
            "3:21: site[0].header[0].set.a b: \"a b\" is not a field name (allowed: letters, digits and !#$%&'*+-.^_`|~)",
        ),
        (
            "set = { Content-Length = \"1\" }",
            "3:21: site[0].header[0].set.Content-Length: Content-Length is managed by the server (allowed: any other field)",
        ),
        (
            "set = { Content-Type = \"a/b\" }",
            "3:21: site[0].header[0].set.Content-Type: the server derives Content-Type from the file (allowed: site.types, by file name extension)",
        ),
        (
            "remove = [\"a\", \"DATE\"]",
            "3:28: site[0].header[0].remove[1]: DATE is managed by the server (allowed: any other field)",
        ),
        (
            "set = { A = \"1\", a = \"2\" }",
            "3:30: site[0].header[0].set.a: a is listed twice (allowed: each field once, in any case)",
        ),
        (
            "set = { A = \"1\" }, remove = \"a\"",
            "3:11: site[0].header[0]: the rule names a twice (allowed: one of set, append, default and remove for each field)",
        ),
        (
            "set = { A = \" 1\" }",
            "3:25: site[0].header[0].set.A: \" 1\" is not a field value (allowed: visible ASCII characters, with spaces and tabs between them)",
        ),
    ] {
        assert_eq!(
            shown(&in_site(&format!("header = [{{ {rule} }}]"))),
            expected,
            "{rule}"
        );
    }
}

#[test]
fn name_and_address_conflicts_between_sites_are_reported() {
    let once = "(allowed: each name once at each address)";
    let two = |first: &str, second: &str| shown(&format!("{}{}", in_site(first), in_site(second)));
    assert_eq!(
        two("names = \"a\"", "names = [\"b\", \"A.\"]"),
        format!("6:15: site[1].names[1]: \"a\" at 127.0.0.1:8080 is already site[0] {once}")
    );
    assert_eq!(
        two("names = \"*.a\"", "names = \"*.a\""),
        format!("6:9: site[1].names: \"*.a\" at 127.0.0.1:8080 is already site[0] {once}")
    );
    assert_eq!(
        // A site without names is the default site.
        two("", "names = [\"a\", \"_\"]"),
        "6:15: site[1].names[1]: the default site at 127.0.0.1:8080 is already site[0] \
         (allowed: one site without names (or with \"_\") at each address)"
    );
    assert_eq!(
        two(
            "listen = [\"0.0.0.0:80\", \"0.0.0.0:81\"]",
            "listen = \"*:80\""
        ),
        "3:11: site[0].listen[0]: 0.0.0.0:80 is included in [::]:80, which is configured too \
         (allowed: *:80 for IPv4 and IPv6 together)"
    );
    assert_eq!(
        shown(&in_site("names = [\"a\", \"a\"]")),
        format!("3:15: site[0].names[1]: \"a\" at 127.0.0.1:8080 is already site[0] {once}")
    );
    // The same names at other addresses are no conflict, nor are a host and a wildcard with its suffix.
    good(&format!(
        "{}{}",
        in_site("listen = 1"),
        in_site("listen = 2")
    ));
    good(&format!(
        "{}{}",
        in_site("names = \"a\""),
        in_site("names = \"*.a\"")
    ));
}

#[test]
fn problems_are_reported_in_order_of_text() {
    // The order of the checks differs from the order of the lines.
    let text = "[server]\nx = 1\ncache = \"z\"\n[[site]]\nroot = 1\n[limits]\nfields_max = 0\n[log]\nlevel = 0\n";
    let problems = parse(text, Path::new("f")).expect_err("five problems");
    let places: Vec<_> = problems
        .iter()
        .map(|problem| (problem.line, problem.key.as_str()))
        .collect();
    let expected = [
        (2, "server.x"),
        (3, "server.cache"),
        (5, "site[0].root"),
        (7, "limits.fields_max"),
        (9, "log.level"),
    ];
    assert_eq!(places, expected);
}

#[test]
fn values_in_problems_are_truncated_and_escaped() {
    let long = "x".repeat(1000);
    let found = shown(&in_site(&format!("symlinks = \"{long}\"")));
    assert!(
        found.contains(&format!("\"{}\"… is not an", "x".repeat(60))),
        "{found}"
    );
    // Escaped, so that a problem stays on one line and cannot send terminal escapes.
    let found = shown(&in_site("symlinks = \"a\\u001B[31m\\nb\""));
    assert_eq!(found.lines().count(), 1);
    assert!(found.contains(r#""a\u{1b}[31m\nb" is not an"#), "{found}");
}

#[test]
fn problem_display_omits_empty_key_and_allowed_values() {
    let place = ConfigPlace {
        file: "a/lowroad.toml".into(),
        line: 3,
        column: 7,
    };
    let problem = ConfigProblem::at(place, "is odd");
    assert_eq!(problem.to_string(), "a/lowroad.toml:3:7: is odd");
}

/// A temporary folder of one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("lowroad-config-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("root")).expect("a folder in the temporary folder");
        Folder(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("a file in the test's folder");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn load_checks_that_paths_exist() {
    let folder = Folder::new("paths");
    folder.write("root/404.html", b"x");
    let text = "[[site]]\nroot = \"root\"\nerror_pages.404 = \"/404.html\"\n[[site]]\nlisten = 1\nroot = \"{host}\"\nerror_pages.404 = \"/none\"\n";
    let file = folder.write("good.toml", text.as_bytes());
    assert_eq!(load(&file, &[]).map(|config| config.sites.len()), Ok(2));

    let text = "[[site]]\nroot = \"root\"\nerror_pages.404 = \"/405.html\"\n[[site]]\nlisten = 1\nroot = \"good.toml\"\n[[site]]\nlisten = 2\nroot = \"none\"\nx = 1\n";
    let file = folder.write("bad.toml", text.as_bytes());
    let problems = load(&file, &[]).expect_err("three problems");
    let found: Vec<_> = problems
        .iter()
        .map(|p| (p.line, p.key.as_str(), p.allowed.as_str()))
        .collect();
    assert_eq!(found.len(), 3, "{}", lines(&problems));
    assert_eq!(found[0], (6, "site[1].root", "a folder"));
    assert_eq!(found[1], (9, "site[2].root", "a folder"));
    assert_eq!(found[2].1, "site[2].x");
    assert!(
        problems[0].message.ends_with("good.toml is not a folder"),
        "{}",
        problems[0].message
    );
    assert!(
        problems[1].message.contains("none cannot be used: "),
        "{}",
        problems[1].message
    );
}

#[test]
fn missing_error_pages_are_warnings() {
    let folder = Folder::new("pages");
    folder.write("root/404.html", b"x");
    folder.write("503.html", b"x");
    let text = "[[site]]\nroot = \"root\"\n[site.error_pages]\n404 = \"/404.html\"\n500 = \"/500.html\"\n503 = \"/a/503.html\"\n\
                504 = \"/a/404.html\"\n[[site.alias]]\npath = \"/a\"\nfolder = \".\"\n";
    let file = folder.write("pages.toml", text.as_bytes());
    let config = load(&file, &[]).expect("a valid configuration");
    let found: Vec<_> = config
        .document
        .warnings
        .iter()
        .filter(|it| it.key.contains("error_pages"))
        .map(|it| (it.line, it.message.contains("built-in page")))
        .collect();
    // The page of an alias is in its folder.
    assert_eq!(
        found,
        [(5, true), (7, true)],
        "{}",
        lines(&config.document.warnings)
    );
}

#[test]
fn use_of_missing_build_feature_is_reported_with_position() {
    let text = "[server]\nsoftirq = \"auto\"\n\
        [[module]]\nname = \"m\"\nwasm = \"m.wasm\"\n\
        [[module]]\nname = \"l\"\nlinked = \"l\"\n\
        [[database]]\nname = \"d\"\nurl = \"sqlite:d\"\n\
        [[site]]\nroot = \"r\"\n\
        route = [\n\
        { pattern = \"*.php\", fastcgi = \"9000\" },\n\
        { pattern = \"/m\", module = \"m\" },\n\
        { pattern = \"*.sql\", pages = \"d\" }]\n";
    let all = |lacking: &[BuildFeature]| match read(
        text.to_owned(),
        Path::new("f"),
        &NoFiles,
        lacking,
        |_, _, _| (),
    ) {
        Ok(_) => String::new(),
        Err(problems) => lines(&problems),
    };
    assert_eq!(all(&[BuildFeature::Image]), "");
    assert_eq!(
        all(&BuildFeature::ALL),
        "f:2:11: server.softirq: this lowroad was built without softirq\n\
         f:5:8: module[0].wasm: this lowroad was built without wasm\n\
         f:7:8: module[1].name: this lowroad was built without modules\n\
         f:10:8: database[0].name: this lowroad was built without sql\n\
         f:15:32: site[0].route[0].fastcgi: this lowroad was built without programs\n\
         f:17:30: site[0].route[2].pages: this lowroad was built without sql\n"
    );
    assert_eq!(all(&[BuildFeature::Wasm]).lines().count(), 1);
    let off = "server.softirq = \"off\"\nsite = [{ root = \"r\" }]\n";
    assert!(
        read(
            off.to_owned(),
            Path::new("f"),
            &NoFiles,
            &BuildFeature::ALL,
            |_, _, _| ()
        )
        .is_ok()
    );
}

#[test]
fn unreadable_configuration_files_are_reported() {
    let folder = Folder::new("unreadable");
    let problems = load(&folder.0.join("none.toml"), &[]).expect_err("there is no such file");
    assert_eq!(
        (problems.len(), problems[0].line, problems[0].column),
        (1, 1, 1)
    );
    assert!(
        problems[0].message.starts_with("cannot be read: "),
        "{}",
        problems[0].message
    );
    let file = folder.write("latin1.toml", b"# a\n# \xe4\n");
    let problems = load(&file, &[]).expect_err("not UTF-8");
    assert!(
        problems[0]
            .to_string()
            .ends_with("latin1.toml:2:3: is not UTF-8 from here on")
    );
}

#[test]
fn proxy_protocol_settings_of_one_address_must_agree() {
    let site = |more: &str| format!("[[site]]\nroot = \"r\"\n{more}\n");
    let proxies = "proxy_protocol = [\"10.0.0.0/8\", \"::1\"]";
    let config = parse(&site(proxies), Path::new("f")).expect("a configuration");
    let read = |text: &str| AddressPrefix::parse(text).expect("a prefix");
    assert_eq!(
        config.sites[0].proxy_protocol,
        ["10.0.0.0/8", "::1"].map(read)
    );
    let two = format!("{}{}", site(proxies), site("names = \"a\""));
    assert_eq!(
        shown(&two),
        "4:1: site[1]: site[0] shares an address, but has another proxy_protocol \
         (allowed: the same for all sites of an address)"
    );
    assert_eq!(
        shown(&format!("[server]\nsoftirq = \"auto\"\n{}", site(proxies))),
        "5:18: site[0].proxy_protocol: server.softirq answers requests before the server, and reads no PROXY header \
         (allowed: either of both)"
    );
    assert_eq!(
        shown(&site("proxy_protocol = \"lb\"")),
        "3:18: site[0].proxy_protocol: \"lb\" is not an address or a prefix \
         (allowed: ADDRESS or ADDRESS/BITS: 127.0.0.1, 10.0.0.0/8, ::1, 2001:db8::/32)"
    );
}

#[test]
fn http3_is_on_at_tls_addresses_without_proxy_headers() {
    let site = |more: &str| {
        format!(
            "[[site]]\nroot = \"r\"\n{more}\n[site.tls]\nlisten = \"127.0.0.1:443\"\ncertificate = \"c\"\nkey = \"k\"\n"
        )
    };
    let advertises = |config: &Config| {
        let mut fields = config.sites[0].headers.iter().flat_map(|it| &it.set);
        fields.any(|(name, _)| &**name == "Alt-Svc")
    };
    let address = "127.0.0.1:443".parse().expect("an address");
    let off = "[server]\nhttp3 = false\n";
    for (head, more, is_on) in [
        ("", "", true),
        (off, "", false),
        ("", "proxy_protocol = \"10.0.0.0/8\"", false),
    ] {
        let text = format!("{head}{}", site(more));
        let config = parse(&text, Path::new("f")).expect("a configuration");
        assert_eq!(config.has_http3(address), is_on, "{text}");
        assert_eq!(advertises(&config), is_on, "{text}");
    }
}

#[test]
fn port_without_an_address_is_warned_of() {
    let warnings = |listen: &str| {
        let text = format!("[[site]]\nroot = \"r\"\nlisten = {listen}\n");
        let config = parse(&text, Path::new("f")).expect("a configuration");
        lines(&config.document.warnings)
    };
    for listen in ["\"80\"", "[\"*:81\", 80]"] {
        let text = warnings(listen);
        assert!(
            text.contains(
                "listens only at 127.0.0.1:80, not on the network (allowed: *:80 for all"
            ),
            "{listen}: {text}"
        );
    }
    assert_eq!(warnings("[\"*:80\", \"127.0.0.1:81\", \"[::1]:82\"]"), "");
}

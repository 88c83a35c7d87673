//! Routes, modules and databases: the result of valid sections, and the problem for each mistake.

use super::*;
use lowroad_variables::Dependence;

fn pattern(text: &str) -> PathPattern {
    PathPattern::parse(text).expect("a pattern")
}

fn templates(pairs: &[(&str, &str)]) -> Vec<(String, Template)> {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| (name.to_string(), Template::literal(value)))
        .collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

/// A site with one route; `lines` begin at line 4.
fn in_route(lines: &str) -> String {
    format!("[[site]]\nroot = \"r\"\n[[site.route]]\n{lines}\n")
}

/// A text to which a site is appended, so that it is a complete configuration.
fn with_site(text: &str) -> String {
    format!("{text}\n[[site]]\nroot = \"r\"\n")
}

#[test]
fn all_keys_of_route_are_read() {
    let text = r#"
        [[module]]
        name = "m"
        linked = "m"
        [[database]]
        name = "d"
        url = "sqlite:d.db"
        [[site]]
        root = "r"
        [[site.route]]
        pattern = "/m/**"
        module = "m"
        missing = true
        timeout = "2s"
        concurrency = 7
        request_buffering = false
        response_buffering = true
        [[site.route]]
        pattern = "/cgi-bin/**"
        cgi = "programs"
        processes = 100
        head_len_max = "256K"
        fields_max = 1000
        response_buffering = false
        memory = "64M"
        cpu = "1500ms"
        user = "worker"
        env = { LANG = "C", EMPTY = "", N = 5, YES = true }
        [[site.route]]
        pattern = "*.php"
        fastcgi = "unix:run/fpm.sock"
        script_root = "there"
        script = "/a/index.php"
        index = "start.php"
        connections = 3
        keep_connections = true
        [site.route.env]
        DOCUMENT_ROOT = "/inside"
        [[site.route]]
        pattern = "*.lrp"
        pages = "d"
        [[site.route]]
        pattern = "/plain/*"
        pages = true
        memory = "64M"
    "#;
    let config = parse(text, Path::new("/etc/lowroad/lowroad.toml"));
    let config = config.unwrap_or_else(|problems| panic!("{}", lines(&problems)));
    let cgi = CgiConfig {
        memory_len_max: 64 << 20,
        // 1500 ms, rounded up to whole seconds.
        cpu_s_max: 2,
        user: Some("worker".into()),
        // The entries of tables with free-form keys are sorted.
        env: templates(&[("EMPTY", ""), ("LANG", "C"), ("N", "5"), ("YES", "true")]),
        processes_max: 100,
        // Relative paths are relative to the folder of the configuration file.
        ..CgiConfig::new(Some("/etc/lowroad/programs".into()))
    };
    let fastcgi = FastCgiConfig {
        script: Some("/a/index.php".into()),
        index: "start.php".into(),
        connections_max: 3,
        keeps_connections: true,
        env: templates(&[("DOCUMENT_ROOT", "/inside")]),
        script_root: Some("/etc/lowroad/there".into()),
        ..FastCgiConfig::new(UpstreamAddress::Unix("/etc/lowroad/run/fpm.sock".into()))
    };
    let pages = |database: Option<&str>, memory_len_max| {
        RouteTo::Pages(PagesConfig {
            database: database.map(str::to_string),
            memory_len_max,
        })
    };
    let expected = [
        RouteConfig {
            missing: true,
            timeout_ms: 2000,
            concurrency_max: 7,
            request_buffering: Some(false),
            ..RouteConfig::new(pattern("/m/**"), RouteTo::Module("m".into()))
        },
        RouteConfig {
            response_buffering: false,
            head_len_max: 256 << 10,
            head_fields_max: 1000,
            ..RouteConfig::new(pattern("/cgi-bin/**"), RouteTo::Cgi(cgi))
        },
        RouteConfig::new(pattern("*.php"), RouteTo::FastCgi(fastcgi)),
        RouteConfig::new(pattern("*.lrp"), pages(Some("d"), 32 << 20)),
        RouteConfig::new(pattern("/plain/*"), pages(None, 64 << 20)),
    ];
    assert_eq!(config.sites[0].routes, expected);
    // So are SQLite files.
    assert_eq!(config.databases[0].url, "sqlite:/etc/lowroad/d.db");
}

#[test]
fn defaults_of_route_module_and_database_are_as_documented() {
    let config = good(
        r#"
        [[module]]
        name = "a"
        linked = "b"
        [[database]]
        name = "a"
        url = "${URL}"
        [[site]]
        root = "r"
        [[site.route]]
        pattern = "/c/**"
        cgi = "/c"
        [[site.route]]
        pattern = "/f"
        fastcgi = 9000
        "#,
    );
    let [cgi, fastcgi] = &config.sites[0].routes[..] else {
        panic!("two routes");
    };
    assert_eq!(
        (cgi.missing, cgi.timeout_ms, cgi.concurrency_max),
        (false, 30_000, 256)
    );
    assert!(cgi.buffers_requests() && cgi.response_buffering);
    let expected = CgiConfig {
        path: Some("/c".into()),
        processes_max: 4096,
        env: Vec::new(),
        memory_len_max: 1 << 30,
        cpu_s_max: 30,
        user: None,
    };
    assert_eq!(cgi.to, RouteTo::Cgi(expected));
    let expected = FastCgiConfig {
        // A bare port means the loopback address.
        servers: vec![UpstreamAddress::Tcp(([127, 0, 0, 1], 9000).into())],
        balance: BalanceConfig::RoundRobin,
        script: None,
        script_root: None,
        index: "index.php".into(),
        connections_max: 32,
        keeps_connections: false,
        env: Vec::new(),
    };
    assert_eq!(fastcgi.to, RouteTo::FastCgi(expected));
    let module = ModuleConfig {
        name: "a".into(),
        code: ModuleCode::Linked("b".into()),
        settings: Vec::new(),
        fetch: Vec::new(),
        separate: false,
        memory_len_max: 16 << 20,
        compute_ms_max: 1000,
        keep: false,
    };
    assert_eq!(config.modules, [module]);
    let database = DatabaseConfig {
        name: "a".into(),
        url: "${URL}".into(),
        connections_max: 8,
        timeout_ms: 5000,
        rows_max: 10_000,
    };
    assert_eq!(config.databases, [database]);
}

#[test]
fn all_keys_of_module_and_database_are_read() {
    let config = good(
        r#"
        [[module]]
        name = "w.1"
        wasm = "/m/w.wasm"
        memory = "1M"
        compute = "20ms"
        keep = true
        fetch = ["Api.example.com:80", "*.example.org:8080"]
        settings = { text = "a\nb", n = 5, f = 1.5, yes = true, "any key" = "" }
        [[module]]
        name = "l-2"
        library = "l.so"
        separate = true
        fetch = "127.0.0.1:9000"
        [[database]]
        name = "maria"
        url = "mariadb://u:${P_1}@localhost/n?socket=/run/m.sock"
        connections = 2
        timeout = "300ms"
        rows = 5
        [[site]]
        root = "r"
        "#,
    );
    let wasm = ModuleConfig {
        memory_len_max: 1 << 20,
        compute_ms_max: 20,
        keep: true,
        // Host names are converted to lower case.
        fetch: ["api.example.com:80", "*.example.org:8080"]
            .map(|text| AllowedDestination::parse(text).expect("a destination"))
            .into(),
        settings: pairs(&[
            ("any key", ""),
            ("f", "1.5"),
            ("n", "5"),
            ("text", "a\nb"),
            ("yes", "true"),
        ]),
        ..ModuleConfig::new("w.1".into(), ModuleCode::Wasm("/m/w.wasm".into()))
    };
    let library = ModuleConfig {
        separate: true,
        fetch: vec![AllowedDestination::parse("127.0.0.1:9000").expect("a destination")],
        ..ModuleConfig::new("l-2".into(), ModuleCode::Library("l.so".into()))
    };
    assert_eq!(config.modules, [wasm, library]);
    // Not resolved: only SQLite files may be relative paths.
    let url = "mariadb://u:${P_1}@localhost/n?socket=/run/m.sock";
    let maria = DatabaseConfig {
        connections_max: 2,
        timeout_ms: 300,
        rows_max: 5,
        ..DatabaseConfig::new("maria".into(), url.into())
    };
    assert_eq!(config.databases, [maria]);
}

#[test]
fn module_fetch_destinations_require_host_and_port() {
    let text = "[[module]]\nname = \"a\"\nlinked = \"a\"\nfetch = [\"a:1\", \"http://a/\"]";
    let found = shown(&with_site(text));
    assert!(
        found.starts_with("4:") && found.contains("module[0].fetch"),
        "{found}"
    );
    assert!(found.contains("is not HOST:PORT"), "{found}");
}

#[test]
fn route_requires_exactly_one_handler_key() {
    let one = "one of module, cgi, fastcgi, origin and pages";
    assert_eq!(
        shown(&in_route("pattern = \"/a\"")),
        format!("3:1: site[0].route[0]: the route has no handler (allowed: {one})")
    );
    // With two handler keys, the keys of both handlers are accepted: only the conflict is reported.
    assert_eq!(
        shown(&in_route(
            "pattern = \"/a/**\"\ncgi = \"c\"\nfastcgi = 1\nenv = 1"
        )),
        format!("3:1: site[0].route[0]: cgi and fastcgi are two handlers (allowed: {one})")
    );
    assert_eq!(
        shown(&in_route("pages = true")),
        "3:1: site[0].route[0]: pattern is missing"
    );
}

#[test]
fn keys_of_other_handlers_are_refused() {
    for (target, line, allowed) in [
        ("pages = true", "env = {}", "only with cgi or fastcgi"),
        ("fastcgi = 1", "memory = 0", "only with cgi or pages"),
        ("fastcgi = 1", "user = 1", "only with cgi"),
        ("fastcgi = 1", "cpu = 1", "only with cgi"),
        ("cgi = \"c\"", "script = \"/x\"", "only with fastcgi"),
        ("cgi = \"c\"", "index = \"x\"", "only with fastcgi"),
        ("cgi = \"c\"", "script_root = \"/x\"", "only with fastcgi"),
        ("fastcgi = 1", "processes = 1", "only with cgi"),
        (
            "pages = true",
            "connections = 1",
            "only with fastcgi or origin",
        ),
        (
            "pages = true",
            "cache = {}",
            "only with origin or cgi or fastcgi",
        ),
        (
            "pages = true",
            "request_buffering = 0",
            "only with module or cgi or fastcgi or origin",
        ),
    ] {
        let found = shown(&in_route(&format!("pattern = \"/a/**\"\n{target}\n{line}")));
        let key = line.split(' ').next().expect("a key");
        let end = format!("site[0].route[0].{key}: has no effect here (allowed: {allowed})");
        assert!(found.starts_with("6:") && found.ends_with(&end), "{found}");
    }
    let cached = "pattern = \"/a/**\"\nfastcgi = 1\ncache.cookies = \"never\"";
    let end = "site[0].route[0].cache.cookies: has no effect here (allowed: only with origin)";
    assert!(shown(&in_route(cached)).ends_with(end));
    for (code, line, allowed) in [
        ("linked", "separate = true", "library"),
        ("wasm", "separate = true", "library"),
        ("library", "memory = 65536", "wasm"),
        ("linked", "compute = 1", "wasm"),
        ("library", "keep = true", "wasm"),
    ] {
        let text = format!("[[module]]\nname = \"a\"\n{code} = \"a\"\n{line}");
        let found = shown(&with_site(&text));
        let end = format!("has no effect here (allowed: only with {allowed})");
        assert!(found.starts_with("4:") && found.ends_with(&end), "{found}");
    }
}

#[test]
fn undefined_modules_and_databases_of_routes_are_reported() {
    let text = in_route("pattern = \"/a\"\nmodule = \"m\"");
    assert_eq!(
        shown(&text),
        "5:10: site[0].route[0].module: there is no module \"m\" \
         (allowed: [[module]] with name = \"m\")"
    );
    let databases = "[[database]]\nname = \"a\"\nurl = \"sqlite:a\"\n\
                     [[database]]\nname = \"b\"\nurl = \"sqlite:b\"\n";
    let text = in_route("pattern = \"/a\"\npages = \"c\"");
    assert_eq!(
        shown(&format!("{text}{databases}")),
        "5:9: site[0].route[0].pages: there is no database \"c\" (allowed: a, b)"
    );
}

#[test]
fn duplicate_module_and_database_names_are_reported() {
    let module = "[[module]]\nname = \"a\"\nlinked = \"a\"\n";
    let database = "[[database]]\nname = \"a\"\nurl = \"sqlite:a\"\n";
    good(&with_site(&format!("{module}{database}")));
    assert_eq!(
        shown(&with_site(&format!("{module}{module}"))),
        "5:8: module[1].name: \"a\" is already module[0] (allowed: each name once)"
    );
    assert_eq!(
        shown(&with_site(&format!("{database}{database}"))),
        "5:8: database[1].name: \"a\" is already database[0] (allowed: each name once)"
    );
}

#[test]
fn invalid_route_values_are_refused() {
    for (lines, expected) in [
        (
            "pattern = \"/a\"\ncgi = \"c\"",
            "4:11: site[0].route[0].pattern: /a does not show which path is the folder of programs (allowed: a pattern with its first wildcard after a /: /cgi-bin/**)",
        ),
        (
            "pattern = \"*.cgi\"\ncgi = \"c\"",
            "4:11: site[0].route[0].pattern: *.cgi does not show which path is the folder of programs (allowed: a pattern with its first wildcard after a /: /cgi-bin/**)",
        ),
        (
            "pattern = \"/a\"\nfastcgi = \"localhost\"",
            "5:11: site[0].route[0].fastcgi: \"localhost\" is not the address of a server \
             (allowed: unix:/PATH, HOST:PORT, ADDR:PORT, [ADDR6]:PORT, or a PORT of 127.0.0.1)",
        ),
        (
            "pattern = \"/a\"\nfastcgi = \"*:9000\"",
            "5:11: site[0].route[0].fastcgi: \"*:9000\" is not the address of a server \
             (allowed: unix:/PATH, HOST:PORT, ADDR:PORT, [ADDR6]:PORT, or a PORT of 127.0.0.1)",
        ),
        (
            "pattern = \"/a\"\nfastcgi = \"unix:\"",
            "5:11: site[0].route[0].fastcgi: \"unix:\" is not a socket (allowed: unix:/PATH)",
        ),
        (
            "pattern = \"/a\"\nfastcgi = 1\nscript = \"x.php\"",
            "6:10: site[0].route[0].script: \"x.php\" is not a path under the root (allowed: /PATH \
             of a file, without empty segments, . and ..)",
        ),
        (
            "pattern = \"/a\"\npages = false",
            "5:9: site[0].route[0].pages: false is not a database (allowed: the name of a \
             [[database]], or true for pages without one)",
        ),
        (
            "pattern = \"/a\"\npages = true\nconcurrency = 0",
            "6:15: site[0].route[0].concurrency: 0 is out of range (allowed: 1 to 65536)",
        ),
        (
            "pattern = \"/a/*\"\ncgi = \"c\"\nmemory = \"1K\"",
            "6:10: site[0].route[0].memory: \"1K\" is out of range (allowed: 0 (off), or 1M to 1024G)",
        ),
        (
            "pattern = \"/a/*\"\ncgi = \"c\"\ncpu = \"10ms\"",
            "6:7: site[0].route[0].cpu: \"10ms\" is out of range (allowed: 1s to 24h)",
        ),
        (
            "pattern = \"/a/*\"\ncgi = \"c\"\nenv.PATH_INFO = \"x\"",
            "6:5: site[0].route[0].env.PATH_INFO: \"PATH_INFO\" describes the request \
             (allowed: letters, digits and _, no digit in front, none of RFC 3875 section 4.1, \
             no HTTP_…)",
        ),
        (
            "pattern = \"/a/*\"\ncgi = \"c\"\nenv.\"A=B\" = \"x\"",
            "6:5: site[0].route[0].env.A=B: \"A=B\" is not the name of a variable \
             (allowed: letters, digits and _, no digit in front, none of RFC 3875 section 4.1, \
             no HTTP_…)",
        ),
        (
            "pattern = \"/a/*\"\ncgi = \"c\"\nenv.A = [1]",
            "6:9: site[0].route[0].env.A: an array is not a plain value \
             (allowed: a string without NUL, a number, true, false, or a secret: { file = \"PATH\" })",
        ),
    ] {
        assert_eq!(shown(&in_route(lines)), expected, "{lines}");
    }
}

#[test]
fn invalid_module_values_are_refused() {
    let one = "one of linked, library and wasm";
    for (lines, expected) in [
        (
            "name = \"a\"".to_string(),
            format!("1:1: module[0]: the module has no code (allowed: {one})"),
        ),
        (
            "name = \"a\"\nlinked = \"a\"\nwasm = \"a\"\nkeep = true".to_string(),
            format!("1:1: module[0]: the module has more than one kind of code (allowed: {one})"),
        ),
        (
            "linked = \"a\"".to_string(),
            "1:1: module[0]: name is missing".to_string(),
        ),
        (
            "name = \"a/b\"\nlinked = \"a\"".to_string(),
            "2:8: module[0].name: \"a/b\" is not a name (allowed: 1 to 64 letters, digits, - _ \
             and ., not - or . in front)"
                .to_string(),
        ),
        (
            "name = \"a\"\nwasm = \"a\"\nmemory = \"8G\"".to_string(),
            "4:10: module[0].memory: \"8G\" is out of range (allowed: 64K to 4G)".to_string(),
        ),
    ] {
        assert_eq!(
            shown(&with_site(&format!("[[module]]\n{lines}"))),
            expected,
            "{lines}"
        );
    }
}

#[test]
fn invalid_database_urls_are_not_quoted_in_problems() {
    let database = |url: &str| {
        shown(&with_site(&format!(
            "[[database]]\nname = \"a\"\nurl = \"{url}\""
        )))
    };
    for (url, what) in [
        ("", "not a URL"),
        ("mysql://u:secret@h/a b", "not a URL"),
        ("oracle://u:secret@h/n", "oracle: is not a supported kind"),
        ("u:secret@h/n", "u: is not a supported kind"),
        ("/secret/n", "does not name the kind of database"),
        ("mysql:secret", "a mysql URL begins with mysql://"),
        ("postgres://", "a postgres URL begins with postgres://"),
        ("sqlite:", "names no SQLite file"),
        ("sqlite://secret.db", "names no SQLite file"),
        ("sqlite::memory:", "names no SQLite file"),
        ("mysql://u:${}@secret/n", "a ${ that names no variable"),
    ] {
        let found = database(url);
        assert!(found.starts_with("3:7: database[0].url: "), "{found}");
        assert!(found.contains(what), "{url}: {found}");
        assert!(!found.contains("secret"), "{found}");
    }
}

#[test]
fn load_checks_module_files_and_program_folders() {
    let folder = Folder::new("dynamic");
    folder.write("m.wasm", b"x");
    let good = "[[module]]\nname = \"m\"\nwasm = \"m.wasm\"\n[[site]]\nroot = \"root\"\n\
                [[site.route]]\npattern = \"/c/*\"\ncgi = \"root\"\n";
    let file = folder.write("good.toml", good.as_bytes());
    assert!(load(&file, &[]).is_ok());
    let bad = good
        .replace("m.wasm", "n.wasm")
        .replace("cgi = \"root\"", "cgi = \"none\"");
    let file = folder.write("bad.toml", bad.as_bytes());
    let problems = load(&file, &[]).expect_err("two problems");
    let found: Vec<_> = problems
        .iter()
        .map(|problem| (problem.line, problem.key.as_str()))
        .collect();
    assert_eq!(
        found,
        [(3, "module[0].wasm"), (8, "site[0].route[0].cgi")],
        "{}",
        lines(&problems)
    );
}

#[test]
fn application_and_origin_of_route_are_read() {
    let text = "[[application]]\nname = \"shop\"\ncommand = [\"node\", \"app.js\"]\nready = \"http://127.0.0.1:3000\"\n\
                stop_timeout = \"1s\"\n[application.env]\nPORT = 3000\n[[site]]\n[[site.route]]\npattern = \"/**\"\n\
                origin = \"http://127.0.0.1:3000\"\nconnections = 7\n[site.route.cache]\nttl = \"1m\"\ncookies = \"never\"\n";
    let config = good(text);
    let application = &config.applications[0];
    assert_eq!(application.command, ["node", "app.js"]);
    assert_eq!(application.env, pairs(&[("PORT", "3000")]));
    assert_eq!(
        (application.start_timeout_ms, application.stop_timeout_ms),
        (30_000, 1000)
    );
    let site = &config.sites[0];
    assert_eq!(site.root, SiteRoot::None, "all paths are the origin's");
    let route = &site.routes[0];
    assert!(matches!(&route.to, RouteTo::Origin(origin) if origin.connections_max == 7));
    assert_eq!(
        (route.caching.ttl_s, route.caching.cookies),
        (Some(60), CookieStorage::Never)
    );
    assert_eq!(route.caching.stale_if_error_s, 3600);
    let wrong = "[[application]]\nname = \"a\"\ncommand = []\n";
    assert_eq!(
        shown(&with_site(wrong)),
        "3:11: application[0].command: the command is empty (allowed: [\"PROGRAM\", \"ARGUMENT\", …])"
    );
}

/// A site that forwards all paths to the origin "app", which has these lines, beginning at line 8.
fn with_origin(lines: &str) -> String {
    format!(
        "[[site]]\n[[site.route]]\npattern = \"/**\"\norigin = \"app\"\n\n[[origin]]\nname = \"app\"\n{lines}\n"
    )
}

fn origin_of(text: &str) -> OriginConfig {
    match &good(text).sites[0].routes[0].to {
        RouteTo::Origin(origin) => (**origin).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn sticky_sessions_are_read_and_contradictions_refused() {
    let sticky = |line: &str| {
        let lines = format!("servers = \"http://a\"\nsticky = {line}");
        origin_of(&with_origin(&lines)).sticky
    };
    assert_eq!(sticky("false"), None);
    let default = sticky("true").expect("sessions");
    assert_eq!(default.cookie, "sticky_app");
    assert_eq!((default.lifetime_s, default.is_secure), (None, None));
    assert_eq!(sticky("\"s\"").expect("sessions").cookie, "s");
    let table = "{ cookie = \"__Host-s\", lifetime = \"1h\", secure = true, http_only = false, same_site = \"none\", \
                 secret = \"0123456789abcdef\" }";
    let expected = OriginSticky {
        cookie: "__Host-s".into(),
        lifetime_s: Some(3600),
        is_secure: Some(true),
        is_http_only: false,
        same_site: SameSite::None,
        secret: Some(SecretText::new("0123456789abcdef")),
    };
    assert_eq!(sticky(table), Some(expected));
    for (line, expected) in [
        (
            "{ cookie = \"a b\" }",
            "9:21: origin[0].sticky.cookie: \"a b\" is not the name of a cookie",
        ),
        (
            "{ secret = \"short\" }",
            "9:21: origin[0].sticky.secret: the secret is shorter than 16 bytes",
        ),
        (
            "{ secure = false, same_site = \"none\" }",
            "9:21: origin[0].sticky.secure: a cookie with SameSite=None",
        ),
        (
            "{ secure = false, cookie = \"__Host-a\" }",
            "9:21: origin[0].sticky.secure: a cookie with this name",
        ),
        (
            "{ lifetime = \"401d\" }",
            "9:23: origin[0].sticky.lifetime: ",
        ),
        ("3", "9:10: origin[0].sticky: "),
    ] {
        let found = shown(&with_origin(&format!(
            "servers = \"http://a\"\nsticky = {line}"
        )));
        assert!(found.starts_with(expected), "{line}: {found}");
    }
}

#[test]
fn names_of_services_and_name_servers_are_read() {
    let found = origin_of(&with_origin(
        "servers = \"https://_app._tcp.Shop.internal\"\nresolver = [\"10.0.0.2\", \"[::1]:5353\"]",
    ));
    let url = &found.servers[0].url;
    assert!(url.is_service());
    assert_eq!(url.to_string(), "https://_app._tcp.shop.internal");
    assert_eq!(
        (url.host(), url.authority()),
        ("shop.internal", "shop.internal".to_owned())
    );
    // With a port it is the name of a host.
    let with_port = value::origin_url("http://_a._tcp.b:80").expect("a URL");
    assert!(!with_port.is_service());
    let resolvers: Vec<String> = found.resolvers.iter().map(ToString::to_string).collect();
    assert_eq!(resolvers, ["10.0.0.2:53", "[::1]:5353"]);
    for (lines, expected) in [
        (
            "servers = \"http://a\"\nresolver = \"ns1\"",
            "9:12: origin[0].resolver: \"ns1\" is not the address",
        ),
        (
            "servers = \"http://1.2.3.4\"\nresolver = \"10.0.0.2\"",
            "9:12: origin[0].resolver: no server has a name",
        ),
        (
            "servers = \"http://a\"\nresolver = []",
            "9:12: origin[0].resolver: the list is empty",
        ),
    ] {
        let found = shown(&with_origin(lines));
        assert!(found.starts_with(expected), "{lines}: {found}");
    }
}

#[test]
fn mirror_is_read_and_its_origin_resolved() {
    let text = |line: &str| {
        format!(
            "[[site]]\n[[site.route]]\npattern = \"/**\"\norigin = \"http://a\"\nmirror = {line}\n\
             [[origin]]\nname = \"next\"\nservers = [\"http://b\", \"http://c\"]\n"
        )
    };
    let mirror = |line: &str| good(&text(line)).sites[0].routes[0].mirror.clone();
    let named = mirror("\"next\"").expect("a mirror");
    assert_eq!((named.to.servers.len(), named.share), (2, 10_000));
    let url = value::origin_url("http://b").expect("a URL");
    assert_eq!(
        mirror("\"http://b\""),
        Some(MirrorConfig::new(OriginConfig::new(url.clone())))
    );
    let table = "{ to = \"http://b\", share = \"0.5%\", methods = \"POST\", body_max = 0, concurrency = 1 }";
    let expected = MirrorConfig {
        share: 50,
        methods: vec!["POST".into()],
        body_len_max: 0,
        concurrency_max: 1,
        ..MirrorConfig::new(OriginConfig::new(url))
    };
    assert_eq!(mirror(table), Some(expected));
    for (line, expected) in [
        ("\"nxt\"", "5:10: site[0].route[0].mirror: "),
        (
            "{ share = \"10%\" }",
            "5:10: site[0].route[0].mirror: to is missing",
        ),
        (
            "{ to = \"next\", share = \"0%\" }",
            "5:33: site[0].route[0].mirror.share: \"0%\" is not a share",
        ),
        (
            "{ to = \"next\", methods = \"get\" }",
            "5:35: site[0].route[0].mirror.methods: ",
        ),
    ] {
        let found = shown(&text(line));
        assert!(found.starts_with(expected), "{line}: {found}");
    }
}

#[test]
fn route_refers_to_origin_with_several_servers() {
    let found = origin_of(&with_origin(
        "servers = [\"http://10.0.0.1:3000\", { url = \"https://b.internal\", weight = 3, backup = true }]\n\
         balance = \"hash\"\nhash = \"cookie:id\"\nconnect_timeout = \"1s\"\ntimeout = \"2s\"\nconnections = 8\n\
         tries = 2\nretry_percent = 10\nretry_body_max = \"1M\"\nhost = \"www.example.com\"\n\
         check = { path = \"/up?a\", interval = \"1s\", timeout = \"500ms\", status = \"200,204\", rise = 1, fall = 2 }\n\
         tls = { verify = false, ca = \"ca.pem\", name = \"b\", certificate = \"c.pem\", key = \"k.pem\" }",
    ));
    let server = |text: &str| OriginServer::new(value::origin_url(text).expect("a URL"));
    let expected = OriginConfig {
        servers: vec![
            server("http://10.0.0.1:3000"),
            OriginServer {
                weight: 3,
                backup: true,
                ..server("https://b.internal")
            },
        ],
        balance: BalanceConfig::Hash(HashBy::Cookie("id".into())),
        check: Some(OriginCheck {
            path: "/up?a".into(),
            interval_ms: 1000,
            timeout_ms: 500,
            statuses: vec![(200, 200), (204, 204)],
            rise: 1,
            fall: 2,
        }),
        connections_max: 8,
        connect_timeout_ms: 1000,
        timeout_ms: Some(2000),
        tries_max: 2,
        retry_percent: 10,
        retry_body_max: 1 << 20,
        host: OriginHost::Name("www.example.com".into()),
        tls: OriginTls {
            verify: false,
            authorities: Some("ca.pem".into()),
            name: Some("b".into()),
            identity: Some(("c.pem".into(), "k.pem".into())),
        },
        ..OriginConfig::named("app".into())
    };
    assert_eq!(found, expected);
    let told = origin_of(&with_origin(
        "servers = \"unix:/run/a\"\nproxy_protocol = \"v2\"",
    ));
    assert_eq!(told.proxy_protocol, Some(ProxyProtocol::V2));
}

#[test]
fn protocol_follows_from_url_or_key() {
    for (lines, expected) in [
        ("servers = \"http://a\"", OriginProtocol::Http1),
        ("servers = \"https://a\"", OriginProtocol::Http1),
        ("servers = [\"h2c://a:1\", \"h2c://b\"]", OriginProtocol::H2),
        (
            "servers = [\"h2c://a\", \"unix:/b\"]\nprotocol = \"h2\"",
            OriginProtocol::H2,
        ),
        (
            "servers = \"https://a\"\nprotocol = \"auto\"",
            OriginProtocol::Auto,
        ),
    ] {
        assert_eq!(origin_of(&with_origin(lines)).protocol, expected, "{lines}");
    }
    let in_url = origin_of(
        "[[site]]\n[[site.route]]\npattern = \"/**\"\norigin = \"h2c://a:50051\"\nconnections = 4",
    );
    assert_eq!(in_url.protocol, OriginProtocol::H2);
    assert_eq!(in_url.servers[0].url.to_string(), "http://a:50051");
    assert_eq!(in_url.connections_max, 4);
    let buffers = |lines: &str| {
        let text = format!("[[site]]\n[[site.route]]\npattern = \"/**\"\n{lines}");
        good(&text).sites[0].routes[0].buffers_requests()
    };
    assert!(buffers("origin = \"http://a\"") && !buffers("origin = \"h2c://a\""));
    assert!(buffers("origin = \"h2c://a\"\nrequest_buffering = true"));
}

#[test]
fn origin_mistakes_are_reported_with_position() {
    for (lines, expected) in [
        ("", "6:1: origin[0]: servers is missing"),
        (
            "servers = []",
            "6:1: origin[0]: no server is listed (allowed: at least one URL in servers)",
        ),
        (
            "servers = [{ url = \"http://a\", weigth = 1 }]",
            "8:32: origin[0].servers[0].weigth: unknown key; did you mean weight? (allowed: url, weight, backup)",
        ),
        (
            "servers = \"http://a\"\nhash = \"url\"",
            "9:8: origin[0].hash: has no effect here (allowed: only with balance = \"hash\")",
        ),
        (
            "servers = \"http://a\"\ntls = {}",
            "9:7: origin[0].tls: has no effect here (allowed: only with a server whose URL is https:)",
        ),
        (
            "servers = \"https://a\"\nproxy_protocol = \"v1\"",
            "9:18: origin[0].proxy_protocol: has no effect here (allowed: only with servers whose URLs are http: or unix:)",
        ),
        (
            "servers = \"h2c://a\"\nprotocol = \"http/1.1\"",
            "9:12: origin[0].protocol: h2c: means HTTP/2 in clear text (allowed: \"h2\", or http: URLs)",
        ),
        (
            "servers = [\"https://a\", \"http://b\"]\nprotocol = \"auto\"",
            "9:12: origin[0].protocol: without TLS the protocol can't be negotiated (allowed: \"h2\" or \"http/1.1\", or https: URLs only)",
        ),
        (
            "servers = [\"h2c://a\", \"http://b\"]",
            "6:1: origin[0]: some URLs are h2c: and others are not, but all servers speak one protocol (allowed: h2c: for all, or protocol = \"h2\")",
        ),
        (
            "servers = \"h2c://a\"\nproxy_protocol = \"v1\"",
            "9:18: origin[0].proxy_protocol: has no effect here (allowed: only with protocol = \"http/1.1\")",
        ),
        (
            "servers = \"http://a\"\nprotocol = \"h3\"",
            "9:12: origin[0].protocol: \"h3\" is not an allowed value (allowed: \"http/1.1\", \"h2\", \"auto\")",
        ),
        (
            "servers = \"https://a\"\ntls = { key = \"k\" }",
            "9:7: origin[0].tls: one of certificate and key is missing (allowed: both, or none)",
        ),
        (
            "servers = \"http://a\"\nhost = \"a/b\"",
            "9:8: origin[0].host: \"a/b\" is not a host (allowed: \"client\", \"origin\", or a host name, with :PORT perhaps)",
        ),
        (
            "servers = \"http://a\"\ncheck = { status = \"ok\" }",
            "9:20: origin[0].check.status: \"ok\" is not a list of statuses (allowed: statuses and ranges of them: \"200\", \"200-299,404\")",
        ),
        (
            "servers = \"http://a\"\n[[origin]]\nname = \"app\"\nservers = \"http://b\"",
            "10:8: origin[1].name: \"app\" is already origin[0] (allowed: each name once)",
        ),
    ] {
        assert_eq!(shown(&with_origin(lines)), expected);
    }
    assert_eq!(
        shown("[[site]]\n[[site.route]]\npattern = \"/**\"\norigin = \"app\"\nconnections = 1"),
        "4:10: site[0].route[0].origin: there is no origin \"app\" (allowed: [[origin]] with name = \"app\")\n\
         5:15: site[0].route[0].connections: has no effect here (allowed: only with a URL as origin; [[origin]] has its own)"
    );
}

#[test]
fn route_conditions_on_method_field_and_cookie_are_read() {
    let config = good(&in_route(
        "pattern = \"/a\"\norigin = \"http://a\"\nmethods = [\"GET\", \"M-SEARCH\"]\n\
         header = [\"X-Beta\", \"X-Kind: a b\"]\ncookie = \"group=b=c\"",
    ));
    let named = |name: &str, value: ValueCondition| NamedCondition {
        name: name.into(),
        value,
    };
    let exact = |text: &str| ValueCondition::Exact(text.into());
    let expected = RequestConditions {
        methods: vec!["GET".into(), "M-SEARCH".into()],
        headers: vec![
            named("X-Beta", ValueCondition::Any),
            named("X-Kind", exact("a b")),
        ],
        cookies: vec![named("group", exact("b=c"))],
        ..RequestConditions::default()
    };
    assert_eq!(config.sites[0].routes[0].conditions, expected);
    for (line, allowed) in [
        (
            "methods = \"CONNECT\"",
            "\"GET\", \"POST\", \"PROPFIND\" or another, as it is sent",
        ),
        ("methods = \"get\"", "as it is sent"),
        ("methods = \"A B\"", "as it is sent"),
        ("header = \"a b\"", "NAME, NAME: VALUE or"),
        ("cookie = \"=b\"", "NAME, NAME=VALUE or"),
        ("cookie = \"a*b\"", "one * at the end of the name"),
        ("cookie = \"a**\"", "one * at the end of the name"),
        ("header = \"X-*\"", "in the name"),
        ("header = \"X-*: a\"", "in the name"),
    ] {
        let found = shown(&in_route(&format!(
            "pattern = \"/a\"\npages = true\n{line}"
        )));
        assert!(found.contains(allowed), "{found}");
    }
}

#[test]
fn fastcgi_servers_may_be_several_addresses_and_host_names() {
    let servers = |value: &str| {
        let text = in_route(&format!("pattern = \"/a\"\nfastcgi = {value}"));
        match good(&text).sites[0].routes[0].to.clone() {
            RouteTo::FastCgi(fastcgi) => fastcgi,
            other => panic!("{other:?}"),
        }
    };
    let all = servers(
        "[\"App1.example:9000\", \"unix:/run/a\", \"[::1]:9\"]\nbalance = \"least-connections\"",
    );
    let names: Vec<String> = all.servers.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["app1.example:9000", "unix:/run/a", "[::1]:9"]);
    assert_eq!(all.balance, BalanceConfig::LeastConnections);
    assert_eq!(servers("9000").balance, BalanceConfig::RoundRobin);
    for bad in [
        "[]",
        "\"app1\"",
        "\"app1:0\"",
        "\"a b:9\"",
        "\"1.2.3:9\"",
        "\"*.a:9\"",
    ] {
        let found = shown(&in_route(&format!("pattern = \"/a\"\nfastcgi = {bad}")));
        assert!(found.contains("server"), "{bad}: {found}");
    }
}

#[test]
fn route_compress_is_read() {
    let compress = |line: &str| {
        let route = format!("pattern = \"/a\"\npages = true\n{line}");
        good(&in_route(&route)).sites[0].routes[0].compress.clone()
    };
    assert_eq!(compress(""), None);
    assert_eq!(compress("compress = false"), Some(vec![]));
    let quick = vec![OfferedCoding::Zstd, OfferedCoding::Gzip];
    assert_eq!(compress("compress = true"), Some(quick));
    assert_eq!(
        compress("compress = [\"br\"]"),
        Some(vec![OfferedCoding::Br])
    );
    let found = shown(&in_route("pattern = \"/a\"\npages = true\ncompress = 1"));
    assert!(found.contains("1 is not a list of codings"), "{found}");
}

#[test]
fn default_index_files_include_those_of_fastcgi_routes() {
    let index = |routes: &str, more: &str| {
        let text = format!("[[site]]\nlisten = 1\nroot = \"/r\"\n{more}{routes}");
        let config = good(&text);
        config.sites[0].index.join(" ")
    };
    let php = "[[site.route]]\npattern = \"*.php\"\nfastcgi = 9000\n";
    let front = "[[site.route]]\npattern = \"/**\"\nmissing = true\nfastcgi = 9000\nscript = \"/index.php\"\n";
    assert_eq!(index("", ""), "index.html");
    assert_eq!(index(php, ""), "index.html index.php");
    assert_eq!(
        index(&format!("{php}{php}{front}"), ""),
        "index.html index.php"
    );
    assert_eq!(index(front, ""), "index.html");
    assert_eq!(
        index(&format!("{php}index = \"start.php\"\n"), ""),
        "index.html start.php"
    );
    assert_eq!(index(php, "index = []\n"), "");
}

#[test]
fn cgi_among_site_files_and_fastcgi_without_scripts() {
    let text = "[[site]]\nlisten = 1\nroot = \"/r\"\n\
        [[site.route]]\npattern = \"*.cgi\"\ncgi = true\n\
        [[site.route]]\npattern = \"/app/**\"\nfastcgi = 9000\nscript = \"\"\nscript_root = \"/there\"\n";
    let config = good(text);
    let [cgi, fastcgi] = &config.sites[0].routes[..] else {
        panic!("two routes");
    };
    assert_eq!(cgi.to, RouteTo::Cgi(CgiConfig::new(None)));
    let RouteTo::FastCgi(fastcgi) = &fastcgi.to else {
        panic!("no FastCGI");
    };
    assert_eq!(fastcgi.script.as_deref(), Some(""));
    assert_eq!(fastcgi.script_root, Some("/there".into()));
}

/// A site with one route to an origin.
fn origin_route(pattern: &str, url: &str, keys: &str) -> String {
    format!(
        "[[site]]\nroot = \"r\"\n[[site.route]]\npattern = \"{pattern}\"\norigin = \"{url}\"\n{keys}"
    )
}

#[test]
fn path_in_url_of_origin_replaces_the_front_of_the_pattern() {
    for (pattern, url, keys, strip, add) in [
        ("/api/**", "http://a", "", "", ""),
        ("/api/**", "http://a/", "", "", ""),
        ("/api/**", "http://a/app/", "", "/api", "/app"),
        ("/api/**", "http://a:81/app", "", "/api", "/app"),
        ("/**", "http://a/app/", "", "", "/app"),
        ("/api*", "http://a/app/", "", "", "/app"),
        ("/api/v1/*.json", "http://a/app/", "", "/api/v1", "/app"),
        ("*.php", "http://a/app/", "", "", "/app"),
        ("/api", "http://a/app/", "", "/api", "/app/"),
        (
            "/api/v1/**",
            "http://a/app",
            "strip_prefix = \"/api\"\n",
            "/api",
            "/app",
        ),
        (
            "/api/**",
            "http://a",
            "strip_prefix = \"/api/\"\n",
            "/api",
            "",
        ),
        (
            "/api/**",
            "http://a",
            "add_prefix = \"/v%202/\"\n",
            "",
            "/v%202",
        ),
    ] {
        let config = good(&origin_route(pattern, url, keys));
        let route = &config.sites[0].routes[0];
        let prefixes = PathPrefixes {
            strip: strip.into(),
            add: add.into(),
            restores: true,
        };
        assert_eq!(route.prefixes, prefixes, "{pattern} {url} {keys}");
        let RouteTo::Origin(origin) = &route.to else {
            panic!("an origin");
        };
        let port = if url.contains(":81") { 81 } else { 80 };
        assert_eq!(origin.name, format!("http://a:{port}"));
    }
}

#[test]
fn fields_of_requests_are_read() {
    let text = origin_route(
        "/api/**",
        "http://a",
        "restore_prefix = false\nstrip_prefix = \"/api\"\n[site.route.request]\nhost = \"$host:81\"\n\
         set = { X-A = \"$client $1 $site\", X-B = \"\" }\nappend = { X-C = \"c\" }\nremove = \"Cookie\"\n",
    );
    let config = good(&text.replace("root = \"r\"", "root = \"r\"\nnames = \"S.example\""));
    let route = &config.sites[0].routes[0];
    assert!(!route.prefixes.restores);
    let rule = &route.request;
    assert_eq!(rule.host.as_ref().map(Template::as_str), Some("$host:81"));
    assert_eq!(rule.set[0].1.variables().count(), 2, "the site is known");
    assert_eq!(rule.set[1], ("X-B".into(), Template::literal("")));
    assert_eq!(rule.append, [("X-C".into(), Template::literal("c"))]);
    assert_eq!(rule.remove, ["cookie"]);
    let dependences: Vec<_> = rule.dependences().collect();
    assert_eq!(dependences, [("X-A", Dependence::Client)]);
}

#[test]
fn mistakes_in_requests_of_origins_are_reported() {
    let origin = |url: &str, keys: &str| origin_route("/api/**", url, keys);
    let request = |keys: &str| origin("http://a", &format!("request = {{ {keys} }}\n"));
    for (text, expected) in [
        (
            origin("http://a/../b", ""),
            "\"http://a/../b\" is not the URL of an origin",
        ),
        (
            origin("http://a/b?c", ""),
            "\"http://a/b?c\" is not the URL of an origin",
        ),
        (
            origin("http://a/b", "add_prefix = \"/c\"\n"),
            "6:14: site[0].route[0].add_prefix: has no effect here (allowed: only with an origin without a path in its URL)",
        ),
        (
            origin("http://a", "strip_prefix = \"/ap\"\n"),
            "6:16: site[0].route[0].strip_prefix: the paths of /api/** do not all begin with /ap/ (allowed: the front of the pattern, up to a slash)",
        ),
        (
            origin("http://a", "strip_prefix = \"/\"\n"),
            "is not a prefix of paths (allowed: /PATH, decoded",
        ),
        (
            origin("http://a", "add_prefix = \"/a%2fb\"\n"),
            "is not a prefix of paths (allowed: /PATH in visible",
        ),
        (
            origin("http://a", "restore_prefix = true\n"),
            "restore_prefix: has no effect here",
        ),
        (
            request("set = { Host = \"a\" }"),
            "Host is not changed here (allowed: the key host)",
        ),
        (
            request("set = { Content-Length = \"1\" }"),
            "Content-Length is managed by the server",
        ),
        (
            request("remove = [\"te\", \"Upgrade\"]"),
            "Upgrade is managed by the server",
        ),
        (
            request("set = { A = \"$foo\" }"),
            "6:26: site[0].route[0].request.set.A: $foo is not a variable (allowed: $host, $authority, $client, ",
        ),
        (
            request("set = { A = \"a\\r\\nB: c\" }"),
            "is not a field value",
        ),
        (
            request("set = { A = \"$2\" }"),
            "$2 has no meaning here: the only capture is $1",
        ),
        (
            request("set = { A = \"a\" }, remove = \"a\""),
            "the rule names a twice (allowed: one of set, append and remove for each field)",
        ),
        (
            request("host = \"$client\""),
            "$client is not allowed here (allowed: $host, $authority, $site, $map_NAME, $$ for a dollar sign)",
        ),
        (
            request("host = \"a/b\""),
            "\"a/b\" is not a host (allowed: HOST or HOST:PORT",
        ),
    ] {
        let found = shown(&text);
        assert!(found.contains(expected), "{found}");
    }
    let text = "[[site]]\nroot = \"r\"\n[[site.header]]\nset = { Cache-Control = \"$host\" }\n";
    let expected = "Cache-Control has a variable (allowed: a constant value";
    assert!(shown(text).contains(expected), "{}", shown(text));
}

/// The warnings of a configuration.
fn warnings(text: &str) -> String {
    let config =
        parse(text, Path::new("f")).unwrap_or_else(|problems| panic!("{}", lines(&problems)));
    lines(&config.document.warnings)
}

#[test]
fn ignored_arguments_must_not_decide_about_the_response() {
    const ROUTE: &str = "[[site.route]]\npattern = \"/**\"\norigin = \"http://a\"\n";
    let cache = "[site.route.cache]\nignore_arguments = [\"b\", \"utm_*\"]\n";
    for (lines, depends) in [
        (
            "[[site.route]]\npattern = \"/x\"\norigin = \"http://b\"\nargument = \"utm_x\"\n",
            "the route /x depends on utm_x",
        ),
        (
            "[[site.route]]\npattern = \"/x\"\norigin = \"http://b\"\nnot = { variable = \"$arg_utm_x=1\" }\n",
            "the route /x depends on utm_x",
        ),
        (
            "[[site.route]]\npattern = \"/x\"\norigin = \"http://b\"\nvariable = \"$map_m=1\"\n",
            "the route /x depends on utm_y",
        ),
        (
            "[[site.rule]]\nargument = \"utm_z=1\"\nfallback = \"/f\"\n",
            "the fallback /f depends on utm_z",
        ),
        (
            "[[site.rewrite]]\nfrom = \"/r\"\nto = \"/w/$arg_utm_x\"\n",
            "the rewrite to /w/$arg_utm_x depends on utm_x",
        ),
    ] {
        let text = format!(
            "[map.m]\nfrom = \"$arg_utm_y\"\nentries = {{ a = \"1\" }}\n[[site]]\nroot = \"r\"\n{lines}{ROUTE}{cache}"
        );
        let shown = shown(&text);
        assert!(
            shown.contains(&format!("\"utm_*\" is not in cache keys, but {depends}")),
            "{shown}"
        );
        assert!(shown.contains("ignore_arguments[1]"), "{shown}");
    }
    // A field of the request to the origin counts, unless it is a copy of the query.
    let request = format!("[[site]]\n{ROUTE}request = {{ set = {{ X-A = \"$arg_b\" }} }}\n{cache}");
    assert!(shown(&request).contains(
        "\"b\" is not in cache keys, but X-A of the request to the handler depends on b"
    ));
    let whole =
        format!("[[site]]\n{ROUTE}variable = \"$query=~^x\"\n{cache}sort_arguments = true\n");
    let shown = shown(&whole);
    assert!(
        shown.contains("\"b\" is not in cache keys, but the route /** depends on the whole query"),
        "{shown}"
    );
    assert!(
        shown.contains("sort_arguments: the route /** depends on the order of the arguments"),
        "{shown}"
    );
    // A copy of the query, other arguments, and decisions before the cache are allowed.
    good(&format!(
        "[[site]]\nroot = \"r\"\n[[site.redirect]]\nfrom = \"/a\"\nto = \"/b\"\nargument = \"utm_x\"\n[[site.rewrite]]\nfrom = \"/c\"\nto = \"/d?$query\"\n\
         [[site.rewrite]]\nfrom = \"/e\"\nto = \"/f\"\nargument = \"b\"\n\
         {ROUTE}argument = \"a\"\nrequest = {{ set = {{ X-A = \"$arg_bb $request_uri\" }} }}\n{cache}sort_arguments = true\nbypass = {{ argument = \"b\" }}\n"
    ));
}

#[test]
fn patterns_of_a_route_are_routes() {
    let config = good(&in_route(
        "pattern = [\"/a/**\", \"/b/x\", \"*.c\"]\norigin = \"http://o/y/\"\nmethods = \"GET\"",
    ));
    // The path in the URL replaces another front for each pattern.
    let routes = &config.sites[0].routes;
    let shown: Vec<_> = routes
        .iter()
        .map(|it| {
            (
                it.pattern.to_string(),
                it.prefixes.strip.as_str(),
                it.prefixes.add.as_str(),
            )
        })
        .collect();
    let expected = [
        ("/a/**", "/a", "/y"),
        ("/b/x", "/b/x", "/y/"),
        ("*.c", "", "/y"),
    ];
    assert_eq!(
        shown,
        expected.map(|(pattern, strip, add)| (pattern.to_owned(), strip, add))
    );
    assert!(
        routes
            .iter()
            .all(|it| it.conditions == routes[0].conditions && it.to == routes[0].to)
    );
    for (lines, problem) in [
        (
            "pattern = []\norigin = \"http://a\"",
            "4:11: site[0].route[0].pattern: the list is empty",
        ),
        (
            "pattern = [\"/a\", \"b/c\"]\norigin = \"http://a\"",
            "4:18: site[0].route[0].pattern[1]:",
        ),
        (
            "pattern = [\"/a/**\", \"/b\"]\norigin = \"http://a\"\nrequest = { set = { X = \"$1\" } }",
            "$1 has no meaning here",
        ),
        (
            "pattern = [\"/a/**\", \"/b/**\"]\norigin = \"http://a\"\nstrip_prefix = \"/a\"",
            "the paths of /b/** do not all begin with /a/",
        ),
    ] {
        let shown = self::shown(&in_route(lines));
        assert!(shown.contains(problem), "{shown}");
    }
}

#[test]
fn settings_without_effect_are_warned_of() {
    const SITE: &str = "[[site]]\nroot = \"r\"\n";
    const CORS: &str = "origins = \"https://a\"\n";
    for (lines, expected) in [
        (format!("[[site.cors]]\n{CORS}[[site.cors]]\npattern = \"/api/**\"\n{CORS}"), "5:1: site[0].cors[1]: never applies to /api/**: an earlier site.cors with /** precedes it"),
        (format!("[[site.cors]]\npattern = \"/a/**\"\n{CORS}[[site.cors]]\npattern = [\"/b\", \"/a/b/*.c\"]\n{CORS}"), "never applies to /a/b/*.c: an earlier site.cors with /a/**"),
        ("[[site.route]]\npattern = \"/a/**\"\norigin = \"http://a\"\n[[site.route]]\npattern = \"/a/b\"\norigin = \"http://b\"\n".into(), "site[0].route[1].origin: never applies to /a/b"),
        ("[[site.route]]\npattern = \"/a\"\norigin = \"http://a\"\nkeep = \"never\"\ncache = { ttl = 5 }\n".into(), "7:17: site[0].route[0].cache.ttl: no response gets this lifetime, because of keep = \"never\""),
        ("[[site.route]]\npattern = [\"/a\", \"/b\"]\norigin = \"http://a\"\nkeep = \"never\"\n[[site.route.cache.rule]]\nno_store = true\n".into(), "7:1: site[0].route[0].cache.rule[0]: no response is stored, because of keep"),
    ] {
        let shown = warnings(&format!("{SITE}{lines}"));
        assert_eq!(shown.lines().count(), 1, "{shown}");
        assert!(shown.contains(expected), "{shown}");
    }
    // Without a memory cache nothing is stored.
    let off = format!(
        "[server]\ncache = 0\n{SITE}[[site.route]]\npattern = \"/a\"\norigin = \"http://a\"\ncache = {{ ttl = 5 }}\n"
    );
    assert!(warnings(&off).contains("because of server.cache = 0"));
    // A map may be used by a text or by a condition.
    let map = format!("[map.m]\nfrom = \"$host\"\nentries = {{ a = \"1\" }}\n{SITE}");
    assert!(
        warnings(&map).contains("1:6: map.m: no text refers to the map (allowed: $map_m"),
        "{}",
        warnings(&map)
    );
    assert_eq!(
        warnings(&format!(
            "{map}[[site.redirect]]\nfrom = \"/a\"\nto = \"$map_m\"\n"
        )),
        ""
    );
    assert_eq!(
        warnings(&format!(
            "{map}[[site.rule]]\nvariable = \"$map_m=1\"\ndeny = 403\n"
        )),
        ""
    );
    for lines in [
        "[[site.cors]]\npattern = [\"/a/**\", \"/a/b\"]\norigins = \"https://a\"\n",
        "[[site.cors]]\npattern = \"/a/*\"\norigins = \"https://a\"\n[[site.cors]]\npattern = \"/a/**\"\norigins = \"https://a\"\n",
        "[[site.route]]\npattern = \"/**\"\norigin = \"http://a\"\nmethods = \"GET\"\n[[site.route]]\npattern = \"/a\"\norigin = \"http://b\"\n",
        "[[site.route]]\npattern = \"/**\"\norigin = \"http://a\"\nmissing = true\n[[site.route]]\npattern = \"/a\"\norigin = \"http://b\"\n",
        "[[site.route]]\npattern = \"/a\"\norigin = \"http://a\"\ncache = { ttl = 5 }\n",
    ] {
        assert_eq!(warnings(&format!("{SITE}{lines}")), "", "{lines}");
    }
}

#[test]
fn error_page_of_a_class_is_for_the_other_statuses() {
    let text = "[[site]]\nroot = \"r\"\n[site.error_pages]\n5xx = \"/5.html\"\n503 = \"/503.html\"\n404 = \"/404.html\"\n";
    let config = parse(text, Path::new("f")).expect("a configuration");
    let pages = &config.sites[0].error_pages;
    assert_eq!(pages.len(), 101);
    for (status, page) in [
        (404, "/404.html"),
        (500, "/5.html"),
        (503, "/503.html"),
        (599, "/5.html"),
    ] {
        assert_eq!(pages[&status], page, "{status}");
    }
    assert!(!pages.contains_key(&403));
    let shown = parse(&text.replace("5xx", "3xx"), Path::new("f"));
    assert!(
        lines(&shown.expect_err("a range of successes"))
            .contains("\"3xx\" is not a status of an error")
    );
}

#[test]
fn rules_that_no_request_meets_are_warned_of() {
    const SITE: &str = "[[site]]\nroot = \"r\"\n";
    const TLS: &str = "[site.tls]\nlisten = \"*:443\"\ncertificate = \"c\"\nkey = \"k\"\n";
    const ROUTE: &str = "[[site.route]]\npattern = [\"/a/**\", \"/b\"]\norigin = \"http://a\"\n";
    let rules =
        |first: &str, second: &str| format!("[[site.rule]]\n{first}\n[[site.rule]]\n{second}\n");
    let rule = |line: &str| format!("{ROUTE}[[site.route.cache.rule]]\nno_store = true\n{line}\n");
    let redirects = |first: &str, second: &str| {
        format!(
            "[[site.redirect]]\nto = \"/x\"\n{first}\n[[site.redirect]]\nto = \"/y\"\n{second}\n"
        )
    };
    const HTTPS: &str = "scheme = \"https\"";
    for (lines, expected) in [
        (
            rules("deny = 403", "rate = \"1/s\""),
            "5:1: site[0].rule[1]: never applies to /**: an earlier site.rule with /** and without",
        ),
        (
            rules(
                "deny = 403\npattern = \"/a/**\"",
                "allow = true\npattern = \"/a/b\"",
            ),
            "6:1: site[0].rule[1]: never applies to /a/b",
        ),
        (
            rules("respond = 410", "deny = 403\npattern = \"*.php\""),
            "never applies to *.php",
        ),
        (rules("close = true", "log = false"), "never applies to /**"),
        (
            rules("allow = true\npattern = \"/a/**\"", "deny = 403\npattern = \"/a/b\""),
            "6:1: site[0].rule[1]: never applies to /a/b: an earlier site.rule with /a/** and without conditions allows",
        ),
        (
            "[[site.rule]]\nallow = true\naddresses = \"10.0.0.0/8\"\n".into(),
            "3:1: site[0].rule[0]: has no effect for /**: no later site.rule refuses",
        ),
        (
            rules(
                "deny = 403\npattern = \"/b\"",
                "allow = true\npattern = \"/b/c\"\nmethods = \"GET\"",
            ),
            "has no effect for /b/c",
        ),
        (
            format!("names = \"a.example\"\n{}", redirects("from = \"/a\"\nhost = \"b.example\"", "from = \"/b\"")),
            "5:6: site[0].redirect[0].to: never applies: the site has none of the names in host",
        ),
        (
            format!("names = \"*.a.example\"\n{ROUTE}host = \"a.example\"\n"),
            "site[0].route[0].origin: never applies: the site has none",
        ),
        (
            format!("[[site.rule]]\ndeny = 403\nclient_certificate = true\n{TLS}"),
            "client_certificate = true, but the site requests no certificates",
        ),
        (
            format!("listen = \"*:80\"\n{TLS}client = \"require\"\nclient_ca = \"ca\"\n"),
            "3:10: site[0].listen: clients need no certificate here",
        ),
        (
            "[[site.rule]]\ndeny = 403\naddresses = [\"10.1.0.0/16\", \"192.0.2.1\", \"10.0.0.0/8\"]\n".into(),
            "5:14: site[0].rule[0].addresses[0]: 10.1.0.0/16 is a part of 10.0.0.0/8",
        ),
        (
            "purge_from = [\"::1\", \"::/64\"]\n".into(),
            "3:15: site[0].purge_from[0]: ::1 is a part of ::/64",
        ),
        (
            format!("{ROUTE}[[origin]]\nname = \"o\"\nservers = [\"http://a\", \"http://b\", \"http://a:80\"]\n"),
            "8:36: origin[0].servers[2]: http://a:80 is listed twice",
        ),
        (
            rule("pattern = \"/c/**\""),
            "6:1: site[0].route[0].cache.rule[0]: never applies to /c/**: the route is for /a/**",
        ),
        (rule("pattern = [\"/b\", \"/bc\"]"), "never applies to /bc"),
        (
            redirects("from = \"/a/**\"", "from = \"/a/b\""),
            "7:6: site[0].redirect[1].to: never applies to /a/b",
        ),
        (
            format!("[[site.rule]]\ndeny = 403\n{HTTPS}\n"),
            "3:1: site[0].rule[0]: never applies: scheme = \"https\", but the site is without TLS",
        ),
        (
            format!("[[site.header]]\nset = {{ X = \"y\" }}\n{HTTPS}\n"),
            "3:1: site[0].header[0]: never applies",
        ),
        (
            format!("[[site.rewrite]]\nfrom = [\"/a\", \"/b\"]\nto = \"/c\"\n{HTTPS}\n"),
            "3:1: site[0].rewrite[0]: never applies",
        ),
        (
            format!("{ROUTE}{HTTPS}\n"),
            "site[0].route[0].origin: never applies",
        ),
        (rule(HTTPS), "site[0].route[0].cache.rule[0]: never applies"),
        (
            format!("[[site.rule]]\ndeny = 403\nscheme = \"http\"\n{TLS}"),
            "scheme = \"http\", but the site is without a listener without TLS",
        ),
    ] {
        let shown = warnings(&format!("{SITE}{lines}"));
        assert_eq!(shown.lines().count(), 1, "{lines}: {shown}");
        assert!(shown.contains(expected), "{lines}: {shown}");
    }
    for lines in [
        // A later rule of another kind applies to allowed requests.
        format!(
            "[[site.rule]]\nallow = true\naddresses = \"10.0.0.0/8\"\n{}",
            rules("deny = 403", "log = false")
        ),
        rules("deny = 403\nmethods = \"PUT\"", "deny = 404"),
        rules(
            "deny = 403\npattern = \"/a/*\"",
            "deny = 404\npattern = \"/a/**\"",
        ),
        // A refusal covers the paths below, and a response does not.
        rules(
            "respond = 410\npattern = \"/a\"",
            "deny = 403\npattern = \"/a\"",
        ),
        rules("log = false", "deny = 403"),
        rules(
            "allow = true\npattern = \"/a/b\"",
            "deny = 403\npattern = \"/a\"",
        ),
        rules(
            "allow = true\nmethods = \"GET\"",
            "auth = \"users\"\nrealm = \"r\"\npattern = \"*.pdf\"",
        ),
        format!(
            "names = [\"a.example\", \"*.b.example\"]\n{}",
            redirects(
                "from = \"/a\"\nhost = [\"c.example\", \"x.b.example\"]",
                "from = \"/b\"\nhost = \"*.example\"",
            )
        ),
        "[[site.rule]]\ndeny = 403\nhost = \"a.example\"\n".to_string(),
        format!(
            "listen = \"*:80\"\n[[site.rule]]\ndeny = 403\nclient_certificate = false\n{TLS}client = \"require\"\nclient_ca = \"ca\"\nredirect = true\n"
        ),
        rules("deny = 404", "deny = 404"),
        "[[site.rule]]\npattern = [\"/**\", \"/a\"]\ndeny = 403\n".into(),
        rule("pattern = \"/a/b\""),
        rule("pattern = \"*.css\""),
        rule("pattern = \"/{b,c}\""),
        rule("pattern = \"(?i)/C\""),
        redirects("from = \"/a/**\"\nmethods = \"GET\"", "from = \"/a/b\""),
        redirects("from = [\"/a/**\", \"/a/b\"]", "from = \"/c\""),
        format!("trusted_proxies = \"10.0.0.1\"\n[[site.rule]]\ndeny = 403\n{HTTPS}\n"),
        format!("listen = \"*:80\"\n[[site.rule]]\ndeny = 403\n{HTTPS}\n{TLS}"),
        format!("listen = \"*:80\"\n[[site.rule]]\ndeny = 403\nscheme = \"http\"\n{TLS}"),
        "rate = \"1KB/s\"\n".into(),
    ] {
        assert_eq!(warnings(&format!("{SITE}{lines}")), "", "{lines}");
    }
}

#[test]
fn endless_redirects_are_warned_of() {
    let redirect =
        |from: &str, to: &str| format!("[[site.redirect]]\nfrom = \"{from}\"\nto = \"{to}\"\n");
    let site = |lines: &str| format!("[[site]]\nroot = \"r\"\nlisten = \"*:80\"\n{lines}");
    // Only the first redirect of a loop is warned of.
    let there_and_back = redirect("/a/**", "/b/$1") + &redirect("/b/**", "/a/$1");
    let shown = warnings(&site(&there_and_back));
    assert_eq!(shown.lines().count(), 1, "{shown}");
    assert!(
        shown.contains(
            "6:6: site[0].redirect[0].to: leads into an endless loop: /a/x to /b/x to /a/x"
        ),
        "{shown}"
    );
    for lines in [
        format!(
            "names = [\"e.example\", \"www.e.example\"]\ncanonical_host = true\n{}",
            redirect("/**", "http://www.e.example$request_uri")
        ),
        format!(
            "names = \"e.example\"\n{}",
            redirect("/**", "http://$host$path")
        ),
        format!(
            "trailing_slash = \"add\"\n{}[[site.route]]\npattern = \"/r/**\"\norigin = \"http://a\"\n",
            redirect("/r/x/", "/r/x")
        ),
        // A regular expression that matches one of the samples.
        "trailing_slash = \"add\"\n[[site.redirect]]\nregex = \"^/(.+)/$\"\nto = \"/$1\"\n[[site.route]]\npattern = \"/**\"\norigin = \"http://a\"\n".into(),
        format!(
            "[site.tls]\nlocal = true\n{}",
            redirect("/**", "https://$host$request_uri")
        ),
    ] {
        let shown = warnings(&site(&lines));
        assert!(
            shown.contains("leads into an endless loop"),
            "{lines} {shown}"
        );
    }
    for lines in [
        redirect("/a/**", "/b/$1") + &redirect("/b/x", "/c"),
        redirect("/**", "https://$host$request_uri"),
        redirect("/a", "/b") + &redirect("/b", "/a") + "header = \"X\"\n",
        format!(
            "names = \"e.example\"\n{}",
            redirect("/**", "http://e.example:8080/")
        ),
        redirect("/old/**", "/new/$1"),
        "trailing_slash = \"remove\"\n[[site.redirect]]\nregex = \"^/(.+)/$\"\nto = \"/$1\"\n[[site.route]]\npattern = \"/**\"\norigin = \"http://a\"\n".into(),
    ] {
        assert_eq!(warnings(&site(&lines)), "", "{lines}");
    }
}

#[test]
fn cache_rules_have_a_lifetime_or_no_store() {
    use crate::{CacheRule, CacheRuleAction, StatusRange};
    let route = |rule: &str| {
        in_route(&format!(
            "pattern = \"/**\"\norigin = \"http://a\"\n[site.route.cache]\nrule = {rule}"
        ))
    };
    let config = good(&route(
        "[{ status = [404, \"5xx\"], ttl = \"10s\", override = true }, { pattern = \"/a/*\", methods = \"GET\", no_store = true }]",
    ));
    let expected = [
        CacheRule {
            patterns: Vec::new(),
            statuses: vec![StatusRange::Exact(404), StatusRange::Class(5)],
            conditions: RequestConditions::default(),
            action: CacheRuleAction::Lifetime {
                ttl_s: 10,
                overrides: true,
            },
        },
        CacheRule {
            patterns: vec![pattern("/a/*")],
            statuses: Vec::new(),
            conditions: RequestConditions {
                methods: vec!["GET".into()],
                ..RequestConditions::default()
            },
            action: CacheRuleAction::NoStore,
        },
    ];
    assert_eq!(config.sites[0].routes[0].caching.rules, expected);
    for (rule, problem) in [
        ("[]", "the list is empty"),
        (
            "{ status = 404 }",
            "7:8: site[0].route[0].cache.rule: the rule does nothing (allowed: ttl, or no_store = true)",
        ),
        (
            "{ ttl = 1, no_store = true }",
            "ttl of a response that is not stored",
        ),
        ("{ no_store = true, override = true }", "has no effect here"),
        (
            "{ status = \"6xx\", ttl = 1 }",
            "\"6xx\" is not a status of a response",
        ),
        ("{ status = 101, ttl = 1 }", "101 is not a status"),
        ("{ status = [], ttl = 1 }", "the list is empty"),
        ("{ statu = 404, ttl = 1 }", "did you mean status?"),
    ] {
        let shown = self::shown(&route(rule));
        assert!(shown.contains(problem), "{shown}");
        assert_eq!(shown.lines().count(), 1, "{shown}");
    }
}

#[test]
fn bandwidth_is_limited_for_sites_routes_and_rules() {
    use crate::BandwidthLimit;
    let limit = |bytes_per_s, after| Some(BandwidthLimit { bytes_per_s, after });
    let config = good(
        "[[site]]\nroot = \"r\"\nrate = \"1MB/s\"\nafter = \"10MB\"\n\
         [[site.rule]]\npattern = \"/a\"\nrate = \"2KB/s\"\nafter = \"1K\"\n\
         [[site.rule]]\nrate = \"10/s\"\n\
         [[site.route]]\npattern = \"/b\"\norigin = \"http://a\"\nrate = \"1GB/s\"\n",
    );
    // A rate of requests has no unit of bytes.
    let site = &config.sites[0];
    assert_eq!(site.bandwidth, limit(1 << 20, 10 << 20));
    assert_eq!(site.routes[0].bandwidth, limit(1 << 30, 0));
    assert_eq!(
        site.access[0].action,
        RuleAction::Bandwidth(limit(2048, 1024).expect("a limit"))
    );
    assert!(matches!(site.access[1].action, RuleAction::Limit(_)));
    for (lines, problem) in [
        (
            "rate = \"1MB\"",
            "\"1MB\" is not a bandwidth (allowed: 1KB/s to 1024GB/s",
        ),
        ("rate = \"100B/s\"", "\"100B/s\" is not a bandwidth"),
        (
            "after = \"1M\"",
            "has no effect here (allowed: only with rate)",
        ),
        (
            "[[site.rule]]\nrate = \"1MB/s\"\nburst = 2",
            "only with a rate of requests",
        ),
        (
            "[[site.rule]]\nrate = \"1/s\"\nafter = \"1M\"",
            "only with a bandwidth as rate",
        ),
        (
            "[[site.rule]]\ndeny = 403\nafter = \"1M\"",
            "only with rate",
        ),
    ] {
        let shown = shown(&format!("[[site]]\nroot = \"r\"\n{lines}\n"));
        assert!(shown.contains(problem), "{shown}");
        assert_eq!(shown.lines().count(), 1, "{shown}");
    }
}

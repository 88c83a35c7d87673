//! Paths are refused where a translation would send or run other files than nginx, and translated where it can be exact.

use super::protection_tests::{import, rules, rules_of};

#[test]
fn files_at_requested_paths_are_sent_only_where_try_files_names_them() {
    let site = |lines: &str| {
        let config = format!("server {{ listen 80; server_name a.example; root /srv; {lines} }}");
        let (mut sites, import) = import(&config);
        (sites.remove(0), import)
    };
    // The rewrite leads to the file in an internal alias.
    for (list, to) in [
        ("/app$uri =404", "/files-1/app/x/$1"),
        ("$uri.gpg =404", "/files-1/x/$1.gpg"),
        ("/none.txt =403", "/files-1/none.txt"),
        ("${uri}.html /index.html", "/files-1/x/$1.html"),
    ] {
        let (site, import) = site(&format!("location /x/ {{ try_files {list}; }}"));
        assert!(
            import
                .text
                .contains(&format!("from = \"/x/**\"\nto = \"{to}\"")),
            "{}",
            import.text
        );
        assert_eq!(import.report.counts().by_hand, 0, "{}", import.report);
        assert!(site.aliases[0].internal, "{}", import.text);
    }
    // Without an equal, the paths are refused.
    for lines in [
        "try_files $uri/ =404;",
        "try_files /$host$uri =404;",
        "try_files /a.html $uri.html =404;",
        "alias /y/; try_files $uri.html =404;",
        "try_files /a @missing;",
        "allow 10.0.0.1; deny all; try_files /a @closed;",
    ] {
        let named = "location @closed { auth_basic x; auth_basic_user_file /p; proxy_pass http://127.0.0.1:81; }";
        let (site, import) = site(&format!("location /x/ {{ {lines} }} {named}"));
        assert_eq!(
            rules_of(&site)[0],
            "/x/** Deny(503)",
            "{lines}: {}",
            import.text
        );
        assert!(import.report.counts().by_hand > 0, "{}", import.report);
    }
    // A list of names that do not exist gives the paths to the named location.
    let (site, import) = site(
        "location / { try_files /none @app; } location @app { proxy_pass http://127.0.0.1:81; }",
    );
    assert!(!site.routes[0].missing, "{}", import.text);
    assert!(
        import
            .text
            .contains("file_exists = \"/srv/none\"\ndeny = 503"),
        "{}",
        import.text
    );
    let refused = rules("location / { try_files _ @b; } location @b { return 403; }");
    assert_eq!(refused, ["/** Deny(403)"]);
}

#[test]
fn handlers_have_no_paths_of_aliases() {
    let php = "location ~ \\.php(/|$) { fastcgi_pass 127.0.0.1:9000; }";
    for files in [
        "location /al/ { alias /other/; }",
        "location /al/ { root /other; }",
        "location /al/ { internal; }",
    ] {
        let found = rules(&format!("{files} {php}"));
        assert_eq!(found, ["/al/**.php Deny(503)"], "{files}");
    }
    let inner = rules(&format!("location /al/ {{ alias /other/; {php} }} {php}"));
    assert_eq!(inner, Vec::<String>::new());
    // The inner location and that around it name the same files.
    let (sites, import) = import(
        "server { listen 80; root /srv; location /al/ { alias /other/; location ~ ^/al/(.+\\.css)$ { alias /other/$1; expires 1h; } location ~ ^/al/(.+\\.js)$ { alias /x/$1; } location ~ ^/al/(\\d+)/(.+\\.txt)$ { alias /other/$1; } } }",
    );
    assert_eq!(
        rules_of(&sites[0]),
        ["/al/**.js Deny(503)", "/al/*/**.txt Deny(503)"],
        "{}",
        import.text
    );
}

#[test]
fn error_pages_of_protected_locations_are_not_sent() {
    for (lines, is_sent) in [
        ("error_page 404 /e/n.html; location /e/ { internal; }", true),
        (
            "error_page 404 /e/n.html; location /e/ { deny all; }",
            false,
        ),
        (
            "error_page 403 /e/n.php; location ~ \\.php(/|$) { fastcgi_pass 127.0.0.1:9000; }",
            false,
        ),
        ("error_page 404 /e/n.html; allow 10.0.0.1; deny all;", true),
        ("error_page 403 /e/n.html; allow 10.0.0.1; deny all;", false),
        (
            "error_page 404 /e/n.html; location /e/ { auth_basic x; auth_basic_user_file /p; }",
            false,
        ),
    ] {
        let config = format!("server {{ listen 80; server_name a.example; root /srv; {lines} }}");
        let (_, import) = import(&config);
        assert_eq!(
            import.text.contains("error_pages"),
            is_sent,
            "{lines}: {}",
            import.text
        );
        assert_eq!(
            import.report.counts().by_hand,
            usize::from(!is_sent),
            "{}",
            import.report
        );
    }
}

#[test]
fn index_files_of_a_block_add_up() {
    let server = "index c.html d.html; index e.html;";
    let (sites, _) = import(&format!(
        "index a.html; server {{ listen 80; root /srv; {server} }}"
    ));
    assert_eq!(sites[0].index, ["c.html", "d.html", "e.html"]);
}

#[test]
fn origins_of_existing_files_only_are_reported() {
    for (last, is_by_hand) in [("=404", true), ("@b", true), ("", false)] {
        let try_files = match last {
            "" => String::new(),
            last => format!("try_files $uri {last};"),
        };
        let (_, import) = import(&format!(
            "server {{ listen 80; root /srv; location / {{ {try_files} proxy_pass http://127.0.0.1:81; }} location @b {{ proxy_pass http://127.0.0.1:82; }} }}"
        ));
        let by_hand = import.report.counts().by_hand;
        assert_eq!(by_hand, usize::from(is_by_hand), "{}", import.report);
    }
}

#[test]
fn origins_of_expressions_get_no_paths_behind_their_names() {
    let routes = |regex: &str| {
        let (sites, import) = import(&format!(
            "server {{ listen 80; root /srv; location ~* {regex} {{ proxy_pass http://127.0.0.1:81; }} }}"
        ));
        let pattern = sites[0].routes[0].pattern.clone();
        // A relative pattern also takes the paths behind the names.
        assert!(pattern.is_absolute(), "{}", import.text);
        pattern
    };
    let txt = routes("\\.txt$");
    assert!(
        [&b"/x.txt"[..], b"/a/b/x.TXT"].map(|it| txt.matches(&it.to_ascii_lowercase()))
            == [true; 2]
    );
    assert!(!txt.matches(b"/x.txt/admin"));
    for (regex, path) in [
        ("/robots\\.txt$", "/robots.txt"),
        ("/(b|c)\\.js$", "/c.js"),
        ("/a[^/]*\\.css$", "/ab.css"),
        ("/d/.*\\.png$", "/d/x.png"),
    ] {
        let (sites, import) = import(&format!(
            "server {{ listen 80; root /srv; location ~ {regex} {{ proxy_pass http://127.0.0.1:81; }} }}"
        ));
        let finds = |path: &str| {
            let mut routes = sites[0].routes.iter();
            routes.any(|it| it.pattern.matches(path.as_bytes()))
        };
        let below = format!("/e/f{path}");
        let behind = format!("{path}/admin");
        assert_eq!(
            [path, &below, &behind].map(finds),
            [true, true, false],
            "{}",
            import.text
        );
    }
}

#[test]
fn paths_behind_scripts_are_those_of_the_expression() {
    let php = |regex: &str| format!("location ~ {regex} {{ fastcgi_pass 127.0.0.1:9000; }}");
    assert_eq!(rules(&php("\\.php$")), ["/**.php/** Respond"]);
    assert_eq!(
        rules(&php("^/(a|b)\\.php$")),
        ["/a.php/** Respond", "/b.php/** Respond"]
    );
    assert_eq!(rules(&php("\\.php(/|$)")), Vec::<String>::new());
    let exact = "location = /i.php { fastcgi_pass 127.0.0.1:9000; }";
    assert_eq!(rules(exact), ["/i.php/** Respond"]);
    // A location that has some of the paths says nothing of the others.
    for prefix in ["/x", "/q", "/x.php", "/X"] {
        let proxied = format!("location {prefix} {{ proxy_pass http://127.0.0.1:81; }}");
        let rules = rules(&(php("\\.php$") + &proxied));
        assert_eq!(rules, ["/**.php/** Respond"], "{prefix}");
    }
    // The answer for a missing file is that of the other location.
    let (sites, import) = import(&format!(
        "server {{ listen 80; root /srv; location / {{ try_files $uri /i.php?q=$uri; }} {} }}",
        php("\\.php$")
    ));
    let rewrite = "regex = \"^/(.*)$\"\nto = \"/i.php?q=/$1\"\nvariable = '$path=~\\.php/'\n";
    assert!(
        sites[0].access.is_empty() && import.text.contains(rewrite),
        "{}",
        import.text
    );
    let (sites, import) = self::import(&format!(
        "server {{ listen 80; root /srv; location / {{ proxy_pass http://127.0.0.1:81; }} {} }}",
        php("\\.php$")
    ));
    let route = "pattern = \"*.php\"\nnot = { variable = '$path=~\\.php/' }\nfastcgi = ";
    assert!(
        sites[0].access.is_empty() && import.text.contains(route),
        "{}",
        import.text
    );
}

#[test]
fn conditions_with_an_answer_never_open_their_block() {
    for (block, rule) in [
        (
            "if ($http_x = 1) { return 302 /$http_y; }",
            "header = \"X: 1\"\ndeny = 503",
        ),
        (
            "if ($http_x = 1) { rewrite ^ /y$cookie_a last; }",
            "header = \"X: 1\"\ndeny = 503",
        ),
        (
            "if ($http_x = 1) { proxy_pass http://127.0.0.1:82; }",
            "header = \"X: 1\"\ndeny = 503",
        ),
        (
            "if ($http_x = 1) { fastcgi_pass 127.0.0.1:82; }",
            "header = \"X: 1\"\ndeny = 503",
        ),
        (
            "if ($slow) { return 302 /y; }",
            "pattern = \"/l/**\"\ndeny = 503",
        ),
        (
            "if ($slow) { proxy_pass http://127.0.0.1:82; }",
            "pattern = \"/l/**\"\ndeny = 503",
        ),
    ] {
        let config = format!("server {{ listen 80; root /srv; location /l/ {{ {block} }} }}");
        let (_, import) = import(&config);
        assert!(import.text.contains(rule), "{block}: {}", import.text);
        assert!(import.report.counts().by_hand > 0, "{}", import.report);
    }
    for block in [
        "if ($slow) { add_header X y; }",
        "if (!-f $request_filename) { return 404; }",
    ] {
        let found = rules(&format!("location /l/ {{ {block} }}"));
        assert_eq!(found, Vec::<String>::new(), "{block}");
    }
    // Other requests have a route, too, so that the condition selects one of both.
    let (sites, import) = import(
        "server { listen 80; root /srv; location / { if ($cookie_beta) { proxy_pass http://127.0.0.1:82; } proxy_pass http://127.0.0.1:81; proxy_set_header Host $host; } }",
    );
    assert_eq!(import.report.counts().by_hand, 0, "{}", import.report);
    let conditions = sites[0].routes.iter().map(|it| it.conditions.cookies.len());
    assert_eq!(conditions.collect::<Vec<_>>(), [1, 0], "{}", import.text);
}

#[test]
fn missing_files_have_the_handler_of_the_location_slash() {
    let missing = "location /c { if (!-f $request_filename) { rewrite (.*) /$1 last; break; } }";
    for (slash, routes) in [
        (
            "proxy_pass http://127.0.0.1:81;",
            vec![("/c**", true), ("/**", false)],
        ),
        ("try_files $uri @app;", vec![("/c**", true), ("/**", true)]),
        // The prefix of the location would be another one.
        ("proxy_pass http://127.0.0.1:81/x/;", vec![("/**", false)]),
        // The location has other clients.
        (
            "deny 10.0.0.1; proxy_pass http://127.0.0.1:81;",
            vec![("/**", false)],
        ),
    ] {
        let (sites, import) = import(&format!(
            "server {{ listen 80; root /srv; {missing} location / {{ {slash} }} location @app {{ proxy_pass http://127.0.0.1:82; }} }}"
        ));
        let found = sites[0]
            .routes
            .iter()
            .map(|it| (it.pattern.to_string(), it.missing));
        let expected = routes
            .into_iter()
            .map(|(pattern, missing)| (pattern.to_string(), missing));
        assert!(found.eq(expected), "{slash}: {}", import.text);
    }
}

#[test]
fn plain_listener_of_a_name_is_that_of_one_site() {
    let tls = |port: u16| {
        format!(
            "server {{ listen {port} ssl; server_name a.example; root /srv; ssl_certificate /a.pem; ssl_certificate_key /a.key; }}"
        )
    };
    let plain =
        "server { listen 80; server_name a.example; return 301 https://$host$request_uri; }";
    let (sites, import) = import(&format!("{plain} {} {}", tls(8443), tls(443)));
    assert_eq!(import.report.counts().by_hand, 0, "{}", import.report);
    let listeners = sites.iter().map(|it| it.listen.len());
    assert_eq!(listeners.collect::<Vec<_>>(), [0, 1], "{}", import.text);
}

#[test]
fn fixed_responses_have_the_media_type_of_their_location() {
    for (lines, key) in [
        ("return 200 x;", "text = \"x\" }"),
        ("default_type text/plain; return 200 x;", "text = \"x\" }"),
        (
            "default_type application/json; return 200 x;",
            "text = \"x\", type = \"application/json\" }",
        ),
        (
            "default_type application/json; return 204;",
            "respond = { status = 204 }",
        ),
    ] {
        let config = format!("server {{ listen 80; root /srv; location = /x {{ {lines} }} }}");
        let (_, import) = import(&config);
        assert!(import.text.contains(key), "{lines}: {}", import.text);
    }
}

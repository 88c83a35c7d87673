//! Paths are refused where a translation would send or run other files than nginx, and translated where it can be exact.

use super::protection_tests::{import, rules};

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

//! Protected paths of a Caddyfile stay protected, also where the import can't translate the protection.

use std::path::Path;

use lowroad_config::{RuleAction, SiteConfig};

use super::import_text;
use crate::ConfigImport;

fn import(text: &str) -> ConfigImport {
    let import = import_text(text, Path::new("Caddyfile")).expect("a Caddyfile");
    assert!(
        import.problems.is_empty(),
        "{:?}\n{}",
        import.problems,
        import.text
    );
    import
}

fn sites(import: &ConfigImport) -> Vec<SiteConfig> {
    let config = lowroad_config::parse(&import.text, Path::new("lowroad.toml"));
    config.expect("a valid configuration").sites
}

/// The only site of a plain block with these directives.
fn site(directives: &str) -> (SiteConfig, ConfigImport) {
    let import = import(&format!("http://a.example {{\n{directives}\n}}\n"));
    let mut sites = sites(&import);
    assert_eq!(sites.len(), 1, "{}", import.text);
    (sites.remove(0), import)
}

/// The rules as `PATTERN ACTION`.
fn rules(site: &SiteConfig) -> Vec<String> {
    let rules = site.access.iter();
    rules
        .map(|rule| format!("{} {:?}", rule.pattern, rule.action))
        .collect()
}

/// Asserts that the first rule refuses all requests until the configuration is mended.
fn assert_refused(directives: &str) {
    let (site, import) = site(directives);
    let first = rules(&site).into_iter().next();
    assert_eq!(first.as_deref(), Some("/** Deny(503)"), "{}", import.text);
}

#[test]
fn site_without_its_client_certificates_is_closed() {
    let import = import(
        "a.example {\ntls a.pem a.key {\nclient_auth {\nmode require_and_verify\ntrusted_leaf_cert_file /leaf.pem\n}\n}\nreverse_proxy app:80\n}\n",
    );
    let sites = sites(&import);
    assert!(sites[0].tls.is_none(), "{}", import.text);
    assert_eq!(sites[0].access[0].action, RuleAction::Deny(503));
}

#[test]
fn scripts_of_a_refused_route_are_no_files() {
    let (site, import) = site("root * /srv\nphp_fastcgi php:9000 {\nenv A=B x\n}\nfile_server");
    assert!(site.routes.is_empty(), "{}", import.text);
    assert!(
        rules(&site).contains(&"*.php Deny(503)".to_string()),
        "{}",
        import.text
    );
    // A time beyond the longest is no reason to refuse.
    let (site, import) =
        self::site("root * /srv\nphp_fastcgi php:9000 {\nread_timeout 9000d\n}\nfile_server");
    assert_eq!(site.routes.len(), 2, "{}", import.text);
}

#[test]
fn words_with_line_ends_add_no_tables() {
    let evil = "`1\n\n[[site]]\nnames = \"evil\"\nroot = \"/\"\n#`";
    for directives in [
        format!("reverse_proxy app:80 {{\nhealth_uri /\nhealth_passes {evil}\n}}"),
        format!("reverse_proxy app:80 {{\ntransport http {{\nmax_conns_per_host {evil}\n}}\n}}"),
        format!("reverse_proxy {{\nto app:80 b:80\nlb_policy weighted_round_robin {evil} 1\n}}"),
        format!("map {{host}} {evil} {{\na b\n}}\nreverse_proxy app:80"),
    ] {
        let (site, import) = site(&directives);
        assert_eq!(site.names.len(), 1, "{}", import.text);
    }
    let (site, import) =
        site("basic_auth {\n`u\n[[site.rule]]\nallow = true\n#` $2a$x\n}\nfile_server");
    assert_eq!(site.access.len(), 1, "{}", import.text);
}

#[test]
fn folders_are_those_of_the_caddyfile_or_refused() {
    for directives in [
        "root * /srv/{labels.1}\nfile_server",
        "@odd vars a b\nroot @odd /srv/a\nroot * /srv/b\nfile_server",
        "file_server {\nroot /srv/{labels.1}\n}",
        "php_fastcgi php:9000 {\nroot /srv/{labels.1}\n}\nfile_server",
    ] {
        assert_refused(directives);
    }
    let (_, import) = site("root * /\nfile_server");
    assert!(import.text.contains("root = \"/\""), "{}", import.text);
    for directives in [
        "file_server",
        "file_server {\nroot .\n}",
        "root * .\nfile_server",
    ] {
        let (_, import) = site(directives);
        let folder = std::path::absolute(".").expect("a folder");
        let root = format!("root = \"{}\"", folder.display());
        assert!(import.text.contains(&root), "{}", import.text);
    }
}

#[test]
fn steps_for_some_requests_allow_no_others() {
    for directives in [
        "root * /srv\nphp_fastcgi php:9000\nfile_server {\nhide config.yml *.bak\n}",
        "root * /srv\n@static file\nhandle @static {\nfile_server\n}\nhandle {\nbasic_auth {\nu $2a$14$abc\n}\nreverse_proxy app:80\n}",
        "root * /srv\n@missing not file\nroute {\nreverse_proxy @missing m:80\nbasic_auth {\nu $2a$14$abc\n}\nreverse_proxy app:80\n}",
    ] {
        let (site, import) = site(directives);
        let first = rules(&site).remove(0);
        assert!(!first.contains("Allow"), "{}", import.text);
    }
    // The next block does not get the files that a block leaves.
    let (site, import) = site(
        "root * /srv\nhandle /app/* {\n@m not file\nreverse_proxy @m app:80\n}\nhandle {\nfile_server\n}",
    );
    let rules = rules(&site);
    assert_eq!(rules.len(), 2, "{}", import.text);
    assert_eq!(
        site.access[0].conditions.exceptions.len(),
        1,
        "{}",
        import.text
    );
    assert_eq!(rules[1], "/** Deny(404)", "{}", import.text);
    assert!(import.report.to_string().contains("refused until then"));
}

#[test]
fn rewrites_in_front_of_files_change_their_folder() {
    let (_, import) = site("root * /srv\nrewrite * /public{path}\nfile_server");
    assert!(
        import.text.contains("root = \"/srv/public\""),
        "{}",
        import.text
    );
    for directives in [
        "root * /srv\nrewrite * /public{path}\nphp_fastcgi php:9000\nfile_server",
        "root * /srv\nrewrite * /public{path}\ntry_files {path} /x\nfile_server",
        "root * /srv\nrewrite * /{labels.1}{path}\nfile_server",
    ] {
        assert_refused(directives);
    }
}

#[test]
fn paths_after_a_rewrite_are_those_that_clients_send() {
    let (site, import) =
        site("rewrite * /api{uri}\nrespond /api/admin/* 403\nreverse_proxy app:80");
    assert_eq!(rules(&site), ["(?i)/admin/** Deny(403)"], "{}", import.text);
    for directives in [
        "rewrite * /api{uri}\nrespond /admin/* 403\nreverse_proxy app:80",
        "rewrite * /api{uri}\n@a path_regexp ^/api/admin\nrespond @a 403\nreverse_proxy app:80",
    ] {
        assert_refused(directives);
    }
    let (site, import) = self::site(
        "handle_path /api/* {\n@adm path_regexp ^/admin\nrespond @adm 403\nreverse_proxy app:80\n}",
    );
    assert_eq!(rules(&site)[0], "/api/** Deny(503)", "{}", import.text);
}

#[test]
fn matchers_hold_in_their_block() {
    let (site, import) = site(
        "@admin path /admin/*\nhandle /foo/* {\n@admin path /foo/admin/*\nrespond @admin 403\nreverse_proxy foo:80\n}\nrespond @admin 403\nreverse_proxy app:80",
    );
    let rules = rules(&site);
    assert!(
        rules.contains(&"(?i)/admin/** Deny(403)".to_string()),
        "{}",
        import.text
    );
    assert_refused("@a path /a\n@a path /b\nrespond @a 403\nreverse_proxy app:80");
}

#[test]
fn named_routes_and_marks_of_editors_are_no_sites() {
    let import =
        import("&(app) {\nreverse_proxy internal:8080\n}\nhttp://a.example {\ninvoke app\n}\n");
    let sites = sites(&import);
    assert_eq!(sites.len(), 1, "{}", import.text);
    assert_eq!(rules(&sites[0])[0], "/** Deny(503)", "{}", import.text);
    assert!(!import.text.contains("internal:8080"), "{}", import.text);
    let import = self::import("\u{feff}a.example {\nreverse_proxy app:80\n}\n");
    let sites = self::sites(&import);
    assert_eq!(
        (sites[0].names.len(), sites[0].tls.is_some()),
        (1, true),
        "{}",
        import.text
    );
    // A name that is refused does not open the site to others.
    let import = self::import("http://a..example {\nreverse_proxy app:80\n}\n");
    let sites = self::sites(&import);
    assert!(import.text.contains("# names"), "{}", import.text);
    assert_eq!(rules(&sites[0])[0], "/** Deny(503)", "{}", import.text);
}

#[test]
fn untranslated_guards_refuse_their_requests() {
    for directives in [
        "@anon vars a b\nredir @anon /login\nreverse_proxy app:80",
        "authorize with admins\nreverse_proxy app:80",
        "@odd vars a b\nhandle @odd {\nredir /login\n}\nreverse_proxy app:80",
    ] {
        assert_refused(directives);
    }
    let import = import(
        "(s) {\n{block}\nreverse_proxy app:80\n}\nhttp://a.example {\nimport s {\nbasic_auth {\nu $2a$x\n}\n}\n}\n",
    );
    assert!(matches!(
        sites(&import)[0].access[0].action,
        RuleAction::Auth(_)
    ));
}

#[test]
fn refusals_in_blocks_hold_for_each_spelling() {
    let (_, import) =
        site("handle /f/* {\n@x path *.env *.bak\nrespond @x 403\nreverse_proxy app:80\n}");
    assert!(
        import.text.contains("variable = '$path=~(?i)"),
        "{}",
        import.text
    );
}

#[test]
fn addresses_of_clients_can_not_be_made_up() {
    let (site, import) = site(
        "@a not remote_ip 10.0.0.0/8\nrespond @a 403\nreverse_proxy app {\ntrusted_proxies 0.0.0.0/0\n}",
    );
    assert!(
        !import.text.contains("trusted_proxies ="),
        "{}",
        import.text
    );
    assert_eq!(site.access.len(), 1, "{}", import.text);
    assert!(
        import
            .report
            .to_string()
            .contains("without some trusted_proxies")
    );
}

#[test]
fn data_lines_keep_the_outcome_of_other_directives() {
    let text = "http://a.example {\n@odd vars a b\nhandle @odd {\nbasic_auth {\nu $2a$x\n}\n}\nreverse_proxy app:80\n}\n";
    let import = import(text);
    let first = &import.report.entries()[0];
    assert_eq!(
        first.outcome,
        crate::DirectiveOutcome::translated(),
        "{}",
        import.report
    );
}

#[test]
fn sites_of_local_sockets_are_not_public() {
    for (global, directive, expected) in [
        ("", "bind unix//run/a.sock", "127.0.0.1:80"),
        ("{\ndefault_bind 127.0.0.2\n}\n", "", "127.0.0.2:80"),
        (
            "{\ndefault_bind 127.0.0.2\n}\n",
            "bind 127.0.0.3",
            "127.0.0.3:80",
        ),
    ] {
        let import = import(&format!(
            "{global}http://a.example {{\n{directive}\nreverse_proxy app:80\n}}\n"
        ));
        let listen = format!("listen = \"{expected}\"");
        assert!(import.text.contains(&listen), "{}", import.text);
    }
}

#[test]
fn reported_addresses_are_compared_by_client_ip_only() {
    let import_site = |matchers: &str| {
        let import = import(&format!(
            "{{\nservers {{\ntrusted_proxies static 10.0.0.0/8\n}}\n}}\nhttp://a.example {{\n{matchers}\nreverse_proxy app:80\n}}\n"
        ));
        let site = sites(&import).remove(0);
        (import.text.contains("trusted_proxies ="), rules(&site))
    };
    let (peer, client) = (
        "@p remote_ip 10.0.0.1\nrespond @p 403",
        "@c {\nclient_ip 192.0.2.1\n}\nrespond @c 403",
    );
    assert_eq!(import_site(""), (true, Vec::new()));
    assert_eq!(
        import_site(client),
        (true, vec!["/** Deny(403)".to_string()])
    );
    assert_eq!(
        import_site(peer),
        (false, vec!["/** Deny(403)".to_string()])
    );
    let (_, both) = import_site(&format!("{peer}\n{client}"));
    assert_eq!(both[0], "/** Deny(503)");
    let (_, both) = import_site(
        "@b expression `client_ip('192.0.2.1') || remote_ip('10.0.0.1')`\nrespond @b 403",
    );
    assert_eq!(both[0], "/** Deny(503)");
}

#[test]
fn folders_are_listed_only_where_all_are() {
    for (directives, expected) in [
        ("root * /srv\nfile_server browse", (true, false)),
        (
            "root * /srv\nhandle /pub/* {\nfile_server browse\n}\nhandle {\nreverse_proxy app:80\n}",
            (true, false),
        ),
        (
            "root * /srv\nhandle /pub/* {\nfile_server browse\n}\nhandle {\nfile_server\n}",
            (false, true),
        ),
        (
            "root * /srv\nfile_server /pub/* {\nbrowse\n}\nfile_server",
            (false, true),
        ),
    ] {
        let (_, import) = site(directives);
        let is_by_hand = import.report.to_string().contains("no folders are listed");
        assert_eq!(
            (import.text.contains("listing = true"), is_by_hand),
            expected,
            "{directives}"
        );
    }
}

#[test]
fn sites_of_proxies_alone_need_no_folder() {
    for directives in [
        "reverse_proxy /api/* app:80",
        "handle /a/* {\nreverse_proxy a:80 b:80\n}\nhandle /b/* {\nrespond 403\n}",
    ] {
        let (site, import) = site(directives);
        assert!(!import.text.contains("root ="), "{}", import.text);
        let last = site.routes.last().expect("a route");
        assert!(
            last.internal && last.pattern.to_string() == "/**",
            "{}",
            import.text
        );
        let closed = "/** Deny(404)".to_string();
        assert_eq!(rules(&site).last(), Some(&closed), "{}", import.text);
    }
}

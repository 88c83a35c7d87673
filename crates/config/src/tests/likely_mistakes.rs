//! Warnings of valid settings that are probably mistakes, and messages for common ones.

use super::*;

const ROOT: &str = "[[site]]\nroot = \"/\"\n";
const TLS: &str = "[site.tls]\nlisten = \"*:443\"\nlocal = true\n";

fn warnings(text: &str) -> String {
    let config =
        parse(text, Path::new("f")).unwrap_or_else(|problems| panic!("{}", lines(&problems)));
    lines(&config.document.warnings)
}

#[test]
fn likely_mistakes_are_warned_of() {
    let route = |to: &str| format!("[[site.route]]\npattern = \"/a/**\"\n{to}\n");
    for (text, expected) in [
        (
            format!("{ROOT}[[site.rule]]\ndeny = 403\nclient_certificate = false\n"),
            "3:1: site[0].rule[0]: client_certificate = false holds for all requests",
        ),
        (
            format!("[server]\nearly_data = true\n{ROOT}"),
            "1:1: server: early_data has no effect without HTTP/3",
        ),
        (
            format!("[server]\nearly_data = true\nhttp3 = false\n{ROOT}{TLS}"),
            "1:1: server: early_data has no effect without HTTP/3",
        ),
        (
            "[[class]]\nname = \"a\"\nhosts = \"b.example\"\n[[site]]\nnames = [\"a.example\", \"*.c.example\"]\nroot = \"/\"\n".to_owned(),
            "2:8: class[0].name: hosts: no site has the name b.example",
        ),
        (
            format!(
                "{ROOT}{}",
                route("fastcgi = [\"127.0.0.1:9000\", \"127.0.0.1:9001\", \"127.0.0.1:9000\"]")
            ),
            "site[0].route[0].fastcgi[2]: the server is listed twice",
        ),
        (
            format!("{ROOT}trusted_proxies = [\"0.0.0.0/0\"]\n"),
            "site[0].trusted_proxies: 0.0.0.0/0 trusts every client",
        ),
        (
            format!("{ROOT}trusted_proxies = \"::/0\"\n"),
            "site[0].trusted_proxies: ::/0 trusts every client",
        ),
        (
            format!(
                "{ROOT}listen = \"*:8080\"\n{}",
                route("origin = \"http://localhost:8080\"")
            ),
            "site[0].route[0].origin: the origin http://localhost:8080 is an address of this site",
        ),
    ] {
        let shown = warnings(&text);
        assert_eq!(shown.lines().count(), 1, "{text}: {shown}");
        assert!(shown.contains(expected), "{text}: {shown}");
    }
    for text in [
        format!("[server]\nworkers = 2\n{ROOT}"),
        format!("[server]\nearly_data = true\n{ROOT}{TLS}"),
        format!(
            "{ROOT}[[site.rule]]\ndeny = 403\nclient_certificate = false\n{TLS}client = \"request\"\nclient_ca = \"ca\"\n"
        ),
        format!("[server]\nhttp3 = true\n{ROOT}{TLS}"),
        "[[class]]\nname = \"a\"\nhosts = \"*.b.example\"\n[[site]]\nnames = \"a.b.example\"\nroot = \"/\"\n".to_owned(),
        format!("[[class]]\nname = \"a\"\nhosts = \"b.example\"\n{ROOT}"),
        format!("{ROOT}trusted_proxies = [\"0.0.0.0/1\"]\n"),
        format!(
            "{ROOT}listen = \"10.0.0.1:8080\"\n{}",
            route("origin = \"http://127.0.0.1:8080\"")
        ),
        format!(
            "{ROOT}listen = \"0.0.0.0:8080\"\n{}",
            route("origin = \"http://[::1]:8080\"")
        ),
        // The request is one for the other site.
        format!(
            "{ROOT}names = \"a.example\"\nlisten = \"127.0.0.1:8080\"\n{}[[site]]\nroot = \"/\"\nnames = \"b.example\"\nlisten = \"127.0.0.1:8080\"\n",
            route("origin = \"http://127.0.0.1:8080\"")
        ),
    ] {
        assert_eq!(warnings(&text), "", "{text}");
    }
}

/// A site alone at its address refuses other hosts with 421, so that a request for one does not come back.
#[test]
fn loops_depend_on_the_host_that_the_origin_gets() {
    let warning = |names: &str, keys: &str, table: &str| {
        warnings(&format!(
            "{ROOT}listen = \"*:8080\"\n{names}[[site.route]]\npattern = \"/a/**\"\n{keys}\n{table}"
        ))
    };
    let named = "names = [\"a.example\", \"*.b.example\"]\n";
    let own = "origin = \"http://localhost:8080\"";
    let table = |host: &str| {
        format!(
            "[[origin]]\nname = \"o\"\nservers = \"http://localhost:8080\"\nhost = \"{host}\"\n"
        )
    };
    for host in ["a.example", "A.example:80", "x.b.example", "$host"] {
        let keys = format!("{own}\nrequest.host = \"{host}\"");
        assert!(
            warning(named, &keys, "").contains("may come back"),
            "{host}"
        );
    }
    for host in ["c.example", "b.example", "in.$host", "[::1]:8080"] {
        let keys = format!("{own}\nrequest.host = \"{host}\"");
        assert_eq!(warning(named, &keys, ""), "", "{host}");
        // The default site takes each host that is known.
        let is_known = !host.contains('$');
        assert_eq!(
            warning("", &keys, "").contains("may come back"),
            is_known,
            "{host}"
        );
    }
    for (host, is_loop) in [
        ("client", true),
        ("origin", false),
        ("a.example", true),
        ("c.example", false),
    ] {
        let shown = warning(named, "origin = \"o\"", &table(host));
        assert_eq!(shown.contains("may come back"), is_loop, "{host}: {shown}");
    }
}

#[test]
fn messages_name_the_intended_setting() {
    let rule = |keys: &str| shown(&format!("{ROOT}[[site.rule]]\n{keys}\n"));
    for (keys, expected) in [
        (
            "allow = \"10.0.0.0/8\"",
            "allowed: allow = true, with the clients in addresses",
        ),
        (
            "allow = [\"10.0.0.0/8\"]",
            "allowed: allow = true, with the clients in addresses",
        ),
        ("rate = \"1MB\"", "allowed: 1KB/s to 1024GB/s"),
        ("rate = \"10/s\"\nbrust = 5", "did you mean burst?"),
    ] {
        let text = rule(keys);
        assert!(text.contains(expected), "{keys}: {text}");
    }
}

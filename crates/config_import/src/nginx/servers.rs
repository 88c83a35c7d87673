//! Servers: their names, addresses and locations.

use super::blocks::{simple_directives, translated};
use super::include::flat;
use super::level::Translation;
use super::locations::{Location, read_location, sort_locations};
use super::settings::{LevelSettings, LocationContent};
use super::tree::Directive;
use crate::report::DirectiveOutcome;

/// An address of `listen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// The address: `*:80`.
    pub address: String,
    /// Whether it has TLS.
    pub is_tls: bool,
    /// Whether the server is the default of the address.
    pub is_default: bool,
}

/// One `server`.
#[derive(Clone, Debug)]
pub struct Server {
    /// `server_name`, without those that make a default site.
    pub names: Vec<String>,
    /// Names without an equal: expressions, and those that end in `*`.
    pub unknown_names: Vec<String>,
    /// Whether the server has the name `_` or none, or is the default of an address.
    pub is_default: bool,
    /// `listen`
    pub listens: Vec<ListenAddress>,
    /// The settings.
    pub settings: LevelSettings,
    /// The content.
    pub content: LocationContent,
    /// The locations, in the order of precedence.
    pub locations: Vec<Location>,
    /// The directive in the report.
    pub entry: usize,
    /// Its place, for a comment.
    pub place: String,
}

/// A server around the directives of a snippet, which some other file would include in a server.
pub fn server_of_snippet(directives: &[Directive]) -> Directive {
    Directive {
        name: "server".to_string(),
        args: Vec::new(),
        block: Some(directives.to_vec()),
        place: directives[0].place.clone(),
        // It isn't in the report.
        id: usize::MAX,
    }
}

/// Reads a server.
pub fn read_server(
    translation: &mut Translation,
    directive: &Directive,
    settings: LevelSettings,
) -> Server {
    let children = flat(directive.children());
    let (mut settings, content) = simple_directives(translation, &children, settings);
    settings.access.has_unknown_guard |= content.has_unknown_handler;
    translated(translation, directive);
    let mut server = Server {
        names: Vec::new(),
        unknown_names: Vec::new(),
        is_default: false,
        listens: Vec::new(),
        settings,
        content,
        locations: Vec::new(),
        entry: directive.id,
        place: directive.place.to_string(),
    };
    let is_named = children.iter().any(|it| it.name == "server_name");
    // nginx' default server_name is empty: no Host selects the server by its name.
    server.is_default = !is_named;
    // Until nginx 1.25.1, `ssl on` turned TLS on at all addresses of a server.
    let is_ssl_on = children
        .iter()
        .any(|it| it.name == "ssl" && it.arg(0) == "on");
    for child in &children {
        let outcome = match &*child.name {
            "server_name" => read_names(&mut server, child),
            "listen" => read_listen(&mut server, child, is_ssl_on),
            _ => continue,
        };
        translation.report.change(child.id, outcome);
    }
    // nginx listens at *:80 without `listen` if root starts it.
    if server.listens.is_empty() {
        server.listens.push(ListenAddress {
            address: "*:80".to_string(),
            is_tls: is_ssl_on,
            is_default: false,
        });
    }
    server.is_default |= server.listens.iter().any(|it| it.is_default);
    for child in children.iter().filter(|it| it.name == "location") {
        read_location(
            translation,
            child,
            &server.settings,
            None,
            &mut server.locations,
        );
    }
    sort_locations(&mut server.locations);
    server
}

fn read_names(server: &mut Server, directive: &Directive) -> DirectiveOutcome {
    let mut refused = Vec::new();
    for name in &directive.args {
        match name.strip_prefix('.') {
            // In nginx, `.example.com` is short for `example.com *.example.com`.
            Some(suffix) => server
                .names
                .extend([suffix.to_string(), format!("*.{suffix}")]),
            None if name == "_" || name.is_empty() => server.is_default = true,
            None if name.starts_with('~') || name.ends_with('*') => refused.push(name.clone()),
            None if name.contains('$') => refused.push(name.clone()),
            None => server.names.push(name.clone()),
        }
    }
    server.names.dedup();
    if refused.is_empty() {
        return DirectiveOutcome::translated();
    }
    let way = "names are exact or *.example.com; the default site refuses these hosts until then";
    let outcome = DirectiveOutcome::ByHand(format!("{way}: {}", refused.join(" ")));
    server.unknown_names.extend(refused);
    outcome
}

fn read_listen(server: &mut Server, directive: &Directive, is_ssl_on: bool) -> DirectiveOutcome {
    let text = directive.arg(0);
    let has = |word: &str| directive.args.iter().any(|it| it == word);
    if text.starts_with("unix:") {
        return DirectiveOutcome::ByHand("sites listen at TCP addresses".to_string());
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if port.chars().all(|it| it.is_ascii_digit()) && !port.is_empty() => {
            (host, port)
        }
        _ if text.chars().all(|it| it.is_ascii_digit()) => ("*", text),
        _ => (text, "80"),
    };
    // One listener accepts IPv4 and IPv6.
    let address = match host {
        "*" | "0.0.0.0" | "[::]" => format!("*:{port}"),
        "localhost" => format!("127.0.0.1:{port}"),
        host => format!("{host}:{port}"),
    };
    let listen = ListenAddress {
        address,
        // Each TLS address has HTTP/3, too.
        is_tls: has("ssl") || has("quic") || is_ssl_on,
        is_default: has("default_server") || has("default"),
    };
    if has("proxy_protocol") {
        server.settings.is_proxy_protocol = true;
    }
    // `listen 80` and `listen [::]:80` are one address here, so default_server of either counts.
    match server
        .listens
        .iter_mut()
        .find(|it| it.address == listen.address)
    {
        Some(present) => present.is_default |= listen.is_default,
        None => server.listens.push(listen),
    }
    DirectiveOutcome::translated()
}

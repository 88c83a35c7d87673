//! Matchers of Caddy as patterns and conditions.

use std::collections::BTreeMap;

use super::lexer::Word;
use super::tree::CaddyDirective;
use crate::request_selector::{Conditions, RequestSelector};

/// The networks that Caddy calls `private_ranges`.
const PRIVATE_RANGES: [&str; 6] = [
    "192.168.0.0/16",
    "172.16.0.0/12",
    "10.0.0.0/8",
    "127.0.0.0/8",
    "fd00::/8",
    "::1",
];

/// The requests that a matcher selects.
#[derive(Clone, Debug)]
pub enum MatcherMeaning {
    /// These requests.
    Requests(RequestSelector),
    /// Requests for which a file exists; the candidates of `try_files`, and the selector of other conditions.
    File(Vec<String>, RequestSelector),
    /// Requests for which no file exists.
    Missing(RequestSelector),
    /// It has no equal; the reason.
    Unknown(String),
}

/// The named matchers of a site.
pub type NamedMatchers = BTreeMap<String, MatcherMeaning>;

/// Splits the matcher from the arguments of a directive. `None` without a matcher, which means all requests.
pub fn split_matcher<'d>(
    args: &'d [Word],
    named: &NamedMatchers,
) -> (Option<MatcherMeaning>, &'d [Word]) {
    let Some((first, rest)) = args.split_first().filter(|(first, _)| !first.is_quoted) else {
        return (None, args);
    };
    let meaning = match &*first.text {
        "*" => MatcherMeaning::Requests(RequestSelector::default()),
        text if text.starts_with('/') => paths(std::slice::from_ref(&text.to_string())),
        text => match text.strip_prefix('@') {
            Some(name) => named.get(name).cloned().unwrap_or_else(|| {
                MatcherMeaning::Unknown(format!("the matcher @{name} is not defined"))
            }),
            None => return (None, args),
        },
    };
    (Some(meaning), rest)
}

/// Reads a definition: `@name path /a`, or a block.
pub fn read_matcher(directive: &CaddyDirective) -> MatcherMeaning {
    let words: Vec<String> = directive.args().iter().map(|it| it.text.clone()).collect();
    // The short form has one matcher in the line of the name.
    match words.is_empty() {
        true => all_lines(directive.children()),
        false => single(&words, directive.children()),
    }
}

/// The meaning of a block: all its matchers must hold.
fn all_lines(lines: &[CaddyDirective]) -> MatcherMeaning {
    let mut meaning = MatcherMeaning::Requests(RequestSelector::default());
    // Lines of the same kind are alternatives of a path, method, host or address, and conjunctions otherwise.
    for (name, args) in joined_lines(lines) {
        let words: Vec<String> = std::iter::once(name).chain(args).collect();
        meaning = and(meaning, single(&words, &[]));
    }
    for (_, lines) in alternatives(lines) {
        meaning = and(meaning, any_header(&lines));
    }
    // Matchers with a block, such as `not` and `file`.
    for child in lines.iter().filter(|it| it.block.is_some()) {
        let words: Vec<String> = child.words.iter().map(|it| it.text.clone()).collect();
        meaning = and(meaning, single(&words, child.children()));
    }
    meaning
}

/// The lines about one field or argument, by its name: in Caddy they are alternatives.
fn alternatives(lines: &[CaddyDirective]) -> BTreeMap<String, Vec<Vec<String>>> {
    let mut lists: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    for line in lines.iter().filter(|it| it.block.is_none()) {
        let subject = match (line.name(), line.args().len()) {
            ("header" | "query", _) => line.arg(0),
            ("header_regexp", 3) => line.arg(1),
            ("header_regexp", _) => line.arg(0),
            ("path_regexp", _) => "",
            _ => continue,
        };
        let subject = subject.split('=').next().unwrap_or_default();
        let key = format!("{} {}", line.name(), subject.trim_start_matches('!'));
        let words = line.words.iter().map(|it| it.text.clone()).collect();
        lists
            .entry(key.to_ascii_lowercase())
            .or_default()
            .push(words);
    }
    lists
}

/// One condition for lines about the same field.
fn any_header(lines: &[Vec<String>]) -> MatcherMeaning {
    if let [line] = lines {
        return single(line, &[]);
    }
    let mut expressions = Vec::new();
    for line in lines {
        let [name, _, _] = &line[..] else {
            return unknown("of several lines");
        };
        let MatcherMeaning::Requests(selector) = single(line, &[]) else {
            return unknown(name);
        };
        let values = selector.conditions.get("header").into_iter().flatten();
        let value = values.last().and_then(|it| it.split_once(": "));
        let Some((_, value)) = value.filter(|_| name == "header") else {
            return unknown(&format!("{name} of several lines"));
        };
        expressions.push(match value.strip_prefix('~') {
            Some(expression) => expression.to_string(),
            None => format!("^{}$", regex_syntax::escape(value)),
        });
    }
    let field = &lines[0][1];
    let value = format!("{field}: ~(?:{})", expressions.join("|"));
    condition("header", vec![value])
}

fn joined_lines(lines: &[CaddyDirective]) -> Vec<(String, Vec<String>)> {
    let mut joined: Vec<(String, Vec<String>)> = Vec::new();
    let has_alternatives =
        |name: &str| matches!(name, "header" | "query" | "header_regexp" | "path_regexp");
    for line in lines
        .iter()
        .filter(|it| it.block.is_none() && !has_alternatives(it.name()))
    {
        let args: Vec<String> = line.args().iter().map(|it| it.text.clone()).collect();
        // Of other kinds, each line is a condition.
        let is_list = matches!(
            line.name(),
            "path" | "method" | "host" | "remote_ip" | "client_ip"
        );
        match joined
            .iter_mut()
            .find(|(name, _)| is_list && name == line.name())
        {
            Some((_, present)) => present.extend(args),
            None => joined.push((line.name().to_string(), args)),
        }
    }
    joined
}

fn and(one: MatcherMeaning, other: MatcherMeaning) -> MatcherMeaning {
    use MatcherMeaning::{File, Missing, Requests, Unknown};
    let both = |one: &RequestSelector, other: &RequestSelector| {
        one.and(other)
            .ok_or_else(|| "its conditions can't be joined".to_string())
    };
    let joined = match (one, other) {
        (Unknown(reason), _) | (_, Unknown(reason)) => return Unknown(reason),
        (Requests(one), Requests(other)) => both(&one, &other).map(Requests),
        (File(files, one), Requests(other)) | (Requests(one), File(files, other)) => {
            both(&one, &other).map(|selector| File(files, selector))
        }
        (Missing(one), Requests(other)) | (Requests(one), Missing(other)) => {
            both(&one, &other).map(Missing)
        }
        (File(..) | Missing(_), File(..) | Missing(_)) => Err("it asks for two files".to_string()),
    };
    joined.unwrap_or_else(Unknown)
}

fn condition(key: &'static str, values: Vec<String>) -> MatcherMeaning {
    let conditions = Conditions::from([(key, values)]);
    MatcherMeaning::Requests(RequestSelector {
        conditions,
        ..RequestSelector::default()
    })
}

fn unknown(name: &str) -> MatcherMeaning {
    MatcherMeaning::Unknown(format!("the matcher {name} has no equal"))
}

/// One matcher: its name and arguments.
fn single(words: &[String], block: &[CaddyDirective]) -> MatcherMeaning {
    let Some((name, args)) = words.split_first() else {
        return unknown("");
    };
    match (&**name, args) {
        ("path", args) => paths(args),
        ("path_regexp", [regex]) => condition("variable", vec![format!("$path=~{regex}")]),
        ("path_regexp", [_, regex]) => condition("variable", vec![format!("$path=~{regex}")]),
        ("method", args) => condition("methods", args.to_vec()),
        ("host", args) if !args.iter().any(|it| it.contains('{')) => {
            condition("host", args.to_vec())
        }
        ("remote_ip" | "client_ip", args) => addresses(args),
        ("protocol", [scheme]) if scheme == "http" || scheme == "https" => {
            condition("scheme", vec![scheme.clone()])
        }
        ("query", args) => arguments(args),
        ("header", [field]) => header_presence(field),
        ("header", [field, value]) => header_value(field, value),
        ("header_regexp", [field, regex]) | ("header_regexp", [_, field, regex]) => {
            condition("header", vec![format!("{field}: ~{regex}")])
        }
        ("file", args) => file(args, block),
        ("not", args) => not(args, block),
        ("expression", args) => expression(&args.join(" ")),
        (text, []) if text.starts_with('`') || text.contains('(') => expression(text),
        (name, _) => unknown(name),
    }
}

fn file(args: &[String], block: &[CaddyDirective]) -> MatcherMeaning {
    let mut candidates = args.to_vec();
    for line in block {
        match line.name() {
            "try_files" => candidates.extend(line.args().iter().map(|it| it.text.clone())),
            other => return unknown(&format!("file with {other}")),
        }
    }
    // Without candidates, the file is that of the path.
    if candidates.is_empty() {
        candidates.push("{path}".to_string());
    }
    MatcherMeaning::File(candidates, RequestSelector::default())
}

fn not(args: &[String], block: &[CaddyDirective]) -> MatcherMeaning {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    if let (["file"] | ["file", "{path}"], []) = (&words[..], block) {
        return MatcherMeaning::Missing(RequestSelector::default());
    }
    let mut exceptions = Vec::new();
    let mut except = |meaning: MatcherMeaning| match meaning {
        MatcherMeaning::Requests(selector) if selector.exceptions.is_empty() => {
            exceptions.push(selector.as_conditions());
            None
        }
        MatcherMeaning::Requests(_) => Some("not inside of not".to_string()),
        MatcherMeaning::File(..) | MatcherMeaning::Missing(_) => Some("not with file".to_string()),
        MatcherMeaning::Unknown(reason) => Some(reason),
    };
    // The lines of a block must not all match.
    let failure = match args.is_empty() {
        true => except(all_lines(block)),
        false => except(single(args, block)),
    };
    match failure {
        Some(reason) => MatcherMeaning::Unknown(reason),
        None => MatcherMeaning::Requests(RequestSelector {
            exceptions,
            ..RequestSelector::default()
        }),
    }
}

fn addresses(args: &[String]) -> MatcherMeaning {
    let args = args.iter().filter(|it| *it != "forwarded");
    condition("addresses", args.flat_map(|it| networks(it)).collect())
}

/// The networks of a word: an address, or the name of a list.
pub fn networks(word: &str) -> Vec<String> {
    match word {
        "private_ranges" => PRIVATE_RANGES.map(str::to_string).to_vec(),
        address => vec![address.to_string()],
    }
}

fn arguments(args: &[String]) -> MatcherMeaning {
    // Several arguments are alternatives in Caddy, and conjunctions here.
    // Alternatives would need a rule for each.
    let [pair] = args else {
        return unknown("query with several arguments");
    };
    match pair.split_once('=') {
        Some((name, "*")) => condition("argument", vec![name.to_string()]),
        Some((name, value)) if !value.contains(['*', '{']) => {
            condition("argument", vec![format!("{name}={value}")])
        }
        _ => unknown("query"),
    }
}

fn header_presence(field: &str) -> MatcherMeaning {
    match field.strip_prefix('!') {
        Some(name) => MatcherMeaning::Requests(RequestSelector {
            exceptions: vec![Conditions::from([("header", vec![name.to_string()])])],
            ..RequestSelector::default()
        }),
        None => condition("header", vec![field.to_string()]),
    }
}

fn header_value(field: &str, value: &str) -> MatcherMeaning {
    if value.contains('{') {
        return unknown("header with a placeholder");
    }
    // Only the ends of a value may have asterisks.
    let inner = value.trim_matches('*');
    if value == "*" {
        return header_presence(field);
    }
    if inner.contains('*') {
        return unknown("header with a wildcard inside");
    }
    let text = regex_syntax::escape(inner);
    // An asterisk at an end leaves that end open.
    let value = match (value.starts_with('*'), value.ends_with('*')) {
        (false, false) => value.to_string(),
        (true, true) => format!("~{text}"),
        (true, false) => format!("~{text}$"),
        (false, true) => format!("~^{text}"),
    };
    condition("header", vec![format!("{field}: {value}")])
}

/// Expressions of CEL in the forms that are a matcher: `path('/a/*')`, `{method} == 'GET'`.
fn expression(text: &str) -> MatcherMeaning {
    let text = text.trim_matches('`').trim();
    if let Some((name, inner)) = text.strip_suffix(')').and_then(|it| it.split_once('(')) {
        let is_list = inner.chars().filter(|it| *it == '\'').count() % 2 == 0;
        let is_simple = name.chars().all(|it| it.is_ascii_lowercase() || it == '_');
        let args = inner
            .split(',')
            .map(|it| it.trim().trim_matches(['\'', '"']).to_string());
        if is_list && is_simple && !inner.contains(['(', '{', '&', '|']) {
            let words: Vec<String> = std::iter::once(name.to_string()).chain(args).collect();
            return single(&words, &[]);
        }
    }
    if let Some((left, right)) = text.split_once("==") {
        let right = right.trim();
        let value = right.trim_matches(['\'', '"']);
        // Only a comparison with one text is a matcher.
        let is_text = right.len() == value.len() + 2 && !value.contains(['&', '|']);
        match left.trim() {
            "{method}" | "{http.request.method}" if is_text => {
                return condition("methods", vec![value.to_string()]);
            }
            "{host}" | "{http.request.host}" if is_text => {
                return condition("host", vec![value.to_string()]);
            }
            _ => {}
        }
    }
    unknown("expression")
}

/// Patterns of a list of paths.
fn paths(args: &[String]) -> MatcherMeaning {
    let mut patterns = Vec::new();
    for path in args {
        match path_patterns(path) {
            Some(found) => patterns.extend(found),
            None => return unknown(&format!("path {path}")),
        }
    }
    // A pattern of everything makes the others superfluous.
    if patterns.iter().any(|it| it == "/**") {
        patterns.clear();
    }
    MatcherMeaning::Requests(RequestSelector::paths(patterns))
}

/// The patterns of a path: an asterisk at an end matches everything, others a part of a segment.
pub fn path_patterns(path: &str) -> Option<Vec<String>> {
    if path.contains(['{', '?', '[', '%', '\\']) {
        return None;
    }
    // An asterisk alone is any path.
    if path == "*" {
        return Some(vec!["/**".to_string()]);
    }
    let (front, is_prefix) = match path.strip_suffix('*') {
        Some(front) => (front, true),
        None => (path, false),
    };
    let end = if is_prefix { "**" } else { "" };
    match front.strip_prefix('*') {
        None if front.starts_with('/') => Some(vec![format!("{front}{end}")]),
        None => None,
        // A suffix: of a file name, or with folders.
        Some(rest) if rest.contains('*') => None,
        Some(rest) if !is_prefix && !rest.contains('/') => Some(vec![format!("*{rest}")]),
        Some(rest) => Some(vec![format!("/**{rest}{end}")]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caddy::tree::read_text;

    fn meaning(text: &str) -> MatcherMeaning {
        let text = format!("a.b {{\n@m {text}\n}}\n");
        let top = read_text(&text, std::path::Path::new("Caddyfile")).expect("a tree");
        read_matcher(&top[0].children()[0])
    }

    #[test]
    fn matchers_become_patterns_and_conditions() {
        for (text, expected) in [
            (
                "path /a/* /b *.php",
                "pattern = [\"/a/**\", \"/b\", \"*.php\"]",
            ),
            (
                "{\nheader Connection *Upgrade*\nheader Upgrade websocket\n}",
                "header = [\"Connection: ~Upgrade\", \"Upgrade: websocket\"]",
            ),
            (
                "{\nheader User-Agent *curl*\nheader User-Agent wget\n}",
                "header = \"User-Agent: ~(?:curl|^wget$)\"",
            ),
            (
                "not path /auth* /x",
                "not = { variable = '$path=~(?:^/auth|^/x$)' }",
            ),
            (
                "{\npath /a/*\npath /b/*\nmethod GET POST\n}",
                "pattern = [\"/a/**\", \"/b/**\"]\nmethods = [\"GET\", \"POST\"]",
            ),
            ("remote_ip 10.0.0.0/8", "addresses = \"10.0.0.0/8\""),
            (
                "path_regexp old ^/o/([0-9]+)$",
                "variable = \"$path=~^/o/([0-9]+)$\"",
            ),
            ("header !X-A", "not = { header = \"X-A\" }"),
            ("query a=1", "argument = \"a=1\""),
            (
                "expression path('/a/*', '/b')",
                "pattern = [\"/a/**\", \"/b\"]",
            ),
            ("expression `{method} == 'PUT'`", "methods = \"PUT\""),
        ] {
            let MatcherMeaning::Requests(selector) = meaning(text) else {
                panic!("{text}: {:?}", meaning(text));
            };
            let table = selector.write("pattern", crate::document::ConfigTable::new("[t]"));
            let mut document = crate::document::ConfigDocument::default();
            document.push(table);
            let written = document.to_text().replace("[t]\n", "");
            assert_eq!(
                written.trim(),
                expected.replace("'$path=~(?:^/auth|^/x$)'", "\"$path=~(?:^/auth|^/x$)\""),
                "{text}"
            );
        }
        for text in [
            "vars a b",
            "expression {path}.startsWith('/a')",
            "path /a?b",
            "not {\nnot path /x\n}",
            "not {\npath /pub/*\nnot {\npath /pub/secret/*\n}\n}",
            "not file {\nroot /maint\n}",
            "{\nquery a=1\nquery a=2\n}",
            "{\nheader X-A *\nheader X-A b\n}",
        ] {
            assert!(
                matches!(meaning(text), MatcherMeaning::Unknown(_)),
                "{text}"
            );
        }
        assert!(
            matches!(meaning("file {path} /x"), MatcherMeaning::File(files, _) if files.len() == 2)
        );
    }
}

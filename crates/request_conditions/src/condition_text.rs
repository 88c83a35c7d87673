//! Conditions as text, for explanations and status pages.

use std::fmt::Display;

use lowroad_config::{HashBy, NamedCondition, RequestConditions, SiteName, ValueCondition};

/// The conditions as text; empty without conditions: `for POST, from 10.0.0.0/8, with header X-Beta`.
pub fn condition_text(conditions: &RequestConditions) -> String {
    let mut parts = Vec::new();
    let mut add = |word: &str, values: String| {
        if !values.is_empty() {
            parts.push(format!("{word} {values}"));
        }
    };
    add("for", conditions.methods.join(", "));
    add("from", joined(&conditions.addresses));
    add("with header", named(&conditions.headers, ": "));
    add("with cookie", named(&conditions.cookies, "="));
    add("with argument", named(&conditions.arguments, "="));
    let variables = conditions.variables.iter().map(|it| match &it.value {
        ValueCondition::Any => it.text.to_string(),
        ValueCondition::Exact(value) => format!("{}={value}", it.text),
        ValueCondition::Matches(expression) => format!("{}=~{}", it.text, expression.text()),
    });
    add("with", variables.collect::<Vec<String>>().join(", "));
    let hosts = conditions.hosts.iter().map(host);
    add("at host", hosts.collect::<Vec<String>>().join(", "));
    match conditions.is_https {
        Some(true) => parts.push("by https".into()),
        Some(false) => parts.push("by http".into()),
        None => {}
    }
    match conditions.has_certificate {
        Some(true) => parts.push("with a client certificate".into()),
        Some(false) => parts.push("without a client certificate".into()),
        None => {}
    }
    if !conditions.times.is_empty() {
        parts.push("at some times of the week".into());
    }
    if let Some(file) = &conditions.file {
        parts.push(format!("while {} exists", file.display()));
    }
    if let Some(share) = &conditions.share {
        let key = match &share.by {
            HashBy::Cookie(name) => format!("cookie {name}"),
            HashBy::Header(name) => format!("header {name}"),
            HashBy::Address | HashBy::Url => "address".into(),
        };
        parts.push(format!("for {}% of the clients by {key}", share.percent));
    }
    for exception in &conditions.exceptions {
        parts.push(format!("except {}", condition_text(exception)));
    }
    parts.join(", ")
}

fn joined<T: Display>(values: &[T]) -> String {
    let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

fn named(conditions: &[NamedCondition], separator: &str) -> String {
    let texts = conditions.iter().map(|condition| match &condition.value {
        ValueCondition::Any => condition.name.clone(),
        ValueCondition::Exact(value) => format!("{}{separator}{value}", condition.name),
        ValueCondition::Matches(expression) => {
            format!("{}{separator}~{}", condition.name, expression.text())
        }
    });
    texts.collect::<Vec<String>>().join(", ")
}

fn host(name: &SiteName) -> String {
    match name {
        SiteName::Exact(name) => name.clone(),
        SiteName::Wildcard(suffix) => format!("*.{suffix}"),
        SiteName::Default => "any".into(),
    }
}

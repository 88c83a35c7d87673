//! Renders with minijinja, with the server's settings (its `templates.rs`) and the same database.

use std::sync::Arc;

use lowroad_page::PageValue as Given;
use minijinja::value::{Enumerator, Object, ObjectRepr, Rest, Value};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, context, escape_formatter,
};

use crate::here::table;

/// A row as in the server.
#[derive(Debug)]
struct Row(Vec<(&'static str, Value)>);

impl Object for Row {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let name = key.as_str()?;
        self.0
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.clone())
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.iter().map(|(name, _)| Value::from(*name)).collect())
    }
}

/// Name-value pairs; a missing name is `none`.
#[derive(Debug)]
struct Pairs(&'static [(&'static str, &'static str)]);

impl Object for Pairs {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let name = key.as_str()?;
        let found = self.0.iter().find(|(known, _)| *known == name);
        Some(found.map_or(Value::from(()), |(_, value)| Value::from(*value)))
    }
}

fn rows(args: &[Value]) -> Result<Vec<Value>, Error> {
    let (statement, values) = args.split_first().expect("a statement");
    if values.iter().any(Value::is_undefined) {
        return Err(Error::new(ErrorKind::InvalidOperation, "undefined"));
    }
    let value = values
        .first()
        .map(|value| i64::try_from(value.clone()).unwrap_or(0));
    let (names, rows) = table(statement.as_str().expect("text"), value);
    let cell = |given: Given<'static>| match given {
        Given::Null => Value::from(()),
        Given::Bool(it) => Value::from(it),
        Given::Int(it) => Value::from(it),
        Given::UInt(it) => Value::from(it),
        Given::Float(it) => Value::from(it),
        Given::Text(it) => Value::from(it),
        Given::Bytes(it) => Value::from_bytes(it.to_vec()),
    };
    let row = |row: Vec<Given<'static>>| {
        Value::from_object(Row(names
            .iter()
            .copied()
            .zip(row.into_iter().map(cell))
            .collect()))
    };
    Ok(rows.into_iter().map(row).collect())
}

/// Renders a page.
pub fn render(source: &str) -> Result<String, String> {
    let mut environment = Environment::new();
    environment.set_loader(|name| Ok(crate::here::part(name).map(String::from)));
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_formatter(|out, state, value| match value.is_none() {
        true => Ok(()),
        false => escape_formatter(out, state, value),
    });
    environment.add_function("query", |args: Rest<Value>| rows(&args).map(Value::from));
    environment.add_function("row", |args: Rest<Value>| {
        rows(&args).map(|rows| rows.into_iter().next().unwrap_or(Value::from(())))
    });
    environment.add_function("status", |_: u16| "");
    environment.add_function("header", |_: &str, _: &str| "");
    environment.add_function("cache", |_: u64| "");
    let request = context! {
        method => "GET", path => "/a<b>.lrp", target => "/a%3Cb%3E.lrp?q=a+%26b&size=3", host => "example.org",
        peer => "192.0.2.7",
        params => Value::from_object(Pairs(&[("q", "a &b"), ("size", "3")])),
        fields => Value::from_object(Pairs(&[("user-agent", "curl/8"), ("host", "example.org"), ("cookie", "a=1")])),
        cookies => Value::from_object(Pairs(&[("a", "1"), ("session", "x y")])),
    };
    environment
        .render_str(source, context! { request })
        .map_err(|error| error.to_string())
}

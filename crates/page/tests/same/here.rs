//! Renders with this crate, and a database that supports three statements.

use std::net::IpAddr;

use lowroad_page::{CompiledPage, PageLimits, PageRequest, PageRun, PageValue, RunStep};

/// A request.
pub struct Visit;

impl PageRequest for Visit {
    fn method(&self) -> &str {
        "GET"
    }
    fn path(&self) -> &[u8] {
        b"/a<b>.lrp"
    }
    fn target(&self) -> &[u8] {
        b"/a%3Cb%3E.lrp?q=a+%26b&size=3"
    }
    fn host(&self) -> &[u8] {
        b"example.org"
    }
    fn query(&self) -> &[u8] {
        b"q=a+%26b&size=3"
    }
    fn peer(&self) -> IpAddr {
        IpAddr::from([192, 0, 2, 7])
    }
    fn field(&self, name: &str) -> Option<&[u8]> {
        match name {
            "user-agent" => Some(b"curl/8"),
            "host" => Some(b"example.org"),
            "cookie" => Some(b"a=1; session=x%20y"),
            _ => None,
        }
    }
}

/// The column names of a statement's result, and its rows.
pub type Table = (Vec<&'static str>, Vec<Vec<PageValue<'static>>>);

/// The result of a statement.
pub fn table(statement: &str, value: Option<i64>) -> Table {
    if statement.contains("FROM bare") {
        let rows = ["<one>", "two & 'three'"].map(|text| vec![PageValue::Text(text)]);
        return (vec!["text"], rows.into());
    }
    if statement.contains("none") {
        return (vec!["id", "name"], vec![]);
    }
    if statement.contains("more") {
        let id = value.unwrap_or(0);
        return (
            vec!["id"],
            (0..id)
                .map(|it| vec![PageValue::Int(it * 10 + id)])
                .collect(),
        );
    }
    let names = vec!["id", "name", "price", "nothing", "big"];
    let row = |id, name, price| {
        vec![
            PageValue::Int(id),
            PageValue::Text(name),
            PageValue::Float(price),
            PageValue::Null,
            PageValue::UInt(u64::MAX),
        ]
    };
    (
        names,
        vec![row(1, "a<b", 1.25), row(2, "", 2.0), row(3, "ü'\"", -0.5)],
    )
}

/// The parts that pages can include.
pub fn part(name: &str) -> Option<&'static str> {
    match name {
        "_head.lrp" => Some("<h1>{{ x | default('none') }}</h1>{% set y = 'set there' %}\n"),
        "_row.lrp" => {
            Some("{{ loop.index }}{{ r.name }}{% include '_end.lrp' %}{% set z = r.id %}")
        }
        "_end.lrp" => Some(";\n\n"),
        _ => None,
    }
}

/// Renders a page.
pub fn render(source: &str) -> Result<String, String> {
    let page = CompiledPage::parse_with("page.lrp", source, &mut |name| part(name))
        .map_err(|error| error.to_string())?;
    let mut run = PageRun::new(PageLimits::default());
    let mut out = Vec::new();
    run.begin(&page);
    loop {
        let (names, rows) = match run.step(&page, &Visit, &mut out) {
            RunStep::Done => return Ok(String::from_utf8(out).expect("text")),
            RunStep::Failed(failure) => return Err(failure.to_string()),
            RunStep::Query {
                statement,
                mut values,
            } => {
                let value = values.next().map(|value| match value {
                    PageValue::Int(it) => it,
                    other => match other {
                        PageValue::Text(_) => 0,
                        other => panic!("{other:?}"),
                    },
                });
                table(statement, value)
            }
        };
        run.columns(names.iter().copied());
        for row in rows {
            row.iter().for_each(|value| run.value(*value));
            run.row_end();
        }
        run.finish_query();
    }
}

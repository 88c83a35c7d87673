//! Rejected pages, the points at which runs suspend, and limits.

mod random;

use std::net::IpAddr;

use lowroad_page::{
    CompiledPage, PageLimits, PageRequest, PageRun, PageValue, RunFailure, RunStep,
};

/// An empty request.
pub struct Plain;

impl PageRequest for Plain {
    fn method(&self) -> &str {
        "GET"
    }
    fn path(&self) -> &[u8] {
        b"/"
    }
    fn target(&self) -> &[u8] {
        b"/"
    }
    fn host(&self) -> &[u8] {
        b"example.org"
    }
    fn query(&self) -> &[u8] {
        b""
    }
    fn peer(&self) -> IpAddr {
        IpAddr::from([192, 0, 2, 7])
    }
    fn field(&self, _: &str) -> Option<&[u8]> {
        None
    }
}

fn page(source: &str) -> CompiledPage {
    CompiledPage::parse(source).unwrap_or_else(|error| panic!("{source}: {error}"))
}

/// Runs a page. Each of its statements returns `row_count` rows with the column `id`.
fn run(source: &str, limits: PageLimits, row_count: i64) -> Result<(String, PageRun), RunFailure> {
    let (page, mut run, mut out) = (page(source), PageRun::new(limits), Vec::new());
    run.begin(&page);
    loop {
        match run.step(&page, &Plain, &mut out) {
            RunStep::Done => return Ok((String::from_utf8(out).expect("text"), run)),
            RunStep::Failed(failure) => return Err(failure),
            RunStep::Query { .. } => {}
        }
        // Every query gets the same result.
        run.columns(["id"].into_iter());
        for id in 0..row_count {
            run.value(PageValue::Int(id));
            run.row_end();
        }
        run.finish_query();
    }
}

#[test]
fn unsupported_features_are_rejected_with_a_remedy() {
    for (source, word) in [
        ("{% include 'a.lrp' %}", "template a.lrp not found"),
        ("{% include x %}", "literal text"),
        ("{% include 'a.lrp' ignore missing %}", "end of the tag"),
        ("{% extends 'a.lrp' %}", "write {% include %}"),
        ("{% macro a() %}{% endmacro %}", "macro"),
        ("{% import 'a' as b %}", "import"),
        ("{% block a %}{% endblock %}", "block"),
        ("{% with a = 1 %}{% endwith %}", "{% set %}"),
        ("{% for a in [1] %}{% break %}{% endfor %}", "LIMIT"),
        ("{% for a, b in [1] %}{% endfor %}", "row.column"),
        ("{% for a in [1] if a %}{% endfor %}", "WHERE"),
        ("{% for a in [1] recursive %}{% endfor %}", "recursive"),
        ("{% set a %}x{% endset %}", "set a = "),
        ("{% set a, b = 1 %}", "one name"),
        ("{% set loop = 1 %}", "another name"),
        ("{% set query = 1 %}", "another name"),
        ("{% for row in [1] %}{% endfor %}", "another name"),
        ("{{ execute('DELETE FROM t') }}", "only read"),
        ("{{ query('DELETE FROM t') }}", "only read"),
        ("{{ query('SELECT ' ~ 'x') }}", "literal text"),
        ("{{ query('SELECT 1' '2') }}", "literal text"),
        ("{% set x = 'a' %}{{ query(x) }}", "literal text"),
        ("{{ query(('SELECT 1')) }}", "literal text"),
        ("{{ query() }}", "literal text"),
        ("{{ [query] | length }}", "only be called"),
        ("{{ query('SELECT ?') }}", "1 placeholders"),
        ("{{ query('SELECT 1', 2) }}", "0 placeholders"),
        ("{{ query('SELECT 1', db='other') }}", "one database"),
        ("{{ query('SELECT ?', a=1) }}", "undefined name a"),
        ("{{ redirect('/x') }}", "redirect"),
        ("{{ csrf_field() }}", "csrf_field"),
        ("{{ range(3) }}", "the functions are query"),
        ("{{ request.form.x }}", "only read"),
        ("{{ request.body }}", "only read"),
        ("{{ request.parms.x }}", "its parts are params"),
        ("{{ request }}", "use a part"),
        ("{{ request.params.all('x') }}", "methods"),
        ("{{ x }}", "undefined name x"),
        ("{% for x in [1] %}{% endfor %}{{ x }}", "undefined name x"),
        ("{{ loop.index }}", "loop"),
        ("{% for x in [1] %}{{ loop.cycle }}{% endfor %}", "revindex"),
        ("{{ 1 | urlencode }}", "urlencode"),
        ("{{ 1 is odd }}", "is defined"),
        ("{{ 1 is none + 2 }}", "parentheses"),
        ("{{ 1 < 2 < 3 }}", "b < c"),
        ("{{ 2 ** 3 }}", "**"),
        ("{{ {'a': 1} }}", "maps"),
        ("{{ (1, 2) }}", "tuples"),
        ("{{ 'abc'[1:] }}", "LIMIT"),
        ("{{ 1 if 2 }}", "else"),
        ("{{ 1_000 }}", "digits"),
        ("{{ 99999999999999999999 }}", "too large"),
        ("{{ 'a", "closing quote"),
        ("{{ 'a' ", "}}"),
        ("{% if 1", "%}"),
        ("{# a", "#}"),
        ("{% raw %}", "endraw"),
        ("{% if 1 %}", "endif"),
        ("{% for x in [1] %}", "endfor"),
        (
            "{% if 1 %}{% else %}{% elif 1 %}{% endif %}",
            "without a beginning",
        ),
        ("{% endif %}", "without a beginning"),
        ("{% nothing %}", "nothing"),
        ("{{ }}", "expected a value"),
        ("{{ 1 2 }}", "end of the tag"),
        ("{{ ; }}", "unexpected character"),
        ("{{ status() }}", "status takes"),
        ("{{ 'a' | round(1, 2) }}", "round takes"),
    ] {
        let error = CompiledPage::parse(source).expect_err(source);
        assert!(error.message.contains(word), "{source}: {error}");
    }
}

#[test]
fn errors_report_their_line() {
    assert_eq!(
        CompiledPage::parse("a\nb\n{{ x }}")
            .expect_err("a name")
            .line,
        3
    );
    assert_eq!(
        CompiledPage::parse("{{\n\n'a' | no }}")
            .expect_err("a filter")
            .line,
        3
    );
    let failure = run(
        "a\n{{ 1 }}\n{% set r = row('SELECT 1') %}\n\n{{ r.nothing }}",
        PageLimits::default(),
        1,
    );
    assert_eq!(failure.err().map(|it| it.line), Some(5));
    let failure = run(
        "a\n{% for x in [1, 0] %}\n{{ 1 / x }}\n{% endfor %}",
        PageLimits::default(),
        1,
    );
    assert_eq!(failure.err().map(|it| it.line), Some(3));
}

#[test]
fn step_returns_the_same_query_until_it_is_finished() {
    let page = page("a{{ query('SELECT ?, ?', 'x', none) | length }}b{{ row('SELECT 2').a }}c");
    let (mut run, mut out) = (PageRun::new(PageLimits::default()), Vec::new());
    run.begin(&page);
    for round in 0..3 {
        let RunStep::Query { statement, values } = run.step(&page, &Plain, &mut out) else {
            panic!("a query");
        };
        assert_eq!(statement, "SELECT ?, ?");
        assert_eq!(
            values.collect::<Vec<_>>(),
            [PageValue::Text("x"), PageValue::Null]
        );
        // The connection was lost in the middle of the rows, so the statement is repeated.
        run.columns(["a"].into_iter());
        for _ in 0..=round {
            run.value(PageValue::Int(1));
            run.row_end();
        }
    }
    run.finish_query();
    let RunStep::Query { statement, values } = run.step(&page, &Plain, &mut out) else {
        panic!("a query");
    };
    assert_eq!((statement, values.len()), ("SELECT 2", 0));
    run.columns(["b", "a"].into_iter());
    for id in 0..5 {
        run.value(PageValue::Int(id));
        run.value(PageValue::Bytes(b"\xffx"));
        run.row_end();
    }
    run.finish_query();
    assert!(matches!(run.step(&page, &Plain, &mut out), RunStep::Done));
    assert_eq!(out, "a3b\u{fffd}xc".as_bytes());
}

#[test]
fn failed_query_fails_the_page() {
    let page = page("\n{{ row('SELECT nme').a }}");
    let (mut run, mut out) = (PageRun::new(PageLimits::default()), Vec::new());
    run.begin(&page);
    assert!(matches!(
        run.step(&page, &Plain, &mut out),
        RunStep::Query { .. }
    ));
    run.refused("Unknown column 'nme'");
    let RunStep::Failed(failure) = run.step(&page, &Plain, &mut out) else {
        panic!("a failure");
    };
    assert_eq!(
        failure.to_string(),
        "line 2: the database reports: Unknown column 'nme'"
    );
    // The same `PageRun` can run another page.
    run.begin(&page);
    assert!(matches!(
        run.step(&page, &Plain, &mut out),
        RunStep::Query { .. }
    ));
}

#[test]
fn rows_with_missing_or_extra_values_are_adjusted() {
    let page = page("{% for r in query('SELECT 1') %}[{{ r.a }}{{ r.b }}]{% endfor %}");
    let (mut run, mut out) = (PageRun::new(PageLimits::default()), Vec::new());
    run.value(PageValue::Int(1));
    run.row_end();
    run.begin(&page);
    assert!(matches!(
        run.step(&page, &Plain, &mut out),
        RunStep::Query { .. }
    ));
    run.columns(["a", "b"].into_iter());
    run.value(PageValue::Int(1));
    run.row_end();
    for id in 2..5 {
        run.value(PageValue::Int(id));
    }
    run.row_end();
    run.row_end();
    run.finish_query();
    run.finish_query();
    run.row_end();
    assert!(matches!(run.step(&page, &Plain, &mut out), RunStep::Done));
    assert_eq!(out, b"[1][23][]");
    // A result without columns has no rows.
    run.begin(&page);
    out.clear();
    assert!(matches!(
        run.step(&page, &Plain, &mut out),
        RunStep::Query { .. }
    ));
    run.row_end();
    run.finish_query();
    assert!(matches!(
        run.step(&page, &Plain, &mut out),
        RunStep::Failed(_)
    ));
}

#[test]
fn status_header_and_cache_are_recorded() {
    let source =
        "{% do status(404) %}{{ header('X-A', 'b') }}{{ header('x-a', ' c ') }}{{ cache(60) }}";
    let reply = run(source, PageLimits::default(), 0)
        .expect("a page")
        .1
        .reply()
        .clone();
    assert_eq!(reply.status, Some(404));
    assert_eq!(reply.fields, [("x-a".to_string(), "c".to_string())]);
    assert_eq!((reply.cache_s, reply.is_personal), (Some(60), false));
    let personal = run("{{ request.peer }}", PageLimits::default(), 0).expect("a page");
    assert!(personal.1.reply().is_personal);
    for source in [
        "{{ status(99) }}",
        "{{ status('a') }}",
        "{{ header('a b', 'c') }}",
        "{{ header('a', 'b\\r\\nc: d') }}",
        "{{ header('Set-Cookie', 'a=b') }}",
        "{{ header('Content-Length', '1') }}",
        "{{ cache(-1) }}",
    ] {
        assert!(run(source, PageLimits::default(), 0).is_err(), "{source}");
    }
}

#[test]
fn exceeding_a_limit_fails_the_page() {
    let limits = PageLimits {
        output_len_max: 1_000,
        memory_len_max: 10_000,
        step_count_max: 10_000,
        query_count_max: 3,
    };
    let endless = "{% set r = query('SELECT 1') %}{% for a in r %}{% for b in r %}{% for c in r %}{% if 0 %}{% endif %}\
                   {% endfor %}{% endfor %}{% endfor %}";
    for (source, word) in [
        (
            "{% for a in query('SELECT 1') %}0123456789{% endfor %}",
            "longer",
        ),
        (endless, "steps"),
        (
            "{% for a in [1, 2, 3, 4] %}{% set r = query('SELECT 1') %}{% endfor %}",
            "join tables",
        ),
        (
            "{% set x = 'x' * 100 %}{% for a in query('SELECT 1') %}{% set y = x ~ x %}{% endfor %}",
            "memory",
        ),
        ("{% set x = 'x' * 100000000000 %}", "memory"),
        ("{% set x = 'x' * 9223372036854775807 %}", "memory"),
        (
            "{% set x = ['x' * 100] %}{% for a in query('SELECT 1') %}{% set x = [x, x] %}{% set y = x | tojson %}{% endfor %}",
            "memory",
        ),
    ] {
        let failure = run(source, limits, 150).expect_err(source);
        assert!(failure.message.contains(word), "{source}: {failure}");
    }
    let failure =
        run("{% set r = query('SELECT 1') %}", limits, 100_000).expect_err("too many rows");
    assert!(failure.message.contains("memory"), "{failure}");
    let deep = format!("{}1{}", "(".repeat(1_000), ")".repeat(1_000));
    for source in [
        format!("{{{{ {deep} }}}}"),
        format!("{{{{ {}1 }}}}", "-".repeat(1_000)),
        format!("{{{{ {}1 }}}}", "not ".repeat(1_000)),
        format!(
            "{{{{ {} }}}}",
            format_args!("{}{}", "[".repeat(1_000), "]".repeat(1_000))
        ),
        "{% if 1 %}".repeat(1_000),
        format!("{{{{ {}1 }}}}", "1 if 1 else ".repeat(1_000)),
    ] {
        let error = CompiledPage::parse(&source).expect_err("too deep");
        assert!(error.message.contains("nested"), "{error}");
    }
    assert!(CompiledPage::parse(&"x".repeat(2 << 20)).is_err());
}

#[test]
fn cost_is_linear_in_the_number_of_rows() {
    // With quadratic cost this would take minutes.
    let source = "{% for a in query('SELECT 1') %}{{ a.id }}{{ 'x' ~ a.id }}{% endfor %}";
    let limits = PageLimits {
        memory_len_max: 1 << 26,
        ..PageLimits::default()
    };
    let shown = run(source, limits, 300_000).expect("a page").0;
    assert!(shown.ends_with("299999x299999"));
    let long = "{{ 1 }}{% set a = 1 %}{# c #}".repeat(30_000);
    assert_eq!(
        run(&long, PageLimits::default(), 0)
            .expect("a page")
            .0
            .len(),
        30_000
    );
}

#[test]
fn included_parts_are_found_and_named_in_errors() {
    let source = "a\n{% include '_b.lrp' %}\n{% for x in [0] %}{% include '/c.lrp' %}{% endfor %}";
    let mut asked = Vec::new();
    let mut find = |name: &str| {
        asked.push(name.to_string());
        match name {
            "x/_b.lrp" => Some("b{% set b = 0 %}"),
            "c.lrp" => Some("\n\n{{ 1 / x }}"),
            _ => None,
        }
    };
    let page = CompiledPage::parse_with("x/a.lrp", source, &mut find).expect("a page");
    assert_eq!(asked, ["x/_b.lrp", "c.lrp"]);
    let (mut run, mut out) = (PageRun::new(PageLimits::default()), Vec::new());
    run.begin(&page);
    let RunStep::Failed(failure) = run.step(&page, &Plain, &mut out) else {
        panic!("a failure");
    };
    assert!(
        failure.line == 3 && failure.message.starts_with("in c.lrp: "),
        "{failure}"
    );
    let error =
        CompiledPage::parse_with("a", "{% include 'b' %}", &mut |_| Some("\n{{ 'a' | no }}"));
    let error = error.expect_err("a filter");
    assert!(
        error.line == 2 && error.message.starts_with("in b: "),
        "{error}"
    );
    let twice = "{% include 'b' %}{% include 'b' %}";
    assert!(
        CompiledPage::parse_with("a", twice, &mut |_| Some(twice)).is_err(),
        "it includes itself"
    );
    let mut level = 0;
    let doubling = CompiledPage::parse_with("a", twice, &mut |_| {
        level += 1;
        Some(if level % 30 == 0 { "x" } else { twice })
    });
    assert!(doubling.is_err());
}

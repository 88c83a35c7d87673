//! Compares the cost of a thousand configuration entries that do not match the request with the cost of a single one.

use lowroad_testkit::instructions::{self, CountedPiece};

use super::CountedExchange;

/// One entry of each kind. `N` is replaced by the entry's number, and `@` by two bytes of an address.
const ENTRIES: [(&str, &str); 19] = [
    (
        "rule",
        "[[site.rule]]\npattern = \"/private-N/**\"\ndeny = 403\n",
    ),
    (
        "rule for any depth",
        "[[site.rule]]\npattern = \"/**/.private-N/**\"\ndeny = 403\n",
    ),
    (
        "rule for an ending",
        "[[site.rule]]\npattern = \"*.xN\"\ndeny = 403\n",
    ),
    (
        "rule within a path",
        "[[site.rule]]\npattern = \"/a/*/private-N\"\ndeny = 404\n",
    ),
    (
        "rule for an address",
        "[[site.rule]]\npattern = \"/**\"\naddresses = \"10.@.0/24\"\ndeny = 403\n",
    ),
    (
        "route",
        "[[site.route]]\npattern = \"/api-N/**\"\norigin = \"http://192.0.2.9:81\"\n",
    ),
    (
        "route for an ending",
        "[[site.route]]\npattern = \"*.aN\"\norigin = \"http://192.0.2.9:81\"\n",
    ),
    (
        "redirect",
        "[[site.redirect]]\nfrom = \"/old-N/*\"\nto = \"/new/$1\"\n",
    ),
    (
        "redirect by expression",
        "[[site.redirect]]\nregex = \"^/old-N/([0-9]+)$\"\nto = \"/new/$1\"\n",
    ),
    (
        "rewrite",
        "[[site.rewrite]]\nfrom = \"/old-N/**\"\nto = \"/new/$1\"\n",
    ),
    (
        "rewrite by expression",
        "[[site.rewrite]]\nregex = \"/(a|b)-N/x\"\nto = \"/new/$1\"\n",
    ),
    (
        "alias",
        "[[site.alias]]\npath = \"/files-N\"\nfolder = \"/srv\"\ninternal = true\n",
    ),
    (
        "header",
        "[[site.header]]\npattern = \"/docs-N/**\"\nset = { X-A = \"b\" }\n",
    ),
    (
        "cache_control",
        "[[site.cache_control]]\npattern = \"/docs-N/**\"\nvalue = \"no-store\"\n",
    ),
    (
        "class by path",
        "[[class]]\nname = \"cN\"\nroutes = \"/docs-N/**\"\n",
    ),
    (
        "class by address",
        "[[class]]\nname = \"cN\"\nroutes = \"/**\"\naddresses = \"10.@.0/24\"\n",
    ),
    (
        "class by host",
        "[[class]]\nname = \"cN\"\nroutes = \"/**\"\nhosts = \"*.exampleN.com\"\n",
    ),
    (
        "class by field",
        "[[class]]\nname = \"cN\"\nroutes = \"/**\"\nheaders = [\"User-Agent: N\"]\n",
    ),
    (
        "class by many fields",
        "[[class]]\nname = \"cN\"\nroutes = \"/**\"\nheaders = [\"x-N\"]\n",
    ),
];

/// Number of entries that are compared with a single one.
const MANY: usize = 1000;
/// A thousand entries may cost up to a twentieth more than one.
const SHARE_MAX: f64 = 0.05;

fn entries(entry: &str, count: usize) -> String {
    (0..count)
        .map(|number| {
            let bytes = format!("{}.{}", number / 250, number % 250);
            entry.replace('N', &number.to_string()).replace('@', &bytes)
        })
        .collect()
}

#[test]
fn entries_that_are_not_for_a_request_cost_nothing() {
    let prepare = ENTRIES.map(|(name, entry)| {
        let prepare = move |count: usize| {
            let site = entries(entry, count);
            CountedExchange::get("/articles/2026/levels.html", "")
                .with_site(&site)
                .prepare()
        };
        (name, prepare)
    });
    let pieces = prepare.each_ref().map(|(name, prepare)| CountedPiece {
        name,
        prepare,
        sizes: &[1, MANY],
    });
    let test = "simulation::costs::rules::entries_that_are_not_for_a_request_cost_nothing";
    let Some(counts) = instructions::count(test, &pieces) else {
        return;
    };
    let mut failures = Vec::new();
    for (piece, counts) in pieces.iter().zip(counts) {
        let more = counts[1] as f64 / counts[0] as f64 - 1.0;
        println!(
            "{}: {} with one, {:+.1} % with {MANY}",
            piece.name,
            counts[0],
            more * 100.0
        );
        if more > SHARE_MAX {
            failures.push(piece.name);
        }
    }
    assert!(
        failures.is_empty(),
        "more than {SHARE_MAX} more: {failures:?}"
    );
}

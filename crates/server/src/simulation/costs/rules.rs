//! Compares the cost of many configuration entries that do not match the request with the cost of a single one.

use lowroad_testkit::instructions::{self, CountedPiece};

use super::CountedExchange;

/// One entry of each kind. `N` is replaced by the entry's number, and `@` by two bytes of an address that is not the client's.
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
        "[[site.rule]]\npattern = \"/**\"\naddresses = \"172.@.0/24\"\ndeny = 403\n",
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
        "[[class]]\nname = \"cN\"\nroutes = \"/**\"\naddresses = \"172.@.0/24\"\n",
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

/// Entries with conditions and further kinds. They are compared with a site without entries.
const CONDITIONAL_ENTRIES: [(&str, &str); 8] = [
    (
        "rule with a condition",
        "[[site.rule]]\npattern = \"/private-N/**\"\nheader = \"X-N\"\nvariable = \"$arg_a=N\"\ndeny = 403\n",
    ),
    (
        "rule for the log",
        "[[site.rule]]\npattern = [\"/ping-N\", \"/health-N\"]\nlog = false\n",
    ),
    (
        "redirect with a condition",
        "[[site.redirect]]\nfrom = \"/old-N/*\"\nto = \"/new/$1\"\ncookie = \"a=N\"\n",
    ),
    (
        "rewrite with a condition",
        "[[site.rewrite]]\nfrom = \"/old-N/**\"\nto = \"/new/$1\"\nheader = \"X-N\"\n",
    ),
    (
        "header with a condition",
        "[[site.header]]\npattern = \"/docs-N/**\"\nheader = \"X-N\"\nset = { X-A = \"b\" }\n",
    ),
    (
        "header with a variable",
        "[[site.header]]\npattern = \"/docs-N/**\"\nset = { X-A = \"$host\" }\n",
    ),
    (
        "cors",
        "[[site.cors]]\npattern = \"/api-N/**\"\norigins = \"https://a.example\"\n",
    ),
    (
        "route with a condition",
        "[[site.route]]\npattern = \"/api-N/**\"\nargument = \"a=N\"\norigin = \"http://192.0.2.9:81\"\n",
    ),
];

/// The name of the entries of all kinds together.
const TOGETHER: &str = "all kinds";
/// The name of these entries for a path that is too long to be kept.
const UNKEPT: &str = "all kinds, long path";
/// Number of entries of each kind that a site may have at little cost.
const SOME: usize = 20;
/// The share by which entries of one kind may raise the cost of requests that they don't concern. Nearly all of it is the
/// first pattern: further entries cost little. The aim is 0.03 for all kinds together in an optimized program
/// and a whole system; this is measured without optimization, as tests are built.
const SOME_SHARE_MAX: f64 = 0.02;
/// The same for entries of all kinds together.
const TOGETHER_SHARE_MAX: f64 = 0.03;
/// The same for a long path, of which no worker keeps the matches.
const UNKEPT_SHARE_MAX: f64 = 0.18;

/// Number of entries that are compared with a single one. A site with a thousand would need a quarter of an hour to load
/// under callgrind.
const MANY: usize = 200;
/// The share by which these entries may cost more than one. Nearly all of it is a larger hash table.
const SHARE_MAX: f64 = 0.015;

/// The target of the requests.
const TARGET: &str = "/articles/2026/levels.html";

/// A target that is too long for the matches that workers keep, so its path is matched with the patterns each time.
fn long_target() -> String {
    format!("/articles/{}levels.html", "2026/".repeat(60))
}

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
            CountedExchange::get(&long_target(), "")
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

/// A site with twenty entries of one kind, and of all kinds together, compared with a site without entries.
#[test]
fn twenty_entries_of_a_kind_cost_other_requests_little() {
    // Classes are tables of the server, and the traffic of each request belongs to one of them.
    let of_sites = ENTRIES
        .iter()
        .filter(|(name, _)| !name.starts_with("class"));
    let mut all: Vec<(&str, String)> = of_sites
        .chain(&CONDITIONAL_ENTRIES)
        .map(|(name, entry)| (*name, (*entry).to_owned()))
        .collect();
    let together: String = all.iter().map(|(_, entry)| entry.as_str()).collect();
    all.push((TOGETHER, together.clone()));
    all.push((UNKEPT, together));
    let prepare: Vec<_> = all
        .iter()
        .map(|(name, entry)| {
            let target = match *name {
                UNKEPT => long_target(),
                _ => TARGET.to_owned(),
            };
            move |count: usize| {
                let site = entries(entry, count);
                CountedExchange::get(&target, "").with_site(&site).prepare()
            }
        })
        .collect();
    let pieces: Vec<CountedPiece<'_>> = all
        .iter()
        .zip(&prepare)
        .map(|((name, _), prepare)| CountedPiece {
            name,
            prepare,
            sizes: &[0, SOME],
        })
        .collect();
    let test = "simulation::costs::rules::twenty_entries_of_a_kind_cost_other_requests_little";
    let Some(counts) = instructions::count(test, &pieces) else {
        return;
    };
    let mut failures = Vec::new();
    for (piece, counts) in pieces.iter().zip(counts) {
        let more = counts[1] as f64 / counts[0] as f64 - 1.0;
        println!(
            "{}: {} with none, {:+.1} % with {SOME}",
            piece.name,
            counts[0],
            more * 100.0
        );
        let more_max = match piece.name {
            TOGETHER => TOGETHER_SHARE_MAX,
            UNKEPT => UNKEPT_SHARE_MAX,
            _ => SOME_SHARE_MAX,
        };
        if more > more_max {
            failures.push((piece.name, more, more_max));
        }
    }
    assert!(failures.is_empty(), "too much more: {failures:?}");
}

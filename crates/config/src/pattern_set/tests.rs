//! Compares pattern sets with a naive matcher, which tries each pattern with each path form, for random patterns and
//! paths.

use super::*;
use crate::{PathPattern, PathSelector};

const INDEXES: [&str; 2] = ["ab", "index.b"];

/// Whether a pattern matches a path, by the definition of its scope.
fn is_for(pattern: &PathPattern, scope: MatchScope, path: &[u8]) -> bool {
    let mut forms = vec![path.to_vec()];
    let slashes: Vec<usize> = (1..path.len()).filter(|at| path[*at] == b'/').collect();
    match scope {
        MatchScope::Path | MatchScope::Unverified => {}
        MatchScope::Script if pattern.is_absolute() => {}
        MatchScope::Script => forms.extend(slashes.iter().map(|at| path[..*at].to_vec())),
        MatchScope::Access => {
            for at in slashes {
                forms.push(path[..at].to_vec());
                forms.push(path[..=at].to_vec());
            }
            if path.ends_with(b"/") {
                forms.extend(INDEXES.map(|name| [path, name.as_bytes()].concat()));
            } else {
                forms.push([path, b"/"].concat());
            }
            let endings: [&[u8]; 3] = [b".br", b".zst", b".gz"];
            forms.extend(
                endings
                    .iter()
                    .filter_map(|it| Some(path.strip_suffix(*it)?.to_vec())),
            );
        }
    }
    forms.iter().any(|form| pattern.matches(form))
}

/// Random words from a fixed seed.
struct RandomWords(u64);

impl RandomWords {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).expect("small")
    }

    fn word(&mut self, pieces: &[&str], count_max: usize) -> String {
        let count = self.below(count_max + 1);
        (0..count)
            .map(|_| pieces[self.below(pieces.len())])
            .collect()
    }
}

#[test]
fn pattern_set_agrees_with_naive_matcher() {
    let mut random = RandomWords(0x2545_F491_4F6C_DD1D);
    let scopes = [MatchScope::Path, MatchScope::Script, MatchScope::Access];
    let mut totals = [0_usize; 3];
    for round in 0..4000 {
        let mut patterns = Vec::new();
        let mut builder = PatternSetBuilder::default();
        for _ in 0..1 + random.below(12) {
            let text = match random.below(3) {
                0 => random.word(&["a", "b", ".b", "*", "**", "index.b", ".gz"], 4),
                _ => format!(
                    "/{}",
                    random.word(&["a", "b", "/", "*", "**", "/**/", ".b"], 6)
                ),
            };
            let Ok(pattern) = PathPattern::parse(&text) else {
                continue;
            };
            let scope = random.below(3);
            builder.add(&pattern, scopes[scope]);
            patterns.push((pattern, scope));
        }
        let set = builder.build(INDEXES);
        for _ in 0..8 {
            let pieces = ["a", "b", "/", ".b", "ab", "index.b", ".gz", "/a", "/b"];
            let path = format!("/{}", random.word(&pieces, 8));
            let is_for = |(_, (pattern, scope)): &(usize, &(PathPattern, usize))| {
                is_for(pattern, scopes[*scope], path.as_bytes())
            };
            let expected: Vec<u32> = patterns
                .iter()
                .enumerate()
                .filter(is_for)
                .map(|(number, (_, scope))| {
                    totals[*scope] += 1;
                    number as u32
                })
                .collect();
            let found = set.matches(path.as_bytes());
            assert_eq!(found, expected, "round {round}: {path} with {patterns:?}");
        }
    }
    assert!(
        totals.iter().all(|total| *total > 5000),
        "{totals:?} prove nothing"
    );
}

#[test]
fn pattern_set_has_no_false_negatives_for_regexes() {
    let mut random = RandomWords(7);
    let pieces = [
        "a",
        "b",
        "/",
        "ab",
        "(a|b)",
        "(a|b/)+",
        "(ab)?",
        "[ab]",
        ".*",
        "(?:ab){2}",
        "^",
        "$",
    ];
    let (mut matched, mut left_out) = (0, 0);
    for _ in 0..4000 {
        let texts: Vec<String> = (0..6).map(|_| random.word(&pieces, 5)).collect();
        let parsed = texts
            .iter()
            .filter_map(|text| crate::PathExpression::parse(text).ok());
        let all: Vec<PathSelector> = parsed.map(PathSelector::Regex).collect();
        let mut builder = PatternSetBuilder::default();
        all.iter().for_each(|paths| builder.add_capturing(paths));
        let set = builder.build([]);
        let path = format!("/{}", random.word(&["a", "b", "/", "ab"], 6));
        let found = set.matches(path.as_bytes());
        for (number, paths) in (0..).zip(&all) {
            let is_found = found.contains(&number);
            let is_match = paths.capture(path.as_bytes()).is_some();
            assert!(is_found || !is_match, "{paths} on {path}");
            matched += usize::from(is_match);
            left_out += usize::from(!is_found);
        }
    }
    assert!(matched > 5000 && left_out > 3000, "{matched}, {left_out}");
}

#[test]
fn prefilter_leaves_few_candidates_of_20000_patterns() {
    let texts = (0..5000).flat_map(|number| {
        [
            format!("/old/page-{number}"),
            format!("/shop/*/item-{number}/**"),
            format!("/**/.hidden-{number}/**"),
            format!("*.x{number}"),
        ]
    });
    let mut builder = PatternSetBuilder::default();
    for text in texts {
        let pattern = PathPattern::parse(&text).expect("a pattern");
        builder.add(&pattern, MatchScope::Access);
    }
    let set = builder.build(["index.html"]);
    assert!(set.candidates(b"/shop/a/item/").is_empty());
    assert_eq!(set.matches(b"/old/page-17"), [68]);
    assert_eq!(set.matches(b"/shop/a/item-7/b.x3/c"), [15, 29]);
    assert_eq!(set.matches(b"/a/.hidden-4999"), [19998]);
}

fn is_matched(pattern: &str, scope: MatchScope, path: &str) -> bool {
    let mut builder = PatternSetBuilder::default();
    builder.add(&PathPattern::parse(pattern).expect("a pattern"), scope);
    let set = builder.build(["index.html"]);
    !set.matches(path.as_bytes()).is_empty()
}

#[test]
fn access_scope_covers_folders_index_files_and_compressed_siblings() {
    for (pattern, path, expected) in [
        ("/admin/**", "/admin/a", true),
        ("/admin/**", "/admin", true),
        ("/admin", "/admin/a/b", true),
        ("/admin/", "/admin/a", true),
        ("/admin.php", "/admin.php/info", true),
        ("*.php", "/a/x.php/b/c", true),
        ("/a/index.html", "/a/", true),
        ("*.html", "/", true),
        ("/secret.txt", "/secret.txt.br", true),
        ("*.txt", "/secret.txt.gz", true),
        ("*.txt", "/secret.txt.zst", true),
        ("/**", "/", true),
        ("/**/.git/**", "/a/.git", true),
        ("/admin/**", "/administration", false),
        ("/admin", "/admin2", false),
        ("/", "/a", false),
        ("*.php", "/a.phpx", false),
        ("*.txt", "/a.txt.bz2", false),
        ("/a/other.html", "/a/", false),
        ("/A", "/a", false),
    ] {
        let found = is_matched(pattern, MatchScope::Access, path);
        assert_eq!(found, expected, "{pattern} {path}");
    }
}

#[test]
fn script_scope_covers_path_info_for_relative_patterns_only() {
    for (pattern, path, expected) in [
        ("*.php", "/a/index.php", true),
        ("*.php", "/a/index.php/b/c", true),
        ("*.php", "/a/index.php/", true),
        ("*.php", "/a/index.phpx/b", false),
        ("*.php", "/", false),
        ("/cgi/**", "/cgi/a/b", true),
        ("/a", "/a", true),
        ("/a", "/a/b", false),
    ] {
        let found = is_matched(pattern, MatchScope::Script, path);
        assert_eq!(found, expected, "{pattern} {path}");
    }
}

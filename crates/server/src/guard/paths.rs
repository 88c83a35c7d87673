//! Which paths a pattern of what is refused is for: what its pattern matches, and whatever leads to that. A script gets what follows its
//! name in the path, a folder's path stands for its index file, and a file may be asked for by the name of its compressed
//! sibling: none of them is a way around a rule.

use lowroad_config::Pattern;

/// Endings of compressed siblings.
const SIBLINGS: [&[u8]; 3] = [b".br", b".zst", b".gz"];

/// Whether a pattern matches a decoded path, or one that is asked for by it. `indexes` are the names that a folder's path
/// may stand for.
pub fn has_or_leads_to<'n>(
    pattern: &Pattern,
    path: &[u8],
    indexes: impl IntoIterator<Item = &'n str>,
) -> bool {
    pattern.matches(path)
        || has_above(pattern, path)
        || has_in_folder(pattern, path, indexes)
        || SIBLINGS.iter().any(|ending| {
            let original = path.strip_suffix(*ending);
            original.is_some_and(|original| pattern.matches(original))
        })
}

/// Whether the path itself as a folder, or one of those that it lies below, is matched; each with its slash and without.
fn has_above(pattern: &Pattern, path: &[u8]) -> bool {
    let slashes = path.iter().enumerate().skip(1).filter(|(_, b)| **b == b'/');
    let mut above = slashes.map(|(at, _)| at);
    above.any(|at| pattern.matches(&path[..at]) || pattern.matches(&path[..=at]))
        || !path.ends_with(b"/") && pattern.matches(&[path, b"/"].concat())
}

fn has_in_folder<'n>(
    pattern: &Pattern,
    path: &[u8],
    indexes: impl IntoIterator<Item = &'n str>,
) -> bool {
    let has = |name: &str| pattern.matches(&[path, name.as_bytes()].concat());
    path.ends_with(b"/") && indexes.into_iter().any(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_for(pattern: &str, path: &str) -> bool {
        let pattern = Pattern::parse(pattern).expect("a pattern");
        has_or_leads_to(&pattern, path.as_bytes(), ["index.html"])
    }

    #[test]
    fn a_rule_is_for_all_ways_to_what_it_is_for() {
        for (pattern, path) in [
            ("/admin/**", "/admin/a"),
            ("/admin/**", "/admin"),
            ("/admin", "/admin/a/b"),
            ("/admin/", "/admin/a"),
            ("/admin.php", "/admin.php/info"),
            ("*.php", "/a/x.php/b/c"),
            ("/a/index.html", "/a/"),
            ("*.html", "/"),
            ("/secret.txt", "/secret.txt.br"),
            ("*.txt", "/secret.txt.gz"),
            ("*.txt", "/secret.txt.zst"),
            ("/**", "/"),
        ] {
            assert!(is_for(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn and_for_nothing_else() {
        for (pattern, path) in [
            ("/admin/**", "/administration"),
            ("/admin", "/admin2"),
            ("/", "/a"),
            ("*.php", "/a.phpx"),
            ("*.txt", "/a.txt.bz2"),
            ("/a/other.html", "/a/"),
            ("/A", "/a"),
        ] {
            assert!(!is_for(pattern, path), "{pattern} {path}");
        }
    }
}

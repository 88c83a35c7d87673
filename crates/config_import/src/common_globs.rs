//! The paths that two lists of globs have in common.

use lowroad_config::PathPattern;

use crate::path_globs::PathGlobs;

/// Globs of the paths that both lists match. They match more paths, as `is_wider` says, where no glob is exact.
pub fn common_globs(one: &PathGlobs, other: &PathGlobs) -> PathGlobs {
    let mut common = PathGlobs {
        is_wider: one.is_wider || other.is_wider,
        ..PathGlobs::default()
    };
    for first in &one.globs {
        for second in &other.globs {
            let glob = match narrowed(first, second).or_else(|| narrowed(second, first)) {
                Some(glob) => glob,
                None if are_disjoint(first, second) => continue,
                // Either glob has all common paths.
                None => {
                    common.is_wider = true;
                    first.clone()
                }
            };
            if !common.globs.contains(&glob) {
                common.globs.push(glob);
            }
        }
    }
    common
}

/// The glob of the paths of `glob` that `outer` matches; `None` without an exact one.
fn narrowed(glob: &str, outer: &str) -> Option<String> {
    if glob == outer || outer == "/**" {
        return Some(glob.to_string());
    }
    if !glob.contains('*') {
        let pattern = PathPattern::parse(outer).ok()?;
        return pattern.matches(glob.as_bytes()).then(|| glob.to_string());
    }
    if let Some(front) = folder_front(outer) {
        // A pattern of names is one of all folders.
        return match glob.strip_prefix('*') {
            Some(name) => Some(format!("{front}**{name}")),
            None => glob.starts_with(front).then(|| glob.to_string()),
        };
    }
    let (name, outer_name) = (glob.strip_prefix('*')?, outer.strip_prefix('*')?);
    name.ends_with(outer_name).then(|| glob.to_string())
}

/// The text of a glob that ends in its only wildcard.
fn folder_front(glob: &str) -> Option<&str> {
    let front = glob.strip_suffix("**")?;
    (front.starts_with('/') && !front.contains('*')).then_some(front)
}

/// Whether no path is matched by both, for globs without an exact common one.
fn are_disjoint(one: &str, other: &str) -> bool {
    let is_literal = |it: &str| !it.contains('*');
    if is_literal(one) || is_literal(other) {
        return true;
    }
    let front = |it: &str| it.split('*').next().unwrap_or_default().to_string();
    let end = |it: &str| it.rsplit('*').next().unwrap_or_default().to_string();
    let (fronts, ends) = ((front(one), front(other)), (end(one), end(other)));
    let differ = !fronts.0.starts_with(&fronts.1) && !fronts.1.starts_with(&fronts.0);
    differ || (!ends.0.ends_with(&ends.1) && !ends.1.ends_with(&ends.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_paths_are_all_matched() {
        for (one, other, expected, is_wider) in [
            ("*.php", "/a/**", &["/a/**.php"][..], false),
            ("/a/**", "*.php", &["/a/**.php"], false),
            ("*.php", "/**", &["*.php"], false),
            ("*.php", "/a", &[], false),
            ("*.php", "/a.php", &["/a.php"], false),
            ("/a/b/**", "/a/**", &["/a/b/**"], false),
            ("/a/**", "/b/**", &[], false),
            ("*.php", "*.css", &[], false),
            ("*.min.css", "*.css", &["*.min.css"], false),
            ("/**secret**", "/a/**.log", &["/**secret**"], true),
            ("/a/**.log", "/a/*.txt", &[], false),
        ] {
            let found = common_globs(&PathGlobs::literal(one), &PathGlobs::literal(other));
            assert_eq!(found.globs, expected, "{one} {other}");
            assert_eq!(found.is_wider, is_wider, "{one} {other}");
        }
    }
}

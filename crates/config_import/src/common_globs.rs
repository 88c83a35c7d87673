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
            let globs = exact_globs(first, second).or_else(|| exact_globs(second, first));
            let globs = match globs {
                Some(globs) => globs,
                None if are_disjoint(first, second) => continue,
                // Either glob has all common paths; the longer text mostly has fewer others.
                None => {
                    common.is_wider = true;
                    vec![longer(first, second).to_string()]
                }
            };
            for glob in globs {
                if !common.globs.contains(&glob) {
                    common.globs.push(glob);
                }
            }
        }
    }
    common
}

/// The globs of exactly the paths that both match; `None` without an equal.
fn exact_globs(glob: &str, outer: &str) -> Option<Vec<String>> {
    let single = narrowed(glob, outer).or_else(|| joined(glob, outer));
    match single {
        Some(glob) => Some(vec![glob]),
        None => folders_below(glob, outer),
    }
}

/// The glob with more text.
fn longer<'g>(first: &'g str, second: &'g str) -> &'g str {
    let text_len = |glob: &str| glob.bytes().filter(|it| *it != b'*').count();
    match text_len(second) > text_len(first) {
        true => second,
        false => first,
    }
}

/// The globs of the paths of `/**/name…` that begin with a text; `None` if the texts could overlap.
fn folders_below(glob: &str, outer: &str) -> Option<Vec<String>> {
    let front = folder_front(outer)?;
    let folder = front.strip_suffix('/').unwrap_or(front);
    let rest = glob.strip_prefix("/**").filter(|it| it.starts_with('/'))?;
    let text = rest.split('*').next()?;
    let mut ends = folder.char_indices().map(|(at, _)| &folder[at..]);
    // The slash of the folder is the first one of the text.
    let is_separate = !front.contains(text) && !ends.any(|end| text.starts_with(end));
    is_separate.then(|| match front.ends_with('/') {
        true => vec![format!("{folder}{rest}"), format!("{folder}/**{rest}")],
        false => vec![format!("{front}**{rest}")],
    })
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
            None if glob.starts_with(front) => Some(glob.to_string()),
            None => glob_below(glob, front),
        };
    }
    if let Some(front) = outer.strip_suffix("**").filter(|it| it.ends_with('/')) {
        return glob_below(glob, front);
    }
    let (name, outer_name) = (glob.strip_prefix('*')?, outer.strip_prefix('*')?);
    name.ends_with(outer_name).then(|| glob.to_string())
}

/// The glob of the paths of `glob` below a folder, which may have wildcards; `None` unless the glob ends in a name.
fn glob_below(glob: &str, folder: &str) -> Option<String> {
    let (front, name) = glob.split_once('*')?;
    let is_below = front.is_empty() || (name.starts_with('*') && folder.starts_with(front));
    let name = name.trim_start_matches('*');
    let is_name = folder.ends_with('/') && !name.contains(['*', '/']);
    (is_below && is_name).then(|| format!("{folder}**{name}"))
}

/// The glob of the paths that begin with the text of `/text**` and match `/*name…`; `None` if the texts could overlap.
fn joined(folder: &str, glob: &str) -> Option<String> {
    let front = folder_front(folder)?;
    let (start, rest) = glob.split_once('*')?;
    let within = front.strip_prefix(start)?;
    let name = rest.split('*').next()?;
    let is_single = !name.is_empty() && !within.contains('/');
    let mut ends = within.char_indices().map(|(at, _)| &within[at..]);
    let may_overlap = within.contains(name) || ends.any(|end| name.starts_with(end));
    (is_single && !may_overlap).then(|| format!("{front}*{rest}"))
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
            ("*.php", "/*a/**", &["/*a/**.php"], false),
            ("/a/**.php", "/a/b/**", &["/a/b/**.php"], false),
            ("/a/**/x.php", "/a/b/**", &["/a/**/x.php"], true),
            ("/ab**", "/*cd/**", &["/ab*cd/**"], false),
            ("/ab**", "/*bc/**", &["/*bc/**"], true),
            ("/**/b/**", "/a/**", &["/a/b/**", "/a/**/b/**"], false),
            ("/**/a/b/**", "/a/**", &["/**/a/b/**"], true),
            ("*.php", "/a**", &["/a**.php"], false),
            ("/**/.**", "/a/**", &["/a/.**", "/a/**/.**"], false),
            ("/**/.**", "/a**", &["/a**/.**"], false),
            ("/a/**", "/a/private/**", &["/a/private/**"], false),
            (
                "/a/**secret",
                "/a/private/**",
                &["/a/private/**secret"],
                false,
            ),
            ("/u**.php", "/up/**", &["/up/**.php"], false),
            ("/**/private/**", "/a/private/**", &["/a/private/**"], true),
            ("/*/x.txt", "/admin/**", &["/*/x.txt"], true),
        ] {
            let found = common_globs(&PathGlobs::literal(one), &PathGlobs::literal(other));
            assert_eq!(found.globs, expected, "{one} {other}");
            assert_eq!(found.is_wider, is_wider, "{one} {other}");
        }
    }
}

//! Whether two lists of globs may match the same path.

use lowroad_config::PathPattern;

use crate::path_globs::PathGlobs;

/// Whether some path is matched by both. Compares samples: a false result may be wrong for unusual globs.
pub fn may_overlap(one: &PathGlobs, other: &PathGlobs) -> bool {
    shares_paths(one, other) || has_name_below(one, other) || has_name_below(other, one)
}

/// Like [`may_overlap`], but a file name in a folder doesn't count, unless the folder is the root.
pub fn shares_paths(one: &PathGlobs, other: &PathGlobs) -> bool {
    !have_other_fronts(one, other) && (has_sample_in(one, other) || has_sample_in(other, one))
}

/// Whether one has a pattern of file names, and the other a whole folder, which may contain such a file.
fn has_name_below(one: &PathGlobs, other: &PathGlobs) -> bool {
    let has_name = one.globs.iter().any(|glob| !glob.starts_with('/'));
    has_name
        && other
            .globs
            .iter()
            .any(|glob| glob.starts_with('/') && glob.ends_with("**"))
}

/// Whether the texts before the first wildcards of two patterns of whole paths differ, so that no path has both. Most pairs
/// of locations differ in it, without patterns and samples.
pub fn has_other_front(one: &str, other: &str) -> bool {
    let front = |glob: &str| glob.find(['*', '{']).unwrap_or(glob.len());
    let is_whole = one.starts_with('/') && other.starts_with('/');
    let len = front(one).min(front(other));
    is_whole && one.as_bytes()[..len] != other.as_bytes()[..len]
}

fn have_other_fronts(one: &PathGlobs, other: &PathGlobs) -> bool {
    let mut pairs = one
        .globs
        .iter()
        .flat_map(|it| other.globs.iter().map(move |other| (it, other)));
    pairs.all(|(one, other)| has_other_front(one, other))
}

fn has_sample_in(one: &PathGlobs, other: &PathGlobs) -> bool {
    let patterns: Vec<PathPattern> = other
        .globs
        .iter()
        .filter_map(|glob| PathPattern::parse(glob).ok())
        .collect();
    let samples = one.globs.iter().flat_map(|glob| samples(glob));
    samples.into_iter().any(|sample| {
        patterns
            .iter()
            .any(|pattern| pattern.matches(sample.as_bytes()))
    })
}

/// Paths that a glob matches.
fn samples(glob: &str) -> Vec<String> {
    let glob = match glob.starts_with('/') {
        true => glob.to_string(),
        false => format!("/**{glob}"),
    };
    let fill = |across: &str, within: &str| {
        glob.replace("**", across)
            .replace('*', within)
            .replace("//", "/")
    };
    vec![
        fill("", ""),
        fill("x", "x"),
        fill("x/y", "x"),
        fill("d/", "x"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(texts: &[&str]) -> PathGlobs {
        PathGlobs {
            globs: texts.iter().map(ToString::to_string).collect(),
            ..PathGlobs::default()
        }
    }

    #[test]
    fn texts_before_wildcards_tell_patterns_apart() {
        for (one, other, expected) in [
            ("/a/**", "/b/**", true),
            ("/a/**", "/a/b", false),
            ("/a/x", "/a/y", true),
            ("/a*", "/ab", false),
            ("/**", "/x", false),
            ("*.php", "/x", false),
            ("/{a,b}", "/c", false),
        ] {
            assert_eq!(has_other_front(one, other), expected, "{one} {other}");
            assert_eq!(has_other_front(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn common_paths_are_found() {
        for (one, other, expected) in [
            ("/a/**", "/a/b/**", true),
            ("/a/**", "/b/**", false),
            ("*.php", "/**", true),
            ("*.php", "/a/**", true),
            ("*.php", "*.css", false),
            ("/x", "/**", true),
            ("/.well-known/**", "/.**", true),
            ("*.css", "/data/**", true),
        ] {
            assert_eq!(
                may_overlap(&globs(&[one]), &globs(&[other])),
                expected,
                "{one} {other}"
            );
        }
    }
}

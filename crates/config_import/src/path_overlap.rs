//! Whether two lists of globs may match the same path.

use lowroad_config::PathPattern;

use crate::path_globs::PathGlobs;

/// Whether some path is matched by both. Compares samples: a false result may be wrong for unusual globs.
pub fn may_overlap(one: &PathGlobs, other: &PathGlobs) -> bool {
    shares_paths(one, other) || has_name_below(one, other) || has_name_below(other, one)
}

/// Like [`may_overlap`], but a file name in a folder doesn't count, unless the folder is the root.
pub fn shares_paths(one: &PathGlobs, other: &PathGlobs) -> bool {
    has_sample_in(one, other) || has_sample_in(other, one)
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

//! Translates regular expressions over paths to the globs of Lowroad's patterns.
//!
//! A glob has `*` (within a segment) and `**` only, so an expression becomes a list of globs: alternatives are
//! multiplied out, classes and repetitions become wildcards. The result may match more than the expression, which is
//! recorded, but never less.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};

use crate::look_ahead::SplitExpression;

/// The largest number of globs for one expression.
const GLOBS_MAX: usize = 64;
/// Single characters of a class that are listed as alternatives; larger classes become a wildcard.
const CLASS_LEN_MAX: u32 = 4;

// Marks in intermediate texts, which can't occur in a path of a configuration.
const WITHIN: char = '\u{1}';
const ACROSS: char = '\u{2}';
const START: char = '\u{3}';
const END: char = '\u{4}';

/// Globs that match all paths of an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathGlobs {
    /// The globs.
    pub globs: Vec<String>,
    /// Globs of a negative look-ahead: paths that the expression excludes.
    pub exceptions: Vec<String>,
    /// The same as an expression, if globs would exclude other paths, too: for `/\.(?!NAME)`, those with another hidden name.
    pub excepted_paths: Option<String>,
    /// Whether the globs match more paths than the expression.
    pub is_wider: bool,
}

impl PathGlobs {
    /// The paths that begin with a text.
    pub fn prefix(path: &str) -> PathGlobs {
        PathGlobs::literal(&format!("{path}**"))
    }

    /// A single glob.
    pub fn literal(glob: &str) -> PathGlobs {
        PathGlobs {
            globs: vec![glob.to_string()],
            ..PathGlobs::default()
        }
    }

    /// The globs of a regular expression; none if it can't be expressed.
    pub fn from_regex(regex: &str) -> Option<PathGlobs> {
        if let Some(split) = SplitExpression::parse(regex) {
            return PathGlobs::from_split(&split);
        }
        let (before, excluded, after) = look_ahead(regex)?;
        let with = PathGlobs::from_plain_regex(&format!("{before}{after}"))?;
        // The expression may match at one place of a path and exclude another one: `/.git/.well-known/`.
        let excepted_paths = excepted_names(before, excluded);
        Some(PathGlobs {
            is_wider: with.is_wider || excepted_paths.is_none(),
            excepted_paths,
            ..with
        })
    }

    fn from_split(split: &SplitExpression) -> Option<PathGlobs> {
        let mut globs = PathGlobs::from_plain_regex(&split.expression)?;
        for exception in &split.exceptions {
            let without = PathGlobs::from_plain_regex(exception);
            match without.filter(|it| !it.is_wider) {
                Some(without) => globs.exceptions.extend(without.globs),
                None => {
                    globs.excepted_paths = Some(split.exceptions.join("|"));
                    globs.exceptions.clear();
                    break;
                }
            }
        }
        Some(globs)
    }

    fn from_plain_regex(regex: &str) -> Option<PathGlobs> {
        let regex = regex.replace("\\/", "/");
        // PCRE compares bytes unless the expression asks for UTF-8.
        let hir = ParserBuilder::new()
            .unicode(false)
            .utf8(false)
            .build()
            .parse(&regex)
            .ok()?;
        let mut is_wider = false;
        let texts = expand(&hir, &mut is_wider)?;
        let mut globs = Vec::new();
        for text in texts {
            for glob in complete(&text) {
                if !globs.contains(&glob) {
                    globs.push(glob);
                }
            }
        }
        // A pattern of file names also matches with a path after the name.
        let names: Vec<String> = globs
            .iter()
            .filter(|it| !it.starts_with('/'))
            .cloned()
            .collect();
        globs.retain(|glob| !names.iter().any(|name| *glob == format!("/*{name}/**")));
        (!globs.is_empty()).then_some(PathGlobs {
            globs,
            is_wider,
            ..PathGlobs::default()
        })
    }

    /// The globs of the same paths without regard to case.
    pub fn to_lowercase(&self) -> PathGlobs {
        let globs = self.globs.iter();
        PathGlobs {
            globs: globs.map(|it| it.to_ascii_lowercase()).collect(),
            ..self.clone()
        }
    }
}

/// An expression for the paths with a hidden name (`/\.` before the look-ahead) of which each is excluded by it.
fn excepted_names(before: &str, excluded: &str) -> Option<String> {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_/|".contains(it);
    if before.replace("\\/", "/") != r"/\." || !excluded.chars().all(is_plain) {
        return None;
    }
    // One excluded name; all other segments are not hidden.
    Some(format!(
        r"^(?:/[^./][^/]*)*/\.(?:{excluded})(?:[^/.][^/]*)?(?:/(?:[^./][^/]*)?)*$"
    ))
}

/// Splits an expression at its negative look-ahead: the text before it, its own and the text after it.
fn look_ahead(regex: &str) -> Option<(&str, &str, &str)> {
    let start = regex.find("(?!")?;
    let rest = &regex[start + 3..];
    let mut depth = 1;
    for (index, byte) in rest.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((&regex[..start], &rest[..index], &rest[index + 1..]));
        }
    }
    None
}

/// All texts of an expression, with marks for wildcards and anchors.
fn expand(hir: &Hir, is_wider: &mut bool) -> Option<Vec<String>> {
    let texts = match hir.kind() {
        HirKind::Empty => vec![String::new()],
        HirKind::Literal(literal) => vec![literal_text(&literal.0)?],
        HirKind::Class(class) => class_texts(class, is_wider),
        HirKind::Look(Look::Start) => vec![START.to_string()],
        HirKind::Look(Look::End) => vec![END.to_string()],
        HirKind::Look(_) => {
            *is_wider = true;
            vec![String::new()]
        }
        HirKind::Repetition(repetition) if repetition.max == Some(1) => {
            let mut texts = vec![String::new()];
            texts.extend(expand(&repetition.sub, is_wider)?);
            texts
        }
        HirKind::Repetition(repetition) => vec![repeated(repetition, is_wider).to_string()],
        HirKind::Capture(capture) => expand(&capture.sub, is_wider)?,
        HirKind::Concat(parts) => {
            let mut texts = vec![String::new()];
            for part in parts {
                let ends = expand(part, is_wider)?;
                texts = texts
                    .iter()
                    .flat_map(|text| ends.iter().map(move |end| format!("{text}{end}")))
                    .collect();
                // Checked for each part: alternatives multiply, so the list would grow exponentially.
                if texts.len() > GLOBS_MAX {
                    return None;
                }
            }
            texts
        }
        HirKind::Alternation(parts) => {
            let mut texts = Vec::new();
            for part in parts {
                texts.extend(expand(part, is_wider)?);
            }
            texts
        }
    };
    (texts.len() <= GLOBS_MAX).then_some(texts)
}

fn literal_text(bytes: &[u8]) -> Option<String> {
    let text = str::from_utf8(bytes).ok()?;
    // Patterns refuse the notation of other globs. A question mark is never part of a path.
    let is_plain = !text.contains(|it: char| it.is_control() || "*[]{}|\\^$%".contains(it));
    is_plain.then(|| text.to_string())
}

fn class_texts(class: &Class, is_wider: &mut bool) -> Vec<String> {
    let ranges = class_ranges(class);
    let len: u32 = ranges.iter().map(|(first, last)| last - first + 1).sum();
    if len <= CLASS_LEN_MAX {
        let characters = ranges.iter().flat_map(|(first, last)| *first..=*last);
        return characters
            .filter_map(char::from_u32)
            .map(String::from)
            .collect();
    }
    *is_wider = true;
    // A single character is hardly ever meant to be a slash.
    vec![WITHIN.to_string()]
}

fn repeated(repetition: &Repetition, is_wider: &mut bool) -> char {
    let sub = &*repetition.sub;
    *is_wider |= repetition.max.is_some();
    let sub = match sub.kind() {
        HirKind::Capture(capture) => &capture.sub,
        _ => sub,
    };
    match sub.kind() {
        HirKind::Class(class) => {
            let ranges = class_ranges(class);
            *is_wider |= !is_any_class(&ranges);
            wildcard(&ranges)
        }
        _ => {
            *is_wider = true;
            ACROSS
        }
    }
}

fn class_ranges(class: &Class) -> Vec<(u32, u32)> {
    match class {
        Class::Unicode(class) => {
            let ranges = class.ranges().iter();
            ranges
                .map(|it| (u32::from(it.start()), u32::from(it.end())))
                .collect()
        }
        Class::Bytes(class) => {
            let ranges = class.ranges().iter();
            ranges
                .map(|it| (u32::from(it.start()), u32::from(it.end())))
                .collect()
        }
    }
}

/// Whether a class is `.`, or all characters but the slash: those are exactly wildcards.
fn is_any_class(ranges: &[(u32, u32)]) -> bool {
    let has = |it: u32| {
        ranges
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&it))
    };
    // `.` lacks the line feed.
    let mut others = (0..=255).filter(|it| *it != u32::from('\n') && *it != u32::from('/'));
    others.all(has)
}

fn wildcard(ranges: &[(u32, u32)]) -> char {
    let slash = u32::from('/');
    let has_slash = ranges
        .iter()
        .any(|(first, last)| (*first..=*last).contains(&slash));
    if has_slash { ACROSS } else { WITHIN }
}

/// The globs of an expanded text: without an anchor, anything may come before or after it.
fn complete(text: &str) -> Vec<String> {
    let is_started = text.starts_with(START);
    let is_ended = text.ends_with(END);
    let inner = text.trim_start_matches(START).trim_end_matches(END);
    // An anchor in the middle matches nowhere, and a path has no question mark.
    if inner.contains([START, END, '?']) {
        return Vec::new();
    }
    let end = if is_ended { "" } else { "**" };
    let globs = match (is_started, inner.chars().next()) {
        (true, Some('/')) => vec![format!("{inner}{end}")],
        (true, Some(WITHIN | ACROSS) | None) => vec![format!("/{inner}{end}")],
        (true, Some(_)) => Vec::new(),
        (false, Some('/')) => vec![format!("{inner}{end}"), format!("/**{inner}{end}")],
        (false, _) => vec![format!("/**{inner}{end}")],
    };
    globs.iter().map(|glob| stars(glob)).collect()
}

/// Replaces marks by stars, adjacent ones by one wildcard, and writes patterns of file names shortly.
fn stars(glob: &str) -> String {
    let glob = glob.replace(WITHIN, "*").replace(ACROSS, "**");
    let mut merged = String::new();
    let mut rest = glob.as_str();
    while let Some(index) = rest.find('*') {
        let run = rest[index..]
            .bytes()
            .take_while(|byte| *byte == b'*')
            .count();
        merged.push_str(&rest[..index]);
        merged.push_str(if run == 1 { "*" } else { "**" });
        rest = &rest[index + run..];
    }
    merged.push_str(rest);
    match merged.strip_prefix("/**") {
        Some(name) if !name.is_empty() && !name.contains(['*', '/']) => format!("*{name}"),
        _ => merged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(regex: &str) -> Vec<String> {
        PathGlobs::from_regex(regex).expect(regex).globs
    }

    #[test]
    fn expressions_of_usual_locations_become_globs() {
        let cases: &[(&str, &[&str])] = &[
            (r"\.php$", &["*.php"]),
            (r"\.php(/|$)", &["*.php"]),
            (r"[^/]\.php(/|$)", &["*.php"]),
            (r"^/index\.php(/|$)", &["/index.php/**", "/index.php"]),
            (r"\.(css|js)$", &["*.css", "*.js"]),
            (r"\.jpe?g$", &["*.jpg", "*.jpeg"]),
            (
                r"^/(?:data|config)(?:$|/)",
                &["/data", "/data/**", "/config", "/config/**"],
            ),
            (r"^/a/", &["/a/**"]),
            (r"/\.", &["/.**", "/**/.**"]),
            (r"^/.+\.php$", &["*.php"]),
            (r"(?:#.*#|\.bak|~)$", &["/**#**#", "*.bak", "*~"]),
        ];
        for (regex, expected) in cases {
            let mut found = globs(regex);
            let mut expected: Vec<String> = expected.iter().map(|it| it.to_string()).collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{regex}");
        }
    }

    #[test]
    fn wider_globs_are_recorded() {
        assert!(
            PathGlobs::from_regex("^/item/[0-9]+$")
                .expect("globs")
                .is_wider
        );
        for bounded in ["^/.{1,4}$", "^/a[^.]*$", "^/[^x]+$"] {
            let globs = PathGlobs::from_regex(bounded).expect("globs");
            assert!(globs.is_wider, "{bounded}");
        }
        assert!(
            !PathGlobs::from_regex("^/item/[^/]+$")
                .expect("globs")
                .is_wider
        );
        assert!(
            !PathGlobs::from_regex(r"^/a/.*\.png$")
                .expect("globs")
                .is_wider
        );
    }

    #[test]
    fn look_ahead_becomes_exceptions() {
        let found = PathGlobs::from_regex(r"/\.(?!well-known)").expect("globs");
        assert_eq!(found.globs, ["/.**", "/**/.**"]);
        assert!(found.exceptions.is_empty());
        let excepted = found.excepted_paths.expect("an expression");
        let excepted = lowroad_config::PathExpression::parse(&excepted).expect("valid");
        for (path, is_excepted) in [
            ("/.well-known/acme-challenge/x", true),
            ("/.well-known", true),
            ("/.well-known/", true),
            ("/a/b/.well-known/x", true),
            ("/.git/.well-known/x", false),
            ("/.well-known/.git/x", false),
            ("/.well-known/a/.env", false),
            ("/.well-known.git", false),
            ("/.git", false),
        ] {
            assert_eq!(excepted.is_match(path.as_bytes()), is_excepted, "{path}");
        }
        let anchored = PathGlobs::from_regex(r"^/(?!public/).*\.sql$").expect("globs");
        assert_eq!(anchored.exceptions, ["/public/**"]);
        // Globs of the exception would be wider, and exclude paths that the expression finds.
        let classes = PathGlobs::from_regex(r"^/(?!v[0-9]+/)(?!a$).*\.sql$").expect("globs");
        assert!(classes.exceptions.is_empty());
        assert_eq!(
            classes.excepted_paths.as_deref(),
            Some("^/(?:v[0-9]+/)|^/(?:a$)")
        );
        // Other expressions match at several places of a path, and their exceptions are not kept.
        for regex in [r"/private(?!/pub)", r"^/.*/x(?!y)", r"/\.(?!a.*b)"] {
            let found = PathGlobs::from_regex(regex).expect(regex);
            let has_any = !found.exceptions.is_empty() || found.excepted_paths.is_some();
            assert!(!has_any && found.is_wider, "{regex}");
        }
    }

    #[test]
    fn inexpressible_expressions_are_refused() {
        for regex in ["(?<=a)b", "(", r"^/(a)\1", &"(a|b)".repeat(8)] {
            assert_eq!(PathGlobs::from_regex(regex), None, "{regex}");
        }
    }
}

//! Locations: their paths, their content and their order of precedence.

use super::blocks::{by_hand, location_directives};
use super::directives::is_handler;
use super::include::flat;
use super::level::Translation;
use super::settings::{AliasFolder, LevelSettings, LocationContent};
use super::tree::Directive;
use crate::common_globs::common_globs;
use crate::path_globs::PathGlobs;
use crate::report::DirectiveOutcome;
use crate::request_selector::globs_regex;

/// The order in which locations are compared with a path: by this rank, then prefixes by their length, then by place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LocationRank {
    /// `=`
    Exact,
    /// `~` in another location, or a prefix longer than one with `^~`
    Nested,
    /// `^~`
    FinalPrefix,
    /// `~` and `~*`
    Regex,
    /// A prefix.
    Prefix,
}

/// One `location`.
#[derive(Clone, Debug)]
pub struct Location {
    /// The rank.
    pub rank: LocationRank,
    /// The prefix or the path; the expression of `~`.
    pub text: String,
    /// The name of `@name`; such a location has no paths.
    pub name: Option<String>,
    /// The paths.
    pub globs: PathGlobs,
    /// The location around it: its text.
    pub outer: Option<String>,
    /// Whether case makes no difference to the expression.
    pub ignores_case: bool,
    /// The settings.
    pub settings: LevelSettings,
    /// The content.
    pub content: LocationContent,
    /// The directive in the report.
    pub entry: usize,
    /// The directive as text, for comments.
    pub comment: String,
}

impl Location {
    /// Patterns of Lowroad for its paths.
    pub fn patterns(&self) -> Vec<String> {
        self.globs.globs.iter().map(|it| self.pattern(it)).collect()
    }

    /// A glob of it as a pattern.
    pub fn pattern(&self, glob: &str) -> String {
        match self.ignores_case && glob.contains(|it: char| it.is_ascii_alphabetic()) {
            true => format!("(?i){glob}"),
            false => glob.to_string(),
        }
    }

    /// An expression for its paths, with the path without its first slash as capture.
    pub fn capturing_regex(&self) -> String {
        let regex = globs_regex(&self.globs.globs);
        match self.ignores_case {
            true => format!("(?i){regex}"),
            false => regex,
        }
    }
}

/// Reads a location and those in it. Inner locations come before the outer one.
pub fn read_location(
    translation: &mut Translation,
    directive: &Directive,
    settings: &LevelSettings,
    outer: Option<&Location>,
    locations: &mut Vec<Location>,
) {
    let mut settings = settings.clone();
    settings.access.refusal = None;
    settings.access.refusal_text.clear();
    let Some(mut location) = location_paths(directive, outer) else {
        let way = "its expression has no equal pattern; write the paths as globs";
        by_hand(translation, directive, way);
        // Which paths it protects is not known.
        if protects(directive) {
            locations.push(closed_location(directive, outer, settings));
        }
        return;
    };
    let children = flat(directive.children());
    (location.settings, location.content) = location_directives(translation, &children, settings);
    resolve_alias(&mut location, translation);
    let mut difference = String::new();
    // Fields of files have a condition with the expression.
    let has_files_only = matches!(
        &location.content,
        LocationContent {
            proxy: None,
            fastcgi: None,
            try_files: None,
            alias: None,
            has_root: false,
            ..
        }
    );
    let is_exact =
        has_files_only && !location.settings.access.is_closed() && location.exact_keys().is_some();
    if location.globs.is_wider && !is_exact {
        difference = "the globs match more paths than the expression".to_string();
    }
    translation
        .report
        .change(directive.id, DirectiveOutcome::Translated(difference));
    // Inner locations come before the outer one: the sort is stable, and nginx prefers the inner.
    for child in children.iter().filter(|it| it.name == "location") {
        read_location(
            translation,
            child,
            &location.settings,
            Some(&location),
            locations,
        );
    }
    // After the inner locations, which don't inherit the handler.
    location.settings.access.has_unknown_guard |= location.content.has_unknown_handler;
    locations.push(location);
}

/// Gives the folder of an alias to the locations inside. An alias with captures must be the one around the location.
fn resolve_alias(location: &mut Location, translation: &mut Translation) {
    if location.content.has_root {
        location.settings.alias = None;
    }
    let Some(alias) = location.content.alias.clone() else {
        return;
    };
    if !alias.value.contains('$') {
        location.settings.alias = Some(AliasFolder {
            path: location.text.clone(),
            folder: alias.value,
        });
        return;
    }
    location.content.alias = None;
    let outer = location.settings.alias.as_ref();
    if !outer.is_some_and(|it| has_same_files(it, &location.text, &alias.value)) {
        // Files of the root, or of the outer alias, are others.
        location.content.has_unknown_handler = true;
        let way = "the paths are refused until then: an alias has no captures, so rewrite to a path in one [[site.alias]]";
        let outcome = DirectiveOutcome::ByHand(way.to_string());
        translation.report.change(alias.entry, outcome);
    }
}

/// Whether `alias /folder/$1` of the expression `^/path/(…)$` names the files of an alias of `/path/`.
fn has_same_files(outer: &AliasFolder, regex: &str, alias: &str) -> bool {
    let rest = regex.strip_prefix('^').and_then(|it| {
        let path = it.replace("\\/", "/");
        path.strip_prefix(&*outer.path).map(str::to_string)
    });
    let is_whole = rest.and_then(|it| it.strip_suffix('$').map(is_one_group));
    is_whole == Some(true) && alias.strip_suffix("$1") == Some(&*outer.folder)
}

/// Whether the first group of an expression is all of it.
fn is_one_group(regex: &str) -> bool {
    let mut depth = 0_usize;
    let mut is_escaped = false;
    for (index, byte) in regex.bytes().enumerate() {
        match byte {
            _ if is_escaped => {}
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        is_escaped = byte == b'\\' && !is_escaped;
        // The group ends here.
        if depth == 0 {
            return index + 1 == regex.len() && regex.len() > 1;
        }
    }
    false
}

/// Rank and paths of a location, without its settings and content.
fn location_paths(directive: &Directive, outer: Option<&Location>) -> Option<Location> {
    let (modifier, text) = match directive.args.len() {
        0 => return None,
        1 => split_modifier(directive.arg(0)),
        _ => (directive.arg(0), directive.arg(1)),
    };
    let mut name = None;
    let mut ignores_case = modifier == "~*" || text.contains("(?i)");
    let (rank, globs) = match modifier {
        "=" => (LocationRank::Exact, PathGlobs::literal(text)),
        "^~" => (LocationRank::FinalPrefix, PathGlobs::prefix(text)),
        "~" | "~*" => {
            let globs = PathGlobs::from_regex(text)?;
            match outer {
                Some(outer) => {
                    ignores_case |= outer.ignores_case;
                    let globs = match ignores_case {
                        true => (globs.to_lowercase(), outer.globs.to_lowercase()),
                        false => (globs, outer.globs.clone()),
                    };
                    let rank = match outer.is_regex() {
                        true => outer.rank,
                        false => LocationRank::Nested,
                    };
                    (rank, within(globs.0, &globs.1))
                }
                None => (LocationRank::Regex, globs),
            }
        }
        _ if text.starts_with('@') => {
            name = Some(text.to_string());
            (LocationRank::Prefix, PathGlobs::default())
        }
        _ => match outer {
            // `^~` of the outer location also keeps other expressions from taking these paths.
            Some(outer) if outer.rank == LocationRank::FinalPrefix => {
                (LocationRank::FinalPrefix, PathGlobs::prefix(text))
            }
            _ => (LocationRank::Prefix, PathGlobs::prefix(text)),
        },
    };
    Some(Location {
        rank,
        text: text.to_string(),
        name,
        globs,
        outer: outer.map(|it| it.text.clone()),
        ignores_case,
        settings: LevelSettings::default(),
        content: LocationContent::default(),
        entry: directive.id,
        comment: directive.to_text(),
    })
}

/// The globs of an expression inside of another location, which must have the path, too.
fn within(globs: PathGlobs, outer: &PathGlobs) -> PathGlobs {
    let mut common = common_globs(&globs, outer);
    common.exceptions = [&*globs.exceptions, &*outer.exceptions].concat();
    let excepted = [globs.excepted_paths, outer.excepted_paths.clone()];
    let excepted: Vec<String> = excepted.into_iter().flatten().collect();
    common.excepted_paths = (!excepted.is_empty()).then(|| excepted.join("|"));
    common
}

/// Whether a block restricts access, or has scripts with a source that no client may get.
fn protects(block: &Directive) -> bool {
    let is_guard = |it: &Directive| {
        let front = ["auth_", "access_by_", "rewrite_by_", "limit_except"];
        matches!(&*it.name, "deny" | "return" | "internal" | "if")
            || is_handler(it)
            || front.iter().any(|front| it.name.starts_with(front))
    };
    let children = flat(block.children());
    children.iter().any(|it| is_guard(it) || protects(it))
}

/// A location in place of one with unknown paths, which refuses those of the outer block.
fn closed_location(
    directive: &Directive,
    outer: Option<&Location>,
    mut settings: LevelSettings,
) -> Location {
    settings.access.has_unknown_guard = true;
    Location {
        rank: match outer {
            // Before the inner locations that follow.
            Some(outer) if !outer.is_regex() => LocationRank::Nested,
            _ => outer.map_or(LocationRank::Regex, |it| it.rank),
        },
        text: directive.args.join(" "),
        name: None,
        globs: outer.map_or_else(|| PathGlobs::prefix("/"), |it| it.globs.clone()),
        outer: outer.map(|it| it.text.clone()),
        ignores_case: outer.is_some_and(|it| it.ignores_case),
        settings,
        content: LocationContent::default(),
        entry: directive.id,
        comment: directive.to_text(),
    }
}

/// `location =/path` and `location ~\.php$` have their modifier in the same word.
fn split_modifier(text: &str) -> (&str, &str) {
    // `~*` comes before `~`, with which it begins.
    for modifier in ["^~", "~*", "~", "="] {
        if let Some(rest) = text.strip_prefix(modifier) {
            return (modifier, rest);
        }
    }
    ("", text)
}

/// Sorts locations by precedence; expressions keep their order.
pub fn sort_locations(locations: &mut [Location]) {
    // A longer prefix has precedence over a shorter one with `^~`.
    let finals: Vec<String> = locations
        .iter()
        .filter(|it| it.rank == LocationRank::FinalPrefix)
        .map(|it| it.text.clone())
        .collect();
    for location in locations
        .iter_mut()
        .filter(|it| it.rank == LocationRank::Prefix)
    {
        if finals
            .iter()
            .any(|text| location.text.starts_with(&**text) && location.text != *text)
        {
            location.rank = LocationRank::Nested;
        }
    }
    let key = |location: &Location| {
        let len = match location.rank {
            LocationRank::Regex | LocationRank::Nested => 0,
            _ => location.text.len(),
        };
        (location.rank, std::cmp::Reverse(len))
    };
    locations.sort_by_key(key);
}

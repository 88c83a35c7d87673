//! Files: the root, aliases, and rewrites to aliases that no route takes.

use super::SitePlan;
use crate::caddy::plan::{AnswerStage, FilesAction, SiteStep, StepAction};
use crate::document::{ConfigDocument, ConfigTable};
use crate::request_selector::RequestSelector;
use crate::toml_values::quoted;

/// The place of the files of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FilePlace {
    /// In the root.
    Root,
    /// In a folder for a path.
    Alias { path: String, folder: String },
    /// In an alias that clients can't request; a rewrite leads there.
    Hidden { path: String, folder: String },
}

/// The places of all files of a site.
pub struct FilePlaces {
    /// The root; none without files and scripts.
    pub root: Option<String>,
    places: Vec<(usize, FilePlace)>,
}

impl FilePlaces {
    /// Plans the files of a site.
    pub fn new(plan: &SitePlan<'_>) -> FilePlaces {
        let mut places = FilePlaces {
            root: site_root(plan),
            places: Vec::new(),
        };
        for (index, step) in plan.steps.iter().enumerate() {
            match &step.action {
                StepAction::Files(files) => {
                    let place = places.place(plan, index, files);
                    places.places.push((index, place));
                }
                // Scripts of another folder are found in an alias.
                StepAction::Program(program) => {
                    let folder = program
                        .root
                        .clone()
                        .filter(|it| Some(it) != places.root.as_ref());
                    let path = prefix_of(&step.selector);
                    if let (Some(folder), Some(path)) = (folder, path) {
                        let folder = match program.strip.is_empty() {
                            true => format!("{folder}{path}"),
                            false => folder,
                        };
                        places
                            .places
                            .push((index, FilePlace::Alias { path, folder }));
                    }
                }
                _ => {}
            }
        }
        places
    }

    fn place(&self, plan: &SitePlan<'_>, index: usize, files: &FilesAction) -> FilePlace {
        let step = &plan.steps[index];
        let folder = files.root.clone().unwrap_or_default();
        // Files of a removed prefix are at another path than in the root.
        let is_in_root = Some(&folder) == self.root.as_ref() && files.strip.is_empty();
        let is_shadowed = is_shadowed(plan, index, step) && !files.is_optional;
        if is_in_root && !is_shadowed {
            return FilePlace::Root;
        }
        // One folder for one prefix is an alias that clients may request.
        match prefix_of(&step.selector).filter(|_| !is_shadowed && step.selector.is_by_path()) {
            Some(path) if files.strip.is_empty() => FilePlace::Alias {
                folder: format!("{folder}{path}"),
                path,
            },
            Some(path) if path == files.strip => FilePlace::Alias { path, folder },
            _ => FilePlace::Hidden {
                path: format!("/files-{}", index + 1),
                folder,
            },
        }
    }

    /// Whether the files after a step (`try_files`) are at the path that clients request.
    pub fn is_in_place(&self, plan: &SitePlan<'_>, index: usize) -> bool {
        !matches!(
            self.place_after(plan, index),
            Some(FilePlace::Hidden { .. })
        )
    }

    /// The pattern of the hidden alias of a step.
    pub fn hidden_pattern(&self, index: usize) -> Option<String> {
        let mut places = self.places.iter().filter(|(step, _)| *step == index);
        places.find_map(|(_, place)| match place {
            FilePlace::Hidden { path, .. } => Some(format!("{path}/**")),
            _ => None,
        })
    }

    /// The place of the next files with the requests of a step.
    fn place_after(&self, plan: &SitePlan<'_>, index: usize) -> Option<&FilePlace> {
        let selector = &plan.steps[index].selector;
        let mut places = self.places.iter();
        let found = places.find(|(it, _)| *it > index && plan.steps[*it].selector == *selector);
        found.map(|(_, place)| place)
    }

    /// Writes the fallback of files in a hidden alias.
    pub fn write_fallback(
        &self,
        plan: &SitePlan<'_>,
        index: usize,
        target: &str,
        document: &mut ConfigDocument,
    ) {
        if let Some(FilePlace::Hidden { path, .. }) = self.place_after(plan, index) {
            let table = ConfigTable::new("[[site.rewrite]]").entry(plan.steps[index].entry);
            let table = table.key("from", quoted(&format!("{path}/**")));
            let table = table.key("to", quoted(&format!("{path}{target}")));
            document.push(table.key("missing", "true"));
        }
    }

    /// Writes the aliases.
    pub fn write_aliases(&self, plan: &SitePlan<'_>, document: &mut ConfigDocument) {
        let mut written: Vec<&FilePlace> = Vec::new();
        for (index, place) in &self.places {
            let (path, folder, is_hidden) = match place {
                FilePlace::Root => continue,
                FilePlace::Alias { path, folder } => (path, folder, false),
                FilePlace::Hidden { path, folder } => (path, folder, true),
            };
            // Several steps may share a folder.
            if written.contains(&place) {
                continue;
            }
            written.push(place);
            let mut table = ConfigTable::new("[[site.alias]]").entry(plan.steps[*index].entry);
            // Only rewrites lead to it.
            if is_hidden {
                table = table.comment("The rewrite below leads here, before any route.");
            }
            table = table
                .key("path", quoted(path))
                .key("folder", quoted(folder));
            if is_hidden {
                table = table.key("internal", "true");
            }
            document.push(table);
        }
    }

    /// Writes the rewrites to hidden aliases.
    pub fn write_rewrites(&self, plan: &SitePlan<'_>, document: &mut ConfigDocument) {
        for (index, place) in &self.places {
            let step = &plan.steps[*index];
            let (FilePlace::Hidden { path, .. }, StepAction::Files(files)) = (place, &step.action)
            else {
                continue;
            };
            // Routes and files with precedence keep their requests.
            let mut selector = step.selector.clone();
            let is_first = |it: &&SiteStep| {
                it.action.answers_all() && it.action.stage() >= Some(AnswerStage::Route)
            };
            for other in plan.steps[..*index].iter().filter(is_first) {
                selector = selector.without(&other.selector).unwrap_or(selector);
            }
            for pattern in selector.patterns_or_all() {
                let front = pattern.trim_end_matches("**");
                let kept = front.strip_prefix(&*files.strip).unwrap_or(front);
                let table = ConfigTable::new("[[site.rewrite]]").entry(step.entry);
                // Only a wildcard at the end is a capture.
                let is_prefix = pattern.ends_with("/**") && !front.contains('*');
                let table = match is_prefix || !pattern.contains('*') {
                    true if is_prefix => table
                        .key("from", quoted(&pattern))
                        .key("to", quoted(&format!("{path}{kept}$1"))),
                    true => table
                        .key("from", quoted(&pattern))
                        .key("to", quoted(&format!("{path}{kept}"))),
                    false => {
                        let only = RequestSelector::paths(vec![pattern.clone()]);
                        let expression =
                            crate::request_selector::path_capture(&only.patterns[0], &files.strip);
                        table
                            .key("regex", quoted(&expression))
                            .key("to", quoted(&format!("{path}/$1")))
                    }
                };
                document.push(selector.write_conditions(table));
            }
        }
    }
}

/// The folder of a selector of one prefix.
fn prefix_of(selector: &RequestSelector) -> Option<String> {
    match &selector.patterns[..] {
        [pattern] => {
            let front = pattern.strip_suffix("/**")?;
            (!front.is_empty() && !front.contains('*')).then(|| front.to_string())
        }
        _ => None,
    }
}

/// The root of a site: that of the files or scripts for all paths, else of others.
fn site_root(plan: &SitePlan<'_>) -> Option<String> {
    let roots = plan.steps.iter().filter_map(|step| {
        let (root, strip) = match &step.action {
            StepAction::Files(files) => (files.root.clone()?, &files.strip),
            StepAction::Program(program) => (program.root.clone()?, &program.strip),
            _ => return None,
        };
        Some((step.selector.patterns.is_empty(), strip.is_empty(), root))
    });
    let roots: Vec<(bool, bool, String)> = roots.collect();
    // The last catch-all is the one without a block before it.
    let whole = roots.iter().rev().find(|(is_whole, ..)| *is_whole);
    let unstripped = roots.iter().find(|(_, is_unstripped, _)| *is_unstripped);
    whole
        .or(unstripped)
        .or(roots.first())
        .map(|(.., root)| root.clone())
}

/// Whether a route takes paths of files: one that comes later in Caddy, or one that has conditions, since all paths of
/// a route are never files.
fn is_shadowed(plan: &SitePlan<'_>, index: usize, step: &SiteStep) -> bool {
    let mut others = plan.steps.iter().enumerate();
    others.any(|(other, route)| {
        route.action.answers_all_at(AnswerStage::Route)
            && route.selector.overlaps(&step.selector)
            && (other > index || !has_whole_route(plan, index, &route.selector))
    })
}

/// Whether a route before these files takes all requests for the paths of a selector.
fn has_whole_route(plan: &SitePlan<'_>, index: usize, selector: &RequestSelector) -> bool {
    let mut routes = plan.steps[..index]
        .iter()
        .filter(|it| it.action.answers_all_at(AnswerStage::Route));
    routes.any(|it| it.selector.is_by_path() && it.selector.patterns == selector.patterns)
}

//! The plan of a site: its root, and the folders of the files of its locations.

use super::access::has_path;
use super::located_change::ALL_PATHS;
use super::path_infos::{ScriptPaths, script_paths};
use crate::nginx::level::Translation;
use crate::nginx::locations::{Location, LocationRank};
use crate::nginx::servers::Server;
use crate::nginx::settings::PathChange;
use crate::path_globs::PathGlobs;
use crate::path_overlap::shares_paths;
use crate::report::DirectiveOutcome;

/// Where the files of a location are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilePlace {
    /// In the root of the site.
    Root,
    /// In a folder for a path: an alias.
    Alias {
        /// The path.
        path: String,
        /// The folder.
        folder: String,
    },
    /// Routes would take the path: a rewrite leads to an alias that clients can't request.
    Hidden {
        /// The path of the alias.
        path: String,
        /// The folder.
        folder: String,
        /// The part of the requested path that is omitted.
        prefix: String,
    },
}

/// The decisions about a site that several tables depend on.
pub struct SiteLayout {
    /// The root.
    pub root: Option<String>,
    /// The place of each location's files; none if a handler answers.
    pub places: Vec<Option<FilePlace>>,
    /// Paths behind the names of scripts that other locations answer.
    pub path_infos: Vec<ScriptPaths>,
}

impl SiteLayout {
    /// Plans a site.
    pub fn new(server: &Server, default_root: &str, translation: &Translation) -> SiteLayout {
        let mut layout = SiteLayout {
            root: None,
            places: vec![None; server.locations.len()],
            path_infos: script_paths(server),
        };
        layout.root = site_root(server, default_root);
        for (index, location) in server.locations.iter().enumerate() {
            let root = location.settings.root.as_deref().unwrap_or(default_root);
            let is_in_root = layout.root.as_deref() == Some(root);
            // Without its folder, an alias would keep the server from starting, and nginx has its built-in page.
            let is_in_root = is_in_root || translation.lacks_folder(root);
            if is_in_root && is_error_page(server, location) {
                layout.places[index] = Some(FilePlace::Root);
            } else if is_static(location) {
                layout.places[index] = Some(layout.place(server, index, location, default_root));
            }
        }
        layout
    }

    /// The value of `listing`. The key is one for the site, so it is only set if each location with folders lists them.
    pub fn listing(&self, server: &Server, translation: &mut Translation) -> Option<&'static str> {
        let may_have_folders = |globs: &PathGlobs| {
            let mut globs = globs.globs.iter();
            globs.any(|glob| glob.ends_with(['*', '/']))
        };
        let locations = server.locations.iter().zip(&self.places);
        let listings: Vec<Option<usize>> = locations
            .filter(|(location, place)| place.is_some() && may_have_folders(&location.globs))
            .map(|(location, _)| location.settings.listing)
            .collect();
        if listings.iter().all(Option::is_some) {
            return (!listings.is_empty()).then_some("true");
        }
        for entry in listings.into_iter().flatten() {
            let way = "no folders are listed, since `listing` would list those of other locations: write a site for these paths";
            let outcome = DirectiveOutcome::ByHand(way.to_string());
            translation.report.change(entry, outcome);
        }
        None
    }

    /// Reports the bandwidths of locations with files: sites and routes have the key.
    pub fn report_bandwidths(&self, server: &Server, translation: &mut Translation) {
        let site = server.settings.bandwidth_keys();
        for (location, place) in server.locations.iter().zip(&self.places) {
            let keys = location.settings.bandwidth_keys();
            let own = location.settings.bandwidth.as_ref();
            if let (true, Some(own)) = (place.is_some() && keys != site, own) {
                let way =
                    "files have the `rate` of their site: write a [[site.rule]] with this one";
                let outcome = DirectiveOutcome::ByHand(way.to_string());
                translation.report.change(own.entry, outcome);
            }
        }
    }

    /// Reports folders that are not there: the server does not start without them.
    pub fn report_missing_folders(&self, server: &Server, translation: &mut Translation) {
        let aliases = server.locations.iter().zip(&self.places);
        let aliases = aliases.filter_map(|(location, place)| match place {
            Some(FilePlace::Alias { folder, .. } | FilePlace::Hidden { folder, .. }) => {
                Some((location.entry, folder))
            }
            _ => None,
        });
        let root = self.root.iter().map(|root| (server.entry, root));
        for (entry, folder) in root.chain(aliases) {
            if translation.lacks_folder(folder) {
                let difference = format!("{folder} must exist when the server starts");
                translation.report.note_difference(entry, &difference);
            }
        }
    }

    /// Whether a handler answers the requests of a location.
    pub fn is_handled(&self, index: usize) -> bool {
        self.places[index].is_none()
    }

    /// The path of an error page in the site. The file may be in the folder of an internal alias.
    pub fn page_path(&self, server: &Server, target: &str) -> String {
        let mut locations = server.locations.iter().zip(&self.places);
        let place =
            locations.find(|(location, _)| location.name.is_none() && has_path(location, target));
        match place {
            // The page is read from the folder, not by the rewrite of the location.
            Some((location, Some(FilePlace::Hidden { path, prefix, .. }))) => {
                let rest = target.strip_prefix(prefix.trim_end_matches('/'));
                location.tried_path(path, rest.unwrap_or(target))
            }
            _ => target.to_string(),
        }
    }

    /// The globs of a location for tables that apply after rewrites.
    pub fn globs_of(&self, index: usize, location: &Location) -> PathGlobs {
        match &self.places[index] {
            Some(FilePlace::Hidden { path, .. }) => PathGlobs::prefix(&format!("{path}/")),
            _ if location.content.fastcgi.is_some() => with_path_infos(&location.globs),
            _ => location.globs.clone(),
        }
    }

    fn place(
        &self,
        server: &Server,
        index: usize,
        location: &Location,
        default_root: &str,
    ) -> FilePlace {
        let is_prefix =
            location.name.is_none() && location.globs == PathGlobs::prefix(&location.text);
        let root = location
            .settings
            .root
            .clone()
            .unwrap_or_else(|| default_root.to_string());
        let (folder, prefix) = match &location.content.alias {
            Some(alias) => (alias_folder(location, &alias.value), location.text.clone()),
            None => (root.clone(), String::new()),
        };
        let is_in_root = location.content.alias.is_none() && Some(&root) == self.root.as_ref();
        // Routes come before files, so even one of lower precedence would take these paths.
        let is_shadowed = server.locations[index + 1..]
            .iter()
            .any(|lower| takes_all(lower) && shares_paths(&location.globs, &lower.globs));
        let is_internal = location.content.is_internal;
        let keeps_files = location.keeps_files() || location.content.first_file.is_some();
        if is_in_root && !is_shadowed && !is_internal && !keeps_files {
            return FilePlace::Root;
        }
        let path = location.text.trim_end_matches('/').to_string();
        // No route takes the paths of an internal alias.
        if is_prefix && (!is_shadowed || is_internal) && !path.is_empty() && !keeps_files {
            let folder = match location.content.alias {
                Some(_) => folder,
                None => format!("{}{path}", root.trim_end_matches('/')),
            };
            return FilePlace::Alias { path, folder };
        }
        FilePlace::Hidden {
            path: format!("/files-{}", index + 1),
            folder,
            prefix: if is_prefix || location.rank == LocationRank::Exact {
                prefix
            } else {
                String::new()
            },
        }
    }
}

/// The folder of an alias, which is the file itself in an exact location.
fn alias_folder(location: &Location, alias: &str) -> String {
    let file = alias
        .rsplit_once('/')
        .filter(|_| location.rank == LocationRank::Exact);
    match file {
        Some((folder, _)) => format!("{folder}/"),
        None => alias.to_string(),
    }
}

/// Globs of scripts, also with a path after their names, which routes match anyway.
fn with_path_infos(globs: &PathGlobs) -> PathGlobs {
    let names = globs.globs.iter().filter_map(|it| it.strip_prefix('*'));
    let below = names.map(|name| format!("/**{name}/**"));
    PathGlobs {
        globs: globs.globs.iter().cloned().chain(below).collect(),
        ..globs.clone()
    }
}

/// Whether a route takes all paths of a location, also those of files.
pub fn takes_all(location: &Location) -> bool {
    let is_route = location.content.proxy.is_some() || location.content.fastcgi.is_some();
    is_route && location.name.is_none() && !location.content.is_missing && !is_script(location)
}

/// Whether a location answers paths without a file.
pub fn answers_missing_files(location: &Location) -> bool {
    let last = location
        .content
        .try_files
        .as_ref()
        .and_then(|it| it.value.last());
    takes_all(location)
        || location.content.is_missing
        || last.is_some_and(|last| !last.starts_with('='))
}

/// Whether a location is for scripts, by their extension.
fn is_script(location: &Location) -> bool {
    location
        .globs
        .globs
        .iter()
        .all(|glob| glob.ends_with(".php"))
}

/// Whether a location is only for an error page, which is a file of the root.
pub fn is_error_page(server: &Server, location: &Location) -> bool {
    // A folder has other files, too.
    let has_folder = location.globs.globs.iter().any(|it| it.contains('*'));
    let is_special = location.rank == LocationRank::Exact || location.content.is_internal;
    let is_special = is_special && !has_folder;
    is_special
        && is_static(location)
        && server
            .settings
            .error_pages
            .iter()
            .any(|page| has_path(location, &page.value.1))
}

/// Whether a location sends files.
pub fn is_static(location: &Location) -> bool {
    let content = &location.content;
    location.name.is_none()
        && !content.is_other
        && !content.changes.iter().any(takes_all_paths)
        && content.redirect.is_none()
        && !location.settings.access.is_closed()
        && (content.is_missing || (content.proxy.is_none() && content.fastcgi.is_none()))
}

/// Whether a rewrite leads all paths of its location elsewhere.
fn takes_all_paths(change: &PathChange) -> bool {
    let is_rewrite = change.status.is_none() && !change.stays && !change.is_missing;
    is_rewrite && change.regex == ALL_PATHS && change.conditions.is_empty()
}

/// The root: that of the location `/` if it serves files, else the server's.
pub fn site_root(server: &Server, default_root: &str) -> Option<String> {
    let slash = server
        .locations
        .iter()
        .find(|it| it.text == "/" && it.rank >= LocationRank::FinalPrefix);
    let of_slash = slash
        .filter(|it| is_static(it))
        .and_then(|it| it.settings.root.clone());
    let with_root = || {
        server
            .locations
            .iter()
            .find(|it| it.content.has_root && is_static(it))
            .and_then(|it| it.settings.root.clone())
    };
    let root = of_slash
        .or_else(|| server.settings.root.clone())
        .or_else(with_root);
    // Routes may take everything; otherwise files are in nginx' default folder.
    let is_complete = server
        .locations
        .iter()
        .any(|it| takes_all(it) && it.globs.globs.iter().any(|glob| glob == "/**"));
    let needs_root = !is_complete && server.content.redirect.is_none();
    root.or_else(|| needs_root.then(|| default_root.to_string()))
}

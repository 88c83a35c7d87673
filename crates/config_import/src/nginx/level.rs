//! A block in translation: its settings, and the state that its directives may change.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};

use super::settings::{LevelSettings, LocationContent, RateSetting};
use super::tree::Directive;
use crate::document::ConfigTable;
use crate::nginx::maps;
use crate::report::{DirectiveOutcome, ImportReport};
use crate::request_text::RequestText;

/// The longest text with the values of variables.
const TEXT_LEN_MAX: usize = 64 << 10;

/// A server of an upstream.
#[derive(Clone, Debug)]
pub struct UpstreamServer {
    /// `HOST:PORT` or `unix:PATH`
    pub address: String,
    /// Other keys of the server's table.
    pub keys: Vec<(&'static str, String)>,
}

/// One `upstream`.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    /// Its servers.
    pub servers: Vec<UpstreamServer>,
    /// Keys of `[[origin]]`: `balance`, `hash`, `connections`.
    pub keys: BTreeMap<&'static str, String>,
}

impl Upstream {
    /// Whether a server has a name instead of an address.
    pub fn has_name(&self) -> bool {
        let mut addresses = self.servers.iter().map(|server| &server.address);
        addresses.any(|it| !it.starts_with("unix:") && !is_ip_address(it))
    }
}

/// Whether a text is an IP address, possibly in brackets or with a port.
pub fn is_ip_address(text: &str) -> bool {
    let host = text.trim_start_matches('[').trim_end_matches(']');
    host.parse::<IpAddr>().is_ok() || text.parse::<SocketAddr>().is_ok()
}

/// Definitions of the whole configuration, which any block may use.
#[derive(Clone, Debug, Default)]
pub struct Definitions {
    /// `upstream` by name.
    pub upstreams: BTreeMap<String, Upstream>,
    /// `log_format` by name: text, and whether it is JSON.
    pub log_formats: BTreeMap<String, (String, bool)>,
    /// `map` by its variable: the source and the pairs.
    pub maps: BTreeMap<String, (String, Vec<(String, String)>)>,
    /// The maps that are written as tables.
    pub map_tables: BTreeMap<String, ConfigTable>,
    /// The names of those tables that lack entries.
    pub incomplete_maps: BTreeSet<String>,
    /// The names of these maps that are used.
    pub used_maps: BTreeSet<String>,
    /// `limit_req_zone` by name.
    pub rate_zones: BTreeMap<String, RateSetting>,
    /// `limit_conn_zone` by name, those of addresses only.
    pub connection_zones: HashSet<String>,
    /// The extensions of media types, of `types` and `mime.types`.
    pub extensions: BTreeMap<String, Vec<String>>,
    /// Keys of tables of the process: `("server", "workers")`.
    pub process_keys: BTreeMap<(&'static str, &'static str), ProcessKey>,
}

/// A key of `[server]`, `[limits]`, `[log]` or `[buffering]`.
#[derive(Clone, Debug)]
pub struct ProcessKey {
    /// The value, in TOML.
    pub value: String,
    /// The directive.
    pub entry: usize,
}

/// The state of a translation.
#[derive(Default)]
pub struct Translation {
    /// The outcomes.
    pub report: ImportReport,
    /// Definitions.
    pub definitions: Definitions,
    /// The folder of relative paths of certificates and password files: that of the configuration.
    pub prefix: std::path::PathBuf,
    /// The folder of relative roots, which nginx calls prefix.
    pub root_prefix: std::path::PathBuf,
    /// Whether files may be accessed, as those of the configuration are.
    pub reads_files: bool,
}

impl Translation {
    /// A root or alias, relative to the folder of roots.
    pub fn root_path(&self, path: &str) -> String {
        self.root_prefix.join(path).to_string_lossy().into_owned()
    }

    /// Whether a folder of the configuration is not on this machine, as far as that may be examined.
    pub fn lacks_folder(&self, path: &str) -> bool {
        self.reads_files && !path.contains('{') && !std::path::Path::new(path).is_dir()
    }
}

/// A block in translation.
pub struct Level<'t> {
    /// The state of the translation.
    pub translation: &'t mut Translation,
    /// Its settings, at first those of the block around it.
    pub settings: LevelSettings,
    /// Its content.
    pub content: LocationContent,
    /// Whether the block is a location, not a server.
    pub is_location: bool,
    /// Arrays to which the block adds an entry.
    own_arrays: HashSet<&'static str>,
}

impl<'t> Level<'t> {
    /// A block that inherits settings.
    pub fn new(translation: &'t mut Translation, settings: LevelSettings) -> Level<'t> {
        Level {
            translation,
            settings,
            content: LocationContent::default(),
            is_location: false,
            own_arrays: HashSet::new(),
        }
    }

    /// Whether this is the block's first entry of an array, so that inherited ones must be removed.
    pub fn begins_array(&mut self, name: &'static str) -> bool {
        self.own_arrays.insert(name)
    }

    /// The definitions.
    pub fn definitions(&mut self) -> &mut Definitions {
        &mut self.translation.definitions
    }

    /// Sets a key of the process; of several directives for a size the caller takes the largest.
    pub fn set_process_key(
        &mut self,
        table: &'static str,
        key: &'static str,
        value: String,
        directive: &Directive,
    ) {
        let process_key = ProcessKey {
            value,
            entry: directive.id,
        };
        self.definitions()
            .process_keys
            .insert((table, key), process_key);
    }

    /// A path, relative to the prefix of nginx.
    pub fn absolute_path(&self, path: &str) -> String {
        self.translation
            .prefix
            .join(path)
            .to_string_lossy()
            .into_owned()
    }

    /// A root or alias, relative to the folder of roots.
    pub fn root_path(&self, path: &str) -> String {
        self.translation.root_path(path)
    }

    /// Replaces variables of `set` in a text by their values, which have no such variables themselves.
    pub fn substitute(&self, text: &str) -> String {
        let variables = &self.settings.variables;
        let mut result = String::new();
        let mut rest = text;
        while let Some(start) = rest.find('$') {
            let (before, reference) = rest.split_at(start);
            let (name, len) = variable_reference(reference);
            result.push_str(before);
            result.push_str(
                variables
                    .get(name)
                    .map_or(&reference[..len], String::as_str),
            );
            rest = &reference[len..];
            // The text keeps its variables, so that it is left to do by hand.
            if result.len() > TEXT_LEN_MAX {
                return text.to_string();
            }
        }
        result.push_str(rest);
        result
    }

    /// A text with variables of requests; `None` if one has no equivalent. The maps in it are written.
    pub fn request_text(&mut self, text: &str) -> Option<RequestText> {
        let definitions = &mut self.translation.definitions;
        let tables = &definitions.map_tables;
        let found = maps::request_text(text, &|name| tables.contains_key(name))?;
        definitions
            .used_maps
            .extend(found.maps().map(str::to_string));
        Some(found)
    }

    /// Whether a text is the variable of a map that is written as a table.
    pub fn is_map(&self, text: &str) -> bool {
        let name = text.strip_prefix('$');
        name.is_some_and(|name| self.translation.definitions.map_tables.contains_key(name))
    }

    /// Records an outcome.
    pub fn record(&mut self, directive: &Directive, outcome: DirectiveOutcome) {
        self.translation.report.change(directive.id, outcome);
    }
}

/// The name at the start of `$name` or `${name}`, and the length of all.
fn variable_reference(text: &str) -> (&str, usize) {
    let rest = &text[1..];
    if let Some(braced) = rest.strip_prefix('{') {
        let end = braced.find('}');
        return end.map_or(("", 1), |end| (&braced[..end], end + 3));
    }
    let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let len = rest.find(|it: char| !is_name(it)).unwrap_or(rest.len());
    (&rest[..len], len + 1)
}

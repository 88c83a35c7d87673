//! Maps: tables from a text with variables to a text, as nginx's `map`.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use crate::map_entries::MapEntries;
use crate::template::{Template, TemplateInput};
use crate::variable::Dependence;

/// A map, which is the variable `$map_NAME`.
pub struct ValueMap {
    /// The name.
    pub name: String,
    /// The text that is looked up.
    pub from: Template,
    /// The value without a matching entry.
    pub default: String,
    /// The entries of the configuration; they precede those of the file.
    pub entries: MapEntries,
    /// The file with further entries.
    pub file: Option<MapFile>,
}

/// The file of a map, with the entries that were read last.
pub struct MapFile {
    /// The path.
    pub path: PathBuf,
    /// Whether keys are compared without regard to ASCII case.
    pub ignores_case: bool,
    entries: RwLock<Arc<FileEntries>>,
}

/// The entries of a file, with a hash of the bytes from which they were read.
#[derive(Default)]
pub struct FileEntries {
    /// The entries.
    pub entries: MapEntries,
    /// Tells the bytes from those of a changed file, without a comparison of the entries.
    pub content_hash: u64,
}

/// A map as a part of a template.
#[derive(Clone)]
pub struct MapReference(pub Arc<ValueMap>);

impl ValueMap {
    /// The value for a request.
    pub fn value(&self, input: TemplateInput<'_>) -> String {
        // Most texts are hosts and paths, for which this is enough.
        let mut text = Vec::with_capacity(64);
        self.from.write_plain(input, &mut text);
        if let Some(value) = self.entries.find(&text) {
            return value.to_owned();
        }
        // The clone of the `Arc` keeps the entries while another thread replaces them.
        let file = self.file.as_ref().map(MapFile::entries);
        let value = file.as_ref().and_then(|file| file.entries.find(&text));
        value.unwrap_or(&self.default).to_owned()
    }

    /// The parts of a request on which the value depends, other than the cache key.
    pub fn dependences(&self) -> impl Iterator<Item = Dependence<'_>> {
        let file = self.file.as_ref().map(|_| Dependence::File);
        // No loop: `from` contains no maps.
        let variables = self.from.variables().map(|it| it.dependence());
        variables.chain(file)
    }
}

impl MapFile {
    /// A file with these entries.
    pub fn new(path: PathBuf, ignores_case: bool, entries: FileEntries) -> MapFile {
        MapFile {
            path,
            ignores_case,
            entries: RwLock::new(Arc::new(entries)),
        }
    }

    /// The current entries.
    pub fn entries(&self) -> Arc<FileEntries> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.clone()
    }

    /// Replaces the entries.
    pub fn replace(&self, entries: FileEntries) {
        let entries = Arc::new(entries);
        let mut current = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        // The old entries are dropped after the lock, which workers need.
        let old = std::mem::replace(&mut *current, entries);
        drop(current);
        drop(old);
    }
}

impl PartialEq for ValueMap {
    fn eq(&self, other: &ValueMap) -> bool {
        let path = |it: &ValueMap| it.file.as_ref().map(|file| file.path.clone());
        self.name == other.name
            && self.from == other.from
            && self.default == other.default
            && self.entries == other.entries
            && path(self) == path(other)
    }
}

impl Eq for ValueMap {}

impl fmt::Debug for ValueMap {
    /// The definition, without the content of the file, on which no stored response depends. Fingerprints of sites
    /// depend on this output.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.file.as_ref().map(|file| &file.path);
        let (from, default, entries) = (&self.from, &self.default, &self.entries);
        write!(
            f,
            "Map({:?} {from:?} {default:?} {entries:?} {path:?})",
            self.name
        )
    }
}

impl PartialEq for MapReference {
    fn eq(&self, other: &MapReference) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for MapReference {}

impl Hash for MapReference {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl fmt::Debug for MapReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

//! The file loader: builds the object for a path from the file system. Blocks, so it runs on a helper thread.

mod encodings;
mod representation;

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lowroad_config::EntityTags;
use lowroad_engine::file::{OpenFile, digest_bytes};
use lowroad_file_stamp::FileStamp;
use lowroad_http::content_coding::{CodingSet, ContentCoding};
use lowroad_http::status::StatusCode;
use lowroad_site_rules::{FolderPath, SiteRules};
use lowroad_store::change_feed::ChangeFeed;
use lowroad_store::clock;
use lowroad_store::object::{ObjectKind, SourceFiles};
use lowroad_store::placement::PlacementError;
use lowroad_store::watch::{FolderWatcher, WatchTrust};
use lowroad_store::{ObjectArc, SharedStore, StoredObject};

use self::representation::{
    NewRepresentation, RepresentationInfo, empty_object, is_storable, refused_object,
};
use crate::etag::{self, ContentDigests};
use crate::file_headers::HeadFacts;
use crate::folder::{self, PathTarget, SiteFolder};
use crate::{listing, mime};

/// The maximum number of attempts to read a file that changes during the read.
const READ_ATTEMPTS_MAX: usize = 3;
/// Modification times up to this one are nominal: ZIP archives and reproducible builds use 1980-01-01 or 1970-01-01, in
/// any time zone.
const NOMINAL_TIME_MAX_S: u64 = 315_532_800 + 86_400;
/// The suffix of page templates (`sql_pages`).
const TEMPLATE_SUFFIX: &[u8] = b".lrp";

/// A request to load the object of a path.
pub struct LoadRequest {
    /// The rules of the site.
    pub rules: Arc<SiteRules>,
    /// The normalised host name, if each host of the site has its own folder; otherwise empty.
    pub host: Box<[u8]>,
    /// The decoded path.
    pub path: Box<[u8]>,
    /// The content coding; all but identity require `base`.
    pub encoding: ContentCoding,
    /// The stored object of which the files are to be checked, or the identity from which a coding is made.
    pub base: Option<ObjectArc>,
    /// The key in the store.
    pub key: Box<[u8]>,
    /// The key's hash.
    pub hash: u64,
}

/// The result of a load.
#[derive(Clone)]
pub struct LoadOutcome {
    /// The object of the path.
    pub base: ObjectArc,
    /// The object in the requested coding; an error object if that coding is unavailable.
    pub encoded: Option<ObjectArc>,
}

impl LoadOutcome {
    /// Creates the result for a request.
    pub fn new(request: &LoadRequest, object: ObjectArc) -> LoadOutcome {
        match (request.encoding, &request.base) {
            (ContentCoding::Identity, _) | (_, None) => LoadOutcome {
                base: object,
                encoded: None,
            },
            (_, Some(base)) => LoadOutcome {
                base: base.clone(),
                encoded: Some(object),
            },
        }
    }
}

/// Loads files into the store.
pub struct FileLoader {
    store: Arc<SharedStore>,
    watcher: Option<Arc<FolderWatcher>>,
    change_feed: Arc<ChangeFeed>,
    object_len_max: u64,
    digests: ContentDigests,
}

/// The file that was found for a path.
struct LocatedFile {
    file: Arc<OpenFile>,
    relative: PathBuf,
    /// The decoded path of the file itself (with an index file's name), for the content type and the header rules.
    path: Vec<u8>,
    /// The name of the index file, if the path is a folder's.
    index: Option<Box<str>>,
    trust: WatchTrust,
}

impl FileLoader {
    /// Creates a loader into `store`. Objects longer than `object_len_max` are not loaded into memory, but sent from
    /// their files. If `watcher` can't watch an object, this is reported to `change_feed`.
    pub fn new(
        store: Arc<SharedStore>,
        watcher: Option<Arc<FolderWatcher>>,
        change_feed: Arc<ChangeFeed>,
        object_len_max: u64,
    ) -> FileLoader {
        FileLoader {
            store,
            watcher,
            change_feed,
            object_len_max,
            digests: ContentDigests::default(),
        }
    }

    /// The store.
    pub fn store(&self) -> &SharedStore {
        &self.store
    }

    /// The number of watched folders.
    pub fn folders_watched(&self) -> usize {
        self.watcher
            .as_ref()
            .map_or(0, |watcher| watcher.folder_count())
    }

    /// Runs a look-up, and then removes the watches of folders that it has added.
    pub fn without_watching<T>(&self, lookup: impl FnOnce() -> T) -> T {
        let mark = self.watcher.as_ref().map(|watcher| watcher.mark());
        let result = lookup();
        if let (Some(watcher), Some(mark)) = (&self.watcher, mark) {
            watcher.remove_unused(mark);
        }
        result
    }

    /// Builds the object, and stores it if it is storable.
    pub fn load(&self, request: &LoadRequest) -> ObjectArc {
        let object = self.build(request);
        // If changes of the file are not reported, copies at the softirq level must expire soon.
        if !object.validity.is_watched() && object.representation().is_some() {
            self.change_feed.notify_short_lived();
        }
        match (&request.base, request.encoding) {
            (_, ContentCoding::Identity) if is_storable(&object.kind) => {
                // An unchanged object is already stored, with its codings in the same entry.
                let is_stored = request
                    .base
                    .as_ref()
                    .is_some_and(|old| ObjectArc::ptr_eq(old, &object));
                if !is_stored {
                    self.store
                        .insert(request.hash, &request.key, object.clone());
                }
            }
            (Some(base), _) if object.representation().is_some() && is_storable(&object.kind) => {
                self.store
                    .insert_encoded(request.hash, &request.key, base, object.clone());
            }
            _ => {}
        }
        object
    }

    /// Builds the object without storing it; only its arena blocks are allocated.
    pub fn build(&self, request: &LoadRequest) -> ObjectArc {
        let checked_ms = clock::now_ms();
        let result = match request.encoding {
            ContentCoding::Identity => self.build_identity(request, checked_ms),
            _ => self.build_encoded(request, checked_ms),
        };
        result.unwrap_or_else(|status| {
            ObjectArc::new(refused_object(status, &request.key, None, checked_ms))
        })
    }

    fn build_identity(
        &self,
        request: &LoadRequest,
        checked_ms: u64,
    ) -> Result<ObjectArc, StatusCode> {
        let config = &request.rules.config;
        let location = request.rules.locate(&request.host, &request.path);
        if location.is_hidden(&request.rules) {
            return Err(StatusCode::NOT_FOUND);
        }
        let relative = location.relative();
        let is_folder = request.path.ends_with(b"/");
        // The folder in which changes of the file, or of the index files, are reported.
        let watched_folder = if is_folder {
            relative.as_path()
        } else {
            relative.parent().unwrap_or(Path::new(""))
        };
        // Watched before the file is read, so that no change is missed.
        let trust = self.watch_location(&location, watched_folder);
        let folder = SiteFolder::open(location.base, &location.folder, config.symlinks)?;
        let resolved = match folder.find(&relative) {
            Ok(resolved) => resolved,
            Err(failure) if failure.status == StatusCode::NOT_FOUND => {
                if failure.linked {
                    self.change_feed.notify_short_lived();
                }
                // The target of a symbolic link may be in a folder that is not watched.
                let trust = trust.filter(|_| !failure.linked);
                return Ok(ObjectArc::new(refused_object(
                    StatusCode::NOT_FOUND,
                    &request.key,
                    trust,
                    checked_ms,
                )));
            }
            Err(failure) => return Err(failure.status),
        };
        let trust = trust.filter(|_| !resolved.linked);
        match resolved.target {
            PathTarget::File(file) => {
                let located = LocatedFile {
                    file: Arc::new(file),
                    relative,
                    path: request.path.to_vec(),
                    index: None,
                    trust,
                };
                self.build_file(request, &folder, located, checked_ms)
            }
            PathTarget::Folder if is_folder => {
                self.build_folder(request, &folder, &relative, trust, checked_ms)
            }
            PathTarget::Folder => {
                let kind = ObjectKind::Folder(request.key[..].into());
                Ok(ObjectArc::new(empty_object(kind, trust, checked_ms)))
            }
        }
    }

    fn watch_location(&self, location: &FolderPath<'_, '_>, subfolder: &Path) -> WatchTrust {
        let watch = |subfolder: &Path| self.watcher.as_ref()?.folder(location.base, subfolder);
        let trust = watch(&location.folder.join(subfolder));
        // The creation of a missing folder is reported for its ancestors, unless they can't be watched either.
        if trust.is_none() && watch(Path::new("")).is_none() {
            self.change_feed.notify_short_lived();
        }
        trust
    }

    /// Builds the object of a folder: its index file, or a listing if the site enables that.
    fn build_folder(
        &self,
        request: &LoadRequest,
        folder: &SiteFolder,
        relative: &Path,
        trust: WatchTrust,
        checked_ms: u64,
    ) -> Result<ObjectArc, StatusCode> {
        let config = &request.rules.config;
        let mut trust = trust;
        for name in &config.index {
            let relative = relative.join(name);
            let resolved = match folder.find(&relative) {
                Ok(resolved) => resolved,
                Err(failure) if failure.status == StatusCode::NOT_FOUND => {
                    trust = trust.filter(|_| !failure.linked);
                    continue;
                }
                Err(failure) => return Err(failure.status),
            };
            let PathTarget::File(file) = resolved.target else {
                continue;
            };
            let path = [&request.path, name.as_bytes()].concat();
            let trust = trust.filter(|_| !resolved.linked);
            // An index file that is a script is executed by its handler, and not sent.
            if request.rules.is_executed(&path) {
                let kind = ObjectKind::Index(path.into(), request.key[..].into());
                return Ok(ObjectArc::new(empty_object(kind, trust, checked_ms)));
            }
            return self.build_file(
                request,
                folder,
                LocatedFile {
                    file: Arc::new(file),
                    relative,
                    path,
                    index: Some(name.as_str().into()),
                    trust,
                },
                checked_ms,
            );
        }
        if !config.listing {
            let kind = ObjectKind::NoIndex(request.key[..].into());
            return Ok(ObjectArc::new(empty_object(kind, trust, checked_ms)));
        }
        let (page, linked) = listing::page(folder, relative, &request.path, config.hidden)?;
        let trust = trust.filter(|_| !linked);
        let facts = HeadFacts {
            path: &request.path,
            content_type: "text/html; charset=utf-8",
            encoding: ContentCoding::Identity,
            coding: ContentCoding::Identity,
            varies: false,
            len: page.len() as u64,
            etag: "",
            modified_s: None,
        };
        let info = self.describe(request, &facts, CodingSet::EMPTY, Arc::default());
        let representation = info.in_memory(&self.store, |buffer| {
            buffer.copy_from_slice(&page);
            Ok(())
        });
        let representation = representation.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        Ok(ObjectArc::new(representation.object(trust, checked_ms)))
    }

    fn describe<'a>(
        &self,
        request: &'a LoadRequest,
        facts: &'a HeadFacts<'a>,
        encodings: CodingSet,
        sources: Arc<SourceFiles>,
    ) -> RepresentationInfo<'a> {
        RepresentationInfo {
            facts,
            rules: &request.rules,
            encodings,
            sources,
            key: &request.key,
            hash: request.hash,
        }
    }

    /// Builds the object of a file: in memory, or with an open file if it is long. Page templates are not served.
    fn build_file(
        &self,
        request: &LoadRequest,
        folder: &SiteFolder,
        located: LocatedFile,
        checked_ms: u64,
    ) -> Result<ObjectArc, StatusCode> {
        // A template without a route was probably left by mistake; its queries must not be disclosed.
        if located.path.ends_with(TEMPLATE_SUFFIX) {
            return Err(StatusCode::NOT_FOUND);
        }
        let rules = &request.rules;
        let content_type = mime::content_type(&located.path, &rules.config.types);
        let coding = mime::coding(&located.path);
        let mut located = located;
        for _ in 0..READ_ATTEMPTS_MAX {
            located.file = folder::wait_until_stable(located.file)?;
            let (sources, linked) = self.sources(rules, folder, &located);
            if linked {
                // A precompressed file is a link. Its target may be in a folder that is not watched.
                located.trust = None;
            }
            let is_unchanged = |old: &StoredObject| {
                let old_sources = old.validity.sources().map(|old_sources| &**old_sources);
                let is_settled = located.file.stamp.is_settled();
                is_settled && old.representation().is_some() && old_sources == Some(&sources)
            };
            // If the file and its precompressed files are unchanged, the stored object is valid, and nothing is read.
            if let Some(old) = &request.base
                && is_unchanged(old)
                && old.validity.renew(&located.trust, checked_ms)
            {
                return Ok(old.clone());
            }
            let stamp = located.file.stamp;
            let encodings = match coding {
                ContentCoding::Identity => self.encodings(rules, &content_type, &sources),
                _ => CodingSet::EMPTY,
            };
            let Ok(content) = self.tag_digest(rules, &located.file) else {
                located.file = folder::with_current_stamp(&located.file)?;
                continue;
            };
            let etag = content.map_or_else(|| etag::from_stamp(&stamp), etag::from_content);
            let facts = HeadFacts {
                path: &located.path,
                content_type: &content_type,
                encoding: ContentCoding::Identity,
                coding,
                varies: !encodings.is_empty(),
                len: stamp.len,
                etag: &etag,
                modified_s: last_modified_s(&stamp),
            };
            let info = self.describe(request, &facts, encodings, Arc::new(sources));
            match self.read_into_memory(info, &located.file, content)? {
                ContentRead::Complete(representation) => {
                    return Ok(ObjectArc::new(
                        representation.object(located.trust, checked_ms),
                    ));
                }
                ContentRead::Changed => located.file = folder::with_current_stamp(&located.file)?,
            }
        }
        // The file is written continuously, so it can't be served without mixing versions.
        Err(StatusCode::SERVICE_UNAVAILABLE)
    }

    /// The stamps of a file, and of its precompressed files that are not older than the file; and whether a
    /// precompressed file is linked, so that it can change without a report for the watched folder.
    fn sources(
        &self,
        rules: &SiteRules,
        folder: &SiteFolder,
        located: &LocatedFile,
    ) -> (SourceFiles, bool) {
        let mut any_linked = false;
        let mut sources = SourceFiles {
            original: Some(located.file.stamp),
            siblings: [None; 3],
            index: located.index.clone(),
        };
        if rules.config.compress.precompressed {
            for encoding in rules.encodings.iter() {
                let sibling = folder.stamp(&sibling(&located.relative, encoding));
                let Some((stamp, linked)) = sibling else {
                    continue;
                };
                any_linked |= linked;
                if let Some(index) = sibling_index(encoding) {
                    // A precompressed file that is older than the file was made from an earlier version.
                    let current = stamp.modified_ns >= located.file.stamp.modified_ns;
                    sources.siblings[index] = current.then_some(stamp);
                }
            }
        }
        (sources, any_linked)
    }

    /// The available codings: those of precompressed files, and those that compression can produce.
    fn encodings(&self, rules: &SiteRules, content_type: &str, sources: &SourceFiles) -> CodingSet {
        let len = sources.original.map_or(0, |stamp| stamp.len);
        let compress = &rules.config.compress;
        // Compression needs the whole body in memory, so long files are not compressed.
        let can_compress = compress.enabled
            && (compress.len_min..=self.object_len_max).contains(&len)
            && mime::is_compressible(content_type);
        let mut encodings = CodingSet::EMPTY;
        for encoding in rules.encodings.iter() {
            if can_compress
                || sibling_index(encoding).is_some_and(|index| sources.siblings[index].is_some())
            {
                encodings.insert(encoding);
            }
        }
        encodings
    }

    /// The digest of a file's content, if the entity tag is made of it.
    fn tag_digest(&self, rules: &SiteRules, file: &OpenFile) -> io::Result<Option<u128>> {
        // If the stamp is uncertain, the tag is made of the content, unless the file is too long to be read only for
        // that.
        let is_read = file.stamp.len <= self.object_len_max;
        let is_wanted = rules.config.etag == EntityTags::Content;
        if is_wanted || is_read && !etag::is_certain(&file.stamp) {
            return self.digests.digest(file).map(Some);
        }
        Ok(None)
    }

    /// Reads a file into memory, if it is short enough and there is room. The copy is valid if its digest is `content`;
    /// if no digest is given, the file must be unchanged after the read.
    fn read_into_memory(
        &self,
        info: RepresentationInfo<'_>,
        file: &Arc<OpenFile>,
        content: Option<u128>,
    ) -> Result<ContentRead, StatusCode> {
        if info.facts.len > self.object_len_max {
            return Ok(ContentRead::Complete(Box::new(info.in_file(file.clone()))));
        }
        let representation = info.in_memory(&self.store, |buffer| {
            let read = file.file.read_exact_at(buffer, 0);
            // With a digest, the content must match the tag made of it; without one, the file must not have changed
            // during the read.
            let is_whole = match content {
                Some(digest) => read.is_err() || digest_bytes(buffer) == digest,
                None => file.unchanged(),
            };
            match read {
                _ if !is_whole => Err(PlacementError::Changed),
                // The file was truncated during the read.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Err(PlacementError::Changed)
                }
                read => read.map_err(|_| PlacementError::Failed),
            }
        });
        match representation {
            Ok(representation) => Ok(ContentRead::Complete(Box::new(representation))),
            // The object is sent from the file, which is slower, but needs no memory.
            Err(PlacementError::NoRoom) => {
                Ok(ContentRead::Complete(Box::new(info.in_file(file.clone()))))
            }
            Err(PlacementError::Changed) => Ok(ContentRead::Changed),
            Err(PlacementError::Failed) => Err(StatusCode::INTERNAL_ERROR),
        }
    }
}

enum ContentRead {
    Complete(Box<NewRepresentation>),
    /// The file changed while it was read.
    Changed,
}

/// The time for Last-Modified. None for the nominal time that archives and reproducible builds give to all files, since
/// it does not change with the content.
fn last_modified_s(stamp: &FileStamp) -> Option<u64> {
    // Last-Modified must not be later than the response (RFC 9110 §8.8.2.1).
    let modified_ns = stamp.modified_ns.min(clock::unix_ns());
    let modified_s = u64::try_from(modified_ns / 1_000_000_000).ok();
    // A nominal time does not identify the version.
    modified_s.filter(|modified_s| *modified_s > NOMINAL_TIME_MAX_S)
}

fn sibling(relative: &Path, encoding: ContentCoding) -> PathBuf {
    let mut name = OsString::from(relative);
    name.push(encoding.file_suffix());
    name.into()
}

/// The index of a coding in [`SourceFiles::siblings`].
fn sibling_index(encoding: ContentCoding) -> Option<usize> {
    match encoding {
        ContentCoding::Brotli => Some(0),
        ContentCoding::Zstd => Some(1),
        ContentCoding::Gzip => Some(2),
        ContentCoding::Identity => None,
    }
}

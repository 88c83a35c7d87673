//! Builds the object for a path from the file system. Blocks, so it runs on a helper thread.

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

use self::representation::{NewRepresentation, RepresentationInfo, bare, keeps, refused};
use crate::etag::{self, ContentDigests};
use crate::file_headers::HeadFacts;
use crate::folder::{self, PathTarget, SiteFolder};
use crate::{listing, mime};

/// The maximum number of attempts to read a file that changes during the read.
const TAKES_MAX: usize = 3;
/// Later modification times are real: 1980-01-01 is the first of ZIP archives, in any time zone.
const LAST_NOMINAL_S: u64 = 315_532_800 + 86_400;
/// The suffix of page templates.
const TEMPLATE_SUFFIX: &[u8] = b".lrp";

/// A load request.
pub struct LoadRequest {
    /// The rules of its site.
    pub rules: Arc<SiteRules>,
    /// The normalised host name, if each host of the site has its own folder; else empty.
    pub host: Box<[u8]>,
    /// The decoded path.
    pub path: Box<[u8]>,
    /// The content coding; all but identity require `base`.
    pub encoding: ContentCoding,
    /// The known object: the one to be renewed, or the identity from which a coding is made.
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
    /// The object in the requested coding; a refusal if that coding is unavailable.
    pub encoded: Option<ObjectArc>,
}

impl LoadOutcome {
    /// Creates the result for a request.
    pub fn new(want: &LoadRequest, object: ObjectArc) -> LoadOutcome {
        match (want.encoding, &want.base) {
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
    changes: Arc<ChangeFeed>,
    object_len_max: u64,
    digests: ContentDigests,
}

/// A file found for a path.
struct LocatedFile {
    file: Arc<OpenFile>,
    relative: PathBuf,
    /// The decoded path of the file itself, for its type and the header rules.
    path: Vec<u8>,
    /// The name of the index file, if the path is a folder's.
    index: Option<Box<str>>,
    trust: WatchTrust,
}

impl FileLoader {
    /// Creates a loader into `store`. Objects longer than `object_len_max` stay in their files. Changes that `watcher`
    /// can't detect are reported to `change_feed`.
    pub fn new(
        store: Arc<SharedStore>,
        watcher: Option<Arc<FolderWatcher>>,
        changes: Arc<ChangeFeed>,
        object_len_max: u64,
    ) -> FileLoader {
        FileLoader {
            store,
            watcher,
            changes,
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

    /// Runs a look-up after which no additional folder stays watched.
    pub fn without_trace<T>(&self, look: impl FnOnce() -> T) -> T {
        let mark = self.watcher.as_ref().map(|watcher| watcher.mark());
        let seen = look();
        if let (Some(watcher), Some(mark)) = (&self.watcher, mark) {
            watcher.forget_unused(mark);
        }
        seen
    }

    /// Builds the object and stores it if that is useful.
    pub fn load(&self, want: &LoadRequest) -> ObjectArc {
        let object = self.make(want);
        // Nothing reports changes of this file, so the levels below must keep copies briefly.
        if !object.validity.is_watched() && object.representation().is_some() {
            self.changes.tell_brief();
        }
        match (&want.base, want.encoding) {
            (_, ContentCoding::Identity) if keeps(&object.kind) => {
                // An unchanged object already has its codings in the entry.
                let is_there = want
                    .base
                    .as_ref()
                    .is_some_and(|old| ObjectArc::ptr_eq(old, &object));
                if !is_there {
                    self.store.insert(want.hash, &want.key, object.clone());
                }
            }
            (Some(base), _) if object.representation().is_some() && keeps(&object.kind) => {
                self.store
                    .insert_encoded(want.hash, &want.key, base, object.clone());
            }
            _ => {}
        }
        object
    }

    /// Builds the object without storing it; only its blocks are allocated.
    pub fn make(&self, want: &LoadRequest) -> ObjectArc {
        let checked_ms = clock::now_ms();
        let made = match want.encoding {
            ContentCoding::Identity => self.identity(want, checked_ms),
            _ => self.encoded(want, checked_ms),
        };
        made.unwrap_or_else(|status| ObjectArc::new(refused(status, &want.key, None, checked_ms)))
    }

    fn identity(&self, want: &LoadRequest, checked_ms: u64) -> Result<ObjectArc, StatusCode> {
        let config = &want.rules.config;
        let below = want.rules.below(&want.host, &want.path);
        if below.is_hidden(&want.rules) {
            return Err(StatusCode::NOT_FOUND);
        }
        let relative = below.relative();
        let is_folder = want.path.ends_with(b"/");
        // The folder that reports a change of the file, or of the index files.
        let within = if is_folder {
            relative.as_path()
        } else {
            relative.parent().unwrap_or(Path::new(""))
        };
        // Watched before the file is read, so that no change in between is missed.
        let trust = self.trust(&below, within);
        let folder = SiteFolder::open(below.base, &below.folder, config.symlinks)?;
        let resolved = match folder.find(&relative) {
            Ok(resolved) => resolved,
            Err(denied) if denied.status == StatusCode::NOT_FOUND => {
                if denied.linked {
                    self.changes.tell_brief();
                }
                // The target of a symbolic link is in a folder that is not watched.
                let trust = trust.filter(|_| !denied.linked);
                return Ok(ObjectArc::new(refused(
                    StatusCode::NOT_FOUND,
                    &want.key,
                    trust,
                    checked_ms,
                )));
            }
            Err(denied) => return Err(denied.status),
        };
        let trust = trust.filter(|_| !resolved.linked);
        match resolved.place {
            PathTarget::File(file) => {
                let found = LocatedFile {
                    file: Arc::new(file),
                    relative,
                    path: want.path.to_vec(),
                    index: None,
                    trust,
                };
                self.file(want, &folder, found, checked_ms)
            }
            PathTarget::Folder if is_folder => {
                self.folder(want, &folder, &relative, trust, checked_ms)
            }
            PathTarget::Folder => {
                let kind = ObjectKind::Folder(want.key[..].into());
                Ok(ObjectArc::new(bare(kind, trust, checked_ms)))
            }
        }
    }

    fn trust(&self, below: &FolderPath<'_, '_>, within: &Path) -> WatchTrust {
        let watch = |within: &Path| self.watcher.as_ref()?.folder(below.base, within);
        let trust = watch(&below.folder.join(within));
        // The creation of a missing folder is reported by its ancestors, unless they can't be watched either.
        if trust.is_none() && watch(Path::new("")).is_none() {
            self.changes.tell_brief();
        }
        trust
    }

    /// Builds the object of a folder: its index file, or a listing if the site enables that.
    fn folder(
        &self,
        want: &LoadRequest,
        folder: &SiteFolder,
        relative: &Path,
        trust: WatchTrust,
        checked_ms: u64,
    ) -> Result<ObjectArc, StatusCode> {
        let config = &want.rules.config;
        let mut trust = trust;
        for name in &config.index {
            let relative = relative.join(name);
            let resolved = match folder.find(&relative) {
                Ok(resolved) => resolved,
                Err(denied) if denied.status == StatusCode::NOT_FOUND => {
                    trust = trust.filter(|_| !denied.linked);
                    continue;
                }
                Err(denied) => return Err(denied.status),
            };
            let PathTarget::File(file) = resolved.place else {
                continue;
            };
            let path = [&want.path, name.as_bytes()].concat();
            let trust = trust.filter(|_| !resolved.linked);
            // A script as index file is run, not sent.
            if want.rules.has_route(&path) {
                let kind = ObjectKind::Index(path.into(), want.key[..].into());
                return Ok(ObjectArc::new(bare(kind, trust, checked_ms)));
            }
            return self.file(
                want,
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
            let kind = ObjectKind::NoIndex(want.key[..].into());
            return Ok(ObjectArc::new(bare(kind, trust, checked_ms)));
        }
        let (page, linked) = listing::page(folder, relative, &want.path, config.hidden)?;
        let trust = trust.filter(|_| !linked);
        let facts = HeadFacts {
            path: &want.path,
            content_type: "text/html; charset=utf-8",
            encoding: ContentCoding::Identity,
            coding: ContentCoding::Identity,
            varies: false,
            len: page.len() as u64,
            etag: "",
            modified_s: None,
        };
        let about = self.about(want, &facts, CodingSet::EMPTY, Arc::default());
        let made = about.in_memory(&self.store, |into| {
            into.copy_from_slice(&page);
            Ok(())
        });
        let made = made.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        Ok(ObjectArc::new(made.object(trust, checked_ms)))
    }

    fn about<'a>(
        &self,
        want: &'a LoadRequest,
        facts: &'a HeadFacts<'a>,
        encodings: CodingSet,
        sources: Arc<SourceFiles>,
    ) -> RepresentationInfo<'a> {
        RepresentationInfo {
            facts,
            rules: &want.rules,
            encodings,
            sources,
            key: &want.key,
            hash: want.hash,
        }
    }

    /// Builds the object of a file: in memory, or open if it is long. Page templates are refused.
    fn file(
        &self,
        want: &LoadRequest,
        folder: &SiteFolder,
        found: LocatedFile,
        checked_ms: u64,
    ) -> Result<ObjectArc, StatusCode> {
        // Without a route for it, a template is a file left by mistake; its queries must not be disclosed.
        if found.path.ends_with(TEMPLATE_SUFFIX) {
            return Err(StatusCode::NOT_FOUND);
        }
        let rules = &want.rules;
        let content_type = mime::content_type(&found.path, &rules.config.types);
        let coding = mime::coding(&found.path);
        let mut found = found;
        for _ in 0..TAKES_MAX {
            found.file = folder::at_rest(found.file)?;
            let (sources, linked) = self.sources(rules, folder, &found);
            if linked {
                // A sibling's link leads to a folder that is not watched.
                found.trust = None;
            }
            let is_same = |old: &StoredObject| {
                let own = old.validity.sources().map(|own| &**own);
                let is_settled = found.file.stamp.is_settled();
                is_settled && old.representation().is_some() && own == Some(&sources)
            };
            // The file and its siblings are unchanged, so the stored object is valid again without a read.
            if let Some(old) = &want.base
                && is_same(old)
                && old.validity.renew(&found.trust, checked_ms)
            {
                return Ok(old.clone());
            }
            let stamp = found.file.stamp;
            let encodings = match coding {
                ContentCoding::Identity => self.encodings(rules, &content_type, &sources),
                _ => CodingSet::EMPTY,
            };
            let Ok(content) = self.tag_digest(rules, &found.file) else {
                found.file = folder::as_it_is(&found.file)?;
                continue;
            };
            let etag = content.map_or_else(|| etag::from_stamp(&stamp), etag::from_content);
            let facts = HeadFacts {
                path: &found.path,
                content_type: &content_type,
                encoding: ContentCoding::Identity,
                coding,
                varies: !encodings.is_empty(),
                len: stamp.len,
                etag: &etag,
                modified_s: seconds(&stamp),
            };
            let about = self.about(want, &facts, encodings, Arc::new(sources));
            match self.take(about, &found.file, content)? {
                ContentRead::Made(made) => {
                    return Ok(ObjectArc::new(made.object(found.trust, checked_ms)));
                }
                ContentRead::Changed => found.file = folder::as_it_is(&found.file)?,
            }
        }
        // A file that is written continuously can't be served without mixing versions.
        Err(StatusCode::SERVICE_UNAVAILABLE)
    }

    /// The stamps of a file and its precompressed siblings that are not older, and whether a sibling can change without
    /// notice to the watched folder.
    fn sources(
        &self,
        rules: &SiteRules,
        folder: &SiteFolder,
        found: &LocatedFile,
    ) -> (SourceFiles, bool) {
        let mut any_linked = false;
        let mut sources = SourceFiles {
            original: Some(found.file.stamp),
            siblings: [None; 3],
            index: found.index.clone(),
        };
        if rules.config.compress.precompressed {
            for encoding in rules.encodings.iter() {
                let sibling = folder.stamp(&sibling(&found.relative, encoding));
                let Some((stamp, linked)) = sibling else {
                    continue;
                };
                any_linked |= linked;
                if let Some(at) = place_of(encoding) {
                    // A sibling older than the file was compressed from an earlier version.
                    let current = stamp.modified_ns >= found.file.stamp.modified_ns;
                    sources.siblings[at] = current.then_some(stamp);
                }
            }
        }
        (sources, any_linked)
    }

    /// The available codings: those of siblings, and those worth producing.
    fn encodings(&self, rules: &SiteRules, content_type: &str, sources: &SourceFiles) -> CodingSet {
        let len = sources.original.map_or(0, |stamp| stamp.len);
        let compress = &rules.config.compress;
        // Compression needs the whole body in memory, so long files are not compressed.
        let makes = compress.enabled
            && (compress.len_min..=self.object_len_max).contains(&len)
            && mime::compresses(content_type);
        let mut encodings = CodingSet::EMPTY;
        for encoding in rules.encodings.iter() {
            if makes || place_of(encoding).is_some_and(|at| sources.siblings[at].is_some()) {
                encodings.insert(encoding);
            }
        }
        encodings
    }

    /// The digest of a file's content, if its tag is made of that.
    fn tag_digest(&self, rules: &SiteRules, file: &OpenFile) -> io::Result<Option<u128>> {
        // Without a certain stamp, the tag is made from the content, unless the file is too long to be read for it.
        let is_read = file.stamp.len <= self.object_len_max;
        let is_wanted = rules.config.etag == EntityTags::Content;
        if is_wanted || is_read && !etag::is_certain(&file.stamp) {
            return self.digests.digest(file).map(Some);
        }
        Ok(None)
    }

    /// Reads a file into memory if it is short enough and there is room. The copy is valid if its digest is this one,
    /// or without a digest, if the file is unchanged afterwards.
    fn take(
        &self,
        about: RepresentationInfo<'_>,
        file: &Arc<OpenFile>,
        content: Option<u128>,
    ) -> Result<ContentRead, StatusCode> {
        if about.facts.len > self.object_len_max {
            return Ok(ContentRead::Made(Box::new(about.in_file(file.clone()))));
        }
        let made = about.in_memory(&self.store, |into| {
            let read = file.file.read_exact_at(into, 0);
            // With a digest, the content must match its tag; without one, the file must not have changed during the
            // read.
            let is_whole = match content {
                Some(digest) => read.is_err() || digest_bytes(into) == digest,
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
        match made {
            Ok(made) => Ok(ContentRead::Made(Box::new(made))),
            // Sent from the file: slower, but without the cache.
            Err(PlacementError::NoRoom) => {
                Ok(ContentRead::Made(Box::new(about.in_file(file.clone()))))
            }
            Err(PlacementError::Changed) => Ok(ContentRead::Changed),
            Err(PlacementError::Failed) => Err(StatusCode::INTERNAL_ERROR),
        }
    }
}

enum ContentRead {
    Made(Box<NewRepresentation>),
    /// The file changed while it was read.
    Changed,
}

/// Last-Modified. Archives and reproducible builds give all files one nominal time, which indicates no change.
fn seconds(stamp: &FileStamp) -> Option<u64> {
    // Never later than the response (RFC 9110 §8.8.2.1).
    let modified_ns = stamp.modified_ns.min(clock::unix_ns());
    let modified_s = u64::try_from(modified_ns / 1_000_000_000).ok();
    // Such a time says nothing about the version.
    modified_s.filter(|modified_s| *modified_s > LAST_NOMINAL_S)
}

fn sibling(relative: &Path, encoding: ContentCoding) -> PathBuf {
    let mut name = OsString::from(relative);
    name.push(encoding.file_suffix());
    name.into()
}

/// The index of a coding in [`SourceFiles::siblings`].
fn place_of(encoding: ContentCoding) -> Option<usize> {
    match encoding {
        ContentCoding::Brotli => Some(0),
        ContentCoding::Zstd => Some(1),
        ContentCoding::Gzip => Some(2),
        ContentCoding::Identity => None,
    }
}

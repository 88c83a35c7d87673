//! Sources of the maps that several programs share: pinned in a folder, or private to a loader.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapHandle, MapMut};

use crate::error::LevelError;

/// Maps by name.
pub(super) trait MapSource {
    /// Finds an existing map.
    fn find(&self, name: &str) -> Result<Option<MapHandle>, LevelError>;
    /// Stores a map that a program has created or uses.
    fn store(&self, name: &str, map: &mut MapMut<'_>) -> Result<(), LevelError>;
    /// The error to return if an existing map has another size.
    fn size_mismatch_error(&self, name: &str) -> LevelError;
}

/// Maps pinned in a folder; they outlive the process.
pub(super) struct PinnedMaps<'a> {
    folder: &'a Path,
}

impl<'a> PinnedMaps<'a> {
    /// The maps of this folder.
    pub(super) fn new(folder: &'a Path) -> PinnedMaps<'a> {
        PinnedMaps { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl MapSource for PinnedMaps<'_> {
    fn find(&self, name: &str) -> Result<Option<MapHandle>, LevelError> {
        let path = self.path(name);
        if !path.exists() {
            return Ok(None);
        }
        let handle = MapHandle::from_pinned_path(&path);
        handle
            .map(Some)
            .map_err(LevelError::bpf(format!("opening {}", path.display())))
    }

    fn store(&self, name: &str, map: &mut MapMut<'_>) -> Result<(), LevelError> {
        let path = self.path(name);
        if path.exists() {
            return Ok(());
        }
        // No program loaded before has this map.
        map.pin(&path)
            .map_err(LevelError::bpf(format!("pinning {}", path.display())))
    }

    fn size_mismatch_error(&self, name: &str) -> LevelError {
        LevelError::Usage(format!(
            "{}: the pinned maps have other sizes than requested; run `lowroad detach` first",
            self.path(name).display()
        ))
    }
}

/// Private maps, which end with this value and the programs.
#[derive(Debug, Default)]
pub(crate) struct FreshMaps {
    maps: RefCell<HashMap<String, MapHandle>>,
}

impl FreshMaps {
    /// Shares an existing map, so that no map is created under this name.
    pub(crate) fn share(&self, name: &str, map: MapHandle) {
        self.maps.borrow_mut().insert(name.to_owned(), map);
    }

    /// The map of this name.
    ///
    /// # Errors
    /// If no program has the map, or descriptors run out.
    pub(crate) fn map_handle(&self, name: &str) -> Result<MapHandle, LevelError> {
        let found = self.find(name)?;
        found.ok_or_else(|| LevelError::Usage(format!("no program has the map {name}")))
    }
}

impl MapSource for FreshMaps {
    fn find(&self, name: &str) -> Result<Option<MapHandle>, LevelError> {
        let maps = self.maps.borrow();
        let found = maps.get(name).map(MapHandle::try_from).transpose();
        found.map_err(LevelError::bpf(format!("the map {name}")))
    }

    fn store(&self, name: &str, map: &mut MapMut<'_>) -> Result<(), LevelError> {
        let mut maps = self.maps.borrow_mut();
        if !maps.contains_key(name) {
            let handle =
                MapHandle::try_from(&*map).map_err(LevelError::bpf(format!("the map {name}")))?;
            maps.insert(name.to_owned(), handle);
        }
        Ok(())
    }

    fn size_mismatch_error(&self, name: &str) -> LevelError {
        LevelError::Usage(format!(
            "the map {name} belongs to another version of this program"
        ))
    }
}

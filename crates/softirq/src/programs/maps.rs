//! Sources of maps that several programs share: pinned in a folder, or private to a loader.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapHandle, MapMut};

use crate::error::Error;

/// Maps by name.
pub(super) trait Maps {
    /// Finds an existing map.
    fn find(&self, name: &str) -> Result<Option<MapHandle>, Error>;
    /// Stores a map that a program created or uses.
    fn keep(&self, name: &str, map: &mut MapMut<'_>) -> Result<(), Error>;
    /// The error for an existing map of another size.
    fn unfit(&self, name: &str) -> Error;
}

/// Maps pinned in a folder, which outlive the process.
pub(super) struct Pinned<'a> {
    folder: &'a Path,
}

impl<'a> Pinned<'a> {
    /// The maps of this folder.
    pub(super) fn new(folder: &'a Path) -> Pinned<'a> {
        Pinned { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Maps for Pinned<'_> {
    fn find(&self, name: &str) -> Result<Option<MapHandle>, Error> {
        let path = self.path(name);
        if !path.exists() {
            return Ok(None);
        }
        let there = MapHandle::from_pinned_path(&path);
        there
            .map(Some)
            .map_err(Error::bpf(format!("opening {}", path.display())))
    }

    fn keep(&self, name: &str, map: &mut MapMut<'_>) -> Result<(), Error> {
        let path = self.path(name);
        if path.exists() {
            return Ok(());
        }
        map.pin(&path)
            .map_err(Error::bpf(format!("pinning {}", path.display())))
    }

    fn unfit(&self, name: &str) -> Error {
        Error::Usage(format!(
            "{}: pinned maps have other sizes than asked for; `lowroad detach` first",
            self.path(name).display()
        ))
    }
}

/// Private maps, which end with this value and the programs.
#[derive(Debug, Default)]
pub(crate) struct Fresh {
    maps: RefCell<HashMap<String, MapHandle>>,
}

impl Fresh {
    /// Shares an existing map: none is created for this name.
    pub(crate) fn share(&self, name: &str, map: MapHandle) {
        self.maps.borrow_mut().insert(name.to_owned(), map);
    }

    /// The map of this name.
    ///
    /// # Errors
    /// When no program has it, or descriptors run out.
    pub(crate) fn one(&self, name: &str) -> Result<MapHandle, Error> {
        let found = self.find(name)?;
        found.ok_or_else(|| Error::Usage(format!("no program has a map {name}")))
    }
}

impl Maps for Fresh {
    fn find(&self, name: &str) -> Result<Option<MapHandle>, Error> {
        let maps = self.maps.borrow();
        let found = maps.get(name).map(MapHandle::try_from).transpose();
        found.map_err(Error::bpf(format!("the map {name}")))
    }

    fn keep(&self, name: &str, map: &mut MapMut<'_>) -> Result<(), Error> {
        let mut maps = self.maps.borrow_mut();
        if !maps.contains_key(name) {
            let kept = MapHandle::try_from(&*map).map_err(Error::bpf(format!("the map {name}")))?;
            maps.insert(name.to_owned(), kept);
        }
        Ok(())
    }

    fn unfit(&self, name: &str) -> Error {
        Error::Usage(format!(
            "the map {name} is of another version of this program"
        ))
    }
}

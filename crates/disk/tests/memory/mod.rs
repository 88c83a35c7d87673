//! A folder in memory for tests: records every change, so that a test can stop at any byte, and injects faults.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use lowroad_disk::SegmentFiles;

/// A change of the folder or of one of its files, which are numbered.
#[derive(Clone, Debug)]
pub enum Change {
    /// A file was created, or truncated to length 0.
    Create(String, usize),
    /// Bytes were written to a file.
    Write(usize, Vec<u8>, u64),
    /// A file was truncated.
    Truncate(usize, u64),
    /// A name was removed.
    Remove(String),
    /// A file was renamed.
    Rename(String, String),
}

/// The faults to inject.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Each write writes at most this many bytes.
    pub write_len_max: Option<usize>,
    /// The disk is full after this many more bytes.
    pub room: Option<u64>,
    /// All reads fail.
    pub reads_fail: bool,
}

#[derive(Clone, Default)]
pub struct Folder {
    names: BTreeMap<String, usize>,
    files: Vec<Vec<u8>>,
}

impl Folder {
    /// Applies a change, or only the first `part` bytes of a write.
    pub fn apply(&mut self, change: &Change, part: usize) {
        match change {
            Change::Create(name, number) => {
                self.files
                    .resize_with(self.files.len().max(number + 1), Vec::new);
                self.names.insert(name.clone(), *number);
            }
            Change::Write(number, bytes, offset) => {
                let bytes = &bytes[..part.min(bytes.len())];
                let (file, start) = (&mut self.files[*number], *offset as usize);
                file.resize(file.len().max(start + bytes.len()), 0);
                file[start..start + bytes.len()].copy_from_slice(bytes);
            }
            Change::Truncate(number, len) => self.files[*number].truncate(*len as usize),
            Change::Remove(name) => drop(self.names.remove(name)),
            Change::Rename(from, to) => {
                if let Some(number) = self.names.remove(from) {
                    self.names.insert(to.clone(), number);
                }
            }
        }
    }

    /// The contents of all files with this suffix.
    #[allow(dead_code, reason = "not all tests do")]
    pub fn contents(&mut self, end: &str) -> Vec<&mut Vec<u8>> {
        let named = self.names.iter().filter(|(name, _)| name.ends_with(end));
        let numbers: Vec<_> = named.map(|(_, number)| *number).collect();
        let files = self.files.iter_mut().enumerate();
        files
            .filter(|(n, _)| numbers.contains(n))
            .map(|(_, file)| file)
            .collect()
    }
}

/// The folder; all clones share it.
#[derive(Clone, Default)]
pub struct Memory {
    folder: Arc<Mutex<Folder>>,
    changes: Arc<Mutex<Vec<Change>>>,
    faults: Arc<Mutex<Faults>>,
}

#[allow(dead_code, reason = "not all tests use all")]
impl Memory {
    pub fn of(folder: Folder) -> Memory {
        Memory {
            folder: Arc::new(Mutex::new(folder)),
            ..Memory::default()
        }
    }

    pub fn folder(&self) -> Folder {
        self.folder.lock().expect("lock").clone()
    }

    pub fn changes(&self) -> Vec<Change> {
        self.changes.lock().expect("lock").clone()
    }

    pub fn fail(&self, faults: Faults) {
        *self.faults.lock().expect("lock") = faults;
    }

    /// The bytes of a body.
    pub fn bytes(&self, file: usize, offset: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.read_all(&file, &mut bytes, offset)
            .expect("a body can be read");
        bytes
    }

    fn change(&self, change: Change) {
        self.folder.lock().expect("lock").apply(&change, usize::MAX);
        self.changes.lock().expect("lock").push(change);
    }

    fn number(&self, name: &str) -> io::Result<usize> {
        let folder = self.folder.lock().expect("lock");
        folder
            .names
            .get(name)
            .copied()
            .ok_or(io::ErrorKind::NotFound.into())
    }
}

impl SegmentFiles for Memory {
    type File = usize;

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self
            .folder
            .lock()
            .expect("lock")
            .names
            .keys()
            .cloned()
            .collect())
    }

    fn create(&self, name: &str) -> io::Result<usize> {
        let number = self.folder.lock().expect("lock").files.len();
        self.change(Change::Create(name.to_owned(), number));
        Ok(number)
    }

    fn open(&self, name: &str) -> io::Result<usize> {
        self.number(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.number(name)?;
        self.change(Change::Remove(name.to_owned()));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.number(from)?;
        self.change(Change::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn len(&self, file: &usize) -> io::Result<u64> {
        Ok(self.folder.lock().expect("lock").files[*file].len() as u64)
    }

    fn truncate(&self, file: &usize, len: u64) -> io::Result<()> {
        self.change(Change::Truncate(*file, len));
        Ok(())
    }

    fn read_at(&self, file: &usize, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.faults.lock().expect("lock").reads_fail {
            return Err(io::Error::other("the disk is broken"));
        }
        let folder = self.folder.lock().expect("lock");
        let rest = folder.files[*file].get(offset as usize..).unwrap_or(&[]);
        let len = rest.len().min(bytes.len());
        bytes[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_at(&self, file: &usize, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut faults = self.faults.lock().expect("lock");
        let mut len = bytes.len().min(faults.write_len_max.unwrap_or(usize::MAX));
        if let Some(room) = &mut faults.room {
            if *room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            len = len.min(*room as usize);
            *room -= len as u64;
        }
        drop(faults);
        self.change(Change::Write(*file, bytes[..len].to_vec(), offset));
        Ok(len)
    }

    fn sync(&self, _: &usize) -> io::Result<()> {
        Ok(())
    }
}

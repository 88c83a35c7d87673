//! The journal on the disk: steps are appended to it one by one. What it means for the objects is its caller's.

use std::io;
use std::sync::Arc;

use crate::files::Files;
use crate::log::{Identity, RECORD_LEN, Step};

/// Steps that could not be written and have to be before others are; more are not kept.
const PENDING_MAX: usize = 64 * 1024;
/// A read takes this many records.
const BLOCK_RECORDS: usize = 16 * 1024;

/// The journal to which steps are appended.
pub struct Journal<F: Files> {
    /// Which it is.
    pub identity: Identity,
    /// Its length in bytes; what lies beyond is overwritten.
    pub end: u64,
    file: Arc<F::File>,
    /// Removals that are not written yet.
    pending: Vec<u64>,
}

impl<F: Files> Journal<F> {
    /// Begins a journal.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn create(files: &F, identity: Identity) -> io::Result<Journal<F>> {
        let file = files.create(&journal_name(identity.generation))?;
        let begin = Step::Begin(identity).encode(identity, 0);
        files.write_all(&file, &begin, 0)?;
        Ok(Journal::at(file, identity, RECORD_LEN as u64))
    }

    /// Goes on with a journal that has so many good bytes.
    pub fn at(file: F::File, identity: Identity, end: u64) -> Journal<F> {
        Journal {
            identity,
            end,
            file: Arc::new(file),
            pending: Vec::new(),
        }
    }

    /// Appends a step, after those that could not be appended before. What is written only in part is overwritten
    /// by the next.
    ///
    /// # Errors
    /// When it can't be written. A removal is kept then, and tried again with the next step.
    pub fn append(&mut self, files: &F, step: Step) -> io::Result<()> {
        let written = self.catch_up(files).and_then(|()| self.write(files, step));
        if let (Err(_), Step::Remove(hash)) = (&written, step)
            && self.pending.len() < PENDING_MAX
        {
            self.pending.push(hash);
        }
        written
    }

    /// Waits until all is on the disk.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn sync(&mut self, files: &F) -> io::Result<()> {
        self.catch_up(files)?;
        files.sync(&self.file)
    }

    fn catch_up(&mut self, files: &F) -> io::Result<()> {
        while let Some(&hash) = self.pending.first() {
            self.write(files, Step::Remove(hash))?;
            self.pending.remove(0);
        }
        Ok(())
    }

    fn write(&mut self, files: &F, step: Step) -> io::Result<()> {
        let record = step.encode(self.identity, self.end);
        files.write_all(&self.file, &record, self.end)?;
        self.end += RECORD_LEN as u64;
        Ok(())
    }
}

/// What was read of a log.
pub struct Replayed {
    /// Which it is.
    pub identity: Identity,
    /// How many bytes of it are good.
    pub end: u64,
    /// Whether it ends as a checkpoint does.
    pub is_complete: bool,
}

/// Reads a log up to the first record that is torn. None if it does not even begin.
///
/// # Errors
/// When it can't be read.
pub fn replay<F: Files>(
    files: &F,
    file: &F::File,
    mut act: impl FnMut(Step),
) -> io::Result<Option<Replayed>> {
    let len = files.len(file)?;
    let mut first = [0; RECORD_LEN];
    if len < RECORD_LEN as u64 {
        return Ok(None);
    }
    files.read_all(file, &mut first, 0)?;
    let Some(identity) = Identity::decode(&first) else {
        return Ok(None);
    };
    let mut end = RECORD_LEN as u64;
    let mut block = vec![0; RECORD_LEN * BLOCK_RECORDS];
    loop {
        let whole = (len - end) / RECORD_LEN as u64;
        let count = usize::try_from(whole)
            .unwrap_or(usize::MAX)
            .min(BLOCK_RECORDS);
        let bytes = &mut block[..count * RECORD_LEN];
        files.read_all(file, bytes, end)?;
        for record in bytes.chunks_exact(RECORD_LEN) {
            let step = Step::decode(record, identity, end);
            if let Some(Step::End(count)) = step {
                let is_complete = count == end / RECORD_LEN as u64;
                return Ok(Some(Replayed {
                    identity,
                    end,
                    is_complete,
                }));
            }
            let Some(step) = step else {
                return Ok(Some(Replayed {
                    identity,
                    end,
                    is_complete: false,
                }));
            };
            act(step);
            end += RECORD_LEN as u64;
        }
        if count == 0 {
            return Ok(Some(Replayed {
                identity,
                end,
                is_complete: false,
            }));
        }
    }
}

/// The name of a journal.
pub fn journal_name(generation: u64) -> String {
    format!("{generation:016x}.journal")
}

/// The name of a checkpoint.
pub fn checkpoint_name(generation: u64) -> String {
    format!("{generation:016x}.checkpoint")
}

/// The name of a segment: what it is stands in it.
pub fn segment_name(id: u32, is_sole: bool) -> String {
    let kind = if is_sole { "sole" } else { "segment" };
    format!("{id:08x}.{kind}")
}

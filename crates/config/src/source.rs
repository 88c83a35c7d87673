//! The files of a configuration: reading, merging and expanding them into one table.
//!
//! All files share one space of offsets (a source map), so a position is one number wherever a value comes from. Each
//! use of a template gets a separate region: the position of a copied value leads to its line in the template and to
//! the place of use. Files are accessed only by [`ConfigFiles`].

mod files;
mod include;
mod merge;
mod template;

pub use files::{ConfigFiles, DiskFiles};
pub use include::{FILES_MAX, INCLUDE_DEPTH_MAX, TEXT_LEN_MAX};

pub(crate) use files::NoFiles;
pub(crate) use include::{LoadedFiles, not_utf8, read_files};
pub(crate) use merge::are_tables;

use crate::problem::{ConfigPlace, ConfigProblem};
use crate::reader::KeyPosition;
use std::path::PathBuf;
use std::rc::Rc;
use toml::de::DeTable;

/// The text of one file.
#[derive(Debug)]
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// The offset of each line's first byte.
    line_starts: Vec<usize>,
}

/// A range of offsets that stands for the text of a file.
#[derive(Debug)]
struct SourceRegion {
    /// The first offset.
    start: usize,
    /// The index of the file.
    file: usize,
    /// The position that uses the template; `None` for the file itself.
    used_at: Option<usize>,
}

/// Maps offsets to files and lines.
#[derive(Debug, Default)]
pub(crate) struct SourceMap {
    pub(crate) files: Vec<Rc<SourceFile>>,
    /// In the order of their offsets. The first region is the main file, from 0.
    regions: Vec<SourceRegion>,
    end: usize,
}

/// The position that an offset stands for.
pub(crate) struct SourceSpot<'s> {
    pub(crate) file: &'s SourceFile,
    pub(crate) file_index: usize,
    /// The offset in bytes in the text of the file.
    pub(crate) offset: usize,
    used_at: Option<usize>,
}

/// All files as one table: included files are merged, and templates are expanded.
pub(crate) struct MergedSource<'t> {
    pub(crate) map: SourceMap,
    pub(crate) table: DeTable<'t>,
    /// Problems that do not keep the table from being read.
    pub(crate) problems: Vec<SourceNote>,
    pub(crate) warnings: Vec<SourceNote>,
}

/// A problem or warning at a position.
#[derive(Debug)]
pub(crate) struct SourceNote {
    pub(crate) position: KeyPosition,
    pub(crate) message: String,
    pub(crate) allowed: String,
}

/// Merges the files, and expands the templates. `texts` are the files of the map.
///
/// # Errors
/// Templates add too many values: the rest of the configuration is not read.
pub(crate) fn merge(
    loaded: LoadedFiles,
    texts: &[Rc<SourceFile>],
) -> Result<MergedSource<'_>, Vec<ConfigProblem>> {
    let (mut map, mut warnings) = (loaded.map, loaded.warnings);
    let mut problems = Vec::new();
    let tables = texts.iter().zip(&map.regions).map(|(file, region)| {
        // The syntax was checked when the file was read.
        let table = DeTable::parse(&file.text).map(toml::Spanned::into_inner);
        let mut table = table.unwrap_or_default();
        // Includes were resolved when the files were read; the reader doesn't know this key.
        table.remove("include");
        merge::moved_table(table, region.start)
    });
    let merged = merge::merge_files(tables, &map, &mut problems);
    let (table, notes) = template::expand(merged, &mut map);
    problems.extend(notes.problems);
    warnings.extend(notes.warnings);
    if notes.is_exceeded {
        let problem = |it: SourceNote| map.problem(&it.position, it.message, it.allowed);
        return Err(problems.into_iter().map(problem).collect());
    }
    Ok(MergedSource {
        map,
        table,
        problems,
        warnings,
    })
}

impl SourceFile {
    fn new(path: PathBuf, text: String) -> SourceFile {
        let line_ends = text.match_indices('\n').map(|(at, _)| at + 1);
        let line_starts = std::iter::once(0).chain(line_ends).collect();
        SourceFile {
            path,
            text,
            line_starts,
        }
    }
}

impl SourceMap {
    /// Adds a file, and returns the offset of its first byte.
    fn add_file(&mut self, path: PathBuf, text: String) -> usize {
        self.files.push(Rc::new(SourceFile::new(path, text)));
        self.add_region(self.files.len() - 1, None)
    }

    /// Adds a region for the text of a file, and returns its first offset.
    fn add_region(&mut self, file: usize, used_at: Option<usize>) -> usize {
        let start = self.end;
        self.regions.push(SourceRegion {
            start,
            file,
            used_at,
        });
        // One more than the length: a position may be the end of the text.
        self.end += self.files[file].text.len() + 1;
        start
    }

    pub(crate) fn locate(&self, offset: usize) -> SourceSpot<'_> {
        let index = self
            .regions
            .partition_point(|region| region.start <= offset);
        let region = &self.regions[index.saturating_sub(1)];
        SourceSpot {
            file: &self.files[region.file],
            file_index: region.file,
            offset: offset - region.start,
            used_at: region.used_at,
        }
    }

    /// File, line and column of an offset.
    pub(crate) fn place(&self, offset: usize) -> ConfigPlace {
        self.locate(offset).place()
    }

    /// The places of use of the template that an offset is in, the innermost first.
    pub(crate) fn uses(&self, offset: usize) -> Vec<ConfigPlace> {
        let next = |at: &usize| self.locate(*at).used_at;
        let chain = std::iter::successors(next(&offset), next);
        chain.map(|at| self.place(at)).collect()
    }

    /// A problem at a position.
    pub(crate) fn problem(
        &self,
        position: &KeyPosition,
        message: String,
        allowed: String,
    ) -> ConfigProblem {
        let place = self.place(position.offset);
        ConfigProblem {
            file: place.file,
            line: place.line,
            column: place.column,
            key: position.key.clone(),
            message,
            allowed,
            uses: self.uses(position.offset),
        }
    }

    /// The text of a position's file from there on.
    pub(crate) fn text_from(&self, offset: usize) -> &str {
        let spot = self.locate(offset);
        spot.file.text.get(spot.offset..).unwrap_or_default()
    }
}

impl SourceSpot<'_> {
    pub(crate) fn place(&self) -> ConfigPlace {
        let starts = &self.file.line_starts;
        let line = starts.partition_point(|start| *start <= self.offset).max(1);
        let before = self.file.text.get(starts[line - 1]..self.offset);
        ConfigPlace {
            file: self.file.path.clone(),
            line,
            // Editors count characters and not bytes.
            column: before.unwrap_or_default().chars().count() + 1,
        }
    }
}

//! The file set of SPECweb96 and SPECweb99: folders of 36 files, 9 in each of 4 classes. Both workloads use the same
//! set. Defines names, sizes and popularity; `files` writes the files.

use std::path::Path;

use super::files::{FileFill, FileManifest, FileSpec};

/// Number of size classes.
pub const CLASSES: usize = 4;

/// Files of a class in a folder.
pub const FILES: usize = 9;

/// Files of a folder.
pub const PER_DIR: usize = CLASSES * FILES;

/// Share of the requests for each class.
pub const CLASS_WEIGHTS: [f64; CLASSES] = [0.35, 0.50, 0.14, 0.01];

/// Maximum number of folders: names have five digits.
pub const DIRS_MAX: u32 = 100_000;

/// The files of a class in order of popularity, the most popular first.
const FILES_BY_RANK: [usize; FILES] = [4, 3, 5, 2, 6, 1, 7, 8, 0];

/// Weight of each file of a class: Zipf's law over the ranks.
pub fn file_weights() -> Vec<f64> {
    let mut weights = vec![0.0; FILES];
    for (rank, file) in FILES_BY_RANK.iter().enumerate() {
        weights[*file] = 1.0 / (rank + 1) as f64;
    }
    weights
}

/// The length of a file: tenths of 1 KiB, 10 KiB, 100 KiB, 1000 KiB.
pub const fn file_len(class: usize, file: usize) -> u64 {
    1024 * 10u64.pow(class as u32) * (file as u64 + 1) / 10
}

/// The index of a file in the whole set.
pub const fn index(dir: u32, class: usize, file: usize) -> usize {
    (dir as usize * CLASSES + class) * FILES + file
}

/// The path of a file within the set.
pub fn name(dir: u32, class: usize, file: usize) -> String {
    format!("dir{dir:05}/class{class}_{file}")
}

/// All files of a set, in the order of [`index`].
pub fn all_files(dirs: u32) -> impl Iterator<Item = (u32, usize, usize)> {
    (0..dirs).flat_map(|dir| {
        (0..CLASSES).flat_map(move |class| (0..FILES).map(move |file| (dir, class, file)))
    })
}

/// The files to create. Files of class 1 have one ad placeholder, those of class 2 have two.
pub(crate) fn plan(dirs: u32) -> Vec<FileSpec> {
    all_files(dirs)
        .map(|(dir, class, file)| FileSpec {
            path: format!("file_set/{}", name(dir, class, file)),
            len: file_len(class, file),
            fill: FileFill::Marked {
                ads: [0, 1, 2, 0][class],
            },
        })
        .collect()
}

/// The CRC-32 of all files in the order of [`index`], from the manifest of a file set with at least this many folders.
pub(crate) fn checksums(folder: &Path, dirs: u32) -> Result<Vec<u32>, String> {
    let manifest = FileManifest::load(folder)?;
    all_files(dirs)
        .map(|(dir, class, file)| {
            let path = format!("file_set/{}", name(dir, class, file));
            manifest.checksum(&path, file_len(class, file))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_sizes_match_the_specweb_table() {
        let row = |class| {
            (0..FILES)
                .map(|file| file_len(class, file))
                .collect::<Vec<_>>()
        };
        assert_eq!(row(0), [102, 204, 307, 409, 512, 614, 716, 819, 921]);
        assert_eq!(row(1)[0], 1024);
        assert_eq!(row(3)[8], 921_600);
        let sum: u64 = all_files(1)
            .map(|(_, class, file)| file_len(class, file))
            .sum();
        assert_eq!(sum, 5_119_484);
    }

    #[test]
    fn file_popularity_matches_the_specweb_table() {
        let weights = file_weights();
        let sum: f64 = weights.iter().sum();
        let rounded: Vec<f64> = weights
            .iter()
            .map(|weight| (weight / sum * 1e4).round() / 1e4)
            .collect();
        assert_eq!(
            rounded,
            [
                0.0393, 0.0589, 0.0884, 0.1767, 0.3535, 0.1178, 0.0707, 0.0505, 0.0442
            ]
        );
        let mean = |class| -> f64 {
            (0..FILES)
                .map(|file| weights[file] / sum * file_len(class, file) as f64)
                .sum()
        };
        assert_eq!(mean(0).round(), 501.0);
        let overall: f64 = (0..CLASSES)
            .map(|class| CLASS_WEIGHTS[class] * mean(class))
            .sum();
        assert_eq!(overall.round(), 14_727.0);
    }

    #[test]
    fn file_indexes_are_consecutive() {
        for (at, (dir, class, file)) in all_files(3).enumerate() {
            assert_eq!(at, index(dir, class, file));
        }
        assert_eq!(name(12, 1, 3), "dir00012/class1_3");
    }
}

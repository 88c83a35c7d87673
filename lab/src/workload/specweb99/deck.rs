//! The choice of files: each client draws from a deck of 1000 files, in which each class has exactly its share. This
//! distributes the rare large files evenly. Independent of requests.

use super::super::draw;
use super::WeightedChoice;
use super::specset;
use crate::random::SplitMix;

/// One file of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClassFile {
    /// Its folder.
    pub(super) dir: u32,
    /// 0 to 3.
    pub(super) class: u8,
    /// 0 to 8.
    pub(super) number: u8,
}

/// The popularity of folders and files.
pub(super) struct FilePopularity {
    dirs: WeightedChoice,
    files: WeightedChoice,
}

impl FilePopularity {
    /// Zipf's law over the folders, in their order, and over the files.
    pub(super) fn new(dirs: u32) -> FilePopularity {
        FilePopularity {
            dirs: WeightedChoice::new(&draw::zipf(dirs as usize)),
            files: WeightedChoice::new(&specset::file_weights()),
        }
    }
}

/// Number of cards of each class in a deck.
const CARDS: [usize; specset::CLASSES] = [350, 500, 140, 10];

/// The remaining cards of one client.
#[derive(Default)]
pub(super) struct RequestDeck(Vec<ClassFile>);

impl RequestDeck {
    /// Draws the next file; starts a new deck when one is used up.
    pub(super) fn draw(&mut self, popularity: &FilePopularity, random: &mut SplitMix) -> ClassFile {
        if self.0.is_empty() {
            self.fill(popularity, random);
        }
        self.0.pop().expect("just filled")
    }

    fn fill(&mut self, popularity: &FilePopularity, random: &mut SplitMix) {
        for (class, cards) in CARDS.iter().enumerate() {
            for _ in 0..*cards {
                self.0.push(ClassFile {
                    dir: popularity.dirs.pick(random) as u32,
                    class: class as u8,
                    number: popularity.files.pick(random) as u8,
                });
            }
        }
        // Fisher-Yates shuffle, since the deck is filled class by class.
        for remaining in (1..self.0.len()).rev() {
            self.0
                .swap(remaining, random.below(remaining as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::draw::tests::assert_fits;
    use super::*;

    #[test]
    fn each_deck_has_exact_class_counts() {
        let popularity = FilePopularity::new(20);
        let mut random = SplitMix::new(11);
        let mut deck = RequestDeck::default();
        for _ in 0..20 {
            let mut counts = [0; 4];
            for _ in 0..1000 {
                counts[usize::from(deck.draw(&popularity, &mut random).class)] += 1;
            }
            assert_eq!(counts, CARDS);
        }
    }

    #[test]
    fn files_and_folders_follow_zipf() {
        let dirs = 156;
        let popularity = FilePopularity::new(dirs);
        let mut random = SplitMix::new(12);
        let mut deck = RequestDeck::default();
        let mut by_dir = vec![0u64; dirs as usize];
        let mut by_file = vec![0u64; 9];
        let mut first_half_class_3 = 0u64;
        for card in 0..1_000_000 {
            let file = deck.draw(&popularity, &mut random);
            by_dir[file.dir as usize] += 1;
            by_file[usize::from(file.number)] += 1;
            first_half_class_3 += u64::from(file.class == 3 && card % 1000 < 500);
        }
        assert_fits(&by_dir, &draw::zipf(dirs as usize), "folders");
        assert_fits(&by_file, &specset::file_weights(), "files");
        assert_fits(
            &[first_half_class_3, 10_000 - first_half_class_3],
            &[1.0, 1.0],
            "shuffled",
        );
        let share = by_dir[0] as f64 / 1e6;
        assert!((share - 0.178).abs() < 0.002, "{share}");
    }
}

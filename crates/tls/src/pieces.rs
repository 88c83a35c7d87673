//! The application's bytes as they lie in memory: pieces, cut into records.

/// Pieces of which the front is taken.
pub(crate) struct Pieces<'a> {
    first: &'a [u8],
    others: &'a [&'a [u8]],
}

impl<'a> Pieces<'a> {
    pub fn new(pieces: &'a [&'a [u8]]) -> Pieces<'a> {
        Pieces {
            first: &[],
            others: pieces,
        }
    }

    /// Takes so many bytes, of which there must be as many, and adds them to `to`.
    pub fn append(&mut self, len: usize, to: &mut Vec<u8>) {
        let mut missing = len;
        while missing > 0 {
            self.skip_empty();
            let (taken, rest) = self.first.split_at(self.first.len().min(missing));
            to.extend_from_slice(taken);
            self.first = rest;
            missing -= taken.len();
        }
    }

    /// Takes so many bytes, of which there must be as many: where they lie, if they lie together.
    pub fn take<'g>(&mut self, len: usize, gathered: &'g mut Vec<u8>) -> &'g [u8]
    where
        'a: 'g,
    {
        self.skip_empty();
        if let Some((taken, rest)) = self.first.split_at_checked(len) {
            self.first = rest;
            return taken;
        }
        gathered.clear();
        gathered.reserve_exact(len);
        while gathered.len() < len {
            self.skip_empty();
            let (taken, rest) = self
                .first
                .split_at(self.first.len().min(len - gathered.len()));
            gathered.extend_from_slice(taken);
            self.first = rest;
        }
        gathered
    }

    fn skip_empty(&mut self) {
        while let ([], [next, others @ ..]) = (self.first, self.others) {
            (self.first, self.others) = (next, others);
        }
    }
}

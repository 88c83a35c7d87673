//! The application's bytes as a list of slices, cut into records.

/// A queue of slices that is consumed from the front.
pub(crate) struct ByteQueue<'a> {
    first: &'a [u8],
    others: &'a [&'a [u8]],
}

impl<'a> ByteQueue<'a> {
    pub fn new(pieces: &'a [&'a [u8]]) -> ByteQueue<'a> {
        ByteQueue {
            first: &[],
            others: pieces,
        }
    }

    /// Moves `len` bytes, which must be available, to `to`.
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

    /// Takes `len` bytes, which must be available: borrowed if contiguous, else copied into `gathered`.
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

//! A queue of borrowed slices: the application's data, from which records are cut.

/// A queue of slices that is consumed from the front.
pub(crate) struct ByteQueue<'a> {
    first: &'a [u8],
    rest: &'a [&'a [u8]],
}

impl<'a> ByteQueue<'a> {
    pub fn new(pieces: &'a [&'a [u8]]) -> ByteQueue<'a> {
        ByteQueue {
            first: &[],
            rest: pieces,
        }
    }

    /// Moves `len` bytes, which must be available, to `out`.
    pub fn append(&mut self, len: usize, out: &mut Vec<u8>) {
        let mut missing = len;
        while missing > 0 {
            self.skip_empty();
            let (head, rest) = self.first.split_at(self.first.len().min(missing));
            out.extend_from_slice(head);
            self.first = rest;
            missing -= head.len();
        }
    }

    /// Takes `len` bytes, which must be available: borrowed if contiguous, else copied into `gathered`.
    pub fn take<'g>(&mut self, len: usize, gathered: &'g mut Vec<u8>) -> &'g [u8]
    where
        'a: 'g,
    {
        self.skip_empty();
        if let Some((head, rest)) = self.first.split_at_checked(len) {
            self.first = rest;
            return head;
        }
        gathered.clear();
        gathered.reserve_exact(len);
        while gathered.len() < len {
            self.skip_empty();
            let (head, rest) = self
                .first
                .split_at(self.first.len().min(len - gathered.len()));
            gathered.extend_from_slice(head);
            self.first = rest;
        }
        gathered
    }

    fn skip_empty(&mut self) {
        while let ([], [next, later @ ..]) = (self.first, self.rest) {
            (self.first, self.rest) = (next, later);
        }
    }
}

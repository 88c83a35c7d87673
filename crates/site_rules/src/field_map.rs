//! A map by the name and the content of header fields or cookies.

use std::collections::BTreeMap;

/// Values by field name, and by one content or any content.
pub struct FieldMap<T> {
    /// The values by lower-case name, in ascending order of names.
    names: Vec<(Box<[u8]>, FieldValues<T>)>,
}

/// The values for one name, by content; those for any content have the key `None`.
type FieldValues<T> = BTreeMap<Option<Box<[u8]>>, Vec<T>>;

impl<T> Default for FieldMap<T> {
    fn default() -> Self {
        FieldMap { names: Vec::new() }
    }
}

impl<T> FieldMap<T> {
    /// Adds a value for fields with a name and a content; if `content` is `None`, with any content.
    pub fn insert(&mut self, name: &str, content: Option<&str>, value: T) {
        let name = name.to_ascii_lowercase().into_bytes();
        // The list is kept sorted by name: a look-up is a binary search without allocations.
        let at = match self.position(&name) {
            Ok(at) => at,
            Err(at) => {
                self.names.insert(at, (name.into(), BTreeMap::new()));
                at
            }
        };
        let content = content.map(|content| content.as_bytes().into());
        self.names[at].1.entry(content).or_default().push(value);
    }

    /// Whether the map has no values.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The values that match these fields, which are pairs of name and content.
    pub fn get<'s, 'f>(
        &'s self,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    ) -> impl Iterator<Item = &'s T> {
        let mut found: Vec<&'s Vec<T>> = Vec::new();
        // Without entries, the fields of the request are not even parsed.
        if !self.is_empty() {
            for (name, value) in fields {
                let Ok(at) = self.position(name) else {
                    continue;
                };
                let values = &self.names[at].1;
                // Entries without a content match any content.
                found.extend(values.get(&None));
                found.extend(values.get(&Some(value.into())));
            }
        }
        found.into_iter().flatten()
    }

    fn position(&self, name: &[u8]) -> Result<usize, usize> {
        // Field names are case-insensitive (RFC 9110 §5.1).
        let lower = || name.iter().map(u8::to_ascii_lowercase);
        self.names
            .binary_search_by(|(entry_name, _)| entry_name.iter().copied().cmp(lower()))
    }
}

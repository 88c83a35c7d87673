//! What is stored under one key: a resource in its variants. A file's are its encodings, all made of the first; those of a
//! program's responses are told apart by the fields that Vary names. Knows neither keys nor how variants are made.

use std::sync::Arc;

use lowroad_cache::Keyed;
use lowroad_cache::vary::Selecting;
use lowroad_http::encoding::Encoding;

use super::object::{Object, ObjectArc};

/// Variants of one resource beyond this many drive out the oldest.
const VARIANTS_MAX: usize = 16;

/// The variants under one key.
#[derive(Clone)]
pub struct Entry {
    /// The file itself, what says that there is none, or the latest of a program's responses.
    pub base: ObjectArc,
    /// The others, oldest first.
    others: Option<Arc<Vec<ObjectArc>>>,
}

impl Keyed for Entry {
    /// All variants have the same.
    #[inline]
    fn key(&self) -> &[u8] {
        self.base.key()
    }
}

impl Entry {
    /// With one variant.
    pub fn new(base: ObjectArc) -> Entry {
        Entry { base, others: None }
    }

    /// All variants.
    pub fn variants(&self) -> impl Iterator<Item = &ObjectArc> {
        std::iter::once(&self.base).chain(self.others())
    }

    /// The base in this encoding.
    pub fn encoded(&self, encoding: Encoding) -> Option<&ObjectArc> {
        let is = |object: &&ObjectArc| {
            let representation = object.representation();
            representation.is_some_and(|representation| representation.encoding == encoding)
        };
        self.others().iter().find(is)
    }

    /// Whether this holds for all variants.
    #[inline]
    pub fn all(&self, holds: impl Fn(&Object) -> bool) -> bool {
        holds(&self.base) && self.others().iter().all(|object| holds(object))
    }

    /// The variant for a request with these fields.
    #[inline]
    pub fn selected<'f, F>(&self, request: F) -> Option<&ObjectArc>
    where
        F: Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    {
        let takes = |object: &&ObjectArc| {
            let selecting = object.selecting();
            selecting
                .is_none_or(|selecting| selecting.is_empty() || selecting.takes(request.clone()))
        };
        // Mostly it is the only one.
        match takes(&&self.base) {
            true => Some(&self.base),
            false => self.others().iter().find(takes),
        }
    }

    /// What the variants are told apart by, if they are.
    pub fn selecting(&self) -> Option<&Selecting> {
        let selecting = self.base.selecting();
        selecting.filter(|selecting| !selecting.is_empty())
    }

    /// The same with another encoding of its base.
    pub fn with_encoded(&self, object: ObjectArc) -> Entry {
        let encoding = |of: &Object| of.representation().map(|of| of.encoding);
        let others = self.others().iter();
        let others = others.filter(|other| encoding(other) != encoding(&object));
        Entry {
            base: self.base.clone(),
            others: Some(Arc::new(others.cloned().chain([object.clone()]).collect())),
        }
    }

    /// The same with another response, in the place of the one for the same requests. Where Vary names other fields than
    /// before, the earlier responses go.
    pub fn with_selected(&self, object: ObjectArc) -> Entry {
        let stays = |other: &&ObjectArc| match (other.selecting(), object.selecting()) {
            (Some(old), Some(new)) => old.has_names_of(new) && old != new,
            _ => false,
        };
        let mut others: Vec<ObjectArc> = self.others().to_vec();
        others.push(self.base.clone());
        let mut others: Vec<ObjectArc> = others.iter().filter(stays).cloned().collect();
        let surplus = (others.len() + 1).saturating_sub(VARIANTS_MAX);
        others.drain(..surplus);
        Entry {
            base: object,
            others: (!others.is_empty()).then(|| Arc::new(others)),
        }
    }

    /// The same with no more than so many bytes, or only its base: the oldest go.
    pub fn within(mut self, len_max: u64) -> Entry {
        while self.size() > len_max
            && let Some((_, younger)) = self.others().split_first()
        {
            self.others = (!younger.is_empty()).then(|| Arc::new(younger.to_vec()));
        }
        self
    }

    /// The same without this variant; `None` if it was the only one.
    pub fn without(&self, object: &ObjectArc) -> Option<Entry> {
        let mut left: Vec<ObjectArc> = self
            .variants()
            .filter(|other| !ObjectArc::ptr_eq(other, object))
            .cloned()
            .collect();
        let base = match left.is_empty() {
            true => return None,
            false => left.remove(0),
        };
        Some(Entry {
            base,
            others: (!left.is_empty()).then(|| Arc::new(left)),
        })
    }

    /// Bytes that it occupies.
    pub fn size(&self) -> u64 {
        self.variants().map(|object| object.size()).sum()
    }

    fn others(&self) -> &[ObjectArc] {
        self.others.as_deref().map_or(&[], Vec::as_slice)
    }
}

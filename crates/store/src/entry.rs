//! The entry of a key in the store: the variants of a resource. These are the content codings of a file, or a handler's
//! responses, distinguished by their selecting fields (Vary).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use lowroad_cache::KeyedValue;
use lowroad_cache::vary::SelectingFields;
use lowroad_http::content_coding::ContentCoding;

use super::object::{ObjectArc, StoredObject};

/// The variants under one key.
#[derive(Clone)]
pub struct VariantSet {
    /// The file in identity coding, its absence, or a handler's latest response.
    pub base: ObjectArc,
    /// All variants except the base; most entries have none.
    others: Option<Arc<OtherVariants>>,
}

/// The variants besides the base, shared by all clones of an entry.
struct OtherVariants {
    is_base_used: UseMark,
    /// In eviction order.
    list: Vec<OtherVariant>,
}

#[derive(Clone)]
struct OtherVariant {
    object: ObjectArc,
    is_used: UseMark,
}

/// Whether a variant was selected since the last eviction pass (the second-chance bit).
#[derive(Default)]
struct UseMark(AtomicBool);

impl UseMark {
    fn set(&self) {
        // Written only if the mark changes, since workers share the cache line.
        if !self.0.load(Relaxed) {
            self.0.store(true, Relaxed);
        }
    }

    fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}

impl Clone for UseMark {
    fn clone(&self) -> UseMark {
        UseMark(AtomicBool::new(self.is_set()))
    }
}

impl KeyedValue for VariantSet {
    /// All variants have the same key.
    #[inline]
    fn key(&self) -> &[u8] {
        self.base.key()
    }
}

impl VariantSet {
    /// Creates an entry with one variant.
    pub fn new(base: ObjectArc) -> VariantSet {
        VariantSet { base, others: None }
    }

    /// All variants.
    pub fn variants(&self) -> impl Iterator<Item = &ObjectArc> {
        std::iter::once(&self.base).chain(self.others())
    }

    fn others(&self) -> impl Iterator<Item = &ObjectArc> {
        self.other_variants().iter().map(|variant| &variant.object)
    }

    fn other_variants(&self) -> &[OtherVariant] {
        self.others.as_deref().map_or(&[], |others| &others.list)
    }

    fn with_others(base: ObjectArc, list: Vec<OtherVariant>) -> VariantSet {
        let others = match list.is_empty() {
            true => None,
            false => Some(Arc::new(OtherVariants {
                is_base_used: UseMark::default(),
                list,
            })),
        };
        VariantSet { base, others }
    }

    /// The variant in this content coding.
    pub fn encoded(&self, encoding: ContentCoding) -> Option<&ObjectArc> {
        let has_encoding = |object: &&ObjectArc| {
            let representation = object.representation();
            representation.is_some_and(|representation| representation.encoding == encoding)
        };
        self.others().find(has_encoding)
    }

    /// Whether a condition holds for all variants.
    #[inline]
    pub fn all(&self, holds: impl Fn(&StoredObject) -> bool) -> bool {
        holds(&self.base) && self.others().all(|object| holds(object))
    }

    /// The variant that answers a request with these fields. Sets the variant's second-chance bit.
    #[inline]
    pub fn selected<'f, F>(&self, request: F) -> Option<&ObjectArc>
    where
        F: Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    {
        let selecting = self.selecting();
        // Usually the base is the only variant.
        if selecting.is_none_or(|selecting| selecting.matches(request.clone())) {
            if let Some(others) = &self.others {
                others.is_base_used.set();
            }
            return Some(&self.base);
        }
        let variants = self.other_variants();
        if variants.is_empty() {
            return None;
        }
        // All variants have the same field names in Vary, so one pass over the request suffices.
        let wanted = selecting?.select_from(request);
        let is_wanted = |variant: &&OtherVariant| {
            let selecting = variant.object.selecting();
            selecting.is_none_or(|selecting| selecting.is_empty() || *selecting == wanted)
        };
        let variant = variants.iter().find(is_wanted)?;
        variant.is_used.set();
        Some(&variant.object)
    }

    /// The selecting fields of the base, if it has any.
    pub fn selecting(&self) -> Option<&SelectingFields> {
        let selecting = self.base.selecting();
        selecting.filter(|selecting| !selecting.is_empty())
    }

    /// A copy of the entry with another content coding of the base.
    pub fn with_encoded(&self, object: ObjectArc) -> VariantSet {
        let encoding = |variant: &StoredObject| variant.representation().map(|of| of.encoding);
        let others = self.others();
        // There is only one object for each coding.
        let others = others.filter(|other| encoding(other) != encoding(&object));
        let others = others.chain([&object]).cloned().map(OtherVariant::new);
        VariantSet::with_others(self.base.clone(), others.collect())
    }

    /// A copy of the entry with a new response as its base. An earlier response with the same selecting fields is
    /// replaced. If Vary names other fields than before, all earlier responses are dropped.
    pub fn with_selected(&self, object: ObjectArc) -> VariantSet {
        let is_compatible =
            |other: &OtherVariant| match (other.object.selecting(), object.selecting()) {
                // All variants must have the same names in Vary, since `selected` reads the request only once.
                (Some(old), Some(new)) => old.has_same_names(new) && old != new,
                _ => false,
            };
        // The old base becomes an ordinary variant and keeps its second-chance bit.
        let is_base_used = self
            .others
            .as_ref()
            .map(|others| others.is_base_used.clone());
        let base = OtherVariant {
            object: self.base.clone(),
            is_used: is_base_used.unwrap_or_default(),
        };
        let others = self.other_variants().iter().cloned().chain([base]);
        VariantSet::with_others(object.clone(), others.filter(is_compatible).collect())
    }

    /// Evicts variants until the limits are satisfied or only the base is left; returns the number of evictions. Second
    /// chance: the oldest variant is evicted first, but one that was used since the last pass is skipped once.
    pub fn evict_to_limits(self, variants_max: usize, len_max: u64) -> (VariantSet, usize) {
        let mut size = self.size();
        let count_before = self.other_variants().len();
        if count_before < variants_max && size <= len_max {
            return (self, 0);
        }
        let mut remaining: VecDeque<OtherVariant> = self.other_variants().to_vec().into();
        while remaining.len() >= variants_max || size > len_max {
            let Some(oldest) = remaining.pop_front() else {
                break;
            };
            match oldest.is_used.is_set() {
                true => remaining.push_back(OtherVariant::new(oldest.object)),
                false => size -= oldest.object.size(),
            }
        }
        let evicted = count_before - remaining.len();
        (
            VariantSet::with_others(self.base, remaining.into()),
            evicted,
        )
    }

    /// A copy of the entry without this variant; `None` if it was the only one.
    pub fn without(&self, object: &ObjectArc) -> Option<VariantSet> {
        let is_other = |other: &OtherVariant| !ObjectArc::ptr_eq(&other.object, object);
        let others = self.other_variants().iter().cloned();
        let mut remaining: Vec<OtherVariant> = others.filter(is_other).collect();
        let base = match ObjectArc::ptr_eq(&self.base, object) {
            false => self.base.clone(),
            true if remaining.is_empty() => return None,
            true => remaining.remove(0).object,
        };
        Some(VariantSet::with_others(base, remaining))
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.variants().map(|object| object.size()).sum()
    }
}

impl OtherVariant {
    fn new(object: ObjectArc) -> OtherVariant {
        OtherVariant {
            object,
            is_used: UseMark::default(),
        }
    }
}

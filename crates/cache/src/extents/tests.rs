//! Tests of the allocator: boundary cases by example, and random allocations and frees with a fixed seed.

use super::*;
use alloc::vec::Vec;

fn unit(extents: &mut ExtentAllocator, len: u64) -> ArenaExtent {
    extents
        .allocate(len, ExtentAlign::Unit)
        .expect("there is room")
}

/// Checks the invariants that hold after any operation.
fn check(extents: &ExtentAllocator, allocated: &[ArenaExtent], seed: u64) {
    let free: u64 = extents.free.values().sum();
    assert_eq!(extents.used + free, extents.len, "seed {seed}: used + free");
    assert_eq!(
        extents.used,
        allocated.iter().map(ArenaExtent::len).sum::<u64>(),
        "seed {seed}: used"
    );
    let turned: BTreeSet<_> = extents
        .free
        .iter()
        .map(|(&offset, &len)| (len, offset))
        .collect();
    assert_eq!(
        turned, extents.by_len,
        "seed {seed}: both trees hold the same"
    );

    let mut runs: Vec<(u64, u64, bool)> = extents
        .free
        .iter()
        .map(|(&offset, &len)| (offset, len, true))
        .collect();
    runs.extend(
        allocated
            .iter()
            .map(|extent| (extent.offset(), extent.len(), false)),
    );
    runs.sort_unstable();
    let mut end = 0;
    let mut last_free = false;
    for (offset, len, is_free) in runs {
        assert_eq!(offset, end, "seed {seed}: no overlap and no hole");
        assert!(len > 0, "seed {seed}: empty run");
        assert!(
            !(last_free && is_free),
            "seed {seed}: free neighbours at {offset}"
        );
        (end, last_free) = (offset + len, is_free);
    }
    assert_eq!(end, extents.len, "seed {seed}: the runs cover the arena");
}

#[test]
fn arena_length_is_rounded_down_to_units() {
    for (len, whole) in [
        (0, 0),
        (1, 0),
        (UNIT - 1, 0),
        (UNIT, UNIT),
        (2 * UNIT - 1, UNIT),
        (2 * UNIT, 2 * UNIT),
    ] {
        let extents = ExtentAllocator::new(len);
        assert_eq!(
            (extents.len(), extents.used(), extents.largest_free()),
            (whole, 0, whole)
        );
    }
    assert_eq!(
        ExtentAllocator::new(u64::MAX).largest_free(),
        u64::MAX - (UNIT - 1)
    );
}

#[test]
fn extent_lengths_are_rounded_up_to_units() {
    for (align, asked, len) in [
        (ExtentAlign::Unit, 0, UNIT),
        (ExtentAlign::Unit, 1, UNIT),
        (ExtentAlign::Unit, UNIT, UNIT),
        (ExtentAlign::Unit, UNIT + 1, 2 * UNIT),
        (ExtentAlign::Page, 1, 4096),
        (ExtentAlign::Page, 4096, 4096),
        (ExtentAlign::Page, 4097, 8192),
    ] {
        let mut extents = ExtentAllocator::new(1 << 20);
        let extent = extents.allocate(asked, align).expect("there is room");
        assert_eq!(
            (extent.len(), extents.used(), extent.requested_len()),
            (len, len, asked.max(1)),
            "{asked} {align:?}"
        );
    }
}

#[test]
fn failed_allocation_changes_nothing() {
    let mut extents = ExtentAllocator::new(8192);
    for len in [8193, u64::MAX - 4096, u64::MAX] {
        assert_eq!(extents.allocate(len, ExtentAlign::Unit), None);
        assert_eq!(extents.allocate(len, ExtentAlign::Page), None);
    }
    check(&extents, &[], 0);
    let all = unit(&mut extents, 8192);
    assert_eq!(
        (
            extents.largest_free(),
            extents.allocate(1, ExtentAlign::Unit)
        ),
        (0, None)
    );
    extents.free(all);
    assert_eq!(extents.largest_free(), 8192);
}

#[test]
fn allocation_uses_the_best_fit() {
    let mut extents = ExtentAllocator::new(UNIT * 10);
    let allocated: Vec<ArenaExtent> = [3, 1, 2, 1, 3]
        .map(|units| unit(&mut extents, UNIT * units))
        .into();
    let mut allocated = allocated.into_iter();
    let (three, wall_1) = (
        allocated.next().expect("five"),
        allocated.next().expect("five"),
    );
    let (two, wall_2) = (
        allocated.next().expect("five"),
        allocated.next().expect("five"),
    );
    let (three_offset, two_offset) = (three.offset(), two.offset());
    extents.free(three);
    extents.free(two);
    assert_eq!(
        unit(&mut extents, UNIT + 1).offset(),
        two_offset,
        "two units for a byte more than one"
    );
    assert_eq!(
        unit(&mut extents, UNIT + 1).offset(),
        three_offset,
        "the hole of three is left"
    );
    assert_eq!(
        (wall_1.len(), wall_2.len(), extents.largest_free()),
        (UNIT, UNIT, UNIT)
    );
}

#[test]
fn page_aligned_extents_share_no_page() {
    // Freed pages are returned to the kernel (hole punching), so no other extent may be in them.
    let mut extents = ExtentAllocator::new(4 * PAGE);
    let first = unit(&mut extents, 1);
    let page = extents
        .allocate(1, ExtentAlign::Page)
        .expect("three whole pages are left");
    assert_eq!((page.offset(), page.len()), (PAGE, PAGE));
    let second = unit(&mut extents, 1);
    assert_eq!(
        second.offset(),
        UNIT,
        "the rest of the first page is not lost"
    );
    check(&extents, &[first, page, second], 0);
}

#[test]
fn aligned_search_continues_past_unaligned_extents() {
    // More free extents than `ALIGNED_TRIES_MAX`: ten of one page's length, each half a page off a page boundary, then
    // an aligned one.
    let mut extents = ExtentAllocator::new(64 * PAGE);
    let mut walls = Vec::new();
    let mut holes = Vec::new();
    walls.push(unit(&mut extents, PAGE / 2));
    for _ in 0..10 {
        holes.push(unit(&mut extents, PAGE));
        walls.push(unit(&mut extents, PAGE));
    }
    let rest = extents.largest_free();
    walls.push(unit(&mut extents, rest - 2 * PAGE));
    for hole in holes {
        extents.free(hole);
    }
    let page = extents
        .allocate(PAGE, ExtentAlign::Page)
        .expect("two pages are free at the end");
    assert_eq!(page.offset() % PAGE, 0);
    walls.push(page);
    check(&extents, &walls, 0);
}

#[test]
fn freed_extent_is_merged_with_both_neighbours() {
    let mut extents = ExtentAllocator::new(UNIT * 3);
    let (a, b, c) = (
        unit(&mut extents, 1),
        unit(&mut extents, 1),
        unit(&mut extents, 1),
    );
    extents.free(a);
    extents.free(c);
    assert_eq!((extents.largest_free(), extents.free.len()), (UNIT, 2));
    extents.free(b);
    assert_eq!((extents.largest_free(), extents.free.len()), (UNIT * 3, 1));
}

#[test]
fn random_allocations_account_for_every_byte() {
    for seed in 1..=20u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut random = || crate::xorshift(&mut state);
        let mut extents = ExtentAllocator::new(64 * PAGE);
        let mut allocated: Vec<ArenaExtent> = Vec::new();
        for _ in 0..400 {
            let choice = random();
            if choice % 5 < 3 || allocated.is_empty() {
                let align = if choice % 3 == 0 {
                    ExtentAlign::Page
                } else {
                    ExtentAlign::Unit
                };
                allocated.extend(extents.allocate(random() % (6 * PAGE), align));
            } else {
                let index = usize::try_from(random() % allocated.len() as u64).expect("an index");
                extents.free(allocated.swap_remove(index));
            }
            check(&extents, &allocated, seed);
        }
        allocated.drain(..).for_each(|extent| extents.free(extent));
        check(&extents, &allocated, seed);
        assert_eq!(
            (extents.used(), extents.largest_free()),
            (0, 64 * PAGE),
            "seed {seed}"
        );
    }
}

#[test]
fn short_extent_packs_into_eight_bytes() {
    // `Option<ShortExtent>` must not be larger, hence `NonZeroU64`.
    let mut extents = ExtentAllocator::new(1 << 48);
    let far = extents
        .allocate((1 << 42) + 5, ExtentAlign::Unit)
        .expect("room");
    for asked in [0, 1, 1191, ShortExtent::LEN_MAX] {
        let extent = extents.allocate(asked, ExtentAlign::Unit).expect("room");
        let (offset, asked, len) = (extent.offset(), extent.requested_len(), extent.len());
        let short = ShortExtent::new(extent).expect("it is short");
        assert_eq!((short.offset(), short.requested_len()), (offset, asked));
        let extent = short.extent();
        assert_eq!(
            (extent.offset(), extent.requested_len(), extent.len()),
            (offset, asked, len)
        );
        extents.free(extent);
    }
    let long = extents.allocate(ShortExtent::LEN_MAX + 1, ExtentAlign::Unit);
    let paged = extents.allocate(PAGE, ExtentAlign::Page);
    for extent in [long, paged, Some(far)] {
        let back = ShortExtent::new(extent.expect("room")).expect_err("it is none");
        extents.free(back);
    }
    let farther = extents.allocate(1 << 43, ExtentAlign::Unit).expect("room");
    let behind = extents.allocate(1, ExtentAlign::Unit).expect("room");
    extents.free(ShortExtent::new(behind).expect_err("it lies too far out"));
    extents.free(farther);
    assert_eq!((extents.used(), size_of::<Option<ShortExtent>>()), (0, 8));
}

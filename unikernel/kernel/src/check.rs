//! Self-tests on the virtual machine: `memcpy` and its relatives for all short lengths and several offsets, and the
//! heap while all cores use it. Compiled only with the feature `echo`, since they can run only in the kernel.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hint::black_box;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

unsafe extern "C" {
    fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8;
    fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8;
    fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8;
    fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32;
}

const LEN: usize = 700;
const LENGTHS: usize = 300;

fn sample(n: usize) -> u8 {
    (n * 7 + n / 256 + 1) as u8
}

/// Panics if one of the functions has a wrong result.
pub fn bytes() {
    for len in 0..LENGTHS {
        for (to, from) in [
            (0, 350),
            (3, 351),
            (350, 5),
            (100, 99),
            (99, 100),
            (100, 84),
            (100, 60),
            (100, 140),
            (100, 100),
        ] {
            check_move(to, from, len);
        }
        filled(len);
        check_compare(len);
    }
}

fn check_move(to: usize, from: usize, len: usize) {
    let mut area: [u8; LEN] = core::array::from_fn(sample);
    let is_disjoint = to + len <= from || from + len <= to;
    let base = black_box(area.as_mut_ptr());
    // SAFETY: both ranges are within `area`; `memcpy` is called only for disjoint ranges.
    let returned = unsafe {
        if is_disjoint {
            memcpy(base.add(to), base.add(from), len)
        } else {
            memmove(base.add(to), base.add(from), len)
        }
    };
    assert_eq!(returned, base.wrapping_add(to));
    for (n, byte) in black_box(area).iter().enumerate() {
        let expected = if (to..to + len).contains(&n) {
            sample(n - to + from)
        } else {
            sample(n)
        };
        assert_eq!(*byte, expected, "{len} bytes from {from} to {to}: byte {n}");
    }
}

fn filled(len: usize) {
    let mut area = black_box([1; LEN]);
    // SAFETY: within `area`. memset(3) uses only the low byte of the value.
    unsafe { memset(area.as_mut_ptr().add(5), 0x1a5, len) };
    for (n, byte) in black_box(area).iter().enumerate() {
        assert_eq!(
            *byte,
            if (5..5 + len).contains(&n) { 0xa5 } else { 1 },
            "{len} bytes: byte {n}"
        );
    }
}

fn check_compare(len: usize) {
    let one: [u8; LEN] = black_box(core::array::from_fn(sample));
    let mut other = one;
    // A difference behind the length must not matter.
    other[len] ^= 1;
    // SAFETY: within both arrays.
    assert_eq!(unsafe { memcmp(one.as_ptr(), other.as_ptr(), len) }, 0);
    for n in [0, len / 2, len.saturating_sub(1)] {
        if len > 0 {
            let mut other = one;
            other[n] = one[n].wrapping_add(1);
            let expected = if one[n] < other[n] { -1 } else { 1 };
            // SAFETY: within both arrays.
            let order = unsafe { memcmp(black_box(one.as_ptr()), black_box(other.as_ptr()), len) };
            assert_eq!(order.signum(), expected, "{len} bytes, different at {n}");
        }
    }
}

/// Allocates blocks of many lengths, and frees those of other cores. Panics if another core has written to a block.
pub fn heap() {
    const TIMES: usize = 20_000;
    static KEPT: [AtomicPtr<Vec<u8>>; 61] = [const { AtomicPtr::new(ptr::null_mut()) }; 61];
    let mut state = crate::cpu::ticks() as usize;
    for n in 0..TIMES {
        state = state.wrapping_mul(25_214_903_917).wrapping_add(11);
        let len = state >> 16 & 0x3ff;
        let new = Box::into_raw(Box::new(alloc::vec![len as u8; len]));
        let old = KEPT[n % KEPT.len()].swap(new, Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: the pointer comes from `Box::into_raw` above; after the swap, this core is its only owner.
            let old = unsafe { Box::from_raw(old) };
            let byte = old.len() as u8;
            assert!(
                old.iter().all(|other| *other == byte),
                "{} bytes",
                old.len()
            );
        }
    }
}

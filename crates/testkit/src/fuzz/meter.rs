//! Counts the memory that a thread takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has taken and not given back. It may be negative: others give away what they have taken.
    static TAKEN: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, which counts for each thread what the thread has taken.
#[derive(Debug, Clone, Copy, Default)]
pub struct Meter;

/// Begins to count from nothing.
pub(super) fn begin() {
    TAKEN.set(0);
    PEAK.set(0);
}

/// The most that was taken at a time since then.
pub(super) fn peak() -> usize {
    usize::try_from(PEAK.get()).unwrap_or_default()
}

fn count(bytes: isize) {
    // A thread that ends may have no counters any more.
    let _ = TAKEN.try_with(|taken| {
        let now = taken.get().saturating_add(bytes);
        taken.set(now);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now)));
    });
}

const fn signed(bytes: usize) -> isize {
    bytes.cast_signed()
}

// SAFETY: all of it is done by the system's allocator, with the same arguments.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(signed(size) - signed(layout.size()));
        unsafe { System.realloc(at, layout, size) }
    }
}

//! Hints about memory: what is needed next, and what is large. They change nothing but how long a run takes.

/// Bytes of a cache line, the unit of a hint.
const LINE: usize = 64;

/// Prefetches the cache lines of a value that is used soon. `place` need not be valid.
#[inline(always)]
pub fn prefetch<T>(place: *const T) {
    let first = place.cast::<i8>();
    let mut offset = 0;
    while offset < size_of::<T>() {
        prefetch_line(first.wrapping_add(offset));
        offset += LINE;
    }
}

/// A slab of at least this many bytes asks for huge pages. A smaller one would waste most of a page.
const HUGE_BYTES: usize = 4 << 20;

/// Adds to a slab. A large one asks the kernel for huge pages, because its entries are used in random order and each
/// would cost a TLB entry.
pub fn push<T>(slab: &mut Vec<T>, value: T) {
    if slab.len() == slab.capacity() {
        slab.reserve(1);
        advise(slab);
    }
    slab.push(value);
}

/// A slab with room for `capacity` values.
pub fn slab<T>(capacity: usize) -> Vec<T> {
    let mut slab = Vec::with_capacity(capacity);
    advise(&mut slab);
    slab
}

fn advise<T>(slab: &mut Vec<T>) {
    if slab.capacity() * size_of::<T>() >= HUGE_BYTES {
        advise_huge(slab);
    }
}

#[cfg(target_os = "linux")]
fn advise_huge<T>(slab: &mut Vec<T>) {
    const PAGE: usize = 4096;
    let start = slab.as_mut_ptr().cast::<u8>();
    let skipped = start.align_offset(PAGE);
    let bytes = (slab.capacity() * size_of::<T>()).saturating_sub(skipped) / PAGE * PAGE;
    // SAFETY: the pages are this vector's own allocation, and this advice changes no contents. If the kernel refuses
    // it, nothing is lost.
    unsafe {
        libc::madvise(start.add(skipped).cast(), bytes, libc::MADV_HUGEPAGE);
    }
}

#[cfg(not(target_os = "linux"))]
fn advise_huge<T>(_: &mut Vec<T>) {}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch_line(place: *const i8) {
    // SAFETY: SSE is part of x86_64, and the instruction accepts any address: it reads nothing that a program could
    // see.
    unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(place) }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn prefetch_line(place: *const i8) {
    // SAFETY: the instruction accepts any address: it reads nothing that a program could see.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
fn prefetch_line(_: *const i8) {}

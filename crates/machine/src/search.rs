//! The search inside an index node: how many of its sorted keys are `<= key`.
//!
//! With AVX-512 eight keys are compared by one instruction. The choice is made at run time, so one binary serves every
//! x86-64 processor.

use std::sync::atomic::Ordering;

use crate::Atomic64;

/// Without branches on the keys: a mispredicted branch costs more than the whole scan of a node.
#[inline(always)]
pub(crate) fn count_le_scalar<A: Atomic64>(keys: &[A], len: usize, key: u64) -> usize {
    // Relaxed: the caller validates the node's version after the search.
    keys[..len].iter().map(|word| usize::from(word.load(Ordering::Relaxed) <= key)).sum()
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

    /// 0: not asked yet; 1: absent; 2: present.
    static AVX512: AtomicU8 = AtomicU8::new(0);

    #[cold]
    fn detect() -> u8 {
        // AVX512F for the comparison, AVX512DQ for the 8-bit mask move.
        let present = std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512dq");
        let answer = 1 + u8::from(present);
        // Relaxed: every thread finds the same answer.
        AVX512.store(answer, Ordering::Relaxed);
        answer
    }

    #[inline(always)]
    pub(super) fn present() -> bool {
        match AVX512.load(Ordering::Relaxed) {
            0 => detect() == 2,
            answer => answer == 2,
        }
    }

    /// A bit for each of the eight `keys` that is `<= key`.
    ///
    /// The words may be written meanwhile. Rust has no vector atomics, so the load is assembly, which stands for eight
    /// relaxed atomic loads: x86-64 processors never tear an aligned 8-byte element of a vector load.
    ///
    /// # Safety
    /// The processor has AVX512F and AVX512DQ.
    #[inline(always)]
    pub(super) unsafe fn le_mask(keys: &[AtomicU64; 8], key: u64) -> u32 {
        let mask: u32;
        // SAFETY: reads the 64 bytes of `keys` and nothing else; the caller vouches for the instructions. Registers zmm16 and
        // up are used since their upper halves cause no transition penalty for the SSE code around.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm16, {key}",
                "vpcmpuq k1, zmm16, zmmword ptr [{keys}], 5",
                "kmovb {mask:e}, k1",
                key = in(reg) key,
                keys = in(reg) keys.as_ptr(),
                mask = lateout(reg) mask,
                out("xmm16") _,
                out("k1") _,
                options(nostack, readonly, preserves_flags),
            );
        }
        mask
    }
}

/// As [`count_le_scalar`], with vector instructions where the processor has them.
///
/// Up to 64 keys are compared whatever `len` is, and the comparisons beyond it are masked away: the number of keys in a node
/// cannot be predicted, so a loop that ends with `len` costs a mispredicted branch.
#[inline(always)]
pub(crate) fn count_le(keys: &[std::sync::atomic::AtomicU64], len: usize, key: u64) -> usize {
    #[cfg(target_arch = "x86_64")]
    if avx512::present() {
        let (chunks, rest) = keys.as_chunks::<8>();
        if chunks.len() <= 8 {
            let mut mask = 0u64;
            for (i, chunk) in chunks.iter().enumerate() {
                // SAFETY: `present` said so.
                mask |= u64::from(unsafe { avx512::le_mask(chunk, key) }) << (8 * i);
            }
            let vectored = len.min(8 * chunks.len());
            let wanted = if vectored < 64 { (1 << vectored) - 1 } else { u64::MAX };
            // The keys are sorted, so the ones come first; to find the first 0 takes fewer instructions than to count.
            let count = (!(mask & wanted)).trailing_zeros() as usize;
            return if rest.is_empty() { count } else { count + count_le_scalar(rest, len - vectored, key) };
        }
    }
    count_le_scalar(keys, len, key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn vector_and_scalar_agree_on_every_length_and_boundary() {
        for size in [5, 37, 64, 70, 72] {
            vector_and_scalar_agree(size);
        }
    }

    fn vector_and_scalar_agree(size: u64) {
        let keys: Vec<AtomicU64> = (0..size).map(|i| AtomicU64::new(i * 3)).collect();
        for len in 0..=keys.len() {
            for key in (0..220).chain([u64::MAX, 1 << 63]) {
                let expected = (0..len as u64).filter(|i| i * 3 <= key).count();
                assert_eq!(count_le(&keys, len, key), expected, "len {len} key {key}");
                assert_eq!(count_le_scalar(&keys, len, key), expected, "len {len} key {key}");
            }
        }
    }

    #[test]
    fn comparison_is_unsigned() {
        let keys: Vec<AtomicU64> = [0, 1, i64::MAX as u64, 1 << 63, u64::MAX].map(AtomicU64::new).into();
        assert_eq!(count_le(&keys, 5, i64::MAX as u64), 3);
        assert_eq!(count_le(&keys, 5, u64::MAX), 5);
    }
}

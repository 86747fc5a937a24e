//! Comparing whole lines of words at once.
//!
//! With AVX-512 one instruction compares eight words. The choice is made at run time, so that one
//! binary serves every x86-64 processor.
//!
//! A comparison orders nothing, as eight relaxed loads would order nothing. The caller's version
//! check (`Node::is_at` of the ordered index) decides afterwards whether the words were of one
//! state.

use std::sync::atomic::AtomicU64;

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
        // Relaxed: pairs with the load in `present`. Several threads may get here at once. Each
        // stores the same answer, so a plain store suffices.
        AVX512.store(answer, Ordering::Relaxed);
        answer
    }

    #[inline(always)]
    pub(super) fn present() -> bool {
        // Relaxed: an answer publishes nothing but itself; pairs with the store in `detect`.
        match AVX512.load(Ordering::Relaxed) {
            0 => detect() == 2,
            answer => answer == 2,
        }
    }

    /// Returns a bit for each of the eight `words` that is `<= bound`.
    ///
    /// Other cores may write the words meanwhile. Rust has no vector atomics, so the load is
    /// assembly, which stands for eight relaxed atomic loads: x86-64 processors never tear an
    /// aligned 8-byte element of a vector load.
    ///
    /// # Safety
    /// The processor has AVX512F and AVX512DQ.
    #[inline(always)]
    pub(super) unsafe fn le_mask(words: &[AtomicU64; 8], bound: u64) -> u32 {
        let mask: u32;
        // SAFETY: reads the 64 bytes of `words` and nothing else; the caller vouches for the
        // instructions. Registers zmm16 and up are used since their upper halves cause no
        // transition penalty for the SSE code around. The block is not `nomem`: so the compiler
        // leaves it before the Acquire fence that follows a search, as it leaves a load there.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm16, {bound}",
                "vpcmpuq k1, zmm16, zmmword ptr [{words}], 5",
                "kmovb {mask:e}, k1",
                bound = in(reg) bound,
                words = in(reg) words.as_ptr(),
                mask = lateout(reg) mask,
                out("xmm16") _,
                out("k1") _,
                options(nostack, readonly, preserves_flags),
            );
        }
        mask
    }
}

/// Returns a bit for each word of these lines that is `<= bound`, the first word's lowest. `None`
/// if the processor has no vector instruction for it, or there are more than 8 lines.
#[inline(always)]
pub(crate) fn le_mask(lines: &[[AtomicU64; 8]], bound: u64) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    if avx512::present() && lines.len() <= 8 {
        let mut mask = 0u64;
        for (number, line) in lines.iter().enumerate() {
            // SAFETY: `present` said so.
            mask |= u64::from(unsafe { avx512::le_mask(line, bound) }) << (8 * number);
        }
        return Some(mask);
    }
    let _ = (lines, bound);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_a_bit_for_each_word_that_is_not_above() {
        let words: Vec<AtomicU64> = [0, 1, 7, i64::MAX as u64, 1 << 63, u64::MAX, 2, 3].map(AtomicU64::new).into();
        let (lines, _) = words.as_chunks::<8>();
        for bound in [0, 1, 6, 7, i64::MAX as u64, 1 << 63, u64::MAX] {
            let expected = words
                .iter()
                .enumerate()
                .map(|(i, word)| u64::from(word.load(std::sync::atomic::Ordering::Relaxed) <= bound) << i);
            let expected: u64 = expected.sum();
            assert!(le_mask(lines, bound).is_none_or(|mask| mask == expected), "bound {bound}");
        }
        assert_eq!(le_mask(&[], 5).unwrap_or(0), 0);
    }
}

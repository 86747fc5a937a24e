//! Comparing whole lines of words, or bytes, at once.
//!
//! With AVX-512 one instruction compares eight words. The choice is made at run time, so that one
//! binary serves every x86-64 processor. Bytes are compared by what all of these have (SSE2).
//!
//! A comparison orders nothing, as eight relaxed loads would order nothing. The caller's version
//! check (`Node::is_at` of the ordered index) decides afterwards whether the words were of one
//! state.

use std::sync::atomic::AtomicU64;

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

    /// Not asked yet, absent, or present.
    static AVX512: AtomicU8 = AtomicU8::new(UNKNOWN);
    const UNKNOWN: u8 = 0;
    const ABSENT: u8 = 1;
    const PRESENT: u8 = 2;

    /// Finds out whether the processor has the instructions.
    #[cold]
    fn detect() -> bool {
        // AVX512F for the comparison, AVX512DQ for the 8-bit mask move, AVX512BW for longer ones.
        let present = std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512dq")
            && std::arch::is_x86_feature_detected!("avx512bw");
        // Relaxed: pairs with the load in `present`. Several threads may get here at once. Each
        // stores the same answer, so a plain store suffices.
        AVX512.store(if present { PRESENT } else { ABSENT }, Ordering::Relaxed);
        present
    }

    #[inline(always)]
    pub(super) fn present() -> bool {
        // Relaxed: an answer publishes nothing but itself; pairs with the store in `detect`.
        let answer = AVX512.load(Ordering::Relaxed);
        answer == PRESENT || (answer == UNKNOWN && detect())
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

    /// As [`le_mask`], of five lines, with the first line's bits lowest.
    ///
    /// # Safety
    /// The processor has AVX512F, AVX512DQ and AVX512BW.
    #[inline(always)]
    pub(super) unsafe fn le_mask_of_five(lines: &[[AtomicU64; 8]; 5], bound: u64) -> u64 {
        let mask: u64;
        // SAFETY: as in `le_mask`, with the 320 bytes of `lines`.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm16, {bound}",
                "vpcmpuq k1, zmm16, zmmword ptr [{lines}], 5",
                "vpcmpuq k2, zmm16, zmmword ptr [{lines} + 64], 5",
                "vpcmpuq k3, zmm16, zmmword ptr [{lines} + 128], 5",
                "vpcmpuq k4, zmm16, zmmword ptr [{lines} + 192], 5",
                "vpcmpuq k5, zmm16, zmmword ptr [{lines} + 256], 5",
                // The first operand's bits become the upper half of the result.
                "kunpckbw k1, k2, k1",
                "kunpckbw k3, k4, k3",
                "kunpckwd k1, k3, k1",
                "kunpckdq k1, k5, k1",
                "kmovq {mask}, k1",
                bound = in(reg) bound,
                lines = in(reg) lines.as_ptr(),
                mask = lateout(reg) mask,
                out("xmm16") _,
                out("k1") _,
                out("k2") _,
                out("k3") _,
                out("k4") _,
                out("k5") _,
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
    if lines.len() <= 8 && avx512::present() {
        if let Some((five, [])) = lines.split_first_chunk() {
            // A node of the ordered index has as many. SAFETY: `present` said so.
            return Some(unsafe { avx512::le_mask_of_five(five, bound) });
        }
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

/// Returns a bit for each byte of these words that is `byte`, the first word's lowest byte first.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(crate) fn eq_mask(words: &[AtomicU64; 4], byte: u8) -> u64 {
    let (low, high): (u32, u32);
    let wanted = u64::from(byte) * crate::ONES;
    // SAFETY: reads the 32 bytes of `words` and nothing else, by instructions that each x86-64
    // processor has. As in `avx512::le_mask` the loads stand for relaxed atomic ones, and stay
    // before an Acquire fence.
    unsafe {
        std::arch::asm!(
            "movq {wide}, {wanted}",
            "punpcklqdq {wide}, {wide}",
            "movdqu {part}, xmmword ptr [{words}]",
            "pcmpeqb {part}, {wide}",
            "pmovmskb {low:e}, {part}",
            "movdqu {part}, xmmword ptr [{words} + 16]",
            "pcmpeqb {part}, {wide}",
            "pmovmskb {high:e}, {part}",
            wanted = in(reg) wanted,
            words = in(reg) words.as_ptr(),
            wide = out(xmm_reg) _,
            part = out(xmm_reg) _,
            low = out(reg) low,
            high = lateout(reg) high,
            options(nostack, readonly, preserves_flags),
        );
    }
    u64::from(low | high << 16)
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

    #[test]
    fn five_lines_give_the_bits_of_each() {
        let words: Vec<AtomicU64> = (0..40).map(|i| AtomicU64::new(i * 3)).collect();
        let (lines, _) = words.as_chunks::<8>();
        for bound in (0..130).chain([u64::MAX]) {
            let expected = (0..40u64).filter(|i| i * 3 <= bound).map(|i| 1 << i).sum::<u64>();
            assert!(le_mask(lines, bound).is_none_or(|mask| mask == expected), "bound {bound}");
        }
    }

    #[test]
    fn equal_bytes_have_their_bits() {
        use crate::{Machine, Native};
        let words = [0x0102_0304_0506_0708, u64::MAX, 0, 0x0100_0100_8001_0001].map(AtomicU64::new);
        let bytes: Vec<u8> =
            words.iter().flat_map(|word| word.load(std::sync::atomic::Ordering::Relaxed).to_le_bytes()).collect();
        for byte in 0..=255 {
            let expected = bytes.iter().enumerate().filter(|(_, own)| **own == byte).map(|(i, _)| 1 << i).sum::<u64>();
            assert_eq!(Native::eq_mask(&words, byte), expected, "byte {byte}");
            assert_eq!(crate::eq_mask_by_words::<Native>(&words, byte), expected, "byte {byte}");
        }
    }
}

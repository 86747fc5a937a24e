//! Whatever the bytes of a log are, reading it ends, by an error or not, and what was read is found
//! again.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = contend_log::fuzz::read(bytes);
});

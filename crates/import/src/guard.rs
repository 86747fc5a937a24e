//! A limit on the length of a record, so that a file without line ends is not read into memory.

use std::cell::Cell;
use std::io::{Error, Read, Result};
use std::rc::Rc;

/// The most bytes of a line or a record.
pub(crate) const LINE_MAX: u64 = 16 << 20;

/// An input that ends with an error if a record is too long.
pub(crate) struct Guard<R> {
    input: R,
    since: Rc<Cell<u64>>,
}

impl<R: Read> Guard<R> {
    pub(crate) fn new(input: R) -> Self {
        Guard { input, since: Rc::default() }
    }

    /// Returns the bytes that were read since the last record; its reader sets them to 0.
    pub(crate) fn since(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.since)
    }
}

impl<R: Read> Read for Guard<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let read = self.input.read(buffer)?;
        self.since.set(self.since.get() + read as u64);
        if self.since.get() > LINE_MAX {
            return Err(Error::other(format!("a record has more than {LINE_MAX} bytes")));
        }
        Ok(read)
    }
}

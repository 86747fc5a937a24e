//! The copying of a record's row to its worker.

use contend_machine::{Activity, Machine};
use contend_model::{Projection, Span};

use crate::protocol::{Context, Located, SHORT_ROW};

impl<M: Machine> Context<M> {
    /// Copies the columns of a record's row that are asked for to [`Context::row_buffer`]. The
    /// protocol makes sure that the copy of each cell is of one version.
    #[inline(always)]
    pub fn copy_row(&mut self, at: Located<'_, M>, columns: Projection<'_>) {
        M::step("copy row");
        let (table, payload) = (at.table, at.table.payload(at.record));
        let before = (payload.len() > SHORT_ROW).then(M::phase);
        if let Some(before) = before {
            M::enter(before.doing(Activity::Useful));
            if self.row_buffer.len() < payload.len() {
                self.grow_row_buffer(payload.len());
            }
        }
        match columns.words() {
            // The whole payload with the signatures, whichever columns were asked for.
            _ if table.records_history() => M::copy_out(payload, &mut self.row_buffer[..payload.len()]),
            // One word has a straight path: through a pointer to the protocol it is no constant.
            Some([span]) if span.count == 1 => {
                let word = span.first as usize;
                M::copy_out(&payload[word..=word], std::slice::from_mut(&mut self.row_buffer[word]));
            }
            Some(spans) => spans.iter().for_each(|span| self.copy_span(payload, *span)),
            None if table.is_whole(columns.groups()) => M::copy_out(payload, &mut self.row_buffer[..payload.len()]),
            None => table.spans(columns.groups()).for_each(|span| self.copy_span(payload, span)),
        }
        before.into_iter().for_each(M::enter);
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn grow_row_buffer(&mut self, words: usize) {
        self.row_buffer.resize(words, 0);
    }

    #[inline(always)]
    fn copy_span(&mut self, payload: &[M::U64], span: Span) {
        M::copy_out(&payload[span.words()], &mut self.row_buffer[span.words()]);
    }
}

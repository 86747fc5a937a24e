//! How long epochs were held back.
//!
//! An epoch is *settled* once no transaction can commit in it any more. With a log of epochs it is
//! settled once all commits up to its end are durable. The *lag* is the time from the end of an
//! epoch until it is settled. A worker in a long transaction lets it grow: it sleeps, it waits for
//! its client, or it lost its core.

use std::collections::VecDeque;

/// The lag of the epochs of a session, looked at now and then.
#[derive(Clone, Debug, Default)]
pub(crate) struct EpochLag {
    /// Epochs from the first that is not settled on, and the time in seconds when each was first
    /// seen. An epoch ends when the next one begins.
    began: VecDeque<(u64, f64)>,
    /// The longest lag since it was taken, in seconds.
    longest: f64,
}

impl EpochLag {
    /// Notes the current epoch and the oldest that is not settled, at this time in seconds.
    pub(crate) fn look(&mut self, current: u64, unsettled: u64, now: f64) {
        if self.began.back().is_none_or(|(last, _)| *last < current) {
            self.began.push_back((current, now));
        }
        while self.began.len() > 1 && self.began[0].0 <= unsettled {
            self.began.pop_front();
        }
        if let Some((_, ended)) = self.began.front().filter(|(epoch, _)| *epoch > unsettled) {
            self.longest = self.longest.max(now - ended);
        }
    }

    /// Returns the longest lag since the last call, in seconds.
    pub(crate) fn take(&mut self) -> f64 {
        std::mem::take(&mut self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_is_the_time_from_the_end_of_an_epoch_until_it_is_settled() {
        let mut lag = EpochLag::default();
        lag.look(5, 5, 0.0);
        lag.look(5, 5, 9.0);
        assert_eq!(lag.take(), 0.0, "the current epoch is not over");
        // Epoch 5 is over at 10, and settled after 12.
        lag.look(6, 5, 10.0);
        lag.look(6, 5, 12.0);
        lag.look(6, 6, 13.0);
        assert_eq!((lag.take(), lag.take()), (2.0, 0.0));
        // A log may be several epochs behind: the oldest counts.
        lag.look(7, 6, 20.0);
        lag.look(8, 6, 21.0);
        lag.look(9, 7, 24.0);
        assert_eq!(lag.take(), 3.0, "since the end of epoch 7, at 21");
        lag.look(9, 7, 25.0);
        assert_eq!(lag.take(), 4.0);
        lag.look(9, 9, 30.0);
        assert_eq!(lag.take(), 0.0);
    }
}

//! A client: a thread that runs one transaction after another on a session of its own.

use std::panic::resume_unwind;
use std::sync::Mutex;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use contend_model::random::{SplitMix64, mix};
use contend_workloads::file::view::View;
use contend_workloads::file::{Client, Input};
use hdrhistogram::Histogram;

use crate::connection::{Failure, Session};
use crate::execute::Tried;
use crate::record::Recorded;
use crate::result::Counts;
use crate::run::Run;

/// Tries after which a transaction is taken to be stuck.
const TRIES_MAX: u64 = 10_000;
/// The longest pause before a transaction is tried again. The first pause is a hundredth of it.
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// The pause between attempts to connect again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// Arrivals that are counted one by one when a run has ended.
const COUNTED_MAX: u64 = 1_000_000;
/// The longest time that a client thinks before it looks whether the run is over.
const SLICE: Duration = Duration::from_millis(10);
/// The largest latency that is told from longer ones, in microseconds: ten minutes.
const LATENCY_MAX_US: u64 = 600_000_000;

/// What a client has done.
pub(crate) struct Done {
    pub(crate) counts: Counts,
    /// The latencies of each type, in microseconds.
    pub(crate) latencies: Vec<Histogram<u64>>,
    pub(crate) committed: Vec<Recorded>,
    /// The transactions whose connection was lost at the commit.
    pub(crate) unknown: Vec<Recorded>,
    /// The transactions that have arrived, and those of them that were not begun.
    pub(crate) offered: u64,
    pub(crate) not_begun: u64,
    pub(crate) seconds: f64,
}

/// When a client ends.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    Time(Duration),
    /// This number of transactions, within this time.
    Transactions(u64, Duration),
}

/// The arrivals of a client's transactions: a Poisson process. A process that is split among
/// clients at random is one for each of them.
struct Arrivals {
    random: SplitMix64,
    /// The mean gap, in seconds.
    gap: f64,
    /// The next arrival, in seconds after the begin. It does not move if the last one was served
    /// late.
    due: f64,
}

impl Arrivals {
    fn new(rate: f64, worker: usize, seed: u64) -> Arrivals {
        let mut arrivals = Arrivals { random: SplitMix64::new(mix(!seed) ^ worker as u64), gap: 1.0 / rate, due: 0.0 };
        arrivals.take();
        arrivals
    }

    /// Returns the next arrival, and draws the one after it.
    fn take(&mut self) -> f64 {
        let due = self.due;
        // 1 minus a fraction is above 0, so the logarithm is finite.
        self.due -= (1.0 - self.random.fraction()).ln() * self.gap;
        due
    }

    /// Returns how many more there are until a moment, in seconds after the begin.
    fn until(&mut self, end: f64) -> u64 {
        let mut count = 0;
        while self.due < end && count < COUNTED_MAX {
            self.take();
            count += 1;
        }
        // Draws of all the others could take longer than the run, and would hardly differ from
        // their mean.
        count + ((end - self.due) / self.gap).max(0.0).round() as u64
    }
}

/// A try of a transaction.
pub(crate) struct Try<'a> {
    pub(crate) client: &'a mut Client,
    pub(crate) input: &'a Input,
    /// The number of the client.
    pub(crate) worker: usize,
    /// The number of the client's tries before this one.
    pub(crate) number: u64,
}

/// Runs a try on a session: how it ended, and what was recorded of it.
type Once<'a> = dyn Fn(&mut dyn Session, Try<'_>) -> Result<(Tried, Option<Recorded>), Failure> + Sync + 'a;

pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).expect("valid bounds")
}

impl Run<'_> {
    /// Runs all clients, each on a thread. The first failure ends them all.
    ///
    /// # Errors
    /// A client has failed, in the database's words.
    pub(crate) fn clients(
        &self,
        view: &View,
        until: Until,
        once: impl Fn(&mut dyn Session, Try<'_>) -> Result<(Tried, Option<Recorded>), Failure> + Sync,
    ) -> Result<Vec<Done>, String> {
        let failed = Mutex::new(None);
        let done = std::thread::scope(|scope| {
            let (once, failed) = (&once, &failed);
            let start = |worker: usize| {
                scope.spawn(move || {
                    let client = Running { run: self, view, worker, until, begin: Instant::now(), failed };
                    client.run(once).map_err(|error| {
                        failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(error);
                    })
                })
            };
            let threads: Vec<_> = (0..self.config.clients).map(start).collect();
            // A client that has panicked would be missing in the figures.
            let join = |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            threads.into_iter().filter_map(|thread| join(thread).ok()).collect()
        });
        match failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            Some(error) => Err(error),
            None => Ok(done),
        }
    }
}

/// A client that runs.
struct Running<'a> {
    run: &'a Run<'a>,
    view: &'a View,
    worker: usize,
    until: Until,
    begin: Instant,
    /// The first failure of a client.
    failed: &'a Mutex<Option<String>>,
}

/// What becomes of a transaction after a try.
enum Next {
    /// It has ended.
    Ended,
    /// It is tried again after this pause.
    Again(Duration),
    /// The client needs another session, for this reason. The transaction is tried again or not.
    Reconnect(String, bool),
}

impl Running<'_> {
    fn run(&self, once: &Once<'_>) -> Result<Done, String> {
        let Running { run, view, worker, .. } = *self;
        let mut session = run.place.open_at(worker, true, run.server.product, run.level)?;
        let mut client = view.client(worker, run.config.clients, run.config.seed);
        let mut input = Input::default();
        let mut thinking = SplitMix64::new(mix(run.config.seed) ^ !(worker as u64));
        let mut done = Done {
            counts: Counts::default(),
            latencies: view.kinds().iter().map(|_| histogram()).collect(),
            committed: Vec::new(),
            unknown: Vec::new(),
            offered: 0,
            not_begun: 0,
            seconds: 0.0,
        };
        let mut arrivals = self.arrivals();
        let (mut tries, mut transactions) = (0, 0);
        while !self.is_over(transactions) {
            view.next(&mut client, &mut input);
            let Some(start) = self.start(arrivals.as_mut(), &mut done) else { break };
            let first = tries;
            loop {
                // The input is the same at each try: draws that followed an abort would choose
                // other keys.
                let of = Try { client: &mut client, input: &input, worker, number: tries };
                let tried = once(&mut *session, of);
                tries += 1;
                match self.after(tried, &mut done, (&mut client, &input), start, tries - first)? {
                    Next::Ended => break,
                    Next::Again(pause) => std::thread::sleep(pause),
                    Next::Reconnect(words, is_tried_again) => {
                        let Some(other) = self.reconnect(words, transactions)? else { break };
                        session = other;
                        if !is_tried_again {
                            break;
                        }
                    }
                }
                if self.is_stopped() {
                    break;
                }
            }
            transactions += 1;
            let time = view.think_time(view.kind(&input)).map_or(0.0, |time| time.draw(&mut thinking));
            self.sleep_until(Some(Instant::now() + Duration::from_secs_f64(time / 1e6)), transactions);
        }
        if let (Some(arrivals), Until::Time(length)) = (&mut arrivals, self.until) {
            let late = arrivals.until(length.as_secs_f64());
            done.offered += late;
            done.not_begun += late;
        }
        done.seconds = self.begin.elapsed().as_secs_f64();
        Ok(done)
    }

    /// Returns the arrivals of an open loop. A recorded run has none: it is not measured.
    fn arrivals(&self) -> Option<Arrivals> {
        let Run { config, .. } = self.run;
        let rate = config.rate.filter(|_| matches!(self.until, Until::Time(_)))?;
        Some(Arrivals::new(rate / config.clients as f64, self.worker, config.seed))
    }

    /// Waits for the next arrival. Returns the moment from which the response time counts, or none
    /// if the run ends before.
    fn start(&self, arrivals: Option<&mut Arrivals>, done: &mut Done) -> Option<Instant> {
        let Some(arrivals) = arrivals else { return Some(Instant::now()) };
        // One that is due after the end of time is never due.
        let due = Duration::try_from_secs_f64(arrivals.due).ok().and_then(|due| self.begin.checked_add(due));
        self.sleep_until(due, 0);
        let due = due.filter(|_| !self.is_over(0))?;
        arrivals.take();
        done.offered += 1;
        Some(due)
    }

    /// Sleeps until a moment, or until the run is over. No moment is one that never comes.
    fn sleep_until(&self, moment: Option<Instant>, transactions: u64) {
        while !self.is_over(transactions) && moment.is_none_or(|moment| Instant::now() < moment) {
            let rest = moment.map_or(SLICE, |moment| moment.saturating_duration_since(Instant::now()));
            std::thread::sleep(rest.min(SLICE));
        }
    }

    fn is_stopped(&self) -> bool {
        self.run.watcher.is_stopped() || self.failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).is_some()
    }

    fn is_over(&self, transactions: u64) -> bool {
        let is_at_end = match self.until {
            Until::Time(length) => self.begin.elapsed() >= length,
            Until::Transactions(count, longest) => transactions >= count || self.begin.elapsed() >= longest,
        };
        is_at_end || self.is_stopped()
    }

    /// Counts a try, the transaction's `tries`th, and decides what comes next.
    fn after(
        &self,
        tried: Result<(Tried, Option<Recorded>), Failure>,
        done: &mut Done,
        (client, input): (&mut Client, &Input),
        start: Instant,
        tries: u64,
    ) -> Result<Next, String> {
        let kind = self.view.kind(input);
        let failure = match tried {
            Ok((Tried::Committed, record)) => {
                done.counts.commits += 1;
                done.committed.extend(record);
                self.view.committed(client, input);
                done.latencies[kind].saturating_record((start.elapsed().as_micros() as u64).max(1));
                return Ok(Next::Ended);
            }
            Ok((Tried::Cancelled, _)) => {
                done.counts.cancelled += 1;
                return Ok(Next::Ended);
            }
            Ok((Tried::Unknown(words), record)) => {
                done.counts.unknown += 1;
                done.unknown.extend(record);
                return Ok(Next::Reconnect(words, false));
            }
            Err(failure) => failure,
        };
        let (reason, lost) = match failure {
            Failure::Retry(reason) => (reason, None),
            Failure::Lost(words) => ("connection lost".into(), Some(words)),
            other => return Err(other.words()),
        };
        if tries >= TRIES_MAX {
            let kind = self.view.kinds()[kind];
            return Err(format!("transaction '{kind}' was aborted {TRIES_MAX} times in a row: {reason}"));
        }
        *done.counts.aborts_by_reason.entry(reason).or_default() += 1;
        // The one that is in the way needs time to end.
        let pause = (PAUSE_MAX / 100).saturating_mul(u32::try_from(tries).unwrap_or(u32::MAX)).min(PAUSE_MAX);
        Ok(lost.map_or(Next::Again(pause), |words| Next::Reconnect(words, true)))
    }

    /// Opens another session, on the next host that answers. Returns none if the run is over.
    fn reconnect(&self, words: String, transactions: u64) -> Result<Option<Box<dyn Session>>, String> {
        let Run { config, place, server, level, .. } = self.run;
        let until = Instant::now() + config.reconnect;
        for host in 1.. {
            if config.reconnect.is_zero() || Instant::now() > until {
                break;
            }
            if self.is_over(transactions) {
                return Ok(None);
            }
            if let Ok(session) = place.open_at(self.worker + host, true, server.product, *level) {
                return Ok(Some(session));
            }
            std::thread::sleep(RECONNECT_PAUSE);
        }
        Err(words)
    }
}

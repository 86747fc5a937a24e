//! The rounds of the candidates, and the choice of those that stay.

use std::time::{Duration, Instant};

use contend_model::counted;
use contend_runner::session::{Interval, RunPurpose};
use contend_runner::{Observer, ProtocolPlan, RunConfig, RunError, RunPlan, Stop};

use super::{Candidate, Finalist, MeasuredSplit, plan_of};
use crate::compare::{Entry, Measurements, rates_by_round};
use crate::environment;
use crate::paired::{self, Ratio};
use crate::result::{Environment, Verification};
use contend_proof::verify::verify;
use contend_workloads::ChosenWorkload;
use contend_workloads::file::ColumnSplit;

/// The time that a candidate runs before its first window, in seconds, and the part of a window
/// that it runs before each.
const WARMUP: f64 = 0.02;
pub(super) const WARMUP_AGAIN: f64 = 0.2;
/// A candidate that is within this part of those that stay, in the middle of its rounds, stays too.
const NEAR: f64 = 0.9;

/// A candidate that is measured.
struct Contestant {
    name: String,
    plan: RunPlan,
    entry: Entry,
    /// The contestant whose option or groups it changes.
    base: Option<String>,
    /// The groups of columns that it has in the place of the file's own.
    split: Vec<ColumnSplit>,
    /// Whether the whole verification has passed.
    is_proved: bool,
    /// The windows of the rungs before the final.
    before: Measurements,
}

/// The times that it took to enter the first candidate, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FirstEntry {
    pub(super) proof_seconds: f64,
    pub(super) loading_seconds: f64,
}

/// A candidate that is not measured any more.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Left {
    pub(super) entry: String,
    pub(super) rung: &'static str,
    pub(super) why: String,
    pub(super) of_best: Option<f64>,
}

/// A verification pass: [`verify`], or what a test has in its place.
type Prove = fn(&RunPlan, &ProtocolPlan, &Stop, &dyn Observer) -> Result<Option<Verification>, RunError>;

/// The candidates of all rungs; see [`crate::advise`].
pub(super) struct Tournament<'a> {
    config: &'a RunConfig,
    stop: &'a Stop,
    observer: &'a dyn Observer,
    prove: Prove,
    contestants: Vec<Contestant>,
    left: Vec<Left>,
    /// Rounds so far, of all rungs.
    round: usize,
    /// Windows so far.
    pub(super) windows: usize,
    /// The time that all rounds so far took, in seconds.
    pub(super) measured_seconds: f64,
    pub(super) first_entry: FirstEntry,
    /// Rounds of the final so far.
    pub(super) rounds_of_final: usize,
}

impl<'a> Tournament<'a> {
    pub(super) fn new(config: &'a RunConfig, stop: &'a Stop, observer: &'a dyn Observer) -> Self {
        let (contestants, left) = (Vec::new(), Vec::new());
        Tournament {
            config,
            stop,
            observer,
            prove: verify,
            contestants,
            left,
            round: 0,
            windows: 0,
            measured_seconds: 0.0,
            first_entry: FirstEntry::default(),
            rounds_of_final: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.contestants.len()
    }

    /// Tells the user a sentence at once.
    pub(super) fn tell(&self, line: &str) {
        self.observer.note(line);
    }

    /// Returns the transactions of a whole proof; 0 if there is none.
    pub(super) fn verify_transactions(&self) -> u64 {
        if self.config.verify { self.config.verify_transactions } else { 0 }
    }

    /// Whether a contestant has a window.
    pub(super) fn has_figures(&self) -> bool {
        self.contestants.iter().any(|one| !one.entry.windows.is_empty() || !one.before.is_empty())
    }

    /// Returns the candidates whose tables fit into memory together, by estimates: nothing is built
    /// yet. The others leave.
    ///
    /// # Errors
    /// Fewer fit than there are places in the final.
    pub(super) fn fitting(&mut self, names: &[String]) -> Result<Vec<String>, RunError> {
        let check = |protocols: Vec<String>| -> Result<(), RunError> {
            RunConfig { protocols, ..self.config.clone() }.resolve()?.check_memory(false)
        };
        if check(names.to_vec()).is_ok() {
            return Ok(names.to_vec());
        }
        let mut fit: Vec<String> = Vec::new();
        for name in names {
            match check(fit.iter().chain([name]).cloned().collect()) {
                Ok(()) => fit.push(name.clone()),
                Err(error) if fit.len() < super::FINALISTS => return Err(error),
                Err(_) => self.has_no_memory(name),
            }
        }
        Ok(fit)
    }

    fn has_no_memory(&mut self, name: &str) {
        let why = "there is no memory for its tables beside those of the others".to_string();
        self.left.push(Left { entry: name.into(), rung: "memory", why, of_best: None });
    }

    /// Proves, loads and warms up a candidate. One that breaks its promise leaves at once. `proof`
    /// is the number of transactions of the proof.
    pub(super) fn enter(&mut self, name: &str, proof: u64) -> Result<(), RunError> {
        let plan = plan_of(self.config, name)?;
        self.enter_plan(name, plan, proof)
    }

    fn enter_plan(&mut self, name: &str, mut plan: RunPlan, proof: u64) -> Result<(), RunError> {
        plan.config.verify_transactions = proof.min(self.config.verify_transactions);
        let begun = Instant::now();
        if self.config.verify && proof > 0 && !self.proves(&plan, name)? {
            return Ok(());
        }
        let proof_seconds = begun.elapsed().as_secs_f64();
        if let Err(error) = plan.check_memory(false) {
            if self.len() < super::FINALISTS {
                return Err(error);
            }
            self.has_no_memory(name);
            return Ok(());
        }
        let mut entry = Entry::new(&plan, &plan.protocols[0], RunPurpose::Measure, None)?;
        entry.load(self.stop, self.observer)?;
        if self.contestants.is_empty() {
            let loading_seconds = begun.elapsed().as_secs_f64() - proof_seconds;
            self.first_entry = FirstEntry { proof_seconds, loading_seconds };
        }
        let is_proved = proof >= self.config.verify_transactions;
        self.contestants.push(Contestant {
            name: name.into(),
            plan,
            entry,
            base: None,
            split: Vec::new(),
            is_proved,
            before: Measurements::default(),
        });
        let last = self.contestants.len() - 1;
        self.span(last, WARMUP, false)
    }

    /// Enters a candidate that differs from another one in an option.
    pub(super) fn enter_option(&mut self, base: &str, name: &str) -> Result<(), RunError> {
        let has_failed = self.left.iter().any(|left| left.entry == name && left.rung == "proof");
        if has_failed || self.contestants.iter().any(|one| one.name == name) {
            return Ok(());
        }
        // It may have left before, as a candidate of its own.
        self.left.retain(|left| left.entry != name);
        self.enter(name, u64::MAX)?;
        if let Some(one) = self.contestants.iter_mut().find(|one| one.name == name) {
            one.base = Some(base.into());
        }
        Ok(())
    }

    /// Enters the fastest contestant that can split timestamps once more for each way to group the
    /// columns of a workload file that may pay.
    pub(super) fn enter_splits(&mut self) -> Result<(), RunError> {
        let ChosenWorkload::File(file) = self.config.chosen_workload()? else { return Ok(()) };
        let with_ts = |name: &str| match name.split('+').any(|part| part == "ts") {
            true => name.to_string(),
            false => format!("{name}+ts"),
        };
        let splits = file.splits();
        let order = order(&self.rates());
        let mut names = order.iter().map(|number| self.contestants[*number].name.clone());
        let Some(base) = names.find(|name| plan_of(self.config, &with_ts(name)).is_ok()) else { return Ok(()) };
        for split in splits {
            let workload_text = Some(file.with_splits(&split));
            let config = RunConfig { workload_text, ..self.config.clone() };
            let plan = plan_of(&config, &with_ts(&base))?;
            let tables: Vec<String> = split.iter().map(ColumnSplit::in_words).collect();
            let name = format!("{} with {}", with_ts(&base), tables.join("; "));
            self.enter_plan(&name, plan, u64::MAX)?;
            if let Some(one) = self.contestants.iter_mut().find(|one| one.name == name) {
                (one.base, one.split) = (Some(base.clone()), split);
            }
        }
        Ok(())
    }

    /// Runs a verification pass. If it fails, the candidate leaves.
    fn proves(&mut self, plan: &RunPlan, name: &str) -> Result<bool, RunError> {
        let verification = (self.prove)(plan, &plan.protocols[0], self.stop, self.observer)?;
        if self.stop.is_requested() {
            return Err(RunError::Stopped);
        }
        let passed = verification.as_ref().is_none_or(|it| it.passed);
        if !passed {
            let why = verification.map(|it| it.verdict).unwrap_or_default();
            self.left.push(Left { entry: name.into(), rung: "proof", why, of_best: None });
        }
        Ok(passed)
    }

    /// Runs the whole verification of each that has not passed it yet.
    pub(super) fn prove_all(&mut self) -> Result<(), RunError> {
        if !self.config.verify {
            return Ok(());
        }
        let contestants = std::mem::take(&mut self.contestants);
        for mut one in contestants {
            one.plan.config.verify_transactions = self.config.verify_transactions;
            if one.is_proved || self.proves(&one.plan, &one.name)? {
                one.is_proved = true;
                self.contestants.push(one);
            }
        }
        Ok(())
    }

    pub(super) fn refuse_if_empty(&self) -> Result<(), RunError> {
        let Some(first) = self.left.first().filter(|_| self.contestants.is_empty()) else { return Ok(()) };
        Err(RunError::CheckFailed(format!("no candidate keeps its promise; {}: {}", first.entry, first.why)))
    }

    /// Runs a contestant for a time, and keeps the window if it is measured.
    fn span(&mut self, number: usize, seconds: f64, is_measured: bool) -> Result<(), RunError> {
        let round = self.round;
        let Contestant { entry, .. } = &mut self.contestants[number];
        let Some(session) = entry.session.as_mut() else { return Ok(()) };
        let interval = Interval { length: Duration::from_secs_f64(seconds), transactions_max: None };
        let count = session.run(interval, self.stop, &|_| ())?;
        if self.stop.is_requested() {
            return Err(RunError::Stopped);
        }
        if is_measured {
            entry.keep(round, &count);
            self.windows += 1;
        }
        Ok(())
    }

    /// Measures rounds, with a window of each contestant in a drawn order.
    pub(super) fn rounds(&mut self, rounds: usize, seconds: f64) -> Result<(), RunError> {
        let begun = Instant::now();
        self.observer.begin(&counted(self.len(), "candidate"), (rounds * self.len()) as u64);
        for _ in 0..rounds {
            self.round += 1;
            for turn in paired::turns(self.len(), self.round, self.config.seed) {
                self.span(turn, seconds * WARMUP_AGAIN, false)?;
                self.span(turn, seconds, true)?;
                self.observer.advance(1);
            }
        }
        self.observer.end();
        self.measured_seconds += begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// Puts the windows of the rungs before the final aside.
    pub(super) fn begin_final(&mut self) {
        self.contestants.iter_mut().for_each(|one| one.before = one.entry.take_windows());
    }

    /// Takes back the windows of the rungs if no round of the final is complete.
    fn without_final(&mut self) {
        if self.rounds_of_final > 0 {
            return;
        }
        for one in &mut self.contestants {
            let before = std::mem::take(&mut one.before);
            if !before.is_empty() {
                one.entry.put_back(before);
            }
        }
        // An option that has no window was never measured.
        self.contestants.retain(|one| !one.entry.windows.is_empty());
    }

    fn rates(&self) -> Vec<Vec<f64>> {
        rates_by_round(&self.contestants.iter().map(|one| &one.entry.windows[..]).collect::<Vec<_>>())
    }

    /// Returns the name of the fastest so far.
    pub(super) fn best(&self) -> String {
        self.contestants[order(&self.rates())[0]].name.clone()
    }

    pub(super) fn plan_of(&self, name: &str) -> Result<RunPlan, RunError> {
        plan_of(self.config, name)
    }

    /// Lets all leave but the first `most`; with `is_generous`, those that are near them stay too.
    pub(super) fn leave(&mut self, rung: &'static str, most: usize, is_generous: bool) {
        let rates = self.rates();
        let order = order(&rates);
        let stays = survivors(&rates, &order, most, is_generous);
        let best = order.first().map(|best| rates[*best].clone()).unwrap_or_default();
        let mut left = Vec::new();
        let mut kept = Vec::new();
        for (number, one) in std::mem::take(&mut self.contestants).into_iter().enumerate() {
            if stays.contains(&number) {
                kept.push(one);
            } else {
                let of_best = middle(&rates[number], &best);
                let why = format!("{:.0} % of the fastest then", of_best.unwrap_or(0.0) * 100.0);
                left.push(Left { entry: one.name, rung, why, of_best });
            }
        }
        // Those that were nearest come last: the list is shown from its end.
        left.sort_by(|a, b| a.of_best.unwrap_or(0.0).total_cmp(&b.of_best.unwrap_or(0.0)));
        self.left.extend(left);
        self.contestants = kept;
    }

    /// Returns the plan of the first contestant and the environment.
    pub(super) fn setting(&self) -> Result<(RunPlan, Environment), RunError> {
        let plan = &self.contestants.first().ok_or(RunError::Stopped)?.plan;
        let mut plan = plan.clone();
        plan.config.protocols = self.config.protocols.clone();
        plan.config.verify_transactions = self.config.verify_transactions;
        let environment = environment::here(&plan);
        Ok((plan, environment))
    }

    /// Ends all transactions, and checks the rows of each. Returns the finalists, the fastest
    /// first; the groups of columns that were measured; all candidates, those that left last
    /// first; and what the checks of the contestants said, with their names.
    pub(super) fn ended(mut self) -> Result<Ended, RunError> {
        self.without_final();
        let contestants = std::mem::take(&mut self.contestants);
        for mut one in contestants {
            one.entry.settle()?;
            one.entry.check(self.observer);
            match one.entry.check.as_ref().filter(|check| !check.passed) {
                Some(check) => {
                    let why = format!("the workload's check failed: {}", check.text);
                    self.left.push(Left { entry: one.name, rung: "final", why, of_best: None });
                }
                None => self.contestants.push(one),
            }
        }
        let checks = self.contestants.iter().filter_map(|one| Some((one.name.clone(), one.entry.check.clone()?.text)));
        let checks: Vec<(String, String)> = checks.collect();
        let rates = self.rates();
        let error = paired::ERROR / paired::pairs(rates.len()).max(1) as f64;
        let to_base = |number: usize| {
            let base = self.contestants[number].base.as_ref()?;
            let base = self.contestants.iter().position(|other| other.name == *base)?;
            Ratio::of(&rates[number], &rates[base], error)
        };
        let of_splits = |number: &usize| !self.contestants[*number].split.is_empty();
        let (splits, plain): (Vec<usize>, Vec<usize>) = (0..rates.len()).partition(of_splits);
        let of_plain: Vec<Vec<f64>> = plain.iter().map(|number| rates[*number].clone()).collect();
        let judged = paired::judge(&of_plain, &vec![true; plain.len()], None, error);
        let finalist = |position: &usize| {
            let one = &self.contestants[plain[*position]];
            Some(Finalist {
                entry: one.name.clone(),
                is_option: one.base.is_some(),
                measured: one.entry.measured(&one.plan, false)?,
                to_first: judged.to_first[*position],
                is_best: judged.groups[*position] == Some(1),
                to_base: to_base(plain[*position]),
            })
        };
        let mut finalists: Vec<Finalist> = judged.order.iter().filter_map(finalist).collect();
        // The fastest is the one with which the others are compared.
        finalists.sort_by_key(|it| it.to_first.is_some());
        let splits = splits.into_iter().map(|number| self.contestants[number].measured_split(to_base(number)));
        let splits = splits.collect();
        let mut candidates: Vec<Candidate> = finalists
            .iter()
            .map(|it| Candidate::new(&it.entry, "final", String::new(), it.to_first.map(|ratio| ratio.ratio)))
            .collect();
        candidates.extend(self.left.into_iter().rev().map(Candidate::from));
        Ok((finalists, splits, candidates, checks))
    }
}

/// The finalists, the measured groups of columns, all candidates, and the checks' texts by entry.
type Ended = (Vec<Finalist>, Vec<MeasuredSplit>, Vec<Candidate>, Vec<(String, String)>);

impl Contestant {
    fn measured_split(&self, to_base: Option<Ratio>) -> MeasuredSplit {
        MeasuredSplit {
            tables: self.split.iter().map(ColumnSplit::in_words).collect(),
            lines: self.split.iter().map(ColumnSplit::line).collect(),
            entry: self.plan.protocols[0].name.clone(),
            base: self.base.clone().unwrap_or_default(),
            to_base,
        }
    }
}

/// Returns the entries by the median of their shares of each round, the fastest first.
fn order(rates: &[Vec<f64>]) -> Vec<usize> {
    paired::judge(rates, &vec![true; rates.len()], None, 1.0).order
}

/// Returns the median of the ratios of one entry's rates to another's.
fn middle(rates: &[f64], others: &[f64]) -> Option<f64> {
    let mut ratios: Vec<f64> = rates.iter().zip(others).map(|(rate, other)| rate / other).collect();
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).copied()
}

/// Returns those that stay: the first `most` in this order, and with `is_generous` each that was as
/// fast as the last of these in a round, or is near it.
fn survivors(rates: &[Vec<f64>], order: &[usize], most: usize, is_generous: bool) -> Vec<usize> {
    let (kept, others) = order.split_at(most.min(order.len()));
    let Some(last) = kept.last().map(|last| &rates[*last]) else { return Vec::new() };
    let is_near = |other: &&usize| {
        let rates = &rates[**other];
        let ties = rates.iter().zip(last).any(|(rate, last)| rate >= last);
        ties || middle(rates, last).is_some_and(|ratio| ratio >= NEAR)
    };
    kept.iter().chain(others.iter().filter(|other| is_generous && is_near(other))).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use contend_proof::verify::verify_session;
    use contend_protocols::fault::{Only, id};
    use contend_protocols::optimistic::silo::Silo;
    use contend_runner::Silent;
    use contend_runner::session::session_of;
    use contend_workloads::ycsb::Ycsb;

    /// Silo that does not validate, in the place of TicToc.
    type Broken = Silo<Only<{ id("ignore_locks_in_validation") }, { id("skip_validation_of_written") }>>;

    fn prove(
        plan: &RunPlan,
        protocol: &ProtocolPlan,
        stop: &Stop,
        observer: &dyn Observer,
    ) -> Result<Option<Verification>, RunError> {
        if protocol.name != "tictoc" {
            return verify(plan, protocol, stop, observer);
        }
        let mut session = session_of::<Broken, Ycsb>(&plan.config, RunPurpose::Verify)?;
        verify_session(&mut *session, &protocol.name, plan.config.verify_transactions, stop, observer)
    }

    #[test]
    fn a_candidate_that_breaks_its_promise_leaves_with_its_anomaly_and_the_others_go_on() {
        let settings = [("ycsb.records", "20"), ("ycsb.rmw", "on"), ("ycsb.ops", "6"), ("ycsb.payload", "64")];
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let config = RunConfig { settings, threads: 4, ..RunConfig::default() };
        let stop = Stop::default();
        let mut tournament = Tournament { prove, ..Tournament::new(&config, &stop, &Silent) };
        for name in ["silo", "tictoc", "2pl-nowait"] {
            tournament.enter(name, 20_000).expect("the others go on");
        }
        tournament.refuse_if_empty().expect("there are others");
        tournament.rounds(1, 0.01).expect("windows");
        let (finalists, _, candidates, checks) = tournament.ended().expect("figures");
        let names: Vec<&str> = finalists.iter().map(|it| it.entry.as_str()).collect();
        assert!(names.len() == 2 && !names.contains(&"tictoc"), "{names:?}");
        assert!(checks.len() == 2 && checks.iter().all(|(_, text)| text.contains("rows")), "{checks:?}");
        let refused = candidates.iter().find(|it| it.entry == "tictoc").expect("it is told");
        assert!(refused.left == "proof" && refused.why.contains("G"), "{refused:?}");
        let mut all_broken = Tournament { prove, ..Tournament::new(&config, &stop, &Silent) };
        all_broken.enter("tictoc", 20_000).expect("no error yet");
        let error = all_broken.refuse_if_empty().expect_err("none is left").to_string();
        assert!(error.contains("no candidate keeps its promise; tictoc: "), "{error}");
        // A candidate that had no first proof is proved before the final.
        let mut late = Tournament { prove, ..Tournament::new(&config, &stop, &Silent) };
        ["silo", "tictoc"].iter().for_each(|name| late.enter(name, 0).expect("nothing is judged"));
        late.prove_all().expect("one is left");
        assert_eq!((late.len(), late.left[0].entry.as_str(), late.left[0].rung), (1, "tictoc", "proof"));
    }

    #[test]
    fn the_best_stay_and_with_them_those_that_are_near() {
        let rates = vec![
            vec![1.0, 1.1, 1.0],
            vec![2.0, 2.1, 2.0],
            vec![0.95, 1.0, 0.97],
            vec![0.5, 0.5, 1.2],
            vec![0.5, 0.5, 0.5],
        ];
        let order = order(&rates);
        assert_eq!((order[0], order[1], order[4]), (1, 0, 4));
        assert_eq!(survivors(&rates, &order, 2, false), [1, 0]);
        let mut generous = survivors(&rates, &order, 2, true);
        generous.sort_unstable();
        assert_eq!(generous, [0, 1, 2, 3], "one is near, and one was as fast once");
        assert_eq!(survivors(&rates, &order, 9, false).len(), 5);
        assert!(survivors(&[], &[], 3, true).is_empty());
        assert_eq!(middle(&[1.0, 2.0, 3.0], &[2.0, 2.0, 2.0]), Some(1.0));
        assert_eq!(middle(&[], &[]), None);
    }
}

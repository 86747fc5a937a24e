//! Strategies: which core makes the next step.

use contend_model::random::{SplitMix64, below};

use super::schedule::Schedule;

/// What a strategy chooses from.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// The core that is about to make an access; none in the beginning, and when a core has ended.
    pub running: Option<usize>,
    /// Whether the running core waits for another: to let it go on is pointless.
    pub waits: bool,
    /// The cores that have not ended, in order, without the one in the background.
    pub runnable: &'a [usize],
    /// A core that does its work bit by bit beside the others, and waits after each bit, if there
    /// is one. No strategy has to let it go on.
    pub background: Option<usize>,
    /// Steps made so far.
    pub step: u64,
}

impl Choice<'_> {
    /// Whether the core in the background runs, and has begun what it does.
    fn is_behind(&self) -> bool {
        self.running.is_some() && self.running == self.background && !self.waits
    }

    /// The next core after the running one, round and round; the running one if it is alone.
    fn another(&self) -> usize {
        let after = |core: usize| self.runnable.iter().copied().find(|other| *other > core);
        self.running.and_then(after).unwrap_or(self.runnable[0])
    }
}

/// Chooses the core that makes the next step.
pub trait Strategy {
    /// Begins an execution of `cores`.
    fn begin(&mut self, cores: usize);

    /// Returns the core that goes on: one of those that can.
    fn choose(&mut self, choice: &Choice<'_>) -> usize;

    /// At how many of the next choices the core that was just chosen goes on, as long as it does
    /// not wait: the strategy is not asked there.
    fn stays(&mut self) -> u64 {
        0
    }

    /// Ends the execution, which has made `steps`.
    fn end(&mut self, steps: u64) {
        let _ = steps;
    }

    /// Whether there is nothing left to try.
    fn is_exhausted(&self) -> bool {
        false
    }
}

/// Any core, at random, after a random number of accesses. How often cores are switched is drawn
/// anew for each execution: from at every access to at every 32nd, on average. So is how often the
/// core in the background is let go on: never, or at every 8th access, to at every 64th.
#[derive(Debug)]
pub struct Random {
    numbers: SplitMix64,
    /// After how many accesses cores are switched.
    switch: Gaps,
    /// The same, of the core in the background.
    behind: Option<Gaps>,
    /// Accesses until that one goes on.
    until_behind: u64,
    /// The core in the background was chosen.
    is_behind: bool,
}

/// How many accesses lie between two events: from 0 to twice the mean, with the same probability.
#[derive(Clone, Copy, Debug)]
struct Gaps {
    bound: usize,
}

impl Gaps {
    /// An event at one in two to the power of `rarely` accesses.
    fn one_in(rarely: usize) -> Gaps {
        Gaps { bound: (2 << rarely) - 1 }
    }

    fn draw(self, numbers: &mut SplitMix64) -> u64 {
        numbers.index(self.bound) as u64
    }
}

impl Random {
    /// The same seed makes the same choices.
    pub fn new(seed: u64) -> Self {
        let switch = Gaps::one_in(0);
        Random { numbers: SplitMix64::new(seed), switch, behind: None, until_behind: u64::MAX, is_behind: false }
    }

    fn draw_behind(&mut self) {
        self.until_behind = self.behind.map_or(u64::MAX, |gaps| gaps.draw(&mut self.numbers));
    }
}

impl Strategy for Random {
    fn begin(&mut self, _: usize) {
        let drawn = self.numbers.draw();
        self.switch = Gaps::one_in(below(drawn, 6) as usize);
        self.behind = [None, Some(3), Some(4), Some(5), Some(6)][drawn as usize % 5].map(Gaps::one_in);
        self.draw_behind();
    }

    fn choose(&mut self, choice: &Choice<'_>) -> usize {
        if let Some(background) = choice.background
            && choice.running != choice.background
            && self.until_behind == 0
        {
            self.draw_behind();
            self.is_behind = true;
            return background;
        }
        self.is_behind = false;
        let running = choice.running.filter(|_| choice.waits && choice.runnable.len() > 1);
        match running.and_then(|running| choice.runnable.iter().position(|core| *core == running)) {
            Some(waits) => {
                let other = self.numbers.index(choice.runnable.len() - 1);
                choice.runnable[if other < waits { other } else { other + 1 }]
            }
            None => choice.runnable[self.numbers.index(choice.runnable.len())],
        }
    }

    fn stays(&mut self) -> u64 {
        let stays = self.switch.draw(&mut self.numbers);
        if self.is_behind {
            return stays;
        }
        // Whichever comes first.
        let stays = stays.min(self.until_behind);
        self.until_behind = self.until_behind.saturating_sub(stays.max(1));
        stays
    }
}

/// Probabilistic concurrency testing (S. Burckhardt, P. Kothari, M. Musuvathi, S. Nagarakatte,
/// ASPLOS 2010): cores have random priorities, the highest goes on; at `depth - 1` random steps the
/// running core's falls below all others. It finds a bug that takes `depth` ordered events with a
/// probability that does not depend on how many other steps there are between. The core in the
/// background goes on at up to six random steps.
#[derive(Debug)]
pub struct Pct {
    numbers: SplitMix64,
    behind: SplitMix64,
    depth: usize,
    priorities: Vec<i64>,
    /// Steps at which a priority falls.
    changes: Vec<u64>,
    /// Steps at which the core in the background goes on.
    turns: Vec<u64>,
    lowest: i64,
    /// The step that was chosen for last.
    step: u64,
    /// Steps of the last execution, among which the next one's changes are drawn.
    steps: u64,
}

impl Pct {
    /// For bugs of this depth: at least 1.
    pub fn new(depth: usize, seed: u64) -> Self {
        Pct {
            numbers: SplitMix64::new(seed),
            behind: SplitMix64::new(!seed),
            depth,
            priorities: Vec::new(),
            changes: Vec::new(),
            turns: Vec::new(),
            lowest: 0,
            step: 0,
            steps: 1,
        }
    }
}

/// The most turns of the core in the background.
const TURNS_MAX: usize = 6;

impl Strategy for Pct {
    fn begin(&mut self, cores: usize) {
        self.priorities.clear();
        self.priorities.extend(0..cores as i64);
        for position in (1..cores).rev() {
            self.priorities.swap(position, self.numbers.index(position + 1));
        }
        self.lowest = 0;
        let steps = self.steps as usize;
        self.changes.clear();
        self.changes.extend((1..self.depth).map(|_| self.numbers.index(steps) as u64));
        self.turns.clear();
        self.turns.extend((0..self.behind.index(TURNS_MAX + 1)).map(|_| self.behind.index(steps) as u64));
    }

    fn choose(&mut self, choice: &Choice<'_>) -> usize {
        self.step = choice.step;
        if let Some(background) = choice.background {
            if choice.is_behind() {
                return background;
            }
            if let Some(turn) = self.turns.iter().position(|step| *step == choice.step) {
                self.turns.swap_remove(turn);
                return background;
            }
        }
        if let Some(running) = choice.running.filter(|running| Some(*running) != choice.background) {
            let change = self.changes.iter().position(|step| *step == choice.step);
            // Each change once: the core that goes on instead is at the same step.
            if let Some(change) = change {
                self.changes.swap_remove(change);
            }
            if choice.waits || change.is_some() {
                self.lowest -= 1;
                self.priorities[running] = self.lowest;
            }
        }
        let highest = choice.runnable.iter().copied().max_by_key(|core| self.priorities[*core]);
        highest.expect("a core that has not ended")
    }

    fn stays(&mut self) -> u64 {
        let events = self.changes.iter().chain(&self.turns).filter(|step| **step > self.step);
        events.min().map_or(u64::MAX, |step| step - self.step - 1)
    }

    fn end(&mut self, steps: u64) {
        self.steps = steps.max(1);
    }
}

/// All interleavings with at most a given number of preemptions (M. Musuvathi, S. Qadeer, PLDI
/// 2007), each once. A switch from a core that waits or has ended is no preemption. A switch to the
/// core in the background always is one; when that core waits, the core that it has interrupted
/// goes on.
#[derive(Debug)]
pub struct Exhaustive {
    preemptions_max: usize,
    preemptions: usize,
    /// The core that the one in the background has interrupted.
    interrupted: Option<usize>,
    /// The choices of the last execution: what could be chosen, and what was.
    path: Vec<(Vec<usize>, usize)>,
    /// Choices of the running execution.
    made: usize,
    begun: bool,
    exhausted: bool,
}

impl Exhaustive {
    /// Creates a strategy that tries all interleavings with at most `preemptions_max` preemptions.
    pub fn new(preemptions_max: usize) -> Self {
        let (path, interrupted) = (Vec::new(), None);
        Exhaustive { preemptions_max, preemptions: 0, interrupted, path, made: 0, begun: false, exhausted: false }
    }

    fn has_more(&self) -> bool {
        self.path.iter().any(|(options, taken)| taken + 1 < options.len())
    }
}

impl Strategy for Exhaustive {
    fn begin(&mut self, _: usize) {
        if self.begun {
            while self.path.last().is_some_and(|(options, taken)| taken + 1 == options.len()) {
                self.path.pop();
            }
            match self.path.last_mut() {
                Some((_, taken)) => *taken += 1,
                None => self.exhausted = true,
            }
        }
        (self.begun, self.made, self.preemptions, self.interrupted) = (true, 0, 0, None);
    }

    fn choose(&mut self, choice: &Choice<'_>) -> usize {
        if self.made == self.path.len() {
            let may = self.preemptions < self.preemptions_max;
            let behind = choice.background.filter(|_| may);
            let options = match choice.running {
                Some(running) if !choice.waits => {
                    let others = choice.runnable.iter().copied().chain(behind).filter(|core| *core != running);
                    std::iter::once(running).chain(others.filter(|_| may)).collect()
                }
                // Those that wait for each other take turns: to try all orders of waiting would
                // never end.
                Some(running) => {
                    let interrupted = self.interrupted.filter(|_| Some(running) == choice.background);
                    let goes_on = interrupted.filter(|core| choice.runnable.contains(core));
                    vec![goes_on.unwrap_or_else(|| choice.another())]
                }
                None => choice.runnable.iter().copied().chain(behind).collect(),
            };
            self.path.push((options, 0));
        }
        let (options, taken) = &self.path[self.made];
        self.made += 1;
        let chosen = options[*taken];
        let is_behind = Some(chosen) == choice.background && choice.running != Some(chosen);
        if is_behind {
            self.interrupted = choice.running;
        }
        if is_behind || choice.running.is_some_and(|running| !choice.waits && chosen != running) {
            self.preemptions += 1;
        }
        chosen
    }

    fn is_exhausted(&self) -> bool {
        self.exhausted || self.begun && !self.has_more()
    }
}

/// What a schedule says; where it ends or can't be followed, the running core goes on until it
/// waits or ends.
#[derive(Debug)]
pub struct Replay {
    schedule: Schedule,
    segment: usize,
    made: u64,
}

impl Replay {
    /// Follows this schedule.
    pub fn new(schedule: Schedule) -> Self {
        Replay { schedule, segment: 0, made: 0 }
    }
}

impl Strategy for Replay {
    fn begin(&mut self, _: usize) {
        (self.segment, self.made) = (0, 0);
    }

    fn choose(&mut self, choice: &Choice<'_>) -> usize {
        while let Some(&(core, steps)) = self.schedule.segments().get(self.segment) {
            if self.made < steps && (choice.runnable.contains(&core) || choice.background == Some(core)) {
                self.made += 1;
                return core;
            }
            (self.segment, self.made) = (self.segment + 1, 0);
        }
        match choice.running {
            Some(running) if !choice.waits => running,
            _ => choice.another(),
        }
    }
}

//! Steps of a script that become one.
//!
//! A comparison and the branch behind it are one step. A select and a later update of the same row
//! are one access. And steps that do nothing go, as what is loaded and never read.
//!
//! Scripts read a row, decide, and update it. Written in Rust the transaction would change the row
//! where it reads it. So does the code after this pass. It looks the row up once, and the protocol
//! sees one operation instead of two.
//!
//! The update moves to the select. That is right where the steps in between touch no row, or where
//! they touch other tables only and change nothing that the update needs. Then nobody can tell: the
//! writes of a transaction take effect together, at its commit.

use contend_model::FewWords;

use super::known::{reads_of, registers_of};
use super::program::{Access, Code, FOUND, Register, Step};

/// Joins steps, as far as possible.
pub(super) fn fuse(code: &mut Code) {
    for at in 0.. {
        if at >= code.steps.len() {
            break;
        }
        if let Some((update, between)) = partner_of(code, at) {
            join(code, at, update, between);
        }
        if let Some(step) = comparing_branch(code, at) {
            code.steps[at + 1] = step;
            remove(code, at);
        }
    }
    for at in (0..code.steps.len()).rev() {
        if does_nothing(&code.steps[at], at) {
            remove(code, at);
        }
    }
    load_what_is_read(code);
}

/// Leaves out what is loaded of a row and never read. The row is read all the same.
fn load_what_is_read(code: &mut Code) {
    let mut is_read = vec![false; code.image.len()];
    for register in code.steps.iter().flat_map(|step| reads_of(step, &code.accesses)) {
        is_read[register as usize] = true;
    }
    // Each aggregate belongs to a load.
    for access in code.accesses.iter_mut().filter(|access| access.aggregates.is_empty()) {
        access.loads.retain(|load| is_read[load.to as usize..][..load.words as usize].contains(&true));
    }
}

/// Whether the step at `at` only leads to the next one.
fn does_nothing(step: &Step, at: usize) -> bool {
    match *step {
        Step::Copy { to, from, .. } => to == from,
        Step::Jump { to, .. } => to as usize == at + 1,
        _ => false,
    }
}

/// Returns the step that compares and branches, in place of the two steps from `at` on.
fn comparing_branch(code: &Code, at: usize) -> Option<Step> {
    let [Step::Compute { operator, to: result, a, b }, Step::Unless { condition, to, by_rows }] =
        *code.steps.get(at..at + 2)?
    else {
        return None;
    };
    let comes_between = |step: &Step| step.target() == Some(at as u32 + 1);
    let is_alone = result == condition && readers_of(code, result) == 1 && !code.steps.iter().any(comes_between);
    is_alone.then_some(Step::UnlessIs { operator, a, b, to, by_rows })
}

/// Returns how many times the steps read a register.
fn readers_of(code: &Code, register: Register) -> usize {
    let of_step = |step: &Step| reads_of(step, &code.accesses);
    code.steps.iter().flat_map(of_step).filter(|read| *read == register).count()
}

/// Removes a step.
fn remove(code: &mut Code, at: usize) {
    code.steps.remove(at);
    let behind = code.steps.iter_mut().filter_map(Step::target_mut).filter(|to| **to as usize > at);
    behind.for_each(|to| *to -= 1);
}

/// How the steps between a select and its update go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    /// They stay between the reading and the writing of the row.
    Inside,
    /// They come after both.
    After,
}

/// Returns the update that can join the select at a step.
fn partner_of(code: &Code, select: usize) -> Option<(usize, Between)> {
    let own = match code.steps[select] {
        Step::Read { access } => access,
        // With `for update`.
        Step::Modify { access, end } if end as usize == select + 1 => access,
        _ => return None,
    };
    let own = &code.accesses[own as usize];
    let is_row = own.by_index.is_none() && own.stores.is_empty() && own.aggregates.is_empty();
    if !is_row || changes_key(code, own, &code.steps[select]) {
        return None;
    }
    for update in select + 1..code.steps.len() {
        let between = &code.steps[select + 1..update];
        let step = &code.steps[update];
        if is_update(code, own, step) {
            let (first, last) = (select as u32 + 1, update as u32);
            let mut others = code.steps.iter().enumerate().filter(|(number, _)| *number != select);
            if others.any(|(number, step)| crosses(step, number as u32, first, last)) {
                return None;
            }
            // The steps of the update itself run also where there is no row.
            let inner = match *step {
                Step::Modify { end, .. } => &code.steps[update + 1..end as usize],
                _ => &[],
            };
            let computes = between.iter().chain(inner).all(is_computation);
            // Other columns than those that were read are changed at once, and by words that need
            // no reading: a row's lock is then taken as before.
            let reads = matches!(code.steps[select], Step::Read { .. });
            let other = step.access().map(|access| &code.accesses[access as usize]);
            if !other.is_some_and(|other| other.groups == own.groups || computes && reads && is_blind(other)) {
                return None;
            }
            let joined = if computes { Between::Inside } else { Between::After };
            return (joined == Between::Inside || may_move(code, between, step)).then_some((update, joined));
        }
        // Another access to the table may be to the row.
        let touches = |access: u16| code.accesses[access as usize].table == own.table;
        let ends = matches!(step, Step::Repeat { .. } | Step::Again { .. } | Step::Each { .. } | Step::Next { .. });
        if ends || step.access().is_some_and(touches) || changes_key(code, own, step) {
            return None;
        }
    }
    None
}

/// Whether a step updates the row that was selected.
fn is_update(code: &Code, own: &Access, step: &Step) -> bool {
    let (Step::Update { access } | Step::Write { access } | Step::Modify { access, .. }) = *step else { return false };
    let update = &code.accesses[access as usize];
    let changes = !update.stores.is_empty() || !update.changes.is_empty();
    changes
        && update.table == own.table
        && update.key == own.key
        && update.by_index.is_none()
        && update.indexes.is_empty()
}

/// Whether an update changes a few words, and needs no column for it.
fn is_blind(update: &Access) -> bool {
    update.stores.is_empty() && update.changes.len() <= FewWords::MOST
}

fn changes_key(code: &Code, own: &Access, step: &Step) -> bool {
    let is_changed = |&(first, words): &(Register, u16)| own.key.iter().any(|key| (first..first + words).contains(key));
    registers_of(step, &code.accesses).0.iter().any(is_changed)
}

/// Whether a step only computes, or ends the transaction. A draw does not count: it is put down
/// before the transaction begins, and all of them in their order.
fn is_computation(step: &Step) -> bool {
    matches!(
        step,
        Step::Compute { .. }
            | Step::Copy { .. }
            | Step::SameText { .. }
            | Step::Unless { .. }
            | Step::UnlessIs { .. }
            | Step::Jump { .. }
            | Step::Cancel
    )
}

/// Whether a step goes from the steps `first..=last` to others, or the other way round. To come to
/// the last one from them is to stay.
fn crosses(step: &Step, number: u32, first: u32, last: u32) -> bool {
    let Some(to) = step.target() else { return false };
    let (from_inside, to_inside) = ((first..last).contains(&number), (first..=last).contains(&to));
    from_inside != to_inside
}

/// Whether an update may move up to its select, over steps that touch rows of other tables.
fn may_move(code: &Code, between: &[Step], update: &Step) -> bool {
    let Some(access) = update.access().map(|access| &code.accesses[access as usize]) else { return false };
    let sources = access.registers();
    let is_kept = |step: &Step| {
        let (targets, _) = registers_of(step, &code.accesses);
        !targets.iter().any(|&(first, words)| sources.iter().any(|from| (first..first + words).contains(from)))
    };
    let is_simple = |step: &Step| {
        is_computation(step) && step.target().is_none() && !matches!(step, Step::Cancel)
            || matches!(step, Step::Read { .. } | Step::Modify { .. } | Step::Update { .. } | Step::Write { .. })
    };
    // Where `:found` is asked for, it is that of the statement before.
    !matches!(update, Step::Modify { .. })
        && between.iter().all(|step| is_simple(step) && is_kept(step))
        && readers_of(code, FOUND) == 0
}

/// Joins the select at step `select` and the update at step `update`.
fn join(code: &mut Code, select: usize, update: usize, between: Between) {
    let (Some(own), Some(other)) = (code.steps[select].access(), code.steps[update].access()) else { return };
    // Removing the update moves an end behind it.
    let end = match (between, code.steps[update]) {
        (Between::After, _) => select + 1,
        // The steps of the update that need columns.
        (Between::Inside, Step::Modify { end, .. }) => end as usize,
        (Between::Inside, _) => update,
    };
    let Access { stores, changes, loads, groups, .. } = code.accesses[other as usize].clone();
    let access = &mut code.accesses[own as usize];
    (access.stores, access.changes, access.reads) = (stores, changes, false);
    access.written = Some(groups).filter(|groups| *groups != access.groups);
    access.loads.extend(loads);
    code.steps[select] = Step::SelectAndUpdate { access: own, end: end as u32 };
    remove(code, update);
    code.replayable = false;
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::Arc;

    use contend_engine::{AbortReason, Engine, EngineConfig, EngineOptions, Erased, IndexKind, NamedProtocol};
    use contend_machine::Native;
    use contend_model::random::{SplitMix64, below};
    use contend_model::{Inspect, Key};
    use contend_protocols::optimistic::silo::Silo;

    use super::super::interpret::{Handle, with_table};
    use super::super::tests::{options, with_script};
    use super::super::{CompiledFor, FileOptions, FileWorkload, Input, Program};
    use super::Step;
    use crate::workload::Workload;

    /// What is left of a run: the rows of each table, and each commit with its counts.
    type Left = (Vec<(usize, Vec<u64>, Vec<u64>)>, Vec<(bool, u64, u64)>);

    /// Runs transactions one after the other, as the program says. Each of them runs twice, as if
    /// the first try had aborted.
    fn left_by(options: &FileOptions, change: impl FnOnce(&mut Program)) -> Left {
        left_with(EngineOptions::default(), options, change)
    }

    /// Runs the same with options of the engine.
    fn left_with(engine: EngineOptions, options: &FileOptions, change: impl FnOnce(&mut Program)) -> Left {
        let protocol = Erased::new(<Silo as NamedProtocol<Native>>::new(Default::default()));
        let config = EngineConfig { options: engine, ..EngineConfig::default() };
        let engine: Arc<Engine<_, Native>> = Engine::new(protocol, config);
        let mut workload = FileWorkload::create(options, IndexKind::Ordered, &engine);
        change(&mut workload.program);
        let mut loader = engine.loader().expect("a slot");
        workload.load(&mut loader, 0, 1, &mut |_| ControlFlow::Continue(())).expect("memory");
        drop(loader);
        let mut client = workload.client(0, 1, 3);
        let mut input = Input::default();
        let mut worker = engine.worker().expect("a slot");
        let mut commits = Vec::new();
        for _ in 0..30 {
            workload.next(&mut (), &mut client, &mut input);
            let mut given_up = worker.begin();
            let _ = workload.execute(&mut given_up, &mut client, &input);
            drop(given_up);
            let done = worker.run(|tx| workload.execute(tx, &mut client, &input));
            if let Err(abort) = &done {
                assert_eq!(abort.reason, AbortReason::User, "one transaction at a time");
            } else {
                workload.committed(&mut client, &input);
            }
            commits.push((done.is_ok(), client.named, client.missed));
        }
        let mut rows = Vec::new();
        for (number, handle) in workload.handles.iter().enumerate() {
            with_table!(*handle, table => {
                let is_ordered = engine.peek_all(&table, |key, row| {
                    rows.push((number, key.to_words().to_vec(), row.to_vec()));
                });
                assert!(is_ordered);
            });
        }
        (rows, commits)
    }

    /// The options of an engine that applies updates at the commit.
    fn at_commit() -> EngineOptions {
        EngineOptions { commit_time_updates: true, ..EngineOptions::default() }
    }

    /// Statements that read and write few rows of two tables.
    const LINES: [&str; 34] = [
        "select a as x, b as y from t where id = :k \\gset",
        "select a as x from t where id = :k for update \\gset",
        "select b as z, id as j from t where id = :k \\gset",
        "select id as k from t where id = :k \\gset",
        "select b as y from t where id = :j \\gset",
        "select a as z from u where x = 1 and y = :j \\gset",
        "update t set a = :x + 1 where id = :k;",
        "update t set a = a + :y where id = :k;",
        "update t set a = a - :x, b = :z where id = :k;",
        "update t set b = b * 2 + :x where id = :k;",
        "update t set a = 3, b = b + 1 where id = :k;",
        "update t set a = 5, b = 6, s = 'new' where id = :k;",
        "update t set b = 7 where id = :j;",
        "update t set s = 'some' where id = :k;",
        "update u set a = a + :x where x = 1 and y = :j;",
        "insert into u values (1, :j, :x) on conflict do nothing;",
        "insert into t values (:k, :x, :y, 'in') on conflict do nothing;",
        "delete from t where id = :j;",
        "select count(*) as z from t where id between 2 and 9 \\gset",
        "update t set s = random_text(3) where id = :k;",
        "update t set a = case when b % 2 = 0 then a - :x when a < 9 then id else :x end, b = a * 3 where id = :k;",
        "update t set b = greatest(b, :x) * 5 - case when :y > 3 and b < 9 then 1 else :z end where id = :j;",
        "update t set a = a / (b - :x) where id = :k;",
        "update t set a = unique() where id = :k;",
        "select a as x from u where x = 1 and y = :j \\gset",
        "\\set x :x + :y",
        "\\set y :found + 1",
        "\\set k mod(abs(:k + :x), 12)",
        "\\set k random(0, 11)",
        "\\set j :k",
        "\\set y case when :x > :z then :x - 1 else random(1, 9) end",
        "\\if :x > :y\nrollback;\n\\endif",
        "\\if :found = 0\nrollback;\n\\endif",
        "\\if :x > 3 and :y < 40\nupdate t set b = b + :x where id = :k;\n\\else\n\\set x :x + 2\n\\endif",
    ];

    /// None of these depends on a row.
    const PLAIN: [&str; 7] = [
        "select b from t where id = :k;",
        "update t set a = a + :x where id = :k;",
        "update t set a = :x, b = b + 2 where id = :j;",
        "update t set a = :y, b = 3, s = 'new' where id = :k;",
        "\\set k random(0, 11)",
        "\\set x :x + :y",
        "\\if :x > 10\nupdate t set b = b + :x where id = :j;\n\\else\n\\set j :k\n\\endif",
    ];

    /// None of these depends on a row, and all accesses are one batch. Some keys have no row, and
    /// some don't fit their column.
    const BATCHED: [&str; 8] = [
        "select b from t where id = :k;",
        "select b from t where id = :j;",
        "update t set a = :y, b = 3, s = 'new' where id = :k;",
        "update t set a = :x, b = :k, s = 'old' where id = :j;",
        "\\set k random(-2, 14)",
        "\\set j mod(:k * 5, 12)",
        "\\set x :x + :y",
        "\\if :x > 10\nselect b from t where id = :j;\n\\else\n\\set j :k\n\\endif",
    ];

    /// A script of statements that read and write few rows of two tables, with branches, loops and
    /// ways to end.
    fn random_script(random: &mut SplitMix64) -> String {
        let mut draw = |count: usize| below(random.draw(), count as u64) as usize;
        let mut script =
            String::from("\\set k random(0, 11)\n\\set j random(0, 11)\n\\set x random(0, 20)\n\\set y 1\n\\set z 4\n");
        let (is_plain, is_batched) = (draw(4) == 0, draw(8) == 0);
        if !is_plain && !is_batched {
            script.push_str("insert into u values (1, :j, 50 + :x) on conflict do nothing;\n");
        }
        let mut open: Vec<&str> = Vec::new();
        for _ in 0..3 + draw(12) {
            match draw(16) {
                0 => {
                    script.push_str("\\repeat 3\n");
                    open.push("\\endrepeat\n");
                }
                1 => {
                    script.push_str("\\if :x < :y + 4\n");
                    open.push("\\endif\n");
                }
                2 => script.push_str(open.pop().unwrap_or("")),
                _ if is_batched => script.extend([BATCHED[draw(BATCHED.len())], "\n"]),
                _ if is_plain => script.extend([PLAIN[draw(PLAIN.len())], "\n"]),
                // A select, what may come between, and an update of the same row.
                3..8 => {
                    script.extend([LINES[draw(4)], "\n"]);
                    for _ in 0..draw(3) {
                        script.extend([LINES[draw(LINES.len())], "\n"]);
                    }
                    script.extend([LINES[6 + draw(8)], "\n"]);
                    script.push_str(["", "\\set x :x + :found\n"][draw(2)]);
                }
                _ => script.extend([LINES[draw(LINES.len())], "\n"]),
            }
        }
        open.into_iter().rev().for_each(|end| script.push_str(end));
        let last = if is_batched { "select b from t where id = :k;" } else { "update t set b = b + 1 where id = :k;" };
        script + last
    }

    fn steps_of(options: &FileOptions) -> Vec<Step> {
        Program::new(options).expect("valid").kinds[0].code.steps.clone()
    }

    /// However a script is compiled, and whether it is put down before it begins or not, it leaves
    /// the same rows.
    #[test]
    fn scripts_do_the_same_however_they_are_compiled() {
        let mut random = SplitMix64::new(11);
        let (mut joined, mut replayed, mut batched) = (0, 0, 0);
        for _ in 0..400 {
            let script = random_script(&mut random);
            let options = options("one.toml", &with_script(&script));
            let compiled = |purpose: CompiledFor| Program::compiled_for(purpose, &options).expect("valid");
            let plain = |program: &mut Program| {
                *program = compiled(CompiledFor::Readers);
                program.kinds[0].looks_up_many = false;
            };
            let foreseen = |program: &mut Program| {
                let kind = &mut program.kinds[0];
                kind.looks_up_many = kind.code.foreseeable;
            };
            let expected = left_by(&options, plain);
            assert_eq!(left_by(&options, |_| ()), expected, "joined:\n{script}");
            assert_eq!(left_with(at_commit(), &options, |_| ()), expected, "changed at the commit:\n{script}");
            assert_eq!(left_by(&options, foreseen), expected, "foreseen:\n{script}");
            let is_joined = |step: &Step| matches!(step, Step::SelectAndUpdate { .. });
            joined += steps_of(&options).iter().filter(|step| is_joined(step)).count();
            let code = &compiled(CompiledFor::Engine).kinds[0].code;
            replayed += usize::from(code.replayable);
            batched += usize::from(code.batch.is_some());
        }
        let enough = joined > 200 && replayed > 80 && batched > 30;
        assert!(enough, "{joined} joined, {replayed} replayed, {batched} batched");
    }

    /// What stands in loops.
    const ROUNDS: [&str; 35] = [
        "\\set k mod(:k + 3, 14)",
        "\\set k random(-1, 13)",
        "\\set n :n + 1",
        "\\set n :n + 1",
        "\\set sum :sum + :x * :n",
        "\\set sum :sum + :z",
        "\\set x :x + distinct(:k)",
        "insert into w values (:n * 2 + 100, :found, 'asked') on conflict do nothing;",
        "update t set a = a * 2 + :found where id = :k;",
        "update v set d = :found where x = 1 and y = :n;",
        "update t set b = b + :found where id = :k;",
        "select s from t where id = :k \\gset\n\\set x :x + :found",
        "\\if :s = 'old'\n\\set sum :sum * 5 + :n\n\\endif",
        "update t set s = :s where id = :n;",
        "\\set y unique()",
        "\\repeat 2\n\\set sum :sum + :y\n\\endrepeat",
        "\\if :found = 0\nrollback;\n\\endif",
        "\\set sum :sum * 2 + :found",
        "select a as x from t where id = :k \\gset",
        "select b as y, s from t where id = :k \\gset",
        "select b as y from t where id = :k \\gset\nupdate t set a = a * 2 + :y where id = :k;",
        "select a as x, s from t where id = :k \\gset\nupdate t set b = b + :x + :n where id = :k;",
        "update t set b = b + :x where id = :k;",
        "update t set a = case when a % 2 = 0 then a / 2 - :n else a * 3 + id end where id = :k;",
        "select b as y from t where id = :k \\gset\nupdate t set a = case when a % 2 = 0 then a / 2 else a * 3 + :y end where id = :k;",
        "select c as z from v where x = 1 and y = :k \\gset\nupdate v set d = least(d * 2, :z * :n) - y where x = 1 and y = :k;",
        "update v set c = c * 3 + d - :n where x = 1 and y = :k;",
        "update t set s = 'new', a = :n where id = :k;",
        "select c as z from v where x = 1 and y = :k \\gset",
        "update v set d = d + :z where x = 1 and y = :k;",
        "update v set c = :k, d = :z + :n where x = 1 and y = :k;",
        "insert into v values (7, :n, :k, :x) on conflict do nothing;",
        "insert into w values (:n, :k, 'of a round');",
        "\\if :x > 10\nselect c as z from v where x = 1 and y = :n \\gset\n\\set sum :sum + 1\n\\endif",
        "\\if :x > 5\nupdate v set d = :x where x = 1 and y = :k;\n\\else\n\\set x :x + 4\n\\endif",
    ];

    /// A script of loops.
    fn random_loops(random: &mut SplitMix64) -> String {
        let mut draw = |count: usize| below(random.draw(), count as u64) as usize;
        let mut script = String::from(
            "select s from t where id = 3 \\gset\n\\set k random(0, 11)\n\\set x random(0, 20)\n\\set y 1\n\\set z 4\n\\set n random(0, 9)\n\\set sum 0\n",
        );
        // Rounds that come together have drawn their numbers when one of them cancels.
        let left_out: &[&str] = [&["unique"][..], &["rollback", "insert into w"]][draw(2)];
        for _ in 0..1 + draw(2) {
            let is_twice = draw(4) == 0;
            script.push_str(if is_twice { "\\repeat 2\n" } else { "" });
            let (begin, end) = [
                (["\\repeat 5\n", "\\repeat 5\n", "\\repeat 5\n", "\\repeat 300\n"][draw(4)], "\\endrepeat\n"),
                ("\\repeat :n % 4\n", "\\endrepeat\n"),
                ("\\foreach select y as k, c as x from v where x = 1 and y < 6\n", "\\endforeach\n"),
            ][draw(3)];
            script.push_str(begin);
            for _ in 0..2 + draw(5) {
                let line = ROUNDS[draw(ROUNDS.len())];
                if !left_out.iter().any(|part| line.contains(part)) {
                    script.extend([line, "\n"]);
                }
            }
            script.push_str(end);
            script.push_str(["", "\\set sum :sum * 3 + :found\n"][draw(2)]);
            script.push_str(if is_twice { "\\endrepeat\n" } else { "" });
        }
        script + "update t set a = :sum + :x * 7 + :y * 11 + :z * 13 + :n * 17 + :k * 19 where id = 0;"
    }

    /// Rounds that access rows together leave what rounds leave that run one by one.
    #[test]
    fn loops_do_the_same_however_they_run() {
        let mut random = SplitMix64::new(5);
        let (mut loops, mut accesses) = (0, 0);
        for number in 0..1500 {
            let script = random_loops(&mut random);
            let more = "create table v (x smallint, y int, c int, d int, primary key (x, y));\n\
                        create table w (n int primary key, k int, s varchar(20));\ncreate index";
            let groups = ["", "[groups]\nt = [[\"a\"], [\"b\"]]\nv = [[\"d\"]]\n"][number % 2];
            let text = with_script(&script)
                .replace("create index", more)
                .replace("[parameters]", &format!("v = 10\n{groups}[parameters]"));
            let fills = "[fill]\n\"v.x\" = \"1\"\n\"v.y\" = \":row\"\n\"v.c\" = \":row * 3\"\n";
            let options = options("one.toml", &text.replace("[fill]", fills));
            let plain = |program: &mut Program| {
                *program = Program::compiled_for(CompiledFor::Readers, &options).expect("valid");
                program.kinds[0].looks_up_many = false;
            };
            let foreseen = |program: &mut Program| {
                let kind = &mut program.kinds[0];
                kind.looks_up_many = kind.code.foreseeable;
            };
            let expected = left_by(&options, plain);
            assert_eq!(left_by(&options, |_| ()), expected, "together:\n{script}");
            if number % 3 == 0 {
                assert_eq!(left_with(at_commit(), &options, |_| ()), expected, "changed at the commit:\n{script}");
            }
            assert_eq!(left_by(&options, foreseen), expected, "foreseen:\n{script}");
            let code = &Program::new(&options).expect("valid").kinds[0].code;
            loops += code.distributed.len();
            accesses += code.distributed.iter().map(|of| of.stages.len() - 1).sum::<usize>();
        }
        assert!(loops > 300 && accesses > loops + 100, "{loops} loops with {accesses} accesses");
    }

    /// A loop is distributed unless a round needs what an earlier one has done.
    #[test]
    fn loops_are_distributed_where_nobody_can_tell() {
        for (body, accesses) in [
            ("\\set k :k + 1\nselect a from t where id = :k \\gset", Some(1)),
            // The end of a round may prepare the next one, if it needs no row.
            ("select a from t where id = :k \\gset\n\\set sum :sum + :a\n\\set k :k + 1", Some(1)),
            ("select a from t where id = :k \\gset\n\\set k :k + 1\n\\set sum :sum + :a", None),
            ("select a from t where id = :k \\gset\n\\if :a > 3\n\\set k :k + 1\n\\endif", None),
            ("\\if :k > 3\nselect a from t where id = :k \\gset\n\\else\n\\set k :k + 1\n\\endif", None),
            ("\\set k :k + 1\nselect a from t where id = :k \\gset\nupdate u set a = :a where x = 1 and y = :k;", None),
            ("\\set k :k + 1\nselect a from t where id = :k \\gset\n\\set sum :sum + :a", Some(1)),
            ("\\set k :k + 1\nupdate t set b = :k where id = :k;\nselect y from u where x = 1 and y = :k;", Some(2)),
            (
                "\\set k random(0, 9)\nselect a from t where id = :k \\gset\n\\if :found = 0\nrollback;\n\\endif",
                Some(1),
            ),
            // The key comes from the row of the round before.
            ("select a as k from t where id = :k \\gset", None),
            ("select y from u where x = 1 and y = :k \\gset\nselect a as k from t where id = :y \\gset", None),
            // A row may be read that an earlier round has written.
            ("\\set k random(0, 9)\nselect a from t where id = :k \\gset\nupdate t set a = 1 where id = 3;", None),
            // Draws in two stages would come in another order.
            ("\\set k random(0, 9)\nselect a from t where id = :k \\gset\n\\set sum random(0, 9)", None),
            // Only some rounds make the access, and its answer is asked for.
            ("\\if :k > 1\nselect a from t where id = :k \\gset\n\\endif\n\\set k :k + :found", None),
            (
                "\\set k :k + 1\n\\if :k > 2\nselect a from t where id = :k \\gset\n\\set sum :sum + :a\n\\endif",
                Some(1),
            ),
            ("delete from t where id = :k;\n\\set k :k + 1", None),
            ("select count(*) from t where id < :k \\gset\n\\set k :k + 1", None),
        ] {
            let script = format!(
                "\\set k 1\n\\set sum 0\n\\repeat 4\n{body}\n\\endrepeat\nselect a as q from t where id = :sum \\gset\nupdate u set a = :q where x = 1 and y = 0;"
            );
            let code = &Program::new(&options("one.toml", &with_script(&script))).expect("valid").kinds[0].code;
            assert_eq!(code.distributed.first().map(|of| of.stages.len() - 1), accesses, "{body}");
        }
    }

    /// A select and an update of the same row are joined, unless something may come between them.
    #[test]
    fn selects_and_updates_of_a_row_are_joined() {
        for (script, joined) in [
            ("select a from t where id = :k \\gset\nupdate t set a = :a + 1 where id = :k;", true),
            ("select a from t where id = :k for update \\gset\nupdate t set a = a + 1 where id = :k;", true),
            (
                "select a from t where id = :k \\gset\n\\if :a < 3\nrollback;\n\\endif\nupdate t set a = a * 2 where id = :k;",
                true,
            ),
            (
                "select a from t where id = :k \\gset\nselect y as z from u where x = 1 and y = 2 \\gset\nupdate t set a = :a where id = :k;",
                true,
            ),
            // What the update needs comes from the other row.
            (
                "select a from t where id = :k \\gset\nselect a as z from u where x = 1 and y = 2 \\gset\nupdate t set a = :z where id = :k;",
                false,
            ),
            // The key changes.
            ("select a from t where id = :k \\gset\n\\set k :k + 1\nupdate t set a = 1 where id = :k;", false),
            ("select id as k, a from t where id = :k \\gset\nupdate t set a = 1 where id = :k;", false),
            // The row may be the same.
            (
                "select a from t where id = :k \\gset\nupdate t set a = 2 where id = 3;\nupdate t set a = a + 1 where id = :k;",
                false,
            ),
            // The update does not always run.
            ("select a from t where id = :k \\gset\n\\if :a < 3\nupdate t set a = 1 where id = :k;\n\\endif", false),
            ("\\if :k < 3\nselect a from t where id = :k \\gset\n\\endif\nupdate t set a = 1 where id = :k;", false),
            // Draws are put down in their order.
            ("select a from t where id = :k \\gset\n\\set r random(1, 9)\nupdate t set a = :r where id = :k;", false),
        ] {
            let steps = steps_of(&options("one.toml", &with_script(&format!("\\set k random(0, 9)\n{script}"))));
            let is_joined = steps.iter().any(|step| matches!(step, Step::SelectAndUpdate { .. }));
            assert_eq!(is_joined, joined, "{script}\n{steps:?}");
        }
    }
}

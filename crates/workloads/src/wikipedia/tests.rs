//! The check, on databases broken for it; draws, and what is loaded.

use contend_engine::{Engine, EngineConfig, EngineOptions, Erased, NamedProtocol, RawTxn};
use contend_machine::Native;
use contend_protocols::locking::no_wait::NoWait;
use contend_protocols::none::NoControl;
use contend_protocols::optimistic::silo::Silo;

use super::load::{REVISIONS, draw_watches, loaded_revision, revisions_of, watch_weights};
use super::schema::{NAMESPACES, Nothing, title_of, watched, watcher};
use super::*;
use crate::run_for_tests::{Tx, check, clients, run, world, world_with};

fn small(update: UpdateMode) -> WikipediaOptions {
    // Most transactions of the default only read.
    WikipediaOptions {
        pages: 6,
        users: 8,
        text_bytes: 32,
        update,
        add_watch: 100,
        remove_watch: 100,
        update_page: 300,
        list_pages: 100,
        get_page_anonymous: 100,
        get_page_authenticated: 100,
        ..WikipediaOptions::default()
    }
}

#[test]
fn pages_agree_after_runs() {
    for update in [UpdateMode::One, UpdateMode::Several] {
        run::<Silo, Wikipedia>(&small(update), 4, 1500).expect("nothing wrong");
        run::<NoWait, Wikipedia>(&small(update), 4, 1500).expect("nothing wrong");
        run::<NoControl, Wikipedia>(&small(update), 1, 1500).expect("nothing wrong with one thread");
    }
}

/// Without concurrency control updates get lost, and the check finds it.
#[test]
fn lost_updates_are_found() {
    let is_found = |options: &WikipediaOptions| {
        (0..20).any(|_| {
            let world = world_with::<NoControl, Wikipedia>(options, EngineOptions::default(), 1);
            let clients = clients(&world, 4, 3000);
            check(&world, &clients).is_err()
        })
    };
    assert!(is_found(&small(UpdateMode::One)));
}

/// Changes page 2 under each mode, then damages the tables, and returns what the check says.
fn damaged(update: UpdateMode, damage: impl Fn(&mut Tx<'_>, &Wikipedia) -> Result<(), Abort>) -> String {
    let world = world::<Silo, Wikipedia>(&small(update));
    let (engine, wikipedia) = &world;
    let mut client = wikipedia.client(0, 1, 1);
    let mut worker = engine.worker().expect("a slot");
    let kinds = [(Kind::AddWatch, 1), (Kind::AddWatch, 2), (Kind::UpdatePage, 3), (Kind::UpdatePage, 4)];
    for (user, (kind, number)) in (1..).zip(kinds) {
        let reads_before = kind == Kind::UpdatePage && update == UpdateMode::Several;
        let kind = if reads_before { Kind::GetPageToUpdate } else { kind };
        let number = 1 << COUNT_BITS | number;
        let mut next = Some(Input { kind, page: 2, user, number, grows: 5, ..Input::default() });
        while let Some(input) = next {
            worker.run(|tx| wikipedia.execute(tx, &mut client, &input)).expect("no conflict");
            wikipedia.committed(&mut client, &input);
            next = client.next.take();
        }
    }
    check(&world, std::slice::from_ref(&client)).expect("nothing wrong");
    check(&world, &[]).expect("nothing wrong");
    assert_eq!((client.updates, client.logged), (2, 2));
    worker.run(|tx| damage(tx, wikipedia)).expect("no conflict");
    check(&world, &[client]).expect_err("broken").0
}

#[test]
fn what_is_wrong_is_named() {
    type Damage<'d> = &'d dyn Fn(&mut Tx<'_>, &Schema) -> Result<(), Abort>;
    let last = 1 << COUNT_BITS | 4;
    let reparent = |tx: &mut Tx<'_>, t: &Schema, parent| {
        tx.modify(&t.revision, last, |row| row.parent = parent)?;
        tx.modify(&t.recent_change, last, |row| row.parent = parent).map(drop)
    };
    // The last number says whether it is seen where a change is several transactions, too.
    let cases: [(Damage<'_>, &str, bool); 25] = [
        (&|tx, t| reparent(tx, t, loaded_revision(3, 1)), "which is not there, or another page's", true),
        (
            &|tx, t| tx.modify(&t.recent_change, last, |row| row.parent = 7).map(drop),
            "which is not there, or another's",
            true,
        ),
        (&|tx, t| tx.delete(&t.page, 3).map(drop), "page 3 is gone", true),
        (&|tx, t| tx.delete(&t.page_by_title, title_key(3)).map(drop), "the index by title is wrong for page 3", true),
        (
            &|tx, t| tx.modify(&t.page, 2, |row| row.latest = loaded_revision(3, 1)).map(drop),
            "the latest revision of page 2 is",
            true,
        ),
        (&|tx, t| tx.modify(&t.page, 2, |row| row.touched += 1).map(drop), "page 2 was touched at", true),
        (&|tx, t| tx.modify(&t.page, 2, |row| row.len += 1).map(drop), "page 2 has length", true),
        (&|tx, t| tx.modify(&t.page, 2, |row| row.is_new = 1).map(drop), "page 2 was touched at", true),
        (&|tx, t| tx.modify(&t.page, 3, |row| row.is_new = 0).map(drop), "page 3 was touched at 0 (0: never)", true),
        (
            &|tx, t| tx.insert(&t.page_by_title, title_key(7), ByTitle { page: 2 }).map(drop),
            "there are 7 titles, and the pages and their changes have 6",
            true,
        ),
        (&|tx, t| tx.delete_row(&t.text, last).map(drop), "and its text (page and length) None", true),
        (
            &|tx, t| tx.modify_row(&t.text, last, Groups::ALL).map(|row| row.expect("it is there")[3] = 1),
            "of page 2 is not whole",
            true,
        ),
        (&|tx, t| reparent(tx, t, last), "the revisions of page 2 are no chain", false),
        (
            &|tx, t| reparent(tx, t, loaded_revision(2, revisions_of(2))),
            "the pages have 1 new revisions, and there are 2 recent changes",
            false,
        ),
        (&|tx, t| tx.delete(&t.revision, last - 1).map(drop), "which is not there", true),
        (&|tx, t| tx.delete(&t.recent_change, last).map(drop), "is of no recent change", true),
        (&|tx, t| tx.delete(&t.log_entry, last).map(drop), "has 1 edits, and 0 are logged", true),
        (&|tx, t| tx.modify(&t.user, 3, |row| row.edits = 0).map(drop), "user 3 has 0 edits, and 1 are logged", true),
        (
            &|tx, t| tx.modify(&t.user, 3, |row| row.touched = 0).map(drop),
            "user 3 has 1 edits, and was never touched",
            true,
        ),
        (&|tx, t| tx.delete(&t.user, 8).map(drop), "user 8 is gone", true),
        (
            &|tx, t| tx.delete(&t.watch_by_title, watcher_key(2, 1)).map(drop),
            "user 1 watches page 2, and the watchers of the page do not say so",
            true,
        ),
        (&|tx, t| tx.delete(&t.watch, watch_key(1, 2)).map(drop), "that does not watch it", true),
        (
            &|tx, t| tx.insert(&t.watch_by_title, watcher_key(1, 77), Nothing {}).map(drop),
            "that does not watch it",
            true,
        ),
        (
            &|tx, t| tx.insert(&t.watch_by_title, [7; 32], Nothing {}).map(drop),
            "a page that is not there has a watcher",
            true,
        ),
        (&|tx, t| reparent(tx, t, loaded_revision(2, 1)), "page 2 has 2 revisions, and had", false),
    ];
    for update in [UpdateMode::One, UpdateMode::Several] {
        for (damage, expected, always) in &cases {
            if update == UpdateMode::One || *always {
                let wrong = damaged(update, |tx, wikipedia| damage(tx, &wikipedia.tables));
                assert!(wrong.contains(expected), "{wrong}, not: {expected}");
            }
        }
    }
    let watch = |update, page: u64, notified: u64| {
        damaged(update, move |tx, w| {
            tx.modify(&w.tables.watch, watch_key(1, page), |row| row.notified = notified).map(drop)
        })
    };
    let late = watch(UpdateMode::One, 2, 7);
    assert!(late.contains("user 1 was notified of a change of page 2 at 7"), "{late}");
    let of_nothing = watch(UpdateMode::Several, 2, 7);
    assert!(of_nothing.contains("user 1 was notified of a change of page 2 at 7"), "{of_nothing}");
    // A log entry is gone, and its author says so.
    let unlogged = |update| {
        damaged(update, |tx, w| {
            tx.delete(&w.tables.log_entry, last)?;
            tx.modify(&w.tables.user, 4, |row| row.edits = 0).map(drop)
        })
    };
    let missing = unlogged(UpdateMode::One);
    assert!(missing.contains("1 changes are logged, and there are 2 recent changes"), "{missing}");
    let unbooked = unlogged(UpdateMode::Several);
    assert!(unbooked.contains("1 changes are logged, but the committed transactions leave 2"), "{unbooked}");
    // A page that is not there, and one that has another namespace.
    let mut key = watch_key(1, 2);
    key[15] ^= 64;
    let stray = damaged(UpdateMode::One, |tx, w| tx.insert(&w.tables.watch, key, Watch { notified: 0 }).map(drop));
    assert!(stray.contains("a user watches a page that is not there"), "{stray}");
    // A watch that no transaction has added, and that no change has notified.
    let unnotified = damaged(UpdateMode::One, |tx, w| {
        tx.insert(&w.tables.watch_by_title, watcher_key(2, 7), Nothing {})?;
        for key in [Some(watch_key(7, 2)), schema::watched_talk(7, 2)].into_iter().flatten() {
            tx.insert(&w.tables.watch, key, Watch { notified: 0 })?;
        }
        Ok(())
    });
    assert!(unnotified.contains("user 7 was notified of a change of page 2 at 0 (0: never)"), "{unnotified}");
    let books = damaged(UpdateMode::One, |tx, w| {
        // A whole change that no client has booked.
        let (number, page) = (9 << COUNT_BITS, 3);
        let parent = loaded_revision(page, revisions_of(page));
        let input = Input { page, user: 1, number, ..Input::default() };
        w.add_revision(tx, &input, parent, 50)?;
        w.log_update(tx, 1, page, number)?;
        for user in 1..=8 {
            tx.update(&w.tables.watch, watch_key(user, page), Watch::NOTIFIED.set(number))?;
        }
        tx.update(&w.tables.page, page, Changed { latest: number, touched: number, len: 50 }).map(drop)
    });
    assert!(books.contains("there are 3 recent changes, but the committed transactions leave 2"), "{books}");
}

/// An ordered index lists the rows.
#[test]
fn texts_and_revisions_of_no_change_are_found() {
    type Damage<'d> = &'d dyn Fn(&mut Tx<'_>, &Schema) -> Result<(), Abort>;
    let cases: [(Damage<'_>, &str); 2] = [
        (&|tx, t| tx.insert_row(&t.text, 7 << COUNT_BITS).map(drop), "texts, and the pages"),
        (
            &|tx, t| tx.insert(&t.revision, 7 << COUNT_BITS, Revision::of(2, 7, 1, 9)).map(drop),
            "revisions, and the pages",
        ),
    ];
    for (damage, expected) in cases {
        let silo = Erased::new(<Silo as NamedProtocol<Native>>::new(Default::default()));
        let engine = Engine::new(silo, EngineConfig::default());
        let wikipedia = Wikipedia::create(&small(UpdateMode::One), IndexKind::Ordered, &engine);
        let mut loader = engine.loader().expect("a slot");
        wikipedia.load(&mut loader, 0, 1, &mut |_| ControlFlow::Continue(())).expect("memory");
        drop(loader);
        let world = (engine, wikipedia);
        check(&world, &[]).expect("nothing wrong");
        let mut worker = world.0.worker().expect("a slot");
        worker.run(|tx| damage(tx, &world.1.tables)).expect("no conflict");
        let wrong = check(&world, &[]).expect_err("broken").0;
        assert!(wrong.contains(expected), "{wrong}, not: {expected}");
    }
}

/// What is never deleted was deleted, or a row of the transaction's own is there.
#[test]
fn a_transaction_that_is_surprised_is_found() {
    type Damage<'d> = &'d dyn Fn(&mut Tx<'_>, &Schema) -> Result<(), Abort>;
    let number = 1 << COUNT_BITS | 1;
    let latest = loaded_revision(2, revisions_of(2));
    let cases: [(Kind, Damage<'_>); 9] = [
        (Kind::GetPageAnonymous, &|tx, t| tx.delete(&t.page_by_title, title_key(2)).map(drop)),
        (Kind::GetPageAuthenticated, &|tx, t| tx.delete(&t.user, 1).map(drop)),
        (Kind::GetPageAnonymous, &|tx, t| tx.delete(&t.revision, latest).map(drop)),
        (Kind::GetPageAnonymous, &|tx, t| {
            tx.modify_row(&t.text, latest, Groups::ALL).map(|row| row.expect("it is there")[2] = 0)
        }),
        (Kind::UpdatePage, &|tx, t| tx.delete_row(&t.text, latest).map(drop)),
        (Kind::UpdatePage, &|tx, t| {
            let row = LogEntry { page: 2, user: 1, revision: number };
            tx.insert(&t.log_entry, number, row).map(drop)
        }),
        (Kind::ListPages, &|tx, t| tx.delete(&t.page, 2).map(drop)),
        (Kind::AddWatch, &|tx, t| {
            tx.delete(&t.watch_by_title, watcher_key(2, 1))?;
            tx.insert(&t.watch, watch_key(1, 2), Watch { notified: 0 }).map(drop)
        }),
        (Kind::RemoveWatch, &|tx, t| {
            tx.delete(&t.watch, watch_key(1, 2))?;
            tx.insert(&t.watch_by_title, watcher_key(2, 1), Nothing {}).map(drop)
        }),
    ];
    for (kind, damage) in cases {
        let world = world::<Silo, Wikipedia>(&small(UpdateMode::One));
        let mut client = world.1.client(0, 1, 1);
        let mut worker = world.0.worker().expect("a slot");
        worker.run(|tx| damage(tx, &world.1.tables)).expect("no conflict");
        let input = Input { kind, page: 2, user: 1, number, ..Input::default() };
        worker.run(|tx| world.1.execute(tx, &mut client, &input)).expect("no conflict");
        world.1.committed(&mut client, &input);
        let wrong = check(&world, &[client]).expect_err("broken").0;
        assert!(wrong.contains("a committed transaction missed a row"), "{kind:?}: {wrong}");
    }
}

#[test]
fn keys_are_taken_apart_as_they_were_made() {
    for page in 1..2000 {
        let user = page * 7;
        assert_eq!(watched(watch_key(user, page)), Some((page, user, false)));
        assert_eq!(watcher(watcher_key(page, user)), Some((page, user)));
        assert_eq!(schema::watcher_of(watcher_key(page, user)), user);
        assert!(titles_of(namespace_of(page)).contains(&title_key(page)));
        assert!(
            watchers_of(page).contains(&watcher_key(page, user))
                && !watchers_of(page + 1).contains(&watcher_key(page, user))
        );
        match watched_talk(user, page) {
            Some(talk) => assert_eq!(watched(talk), Some((page, user, true))),
            None => assert_ne!(namespace_of(page), 0),
        }
    }
    assert_eq!((watched([0; 32]), watcher([7; 32])), (None, None));
    assert_ne!(title_of(1), title_of(2));
}

/// The mix, the namespaces, the revisions of a page and the pages that a user watches are those of
/// the description.
#[test]
fn draws_and_loads_are_as_described() {
    const DRAWS: u64 = 200_000;
    let near = |count: u64, expected: f64| (count as f64 - expected).abs() <= 5.0 * expected.sqrt() + 1.0;
    let options = WikipediaOptions { pages: 20, users: 20, text_bytes: 8, ..WikipediaOptions::default() };
    let world = world::<Silo, Wikipedia>(&options);
    let (mut client, mut again) = (world.1.client(0, 1, 5), world.1.client(0, 1, 5));
    let (mut input, mut same) = (Input::default(), Input::default());
    let (mut kinds, mut first, mut users) = ([0u64; 9], 0, [0u64; 20]);
    for _ in 0..DRAWS {
        world.1.next(&mut (), &mut client, &mut input);
        world.1.next(&mut (), &mut again, &mut same);
        assert_eq!(format!("{input:?}"), format!("{same:?}"));
        kinds[world.1.kind(&input)] += 1;
        first += u64::from(input.page == 1);
        users[input.user as usize - 1] += 1;
        assert!((1..=20).contains(&input.page) && (1..=20).contains(&input.user));
    }
    for (kind, percent) in kinds.into_iter().zip([0.07, 0.07, 4.6725, 47.4218, 46.8438, 0.9219, 0.0, 0.0, 0.0]) {
        assert!(near(kind, DRAWS as f64 * percent / 100.0), "{kinds:?}");
    }
    assert!(users.into_iter().all(|draws| near(draws, DRAWS as f64 / 20.0)), "{users:?}");
    let sum: f64 = (1..=20).map(|rank| f64::from(rank).powf(-1.0001)).sum();
    assert!(near(first, DRAWS as f64 / sum), "{first} draws of page 1");
    // The three largest, of 100,000 pages, and the pages of one revision, of 1,000.
    let largest = [(0, 40_847), (3, 23_563), (1, 15_304)];
    assert!(largest.iter().all(|of| NAMESPACES.contains(of)) && REVISIONS[0] == (1, 1, 396));
    for (namespace, pages) in NAMESPACES {
        let count = (1..=DRAWS).filter(|page| namespace_of(*page) == namespace).count() as u64;
        assert!(near(count, DRAWS as f64 * pages as f64 / 100_000.0), "{count} pages of namespace {namespace}");
    }
    for (low, high, pages) in REVISIONS {
        let count = (1..=DRAWS).filter(|page| (low..=high).contains(&revisions_of(*page))).count() as u64;
        assert!(near(count, DRAWS as f64 * pages as f64 / 1000.0), "{count} pages of {low} to {high} revisions");
    }
    let (weights, random) = (watch_weights(), &mut Random::new(1, 1));
    let mut watches = [0u64; 1001];
    (0..DRAWS).for_each(|_| watches[draw_watches(random, &weights) as usize] += 1);
    let sum: f64 = (1..=1000).map(|count| f64::from(count).powf(-1.75)).sum();
    for count in [1, 2, 3, 10, 100] {
        assert!(near(watches[count], DRAWS as f64 * (count as f64).powf(-1.75) / sum), "{count}: {}", watches[count]);
    }
}

#[test]
fn options_that_can_not_be_are_refused() {
    let validate = |options: WikipediaOptions| Wikipedia::validate(&options, IndexKind::Hash);
    let bytes = validate(WikipediaOptions { text_bytes: 9, ..WikipediaOptions::default() });
    assert!(bytes.is_err_and(|why| why.contains("wikipedia.text_bytes is 9")));
    let none = WikipediaOptions {
        add_watch: 0,
        remove_watch: 0,
        update_page: 0,
        list_pages: 0,
        get_page_anonymous: 0,
        get_page_authenticated: 0,
        ..WikipediaOptions::default()
    };
    assert!(validate(none).is_err_and(|why| why.contains("are all 0")));
    assert_eq!(validate(WikipediaOptions::default()), Ok(()));
    // One page that everybody watches, and one user.
    for (pages, users) in [(1, 4), (4, 1), (1, 1)] {
        run::<Silo, Wikipedia>(&WikipediaOptions { pages, users, ..small(UpdateMode::One) }, 3, 300)
            .expect("nothing wrong");
    }
}

#[test]
fn a_change_in_several_transactions_takes_one_if_nobody_watches() {
    let world = world::<Silo, Wikipedia>(&WikipediaOptions { users: 1, ..small(UpdateMode::Several) });
    let mut worker = world.0.worker().expect("a slot");
    for (page, watches) in [(1, false), (2, true)] {
        let kind = if watches { Kind::AddWatch } else { Kind::RemoveWatch };
        let mut client = world.1.client(page as usize, 1, 1);
        let number = page << COUNT_BITS;
        let watch = Input { kind, page, user: 1, number, ..Input::default() };
        worker.run(|tx| world.1.execute(tx, &mut client, &watch)).expect("no conflict");
        let begin = Input { kind: Kind::GetPageToUpdate, ..watch };
        let (mut kinds, mut next) = (Vec::new(), Some(begin));
        while let Some(input) = next {
            kinds.push(input.kind);
            worker.run(|tx| world.1.execute(tx, &mut client, &input)).expect("no conflict");
            world.1.committed(&mut client, &input);
            next = client.next.take();
        }
        let all = [Kind::GetPageToUpdate, Kind::UpdatePage, Kind::NotifyWatchers, Kind::LogUpdate];
        assert_eq!(kinds, all[..if watches { 4 } else { 2 }]);
    }
}

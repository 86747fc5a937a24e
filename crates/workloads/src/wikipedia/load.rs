//! The rows of Wikipedia at the beginning.

use std::collections::HashSet;
use std::ops::ControlFlow;

use contend_model::{Load, OutOfMemory};

use super::Wikipedia;
use super::schema::{
    ByTitle, Nothing, Page, Revision, User, Watch, fill_text, namespace_of, title_key, title_of, watch_key,
    watched_talk, watcher_key,
};
use crate::loading::{load_in_steps, put};
use crate::random::Random;

const LOAD_STEP: u64 = 64;
/// The most pages that a user watches.
const WATCHES_MAX: u64 = 1_000;
/// The skew of the number of pages that a user watches.
const WATCHES_THETA: f64 = 1.75;
/// Bits of the number of a loaded revision that count those of its page.
const REVISION_BITS: u32 = 11;

/// Of a thousand pages, how many have between the first and the second number of revisions, in
/// OLTP-Bench's sample.
pub(super) const REVISIONS: [(u64, u64, u64); 16] = [
    (1, 1, 396),
    (2, 2, 169),
    (3, 3, 81),
    (4, 4, 52),
    (5, 5, 36),
    (6, 6, 25),
    (7, 7, 20),
    (8, 8, 17),
    (9, 9, 14),
    (10, 10, 12),
    (11, 20, 72),
    (21, 50, 61),
    (51, 99, 23),
    (100, 199, 12),
    (200, 499, 8),
    (500, 1_000, 2),
];

/// Returns the number of revisions of a page.
pub(super) fn revisions_of(page: u64) -> u64 {
    let random = &mut Random::new(0x7265_7673, page);
    let mut draw = random.uniform(0, 999);
    for (first, last, pages) in REVISIONS {
        match draw.checked_sub(pages) {
            Some(rest) => draw = rest,
            None => return random.uniform(first, last),
        }
    }
    unreachable!("there are 1,000 pages in all ranges")
}

/// Returns the number of the nth revision of a page that is loaded, counted from 1.
pub(super) fn loaded_revision(page: u64, nth: u64) -> u64 {
    page << REVISION_BITS | nth
}

/// The sums of the weights of the numbers of pages that a user may watch: 1 to [`WATCHES_MAX`].
pub(super) fn watch_weights() -> Vec<f64> {
    let weights = (1..=WATCHES_MAX).map(|watches| (watches as f64).powf(-WATCHES_THETA));
    let add = |sum: &mut f64, weight| {
        *sum += weight;
        Some(*sum)
    };
    weights.scan(0.0, add).collect()
}

/// Draws how many pages a user watches.
pub(super) fn draw_watches(random: &mut Random, weights: &[f64]) -> u64 {
    let draw = (random.next() >> 11) as f64 / (1u64 << 53) as f64 * weights[weights.len() - 1];
    weights.partition_point(|&sum| sum <= draw) as u64 + 1
}

pub(super) fn load<L: Load>(
    wikipedia: &Wikipedia,
    loader: &mut L,
    part: usize,
    parts: usize,
    done: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<(), OutOfMemory> {
    let weights = watch_weights();
    let pages = wikipedia.options.pages;
    let units = pages + wikipedia.options.users;
    load_in_steps(units, part, parts, LOAD_STEP, done, |mut units| {
        units.try_for_each(|unit| match unit < pages {
            true => load_page(wikipedia, loader, unit + 1),
            false => load_user(wikipedia, loader, unit - pages + 1, &weights),
        })
    })
}

fn load_page<L: Load>(wikipedia: &Wikipedia, loader: &mut L, page: u64) -> Result<(), OutOfMemory> {
    let tables = &wikipedia.tables;
    let random = &mut Random::new(0x7061_6765, page);
    let (revisions, mut length) = (revisions_of(page), 0);
    for nth in 1..=revisions {
        let number = loaded_revision(page, nth);
        length = random.uniform(100, 20_000);
        loader.insert(&tables.text, number, |row| fill_text(row, number, page, length))?;
        let parent = if nth == 1 { 0 } else { number - 1 };
        let author = random.uniform(1, wikipedia.options.users);
        put(loader, &tables.revision, number, Revision { parent, ..Revision::of(page, number, author, length) })?;
    }
    let row = Page {
        namespace: namespace_of(page),
        title: title_of(page),
        restrictions: [0; 32],
        counter: 0,
        random: random.next(),
        is_redirect: 0,
        is_new: 1,
        touched: 0,
        latest: loaded_revision(page, revisions),
        len: length,
    };
    put(loader, &tables.page, page, row)?;
    put(loader, &tables.page_by_title, title_key(page), ByTitle { page })
}

fn load_user<L: Load>(wikipedia: &Wikipedia, loader: &mut L, user: u64, weights: &[f64]) -> Result<(), OutOfMemory> {
    let tables = &wikipedia.tables;
    let random = &mut Random::new(0x7573_6572, user);
    let letter = b'a' + (user % 26) as u8;
    let row = User {
        name: title_of(user),
        real_name: [letter; 32],
        e_mail: [letter; 32],
        options: [letter; 64],
        token: [letter; 32],
        registered: 0,
        touched: 0,
        edits: 0,
    };
    put(loader, &tables.user, user, row)?;
    let mut watched = HashSet::new();
    for _ in 0..draw_watches(random, weights).min(wikipedia.options.pages) {
        // A page that the user watches already is drawn again, and a few times later the next one
        // is taken.
        const TRIES: u32 = 64;
        let mut page = wikipedia.pages.draw(random.next()) + 1;
        for attempt in 0.. {
            if watched.insert(page) {
                break;
            }
            page = match attempt < TRIES {
                true => wikipedia.pages.draw(random.next()) + 1,
                false => page % wikipedia.options.pages + 1,
            };
        }
        for key in [Some(watch_key(user, page)), watched_talk(user, page)].into_iter().flatten() {
            put(loader, &tables.watch, key, Watch { notified: 0 })?;
        }
        put(loader, &tables.watch_by_title, watcher_key(page, user), Nothing {})?;
    }
    Ok(())
}

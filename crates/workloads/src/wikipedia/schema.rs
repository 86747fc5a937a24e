//! Wikipedia's tables, rows and keys.

use std::ops::RangeInclusive;

use contend_derive::Row;
use contend_model::random::below;
use contend_model::{Groups, IndexKind, Key, Table, TableSpec, Tables, TypedTable, Update};

use super::WikipediaOptions;

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct Page {
    pub(super) namespace: u64,
    pub(super) title: [u8; 16],
    pub(super) restrictions: [u8; 32],
    pub(super) counter: u64,
    pub(super) random: u64,
    #[group = 1]
    pub(super) is_redirect: u32,
    #[group = 1]
    pub(super) is_new: u32,
    /// The date of the last change.
    #[group = 1]
    pub(super) touched: u64,
    /// The last revision.
    #[group = 1]
    pub(super) latest: u64,
    /// The length of its text.
    #[group = 1]
    pub(super) len: u64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct ByTitle {
    pub(super) page: u64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct User {
    pub(super) name: [u8; 16],
    pub(super) real_name: [u8; 32],
    pub(super) e_mail: [u8; 32],
    pub(super) options: [u8; 64],
    pub(super) token: [u8; 32],
    pub(super) registered: u64,
    #[group = 1]
    pub(super) touched: u64,
    #[group = 1]
    pub(super) edits: u64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct Watch {
    /// The date of the last change of the page since the user watches it; or 0.
    pub(super) notified: u64,
}

/// A row of which only the key matters.
#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct Nothing {}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct Revision {
    pub(super) page: u64,
    pub(super) text: u64,
    pub(super) user: u64,
    pub(super) comment: [u8; 32],
    pub(super) is_minor: u64,
    /// The length of the text.
    pub(super) len: u64,
    /// The revision that was changed; 0 of the first.
    pub(super) parent: u64,
    pub(super) date: u64,
}

impl Revision {
    /// Returns a revision whose text has the same number, without a parent or a date.
    pub(super) fn of(page: u64, number: u64, user: u64, len: u64) -> Self {
        Revision { page, text: number, user, comment: [b'c'; 32], is_minor: number % 2, len, parent: 0, date: 0 }
    }
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct RecentChange {
    pub(super) page: u64,
    pub(super) user: u64,
    pub(super) revision: u64,
    pub(super) parent: u64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct LogEntry {
    pub(super) page: u64,
    pub(super) user: u64,
    pub(super) revision: u64,
}

/// A page has a new revision. The last writer wins, so this does not commute.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changed {
    pub(super) latest: u64,
    pub(super) touched: u64,
    pub(super) len: u64,
}

impl Update<Page> for Changed {
    #[inline(always)]
    fn groups(&self) -> Groups {
        Groups::of(Page::LATEST.group())
    }

    #[inline]
    fn apply(&self, page: &mut Page) {
        (page.latest, page.touched, page.len) = (self.latest, self.touched, self.len);
        (page.is_new, page.is_redirect) = (0, 0);
    }
}

/// A user has changed a page. The date does not commute.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edited {
    pub(super) touched: u64,
}

impl Update<User> for Edited {
    #[inline(always)]
    fn groups(&self) -> Groups {
        Groups::of(User::EDITS.group())
    }

    #[inline]
    fn apply(&self, user: &mut User) {
        user.edits = user.edits.wrapping_add(1);
        user.touched = self.touched;
    }
}

/// The words of a text before its body: the page, and the length.
pub(super) const TEXT_HEADER: usize = 2;

/// Fills the row of a text. Each word of the body has the number of the text.
pub(super) fn fill_text(row: &mut [u64], text: u64, page: u64, length: u64) {
    row.fill(text);
    row[..TEXT_HEADER].copy_from_slice(&[page, length]);
}

/// Namespaces, and how many of 100,000 pages are in each, in OLTP-Bench's sample.
pub(super) const NAMESPACES: [(u64, u64); 18] = [
    (0, 40_847),
    (1, 15_304),
    (2, 4_718),
    (3, 23_563),
    (4, 2_562),
    (5, 268),
    (6, 6_991),
    (7, 330),
    (8, 9),
    (9, 6),
    (10, 1_187),
    (11, 263),
    (12, 3),
    (13, 2),
    (14, 2_831),
    (15, 694),
    (100, 393),
    (101, 29),
];

/// Returns the namespace of a page.
pub(super) fn namespace_of(page: u64) -> u64 {
    let mut draw = below(Key::hash(!page), 100_000);
    for (namespace, pages) in NAMESPACES {
        match draw.checked_sub(pages) {
            Some(rest) => draw = rest,
            None => return namespace,
        }
    }
    unreachable!("there are 100,000 pages in all namespaces")
}

/// Returns the title of a page: a hash, and the number of the page.
pub(super) fn title_of(page: u64) -> [u8; 16] {
    (u128::from(Key::hash(page)) << 64 | u128::from(page)).to_be_bytes()
}

/// Returns the page of a title.
fn page_of(title: [u8; 16]) -> u64 {
    u128::from_be_bytes(title) as u64
}

/// The namespace of articles, and that of talks about them.
const ARTICLES: u64 = 0;
const TALKS: u64 = 1;

/// A namespace and a title.
pub(super) type TitleKey = [u8; 24];
/// A user, a namespace and a title.
pub(super) type WatchKey = [u8; 32];
/// A namespace, a title and a user.
pub(super) type WatcherKey = [u8; 32];

/// Returns the parts one after the other.
fn joined<const LENGTH: usize>(parts: [&[u8]; 3]) -> [u8; LENGTH] {
    let (mut key, mut used) = ([0; LENGTH], 0);
    for part in parts {
        key[used..][..part.len()].copy_from_slice(part);
        used += part.len();
    }
    key
}

/// Returns a part of a key as a number.
fn number_at(key: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(key[at..at + 8].try_into().expect("eight bytes"))
}

fn title_at(key: &[u8], at: usize) -> [u8; 16] {
    key[at..at + 16].try_into().expect("sixteen bytes")
}

pub(super) fn title_key(page: u64) -> TitleKey {
    joined([&namespace_of(page).to_be_bytes(), &title_of(page), &[]])
}

/// Returns the titles of a namespace.
pub(super) fn titles_of(namespace: u64) -> RangeInclusive<TitleKey> {
    let in_namespace = |title: [u8; 16]| joined([&namespace.to_be_bytes(), &title, &[]]);
    in_namespace([0; 16])..=in_namespace([u8::MAX; 16])
}

pub(super) fn watch_key(user: u64, page: u64) -> WatchKey {
    joined([&user.to_be_bytes(), &namespace_of(page).to_be_bytes(), &title_of(page)])
}

/// Returns the key by which a user watches the talk about a page, if the page is an article.
pub(super) fn watched_talk(user: u64, page: u64) -> Option<WatchKey> {
    let key = || joined([&user.to_be_bytes(), &TALKS.to_be_bytes(), &title_of(page)]);
    (namespace_of(page) == ARTICLES).then(key)
}

pub(super) fn watcher_key(page: u64, user: u64) -> WatcherKey {
    joined([&namespace_of(page).to_be_bytes(), &title_of(page), &user.to_be_bytes()])
}

/// Returns the watchers of a page.
pub(super) fn watchers_of(page: u64) -> RangeInclusive<WatcherKey> {
    watcher_key(page, 0)..=watcher_key(page, u64::MAX)
}

/// Returns the user of a key.
pub(super) fn watcher_of(key: WatcherKey) -> u64 {
    number_at(&key, 24)
}

/// Returns the page and the user of a key, and whether it is the talk about the page that is
/// watched. `None` if no page has its title and its namespace.
pub(super) fn watched(key: WatchKey) -> Option<(u64, u64, bool)> {
    let (user, namespace, page) = (number_at(&key, 0), number_at(&key, 8), page_of(title_at(&key, 16)));
    if title_of(page) != title_at(&key, 16) {
        None
    } else if namespace == namespace_of(page) {
        Some((page, user, false))
    } else {
        watched_talk(user, page).filter(|talk| *talk == key).map(|_| (page, user, true))
    }
}

/// Returns the page and the user of a key. `None` if no page has its title and its namespace.
pub(super) fn watcher(key: WatcherKey) -> Option<(u64, u64)> {
    let (page, user) = (page_of(title_at(&key, 8)), watcher_of(key));
    (watcher_key(page, user) == key).then_some((page, user))
}

/// The tables.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) page: TypedTable<Page>,
    pub(super) page_by_title: TypedTable<ByTitle, TitleKey>,
    pub(super) user: TypedTable<User>,
    pub(super) watch: TypedTable<Watch, WatchKey>,
    pub(super) watch_by_title: TypedTable<Nothing, WatcherKey>,
    pub(super) revision: TypedTable<Revision>,
    /// Rows of [`TEXT_HEADER`] words and a body.
    pub(super) text: Table,
    pub(super) recent_change: TypedTable<RecentChange>,
    pub(super) log_entry: TypedTable<LogEntry>,
}

/// Returns the specifications. Tables that are scanned, or listed by the check, have an ordered
/// index; `index` is that of the others.
pub(super) fn specs(options: &WikipediaOptions, index: IndexKind) -> [TableSpec; 9] {
    let (pages, users) = (options.pages as usize, options.users as usize);
    // A user watches ten pages and the talks about some of them, if there are as many.
    let (watchers, watches, revisions) = (users * pages.min(10), users * pages.min(15), pages * 14);
    let ordered = IndexKind::Ordered;
    // Each client appends rows in a range of its own, so that no client waits for another's leaf.
    let apart = |spec| TableSpec { apart: super::COUNT_BITS, ..spec };
    [
        TableSpec::of::<Page>("page", index, pages),
        TableSpec::of::<ByTitle>("page_by_title", ordered, pages).keyed::<TitleKey>(),
        TableSpec::of::<User>("user", index, users),
        TableSpec::of::<Watch>("watch", ordered, watches).keyed::<WatchKey>(),
        TableSpec::of::<Nothing>("watch_by_title", ordered, watchers).keyed::<WatcherKey>(),
        apart(TableSpec::of::<Revision>("revision", index, revisions)),
        apart(TableSpec::of_bytes("text", index, TEXT_HEADER * 8 + options.text_bytes as usize, revisions)),
        apart(TableSpec::of::<RecentChange>("recent_change", ordered, 1024)),
        apart(TableSpec::of::<LogEntry>("log_entry", ordered, 1024)),
    ]
}

impl Schema {
    pub(super) fn create<S: Tables>(options: &WikipediaOptions, index: IndexKind, store: &S) -> Self {
        let [page, page_by_title, user, watch, watch_by_title, revision, text, recent_change, log_entry] =
            specs(options, index);
        Schema {
            page: store.create_typed(&page),
            page_by_title: store.create_typed(&page_by_title),
            user: store.create_typed(&user),
            watch: store.create_typed(&watch),
            watch_by_title: store.create_typed(&watch_by_title),
            revision: store.create_typed(&revision),
            text: store.create_table(&text),
            recent_change: store.create_typed(&recent_change),
            log_entry: store.create_typed(&log_entry),
        }
    }
}

//! Wikipedia: pages, their revisions, and their watchers.
//!
//! This is OLTP-Bench's benchmark, as the STOv2 study runs it. Nearly all transactions read: an
//! article by its title, or a list of titles. One in twenty changes a page. It reads the article,
//! adds a revision with its text, notifies its watchers, and counts the change for its author.
//! Pages are drawn with a strong skew, and the most popular one has thousands of watchers, so a
//! change may write thousands of rows.
//!
//! | file | what |
//! | --- | --- |
//! | `schema` | tables, rows and keys |
//! | `load` | what is there at the beginning |
//! | `check` | what holds after any run |
//!
//! **One transaction or several.** With `wikipedia.update=one` a change is one transaction. With
//! `several`, as in STOv2, the article is read by a transaction of its own, before. If somebody
//! watches the page, the notifications are one more, and then the author's log. A revision may have
//! a parent that was not the latest one any more. Results count each of these transactions, under
//! kinds of their own.
//!
//! Differences to STOv2. Titles are 16 bytes: a hash, and the number of the page. A text has
//! `wikipedia.text_bytes` bytes, whatever its length in the row says, and a change alters the
//! length by a uniform draw. Watchers are scanned with protection against phantoms. All changes are
//! by users: the constant of 26 % anonymous ones is not used in STOv2's runs either. The numbers of
//! revisions are those of OLTP-Bench's sample by ranges, uniform within each.

mod check;
mod load;
mod schema;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use contend_model::pieces::{Mode, Piece, PieceBuilder, TypeBuilder};
use contend_model::{
    Abort, Core, Declare, Direction, Groups, IndexKind, Inspect, Load, OutOfMemory, Projection, TableSpec, Tables, Txn,
    Types, UpdateOf, Whole, options,
};

use crate::random::Random;
use crate::workload::{Checked, DeclaredRows, Declares, Violation, Workload, WorkloadInfo};
use crate::zipf::Zipf;
use schema::{
    ByTitle, Changed, Edited, LogEntry, Page, RecentChange, Revision, Schema, TEXT_HEADER, User, Watch, WatchKey,
    namespace_of, title_key, titles_of, watch_key, watched_talk, watcher_key, watchers_of,
};

/// How a page is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateMode {
    /// By one transaction.
    One,
    /// By a transaction that reads the article, one that writes it, and two more if somebody
    /// watches the page.
    Several,
}

contend_model::option_choices!(UpdateMode { One => "one", Several => "several" });

options! {
    /// Wikipedia's options.
    pub struct WikipediaOptions {
        /// Pages.
        "wikipedia.pages" pages: u64 = 5_000, in 1..=10_000_000;
        /// Users.
        "wikipedia.users" users: u64 = 10_000, in 1..=10_000_000;
        /// Skew of the pages: the page of rank i is read, changed, or watched from the beginning
        /// with a probability proportional to i^-theta.
        "wikipedia.theta" theta: f64 = 1.0001, in 0.0..1.5;
        /// Bytes of each text, a multiple of 8.
        "wikipedia.text_bytes" text_bytes: u64 = 1_024, in 8..=65_536;
        /// Whether a page is changed by one transaction, or by several as in STOv2.
        "wikipedia.update" update: UpdateMode = UpdateMode::One, in ();
        /// Weight of AddWatch among the transactions.
        "wikipedia.add_watch" add_watch: u64 = 700, in 0..=10_000_000;
        /// Weight of RemoveWatch.
        "wikipedia.remove_watch" remove_watch: u64 = 700, in 0..=10_000_000;
        /// Weight of UpdatePage.
        "wikipedia.update_page" update_page: u64 = 46_725, in 0..=10_000_000;
        /// Weight of ListPages.
        "wikipedia.list_pages" list_pages: u64 = 474_218, in 0..=10_000_000;
        /// Weight of GetPageAnonymous.
        "wikipedia.get_page_anonymous" get_page_anonymous: u64 = 468_438, in 0..=10_000_000;
        /// Weight of GetPageAuthenticated.
        "wikipedia.get_page_authenticated" get_page_authenticated: u64 = 9_219, in 0..=10_000_000;
    }
}

const SOURCE: &str = "Difallah, Pavlo, Curino, Cudré-Mauroux: OLTP-Bench, VLDB 2013; as run by Huang et al.: Opportunities for \
                      optimism in contended main-memory multicore transactions, VLDB 2020";

/// Wikipedia in a list.
pub const INFOS: &[WorkloadInfo] = &[
    WorkloadInfo {
        name: "wikipedia",
        summary: "articles and lists of titles, and changes of pages that notify their watchers",
        source: SOURCE,
        preset: &[],
    },
    WorkloadInfo {
        name: "wikipedia-stov2",
        summary: "Wikipedia with the size of the STOv2 study, and a change of a page in several transactions",
        source: SOURCE,
        preset: &[("wikipedia.pages", "10000"), ("wikipedia.users", "20000"), ("wikipedia.update", "several")],
    },
];

/// The titles that ListPages reads.
const LISTED: usize = 20;
/// Bits of the number that a client gives a row of its own; the client's number, from 1, is above
/// them. Loaded rows have smaller numbers.
const COUNT_BITS: u32 = 40;

// The pieces of UpdatePage.
const PAGE: Piece = Piece::new(0, "page");
const TEXT: Piece = Piece::new(1, "text");
const WATCHERS: Piece = Piece::new(2, "watchers");
const NOTIFY: Piece = Piece::new(3, "notify");
const AUTHOR: Piece = Piece::new(4, "author");
/// The last piece of UpdatePage if the notifications are a transaction of their own.
const AUTHOR_NEXT: Piece = Piece::new(3, "author");
// The only pieces of the second and the third transaction of a change that takes several.
const NOTIFY_ALONE: Piece = Piece::new(0, "notify");
const AUTHOR_ALONE: Piece = Piece::new(0, "author");
// AddWatch and RemoveWatch.
const BY_TITLE: Piece = Piece::new(0, "by_title");
const WATCHED: Piece = Piece::new(1, "watched");
const TOUCHED: Piece = Piece::new(2, "touched");
// ListPages.
const TITLES: Piece = Piece::new(0, "titles");
const PAGES: Piece = Piece::new(1, "pages");
// GetPageAuthenticated.
const READER: Piece = Piece::new(0, "reader");
const READ_PAGE: Piece = Piece::new(1, "page");
const READ_TEXT: Piece = Piece::new(2, "text");

/// The transaction types, in the order of [`KIND_NAMES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    AddWatch,
    RemoveWatch,
    UpdatePage,
    ListPages,
    #[default]
    GetPageAnonymous,
    GetPageAuthenticated,
    /// The first transaction of a change that takes several.
    GetPageToUpdate,
    NotifyWatchers,
    LogUpdate,
}

impl Kind {
    /// Whether its transactions may see a snapshot. A change of a page must begin with the latest
    /// revision.
    fn only_reads(self) -> bool {
        matches!(self, Kind::ListPages | Kind::GetPageAnonymous | Kind::GetPageAuthenticated)
    }
}

const KINDS: [Kind; 6] = [
    Kind::AddWatch,
    Kind::RemoveWatch,
    Kind::UpdatePage,
    Kind::ListPages,
    Kind::GetPageAnonymous,
    Kind::GetPageAuthenticated,
];

/// A transaction's parameters.
#[derive(Clone, Debug, Default)]
pub struct Input {
    kind: Kind,
    page: u64,
    user: u64,
    /// The number of the rows that the transaction inserts, and its date. Only the transactions of
    /// one change share a number.
    number: u64,
    /// What a change adds to the length of the text.
    grows: i64,
    /// The article that a change in several transactions has read.
    article: Article,
}

/// What a change needs of an article.
#[derive(Clone, Copy, Debug, Default)]
struct Article {
    revision: u64,
    length: u64,
}

/// A worker's generator of inputs, and its books.
#[derive(Debug)]
pub struct Client {
    number: u64,
    random: Random,
    /// Inputs that were drawn.
    drawn: u64,
    /// The next transaction of a change that takes several.
    next: Option<Input>,
    /// The article that the running execution has read.
    article: Article,
    /// The watchers of the page that is changed.
    watchers: Vec<u64>,
    /// The pages that the running execution lists.
    listed: Vec<u64>,
    /// The keys that the running execution notifies.
    keys: Vec<WatchKey>,
    /// Whether the running execution found something missing that is never deleted, or its own rows
    /// there.
    surprised: bool,
    /// The same of any committed transaction.
    was_surprised: bool,
    commits: u64,
    /// Committed changes of pages.
    updates: u64,
    /// Committed log entries of changes.
    logged: u64,
}

/// The workload.
#[derive(Debug)]
pub struct Wikipedia {
    options: WikipediaOptions,
    tables: Schema,
    /// The cumulative weights, by type.
    weights: [u64; 6],
    pages: Zipf,
}

impl Wikipedia {
    /// Reads an article: its page by its title, the latest revision, and the text. Returns `None`
    /// if one of them is missing, or the text is not whole.
    fn read_article<T: Txn>(
        &self,
        tx: &mut T,
        page: u64,
        (of_page, of_text): (Piece, Piece),
    ) -> Result<Option<Article>, Abort> {
        let article = tx.piece(of_page, |tx| self.find_article(tx, page))?;
        let Some(article) = article else { return Ok(None) };
        let is_whole = tx.piece(of_text, |tx| self.read_text(tx, article.revision))?;
        Ok(is_whole.then_some(article))
    }

    fn find_article<T: Txn>(&self, tx: &mut T, page: u64) -> Result<Option<Article>, Abort> {
        let Some(page) = tx.read(&self.tables.page_by_title, title_key(page), ByTitle::PAGE)? else { return Ok(None) };
        let found = tx.read(&self.tables.page, page, (Page::LATEST, Page::LEN))?;
        Ok(found.map(|(revision, length)| Article { revision, length }))
    }

    /// Returns whether the text of a revision is there and whole.
    fn read_text<T: Txn>(&self, tx: &mut T, revision: u64) -> Result<bool, Abort> {
        let Some(text) = tx.read(&self.tables.revision, revision, Revision::TEXT)? else { return Ok(false) };
        let row = tx.read_row(&self.tables.text, text, Projection::WHOLE)?;
        // A reader has all of the text: a word of each of its lines.
        Ok(row.is_some_and(|row| row[TEXT_HEADER..].iter().step_by(8).all(|word| *word == text)))
    }

    /// Lists the first titles of the page's namespace. Returns whether their pages are there.
    fn list_pages<T: Txn>(&self, tx: &mut T, listed: &mut Vec<u64>, page: u64) -> Result<bool, Abort> {
        let Schema { page: pages, page_by_title, .. } = &self.tables;
        tx.piece(TITLES, |tx| {
            listed.clear();
            let range = titles_of(namespace_of(page));
            tx.scan(page_by_title, range, LISTED, Direction::Forward, ByTitle::PAGE, |_, page| {
                listed.push(page);
                ControlFlow::Continue(())
            })
        })?;
        tx.piece(PAGES, |tx| {
            let mut found = 0;
            let note = |_, title: Option<_>| found += usize::from(std::hint::black_box(title).is_some());
            tx.read_many(pages, listed, Page::TITLE, note)?;
            // The page that was drawn is one of the namespace.
            Ok(found == listed.len() && found > 0)
        })
    }

    /// Adds or removes what a user watches. Returns whether both tables knew the same before.
    fn watch<T: Txn>(&self, tx: &mut T, input: &Input) -> Result<bool, Abort> {
        let Schema { watch, watch_by_title, user: users, .. } = &self.tables;
        let Input { page, user, number, .. } = *input;
        let adds = input.kind == Kind::AddWatch;
        let new = Watch { notified: 0 };
        let (by_title, own) = (watcher_key(page, user), watch_key(user, page));
        let changed = tx.piece(BY_TITLE, |tx| match adds {
            true => tx.insert(watch_by_title, by_title, schema::Nothing {}),
            false => tx.delete(watch_by_title, by_title),
        })?;
        let agree = tx.piece(WATCHED, |tx| {
            let mut keys = [Some(own), watched_talk(user, page)].into_iter().flatten();
            keys.try_fold(true, |agree, key| {
                let too = if adds { tx.insert(watch, key, new)? } else { tx.delete(watch, key)? };
                Ok(agree & (too == changed))
            })
        })?;
        Ok(agree & tx.piece(TOUCHED, |tx| tx.update(users, user, User::TOUCHED.set(number)))?)
    }

    /// Changes a page. Returns whether all was there that is never deleted.
    fn update_page<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<bool, Abort> {
        let Input { page, user, number, grows, .. } = *input;
        let is_one = self.options.update == UpdateMode::One;
        let longer = |length: u64| length.saturating_add_signed(grows);
        let parent = tx.piece(PAGE, |tx| {
            let article = if is_one { self.find_article(tx, page)? } else { Some(input.article) };
            let Some(article) = article else { return Ok(None) };
            let changed = Changed { latest: number, touched: number, len: longer(article.length) };
            Ok(tx.update(&self.tables.page, page, changed)?.then_some(article))
        })?;
        let Some(parent) = parent else { return Ok(false) };
        let mut as_expected = tx.piece(TEXT, |tx| {
            let is_whole = if is_one { self.read_text(tx, parent.revision)? } else { true };
            Ok(is_whole & self.add_revision(tx, input, parent.revision, longer(parent.length))?)
        })?;
        let watchers = &mut client.watchers;
        tx.piece(WATCHERS, |tx| {
            watchers.clear();
            let table = &self.tables.watch_by_title;
            tx.scan(table, watchers_of(page), usize::MAX, Direction::Forward, Whole, |key, _| {
                watchers.push(schema::watcher_of(key));
                ControlFlow::Continue(())
            })
        })?;
        if is_one {
            as_expected &= tx.piece(NOTIFY, |tx| self.notify(tx, watchers, &mut client.keys, page, number))?;
        }
        if is_one || watchers.is_empty() {
            let piece = if is_one { AUTHOR } else { AUTHOR_NEXT };
            as_expected &= tx.piece(piece, |tx| self.log_update(tx, user, page, number))?;
        }
        Ok(as_expected)
    }

    /// Inserts a revision with its text, and notes the change. Returns whether all three rows are
    /// new.
    fn add_revision<T: Txn>(&self, tx: &mut T, input: &Input, parent: u64, length: u64) -> Result<bool, Abort> {
        let Schema { revision, text, recent_change, .. } = &self.tables;
        let Input { page, user, number, .. } = *input;
        let is_new = tx.insert_row(text, number)?.map(|row| schema::fill_text(row, number, page, length)).is_some();
        let row = Revision { parent, date: number, ..Revision::of(page, number, user, length) };
        let change = RecentChange { page, user, revision: number, parent };
        Ok(is_new & tx.insert(revision, number, row)? & tx.insert(recent_change, number, change)?)
    }

    /// Notifies the watchers of a page. Returns whether each of them watches it.
    fn notify<T: Txn>(
        &self,
        tx: &mut T,
        watchers: &[u64],
        keys: &mut Vec<WatchKey>,
        page: u64,
        date: u64,
    ) -> Result<bool, Abort> {
        keys.clear();
        keys.extend(watchers.iter().map(|&user| watch_key(user, page)));
        // As many as the engine looks up together.
        const AT_ONCE: usize = 32;
        let notified = [UpdateOf::<Watch, _>::new(Watch::NOTIFIED.set(date)); AT_ONCE];
        let mut all_watch = true;
        for keys in keys.chunks(AT_ONCE) {
            tx.change_rows(&self.tables.watch, keys, &notified[..keys.len()], |_, watches| all_watch &= watches)?;
        }
        Ok(all_watch)
    }

    /// Logs a change, and counts it for its author.
    fn log_update<T: Txn>(&self, tx: &mut T, user: u64, page: u64, number: u64) -> Result<bool, Abort> {
        let entry = LogEntry { page, user, revision: number };
        Ok(tx.insert(&self.tables.log_entry, number, entry)?
            & tx.update(&self.tables.user, user, Edited { touched: number })?)
    }
}

/// The names of the transaction types.
const KIND_NAMES: &[&str] = &[
    "add_watch",
    "remove_watch",
    "update_page",
    "list_pages",
    "get_page_anonymous",
    "get_page_authenticated",
    "get_page_to_update",
    "notify_watchers",
    "log_update",
];

impl Workload for Wikipedia {
    type Options = WikipediaOptions;
    type Client = Client;
    type Input = Input;

    fn kinds(&self) -> &'static [&'static str] {
        KIND_NAMES
    }

    fn validate(options: &WikipediaOptions, _: IndexKind) -> Result<(), String> {
        if !options.text_bytes.is_multiple_of(8) {
            return Err(format!("wikipedia.text_bytes is {}, and must be a multiple of 8", options.text_bytes));
        }
        if weights(options).iter().sum::<u64>() == 0 {
            return Err(
                "the weights of Wikipedia's transactions (wikipedia.list_pages and so on) are all 0: at least \
                        one must be more"
                    .into(),
            );
        }
        Ok(())
    }

    fn tables(options: &WikipediaOptions, index: IndexKind) -> Vec<TableSpec> {
        schema::specs(options, index).into()
    }

    fn create<S: Tables>(options: &WikipediaOptions, index: IndexKind, store: &S) -> Self {
        let mut weights = weights(options);
        for kind in 1..weights.len() {
            weights[kind] += weights[kind - 1];
        }
        Wikipedia {
            tables: Schema::create(options, index, store),
            weights,
            pages: Zipf::new(options.pages, options.theta),
            options: options.clone(),
        }
    }

    fn load_units(&self) -> u64 {
        self.options.pages + self.options.users
    }

    fn for_verification(options: &WikipediaOptions) -> WikipediaOptions {
        let update_page = options.update_page.saturating_mul(4).min(10_000_000);
        let (add_watch, remove_watch) =
            (options.add_watch.max(update_page / 4), options.remove_watch.max(update_page / 4));
        WikipediaOptions {
            pages: options.pages.min(5),
            users: options.users.min(5),
            text_bytes: options.text_bytes.min(16),
            update_page,
            add_watch,
            remove_watch,
            ..options.clone()
        }
    }

    fn load<L: Load>(
        &self,
        loader: &mut L,
        part: usize,
        parts: usize,
        done: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), OutOfMemory> {
        load::load(self, loader, part, parts, done)
    }

    fn client(&self, worker: usize, _: usize, seed: u64) -> Client {
        // A page with more watchers makes the buffers grow once.
        const WATCHERS: u64 = 8192;
        let room = self.options.users.min(WATCHERS) as usize;
        Client {
            number: worker as u64 + 1,
            random: Random::new(seed, worker as u64 + 1),
            drawn: 0,
            next: None,
            article: Article::default(),
            watchers: Vec::with_capacity(room),
            listed: Vec::with_capacity(LISTED),
            keys: Vec::with_capacity(room),
            surprised: false,
            was_surprised: false,
            commits: 0,
            updates: 0,
            logged: 0,
        }
    }

    fn next<C: Core>(&self, _: &mut C, client: &mut Client, input: &mut Input) {
        if let Some(next) = client.next.take() {
            *input = next;
            return;
        }
        let random = &mut client.random;
        let draw = random.uniform(0, self.weights[5] - 1);
        let kind = KINDS[self.weights.partition_point(|&sum| sum <= draw)];
        client.drawn += 1;
        let reads_before = kind == Kind::UpdatePage && self.options.update == UpdateMode::Several;
        *input = Input {
            kind: if reads_before { Kind::GetPageToUpdate } else { kind },
            page: self.pages.draw(random.next()) + 1,
            user: random.uniform(1, self.options.users),
            number: client.number << COUNT_BITS | client.drawn,
            grows: random.uniform(0, 300) as i64 - 100,
            article: Article::default(),
        };
    }

    fn kind(&self, input: &Input) -> usize {
        input.kind as usize
    }

    fn declares(_: &WikipediaOptions) -> Declares {
        // A transaction finds the keys of most rows in other rows, and all data is one partition.
        Declares { rows: DeclaredRows::None, partitions: Some(1) }
    }

    fn declare(&self, input: &Input, declaration: &mut impl Declare) {
        if input.kind.only_reads() {
            declaration.read_only();
        }
        declaration.partition(0);
    }

    fn types(&self, types: &mut Types) {
        let Schema { page, page_by_title, user, watch, watch_by_title, revision, text, recent_change, log_entry } =
            &self.tables;
        let [add_watch, remove_watch, update_page, list_pages, anonymous, authenticated] =
            weights(&self.options).map(|weight| weight > 0);
        let is_one = self.options.update == UpdateMode::One;
        let several = update_page && !is_one;
        let touched = User::TOUCHED.set(0);
        let find = |piece: PieceBuilder| piece.read(page_by_title, ByTitle::PAGE).read(page, (Page::LATEST, Page::LEN));
        let get = |piece: PieceBuilder| piece.read(revision, Revision::TEXT).access(Mode::Read, text, Groups::ALL);
        let changed = Changed { latest: 0, touched: 0, len: 0 };
        let notify = |piece: PieceBuilder| piece.update(watch, Watch::NOTIFIED.set(0));
        let author = |piece: PieceBuilder| piece.insert(log_entry).update(user, Edited { touched: 0 });
        // A type of which no transaction runs takes part in no order.
        let mut declare = |runs: bool, kind: Kind, pieces: &dyn Fn(TypeBuilder<'_>)| {
            let name = KIND_NAMES[kind as usize];
            match (runs, kind.only_reads()) {
                (false, _) => types.leave_out(name),
                (true, false) => pieces(types.add(name)),
                (true, true) => pieces(types.add_read_only(name)),
            }
        };
        declare(add_watch, Kind::AddWatch, &|of| {
            let of = of.piece(BY_TITLE, |piece| piece.insert(watch_by_title));
            of.piece(WATCHED, |piece| piece.insert(watch)).piece(TOUCHED, |piece| piece.update(user, touched));
        });
        declare(remove_watch, Kind::RemoveWatch, &|of| {
            let of = of.piece(BY_TITLE, |piece| piece.delete(watch_by_title));
            of.piece(WATCHED, |piece| piece.delete(watch)).piece(TOUCHED, |piece| piece.update(user, touched));
        });
        declare(update_page, Kind::UpdatePage, &|of| {
            let change = |piece: PieceBuilder| piece.update(page, changed);
            let add = |piece: PieceBuilder| piece.insert(text).insert(revision).insert(recent_change);
            let of = of.piece(PAGE, |piece| if is_one { change(find(piece)) } else { change(piece) });
            let of = of.piece(TEXT, |piece| if is_one { add(get(piece)) } else { add(piece) });
            let of = of.piece(WATCHERS, |piece| piece.read(watch_by_title, Whole));
            if is_one {
                of.piece(NOTIFY, notify).piece(AUTHOR, author);
            } else {
                of.piece(AUTHOR_NEXT, author);
            }
        });
        declare(list_pages, Kind::ListPages, &|of| {
            let of = of.piece(TITLES, |piece| piece.read(page_by_title, ByTitle::PAGE));
            of.piece(PAGES, |piece| piece.read(page, Page::TITLE));
        });
        declare(anonymous, Kind::GetPageAnonymous, &|of| {
            of.piece(PAGE, find).piece(TEXT, get);
        });
        declare(authenticated, Kind::GetPageAuthenticated, &|of| {
            let of = of.piece(READER, |piece| piece.read(user, User::NAME));
            of.piece(READ_PAGE, find).piece(READ_TEXT, get);
        });
        declare(several, Kind::GetPageToUpdate, &|of| {
            of.piece(PAGE, find).piece(TEXT, get);
        });
        declare(several, Kind::NotifyWatchers, &|of| {
            of.piece(NOTIFY_ALONE, notify);
        });
        declare(several, Kind::LogUpdate, &|of| {
            of.piece(AUTHOR_ALONE, author);
        });
    }

    fn execute<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let Input { page, user, number, .. } = *input;
        let as_expected = match input.kind {
            Kind::AddWatch | Kind::RemoveWatch => self.watch(tx, input)?,
            Kind::UpdatePage => self.update_page(tx, client, input)?,
            Kind::ListPages => self.list_pages(tx, &mut client.listed, page)?,
            Kind::GetPageAnonymous | Kind::GetPageToUpdate => {
                let article = self.read_article(tx, page, (PAGE, TEXT))?;
                client.article = article.unwrap_or_default();
                article.is_some()
            }
            Kind::GetPageAuthenticated => {
                let name = tx.piece(READER, |tx| tx.read(&self.tables.user, user, User::NAME))?;
                let article = self.read_article(tx, page, (READ_PAGE, READ_TEXT))?;
                std::hint::black_box(name).is_some() & article.is_some()
            }
            Kind::NotifyWatchers => {
                // A watcher may have gone since.
                let (watchers, keys) = (&client.watchers, &mut client.keys);
                tx.piece(NOTIFY_ALONE, |tx| self.notify(tx, watchers, keys, page, number))?;
                true
            }
            Kind::LogUpdate => tx.piece(AUTHOR_ALONE, |tx| self.log_update(tx, user, page, number))?,
        };
        client.surprised = !as_expected;
        Ok(())
    }

    fn committed(&self, client: &mut Client, input: &Input) {
        client.commits += 1;
        client.was_surprised |= client.surprised;
        let then = |kind| Some(Input { kind, ..input.clone() });
        match input.kind {
            Kind::GetPageToUpdate if !client.surprised => {
                client.next = Some(Input { kind: Kind::UpdatePage, article: client.article, ..input.clone() });
            }
            Kind::UpdatePage => {
                client.updates += 1;
                match self.options.update {
                    UpdateMode::Several if !client.watchers.is_empty() => client.next = then(Kind::NotifyWatchers),
                    _ => client.logged += 1,
                }
            }
            Kind::NotifyWatchers => client.next = then(Kind::LogUpdate),
            Kind::LogUpdate => client.logged += 1,
            _ => {}
        }
    }

    fn check<S: Inspect>(&self, store: &S, clients: &[&Client]) -> Result<Checked, Violation> {
        check::check(self, store, clients)
    }
}

/// Returns the weights of the transactions that are drawn, in the order of their types.
fn weights(options: &WikipediaOptions) -> [u64; 6] {
    let WikipediaOptions { add_watch, remove_watch, update_page, list_pages, .. } = *options;
    [add_watch, remove_watch, update_page, list_pages, options.get_page_anonymous, options.get_page_authenticated]
}

//! The conditions that hold in Wikipedia after any run.
//!
//! Where a change is several transactions, those of one client follow each other: a crash never
//! leaves the later one without the earlier one.

use std::collections::{HashMap, HashSet};

use contend_model::{Inspect, Row, counted};

use super::load::revisions_of;
use super::schema::{
    ByTitle, LogEntry, Page, RecentChange, Revision, TEXT_HEADER, User, Watch, title_key, watch_key, watched,
    watched_talk, watcher, watcher_key,
};
use super::{Client, UpdateMode, Wikipedia};
use crate::workload::{Checked, Violation};

/// Returns the error unless this holds.
fn must(holds: bool, wrong: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation(wrong())) }
}

/// A recent change: page, author and parent.
type Changes = HashMap<u64, RecentChange>;

pub(super) fn check<S: Inspect>(wikipedia: &Wikipedia, store: &S, clients: &[&Client]) -> Result<Checked, Violation> {
    must(clients.iter().all(|client| !client.was_surprised), || {
        "a committed transaction missed a row that is never deleted, found its own row there, or found one of the tables \
         of watches without the other"
            .into()
    })?;
    let is_one = wikipedia.options.update == UpdateMode::One;
    let changes = recent_changes(wikipedia, store)?;
    let edits = edits_by_log(wikipedia, store, &changes)?;
    let (count, logged) = (changes.len() as u64, edits.values().sum::<u64>());
    let mut row = Vec::new();
    let (mut dates, mut revisions) = (HashMap::new(), 0);
    for page in 1..=wikipedia.options.pages {
        let found = check_page(wikipedia, store, page, &mut row)?;
        dates.insert(page, found.touched);
        if is_one {
            // Each change has another parent, so the revisions are one chain.
            let first = revisions_of(page);
            let chain = chain_of(wikipedia, store, page, found.latest, first + count)?;
            must(chain >= first, || format!("page {page} has {chain} revisions, and had {first} at first"))?;
            revisions += chain - first;
        }
    }
    must(!is_one || revisions == count, || {
        format!("the pages have {revisions} new revisions, and there are {count} recent changes: updates got lost")
    })?;
    check_counts(wikipedia, store, count)?;
    let touched = check_users(wikipedia, store, &edits)?;
    must(logged == count || !is_one && logged < count, || {
        format!("{logged} changes are logged, and there are {count} recent changes")
    })?;
    let watches = check_watches(wikipedia, store, &dates, &touched, &changes)?;
    if !clients.is_empty() {
        let updates: u64 = clients.iter().map(|client| client.updates).sum();
        must(count == updates, || {
            format!("there are {count} recent changes, but the committed transactions leave {updates}")
        })?;
        let booked: u64 = clients.iter().map(|client| client.logged).sum();
        must(logged == booked, || {
            format!("{logged} changes are logged, but the committed transactions leave {booked}")
        })?;
    }
    let commits: u64 = clients.iter().map(|client| client.commits).sum();
    Ok(Checked(format!(
        "pages, revisions and texts agree, as do changes ({count}) with their authors' edits and watched pages ({watches}) with \
         their watchers, after {}",
        counted(commits, "transaction")
    )))
}

/// Checks that there are no more rows than the pages and this number of changes have, as far as the
/// tables' indexes list their rows.
fn check_counts<S: Inspect>(wikipedia: &Wikipedia, store: &S, changes: u64) -> Result<(), Violation> {
    let tables = &wikipedia.tables;
    let pages = wikipedia.options.pages;
    let revisions = (1..=pages).map(revisions_of).sum::<u64>() + changes;
    let [mut of_titles, mut of_revisions, mut of_texts] = [0; 3];
    let counted = [
        (store.peek_all(&tables.page_by_title, |_, _| of_titles += 1), of_titles, pages, "titles"),
        (store.peek_all(&tables.revision, |_, _| of_revisions += 1), of_revisions, revisions, "revisions"),
        (store.peek_all(&tables.text, |_, _| of_texts += 1), of_texts, revisions, "texts"),
    ];
    counted.into_iter().try_for_each(|(is_listed, count, expected, what)| {
        must(!is_listed || count == expected, || {
            format!("there are {count} {what}, and the pages and their changes have {expected}")
        })
    })
}

/// Returns the recent changes, each of which has a revision with a parent and a text.
fn recent_changes<S: Inspect>(wikipedia: &Wikipedia, store: &S) -> Result<Changes, Violation> {
    let tables = &wikipedia.tables;
    let (mut changes, mut row) = (Changes::new(), Vec::new());
    store.peek_all(&tables.recent_change, |number, words| {
        changes.insert(number, *RecentChange::from_words(words));
    });
    for (&number, &RecentChange { page, user, revision, parent }) in &changes {
        let mut find =
            |revision| store.peek(&tables.revision, revision, &mut row).map(|()| *Revision::from_words(&row));
        let agrees = |found: Revision| {
            (found.page, found.user, found.parent, found.date) == (page, user, parent, number)
                && page <= wikipedia.options.pages
        };
        must(find(revision).is_some_and(agrees), || {
            format!("recent change {number} is of revision {revision}, which is not there, or another's")
        })?;
        must(find(parent).is_some_and(|found| found.page == page), || {
            format!("recent change {number} has parent {parent}, which is not there, or another page's")
        })?;
        check_text(wikipedia, store, page, revision, &mut row)?;
    }
    Ok(changes)
}

/// Checks the text of a revision. Returns its length.
fn check_text<S: Inspect>(
    wikipedia: &Wikipedia,
    store: &S,
    page: u64,
    revision: u64,
    row: &mut Vec<u64>,
) -> Result<u64, Violation> {
    let tables = &wikipedia.tables;
    let found = store.peek(&tables.revision, revision, row).map(|()| *Revision::from_words(row));
    let Some(Revision { text, len, .. }) = found else {
        return Err(Violation(format!("revision {revision} of page {page} is gone")));
    };
    let header = store.peek(&tables.text, text, row).map(|()| (row[0], row[1]));
    must(header == Some((page, len)), || {
        format!("revision {revision} of page {page} has length {len}, and its text (page and length) {header:?}")
    })?;
    must(row[TEXT_HEADER..tables.text.row_words()].iter().all(|word| *word == text), || {
        format!("the text {text} of page {page} is not whole")
    })?;
    Ok(len)
}

/// Returns how many logged changes each user has made. Each log entry is of a recent change.
fn edits_by_log<S: Inspect>(
    wikipedia: &Wikipedia,
    store: &S,
    changes: &Changes,
) -> Result<HashMap<u64, u64>, Violation> {
    let (mut edits, mut stray) = (HashMap::new(), None);
    store.peek_all(&wikipedia.tables.log_entry, |number, words| {
        let LogEntry { page, user, revision } = *LogEntry::from_words(words);
        *edits.entry(user).or_default() += 1;
        let agrees = |change: &RecentChange| (change.page, change.user, change.revision) == (page, user, revision);
        if !changes.get(&number).is_some_and(agrees) {
            stray = Some(number);
        }
    });
    must(stray.is_none(), || format!("log entry {} is of no recent change", stray.unwrap_or_default()))?;
    Ok(edits)
}

/// Checks a page, its title, and its latest revision with its text.
fn check_page<S: Inspect>(wikipedia: &Wikipedia, store: &S, page: u64, row: &mut Vec<u64>) -> Result<Page, Violation> {
    let tables = &wikipedia.tables;
    let found = store.peek(&tables.page, page, row).map(|()| *Page::from_words(row));
    let Some(found) = found else { return Err(Violation(format!("page {page} is gone"))) };
    let by_title = store.peek(&tables.page_by_title, title_key(page), row).map(|()| ByTitle::from_words(row).page);
    must(by_title == Some(page), || format!("the index by title is wrong for page {page}"))?;
    let revision = store.peek(&tables.revision, found.latest, row).map(|()| *Revision::from_words(row));
    let Some(revision) = revision.filter(|revision| revision.page == page) else {
        return Err(Violation(format!(
            "the latest revision of page {page} is {}, and the page has none of this number",
            found.latest
        )));
    };
    must(revision.date == found.touched, || {
        format!("page {page} was touched at {}, and its latest revision is of {}", found.touched, revision.date)
    })?;
    let is_unchanged = found.touched == 0;
    must((found.is_new, found.is_redirect) == (u32::from(is_unchanged), 0), || {
        format!("page {page} was touched at {} (0: never), and is not marked so", found.touched)
    })?;
    let length = check_text(wikipedia, store, page, found.latest, row)?;
    must(length == found.len, || format!("page {page} has length {}, and its latest text {length}", found.len))?;
    Ok(found)
}

/// Returns the number of revisions from the latest to the first. There are at most `most`.
fn chain_of<S: Inspect>(wikipedia: &Wikipedia, store: &S, page: u64, latest: u64, most: u64) -> Result<u64, Violation> {
    let (mut row, mut next, mut length) = (Vec::new(), latest, 0);
    while next != 0 {
        let found = store.peek(&wikipedia.tables.revision, next, &mut row).map(|()| *Revision::from_words(&row));
        let Some(Revision { parent, .. }) = found.filter(|found| found.page == page && length < most) else {
            return Err(Violation(format!(
                "the revisions of page {page} are no chain: {next} is missing, another's, or there twice"
            )));
        };
        (next, length) = (parent, length + 1);
    }
    Ok(length)
}

/// Checks the edits of each user. Returns the users that a transaction has touched.
fn check_users<S: Inspect>(
    wikipedia: &Wikipedia,
    store: &S,
    logged: &HashMap<u64, u64>,
) -> Result<HashSet<u64>, Violation> {
    let (mut row, mut all) = (Vec::new(), HashSet::new());
    for user in 1..=wikipedia.options.users {
        let there = store.peek(&wikipedia.tables.user, user, &mut row).is_some();
        must(there, || format!("user {user} is gone"))?;
        let User { edits, touched, .. } = *User::from_words(&row);
        let logged = logged.get(&user).copied().unwrap_or_default();
        must(edits == logged, || format!("user {user} has {edits} edits, and {logged} are logged: updates got lost"))?;
        must(edits == 0 || touched > 0, || format!("user {user} has {edits} edits, and was never touched"))?;
        if touched > 0 {
            all.insert(user);
        }
    }
    Ok(all)
}

/// Checks that both tables of watches say the same. A watcher of a page was notified of its last
/// change, or watches it since. If a change is several transactions, it was notified of any change,
/// or of none. `dates` are those of the last changes. Returns the number of watched pages.
fn check_watches<S: Inspect>(
    wikipedia: &Wikipedia,
    store: &S,
    dates: &HashMap<u64, u64>,
    touched: &HashSet<u64>,
    changes: &Changes,
) -> Result<u64, Violation> {
    let tables = &wikipedia.tables;
    let (mut all, mut wrong) = (Vec::new(), None);
    store.peek_all(&tables.watch, |key, words| {
        let notified = Watch::from_words(words).notified;
        match watched(key) {
            Some((page, user, is_talk)) if dates.contains_key(&page) => all.push((page, user, is_talk, notified)),
            _ => wrong = Some(key),
        }
    });
    must(wrong.is_none(), || format!("a user watches a page that is not there: {:?}", wrong.unwrap_or_default()))?;
    let (mut row, mut pages) = (Vec::new(), 0);
    for (page, user, is_talk, notified) in all {
        // The talk about an article is watched with the article.
        let there = match is_talk {
            true => store.peek(&tables.watch, watch_key(user, page), &mut row),
            false => store.peek(&tables.watch_by_title, watcher_key(page, user), &mut row),
        };
        must(there.is_some(), || {
            format!("user {user} watches page {page}, and the watchers of the page do not say so")
        })?;
        let last = dates[&page];
        let is_right = match (notified, wikipedia.options.update) {
            // Nobody is notified of a change of a talk. Adding a watch touches the user.
            (0, UpdateMode::One) => is_talk || last == 0 || touched.contains(&user),
            (0, UpdateMode::Several) => true,
            (notified, UpdateMode::One) => notified == last,
            (notified, UpdateMode::Several) => changes.get(&notified).is_some_and(|change| change.page == page),
        };
        must(is_right, || {
            format!(
                "user {user} was notified of a change of page {page} at {notified} (0: never), and its last is of {last}"
            )
        })?;
        pages += u64::from(!is_talk);
    }
    let mut watchers = Vec::new();
    store.peek_all(&tables.watch_by_title, |key, _| watchers.push(key));
    for key in watchers {
        let own = watcher(key).map(|(page, user)| [Some(watch_key(user, page)), watched_talk(user, page)]);
        let Some(own) = own else { return Err(Violation(format!("a page that is not there has a watcher: {key:?}"))) };
        let there = own.into_iter().flatten().all(|key| store.peek(&tables.watch, key, &mut row).is_some());
        must(there, || format!("a page has a watcher that does not watch it, or not its talk: {key:?}"))?;
    }
    Ok(pages)
}

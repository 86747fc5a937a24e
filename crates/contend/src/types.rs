//! Declared types of transactions: [`Kind`], [`Types`], and what a database keeps of them.

use contend_analysis::{AnalysisOptions, Chopping, Plan};
use contend_engine::{Engine, Protocol};
use contend_machine::Native;
use contend_model::pieces;
use contend_model::pieces::{TypeBuilder, TypeSet};

use crate::error::Error;

/// A type of transactions, as [`Database::transact_as`](crate::Database::transact_as) names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    number: u16,
    name: &'static str,
}

impl Kind {
    /// Returns the type of this number, from 0 in the order of their declaration, with a name for
    /// people.
    pub const fn new(number: u16, name: &'static str) -> Kind {
        Kind { number, name }
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        self.name
    }
}

/// The types of an application's transactions, as [`Database::declare`](crate::Database::declare)
/// collects them.
///
/// A column or an update of another table does not compile:
///
/// ```
/// # use contend::pieces::{Kind, Piece};
/// # use contend::{Database, Error, Row, Table};
/// # #[derive(Clone, Copy, Row)]
/// # #[repr(C)]
/// # struct User { name: u64 }
/// # #[derive(Clone, Copy, Row)]
/// # #[repr(C)]
/// # struct Item { price: u64 }
/// # const BUY: Kind = Kind::new(0, "buy");
/// # const LOOK: Piece = Piece::new(0, "look");
/// # let db = Database::new();
/// # let (users, items): (Table<User>, Table<Item>) = (db.create_table("users")?, db.create_table("items")?);
/// db.declare(|types| {
///     types.add(BUY).piece(LOOK, |piece| piece.read(&users, User::NAME).read(&items, Item::PRICE));
/// })?;
/// # Ok::<_, Error>(())
/// ```
///
/// ```compile_fail
/// # use contend::pieces::{Kind, Piece};
/// # use contend::{Database, Error, Row, Table};
/// # #[derive(Clone, Copy, Row)]
/// # #[repr(C)]
/// # struct User { name: u64 }
/// # #[derive(Clone, Copy, Row)]
/// # #[repr(C)]
/// # struct Item { price: u64 }
/// # const BUY: Kind = Kind::new(0, "buy");
/// # const LOOK: Piece = Piece::new(0, "look");
/// # let db = Database::new();
/// # let (users, items): (Table<User>, Table<Item>) = (db.create_table("users")?, db.create_table("items")?);
/// db.declare(|types| {
///     types.add(BUY).piece(LOOK, |piece| piece.read(&users, Item::PRICE).read(&items, Item::PRICE));
/// })?;
/// # Ok::<_, Error>(())
/// ```
#[derive(Debug)]
pub struct Types {
    types: pieces::Types,
    kinds: Vec<Kind>,
    /// The first mistake.
    wrong: Option<String>,
}

impl Types {
    /// Begins a type of transactions that may change rows.
    pub fn add(&mut self, kind: Kind) -> TypeBuilder<'_> {
        self.note(kind);
        self.types.add(kind.name)
    }

    /// Begins a type of transactions that only read. Under a protocol with snapshots they see one,
    /// as in [`Database::read`](crate::Database::read), and conflict with nothing.
    pub fn add_read_only(&mut self, kind: Kind) -> TypeBuilder<'_> {
        self.note(kind);
        self.types.add_read_only(kind.name)
    }

    fn note(&mut self, Kind { number, name }: Kind) {
        let position = self.kinds.len();
        if usize::from(number) != position {
            self.wrong.get_or_insert(format!(
                "type {name} is declared at position {position}, and its number is {number}; valid: numbers from 0 in the order of the declaration, each once"
            ));
        }
        self.kinds.push(Kind { number, name });
    }
}

/// The declared types of a database.
#[derive(Debug)]
pub(crate) struct DeclaredTypes {
    kinds: Vec<Kind>,
    pub(crate) set: TypeSet,
    plan: Plan,
    chopping: Chopping,
    /// Whether the protocol uses the declarations. Then a transaction without a type runs alone.
    is_used: bool,
    /// Whether types that only read see snapshots.
    has_snapshots: bool,
}

/// The way in which a transaction begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Without a type.
    Plain,
    /// Without a type, while no other transaction runs.
    Alone,
    /// Of the type with this number.
    Kind(usize),
    /// Of the type with this number, which only reads, on a snapshot.
    Snapshot(usize),
}

impl DeclaredTypes {
    /// Collects the types, and analyses them.
    ///
    /// # Errors
    /// A declaration is not valid.
    pub(crate) fn new<P: Protocol<Native>>(
        engine: &Engine<P, Native>,
        declare: impl FnOnce(&mut Types),
    ) -> Result<Self, Error> {
        let mut types = Types { types: engine.types(), kinds: Vec::new(), wrong: None };
        declare(&mut types);
        let Types { types, kinds, wrong } = types;
        let mut set = wrong.map_or_else(|| types.finish(), Err).map_err(Error::Declaration)?;
        // The closure may have created some of the tables.
        set.tables = engine.declared_tables();
        let engine_options = &engine.config().options;
        let has_snapshots = engine.protocol().reads_snapshots();
        let options = AnalysisOptions {
            split: engine_options.timestamp_splitting,
            updates: engine_options.commit_time_updates,
            snapshots: has_snapshots,
            ..AnalysisOptions::default()
        };
        let plan = Plan::new(&set, options).map_err(|error| Error::Declaration(error.to_string()))?;
        let chopping = Chopping::new(&set, options).map_err(|error| Error::Declaration(error.to_string()))?;
        Ok(DeclaredTypes { kinds, set, plan, chopping, is_used: engine.protocol().uses_pieces(), has_snapshots })
    }

    /// Returns how a transaction of this type begins.
    ///
    /// # Errors
    /// The type is not declared.
    #[inline]
    fn start(&self, kind: Option<Kind>) -> Result<Start, Error> {
        let Some(kind) = kind else { return Ok(if self.is_used { Start::Alone } else { Start::Plain }) };
        let number = usize::from(kind.number);
        if self.kinds.get(number) != Some(&kind) {
            let valid: Vec<&str> = self.kinds.iter().map(|kind| kind.name).collect();
            return Err(Error::Undeclared(format!(
                "type {} of number {number} is not declared; valid: {}",
                kind.name,
                valid.join(", ")
            )));
        }
        let on_snapshot = self.has_snapshots && self.set.types[number].read_only;
        Ok(if on_snapshot { Start::Snapshot(number) } else { Start::Kind(number) })
    }

    /// Returns the analysis in words.
    pub(crate) fn describe(&self) -> String {
        self.plan.describe(&self.set, &self.chopping)
    }
}

/// Returns how a transaction of this type begins, or one without a type, if these types are
/// declared.
///
/// # Errors
/// The type is not declared.
#[inline]
pub(crate) fn start(types: Option<&DeclaredTypes>, kind: Option<Kind>) -> Result<Start, Error> {
    match (types, kind) {
        (None, None) => Ok(Start::Plain),
        (None, Some(kind)) => Err(Error::Undeclared(format!(
            "type {} is not declared; declare all types by Database::declare first",
            kind.name
        ))),
        (Some(types), kind) => types.start(kind),
    }
}

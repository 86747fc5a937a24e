//! A protocol behind a pointer.

use std::any::Any;

use contend_index::{Change, Leaf};
use contend_machine::Machine;

use crate::abort::{Abort, AbortReason};
use crate::group::Groups;
use crate::protocol::{At, Context, Control, Found, Info, Initial, Mode, Protocol, Tombstone, Unlink};
use crate::record::{Cells, Record};
use crate::row::Projection;

/// Any protocol: what runs on it is compiled once, not once a protocol. A dynamic call an operation is much on the host, and little
/// where every access to memory is simulated.
pub struct Erased<M: Machine>(Box<dyn Behind<M>>);

impl<M: Machine> Erased<M> {
    /// This protocol, behind a pointer.
    pub fn new<P: Protocol<M>>(protocol: P) -> Self {
        Erased(Box::new(protocol))
    }
}

impl<M: Machine> std::fmt::Debug for Erased<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Erased").field(&self.0.info().name).finish()
    }
}

type AnyLocal = Box<dyn Any + Send>;

/// [`Control`], with a local state of any type.
trait Behind<M: Machine>: Send + Sync {
    fn info(&self) -> Info;
    fn meta_words(&self) -> usize;
    fn prepare(&mut self, workers: usize, partitions: usize);
    fn wants_declarations(&self) -> bool;
    fn reorders_updates(&self) -> bool;
    fn stamps_commits(&self) -> bool;
    fn reads_snapshots(&self) -> bool;
    fn sees_own_commits(&self, cx: &mut Context<M>, local: &mut AnyLocal) -> bool;
    fn local(&self, worker: usize) -> AnyLocal;
    fn init(&self, cells: Cells<M>, initial: Initial);
    fn begin(&self, cx: &mut Context<M>, local: &mut AnyLocal) -> Result<(), Abort>;
    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut AnyLocal,
        at: At<'_, M>,
        columns: Projection<'_>,
    ) -> Result<Found, Abort>;
    fn write(
        &self,
        cx: &mut Context<M>,
        local: &mut AnyLocal,
        at: At<'_, M>,
        groups: Groups,
        mode: Mode,
    ) -> Result<Found, Abort>;
    fn inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut AnyLocal,
        at: At<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort>;
    fn gap(&self, cx: &mut Context<M>, local: &mut AnyLocal, leaf: Leaf<M>, version: u64) -> Result<(), Abort>;
    fn rewrite(&self, cx: &mut Context<M>, local: &mut AnyLocal, position: usize) -> Result<(), Abort>;
    fn commit(&self, cx: &mut Context<M>, local: &mut AnyLocal) -> Result<(), Abort>;
    fn abort(&self, cx: &mut Context<M>, local: &mut AnyLocal, reason: AbortReason);
    fn rest(&self, cx: &mut Context<M>, local: &mut AnyLocal);
    fn unlink(&self, tombstone: Tombstone<'_, M>) -> Unlink;
    fn is_absent(&self, record: Record<M>) -> bool;
    fn older_versions(&self, record: Record<M>) -> u64;
}

fn of<T: 'static>(local: &mut AnyLocal) -> &mut T {
    local.downcast_mut().expect("the protocol made it")
}

macro_rules! forward {
    ($($name:ident($($argument:ident: $type:ty),*) -> $output:ty;)*) => {
        impl<M: Machine, P: Control<M>> Behind<M> for P {
            fn info(&self) -> Info {
                Control::info(self)
            }

            fn meta_words(&self) -> usize {
                Control::meta_words(self)
            }

            fn prepare(&mut self, workers: usize, partitions: usize) {
                Control::prepare(self, workers, partitions);
            }

            fn wants_declarations(&self) -> bool {
                Control::wants_declarations(self)
            }

            fn reorders_updates(&self) -> bool {
                Control::reorders_updates(self)
            }

            fn stamps_commits(&self) -> bool {
                Control::stamps_commits(self)
            }

            fn reads_snapshots(&self) -> bool {
                Control::reads_snapshots(self)
            }

            fn local(&self, worker: usize) -> AnyLocal {
                Box::new(Control::local(self, worker))
            }

            fn init(&self, cells: Cells<M>, initial: Initial) {
                Control::init(self, cells, initial);
            }

            fn unlink(&self, tombstone: Tombstone<'_, M>) -> Unlink {
                Control::unlink(self, tombstone)
            }

            fn is_absent(&self, record: Record<M>) -> bool {
                Control::is_absent(self, record)
            }

            fn older_versions(&self, record: Record<M>) -> u64 {
                Control::older_versions(self, record)
            }

            $(fn $name(&self, cx: &mut Context<M>, local: &mut AnyLocal $(, $argument: $type)*) -> $output {
                Control::$name(self, cx, of::<P::Local>(local) $(, $argument)*)
            })*
        }

        impl<M: Machine> Control<M> for Erased<M> {
            type Local = AnyLocal;

            fn info(&self) -> Info {
                self.0.info()
            }

            fn meta_words(&self) -> usize {
                self.0.meta_words()
            }

            fn prepare(&mut self, workers: usize, partitions: usize) {
                self.0.prepare(workers, partitions);
            }

            fn wants_declarations(&self) -> bool {
                self.0.wants_declarations()
            }

            fn reorders_updates(&self) -> bool {
                self.0.reorders_updates()
            }

            fn stamps_commits(&self) -> bool {
                self.0.stamps_commits()
            }

            fn reads_snapshots(&self) -> bool {
                self.0.reads_snapshots()
            }

            fn local(&self, worker: usize) -> AnyLocal {
                self.0.local(worker)
            }

            fn init(&self, cells: Cells<M>, initial: Initial) {
                self.0.init(cells, initial);
            }

            fn unlink(&self, tombstone: Tombstone<'_, M>) -> Unlink {
                self.0.unlink(tombstone)
            }

            fn is_absent(&self, record: Record<M>) -> bool {
                self.0.is_absent(record)
            }

            fn older_versions(&self, record: Record<M>) -> u64 {
                self.0.older_versions(record)
            }

            $(fn $name(&self, cx: &mut Context<M>, local: &mut AnyLocal $(, $argument: $type)*) -> $output {
                self.0.$name(cx, local $(, $argument)*)
            })*
        }
    };
}

forward! {
    sees_own_commits() -> bool;
    begin() -> Result<(), Abort>;
    read(at: At<'_, M>, columns: Projection<'_>) -> Result<Found, Abort>;
    write(at: At<'_, M>, groups: Groups, mode: Mode) -> Result<Found, Abort>;
    inserted(at: At<'_, M>, change: &Change<M>) -> Result<(), Abort>;
    gap(leaf: Leaf<M>, version: u64) -> Result<(), Abort>;
    rewrite(position: usize) -> Result<(), Abort>;
    commit() -> Result<(), Abort>;
    abort(reason: AbortReason) -> ();
    rest() -> ();
}

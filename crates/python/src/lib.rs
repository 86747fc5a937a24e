//! The native part of Contend's package for Python, as the module `contend._contend`.
//!
//! It knows no protocol, flag or figure: `call` hands the arguments of a verb to the command
//! line, and gives its answer back. The files in `python/contend` make functions and frames of
//! that.
//!
//! A run is on a thread of its own. The caller waits without the interpreter's lock, and looks for
//! signals and progress twenty times a second. So Python is only ever called on the caller's
//! thread.

mod arrow;
mod turn;
mod watch;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use contend_cli::{Called, Refused, Rewindable, Stop};
use mimalloc::MiMalloc;
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use turn::Turn;
use watch::Watch;

/// As in the binary: the explorer has to know each allocation.
#[global_allocator]
static ALLOCATOR: Rewindable<MiMalloc> = Rewindable(MiMalloc);

mod errors {
    use super::{PyKeyboardInterrupt, PyRuntimeError, PyValueError};

    pyo3::create_exception!(contend, InputError, PyValueError, "The input is refused; the message says what is valid.");
    pyo3::create_exception!(contend, RunError, PyRuntimeError, "A run could not begin, or could not go on.");
    pyo3::create_exception!(
        contend,
        Interrupted,
        PyKeyboardInterrupt,
        "A run was interrupted; `result` is what was measured until then, or None."
    );
}

/// Verbs that measure nothing, and so need not wait for a run to end.
const QUICK: [&str; 2] = ["check", "list"];

/// What a verb has found.
#[pyclass(frozen, module = "contend._contend")]
#[derive(Debug)]
struct Answer(contend_cli::Answer);

#[pymethods]
impl Answer {
    /// The answer for programs.
    fn json(&self) -> PyResult<String> {
        guarded(|| self.0.json())
    }

    /// The answer for people.
    fn text(&self) -> &str {
        self.0.text()
    }

    /// The page with the charts, or None.
    fn page(&self) -> PyResult<Option<String>> {
        guarded(|| self.0.page())
    }

    /// The worst anomaly of a judged history as SVG, or None.
    fn picture(&self) -> Option<&str> {
        self.0.picture()
    }

    /// Whether a check failed.
    #[getter]
    fn failed(&self) -> bool {
        self.0.failed()
    }

    /// Whether the run was stopped before its end.
    #[getter]
    fn partial(&self) -> bool {
        self.0.partial()
    }

    /// The latencies of each entry: pairs of nanoseconds and count.
    fn latencies(&self) -> Vec<(String, Vec<(u64, u64)>)> {
        let pairs = |buckets: &[contend_cli::Bucket]| buckets.iter().map(|it| (it.ns, it.count)).collect();
        self.0.latencies().into_iter().map(|(entry, buckets)| (entry.to_owned(), pairs(buckets))).collect()
    }

    /// The recorded history as JSON lines, or None.
    fn history(&self) -> PyResult<Option<String>> {
        let Some(history) = self.0.history() else { return Ok(None) };
        let mut lines = Vec::new();
        history.write_json_lines(&mut lines)?;
        Ok(Some(String::from_utf8(lines).map_err(|error| errors::RunError::new_err(error.to_string()))?))
    }

    /// The answer of the checker on the recorded history.
    fn judge(&self, py: Python<'_>, isolation: &str) -> PyResult<Answer> {
        let Some(history) = self.0.history() else {
            return Err(errors::InputError::new_err("no history was recorded; valid: run(history=True)"));
        };
        let judged = py.detach(|| guarded(|| contend_cli::judge(history, isolation)))?;
        judged.map(Answer).map_err(raised)
    }
}

/// Runs a verb. Returns its answer, if it has one, and whether it was interrupted.
///
/// `report` is called with (what, done, total) as the run goes on, and with (entry, line, None) for
/// each window. If it raises, the run is stopped.
#[pyfunction]
#[pyo3(signature = (arguments, report=None))]
fn call(py: Python<'_>, arguments: Vec<String>, report: Option<Py<PyAny>>) -> PyResult<(Option<Answer>, bool)> {
    let is_quick = arguments.first().is_some_and(|verb| QUICK.contains(&verb.as_str()));
    let _turn = if is_quick { None } else { Some(Turn::take().map_err(errors::RunError::new_err)?) };
    let (stop, watch) = (Stop::default(), Arc::new(Watch::default()));
    let run = {
        let (stop, watch) = (stop.clone(), Arc::clone(&watch));
        std::thread::Builder::new().name("contend".into()).spawn(move || {
            let _ended = watch.ended_at_drop();
            contend_cli::call(&arguments, &stop, &*watch)
        })?
    };
    let mut reason = None;
    loop {
        let has_ended = py.detach(|| watch.wait());
        if reason.is_none()
            && let Err(error) = py.check_signals().and_then(|()| watch.tell(py, report.as_ref()))
        {
            stop.request();
            reason = Some(error);
        }
        if has_ended {
            break;
        }
    }
    let called = py.detach(|| run.join()).map_err(|payload| bug(&*payload))?;
    let interrupted = match reason {
        Some(error) if !error.is_instance_of::<PyKeyboardInterrupt>(py) => return Err(error),
        reason => reason.is_some(),
    };
    match called.map_err(raised)? {
        Called::Answered(answer) => Ok((Some(Answer(*answer)), interrupted)),
        Called::Stopped => Ok((None, true)),
    }
}

/// Returns the answer that is in a result file, or in the folder of a run.
#[pyfunction]
fn load(py: Python<'_>, path: &str) -> PyResult<Answer> {
    py.detach(|| guarded(|| contend_cli::load(path)))?.map(Answer).map_err(raised)
}

/// Plays a script of a few transactions; both it and the answer are JSON.
#[pyfunction]
fn play(py: Python<'_>, script: &str) -> PyResult<String> {
    py.detach(|| guarded(|| contend_cli::play(script)))?.map_err(raised)
}

/// Returns the flags of a verb: name, meaning, whether it takes a value, whether it is positional.
#[pyfunction]
fn flags(verb: &str) -> PyResult<Vec<(String, String, bool, bool)>> {
    let row = |flag: contend_cli::Flag| (flag.name, flag.help, flag.takes_value, flag.is_positional);
    guarded(|| contend_cli::flags(verb).into_iter().map(row).collect())
}

/// Calls what might have a bug, so that a panic becomes an ordinary error.
fn guarded<T>(action: impl FnOnce() -> T) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(action)).map_err(|payload| bug(&*payload))
}

fn raised(refused: Refused) -> PyErr {
    match refused.is_input {
        true => errors::InputError::new_err(refused.message),
        false => errors::RunError::new_err(refused.message),
    }
}

/// Returns the error of a panic.
fn bug(payload: &(dyn Any + Send)) -> PyErr {
    let of_literal = || payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = payload.downcast_ref::<String>().cloned().or_else(of_literal).unwrap_or_else(|| "no message".into());
    if text.starts_with(contend_cli::NO_THREAD) {
        return errors::InputError::new_err(contend_cli::NO_MORE_THREADS);
    }
    errors::RunError::new_err(format!("a bug of contend, please report it: {text}"))
}

#[pymodule]
mod _contend {
    #[pymodule_export]
    use super::arrow::arrow_stream;
    #[pymodule_export]
    use super::errors::{InputError, Interrupted, RunError};
    #[pymodule_export]
    use super::{Answer, call, flags, load, play};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::turn::remember_this_process();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

//! A table as a stream of Arrow with one batch, by the C stream interface in a capsule. Polars,
//! pyarrow, pandas and DuckDB read it without a package between.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, NullArray, RecordBatch, RecordBatchIterator, StringArray,
};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::errors::RunError;

/// Returns the columns, each with its name, as a capsule of the name that the interface asks for.
/// All columns have the same length, and None is a missing value.
#[pyfunction]
pub(crate) fn arrow_stream<'py>(
    py: Python<'py>,
    columns: Vec<(String, Vec<Bound<'py, PyAny>>)>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let arrays = columns.iter().map(|(name, values)| Ok((name, column(values)?, true)));
    let arrays = arrays.collect::<PyResult<Vec<_>>>()?;
    let batch = RecordBatch::try_from_iter_with_nullable(arrays);
    let batch = batch.map_err(|error| RunError::new_err(error.to_string()))?;
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
}

/// Returns a column. The narrowest type that holds all values is taken: truth values, whole
/// numbers, numbers, or else texts.
fn column(values: &[Bound<'_, PyAny>]) -> PyResult<ArrayRef> {
    if values.iter().all(|value| value.is_none()) {
        return Ok(Arc::new(NullArray::new(values.len())));
    }
    if let Some(all) = all_as::<bool>(values) {
        return Ok(Arc::new(BooleanArray::from(all)));
    }
    if let Some(all) = all_as::<i64>(values) {
        return Ok(Arc::new(Int64Array::from(all)));
    }
    if let Some(all) = all_as::<f64>(values) {
        return Ok(Arc::new(Float64Array::from(all)));
    }
    let text = |value: &Bound<'_, PyAny>| {
        if value.is_none() { Ok(None) } else { Ok(Some(value.str()?.to_string_lossy().into_owned())) }
    };
    let texts = values.iter().map(text).collect::<PyResult<Vec<Option<String>>>>()?;
    Ok(Arc::new(StringArray::from(texts)))
}

/// Returns all values if they are of this type, or missing.
fn all_as<'py, T: FromPyObjectOwned<'py>>(values: &[Bound<'py, PyAny>]) -> Option<Vec<Option<T>>> {
    values.iter().map(|value| value.extract::<Option<T>>().ok()).collect()
}

//! Tables of results as Arrow has them.

use std::ffi::CStr;
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray, UInt64Array,
};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use evenkeel_report::columnar::{Kind, Table as Columns, Values};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// Rows of a batch: so many texts stay below the 2 GiB that one array of them may have.
const BATCH_ROWS: usize = 1 << 20;

const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";

/// A table, for whatever takes Arrow's data: `pyarrow.table(t)`, `pandas.DataFrame.from_arrow(t)`,
/// `polars.DataFrame(t)`. Nothing is copied on the way.
///
/// Its shape is `num_rows` by `len(column_names)`. Columns and their units are in docs/results-format.md.
#[pyclass(frozen, module = "evenkeel")]
pub(crate) struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Table {
    /// The same values in Arrow's layout.
    pub(crate) fn of(columns: &Columns) -> PyResult<Self> {
        let kind = |values: &Values| match values.kind() {
            Kind::Text => DataType::Utf8,
            Kind::Integer => DataType::Int64,
            Kind::Natural => DataType::UInt64,
            Kind::Number => DataType::Float64,
            Kind::Truth => DataType::Boolean,
        };
        let fields: Vec<Field> =
            columns.columns.iter().map(|(name, values)| Field::new(name, kind(values), true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let rows = columns.columns.first().map_or(0, |(_, values)| values.len());
        let starts = (0..rows).step_by(BATCH_ROWS);
        let batch = |first: usize| {
            let last = rows.min(first + BATCH_ROWS);
            let arrays = columns.columns.iter().map(|(_, values)| array(values, first, last)).collect();
            RecordBatch::try_new(Arc::clone(&schema), arrays)
        };
        let batches = starts.map(batch).collect::<Result<_, _>>().map_err(|error| failed(&error))?;
        Ok(Self { schema, batches })
    }
}

fn failed(error: &ArrowError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// Some rows of a column.
fn array(values: &Values, first: usize, last: usize) -> ArrayRef {
    match values {
        Values::Text(values) => Arc::new(values[first..last].iter().map(Option::as_deref).collect::<StringArray>()),
        Values::Integer(values) => Arc::new(values[first..last].iter().copied().collect::<Int64Array>()),
        Values::Natural(values) => Arc::new(values[first..last].iter().copied().collect::<UInt64Array>()),
        Values::Number(values) => Arc::new(values[first..last].iter().copied().collect::<Float64Array>()),
        Values::Truth(values) => Arc::new(values[first..last].iter().copied().collect::<BooleanArray>()),
    }
}

#[pymethods]
impl Table {
    /// Rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Columns, in their order.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        self.schema.fields().iter().map(|field| field.name().as_str()).collect()
    }

    /// The Arrow PyCapsule interface. Types are the table's own, whatever is asked for.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, Arc::clone(&self.schema));
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), STREAM)
    }

    /// The Arrow PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.schema.as_ref()).map_err(|error| failed(&error))?;
        PyCapsule::new_with_value(py, schema, SCHEMA)
    }

    /// As a `pyarrow.Table`. Needs pyarrow.
    fn to_pyarrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("pyarrow")?.call_method1("table", (slf,))
    }

    /// As a `pandas.DataFrame`. Needs pandas and pyarrow.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::to_pyarrow(slf)?.call_method0("to_pandas")
    }

    /// As a `polars.DataFrame`. Needs polars.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("polars")?.call_method1("DataFrame", (slf,))
    }

    fn __len__(&self) -> usize {
        self.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("Table({} rows: {})", self.num_rows(), self.column_names().join(", "))
    }
}

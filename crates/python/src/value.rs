//! Python's values as TOML's.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use toml::{Table, Value};

/// Deepest nesting of lists and dicts that is followed: one that holds itself has no end.
const DEEPEST: usize = 32;

/// A key's value; none for `None`, which TOML does not know.
pub(crate) fn of_python(value: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    if value.is_none() { Ok(None) } else { convert(value, DEEPEST).map(Some) }
}

fn convert(value: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    let below = depth.checked_sub(1).ok_or_else(|| PyTypeError::new_err("a value that is nested too deeply"))?;
    let all = |items: &mut dyn Iterator<Item = Bound<'_, PyAny>>| -> PyResult<Value> {
        Ok(Value::Array(items.map(|item| convert(&item, below)).collect::<PyResult<_>>()?))
    };
    // In this order: Python's bool is an int.
    if value.is_instance_of::<PyBool>() {
        Ok(Value::Boolean(value.extract()?))
    } else if value.is_instance_of::<PyInt>() {
        Ok(Value::Integer(value.extract()?))
    } else if value.is_instance_of::<PyFloat>() {
        Ok(Value::Float(value.extract()?))
    } else if value.is_instance_of::<PyString>() {
        Ok(Value::String(value.extract()?))
    } else if let Ok(list) = value.cast::<PyList>() {
        all(&mut list.iter())
    } else if let Ok(tuple) = value.cast::<PyTuple>() {
        all(&mut tuple.iter())
    } else if let Ok(dict) = value.cast::<PyDict>() {
        let entry = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| Ok((key.extract()?, convert(&value, below)?));
        Ok(Value::Table(dict.iter().map(entry).collect::<PyResult<Table>>()?))
    } else if let Ok(number) = value.call_method0("__index__") {
        // NumPy's whole numbers.
        Ok(Value::Integer(number.extract()?))
    } else if let Ok(number) = value.call_method0("__float__") {
        Ok(Value::Float(number.extract()?))
    } else {
        let class = value.get_type();
        Err(PyTypeError::new_err(format!(
            "a scenario's value is a bool, int, float, str, list or dict, or None to leave the key out; not {}",
            class.name()?
        )))
    }
}

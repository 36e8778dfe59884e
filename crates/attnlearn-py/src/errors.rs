//! Errors of the library as exceptions, in its own words; the settings that they name are arguments here.

use attnlearn::Error;
use attnlearn::words::{Setting, Value};
use pyo3::PyErr;
use pyo3::exceptions::{PyFileNotFoundError, PyIsADirectoryError, PyKeyboardInterrupt, PyOSError, PyRuntimeError, PyValueError};
use std::any::Any;

/// The exception that users of Python expect.
pub fn raise(error: Error) -> PyErr {
    match error {
        Error::Input { ref problem, .. } => {
            let message = error.told(&argument);
            match problem.to_string().as_str() {
                "does not exist" => PyFileNotFoundError::new_err(message),
                "is a directory" => PyIsADirectoryError::new_err(message),
                _ => PyValueError::new_err(message),
            }
        }
        Error::Io { place, source } => match source.raw_os_error() {
            // With the number Python picks FileNotFoundError, PermissionError and so on.
            Some(number) => PyOSError::new_err((number, source.to_string(), place)),
            None => PyOSError::new_err(format!("{place}: {source}")),
        },
        Error::Interrupted => PyKeyboardInterrupt::new_err("interrupted"),
    }
}

/// A fault of ours, which must not end the interpreter.
pub fn fault(panic: &(dyn Any + Send)) -> PyErr {
    let said = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    let said = said.unwrap_or("no message");
    PyRuntimeError::new_err(format!("attnlearn: internal error ({said}); please report it with the call that led to it"))
}

/// A setting as an argument: `value_rank`, `resume=True`, `memory 0.5`.
pub fn argument(setting: &Setting) -> String {
    let name = match setting.name {
        "rotation" => "rope",
        "norm" => "qk_norm",
        "relative" => "relative_bias",
        name => name,
    };
    match &setting.value {
        None => name.to_owned(),
        Some(Value::Switch(true)) => format!("{name}=True"),
        Some(Value::Switch(false)) => format!("{name}=False"),
        Some(Value::Given(value)) => format!("{name} {value}"),
    }
}

//! Errors of the library as exceptions, in its own words. Where those name a flag of the program, Python has an argument of that name.

use attnlearn::Error;
use pyo3::PyErr;
use pyo3::exceptions::{PyFileNotFoundError, PyIsADirectoryError, PyKeyboardInterrupt, PyOSError, PyRuntimeError, PyValueError};
use std::any::Any;

/// The exception that users of Python expect.
pub fn raise(error: Error) -> PyErr {
    match error {
        Error::Input { ref problem, .. } => {
            let message = pythonic(&error.to_string());
            match problem.as_str() {
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

/// `--value-rank` as `value_rank`.
pub fn pythonic(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("--") {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let flag = after[2..].split(|c: char| !c.is_ascii_lowercase() && c != '-').next().unwrap_or_default();
        let starts_a_word = before.chars().next_back().is_none_or(|c| c.is_whitespace() || c == '(' || c == '`');
        if flag.is_empty() || !starts_a_word {
            out.push_str("--");
            rest = &after[2..];
            continue;
        }
        match flag {
            "no-polish" => out.push_str("polish=False"),
            "resume" => out.push_str("resume=True"),
            "noise" => out.push_str("noise=True"),
            _ => out.push_str(&flag.replace('-', "_")),
        }
        rest = &after[2 + flag.len()..];
    }
    out.push_str(rest);
    out
}

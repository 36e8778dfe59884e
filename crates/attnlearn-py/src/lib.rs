//! The native half of the Python package `attnlearn`.
//!
//! ```text
//! Python      what users see: classes, checks of inputs, scikit-learn's conventions, pictures, progress bars
//! here        NumPy arrays as borrowed slices, calls without the GIL, Ctrl-C, errors
//! attnlearn   all computing
//! ```
//!
//! Nothing is computed here, and nothing is written twice: results and messages are the library's, so that they are the program's too.

mod arrays;
mod call;
mod errors;
mod features;
mod layer;
mod learning;

#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use super::features::{Model, Sums, fit, target_values};
    #[pymodule_export]
    use super::layer::{Layer, examples_of, from_pretrained, random_layer};
    #[pymodule_export]
    use super::learning::{Learned, certify, learn, write_atomically};

    /// A fault on purpose: tests see to it that it is an exception and not the end of the interpreter.
    #[pyo3::pyfunction]
    fn _panic_for_tests(py: pyo3::Python<'_>) -> pyo3::PyResult<()> {
        super::call::run(py, None, |_| -> attnlearn::Result<()> { panic!("asked for by a test") })
    }

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}

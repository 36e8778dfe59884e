//! NumPy arrays as slices that the library borrows: no copy.
//!
//! The Python side sees to formats and memory order. What comes here in another form is a mistake of ours, and a `TypeError`.

use attnlearn::data::Numbers;
use numpy::{PyArray, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// An array of numbers in a format that the library reads.
#[derive(FromPyObject)]
pub enum Array<'py> {
    /// Double precision.
    F64(PyReadonlyArrayDyn<'py, f64>),
    /// Single precision.
    F32(PyReadonlyArrayDyn<'py, f32>),
    /// Signs.
    I8(PyReadonlyArrayDyn<'py, i8>),
}

impl Array<'_> {
    /// Its numbers, where they lie.
    pub fn numbers(&self) -> PyResult<Numbers<'_>> {
        let scattered = |_| PyTypeError::new_err("the array is not C-contiguous");
        Ok(match self {
            Self::F64(a) => Numbers::F64(a.as_slice().map_err(scattered)?),
            Self::F32(a) => Numbers::F32(a.as_slice().map_err(scattered)?),
            Self::I8(a) => Numbers::I8(a.as_slice().map_err(scattered)?),
        })
    }

    /// Its shape.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::F64(a) => a.shape(),
            Self::F32(a) => a.shape(),
            Self::I8(a) => a.shape(),
        }
    }

    /// Its shape, if it has as many dimensions as that.
    pub fn dims<const R: usize>(&self, name: &str) -> PyResult<[usize; R]> {
        <[usize; R]>::try_from(self.shape())
            .map_err(|_| PyTypeError::new_err(format!("{name} has {} dimensions, not {R}", self.shape().len())))
    }
}

/// Numbers as a new array of this shape.
pub fn array<'py, T: numpy::Element>(py: Python<'py>, numbers: Vec<T>, shape: &[usize]) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
    PyArray::from_vec(py, numbers).reshape(shape)
}

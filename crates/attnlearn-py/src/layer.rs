//! Layers.

use crate::arrays::{Array, array};
use crate::call::{quick, run};
use crate::errors::raise;
use attnlearn::data::ExampleSource;
use attnlearn::data::{Block, InputDistribution, Numbers, Shape, check_size};
use attnlearn::degeneracy::Conditions;
use attnlearn::layer::{AttentionLayer, Head, Mask, Terms, Theta};
use attnlearn::linalg::lanes::Real;
use attnlearn::linalg::{Mat, row_major};
use attnlearn::memory::{ask, numbers};
use attnlearn::teacher::{Family, TeacherSpec, TeacherStream};
use attnlearn::transformer::{ModelFile, Request};
use attnlearn::{Error, Result};
use numpy::PyArrayDyn;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A multi-head attention layer.
#[pyclass(frozen, module = "attnlearn._native")]
#[derive(Clone)]
pub struct Layer(pub AttentionLayer);

/// All numbers in double precision.
fn wide(numbers: &Numbers<'_>, name: &str) -> Result<Vec<f64>> {
    let mut out = vec![0.0; numbers.len()];
    numbers.copy_to(0..numbers.len(), &mut out, 1).map_err(|value| {
        let problem = if value.is_nan() { "holds NaN" } else { "holds an infinite number" };
        Error::input(name, problem, "give finite numbers")
    })?;
    Ok(out)
}

/// JSON for the Python side.
pub fn text(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|e| raise(Error::input("result", format!("cannot be described ({e})"), "report it")))
}

#[pymethods]
impl Layer {
    #[new]
    #[pyo3(signature = (theta: "numpy.ndarray", w: "numpy.ndarray", key_bias: "numpy.ndarray | None" = None, bias: "numpy.ndarray | None" = None, causal = false))]
    fn new(theta: Array<'_>, w: Array<'_>, key_bias: Option<Array<'_>>, bias: Option<Array<'_>>, causal: bool) -> PyResult<Self> {
        let ([m, d, _], [_, _, d_out]) = (theta.dims::<3>("theta")?, w.dims::<3>("w")?);
        let layer = || -> Result<AttentionLayer> {
            let of = |array: &Array<'_>, name: &str, size: usize| -> Result<Vec<f64>> {
                let numbers = array.numbers().map_err(|e| Error::input(name, e.to_string(), "give a plain array"))?;
                if numbers.len() != size {
                    let problem = format!("has shape {:?} for m = {m}, d = {d}, d_out = {d_out}", array.shape());
                    return Err(Error::input(name, problem, "give heads of one common shape"));
                }
                wide(&numbers, name)
            };
            let (thetas, ws) = (of(&theta, "theta", m * d * d)?, of(&w, "w", m * d * d_out)?);
            let key_biases = key_bias.as_ref().map(|c| of(c, "key_bias", m * d)).transpose()?;
            let bias = bias.as_ref().map(|b| of(b, "bias", d_out)).transpose()?;
            let heads = (0..m).map(|i| Head {
                theta: Theta::Dense(Mat::from_fn(d, d, |a, b| thetas[(i * d + a) * d + b])),
                key_bias: key_biases.as_ref().map(|c| c[i * d..(i + 1) * d].to_vec()),
                w: Mat::from_fn(d, d_out, |a, b| ws[(i * d + a) * d_out + b]),
                terms: Terms::default(),
            });
            AttentionLayer::new(heads.collect(), bias, if causal { Mask::Causal } else { Mask::None })
        };
        layer().map(Self).map_err(raise)
    }

    /// A layer from a file.
    #[staticmethod]
    fn load(path: PathBuf) -> PyResult<Self> {
        AttentionLayer::load(&path).map(Self).map_err(raise)
    }

    /// A layer from the contents of a file.
    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        AttentionLayer::from_bytes(bytes, "layer").map(Self).map_err(raise)
    }

    /// The contents of a file.
    #[pyo3(signature = (notes = None))]
    fn to_bytes<'py>(&self, py: Python<'py>, notes: Option<BTreeMap<String, String>>) -> PyResult<Bound<'py, PyBytes>> {
        self.0.to_bytes(&notes.unwrap_or_default()).map(|bytes| PyBytes::new(py, &bytes)).map_err(raise)
    }

    /// Writes a file.
    #[pyo3(signature = (path, notes = None))]
    fn save(&self, path: PathBuf, notes: Option<BTreeMap<String, String>>) -> PyResult<()> {
        self.0.save(&path, &notes.unwrap_or_default()).map_err(raise)
    }

    /// Number of heads.
    #[getter]
    fn heads(&self) -> usize {
        self.0.heads().len()
    }

    /// Token dimension.
    #[getter]
    fn d(&self) -> usize {
        self.0.d()
    }

    /// Output dimension.
    #[getter]
    fn d_out(&self) -> usize {
        self.0.d_out()
    }

    /// Whether later tokens are hidden.
    #[getter]
    fn causal(&self) -> bool {
        self.0.mask().is_causal()
    }

    /// Attention matrices, `[m, d, d]`.
    #[pyo3(signature = () -> "numpy.ndarray")]
    fn theta<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
        self.0.require_plain("its attention is no matrix Θ; save it, and read its factors from the file").map_err(raise)?;
        let numbers = self.0.heads().iter().flat_map(|head| row_major(head.theta.to_dense().as_ref())).collect();
        array(py, numbers, &[self.heads(), self.d(), self.d()])
    }

    /// Projections, `[m, d, d_out]`.
    #[pyo3(signature = () -> "numpy.ndarray")]
    fn w<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
        let numbers = self.0.heads().iter().flat_map(|head| row_major(head.w.as_ref())).collect();
        array(py, numbers, &[self.heads(), self.d(), self.d_out()])
    }

    /// Key biases, `[m, d]`, if any head has one.
    #[pyo3(signature = () -> "numpy.ndarray | None")]
    fn key_bias<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyArrayDyn<f64>>>> {
        if self.0.heads().iter().all(|head| head.key_bias.is_none()) {
            return Ok(None);
        }
        let zero = || vec![0.0; self.d()];
        let numbers = self.0.heads().iter().flat_map(|head| head.key_bias.clone().unwrap_or_else(zero)).collect();
        array(py, numbers, &[self.heads(), self.d()]).map(Some)
    }

    /// Output bias, `[d_out]`, if there is one.
    #[pyo3(signature = () -> "numpy.ndarray | None")]
    fn bias<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyArrayDyn<f64>>>> {
        self.0.bias().map(|bias| array(py, bias.to_vec(), &[self.d_out()])).transpose()
    }

    /// `F(X)` of sequences `[n, k, d]`, in their precision.
    #[pyo3(signature = (x: "numpy.ndarray") -> "numpy.ndarray")]
    fn forward<'py>(&self, py: Python<'py>, x: Array<'_>) -> PyResult<Bound<'py, PyAny>> {
        let [n, k, d] = x.dims::<3>("x")?;
        let shape = Shape { k, d, d_out: self.d_out() };
        check_size(shape, Some(n as u64), "x").map_err(raise)?;
        if d != self.d() {
            let problem = format!("tokens of dimension d = {d} for a layer with d = {}", self.d());
            return Err(raise(Error::input("x", problem, "give a layer and inputs of one dimension")));
        }
        let (numbers, layer, out) = (x.numbers()?, &self.0, [n, k, self.d_out()]);
        match numbers {
            Numbers::F32(x) => {
                Ok(array(py, run(py, None, |line| forward(layer, x, shape, &|| line.stopped()))?, &out)?.into_any())
            }
            Numbers::F64(x) => {
                Ok(array(py, run(py, None, |line| forward(layer, x, shape, &|| line.stopped()))?, &out)?.into_any())
            }
            Numbers::I8(x) => {
                let x: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
                Ok(array(py, run(py, None, |line| forward(layer, &x, shape, &|| line.stopped()))?, &out)?.into_any())
            }
        }
    }

    /// How far another layer is from this one, as JSON.
    fn distance(&self, other: &Self) -> PyResult<String> {
        text(&self.0.distance(&other.0).map_err(raise)?)
    }

    /// The canonical form, where its heads come from, and the heads that left no trace.
    fn canonical(&self, tolerance: f64) -> (Self, Vec<Vec<usize>>, Vec<usize>) {
        let found = self.0.canonical(tolerance);
        (Self(found.layer), found.merged, found.dropped)
    }

    /// The conditions of the theory, as JSON.
    fn conditions(&self, py: Python<'_>, k: usize) -> PyResult<String> {
        let found = quick(py, || Conditions::of(&self.0, k.max(1)))?;
        text(&json!({ "verdict": found.verdict(), "measured": found }))
    }

    /// Mean squared difference from another layer on random inputs, as JSON.
    fn functional_error(&self, py: Python<'_>, other: &Self, k: usize, inputs: &str, n: u64, seed: u64) -> PyResult<String> {
        let inputs = distribution(inputs).map_err(raise)?;
        text(&run(py, None, |_| self.0.functional_error(&other.0, k, inputs, n, seed, &()))?)
    }

    /// Whether all numbers are the same, however attention matrices are stored.
    fn equals(&self, other: &Self) -> bool {
        let (a, b) = (&self.0, &other.0);
        let zero = |c: &Option<Vec<f64>>| c.clone().unwrap_or_else(|| vec![0.0; a.d()]);
        let head =
            |a: &Head, b: &Head| a.w == b.w && a.theta.to_dense() == b.theta.to_dense() && zero(&a.key_bias) == zero(&b.key_bias);
        (a.d(), a.d_out(), a.mask(), a.bias(), a.heads().len()) == (b.d(), b.d_out(), b.mask(), b.bias(), b.heads().len())
            && a.heads().iter().zip(b.heads()).all(|(a, b)| head(a, b))
    }

    fn __repr__(&self) -> String {
        format!("Layer(heads={}, d={}, d_out={})", self.heads(), self.d(), self.d_out())
    }
}

/// Sequences of a task: enough that one can be stopped soon.
const AT_ONCE: usize = 64 * Block::<f64>::CAPACITY;

/// As [`AttentionLayer::forward`], and can be stopped; refuses inputs that are not finite.
fn forward<T: Real>(layer: &AttentionLayer, x: &[T], shape: Shape, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<T>> {
    let per = shape.k * shape.d;
    let y = if x.len() <= AT_ONCE * per {
        layer.forward_until(shape.k, x, stop)?
    } else {
        let mut y = Vec::with_capacity(x.len() / shape.d * shape.d_out);
        for part in x.chunks(AT_ONCE * per) {
            if stop() {
                return Err(Error::Interrupted);
            }
            y.extend(layer.forward_until(shape.k, part, stop)?);
        }
        y
    };
    // A number that is not finite spoils all outputs of the tokens that see it, and the last token sees all: one number a sequence tells, and inputs
    // are searched only if it is bad.
    let told = y.chunks_exact(shape.k * shape.d_out).map(|y| y[(shape.k - 1) * shape.d_out]);
    if told.fold(true, |good, y| good & y.to_f64().is_finite()) {
        return Ok(y);
    }
    match x.iter().position(|v| !v.to_f64().is_finite()) {
        None => Ok(y),
        Some(at) => {
            let problem = if x[at].to_f64().is_nan() { "holds NaN" } else { "holds an infinite number" };
            Err(Error::input(format!("x, example {}", at / per), problem, "remove the example or mend it"))
        }
    }
}

fn distribution(name: &str) -> Result<InputDistribution> {
    match name {
        "boolean" => Ok(InputDistribution::Boolean),
        "gaussian" => Ok(InputDistribution::Gaussian),
        "sphere" => Ok(InputDistribution::Sphere),
        other => Err(Error::input("inputs", format!("{other:?} is no distribution"), "give boolean, gaussian or sphere")),
    }
}

/// A random layer, the one that `attnlearn generate` draws from the same seed.
#[pyfunction]
#[pyo3(signature = (d, heads, *, d_out = None, norm = 6.0, rank = None, seed = 0))]
pub fn random_layer(d: usize, heads: usize, d_out: Option<usize>, norm: f64, rank: Option<usize>, seed: u64) -> PyResult<Layer> {
    let mut spec = TeacherSpec::dense(d, heads, norm);
    spec.d_out = d_out.unwrap_or(d);
    if let Some(rank) = rank {
        spec.family = Family::LowRank { rank };
    }
    spec.draw_from(seed).map(Layer).map_err(raise)
}

/// `n` examples of a layer on random sequences of `k` tokens: what `attnlearn generate` writes for the same seed.
#[pyfunction]
#[pyo3(signature = (layer, n, k, *, inputs = "boolean", seed = 0) -> "tuple[numpy.ndarray, numpy.ndarray]")]
#[allow(clippy::type_complexity)] // two arrays
pub fn examples_of<'py>(
    py: Python<'py>,
    layer: &Layer,
    n: u64,
    k: usize,
    inputs: &str,
    seed: u64,
) -> PyResult<(Bound<'py, PyArrayDyn<f64>>, Bound<'py, PyArrayDyn<f64>>)> {
    let shape = Shape { k, d: layer.d(), d_out: layer.d_out() };
    let inputs = distribution(inputs).map_err(raise)?;
    if n == 0 || k == 0 {
        return Err(raise(Error::input("examples", format!("{n} of {k} tokens"), "ask for at least one of each")));
    }
    check_size(shape, Some(n), "k").map_err(raise)?;
    let per = shape.k * (shape.d + shape.d_out);
    let many = usize::try_from(n).unwrap_or(usize::MAX);
    ask(numbers::<f64>(&[many, per]), "examples", "ask for fewer of them").map_err(raise)?;
    let (x, y) = run(py, None, |line| {
        let stream = TeacherStream::new(&layer.0, k, inputs, seed, Some(n));
        let (mut x, mut y, mut block) =
            (Vec::with_capacity(many * k * shape.d), Vec::with_capacity(many * k * shape.d_out), Block::<f64>::new(shape));
        for index in 0..n.div_ceil(Block::<f64>::CAPACITY as u64) {
            if line.stopped() {
                return Err(Error::Interrupted);
            }
            stream.fill_f64(index, &mut block)?;
            let (from_x, from_y) = (x.len(), y.len());
            x.resize(from_x + block.len() * k * shape.d, 0.0);
            y.resize(from_y + block.len() * k * shape.d_out, 0.0);
            block.copy_inputs(&mut x[from_x..]);
            block.copy_outputs(&mut y[from_y..]);
        }
        Ok((x, y))
    })?;
    let n = n as usize;
    Ok((array(py, x, &[n, k, shape.d])?, array(py, y, &[n, k, shape.d_out])?))
}

/// An attention layer out of a transformer's checkpoint, and where it was found, as JSON.
#[pyfunction]
#[pyo3(signature = (path, layer = 0, heads = None, prefix = None, causal = None))]
pub fn from_pretrained(
    py: Python<'_>,
    path: PathBuf,
    layer: usize,
    heads: Option<usize>,
    prefix: Option<String>,
    causal: Option<bool>,
) -> PyResult<(Layer, String)> {
    let (imported, found) = quick(py, || {
        let imported = ModelFile::open(&path)?.import(&Request { layer, heads, prefix, causal })?;
        let found = json!({
            "family": imported.found.family,
            "prefix": imported.found.prefix,
            "layer": imported.found.layer,
            "head_dim": imported.projections.head_dim(),
            "tensors": imported.tensors,
            "gap": imported.gap,
            "confirmed": imported.confirmed,
        });
        Ok((imported.layer, found))
    })?;
    Ok((Layer(imported), found.to_string()))
}

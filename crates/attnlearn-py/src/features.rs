//! Random-feature attention: fits, predictions, and sums that can be added up bit by bit.

use crate::arrays::{Array, array};
use crate::call::{Line, quick, run};
use crate::errors::raise;
use crate::layer::text;
use attnlearn::Error;
use attnlearn::features::ridge::{self, Accuracy, Checkpoint, Gram, Options, Ridge, Solver, Stage};
use attnlearn::features::{
    FitDescription, FitSpec, Fitted, FittedModel, How, MapSpec, Mean, Model as Kind, NOT_REACHED, Precision, Predictor, Presence,
    SetBlock, SetInputs, SetShape, SetSlices, SetSource, SetStream, SetTokens, Target, TargetSpec, Tokens, feature_index,
};
use attnlearn::memory::{Size, ask, numbers};
use numpy::{PyArrayDyn, PyReadonlyArrayDyn};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;

/// Sets as the Python side hands them over: `x` alone, or a query and keys; which keys are there; targets; weights.
#[derive(FromPyObject)]
pub struct Sets<'py> {
    #[pyo3(item)]
    x: Array<'py>,
    #[pyo3(item)]
    keys: Option<Array<'py>>,
    #[pyo3(item)]
    mask: Option<PyReadonlyArrayDyn<'py, bool>>,
    #[pyo3(item)]
    lengths: Option<PyReadonlyArrayDyn<'py, i64>>,
    #[pyo3(item)]
    y: Option<Array<'py>>,
    #[pyo3(item)]
    weights: Option<Array<'py>>,
}

impl Sets<'_> {
    /// The sets, where they lie.
    fn slices(&self) -> PyResult<SetSlices<'_>> {
        let scattered = |_| PyTypeError::new_err("the array is not C-contiguous");
        let (tokens, n, keys, d) = match &self.keys {
            None => {
                let [n, places, d] = self.x.dims::<3>("X")?;
                (SetTokens::Together(self.x.numbers()?), n, places.saturating_sub(1), d)
            }
            Some(keys) => {
                let ([n, d], [_, count, _]) = (self.x.dims::<2>("query")?, keys.dims::<3>("keys")?);
                (SetTokens::Apart(self.x.numbers()?, keys.numbers()?), n, count, d)
            }
        };
        let mut sets = SetSlices::new(tokens, n, keys, d).map_err(raise)?;
        if let Some(mask) = &self.mask {
            sets = sets.with_presence(Presence::Mask(mask.as_slice().map_err(scattered)?)).map_err(raise)?;
        }
        if let Some(lengths) = &self.lengths {
            sets = sets.with_presence(Presence::Lengths(lengths.as_slice().map_err(scattered)?)).map_err(raise)?;
        }
        if let Some(y) = &self.y {
            let [_, targets] = y.dims::<2>("y")?;
            sets = sets.with_targets(y.numbers()?, targets).map_err(raise)?;
        }
        if let Some(weights) = &self.weights {
            sets = sets.with_weights(weights.numbers()?).map_err(raise)?;
        }
        Ok(sets)
    }
}

/// What to fit and how, as the Python side says it.
#[derive(FromPyObject)]
pub struct Wanted {
    #[pyo3(item)]
    model: String,
    #[pyo3(item)]
    heads: usize,
    #[pyo3(item)]
    seed: u64,
    #[pyo3(item)]
    mean_scale: Option<f64>,
    #[pyo3(item)]
    mean: Option<Vec<f64>>,
    #[pyo3(item)]
    inverse_temperature: f64,
    #[pyo3(item)]
    width: Option<usize>,
    #[pyo3(item)]
    precision: String,
    #[pyo3(item)]
    ridge: String,
    #[pyo3(item)]
    solver: String,
    #[pyo3(item)]
    intercept: bool,
    #[pyo3(item)]
    memory: f64,
    #[pyo3(item)]
    tolerance: Option<f64>,
}

impl Wanted {
    fn spec(&self, shape: SetShape) -> PyResult<FitSpec> {
        let mean = match (&self.mean, self.mean_scale) {
            (Some(entries), _) => Some(Mean::Matrix(entries.clone())),
            (None, Some(scale)) => Some(Mean::Identity { scale }),
            (None, None) => None,
        };
        let unknown = |e: String| PyValueError::new_err(format!("model: {:?} is not known; {e}", self.model));
        let description = FitDescription {
            kind: self.model.parse().map_err(unknown)?,
            heads: self.heads,
            seed: self.seed,
            mean,
            inverse_temperature: self.inverse_temperature,
            width: self.width,
            precision: if self.precision == "f32" { Precision::F32 } else { Precision::F64 },
        };
        description.check(shape).map_err(raise)
    }

    fn options(&self, checkpoint: bool) -> PyResult<Options> {
        let ridge = match self.ridge.as_str() {
            "auto" => Ridge::Auto,
            "ridgeless" => Ridge::Ridgeless,
            number => Ridge::Given(number.parse().map_err(|_| {
                PyValueError::new_err(format!("ridge: {number:?} is no ridge; give a positive number, auto or ridgeless"))
            })?),
        };
        let solver = match self.solver.as_str() {
            "auto" if checkpoint => Solver::Gram,
            "auto" => Solver::Auto,
            "gram" => Solver::Gram,
            "dual" => Solver::Dual,
            "cg" => Solver::Cg,
            other => return Err(PyValueError::new_err(format!("solver: {other:?} is not known; give auto, gram, dual or cg"))),
        };
        Ok(Options {
            solver,
            ridge,
            intercept: self.intercept,
            memory: (self.memory * f64::from(1u32 << 30)) as u64,
            accuracy: self.tolerance.map_or(Options::default().accuracy, Accuracy::Residual),
            ..Default::default()
        })
    }
}

/// A fitted model.
#[pyclass(frozen, module = "attnlearn._native")]
pub struct Model {
    model: FittedModel,
    how: Option<How>,
}

#[pymethods]
impl Model {
    /// A model from a file.
    #[staticmethod]
    fn load(path: PathBuf) -> PyResult<Self> {
        FittedModel::load(&path).map(|model| Self { model, how: None }).map_err(raise)
    }

    /// A model from the contents of a file.
    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        FittedModel::from_bytes(bytes, "model").map(|model| Self { model, how: None }).map_err(raise)
    }

    /// The contents of a file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.model.to_bytes(&Fitted::notes(), false).map(|bytes| PyBytes::new(py, &bytes)).map_err(raise)
    }

    /// Writes a file, what `attnlearn fit` writes.
    fn save(&self, path: PathBuf) -> PyResult<()> {
        self.model.save(&path, &Fitted::notes(), false).map_err(raise)
    }

    /// Trained values `[p, t]`, head after head, or dual coefficients `[n, t]` of a kernel.
    #[pyo3(signature = () -> "numpy.ndarray")]
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
        let t = self.model.intercept.len();
        let values = match &self.model.predictor {
            Predictor::Kernel { alpha, .. } => alpha.clone(),
            Predictor::Frozen { map, v, .. } if map.model == Kind::Rfmlp => v.clone(),
            Predictor::Frozen { map, v, .. } => {
                let features = (0..map.heads).flat_map(|m| (0..=map.d).map(move |e| feature_index(map.heads, map.d, m, e)));
                features.flat_map(|feature| &v[feature * t..][..t]).copied().collect()
            }
        };
        let rows = values.len() / t;
        array(py, values, &[rows, t])
    }

    /// The frozen weights: `[M, d+1, d+1]`, rows the query's, or `[K, (N+1)d + 1]` of neurons; none of a kernel.
    #[pyo3(signature = () -> "numpy.ndarray | None")]
    fn frozen<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyArrayDyn<f64>>>> {
        let Predictor::Frozen { map, .. } = &self.model.predictor else { return Ok(None) };
        let weights = quick(py, || map.weights())?;
        let shape = match map.model {
            Kind::Rfmlp => vec![map.features(), weights.len() / map.features()],
            _ => vec![map.heads, map.d + 1, map.d + 1],
        };
        array(py, weights, &shape).map(Some)
    }

    /// Intercepts `[t]`.
    #[pyo3(signature = () -> "numpy.ndarray")]
    fn intercept<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
        array(py, self.model.intercept.clone(), &[self.model.intercept.len()])
    }

    /// The ridge.
    #[getter]
    fn ridge(&self) -> f64 {
        self.model.ridge
    }

    /// Keys at most, dimension and targets.
    #[getter]
    fn shape(&self) -> (usize, usize, usize) {
        let SetShape { keys, d, targets } = self.model.shape;
        (keys, d, targets)
    }

    /// How it was fitted, as JSON.
    fn how(&self) -> PyResult<Option<String>> {
        self.how.as_ref().map(text).transpose()
    }

    /// What is to be warned of, if anything.
    #[getter]
    fn warning(&self) -> Option<&'static str> {
        self.how.as_ref().filter(|how| !how.reached).map(|_| NOT_REACHED)
    }

    /// Predictions `[n, t]`.
    #[pyo3(signature = (sets: "dict[str, object]") -> "numpy.ndarray")]
    fn predict<'py>(&self, py: Python<'py>, sets: Sets<'_>) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
        let slices = sets.slices()?;
        self.model.check_sets(slices.shape(), "X").map_err(raise)?;
        let (n, t) = (slices.len() as usize, self.model.intercept.len());
        let y = run(py, None, |line| {
            let prediction = self.model.prepare()?;
            let (mut y, mut block) = (Vec::with_capacity(n * t), SetBlock::new(slices.shape()));
            for index in 0..slices.blocks() {
                if line.stopped() {
                    return Err(Error::Interrupted);
                }
                slices.fill(index, &mut block)?;
                y.extend(prediction.predict(&block)?);
            }
            Ok(y)
        })?;
        array(py, y, &[n, t])
    }
}

/// Passes the stages of a fit on.
struct Stages<'a>(&'a Line);

impl ridge::Watch for Stages<'_> {
    fn begin(&self, stage: Stage) {
        self.0.live(stage.title(), 0, 0);
    }

    fn advance(&self, done: u64, total: u64) {
        self.0.set(done, total);
    }

    fn iteration(&self, iteration: usize, error: f64, remaining: f64) {
        let error = if error.is_finite() { format!(", error {error:.1e}") } else { String::new() };
        let left = if remaining.is_finite() { format!(", about {remaining:.0} to go") } else { String::new() };
        self.0.live(format!("iteration {iteration}{error}{left}"), 0, 0);
    }

    fn interrupted(&self) -> bool {
        self.0.stopped()
    }
}

/// Fits a model to sets with targets.
#[pyfunction]
#[pyo3(signature = (sets: "dict[str, object]", wanted: "dict[str, object]", checkpoint = None, progress = None))]
pub fn fit(
    py: Python<'_>,
    sets: Sets<'_>,
    wanted: Wanted,
    checkpoint: Option<PathBuf>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Model> {
    let slices = sets.slices()?;
    let (spec, options) = (wanted.spec(slices.shape())?, wanted.options(checkpoint.is_some())?);
    let kept = match (&checkpoint, &spec) {
        (Some(path), FitSpec::Frozen(map, precision)) if matches!(options.solver, Solver::Gram) => {
            Some(Checkpoint::new(path, map, *precision).map_err(raise)?)
        }
        (Some(_), _) => {
            return Err(raise(Error::input("checkpoint", "it is for solver gram", "leave it out, or use that solver")));
        }
        (None, _) => None,
    };
    let Fitted { model, how } = run(py, progress.as_ref(), |line| {
        let fitted = spec.fit(&slices, &options, kept.as_ref(), &Stages(line))?;
        kept.as_ref().map_or(Ok(()), Checkpoint::remove)?;
        Ok(fitted)
    })?;
    Ok(Model { model, how: Some(how) })
}

/// Sums over sets, gathered bit by bit: the mergeable Gram.
#[pyclass(module = "attnlearn._native")]
pub struct Sums {
    gram: Gram,
    map: MapSpec,
    precision: Precision,
    shape: SetShape,
}

#[pymethods]
impl Sums {
    /// Empty sums for sets of so many keys in dimension d with so many targets.
    #[new]
    #[pyo3(signature = (wanted: "dict[str, object]", keys, d, targets))]
    fn new(wanted: Wanted, keys: usize, d: usize, targets: usize) -> PyResult<Self> {
        let shape = SetShape { keys, d, targets };
        match wanted.spec(shape)? {
            FitSpec::Frozen(map, precision) => {
                let (p, have) = (map.features(), wanted.options(true)?.memory);
                let need = Gram::bytes::<f64>(p);
                if need > have {
                    let (need, have) = (Size(need.into()), Size(have.into()));
                    let problem = format!("{need} are needed for {p} features and {have} allowed");
                    return Err(raise(Error::input("memory", problem, "allow more, or ask for fewer heads")));
                }
                let sums = numbers::<f64>(&[p, targets.saturating_add(2)]).saturating_add(need.into());
                ask(sums, "memory", "ask for fewer heads").map_err(raise)?;
                Ok(Self { gram: Gram::new(p, targets), map, precision, shape })
            }
            FitSpec::Kernel(_) => Err(PyValueError::new_err("model: kernels have no sums; use a model with finitely many heads")),
        }
    }

    /// Sets so far.
    #[getter]
    fn examples(&self) -> u64 {
        self.gram.examples
    }

    /// Adds sets; interrupted, or refused, the sums are as they were.
    #[pyo3(signature = (sets: "dict[str, object]", progress = None))]
    fn add(&mut self, py: Python<'_>, sets: Sets<'_>, progress: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let slices = sets.slices()?;
        self.map.check_sets(slices.shape()).map_err(raise)?;
        let (map, precision, fresh) = (&self.map, self.precision, Gram::new(self.map.features(), slices.shape().targets));
        let part = run(py, progress.as_ref(), |line| {
            let mut part = fresh;
            let watch = Stages(line);
            match precision {
                Precision::F32 => part.add(map.build::<f32>()?.as_ref(), &slices, 0..slices.blocks(), &watch)?,
                Precision::F64 => part.add(map.build::<f64>()?.as_ref(), &slices, 0..slices.blocks(), &watch)?,
            }
            Ok(part)
        })?;
        self.gram.merge(&part).map_err(raise)
    }

    /// Adds the sums of others.
    fn merge(&mut self, other: &Self) -> PyResult<()> {
        if (&self.map, self.precision) != (&other.map, other.precision) {
            return Err(raise(Error::input(
                "sums",
                "they are of different maps",
                "gather all parts with the same settings and seed",
            )));
        }
        self.gram.merge(&other.gram).map_err(raise)
    }

    /// The model that the sums determine.
    #[pyo3(signature = (wanted: "dict[str, object]", progress = None))]
    fn solve(&self, py: Python<'_>, wanted: Wanted, progress: Option<Bound<'_, PyAny>>) -> PyResult<Model> {
        let (gram, options) = (self.gram.clone(), wanted.options(true)?);
        let fit = run(py, progress.as_ref(), |line| ridge::fit_sums(gram, &options, &Stages(line)))?;
        let Fitted { model, how } = Fitted::frozen(fit, &self.map, self.precision, self.shape);
        Ok(Model { model, how: Some(how) })
    }

    /// All sums as bytes.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = quick(py, || {
            let mut bytes = Vec::new();
            self.gram.write(&mut bytes).map_err(|e| Error::Io { place: "sums".into(), source: e })?;
            Ok(bytes)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Replaces the sums by those that [`Self::to_bytes`] gave.
    fn read_bytes(&mut self, bytes: &[u8]) -> PyResult<()> {
        let gram = Gram::read(&mut &bytes[..], "sums").map_err(raise)?;
        let empty = Gram::new(self.map.features(), self.shape.targets);
        if (gram.features.len(), gram.targets.len()) != (empty.features.len(), empty.targets.len()) {
            return Err(raise(Error::input("sums", "they are of another map", "give those of the same settings")));
        }
        self.gram = gram;
        Ok(())
    }
}

/// Random sets with a target, what `attnlearn generate --target` writes: `x` `[n, N+1, d]`, `y` `[n]`, lengths.
#[pyfunction]
#[pyo3(signature = (target, n, *, d, keys, min_keys = None, inputs = "sphere", noise = 0.0, seed = 0, target_seed = 0) -> "tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]")]
#[allow(clippy::too_many_arguments, clippy::type_complexity)] // they are named on the other side
pub fn target_values<'py>(
    py: Python<'py>,
    target: &str,
    n: u64,
    d: usize,
    keys: usize,
    min_keys: Option<usize>,
    inputs: &str,
    noise: f64,
    seed: u64,
    target_seed: u64,
) -> PyResult<(Bound<'py, PyArrayDyn<f64>>, Bound<'py, PyArrayDyn<f64>>, Bound<'py, PyArrayDyn<i64>>)> {
    let tokens = match inputs {
        "sphere" => Tokens::Sphere,
        "gaussian" => Tokens::Gaussian,
        other => return Err(PyValueError::new_err(format!("inputs: sets are not drawn as {other}; use sphere or gaussian"))),
    };
    let spec: TargetSpec = target.parse().map_err(|e| PyValueError::new_err(format!("target: {e}")))?;
    if n == 0 {
        return Err(raise(Error::input("examples", "there are none", "ask for at least one")));
    }
    let block = run(py, None, |line| {
        let inputs = SetInputs { tokens, d, keys, min_keys: min_keys.unwrap_or(keys) };
        inputs.check()?;
        let stream = SetStream::new(Target::new(&spec, inputs, target_seed)?, seed, n).with_noise(noise)?;
        attnlearn::features::Sets::read_until(&stream, &|| line.stopped()).map(attnlearn::features::Sets::into_block)
    })?;
    let n = block.len();
    let lengths = block.lengths.iter().map(|&l| l as i64).collect();
    Ok((array(py, block.x, &[n, keys + 1, d])?, array(py, block.y, &[n])?, array(py, lengths, &[n])?))
}

//! Learning, and certificates.

use crate::arrays::Array;
use crate::call::{Line, run};
use crate::errors::{argument, raise};
use crate::layer::{Layer, text};
use attnlearn::Error;
use attnlearn::certify::{CertifySettings, certify as certify_layer};
use attnlearn::data::{Block, ExampleSlices, ExampleSource, Reading, Shape, Watched, check_size};
use attnlearn::descend::{Choice, Rank};
use attnlearn::learn::{Answer, Checkpointing, Event, Method, Progress, Settings, Watch, describe};
use attnlearn::scores::Rotation;
use attnlearn::words::{duration, error, grouped};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Mutex;

/// What learning came to.
#[pyclass(frozen, module = "attnlearn._native")]
pub struct Learned {
    answer: Answer,
}

#[pymethods]
impl Learned {
    /// The best layer, if there is one.
    #[getter]
    fn layer(&self) -> Option<Layer> {
        self.answer.layer.clone().map(Layer)
    }

    /// The six phases' own answer, if they gave one.
    #[getter]
    fn before_polish(&self) -> Option<Layer> {
        self.answer.before_polish.as_ref().map(|own| Layer(own.layer.clone()))
    }

    /// How it ended, in words.
    #[getter]
    fn outcome(&self) -> String {
        self.answer.outcome.told(&argument)
    }

    /// Whether the layer was recovered.
    #[getter]
    fn recovered(&self) -> bool {
        self.answer.recovered
    }

    /// Whether the limit of time ended the search before a layer was recovered: what was kept of it is still there.
    #[getter]
    fn unfinished(&self) -> bool {
        self.answer.unfinished
    }

    /// The certificate as text, if there is one.
    #[getter]
    fn certificate_text(&self) -> Option<String> {
        self.answer.certificate.as_ref().map(ToString::to_string)
    }

    /// The guarantee in one sentence.
    #[getter]
    fn statement(&self) -> Option<String> {
        self.answer.certificate.as_ref().map(attnlearn::certify::Certificate::statement)
    }

    /// Everything as JSON: what `attnlearn learn --json` writes.
    fn report(&self) -> PyResult<String> {
        text(&self.answer.report(None).with_outcome(self.outcome()))
    }

    /// The best layer as the contents of its file, if there is one.
    fn file<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(self.answer.to_bytes().map_err(raise)?.map(|bytes| PyBytes::new(py, &bytes)))
    }
}

/// Writes a file, which appears whole or not at all.
#[pyfunction]
pub fn write_atomically(path: PathBuf, contents: &[u8]) -> PyResult<()> {
    attnlearn::files::write_atomically(&path, contents).map_err(raise)
}

/// Passes the events of a run on.
struct Told<'a> {
    line: &'a Line,
    progress: Mutex<Option<Progress>>,
}

impl Watch for Told<'_> {
    fn tell(&self, event: Event<'_>) {
        let line = self.line;
        match event {
            Event::Pass { what, examples } => line.live(what, 0, examples),
            Event::Read(examples) => line.advance(examples),
            Event::PassEnded | Event::PhasesBegin => {}
            Event::Shared(parts) => line.say(parts.text().told(&argument)),
            Event::Step(learner) => {
                if let Ok(mut progress) = self.progress.lock() {
                    line.live(progress.get_or_insert_with(|| Progress::new(learner)).line(learner), 0, 0);
                }
            }
            Event::Tried(one) => line.say(describe(one)),
            Event::Checkpointed { checkpoint, nmse, .. } => {
                let kept = checkpoint.display();
                line.say(format!(
                    "kept the search in {kept}: continue with resume=True; NMSE of the best {} on the examples to choose by",
                    error(nmse)
                ));
            }
            Event::OutOfTime { checkpoint } => {
                if let Some(path) = checkpoint {
                    line.say(format!("time is up: kept the search in {}, continue with resume=True", path.display()));
                }
            }
            Event::NotByDescent(why) => line.say(format!("descent: {why}; now the six phases")),
            Event::NotByPhases(why) => {
                line.say(format!("the six phases: {}; the answer of descent stays", why.told(&argument)));
            }
            Event::Sculpt { examples, shape } => {
                let examples = examples.map_or("endless".into(), grouped);
                line.say(format!("{examples} examples, k = {}, d = {}, d_out = {}", shape.k, shape.d, shape.d_out));
            }
            Event::Phase(phase) => line.live(format!("{} {}", phase.label(), phase.title()), 0, 0),
            Event::Advance { done, total } => line.set(done, total),
            Event::Record(record) => {
                let (label, title) = (record.phase.label(), record.phase.title());
                line.say(format!("{label} {title}, {}: {}", duration(record.seconds), record.note));
            }
        }
    }

    fn interrupted(&self) -> bool {
        self.line.stopped()
    }
}

fn word<T>(name: &str, given: &str, known: &[(&str, T)]) -> PyResult<T>
where
    T: Copy,
{
    known.iter().find(|(word, _)| *word == given).map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        PyValueError::new_err(format!("{name}: {given:?} is not known; give {}", words.join(", ")))
    })
}

/// Sizes of examples, checked.
fn examples<'a>(x: &'a Array<'_>, y: &'a Array<'_>) -> PyResult<ExampleSlices<'a>> {
    let ([n, k, d], [ny, ky, d_out]) = (x.dims::<3>("X")?, y.dims::<3>("Y")?);
    for (name, a, b) in [("n", n, ny), ("k", k, ky)] {
        if a != b {
            let problem = format!("X has shape {:?} and Y has shape {:?}: they differ in {name}", x.shape(), y.shape());
            return Err(raise(Error::input("examples", problem, "give one output sequence for each input sequence")));
        }
    }
    ExampleSlices::new(x.numbers()?, y.numbers()?, n, Shape { k, d, d_out }).map_err(raise)
}

/// What to look for and how, as the Python side says it.
#[derive(FromPyObject)]
pub struct Wanted {
    #[pyo3(item)]
    heads: String,
    #[pyo3(item)]
    method: String,
    #[pyo3(item)]
    seed: u64,
    #[pyo3(item)]
    delta: f64,
    #[pyo3(item)]
    most_examples: u64,
    #[pyo3(item)]
    held_out: u64,
    #[pyo3(item)]
    memory: Option<f64>,
    #[pyo3(item)]
    rank: Option<String>,
    #[pyo3(item)]
    value_rank: Option<String>,
    #[pyo3(item)]
    biases: Option<String>,
    #[pyo3(item)]
    causal: bool,
    #[pyo3(item)]
    window: Option<usize>,
    #[pyo3(item)]
    kv_heads: Option<usize>,
    #[pyo3(item)]
    rotation: Option<Vec<f64>>,
    #[pyo3(item)]
    norm: Option<f64>,
    #[pyo3(item)]
    relative: bool,
    #[pyo3(item)]
    noise: bool,
    #[pyo3(item)]
    time_limit: Option<f64>,
    #[pyo3(item)]
    polish: bool,
    #[pyo3(item)]
    linear_programs: bool,
    #[pyo3(item)]
    sculpture: bool,
    #[pyo3(item)]
    checkpoint: Option<PathBuf>,
    #[pyo3(item)]
    resume: bool,
}

impl Wanted {
    fn settings(&self) -> PyResult<Settings> {
        let unknown = |name: &str, text: &str, e: String| PyValueError::new_err(format!("{name}: {text:?} is not known; {e}"));
        let rank = |name: &str, text: &Option<String>| {
            let parse = |text: &String| text.parse::<Rank>().map_err(|e| unknown(name, text, e));
            text.as_ref().map(parse).transpose()
        };
        let methods = [("auto", Method::Auto), ("sculpt", Method::Sculpt), ("descend", Method::Descend)];
        let choices = [("yes", Choice::Yes), ("no", Choice::No), ("auto", Choice::Auto)];
        Ok(Settings {
            method: word("method", &self.method, &methods)?,
            heads: self.heads.parse().map_err(|e| unknown("heads", &self.heads, e))?,
            seed: self.seed,
            delta: self.delta,
            most_examples: self.most_examples,
            held_out: self.held_out,
            memory: self.memory.map(|memory| (memory * f64::from(1u32 << 30)) as u64),
            rank: rank("rank", &self.rank)?,
            value_rank: rank("value_rank", &self.value_rank)?,
            biases: self.biases.as_ref().map(|given| word("biases", given, &choices)).transpose()?,
            causal: self.causal,
            window: self.window,
            kv_heads: self.kv_heads,
            rotation: self.rotation.clone().map(|frequencies| Rotation { frequencies }),
            norm: self.norm,
            relative: self.relative,
            noise: self.noise,
            time_limit: self.time_limit,
            polish: self.polish,
            linear_programs: self.linear_programs,
            sculpture: self.sculpture,
            ..Settings::default()
        })
    }
}

/// Learns a layer from examples, as the settings say.
#[pyfunction]
#[pyo3(signature = (x: "numpy.ndarray", y: "numpy.ndarray", wanted: "dict[str, object]", progress = None))]
pub fn learn(
    py: Python<'_>,
    x: Array<'_>,
    y: Array<'_>,
    wanted: Wanted,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Learned> {
    let source = examples(&x, &y)?;
    let settings = wanted.settings()?;
    let checkpointing = Checkpointing { file: wanted.checkpoint, resume: wanted.resume, ..Checkpointing::default() };
    let answer = run(py, progress.as_ref(), |line| {
        let plan = settings.check(&source, "examples", &checkpointing)?;
        let answer = plan.run(&source, &Told { line, progress: Mutex::new(None) })?;
        if !answer.unfinished {
            plan.remove_checkpoint()?;
        }
        Ok(answer)
    })?;
    Ok(Learned { answer })
}

struct Counted<'a>(&'a Line);

impl Reading for Counted<'_> {
    fn read(&self, examples: u64) {
        self.0.advance(examples);
    }

    fn interrupted(&self) -> bool {
        self.0.stopped()
    }
}

/// What is guaranteed of a layer, from examples that no learner has seen: JSON, text and statement.
#[pyfunction]
#[pyo3(signature = (layer, x: "numpy.ndarray", y: "numpy.ndarray", *, delta, epsilons = None, progress = None))]
pub fn certify(
    py: Python<'_>,
    layer: &Layer,
    x: Array<'_>,
    y: Array<'_>,
    delta: f64,
    epsilons: Option<Vec<f64>>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<(String, String, String)> {
    let source = examples(&x, &y)?;
    let (shape, layer) = (source.shape(), &layer.0);
    check_size(shape, source.len(), "examples").map_err(raise)?;
    for (name, found, wanted) in [("d", shape.d, layer.d()), ("d_out", shape.d_out, layer.d_out())] {
        if found != wanted {
            let problem = format!("{name} = {found} for a layer with {name} = {wanted}");
            return Err(raise(Error::input("examples", problem, "give a layer and examples of one shape")));
        }
    }
    let mut settings = CertifySettings { delta, ..CertifySettings::default() };
    settings.epsilons = epsilons.unwrap_or(settings.epsilons);
    let n = source.len().unwrap_or(0);
    let certificate = run(py, progress.as_ref(), |line| {
        line.live("examples", 0, n);
        let counted = Counted(line);
        let source = Watched::new(&source, &counted);
        certify_layer(layer, &source, 0..n.div_ceil(Block::<f64>::CAPACITY as u64), &settings)
    })?;
    Ok((text(&json!(certificate))?, certificate.to_string(), certificate.statement()))
}

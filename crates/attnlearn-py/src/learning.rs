//! Learning, and certificates.

use crate::arrays::Array;
use crate::call::{Line, run};
use crate::errors::{pythonic, raise};
use crate::layer::{Layer, text};
use attnlearn::Error;
use attnlearn::certify::{CertifySettings, certify as certify_layer};
use attnlearn::data::{Block, ExampleSlices, ExampleSource, Reading, Shape, Watched, check_size};
use attnlearn::descend::{Choice, Rank};
use attnlearn::learn::{Answer, Event, Heads, Keeping, Live, Method, Settings, Watch, told};
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
        self.answer.layer().cloned().map(Layer)
    }

    /// The six phases' own answer, if they gave one.
    #[getter]
    fn before_polish(&self) -> Option<Layer> {
        match &self.answer {
            Answer::Descended(_) => None,
            Answer::Sculpted(found) => found.learned.before_polish.as_ref().map(|stage| Layer(stage.layer.clone())),
        }
    }

    /// How it ended, in words.
    #[getter]
    fn outcome(&self) -> String {
        pythonic(&self.answer.text())
    }

    /// Whether the layer was recovered.
    #[getter]
    fn recovered(&self) -> bool {
        self.answer.recovered()
    }

    /// Whether the limit of time ended the search before a layer was recovered: what was kept of it is still there.
    #[getter]
    fn unfinished(&self) -> bool {
        self.answer.unfinished()
    }

    /// The certificate as text, if there is one.
    #[getter]
    fn certificate_text(&self) -> Option<String> {
        self.answer.certificate().map(ToString::to_string)
    }

    /// The guarantee in one sentence.
    #[getter]
    fn statement(&self) -> Option<String> {
        self.answer.certificate().map(attnlearn::certify::Certificate::statement)
    }

    /// Everything as JSON: what `attnlearn learn --json` writes.
    fn report(&self) -> PyResult<String> {
        match &self.answer {
            Answer::Descended(found) => text(&found.report(None)),
            Answer::Sculpted(found) => text(&found.report(None)),
        }
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
    live: Mutex<Option<Live>>,
}

impl Watch for Told<'_> {
    fn tell(&self, event: Event<'_>) {
        let line = self.line;
        match event {
            Event::Pass { what, examples } => line.live(what, 0, examples),
            Event::Read(examples) => line.advance(examples),
            Event::PassEnded | Event::PhasesBegin => {}
            Event::Shared(parts) => line.say(pythonic(&parts.to_string())),
            Event::Step(learner) => {
                if let Ok(mut live) = self.live.lock() {
                    line.live(live.get_or_insert_with(|| Live::new(learner)).line(learner), 0, 0);
                }
            }
            Event::Tried(one) => line.say(told(one)),
            Event::Kept { checkpoint, nmse, .. } => {
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
            Event::NotByDescent(why) => line.say(format!("descent: {}; now the six phases", pythonic(why))),
            Event::NotByPhases(why) => {
                line.say(format!("the six phases: {}; the answer of descent stays", pythonic(&why.to_string())));
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

/// Learns a layer from examples. `heads` is `("given", m, 0)`, `("range", first, last)`, `("most", m, 0)` or `("auto", 0, 0)`.
#[pyfunction]
#[pyo3(signature = (x: "numpy.ndarray", y: "numpy.ndarray", *, heads, method, seed, delta, most_examples, held_out, memory = None, rank = None, value_rank = None,
    biases = None, causal = false, noise = false, time_limit = None, polish = true, linear_programs = false, sculpture = false, checkpoint = None,
    resume = false, progress = None))]
#[allow(clippy::too_many_arguments)] // they are named on the other side
pub fn learn(
    py: Python<'_>,
    x: Array<'_>,
    y: Array<'_>,
    heads: (String, usize, usize),
    method: &str,
    seed: u64,
    delta: f64,
    most_examples: u64,
    held_out: u64,
    memory: Option<f64>,
    rank: Option<String>,
    value_rank: Option<String>,
    biases: Option<String>,
    causal: bool,
    noise: bool,
    time_limit: Option<f64>,
    polish: bool,
    linear_programs: bool,
    sculpture: bool,
    checkpoint: Option<PathBuf>,
    resume: bool,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Learned> {
    let source = examples(&x, &y)?;
    let rank_of = |name: &str, given: Option<String>| {
        given.map_or(Ok(None), |given| match given.as_str() {
            "auto" => Ok(Some(Rank::Auto)),
            "full" => Ok(Some(Rank::Full)),
            number => number
                .parse()
                .map(|r| Some(Rank::Given(r)))
                .map_err(|_| PyValueError::new_err(format!("{name}: {number:?} is no rank; give a rank, full or auto"))),
        })
    };
    let choices = [("yes", Choice::Yes), ("no", Choice::No), ("auto", Choice::Auto)];
    let settings = Settings {
        method: word("method", method, &[("auto", Method::Auto), ("sculpt", Method::Sculpt), ("descend", Method::Descend)])?,
        heads: match heads.0.as_str() {
            "given" => Heads::Given(heads.1),
            "range" => Heads::Range(heads.1, heads.2),
            "most" => Heads::Auto(Some(heads.1)),
            _ => Heads::Auto(None),
        },
        seed,
        delta,
        most_examples,
        held_out,
        memory: memory.map(|memory| (memory * f64::from(1u32 << 30)) as u64),
        rank: rank_of("rank", rank)?,
        value_rank: rank_of("value_rank", value_rank)?,
        biases: biases.map(|given| word("biases", &given, &choices)).transpose()?,
        causal,
        noise,
        time_limit,
        polish,
        linear_programs,
        before_polish: false,
        sculpture,
        ..Settings::default()
    };
    let keeping = Keeping { checkpoint, layer: None, resume, every: None };
    let answer = run(py, progress.as_ref(), |line| {
        let plan = settings.check(&source, "examples", &keeping)?;
        let answer = plan.run(&Told { line, live: Mutex::new(None) })?;
        if !answer.unfinished() {
            plan.forget()?;
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

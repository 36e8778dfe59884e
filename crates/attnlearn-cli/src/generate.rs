//! `attnlearn generate`: examples of a teacher layer, drawn or given, or sets with a target.

use crate::blocks;
use crate::cli::Ending;
use crate::console::{grouped, plural};
use crate::output::Files;
use crate::report::describe;
use crate::session::Session;
use crate::values::{self, Float, Inputs, Number};
use crate::{generate_sets, output};
use attnlearn::data::{Block, Columns, ExampleSource, ExampleWriter, InputDistribution, Shape, check_size};
use attnlearn::files::{Dtype, FileFormat};
use attnlearn::layer::{AttentionLayer, Evaluator, Mask};
use attnlearn::memory::{self, ask};
use attnlearn::teacher::{Family, TeacherSpec, TeacherStream};
use attnlearn::{Error, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Draw examples of a random layer, or of a layer in a file; or, with --target, sets for `attnlearn fit`.
///
/// The file gets x [n, k, d] and y [n, k, d_out] with y = F(x), as safetensors or npz by its extension. Inputs of ±1 are
/// stored as i8. The same seed gives the same file, whatever the number of threads.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn generate -o examples.npz --examples 1e6 --layer-out teacher.safetensors
  attnlearn generate -o examples.safetensors --examples 200_000 --d 12 --k 4 --heads 3 --norm 8 --cosine 0.5
  attnlearn generate -o more.npz --examples 1e5 --layer teacher.safetensors --inputs gaussian --seed 1
  attnlearn generate -o examples.npz --examples 1e5 --family low-rank:2 --inputs sphere --dtype f32
  attnlearn generate -o sets.npz --examples 4000 --target correlation:p=4,q=2 --d 16 --keys 16")]
pub struct Args {
    /// Where to write the examples (.safetensors or .npz).
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// How many examples, such as 1000000 or 1e6.
    #[arg(long, short = 'n', value_name = "N", value_parser = values::count)]
    examples: u64,
    /// Tokens per sequence.
    #[arg(long, default_value_t = 4)]
    k: usize,
    /// How tokens are drawn [default: boolean; for sets sphere, of radius 1].
    #[arg(long, value_enum)]
    inputs: Option<Inputs>,
    /// Seed of the layer and of the inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number format of y, and of x unless the inputs are Boolean.
    #[arg(long, value_enum, default_value_t)]
    dtype: Float,
    /// Number format of x [default: i8 for Boolean inputs, else as --dtype].
    #[arg(long, value_enum)]
    x_dtype: Option<Number>,
    /// Use the layer in this file instead of drawing one.
    #[arg(long, value_name = "FILE", help_heading = "Teacher")]
    #[arg(conflicts_with_all = ["d", "d_out", "heads", "norm", "family", "cosine", "singular_values", "causal"])]
    layer: Option<PathBuf>,
    /// Write the layer to this file (.safetensors).
    #[arg(long, value_name = "FILE", help_heading = "Teacher")]
    layer_out: Option<PathBuf>,
    /// Token dimension.
    #[arg(long, default_value_t = 8, help_heading = "Teacher")]
    d: usize,
    /// Output dimension [default: d].
    #[arg(long, help_heading = "Teacher")]
    d_out: Option<usize>,
    /// Number of heads.
    #[arg(long, value_name = "M", default_value_t = 2, help_heading = "Teacher")]
    heads: usize,
    /// ‖Θ‖_F of every head.
    #[arg(long, default_value_t = 6.0, help_heading = "Teacher")]
    norm: f64,
    /// Attention matrices: dense, diagonal, block:SIZE or low-rank:RANK.
    #[arg(long, default_value = "dense", value_parser = values::family, help_heading = "Teacher")]
    family: Family,
    /// Cosine between every two attention matrices [default: that of independent draws].
    #[arg(long, allow_negative_numbers = true, help_heading = "Teacher")]
    cosine: Option<f64>,
    /// Singular values of every attention matrix, up to scale: d numbers, with commas.
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', help_heading = "Teacher")]
    singular_values: Option<Vec<f64>>,
    /// Let a token attend to itself and those before it only.
    #[arg(long, help_heading = "Teacher")]
    causal: bool,
    #[command(flatten)]
    sets: generate_sets::SetFlags,
}

/// What has been checked.
pub enum Plan {
    /// Examples of a layer.
    Layer(Box<LayerPlan>),
    /// Sets with a target.
    Sets(Box<generate_sets::Plan>),
}

/// Examples of a layer.
pub struct LayerPlan {
    output: PathBuf,
    layer_out: Option<PathBuf>,
    teacher: AttentionLayer,
    shape: Shape,
    settings: GenerateSettings,
}

#[derive(Serialize)]
struct GenerateSettings {
    examples: u64,
    k: usize,
    inputs: InputDistribution,
    x_dtype: Dtype,
    y_dtype: Dtype,
    seed: u64,
    /// The recipe that the teacher was drawn by.
    teacher: Option<TeacherSpec>,
    /// The file that the teacher came from.
    layer: Option<String>,
}

/// What was done, as it stands in the JSON.
#[derive(Serialize)]
struct GenerateReport<'a> {
    seed: u64,
    settings: &'a GenerateSettings,
    shape: Shape,
    heads: usize,
    output: String,
    layer_out: Option<String>,
}

impl Args {
    /// What it reads and writes.
    pub fn files(&self) -> Files {
        Files::default().read(&self.layer).write([&self.output]).write(&self.layer_out)
    }

    /// Draws or reads the teacher, and checks the rest.
    pub fn check(self) -> Result<Plan> {
        let at_least_one = |flag: &str, value: u64| match value {
            0 => Err(Error::input(flag, "is 0", "give at least 1")),
            _ => Ok(()),
        };
        at_least_one("--examples", self.examples)?;
        at_least_one("--k", self.k as u64)?;
        if let Some(spec) = &self.sets.target {
            let common = generate_sets::Common {
                output: self.output,
                examples: self.examples,
                inputs: self.inputs,
                seed: self.seed,
                x_dtype: self.x_dtype.map_or(self.dtype.into(), Into::into),
                y_dtype: self.dtype.into(),
                d: self.d,
            };
            return Ok(Plan::Sets(Box::new(self.sets.check(spec, common)?)));
        }
        let inputs = self.inputs.unwrap_or_default();
        let x_dtype = match (self.x_dtype, inputs) {
            (Some(Number::I8), Inputs::Gaussian | Inputs::Sphere) => {
                return Err(Error::input(
                    "--x-dtype",
                    "i8 holds nothing but inputs of ±1",
                    "use f32 or f64, or --inputs boolean",
                ));
            }
            (Some(dtype), _) => dtype.into(),
            (None, Inputs::Boolean) => Dtype::I8,
            (None, _) => self.dtype.into(),
        };
        FileFormat::of_name(&self.output)?;
        self.layer_out.as_deref().map_or(Ok(()), output::writable_layer)?;

        let (teacher, spec) = match &self.layer {
            Some(path) => (AttentionLayer::load(path)?, None),
            None => {
                let spec = self.spec();
                check_size(Shape { k: self.k, d: spec.d, d_out: spec.d_out }, Some(self.examples), "--k, --d, --d-out")?;
                check_teacher_size(&spec)?;
                (spec.draw_from(self.seed)?, Some(spec))
            }
        };
        let shape = Shape { k: self.k, d: teacher.d(), d_out: teacher.d_out() };
        check_size(shape, Some(self.examples), "--k, --layer")?;
        let settings = GenerateSettings {
            examples: self.examples,
            k: self.k,
            inputs: inputs.into(),
            x_dtype,
            y_dtype: self.dtype.into(),
            seed: self.seed,
            teacher: spec,
            layer: self.layer.map(|path| path.display().to_string()),
        };
        Ok(Plan::Layer(Box::new(LayerPlan { output: self.output, layer_out: self.layer_out, teacher, shape, settings })))
    }

    fn spec(&self) -> TeacherSpec {
        TeacherSpec {
            d: self.d,
            d_out: self.d_out.unwrap_or(self.d),
            m: self.heads,
            norm: self.norm,
            family: self.family,
            cosine: self.cosine,
            singular_values: self.singular_values.clone(),
            mask: if self.causal { Mask::Causal } else { Mask::None },
        }
    }
}

/// Refuses teachers that do not fit in memory.
fn check_teacher_size(spec: &TeacherSpec) -> Result<()> {
    const MOST: usize = 1 << 26;
    let numbers = spec.d.checked_add(spec.d_out).and_then(|n| n.checked_mul(spec.d)).and_then(|n| n.checked_mul(spec.m));
    match numbers {
        // As it is drawn, scaled, and in either precision.
        Some(numbers @ 0..=MOST) => {
            ask(memory::numbers::<f64>(&[5, numbers]), "--heads, --d, --d-out", "ask for fewer heads or dimensions")
        }
        _ => {
            let problem = format!("{} with d = {}, d_out = {}", plural(spec.m, "head"), spec.d, spec.d_out);
            Err(Error::input("--heads", problem, format!("keep heads · d (d + d_out) at or below {MOST}")))
        }
    }
}

impl Plan {
    /// Draws and writes.
    pub fn run(self, session: &Session) -> Result<Ending> {
        match self {
            Self::Layer(plan) => plan.run(session),
            Self::Sets(plan) => plan.run(session),
        }
    }
}

impl LayerPlan {
    fn run(self, session: &Session) -> Result<Ending> {
        let (settings, shape) = (&self.settings, self.shape);
        let columns = Columns { x: Some(settings.x_dtype), y: Some(settings.y_dtype) };
        let writer = ExampleWriter::create(&self.output, shape, settings.examples, columns)?;
        let stream = TeacherStream::new(&self.teacher, shape.k, settings.inputs, settings.seed, Some(settings.examples));
        // Inputs that are stored in single precision are rounded before the teacher sees them: y = F(x) of the x in the file.
        let rounded = settings.x_dtype == Dtype::F32 && settings.inputs != InputDistribution::Boolean;
        let evaluator = rounded.then(|| Evaluator::<f64>::new(&self.teacher));
        let bar = session.bar(settings.examples, "examples");
        blocks::write(writer, settings.examples, shape, bar, |index, block| {
            stream.fill_f64(index, block)?;
            if let Some(evaluator) = &evaluator {
                round_inputs(block);
                evaluator.outputs(block);
            }
            Ok(())
        })?;
        let console = &session.console;
        console.say(format!("teacher: {}", describe(&self.teacher)));
        console.say(format!("wrote {}: {} examples", self.output.display(), grouped(settings.examples)));
        if let Some(path) = &self.layer_out {
            self.teacher.save(path, &self.notes())?;
            console.say(format!("wrote {}", path.display()));
        }
        session.publish(
            "generate",
            &GenerateReport {
                seed: settings.seed,
                settings,
                shape,
                heads: self.teacher.heads().len(),
                output: self.output.display().to_string(),
                layer_out: self.layer_out.as_ref().map(|path| path.display().to_string()),
            },
        )?;
        Ok(Ending::Done)
    }

    /// Where the teacher comes from.
    fn notes(&self) -> BTreeMap<String, String> {
        let mut notes = BTreeMap::from([("producer".to_owned(), format!("attnlearn {}", env!("CARGO_PKG_VERSION")))]);
        if let Some(spec) = self.settings.teacher.as_ref().and_then(|spec| serde_json::to_string(spec).ok()) {
            notes.insert("teacher".into(), spec);
            notes.insert("seed".into(), self.settings.seed.to_string());
        }
        notes
    }
}

/// Rounds the inputs of a block to single precision.
fn round_inputs(block: &mut Block<f64>) {
    let Shape { k, d, .. } = block.shape();
    let mut x = vec![0.0; block.len() * k * d];
    block.copy_inputs(&mut x);
    x.iter_mut().for_each(|v| *v = f64::from(*v as f32));
    block.set_inputs(&x);
}

//! `attnlearn fit`: the values of frozen random heads, by ridge regression.

use crate::cli::Ending;
use crate::console::{duration, error, grouped};
use crate::interrupt;
use crate::output;
use crate::output::Files;
use crate::progress::FitWatch;
use crate::session::Session;
use crate::values::{self, Float};
use attnlearn::features::ridge::{Accuracy, Checkpoint, Criterion, Options, Ridge, Solver};
use attnlearn::features::{
    FitDescription, FitSpec, Fitted, How, KernelSpec, MapSpec, Mean, NOT_REACHED, Precision, SetFile, SetShape, SetSource,
    Targets, open_sets,
};
use attnlearn::files::Claim;
use attnlearn::{Error, Result};
use clap::ValueEnum;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Fit frozen random heads with trained values to sets, by ridge regression.
///
/// The file (safetensors, npz or Parquet) has x [n, N+1, d], row 0 the query and the others keys, and y [n] or [n, t]; sets of different
/// sizes have a `length` [n] or a `mask` [n, N] as well, weighted ones a `weight` [n]. The model file holds the values and the few
/// numbers from which the heads are drawn again.
///
/// `--ridge auto` tries ridges on a path. The direct solvers (gram, dual) take the one of least exact leave-one-out error. Conjugate
/// gradients cannot compute that: they take the one of least generalised cross-validation (GCV), estimated to about a per cent from
/// random probes. `--solver auto` uses them to choose a ridge only if neither direct solver fits in `--memory`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn generate -o sets.npz --examples 4000 --target average:p=3 --d 16
  attnlearn fit sets.npz --model rfa --heads 200 --ridge auto -o model.safetensors
  attnlearn fit sets.npz --model brfa --heads 1000 --ridge 1e-4 --solver cg -o model.safetensors
  attnlearn fit large.npz --heads 1000 --checkpoint sums.ckpt -o model.safetensors
      after Ctrl-C or a crash, the same command goes on from sums.ckpt
  attnlearn fit sets.npz --model kernel-rfa -o model.safetensors --json fit.json")]
pub struct Args {
    /// Sets with targets (.safetensors, .npz or .parquet).
    data: PathBuf,
    /// What to fit.
    #[arg(long, value_enum, default_value_t)]
    model: Kind,
    /// Frozen heads [default: 256].
    #[arg(long, value_name = "M")]
    heads: Option<usize>,
    /// λ, `auto` (of least leave-one-out error; with conjugate gradients, of least GCV) or `ridgeless` (the limit λ → 0).
    #[arg(long, value_name = "λ|auto|ridgeless", default_value = "auto", value_parser = values::ridge, allow_hyphen_values = true)]
    ridge: Ridge,
    /// Where to write the model (.safetensors).
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Seed of the frozen weights [default: 0].
    #[arg(long)]
    seed: Option<u64>,
    /// How the equations are solved.
    #[arg(long, value_enum, default_value_t)]
    solver: Method,
    /// Precision of the features [default: f32].
    #[arg(long, value_enum)]
    precision: Option<Float>,
    /// Do not fit an intercept.
    #[arg(long)]
    no_intercept: bool,
    /// Scale of the mean diag(I_d, 0) of the heads (brfa and kernel-brfa, where it is 1 by default; softmax and row-relu).
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    mean_scale: Option<f64>,
    /// The mean of the heads: `mean` [d+1, d+1] in a file (.safetensors or .npz).
    #[arg(long, value_name = "FILE", conflicts_with = "mean_scale")]
    mean: Option<PathBuf>,
    /// The β of softmax(β ℓ), with --model softmax [default: 1].
    #[arg(long, value_name = "β", allow_negative_numbers = true)]
    inverse_temperature: Option<f64>,
    /// Neurons of rfmlp [default: M(d+1), as many trained numbers as M heads have].
    #[arg(long, value_name = "K")]
    width: Option<usize>,
    /// Memory that the solver may use, in GiB.
    #[arg(long, value_name = "GiB", default_value_t = 8.0, value_parser = values::positive)]
    memory: f64,
    /// Relative residual at which conjugate gradients stop; not for the direct solvers [default: when the objective is within 1e-4 of its least].
    #[arg(long, value_parser = values::share)]
    tolerance: Option<f64>,
    /// Keep the sums of `--solver gram` in this file, about every minute and on Ctrl-C; the same command continues from it, bit for
    /// bit, and removes it in the end.
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Seconds between two saves of the sums; saving never takes more than a twentieth of the time [default: 60].
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds, requires = "checkpoint")]
    checkpoint_every: Option<Duration>,
    /// Store the frozen weights in the model file too.
    #[arg(long)]
    store_weights: bool,
}

/// Models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// ReLU attention with centred heads.
    #[default]
    Rfa,
    /// ReLU attention with heads about a mean.
    Brfa,
    /// ReLU neurons that read the whole set.
    Rfmlp,
    /// Softmax attention.
    Softmax,
    /// ReLU attention whose weights are divided by their sum.
    RowRelu,
    /// rfa with infinitely many heads.
    KernelRfa,
    /// brfa with infinitely many heads.
    KernelBrfa,
    /// rfmlp with infinitely many neurons.
    KernelRfmlp,
}

/// Solvers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Method {
    /// The cheapest that fits in memory.
    #[default]
    Auto,
    /// Sums over sets, p × p.
    Gram,
    /// Products between sets, n × n.
    Dual,
    /// Conjugate gradients.
    Cg,
}

/// What has been checked.
pub struct Plan {
    data: Box<dyn SetSource>,
    output: PathBuf,
    what: FitSpec,
    options: Options,
    checkpoint: Option<Checkpoint>,
    store_weights: bool,
    _claim: Claim,
}

#[derive(Serialize)]
struct FitReport<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    map: Option<&'a MapSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel: Option<&'a KernelSpec>,
    options: &'a Options,
    examples: u64,
    shape: SetShape,
    features: Option<usize>,
    #[serde(flatten)]
    how: &'a How,
    seconds: f64,
    output: String,
}

impl Args {
    /// What it reads and writes.
    pub fn files(&self) -> Files {
        Files::default().read([&self.data]).read(&self.mean).write([&self.output]).write(&self.checkpoint)
    }

    /// Opens the file and checks the rest.
    pub fn check(self) -> Result<Plan> {
        self.check_flags()?;
        let data = open_sets(&self.data, Targets::Required)?;
        let claim = Claim::take(&self.output)?;
        output::writable_layer(&self.output)?;
        let shape = data.shape();
        let what = self.what(shape)?;
        let checkpoint = self.checkpoint.as_deref().map(|path| self.checkpoint(path, &what)).transpose()?;
        let options = Options {
            solver: match self.solver {
                Method::Auto if checkpoint.is_some() => Solver::Gram,
                Method::Auto => Solver::Auto,
                Method::Gram => Solver::Gram,
                Method::Dual => Solver::Dual,
                Method::Cg => Solver::Cg,
            },
            ridge: self.ridge,
            intercept: !self.no_intercept,
            memory: (self.memory * f64::from(1u32 << 30)) as u64,
            accuracy: self.tolerance.map_or(Options::default().accuracy, Accuracy::Residual),
            ..Default::default()
        };
        Ok(Plan { data, output: self.output, what, options, checkpoint, store_weights: self.store_weights, _claim: claim })
    }

    /// The checkpoint at `path`, which has to be writable and distinct from the data.
    fn checkpoint(&self, path: &Path, what: &FitSpec) -> Result<Checkpoint> {
        let (FitSpec::Frozen(map, precision), Method::Auto | Method::Gram) = (what, self.solver) else {
            return Err(Error::input("--checkpoint", "it is for --solver gram", "leave it out, or use that solver"));
        };
        output::writable(path)?;
        let checkpoint = Checkpoint::new(path, map, *precision)?;
        Ok(match self.checkpoint_every {
            Some(interval) => checkpoint.every(interval),
            None => checkpoint,
        })
    }

    /// Refuses flags that would do nothing.
    fn check_flags(&self) -> Result<()> {
        let kernel = matches!(self.model, Kind::KernelRfa | Kind::KernelBrfa | Kind::KernelRfmlp);
        let direct = kernel || self.checkpoint.is_some() || matches!(self.solver, Method::Gram | Method::Dual);
        let without_mean = matches!(self.model, Kind::KernelRfa | Kind::KernelRfmlp);
        let no_mean = ("this model's weights have none", "leave it out, or use kernel-brfa");
        let of_kernels = "kernels have infinitely many heads, and no weights are drawn";
        let idle = [
            ("--mean", without_mean && self.mean.is_some(), no_mean.0, no_mean.1),
            ("--mean-scale", without_mean && self.mean_scale.is_some(), no_mean.0, no_mean.1),
            ("--heads", kernel && self.heads.is_some(), of_kernels, "leave it out, or choose a model without `kernel-`"),
            ("--width", kernel && self.width.is_some(), of_kernels, "leave it out, or choose --model rfmlp"),
            (
                "--heads",
                self.heads.is_some() && self.width.is_some(),
                "--width says how many neurons there are",
                "give one of them",
            ),
            ("--seed", kernel && self.seed.is_some(), of_kernels, "leave it out, or choose a model without `kernel-`"),
            ("--precision", kernel && self.precision.is_some(), "kernels are computed in double precision", "leave it out"),
            ("--store-weights", kernel && self.store_weights, of_kernels, "leave it out"),
            (
                "--inverse-temperature",
                self.model != Kind::Softmax && self.inverse_temperature.is_some(),
                "this model has no softmax",
                "leave it out, or choose --model softmax",
            ),
            (
                "--tolerance",
                direct && self.tolerance.is_some(),
                "the direct solvers are exact",
                "leave it out, or choose --solver cg",
            ),
        ];
        match idle.into_iter().find(|(_, given, ..)| *given) {
            Some((flag, _, problem, remedy)) => Err(Error::input(flag, problem, remedy)),
            None => Ok(()),
        }
    }

    fn what(&self, shape: SetShape) -> Result<FitSpec> {
        let mean = match (&self.mean, self.mean_scale) {
            (Some(path), _) => Some(Mean::Matrix(SetFile::matrix(path, "mean", shape.d + 1)?)),
            (None, Some(scale)) => Some(Mean::Identity { scale }),
            (None, None) => None,
        };
        let name = self.model.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let kind = name.parse().map_err(|remedy: String| Error::input("--model", format!("{name} is not known"), remedy))?;
        let description = FitDescription {
            kind,
            heads: self.heads.unwrap_or(256),
            seed: self.seed.unwrap_or(0),
            mean,
            inverse_temperature: self.inverse_temperature.unwrap_or(1.0),
            width: self.width,
            precision: if self.precision == Some(Float::F64) { Precision::F64 } else { Precision::F32 },
        };
        description.check(shape)
    }
}

impl Plan {
    /// Fits.
    pub fn run(self, session: &Session) -> Result<Ending> {
        interrupt::listen();
        let console = &session.console;
        let (n, start) = (self.data.len(), Instant::now());
        let found = {
            let watch = FitWatch::new(session.spinner());
            self.what.fit(self.data.as_ref(), &self.options, self.checkpoint.as_ref(), &watch)
        };
        if let (Err(Error::Interrupted), Some(kept)) = (&found, self.checkpoint.as_ref().filter(|kept| kept.path().exists())) {
            console.say(format!("the sums so far are in {}: the same command goes on from there", kept.path().display()));
        }
        let Fitted { model, how: found } = found?;
        let seconds = start.elapsed().as_secs_f64();
        let (map, kernel, features) = match &self.what {
            FitSpec::Frozen(map, _) => (Some(map), None, Some(map.features())),
            FitSpec::Kernel(kernel) => (None, Some(kernel), None),
        };
        let size = features.map_or_else(|| "a kernel".into(), |p| format!("{} features", grouped(p as u64)));
        let solver = format!("{:?}", found.solver).to_lowercase();
        console.say(format!("fitted {size} to {} sets in {} ({solver})", grouped(n), duration(seconds)));
        if found.iterations > 0 {
            console.say(format!("{} iterations, relative residual {}", found.iterations, error(found.residual)));
        }
        if found.path.is_empty() {
            console.say(format!("ridge {:.3e}", model.ridge));
        } else {
            let rows = found.path.iter().map(|point| {
                let chosen = if point.lambda.to_bits() == model.ridge.to_bits() { "←" } else { "" };
                [
                    format!("{:.3e}", point.lambda),
                    error(point.loo),
                    error(point.gcv),
                    error(point.training),
                    format!("{:.1}", point.freedom),
                    chosen.into(),
                ]
            });
            console.table(["ridge", "leave-one-out", "GCV", "training", "freedom", ""], &rows.collect::<Vec<_>>());
            if Criterion::of(&found.path) == Some(Criterion::Gcv) {
                console
                    .say("ridge of least GCV, an estimate from random probes: conjugate gradients have no leave-one-out errors");
            }
        }
        if found.iterations == 0 && matches!(self.options.accuracy, Accuracy::Residual(_)) {
            console.say("--tolerance was not needed: the equations were solved directly");
        }
        if !found.reached {
            console.say(console.bad(NOT_REACHED));
        }
        model.save(&self.output, &Fitted::notes(), self.store_weights)?;
        console.say(format!("wrote {}", self.output.display()));
        let report = FitReport {
            map,
            kernel,
            options: &self.options,
            examples: n,
            shape: self.data.shape(),
            features,
            how: &found,
            seconds,
            output: self.output.display().to_string(),
        };
        session.publish("fit", &report)?;
        // All that there is to say is safe now.
        if let Some(checkpoint) = &self.checkpoint {
            checkpoint.remove()?;
        }
        if found.reached {
            return Ok(Ending::Done);
        }
        session.insist(NOT_REACHED);
        Ok(Ending::NotRecovered)
    }
}

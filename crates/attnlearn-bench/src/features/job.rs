//! One job of attnlearn, alone in its process so that its peak of memory is its own, reported as the references report theirs.

use attnlearn::features::ridge::{Accuracy, Fit, Options, Ridge, Solver, Stage, Unwatched, fit, fit_kernel};
use attnlearn::features::{
    FeatureMap, FittedModel, KernelSpec, MapSpec, Mean, Model, Precision, Predictor, Scores, SetBlock, SetSource, Sets, Targets,
    open_sets,
};
use attnlearn::linalg::symmetric::{Field, product};
use attnlearn::linalg::{Mat, row_major};
use clap::{Args, ValueEnum};
use rayon::prelude::*;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

/// Rows and columns of the matrices whose product is the yardstick, as in `benches/features/common.py`.
const MATMUL: usize = 4096;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Job {
    /// Features, products, solution, of sets in memory.
    Fit,
    /// The same with sets read from their file as they are needed.
    Stream,
    /// Twenty ridges with exact leave-one-out errors.
    Path,
    /// The feature map; what it gives is thrown away.
    Features,
    /// Kernel matrix and solution.
    Kernel,
    /// One product of large matrices.
    Matmul,
}

/// Models by the names of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    Rfa,
    Brfa,
    Rfmlp,
    Softmax,
    RowRelu,
}

/// Which solver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Method {
    Auto,
    Gram,
    Dual,
    Cg,
}

/// The command line of a job.
#[derive(Args)]
pub struct JobArgs {
    #[arg(long, value_enum)]
    job: Job,
    #[arg(long)]
    data: Option<PathBuf>,
    #[arg(long)]
    test: Option<PathBuf>,
    #[arg(long, value_enum, default_value = "rfa")]
    model: Kind,
    #[arg(long, default_value_t = 1000)]
    heads: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 1e-4)]
    ridge: f64,
    #[arg(long, value_enum, default_value = "auto")]
    solver: Method,
    /// `f32` or `f64`.
    #[arg(long, default_value = "f64")]
    dtype: String,
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    /// GiB.
    #[arg(long, default_value_t = 20.0)]
    memory: f64,
    /// Relative residual; by default what `auto` stops at.
    #[arg(long)]
    tolerance: Option<f64>,
    /// Keep no features.
    #[arg(long)]
    no_keep: bool,
}

/// Runs it and prints one line of JSON.
pub fn run(args: &JobArgs) -> Result<(), String> {
    let report = if args.dtype == "f32" { args.report::<f32>() } else { args.report::<f64>() };
    println!("{}", report.map_err(|e| e.to_string())?);
    Ok(())
}

impl JobArgs {
    fn report<T: Field>(&self) -> attnlearn::Result<Value> {
        let mut best: Option<(f64, Map<String, Value>)> = None;
        let mut repeats = Vec::new();
        let loaded = self.load()?;
        for _ in 0..self.repeat.max(1) {
            let (seconds, rest) = self.once::<T>(loaded.as_deref())?;
            repeats.push(seconds);
            if best.as_ref().is_none_or(|(least, _)| seconds < *least) {
                best = Some((seconds, rest));
            }
        }
        let (total, mut report) = best.unwrap_or_default();
        report.insert("library".into(), "attnlearn".into());
        report.insert("job".into(), format!("{:?}", self.job).to_lowercase().into());
        report.insert("dtype".into(), self.dtype.as_str().into());
        report.insert("seconds".into(), json!({ "total": total }));
        report.insert("repeats".into(), json!(repeats));
        report.insert("peak_bytes".into(), json!(peak_bytes()));
        report.insert("threads".into(), json!(rayon::current_num_threads()));
        Ok(Value::Object(report))
    }

    /// The sets: in memory, or as they lie in their file.
    fn load(&self) -> attnlearn::Result<Option<Box<dyn SetSource>>> {
        let Some(path) = &self.data else { return Ok(None) };
        let file = open_sets(path, Targets::Required)?;
        Ok(Some(if self.job == Job::Stream { file } else { Box::new(Sets::read(file.as_ref())?) }))
    }

    fn once<T: Field>(&self, data: Option<&dyn SetSource>) -> attnlearn::Result<(f64, Map<String, Value>)> {
        let missing = || attnlearn::Error::input("--data", "no sets are given", "give a file");
        match (self.job, data) {
            (Job::Matmul, _) => Ok((matmul::<T>(), Map::from_iter([("multiply_adds".into(), json!((MATMUL as u64).pow(3)))]))),
            (_, None) => Err(missing()),
            (Job::Features, Some(data)) => self.features::<T>(data),
            (Job::Kernel, Some(data)) => self.kernel(data),
            (_, Some(data)) => self.fit::<T>(data),
        }
    }

    fn map(&self, data: &dyn SetSource) -> MapSpec {
        let model = match self.model {
            Kind::Rfa => Model::Rfa,
            Kind::Brfa => Model::Brfa,
            Kind::Rfmlp => Model::Rfmlp,
            Kind::Softmax => Model::Softmax,
            Kind::RowRelu => Model::RowRelu,
        };
        MapSpec::new(model, data.shape().d, data.shape().keys, self.heads, self.seed)
    }

    fn options(&self) -> Options {
        Options {
            solver: match self.solver {
                Method::Auto => Solver::Auto,
                Method::Gram => Solver::Gram,
                Method::Dual => Solver::Dual,
                Method::Cg => Solver::Cg,
            },
            ridge: if self.job == Job::Path { Ridge::Auto } else { Ridge::Given(self.ridge) },
            memory: (self.memory * f64::from(1u32 << 30)) as u64,
            accuracy: self.tolerance.map_or(Options::default().accuracy, Accuracy::Residual),
            keep: !self.no_keep,
            ..Default::default()
        }
    }

    fn fit<T: Field>(&self, data: &dyn SetSource) -> attnlearn::Result<(f64, Map<String, Value>)> {
        let map = self.map(data);
        let built: Box<dyn FeatureMap<T>> = map.build()?;
        let start = Instant::now();
        let Fit { v, intercept, lambda, solver, iterations, residual, seconds, .. } =
            fit(built.as_ref(), data, &self.options(), &Unwatched)?;
        let total = start.elapsed().as_secs_f64();
        let precision = if size_of::<T>() == 4 { Precision::F32 } else { Precision::F64 };
        let mut report = Map::from_iter([
            ("n".into(), json!(data.len())),
            ("p".into(), json!(map.features())),
            ("ridge".into(), json!(lambda)),
            ("solver".into(), json!(format!("{solver:?}").to_lowercase())),
            ("iterations".into(), json!(iterations)),
            ("residual".into(), json!(residual)),
            ("stages".into(), stages(&seconds)),
        ]);
        let predictor = Predictor::Frozen { map, v: row_major(v.as_ref()), precision };
        self.score(FittedModel { predictor, intercept, ridge: lambda, shape: data.shape() }, &mut report)?;
        Ok((total, report))
    }

    fn kernel(&self, data: &dyn SetSource) -> attnlearn::Result<(f64, Map<String, Value>)> {
        let kernel = match self.model {
            Kind::Brfa => KernelSpec::Brfa { mean: Mean::Identity { scale: 1.0 } },
            Kind::Rfmlp => KernelSpec::Rfmlp,
            _ => KernelSpec::Rfa,
        };
        let start = Instant::now();
        let fitted = fit_kernel(&kernel, data, &self.options(), &Unwatched)?;
        let total = start.elapsed().as_secs_f64();
        let mut report = Map::from_iter([("n".into(), json!(data.len())), ("stages".into(), stages(&fitted.seconds))]);
        let predictor = Predictor::Kernel { kernel, sets: fitted.sets.block().clone(), alpha: row_major(fitted.a.as_ref()) };
        let model = FittedModel { predictor, intercept: fitted.intercept, ridge: fitted.lambda, shape: data.shape() };
        self.score(model, &mut report)?;
        Ok((total, report))
    }

    fn features<T: Field>(&self, data: &dyn SetSource) -> attnlearn::Result<(f64, Map<String, Value>)> {
        let spec = self.map(data);
        let map: Box<dyn FeatureMap<T>> = spec.build()?;
        let blocks: Vec<SetBlock> = (0..data.blocks())
            .map(|index| {
                let mut block = SetBlock::new(data.shape());
                data.fill(index, &mut block).map(|()| block)
            })
            .collect::<attnlearn::Result<_>>()?;
        let seconds = |compute: bool| {
            let start = Instant::now();
            blocks.par_iter().for_each_init(Vec::new, |out, block| {
                for strip in 0..map.strips() {
                    let width = map.strip(strip).len();
                    out.resize(block.len() * width, T::ZERO);
                    if compute {
                        map.fill(block, strip, width, out);
                    } else {
                        out.fill(T::ONE);
                    }
                    black_box(&mut *out);
                }
            });
            start.elapsed().as_secs_f64()
        };
        // The map, and what it takes to write as many numbers to the same places.
        let (total, write) = (seconds(true), seconds(false));
        let (e, keys) = (data.shape().d + 1, data.shape().keys);
        let work = if self.model == Kind::Rfmlp {
            spec.features() * ((keys + 1) * data.shape().d + 1)
        } else {
            self.heads * (e * e + 2 * keys * e)
        };
        let work = ("multiply_adds".into(), json!(work as u64 * data.len()));
        Ok((total, Map::from_iter([work, ("write_seconds".into(), json!(write))])))
    }

    /// Held-out error.
    fn score(&self, model: FittedModel, report: &mut Map<String, Value>) -> attnlearn::Result<()> {
        let Some(path) = &self.test else { return Ok(()) };
        let test = Sets::read(open_sets(path, Targets::Required)?.as_ref())?;
        let mut scores = Scores::new(1);
        let block = test.block();
        scores.add(&block.y, &model.prepare()?.predict(block)?, &block.weights);
        let score = scores.finish()?[0];
        report.insert("mse".into(), json!(score.mse));
        report.insert("mse_over_var".into(), json!(score.nmse));
        Ok(())
    }
}

/// Seconds by stage; one that was begun several times has the sum.
fn stages(seconds: &[(Stage, f64)]) -> Value {
    let mut sums = BTreeMap::<String, f64>::new();
    for (stage, s) in seconds {
        *sums.entry(format!("{stage:?}").to_lowercase()).or_default() += s;
    }
    json!(sums)
}

/// Seconds of the product of two square matrices, by the library's own product.
fn matmul<T: Field>() -> f64 {
    let entries =
        |seed: usize| Mat::<T>::from_fn(MATMUL, MATMUL, |i, j| T::from_f64(((i * 31 + j * 17 + seed) % 101) as f64 / 50.0 - 1.0));
    let (a, b, mut c) = (entries(0), entries(7), Mat::<T>::zeros(MATMUL, MATMUL));
    let start = Instant::now();
    product(c.as_mut(), false, T::ONE, a.as_ref(), b.as_ref());
    black_box(&c);
    start.elapsed().as_secs_f64()
}

/// The most memory this process has had, where the system says so.
fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

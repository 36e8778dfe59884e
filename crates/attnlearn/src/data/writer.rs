//! Writes examples as they come, without holding them in memory.

use super::{Block, Shape};
use crate::files::{
    AT_ONCE, AtomicFile, Dtype, FLOATS, FileFormat, TensorSink, TensorSpec, byte_len, check_whole, put, sink, unholdable,
};
use crate::linalg::lanes::{LANES, Real};
use crate::{Error, Result};
use std::path::Path;

/// Which tensors a file is to have, and in which number format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Inputs.
    pub x: Option<Dtype>,
    /// Outputs: F32 or F64.
    pub y: Option<Dtype>,
}

impl Columns {
    /// Name, number format and width of the tensors that are wanted.
    fn present(self, shape: Shape) -> impl Iterator<Item = (&'static str, Dtype, usize)> {
        let columns = [("x", self.x, shape.d), ("y", self.y, shape.d_out)];
        columns.into_iter().filter_map(|(name, dtype, width)| Some((name, dtype?, width)))
    }
}

/// Numbers of a few examples of a block that go to one of the tensors.
struct Part<'a, T> {
    tensor: usize,
    name: &'static str,
    dtype: Dtype,
    /// The first of the examples.
    first: usize,
    /// Numbers of each.
    per: usize,
    values: &'a [T],
}

/// Visits what of a block goes into a file, a few examples at a time, in plain order.
fn each_part<T: Real>(columns: Columns, block: &Block<T>, mut visit: impl FnMut(&Part<'_, T>) -> Result<()>) -> Result<()> {
    let mut values = Vec::new();
    for (tensor, (name, dtype, width)) in columns.present(block.shape()).enumerate() {
        let per = block.shape().k * width;
        let examples = (AT_ONCE / per).next_multiple_of(LANES).max(LANES);
        for first in (0..block.len()).step_by(examples) {
            values.resize(examples.min(block.len() - first) * per, T::ZERO);
            if name == "x" {
                block.copy_inputs_from(first, &mut values);
            } else {
                block.copy_outputs_from(first, &mut values);
            }
            visit(&Part { tensor, name, dtype, first, per, values: &values })?;
        }
    }
    Ok(())
}

/// Writes a known number of examples to a new file, which appears under its name only when it is [finished](Self::finish).
pub struct ExampleWriter {
    file: AtomicFile,
    sink: Box<dyn TensorSink>,
    shape: Shape,
    columns: Columns,
    n: u64,
    written: u64,
    /// The disk refused part of a block. What was written of it cannot be taken back, so the file is lost.
    torn: bool,
}

impl ExampleWriter {
    /// Begins a file for `n` examples.
    pub fn create(path: &Path, shape: Shape, n: u64, columns: Columns) -> Result<Self> {
        let bad = |problem: String, remedy: &str| Err(Error::input(path.display().to_string(), problem, remedy));
        let format = FileFormat::of_name(path)?;
        if n == 0 || shape.k == 0 || shape.d == 0 || shape.d_out == 0 {
            return bad(format!("{n} examples with {shape} were to be written"), "every size must be at least 1");
        }
        if columns.y.is_some_and(|dtype| !FLOATS.contains(&dtype)) {
            return bad("outputs were to be written as I8".into(), "write them as F32 or F64");
        }
        let spec = |(name, dtype, width): (&'static str, Dtype, usize)| {
            let shape = vec![usize::try_from(n).ok()?, shape.k, width];
            byte_len(dtype, &shape).map(|len| (TensorSpec { name: name.into(), dtype, shape }, len as u64))
        };
        let specs: Option<Vec<_>> = columns.present(shape).map(spec).collect();
        // File offsets are 63 bits wide; under 2^61 each, two tensors and their headers fit.
        let Some(specs) = specs.filter(|specs| specs.iter().all(|&(_, len)| len < 1 << 61)) else {
            return bad(format!("{n} examples with {shape} do not fit in any file"), "write fewer of them");
        };
        if specs.is_empty() {
            return bad("neither inputs nor outputs were to be written".into(), "choose at least one of them");
        }
        let tensors: Vec<_> = specs.into_iter().map(|(spec, _)| spec).collect();
        let file = AtomicFile::create(path)?;
        let sink = sink(&file, format, &tensors)?;
        Ok(Self { file, sink, shape, columns, n, written: 0, torn: false })
    }

    /// Appends the examples of a block.
    pub fn append<T: Real>(&mut self, block: &Block<T>) -> Result<()> {
        let place = || self.file.path().display().to_string();
        check_whole(self.torn, &self.file)?;
        if block.shape() != self.shape {
            let problem = format!("a block with {} was to be added to examples with {}", block.shape(), self.shape);
            return Err(Error::input(place(), problem, "write examples of one shape to a file"));
        }
        if block.len() as u64 > self.n - self.written {
            let problem = format!("{} examples were to follow the first {} of {}", block.len(), self.written, self.n);
            return Err(Error::input(place(), problem, "write as many as announced"));
        }
        // Nothing is written unless all of it can be: the tensors keep in step.
        each_part(self.columns, block, |part| {
            let Some(at) = part.dtype.refuses(part.values) else { return Ok(()) };
            let example = self.written + (part.first + at / part.per) as u64;
            Err(unholdable(format!("{}, {}, example {example}", place(), part.name), part.values[at].to_f64(), part.dtype))
        })?;
        self.torn = true;
        each_part(self.columns, block, |part| {
            put(&mut *self.sink, part.tensor, part.dtype, part.values).map_err(|e| Error::io(self.file.path(), e))
        })?;
        self.torn = false;
        self.written += block.len() as u64;
        Ok(())
    }

    /// Completes the file and moves it to its place. Fails, and leaves no file, if examples are missing.
    pub fn finish(self) -> Result<()> {
        check_whole(self.torn, &self.file)?;
        let path = self.file.path();
        if self.written != self.n {
            let problem = format!("{} examples of {} were written", self.written, self.n);
            return Err(Error::input(path.display().to_string(), problem, "write as many as announced"));
        }
        self.sink.finish().map_err(|e| Error::io(path, e))?;
        self.file.commit()
    }
}

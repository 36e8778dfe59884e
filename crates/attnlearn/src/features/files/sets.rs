//! Files of sets: a query with its keys, and the numbers to be predicted.
//!
//! | tensor   | shape            |                                                                     |
//! |----------|------------------|---------------------------------------------------------------------|
//! | `x`      | `[n, N+1, d]`    | row 0 is the query, the others are keys                             |
//! | `y`      | `[n]` or `[n, t]`| targets                                                             |
//! | `length` | `[n]`, optional  | how many keys a set has, from the first on; places after them do not count |
//! | `mask`   | `[n, N]`, optional | 1 where a key is there, 0 where it is not; not together with `length` |
//! | `weight` | `[n]`, optional  | weight of the example in the sum of squares                         |

use super::{SetsFound, TargetsFound};
use crate::features::sets::{SetBlock, SetShape, SetSource, check_sets_size};
use crate::files::{
    AtomicFile, Bytes, COUNTS, Contents, Dtype, FLOATS, FileFormat, INPUTS, MASKS, TensorSink, TensorSpec, View, byte_len,
    check_whole, put, sink, unholdable,
};
use crate::{Error, Result};
use std::ops::Range;
use std::path::Path;

/// Whether the targets of a file are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targets {
    /// They must be there.
    Required,
    /// They are not looked at.
    Ignored,
}

/// Sets in a safetensors or npz file, mapped into memory.
#[derive(Debug)]
pub struct SetFile {
    bytes: Bytes,
    x: View<3>,
    y: Option<Column>,
    presence: Presence,
    weight: Option<View<1>>,
}

/// Which places hold keys.
#[derive(Debug)]
enum Presence {
    All,
    Length(View<1>),
    Mask(View<2>),
}

/// Targets: one number a set, or several.
#[derive(Debug)]
enum Column {
    One(View<1>),
    Several(View<2>),
}

impl Column {
    fn read(contents: &Contents) -> Result<Self> {
        match contents.tensors.get("y").map(|y| y.shape.len()) {
            Some(1) => contents.require("y", ["n"], FLOATS).map(Self::One),
            _ => contents.require("y", ["n", "t"], FLOATS).map(Self::Several),
        }
    }

    fn n(&self) -> usize {
        match self {
            Self::One(y) => y.shape[0],
            Self::Several(y) => y.shape[0],
        }
    }

    fn targets(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Several(y) => y.shape[1],
        }
    }

    fn place_of(&self, parts: Range<usize>) -> Range<usize> {
        match self {
            Self::One(y) => y.place_of(parts),
            Self::Several(y) => y.place_of(parts),
        }
    }

    fn decode(&self, bytes: &[u8], index: usize, out: &mut [f64]) -> Result<()> {
        match self {
            Self::One(y) => y.decode_part(bytes, index, out, 1),
            Self::Several(y) => y.decode_part(bytes, index, out, 1),
        }
    }
}

/// The tensors of a file of sets, whose sizes agree.
struct Tensors {
    x: View<3>,
    y: Option<Column>,
    presence: Presence,
    weight: Option<View<1>>,
}

impl Tensors {
    fn find(contents: &Contents, targets: Targets) -> Result<Self> {
        let place = contents.place.as_str();
        let x = contents.require("x", ["n", "N+1", "d"], INPUTS)?;
        let [n, places, _] = x.shape;
        if places < 2 {
            return Err(Error::input(
                &x.place,
                format!("has shape {:?}: no place for a key", x.shape),
                "give [n, N+1, d], N ≥ 1",
            ));
        }
        let agree = |tensor: &str, found: usize, wanted: usize, what: &str| match found == wanted {
            true => Ok(()),
            false => {
                let problem = format!("x has shape {:?} but {tensor} has {found} {what}", x.shape);
                Err(Error::input(place, problem, format!("give {tensor} {wanted}")))
            }
        };
        let y = match targets {
            Targets::Required => Some(Column::read(contents)?),
            Targets::Ignored => None,
        };
        y.as_ref().map_or(Ok(()), |y| agree("y", y.n(), n, "rows"))?;
        let length = contents.optional("length", ["n"], COUNTS)?;
        let mask = contents.optional("mask", ["n", "N"], MASKS)?;
        let presence = match (length, mask) {
            (Some(_), Some(_)) => {
                return Err(Error::input(place, "has both length and mask", "leave one of them out"));
            }
            (Some(length), None) => {
                agree("length", length.shape[0], n, "rows")?;
                Presence::Length(length)
            }
            (None, Some(mask)) => {
                agree("mask", mask.shape[0], n, "rows")?;
                agree("mask", mask.shape[1], places - 1, "columns")?;
                Presence::Mask(mask)
            }
            (None, None) => Presence::All,
        };
        let weight = contents.optional("weight", ["n"], FLOATS)?;
        weight.as_ref().map_or(Ok(()), |w| agree("weight", w.shape[0], n, "rows"))?;
        Ok(Self { x, y, presence, weight })
    }
}

/// Sets, if these are any: `x` with a number or a row of numbers a set, or with a column that only sets have.
pub(crate) fn sets_in(contents: &Contents) -> Option<Result<SetsFound>> {
    let rank = |name: &str| contents.tensors.get(name).map(|t| t.shape.len());
    let columns = ["length", "mask", "weight"].iter().any(|name| rank(name).is_some());
    let targets = if rank("y").is_some() { Targets::Required } else { Targets::Ignored };
    (rank("x").is_some() && (columns || matches!(rank("y"), Some(1 | 2)))).then(|| {
        let found = Tensors::find(contents, targets)?;
        let [n, places, d] = found.x.shape;
        let (lengths, weights) = (!matches!(found.presence, Presence::All), found.weight.is_some());
        let targets = found.y.as_ref().map_or(0, Column::targets);
        Ok(SetsFound { n, keys: places - 1, d, targets, lengths, weights })
    })
}

/// Targets alone, as `attnlearn predict` writes them.
pub(crate) fn targets_in(contents: &Contents) -> Option<Result<TargetsFound>> {
    matches!(contents.tensors.get("y")?.shape.len(), 1 | 2)
        .then(|| Column::read(contents).map(|y| TargetsFound { n: y.n(), targets: y.targets() }))
}

impl SetFile {
    /// Maps a file and checks its header; no set is read.
    pub fn open(path: &Path, targets: Targets) -> Result<Self> {
        Self::open_as(path, &path.display().to_string(), targets)
    }

    /// The same of a file that errors will call `place`.
    pub(super) fn open_as(path: &Path, place: &str, targets: Targets) -> Result<Self> {
        Self::read(Bytes::open(path)?, place, targets)
    }

    /// Sets in memory, in the format of a file; errors will call them `place`.
    pub fn from_bytes(bytes: Vec<u8>, place: &str, targets: Targets) -> Result<Self> {
        Self::read(Bytes::Owned(bytes), place, targets)
    }

    fn read(bytes: Bytes, place: &str, targets: Targets) -> Result<Self> {
        let Tensors { x, y, presence, weight } = Tensors::find(&Contents::read(&bytes, place)?, targets)?;
        let sets = Self { bytes, x, y, presence, weight };
        check_sets_size(sets.shape(), sets.len(), place)?;
        Ok(sets)
    }

    /// The square matrix `name` of a file, `size × size` row by row.
    pub fn matrix(path: &Path, name: &str, size: usize) -> Result<Vec<f64>> {
        let bytes = Bytes::open(path)?;
        let matrix = Contents::read(&bytes, &path.display().to_string())?.require(name, ["d+1", "d+1"], FLOATS)?;
        if matrix.shape != [size, size] {
            let problem = format!("has shape {:?} for sets that want [{size}, {size}]", matrix.shape);
            return Err(Error::input(&matrix.place, problem, "give a matrix of that size"));
        }
        matrix.numbers(&bytes)
    }

    /// Moves the keys that are there to the front, clears the places after them, and counts them.
    fn gather(&self, index: usize, tokens: &mut [f64]) -> Result<usize> {
        let [_, places, d] = self.x.shape;
        let most = places - 1;
        let bad =
            |place: &str, problem: String, remedy: &str| Err(Error::input(format!("{place}, example {index}"), problem, remedy));
        let length = match &self.presence {
            Presence::All => most,
            Presence::Length(view) => {
                let mut length = [0.0f64];
                view.decode_part(&self.bytes, index, &mut length, 1)?;
                if !(length[0] >= 1.0 && length[0] <= most as f64 && length[0].fract() <= 0.0) {
                    return bad(&view.place, format!("is {}", length[0]), &format!("give a whole number from 1 to {most}"));
                }
                length[0] as usize
            }
            Presence::Mask(view) => {
                let mut mask = vec![0.0f64; most];
                view.decode_part(&self.bytes, index, &mut mask, 1)?;
                let mut count = 0;
                for (i, m) in mask.iter().enumerate() {
                    if m.to_bits() == 1f64.to_bits() {
                        tokens.copy_within((1 + i) * d..(2 + i) * d, (1 + count) * d);
                        count += 1;
                    } else if m.to_bits() != 0 {
                        return bad(&view.place, format!("holds {m}"), "give 0 or 1");
                    }
                }
                if count == 0 {
                    return bad(&view.place, "leaves no key".into(), "give every set at least one key");
                }
                count
            }
        };
        tokens[(1 + length) * d..].fill(0.0);
        Ok(length)
    }
}

impl SetSource for SetFile {
    fn shape(&self) -> SetShape {
        SetShape { keys: self.x.shape[1] - 1, d: self.x.shape[2], targets: self.y.as_ref().map_or(0, Column::targets) }
    }

    fn len(&self) -> u64 {
        self.x.shape[0] as u64
    }

    fn fill(&self, index: u64, block: &mut SetBlock) -> Result<()> {
        let SetShape { keys, d, targets } = self.shape();
        block.shape = self.shape();
        block.clear();
        let n = self.x.shape[0];
        let start = usize::try_from(index).unwrap_or(usize::MAX).saturating_mul(SetBlock::CAPACITY).min(n);
        let (mut tokens, mut y, mut weight) = (vec![0.0; (keys + 1) * d], vec![0.0; targets], [1.0]);
        let end = n.min(start.saturating_add(SetBlock::CAPACITY));
        for example in start..end {
            self.x.decode_part(&self.bytes, example, &mut tokens, 1)?;
            let length = self.gather(example, &mut tokens)?;
            self.y.as_ref().map_or(Ok(()), |column| column.decode(&self.bytes, example, &mut y))?;
            if let Some(view) = &self.weight {
                view.decode_part(&self.bytes, example, &mut weight, 1)?;
                if weight[0] < 0.0 {
                    let place = format!("{}, example {example}", view.place);
                    return Err(Error::input(place, format!("is {}", weight[0]), "give weights that are not negative"));
                }
            }
            block.push(&tokens[..(1 + length) * d], &y, weight[0]);
        }
        self.bytes.forget(self.x.place_of(start..end));
        if let Some(y) = &self.y {
            self.bytes.forget(y.place_of(start..end));
        }
        Ok(())
    }
}

/// Which tensors a file of sets is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetColumns {
    /// Inputs, and their number format.
    pub x: Option<Dtype>,
    /// Targets, and their number format.
    pub y: Option<Dtype>,
    /// Whether sets have different lengths.
    pub length: bool,
    /// Whether sets have weights.
    pub weight: bool,
}

/// Writes a known number of sets to a new file, which appears under its name only when it is [finished](Self::finish).
pub struct SetWriter {
    file: AtomicFile,
    sink: Box<dyn TensorSink>,
    shape: SetShape,
    columns: SetColumns,
    n: u64,
    written: u64,
    /// As in [`crate::data::ExampleWriter`].
    torn: bool,
}

impl SetWriter {
    /// Begins a file for `n` sets.
    pub fn create(path: &Path, shape: SetShape, n: u64, columns: SetColumns) -> Result<Self> {
        let bad = |problem: String, remedy: &str| Err(Error::input(path.display().to_string(), problem, remedy));
        let format = FileFormat::of_name(path)?;
        let Ok(rows) = usize::try_from(n) else { return bad(format!("{n} sets do not fit in any file"), "write fewer of them") };
        let mut tensors = Vec::new();
        if let Some(dtype) = columns.x {
            tensors.push(TensorSpec { name: "x".into(), dtype, shape: vec![rows, shape.keys + 1, shape.d] });
        }
        if let Some(dtype) = columns.y {
            // One target a set is a plain vector, as most people have it.
            let shape = if shape.targets == 1 { vec![rows] } else { vec![rows, shape.targets] };
            tensors.push(TensorSpec { name: "y".into(), dtype, shape });
        }
        if columns.length {
            tensors.push(TensorSpec { name: "length".into(), dtype: Dtype::I64, shape: vec![rows] });
        }
        if columns.weight {
            tensors.push(TensorSpec { name: "weight".into(), dtype: Dtype::F64, shape: vec![rows] });
        }
        if tensors.is_empty() || tensors.iter().any(|t| t.shape.contains(&0)) {
            return bad(format!("{n} sets with {shape} were to be written"), "every size must be at least 1");
        }
        if tensors.iter().any(|t| byte_len(t.dtype, &t.shape).is_none_or(|len| len as u64 >= 1 << 61)) {
            return bad(format!("{n} sets with {shape} do not fit in any file"), "write fewer of them");
        }
        let file = AtomicFile::create(path)?;
        let sink = sink(&file, format, &tensors)?;
        Ok(Self { file, sink, shape, columns, n, written: 0, torn: false })
    }

    /// Appends sets.
    pub fn append(&mut self, block: &SetBlock) -> Result<()> {
        let place = self.file.path().display().to_string();
        check_whole(self.torn, &self.file)?;
        if block.shape != self.shape || block.len() as u64 > self.n - self.written {
            let problem = format!(
                "{} sets with {} were to follow the first {} of {} with {}",
                block.len(),
                block.shape,
                self.written,
                self.n,
                self.shape
            );
            return Err(Error::input(place, problem, "write as many as announced, of one shape"));
        }
        let lengths: Vec<f64> = block.lengths.iter().map(|&l| l as f64).collect();
        let columns = [
            ("x", self.columns.x, block.x.as_slice()),
            ("y", self.columns.y, block.y.as_slice()),
            ("length", self.columns.length.then_some(Dtype::I64), lengths.as_slice()),
            ("weight", self.columns.weight.then_some(Dtype::F64), block.weights.as_slice()),
        ];
        // Nothing is written unless all of it can be: the tensors keep in step.
        let present = columns.into_iter().filter_map(|(name, dtype, numbers)| Some((name, dtype?, numbers)));
        for (name, dtype, numbers) in present.clone() {
            if let Some(at) = dtype.refuses(numbers) {
                return Err(unholdable(format!("{place}, {name}"), numbers[at], dtype));
            }
        }
        self.torn = true;
        for (tensor, (_, dtype, numbers)) in present.enumerate() {
            put(&mut *self.sink, tensor, dtype, numbers).map_err(|e| Error::io(self.file.path(), e))?;
        }
        self.torn = false;
        self.written += block.len() as u64;
        Ok(())
    }

    /// Completes the file and moves it to its place. Fails, and leaves no file, if sets are missing.
    pub fn finish(self) -> Result<()> {
        check_whole(self.torn, &self.file)?;
        let path = self.file.path();
        if self.written != self.n {
            let problem = format!("{} sets of {} were written", self.written, self.n);
            return Err(Error::input(path.display().to_string(), problem, "write as many as announced"));
        }
        self.sink.finish().map_err(|e| Error::io(path, e))?;
        self.file.commit()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use std::io;

    struct Full;

    impl TensorSink for Full {
        fn write(&mut self, _: usize, _: &[u8]) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn finish(self: Box<Self>) -> io::Result<()> {
            Ok(())
        }
    }

    /// Once the disk has refused a part, there is no going on: the tensors are out of step.
    #[test]
    fn a_file_that_was_torn_is_not_completed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sets.npz");
        let shape = SetShape { keys: 1, d: 1, targets: 1 };
        let columns = SetColumns { x: Some(Dtype::F64), y: Some(Dtype::F64), length: false, weight: false };
        let mut writer = SetWriter::create(&path, shape, 1, columns).unwrap();
        let mut block = SetBlock::new(shape);
        block.push(&[1.0, 2.0], &[3.0], 1.0);
        let whole = std::mem::replace(&mut writer.sink, Box::new(Full));
        writer.append(&block).unwrap_err();
        writer.sink = whole;
        let said = writer.append(&block).unwrap_err().to_string();
        assert!(said.ends_with("an earlier block could not be written whole; begin the file again"), "{said}");
        assert!(writer.finish().is_err());
        assert!(!path.exists());
    }
}

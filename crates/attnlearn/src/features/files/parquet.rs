//! Sets from Parquet files, as pandas, polars and Arrow write them.
//!
//! `x` is a list of lists of numbers (the query, then the keys), so sets may differ in length; `y` is a number or a list of numbers;
//! `length`, `mask` (a list) and `weight` are as in the other formats. Columns are compressed and of variable size, so blocks cannot be
//! addressed in place: the file is read once to learn its sizes and once more into a temporary file of the mapped format. That file goes when it
//! is not needed any more, and when the program ends, however it does.

use super::SetsFound;
use super::sets::{SetColumns, SetFile, SetWriter, Targets};
use crate::features::sets::{SetBlock, SetShape, SetSource, check_sets_size};
use crate::files::{Dtype, Temporary};
use crate::words::quoted;
use crate::{Error, Result};
use ::parquet::basic::{Compression, Type};
use ::parquet::column::reader::ColumnReader;
use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;

/// The thread that Parquet files are read on. It may panic and nothing be amiss but the file; a program may want to keep quiet about it.
pub const PARQUET_THREAD: &str = "parquet";

/// Sets that were in a Parquet file.
pub struct ParquetSets {
    sets: SetFile,
    /// Removed when this is dropped.
    _spool: Temporary,
}

impl ParquetSets {
    /// Reads the file.
    pub fn open(path: &Path, targets: Targets) -> Result<Self> {
        apart(path, || Self::read(path, targets))
    }

    fn read(path: &Path, targets: Targets) -> Result<Self> {
        let place = path.display().to_string();
        let reader = reader(path)?;
        let columns = Columns::find(&reader, &place, targets)?;
        let (n, shape) = columns.sizes(&reader)?;
        check_sets_size(shape, n, &place)?;
        let folder = std::env::temp_dir();
        // The copy is ours: what goes wrong with it is said of the file that the user knows.
        let of_copy = |source| Error::Io { place: format!("{place}: its copy in {}", folder.display()), source };
        let spool = Temporary::begin(&folder, OsStr::new("attnlearn"), ".safetensors", true).map_err(of_copy)?;
        let dtype = if columns.x.physical == Type::FLOAT { Dtype::F32 } else { Dtype::F64 };
        let wanted = SetColumns {
            x: Some(dtype),
            y: columns.y.is_some().then_some(Dtype::F64),
            length: true,
            weight: columns.weight.is_some(),
        };
        let copied = SetWriter::create(spool.path(), shape, n, wanted).and_then(|mut writer| {
            columns.copy(&reader, shape, &mut writer)?;
            writer.finish()
        });
        copied.map_err(|e| match e {
            Error::Io { source, .. } => of_copy(source),
            other => other,
        })?;
        Ok(Self { sets: SetFile::open_as(spool.path(), &place, targets)?, _spool: spool })
    }
}

impl SetSource for ParquetSets {
    fn shape(&self) -> SetShape {
        self.sets.shape()
    }

    fn len(&self) -> u64 {
        self.sets.len()
    }

    fn fill(&self, index: u64, block: &mut SetBlock) -> Result<()> {
        self.sets.fill(index, block)
    }
}

/// What a Parquet file holds; its columns stand for tensors, and their sizes are known where it holds sets.
pub(crate) struct ParquetContents {
    /// The sets in it, or why there are none.
    pub sets: Result<SetsFound>,
    pub columns: Vec<ParquetColumn>,
    /// Its size.
    pub bytes: u64,
    /// Notes that its writer left.
    pub metadata: BTreeMap<String, String>,
}

/// A column of a Parquet file.
pub(crate) struct ParquetColumn {
    pub name: String,
    /// What the file calls its number format.
    pub dtype: String,
    pub shape: Vec<usize>,
}

/// Whether a file that begins like this is one.
pub(crate) fn is_parquet(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PAR1")
}

/// Says what a Parquet file holds.
pub(crate) fn parquet_contents(path: &Path) -> Result<ParquetContents> {
    apart(path, || contents(path))
}

fn contents(path: &Path) -> Result<ParquetContents> {
    let place = path.display().to_string();
    let reader = reader(path)?;
    let about = reader.metadata().file_metadata();
    let schema = about.schema_descr_ptr();
    let name = |c: usize| schema.column(c).path().parts().first().cloned().unwrap_or_default();
    let has_targets = (0..schema.num_columns()).any(|c| name(c) == "y");
    let targets = if has_targets { Targets::Required } else { Targets::Ignored };
    let sets = Columns::find(&reader, &place, targets).and_then(|columns| {
        let (n, SetShape { keys, d, targets }) = columns.sizes(&reader)?;
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        Ok(SetsFound { n, keys, d, targets, lengths: true, weights: columns.weight.is_some() })
    });
    let rows = usize::try_from(about.num_rows()).unwrap_or(0);
    let shape = |column: usize| match (name(column).as_str(), &sets, schema.column(column).max_rep_level()) {
        ("x", Ok(sets), _) => vec![sets.n, sets.keys + 1, sets.d],
        ("y", Ok(sets), 1) => vec![sets.n, sets.targets],
        ("mask", Ok(sets), _) => vec![sets.n, sets.keys],
        _ => vec![rows],
    };
    let columns = (0..schema.num_columns())
        .map(|c| ParquetColumn { name: name(c), dtype: schema.column(c).physical_type().to_string(), shape: shape(c) })
        .collect();
    let bytes = std::fs::metadata(path).map_err(|e| Error::io(path, e))?.len();
    // What Arrow and pandas leave for themselves is long and says nothing new.
    let notes = about.key_value_metadata().into_iter().flatten().filter(|note| !matches!(&*note.key, "ARROW:schema" | "pandas"));
    let metadata = notes.map(|note| (note.key.clone(), note.value.clone().unwrap_or_default())).collect();
    Ok(ParquetContents { sets, columns, bytes, metadata })
}

/// The Parquet crate panics on some damaged files. So it is run on a thread of its own, whose end is an error of the file.
fn apart<T: Send>(path: &Path, read: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let place = path.display().to_string();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(PARQUET_THREAD.into()).spawn_scoped(scope, read);
        let thread = thread.map_err(|e| Error::io(path, e))?;
        thread.join().unwrap_or_else(|_| Err(Error::input(place, "is damaged: it cannot be read as Parquet", "write it again")))
    })
}

fn reader(path: &Path) -> Result<SerializedFileReader<File>> {
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    SerializedFileReader::new(file).map_err(|e| corrupt(&path.display().to_string(), &e))
}

fn corrupt(place: &str, error: &ParquetError) -> Error {
    Error::input(place, format!("cannot be read as Parquet ({})", quoted(&error.to_string())), "write it again")
}

/// Refuses columns that are compressed in a way that this program was not built to read.
fn readable(compression: Compression, place: &str) -> Result<()> {
    if matches!(compression, Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_)) {
        return Ok(());
    }
    let codec = format!("{compression:?}");
    let codec = codec.split('(').next().unwrap_or_default().to_lowercase();
    let remedy = "write it with snappy, zstd or no compression: those are read";
    Err(Error::input(place, format!("is compressed with {codec}"), remedy))
}

/// A column of numbers.
#[derive(Clone)]
struct Column {
    index: usize,
    /// How deeply its numbers are nested in lists.
    depth: i16,
    definition: i16,
    physical: Type,
    /// What errors call it.
    place: String,
}

/// Which columns there are.
struct Columns {
    place: String,
    x: Column,
    y: Option<Column>,
    length: Option<Column>,
    mask: Option<Column>,
    weight: Option<Column>,
}

/// Some rows of one column, flattened.
struct Rows {
    numbers: Vec<f64>,
    /// For every number, the depth at which it begins something new: 0 a row, 1 a list within it.
    starts: Vec<i16>,
}

impl Rows {
    /// The numbers of every row, each with the depths of its numbers.
    fn each(&self) -> impl Iterator<Item = (&[f64], &[i16])> {
        let mut from = 0;
        std::iter::from_fn(move || {
            (from < self.numbers.len()).then(|| {
                let to = (from + 1..self.numbers.len()).find(|&i| self.starts[i] == 0).unwrap_or(self.numbers.len());
                let row = (&self.numbers[from..to], &self.starts[from..to]);
                from = to;
                row
            })
        })
    }
}

impl Columns {
    fn find(reader: &SerializedFileReader<File>, place: &str, targets: Targets) -> Result<Self> {
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        let find = |name: &str, depths: &[i16], kind: &str| -> Result<Option<Column>> {
            let of_name = |c: &usize| schema.column(*c).path().parts().first().is_some_and(|part| part == name);
            let found: Vec<usize> = (0..schema.num_columns()).filter(of_name).collect();
            let Some(&index) = found.first() else { return Ok(None) };
            let column = schema.column(index);
            let place = format!("{place}, {name}");
            let physical = column.physical_type();
            let numeric = matches!(physical, Type::BOOLEAN | Type::INT32 | Type::INT64 | Type::FLOAT | Type::DOUBLE);
            let depth = column.max_rep_level();
            if found.len() > 1 || !numeric || !depths.contains(&depth) {
                let problem = format!("is not {kind} ({physical}, {depth} lists deep)");
                return Err(Error::input(place, problem, format!("store it as {kind}")));
            }
            Ok(Some(Column { index, depth, definition: column.max_def_level(), physical, place }))
        };
        let missing = |name: &str, kind: &str| Error::input(place, format!("has no column {name}"), format!("give it {kind}"));
        let lists = "a list of lists of numbers: the query, then the keys";
        let x = find("x", &[2], lists)?.ok_or_else(|| missing("x", lists))?;
        let y = match targets {
            Targets::Required => {
                let kind = "a number or a list of numbers";
                Some(find("y", &[0, 1], kind)?.ok_or_else(|| missing("y", kind))?)
            }
            Targets::Ignored => None,
        };
        let length = find("length", &[0], "a number")?;
        let mask = find("mask", &[1], "a list of numbers")?;
        if length.is_some() && mask.is_some() {
            return Err(Error::input(place, "has both length and mask", "leave one of them out"));
        }
        let weight = find("weight", &[0], "a number")?;
        for column in [Some(&x), y.as_ref(), length.as_ref(), mask.as_ref(), weight.as_ref()].into_iter().flatten() {
            for group in reader.metadata().row_groups() {
                readable(group.column(column.index).compression(), &column.place)?;
            }
        }
        Ok(Self { place: place.into(), x, y, length, mask, weight })
    }

    /// Number of rows, and the sizes that all of them share.
    fn sizes(&self, reader: &SerializedFileReader<File>) -> Result<(u64, SetShape)> {
        let (mut n, mut shape) = (0, SetShape { keys: 0, d: 0, targets: 0 });
        self.each(reader, &[Some(&self.x), self.y.as_ref()], |_, rows| {
            if let Some((_, starts)) = rows[0].each().next().filter(|_| shape.d == 0) {
                shape.d = starts.iter().skip(1).position(|s| *s < 2).map_or(starts.len(), |i| i + 1);
            }
            for (i, (_, starts)) in rows[0].each().enumerate() {
                let tokens = starts.iter().filter(|s| **s < 2).count();
                if starts.iter().enumerate().any(|(e, s)| (*s < 2) != (e % shape.d == 0)) || starts.len() % shape.d != 0 {
                    let place = format!("{}, row {}", self.x.place, n + i as u64);
                    return Err(Error::input(place, format!("its lists are not all of {} numbers", shape.d), "mend the row"));
                }
                shape.keys = shape.keys.max(tokens - 1);
            }
            if let Some((numbers, _)) = rows.get(1).and_then(|y| y.each().next()).filter(|_| shape.targets == 0) {
                shape.targets = numbers.len();
            }
            n += rows[0].each().count() as u64;
            Ok(())
        })?;
        if n == 0 || shape.keys == 0 {
            return Err(Error::input(&self.place, format!("has {n} sets of {} keys", shape.keys), "give at least one of each"));
        }
        Ok((n, shape))
    }

    /// Writes all rows.
    fn copy(&self, reader: &SerializedFileReader<File>, shape: SetShape, writer: &mut SetWriter) -> Result<()> {
        let wanted = [Some(&self.x), self.y.as_ref(), self.length.as_ref(), self.mask.as_ref(), self.weight.as_ref()];
        let place = |kind: usize| wanted.iter().flatten().nth(kind).map_or(String::new(), |c| c.place.clone());
        let has = |column: &Option<Column>| column.is_some();
        self.each(reader, &wanted, |first, rows| {
            let mut block = SetBlock::new(shape);
            let mut each: Vec<_> = rows.iter().map(Rows::each).collect();
            for i in 0..rows[0].each().count() {
                let bad = |kind: usize, problem: String, remedy: &str| {
                    Err(Error::input(format!("{}, row {}", place(kind), first + i as u64), problem, remedy))
                };
                let mut kind = 0;
                let Some(tokens) = each[0].next().map(|(numbers, _)| numbers) else { break };
                let mut tokens = tokens.to_vec();
                let mut next = |kind: &mut usize, present: bool| {
                    *kind += usize::from(present);
                    present.then(|| each[*kind].next().map(|(numbers, _)| numbers)).flatten()
                };
                let y = next(&mut kind, has(&self.y)).unwrap_or_default();
                if y.len() != shape.targets {
                    return bad(kind, format!("has {} numbers, the first row has {}", y.len(), shape.targets), "mend the row");
                }
                let keys = tokens.len() / shape.d - 1;
                if let Some(length) = next(&mut kind, has(&self.length)).and_then(|l| l.first()) {
                    if !(*length >= 1.0 && *length <= keys as f64 && length.fract() <= 0.0) {
                        return bad(kind, format!("is {length}"), &format!("give a whole number from 1 to {keys}"));
                    }
                    tokens.truncate((1 + *length as usize) * shape.d);
                }
                if let Some(mask) = next(&mut kind, has(&self.mask)) {
                    if mask.len() != keys || mask.iter().any(|m| m.to_bits() != 0 && m.to_bits() != 1f64.to_bits()) {
                        return bad(kind, format!("is no mask of {keys} keys"), "give a list of 0 and 1, one a key");
                    }
                    let there = |e: usize| e < shape.d || mask[e / shape.d - 1] > 0.5;
                    let mut e = 0;
                    tokens.retain(|_| (there(e), e += 1).0);
                }
                if tokens.len() < 2 * shape.d {
                    return bad(0, "has no key".into(), "give every set at least one key");
                }
                let weight = next(&mut kind, has(&self.weight)).and_then(|w| w.first().copied()).unwrap_or(1.0);
                block.push(&tokens, y, weight);
            }
            writer.append(&block)
        })
    }

    /// Reads the given columns side by side, a few rows at a time.
    fn each(
        &self,
        reader: &SerializedFileReader<File>,
        wanted: &[Option<&Column>],
        mut visit: impl FnMut(u64, &[Rows]) -> Result<()>,
    ) -> Result<()> {
        let wanted: Vec<&Column> = wanted.iter().flatten().copied().collect();
        let mut first = 0;
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group).map_err(|e| corrupt(&self.place, &e))?;
            let mut readers = Vec::new();
            for column in &wanted {
                readers.push(group.get_column_reader(column.index).map_err(|e| corrupt(&column.place, &e))?);
            }
            loop {
                let mut rows = Vec::new();
                for (column, reader) in wanted.iter().zip(&mut readers) {
                    rows.push(column.read(reader, first)?);
                }
                let counts: Vec<usize> = rows.iter().map(|r: &Rows| r.each().count()).collect();
                if counts.iter().any(|c| *c != counts[0]) {
                    return Err(Error::input(&self.place, "its columns differ in length", "write it again"));
                }
                if counts[0] == 0 {
                    break;
                }
                visit(first, &rows)?;
                first += counts[0] as u64;
            }
        }
        Ok(())
    }
}

impl Column {
    /// The next rows, `first` being the number of the first of them.
    fn read(&self, reader: &mut ColumnReader, first: u64) -> Result<Rows> {
        let (mut definitions, mut starts, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        macro_rules! read {
            ($reader:expr, $number:expr) => {{
                let mut values = Vec::new();
                $reader
                    .read_records(SetBlock::CAPACITY, Some(&mut definitions), Some(&mut starts), &mut values)
                    .map_err(|e| corrupt(&self.place, &e))?;
                numbers.extend(values.into_iter().map($number));
            }};
        }
        match reader {
            ColumnReader::BoolColumnReader(r) => read!(r, |v: bool| f64::from(u8::from(v))),
            ColumnReader::Int32ColumnReader(r) => read!(r, f64::from),
            ColumnReader::Int64ColumnReader(r) => read!(r, |v: i64| v as f64),
            ColumnReader::FloatColumnReader(r) => read!(r, f64::from),
            ColumnReader::DoubleColumnReader(r) => read!(r, |v: f64| v),
            _ => return Err(Error::input(&self.place, "does not hold numbers", "store it as numbers")),
        }
        if self.depth == 0 {
            starts = vec![0; numbers.len().max(definitions.len())];
        }
        let row_of = |entry: usize| first + (starts.iter().take(entry + 1).filter(|s| **s == 0).count() as u64).saturating_sub(1);
        if let Some(entry) = definitions.iter().position(|d| *d < self.definition) {
            let place = format!("{}, row {}", self.place, row_of(entry));
            return Err(Error::input(place, "holds an empty list or a missing value", "remove the row or mend it"));
        }
        if let Some(entry) = numbers.iter().position(|v| !v.is_finite()) {
            let problem = if numbers[entry].is_nan() { "holds NaN" } else { "holds an infinite number" };
            let place = format!("{}, row {}", self.place, row_of(entry));
            return Err(Error::input(place, problem, "remove the row or mend it"));
        }
        Ok(Rows { numbers, starts })
    }
}

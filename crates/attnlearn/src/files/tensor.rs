//! Tensors as they stand in a file: where their numbers are, in which format, and how to read and write them.

use crate::linalg::lanes::Real;
use crate::memory::filled;
use crate::words::{self, quoted};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

/// The number formats that are read and written, all little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Dtype {
    /// Signed bytes: enough for inputs of ±1.
    I8,
    /// Unsigned bytes: enough for masks.
    U8,
    /// 0 or 1 in a byte: masks.
    Bool,
    /// Whole numbers of 32 bits: lengths.
    I32,
    /// Whole numbers of 64 bits: lengths.
    I64,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

/// The formats of real numbers.
pub(crate) const FLOATS: &[Dtype] = &[Dtype::F32, Dtype::F64];
/// The formats of counts.
pub(crate) const COUNTS: &[Dtype] = &[Dtype::U8, Dtype::I32, Dtype::I64, Dtype::F32, Dtype::F64];
/// The formats of masks.
pub(crate) const MASKS: &[Dtype] = &[Dtype::Bool, Dtype::U8, Dtype::I8, Dtype::I32, Dtype::I64, Dtype::F32, Dtype::F64];
/// Inputs may be signs as well.
pub(crate) const INPUTS: &[Dtype] = &[Dtype::I8, Dtype::F32, Dtype::F64];

impl Dtype {
    /// Bytes per number.
    pub fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    /// The name that safetensors and this crate use.
    pub fn name(self) -> &'static str {
        match self {
            Self::I8 => "I8",
            Self::U8 => "U8",
            Self::Bool => "BOOL",
            Self::I32 => "I32",
            Self::I64 => "I64",
            Self::F32 => "F32",
            Self::F64 => "F64",
        }
    }

    /// Reads the numbers in `bytes` to every `stride`-th place of `out`; fails with the first that is not finite in `T`.
    pub(crate) fn decode<T: Real>(self, bytes: &[u8], out: &mut [T], stride: usize) -> Result<(), f64> {
        match self {
            Self::I8 => spread(each(bytes, |b| f64::from(i8::from_le_bytes(b))), out, stride),
            Self::U8 | Self::Bool => spread(each(bytes, |b| f64::from(u8::from_le_bytes(b))), out, stride),
            Self::I32 => spread(each(bytes, |b| f64::from(i32::from_le_bytes(b))), out, stride),
            Self::I64 => spread(each(bytes, |b| i64::from_le_bytes(b) as f64), out, stride),
            Self::F32 => spread(each(bytes, |b| f64::from(f32::from_le_bytes(b))), out, stride),
            Self::F64 => spread(each(bytes, f64::from_le_bytes), out, stride),
        }
    }

    /// Whether this format holds a number: as it is, or nearly where it has a fraction.
    pub(crate) fn holds(self, value: f64) -> bool {
        match self {
            Self::I8 => f64::from(value as i8) - value == 0.0,
            Self::U8 => f64::from(value as u8) - value == 0.0,
            Self::Bool => f64::from(u8::from(value > 0.5)) - value == 0.0,
            Self::I32 => f64::from(value as i32) - value == 0.0,
            Self::I64 => (value as i64) as f64 - value == 0.0,
            Self::F32 => (value as f32).is_finite(),
            Self::F64 => value.is_finite(),
        }
    }

    /// Which of the numbers is the first that it does not hold.
    pub(crate) fn refuses<T: Real>(self, values: &[T]) -> Option<usize> {
        values.iter().position(|value| !self.holds(value.to_f64()))
    }

    /// Appends `values` to `bytes`; fails with the first that this format cannot hold.
    pub(crate) fn encode<T: Real>(self, values: &[T], bytes: &mut Vec<u8>) -> Result<(), f64> {
        for value in values.iter().map(|v| v.to_f64()) {
            if !self.holds(value) {
                return Err(value);
            }
            match self {
                Self::I8 => bytes.extend((value as i8).to_le_bytes()),
                Self::U8 | Self::Bool => bytes.push(value as u8),
                Self::I32 => bytes.extend((value as i32).to_le_bytes()),
                Self::I64 => bytes.extend((value as i64).to_le_bytes()),
                Self::F32 => bytes.extend((value as f32).to_le_bytes()),
                Self::F64 => bytes.extend(value.to_le_bytes()),
            }
        }
        Ok(())
    }
}

/// The numbers in `bytes`.
fn each<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f64 + Clone) -> impl Iterator<Item = f64> + Clone {
    bytes.as_chunks::<N>().0.iter().map(move |&b| number(b))
}

/// Writes numbers to every `stride`-th place of `out`; fails with the first that is not finite in `T`. The loop has no branch: the offender is
/// looked for only once it is known that there is one.
pub(crate) fn spread<T: Real>(numbers: impl Iterator<Item = f64> + Clone, out: &mut [T], stride: usize) -> Result<(), f64> {
    let finite = |v: T| v.to_f64().is_finite();
    let mut all_finite = true;
    for (value, out) in numbers.clone().zip(out.iter_mut().step_by(stride)) {
        *out = T::from_f64(value);
        all_finite &= finite(*out);
    }
    if all_finite {
        return Ok(());
    }
    let mut numbers = numbers;
    Err(numbers.find(|&v| !finite(T::from_f64(v))).unwrap_or(f64::NAN))
}

/// What to say of a number that cannot be used.
pub(crate) fn offence(value: f64) -> String {
    if value.is_nan() {
        "holds NaN".into()
    } else if value.is_infinite() {
        "holds an infinite number".into()
    } else {
        format!("holds {value}, which the number format cannot represent")
    }
}

/// Bytes taken by a tensor; `None` if that overflows.
pub(crate) fn byte_len(dtype: Dtype, shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(dtype.size(), |product, &size| product.checked_mul(size))
}

/// A tensor that is to be written.
#[derive(Clone, Debug)]
pub(crate) struct TensorSpec {
    pub name: Cow<'static, str>,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
}

/// A tensor found in a file.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    /// What the file calls its number format.
    pub dtype: String,
    pub shape: Vec<usize>,
    /// Where its numbers are, or why they cannot be used. A tensor that nobody asks for may be unusable.
    pub data: Result<Data, Refusal>,
    /// Where numbers of half precision are, which only weights may have.
    pub half: Option<(Half, Range<usize>)>,
}

/// Formats of half precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// Five bits of exponent.
    F16,
    /// Eight bits of exponent: the upper half of an `f32`.
    Bf16,
}

impl Half {
    fn value(self, bits: u16) -> f64 {
        match self {
            Self::Bf16 => f64::from(f32::from_bits(u32::from(bits) << 16)),
            Self::F16 => {
                let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
                let size = match exponent {
                    0 => fraction * 2f64.powi(-24),
                    31 if fraction > 0.0 => f64::NAN,
                    31 => f64::INFINITY,
                    _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
                };
                if bits >> 15 == 1 { -size } else { size }
            }
        }
    }
}

/// Numbers within the bytes of a file; the range lies within them and has the size that the shape demands.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    pub dtype: Dtype,
    pub range: Range<usize>,
}

/// Why a tensor cannot be used, and what to do about it.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub problem: String,
    pub remedy: &'static str,
}

/// The container formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileFormat {
    /// <https://github.com/huggingface/safetensors>
    Safetensors,
    /// What `numpy.savez` writes.
    Npz,
    /// Columns, of sets only; read and not written.
    Parquet,
}

/// The table of contents of a file.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    /// What errors call the file.
    pub place: String,
    pub format: FileFormat,
    pub tensors: BTreeMap<String, Tensor>,
    pub metadata: BTreeMap<String, String>,
}

/// A tensor of known rank and usable format.
#[derive(Clone, Debug)]
pub(crate) struct View<const R: usize> {
    /// What errors call the tensor.
    pub place: String,
    pub shape: [usize; R],
    pub data: Data,
}

impl Contents {
    /// The tensor `name` of the given dimensions, none of them zero, in one of the given number formats.
    pub fn require<const R: usize>(&self, name: &str, dims: [&str; R], dtypes: &[Dtype]) -> Result<View<R>> {
        self.optional(name, dims, dtypes)?.ok_or_else(|| {
            let problem = format!("has no tensor {name} (found: {})", self.names());
            Error::input(&self.place, problem, format!("give {name} the shape [{}]", dims.join(", ")))
        })
    }

    /// As [`Self::require`], for a tensor that may be absent.
    pub fn optional<const R: usize>(&self, name: &str, dims: [&str; R], dtypes: &[Dtype]) -> Result<Option<View<R>>> {
        let Some(tensor) = self.tensors.get(name) else { return Ok(None) };
        let place = format!("{}, {name}", self.place);
        let dims = dims.join(", ");
        let data = tensor.data.clone().map_err(|r| Error::input(&place, r.problem, r.remedy))?;
        if !dtypes.contains(&data.dtype) {
            let known = dtypes.iter().map(|d| d.name()).collect::<Vec<_>>().join(" or ");
            return Err(Error::input(
                place,
                format!("has number format {}", quoted(&tensor.dtype)),
                format!("store it as {known}"),
            ));
        }
        let Ok(shape) = <[usize; R]>::try_from(tensor.shape.as_slice()) else {
            let problem = format!("has shape {} of rank {}", words::shape(&tensor.shape), tensor.shape.len());
            return Err(Error::input(place, problem, format!("give it the shape [{dims}]")));
        };
        if shape.contains(&0) {
            return Err(Error::input(place, format!("has shape {shape:?}"), format!("every one of [{dims}] must be at least 1")));
        }
        Ok(Some(View { place, shape, data }))
    }

    /// Shape and numbers of a tensor of real numbers, of half precision too, of any rank.
    pub fn any_float(&self, name: &str, bytes: &[u8], place: &str) -> Result<(Vec<usize>, Vec<f64>)> {
        let Some(tensor) = self.tensors.get(name) else {
            return Err(Error::input(place, "is not there", "give all files of the model"));
        };
        let mut numbers = filled(tensor.shape.iter().product(), place, "allow more memory")?;
        let decoded = match (&tensor.data, &tensor.half) {
            (_, Some((half, range))) => {
                spread(each(&bytes[range.clone()], |b| half.value(u16::from_le_bytes(b))), &mut numbers, 1)
            }
            (Ok(data), _) if FLOATS.contains(&data.dtype) => data.dtype.decode(&bytes[data.range.clone()], &mut numbers, 1),
            _ => {
                let problem = format!("has number format {}", quoted(&tensor.dtype));
                return Err(Error::input(place, problem, "store it as F32, F64, F16 or BF16"));
            }
        };
        decoded.map_err(|value| Error::input(place, offence(value), "give finite numbers"))?;
        Ok((tensor.shape.clone(), numbers))
    }

    /// The names of the first few tensors.
    fn names(&self) -> String {
        const SHOWN: usize = 8;
        if self.tensors.is_empty() {
            return "none".into();
        }
        let names: Vec<_> = self.tensors.keys().take(SHOWN).map(|n| quoted(n)).collect();
        let more = if self.tensors.len() > SHOWN { ", …" } else { "" };
        names.join(", ") + more
    }
}

impl<const R: usize> View<R> {
    /// All numbers, in double precision. For small tensors.
    pub fn numbers(&self, bytes: &[u8]) -> Result<Vec<f64>> {
        let mut numbers = filled(self.shape.iter().product(), &self.place, "allow more memory")?;
        self.data
            .dtype
            .decode(&bytes[self.data.range.clone()], &mut numbers, 1)
            .map_err(|value| Error::input(&self.place, offence(value), "give finite numbers"))?;
        Ok(numbers)
    }

    /// Where some parts along the first dimension lie.
    pub fn place_of(&self, parts: Range<usize>) -> Range<usize> {
        let (start, per) = (self.data.range.start, self.data.range.len() / self.shape[0].max(1));
        start + parts.start * per..start + parts.end * per
    }

    /// Reads part `index` along the first dimension to every `stride`-th place of `out`.
    pub fn decode_part<T: Real>(&self, bytes: &[u8], index: usize, out: &mut [T], stride: usize) -> Result<()> {
        let bytes = &bytes[self.data.range.clone()];
        let per = bytes.len() / self.shape[0];
        self.data.dtype.decode(&bytes[index * per..(index + 1) * per], out, stride).map_err(|value| {
            let place = format!("{}, example {index}", self.place);
            Error::input(place, offence(value), "remove the example or mend it")
        })
    }
}

//! A second reader of tensors, for comparison: by the definitions of the formats, with nothing of the library's. It is lenient where that cannot
//! change what is read: whether a file should have been refused is asked of the library.

use std::collections::BTreeMap;
use std::io::Cursor;

/// A tensor as it stands in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Plain {
    /// As safetensors would call it; of another format of numbers, what the file calls it.
    pub dtype: String,
    pub shape: Vec<usize>,
    /// The bytes of its numbers, one after another.
    pub bytes: Vec<u8>,
}

/// Tensors by name, and the notes of the writer.
pub type Contents = (BTreeMap<String, Plain>, BTreeMap<String, String>);

impl Plain {
    /// Its numbers; none of a format that is not known.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        fn each<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f64) -> Option<Vec<f64>> {
            let (numbers, rest) = bytes.as_chunks::<N>();
            rest.is_empty().then(|| numbers.iter().map(|bytes| number(*bytes)).collect())
        }
        let numbers = match self.dtype.as_str() {
            "I8" => each(&self.bytes, |b: [u8; 1]| f64::from(b[0] as i8)),
            "U8" | "BOOL" => each(&self.bytes, |b: [u8; 1]| f64::from(b[0])),
            "I32" => each(&self.bytes, |b| f64::from(i32::from_le_bytes(b))),
            "I64" => each(&self.bytes, |b| i64::from_le_bytes(b) as f64),
            "F32" => each(&self.bytes, |b| f64::from(f32::from_le_bytes(b))),
            "F64" => each(&self.bytes, f64::from_le_bytes),
            _ => None,
        }?;
        (Some(numbers.len()) == self.shape.iter().try_fold(1_usize, |all, n| all.checked_mul(*n))).then_some(numbers)
    }

    /// Its numbers, if they are of these sizes.
    pub fn of_shape(&self, shape: &[usize]) -> Option<Vec<f64>> {
        self.numbers().filter(|_| self.shape == shape)
    }
}

/// What a file holds; `None` if it does not hold together.
pub fn contents(bytes: &[u8]) -> Option<Contents> {
    if bytes.starts_with(b"PK") { npz(bytes).map(|tensors| (tensors, BTreeMap::new())) } else { safetensors(bytes) }
}

/// Eight bytes of length, a header in JSON, the numbers.
fn safetensors(bytes: &[u8]) -> Option<Contents> {
    let len = usize::try_from(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?)).ok()?;
    let (header, data) = bytes[8..].split_at_checked(len)?;
    let header: BTreeMap<String, serde_json::Value> = serde_json::from_slice(header).ok()?;
    let (mut tensors, mut notes) = (BTreeMap::new(), BTreeMap::new());
    for (name, info) in header {
        if name == "__metadata__" {
            notes = serde_json::from_value(info).ok()?;
            continue;
        }
        let sizes = |key: &str| -> Option<Vec<usize>> { serde_json::from_value(info.get(key)?.clone()).ok() };
        let [from, to] = sizes("data_offsets")?[..] else { return None };
        let (dtype, shape) = (info.get("dtype")?.as_str()?.to_owned(), sizes("shape")?);
        tensors.insert(name, Plain { dtype, shape, bytes: data.get(from..to)?.to_vec() });
    }
    Some((tensors, notes))
}

/// The stored members of an archive, each with a dictionary of Python before its numbers.
fn npz(bytes: &[u8]) -> Option<BTreeMap<String, Plain>> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).ok()?;
    let mut tensors = BTreeMap::new();
    for i in 0..archive.len() {
        let member = archive.by_index_raw(i).ok()?;
        let Some(name) = member.name().ok()?.strip_suffix(".npy").map(str::to_owned) else { continue };
        let start = usize::try_from(member.data_start()?).ok()?;
        let end = start.checked_add(usize::try_from(member.compressed_size()).ok()?)?;
        let plain = (member.compression() == zip::CompressionMethod::Stored).then(|| npy(bytes.get(start..end)?)).flatten();
        tensors.insert(name, plain.unwrap_or(Plain { dtype: "?".into(), shape: Vec::new(), bytes: Vec::new() }));
    }
    Some(tensors)
}

fn npy(array: &[u8]) -> Option<Plain> {
    let wide = *array.get(6)? > 1;
    let len = if wide {
        u32::from_le_bytes(array.get(8..12)?.try_into().ok()?) as usize
    } else {
        usize::from(u16::from_le_bytes(array.get(8..10)?.try_into().ok()?))
    };
    let from: usize = if wide { 12 } else { 10 };
    let text = std::str::from_utf8(array.get(from..from.checked_add(len)?)?).ok()?;
    // The last one counts, as in Python.
    let after =
        |key: &str| text.rfind(key).map(|at| text[at + key.len()..].trim_start_matches(['\'', '"', ':', ' ', '\t', '\n', '\r']));
    let descr = after("descr")?.split(['\'', '"']).next()?;
    let shape = after("shape")?.trim_start_matches('(').split(')').next()?;
    let shape: Option<Vec<usize>> = shape.split(',').map(str::trim).filter(|n| !n.is_empty()).map(|n| n.parse().ok()).collect();
    let plain = !after("fortran_order")?.starts_with("True");
    let dtype = match descr {
        "|i1" | "<i1" => "I8",
        "|u1" | "<u1" => "U8",
        "|b1" => "BOOL",
        "<i4" => "I32",
        "<i8" => "I64",
        "<f4" => "F32",
        "<f8" => "F64",
        other => other,
    };
    let bytes = if plain { array[from + len..].to_vec() } else { Vec::new() };
    Some(Plain { dtype: dtype.into(), shape: shape?, bytes })
}

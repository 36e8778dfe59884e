//! The safetensors format: eight bytes of length, a header in JSON, then the tensors back to back.

use super::atomic::AtomicFile;
use super::sink::TensorSink;
use super::tensor::{Contents, Data, Dtype, FileFormat, Half, Refusal, Tensor, TensorSpec};
use crate::words::quoted;
use crate::{Error, Result};
use ::safetensors::tensor::{Dtype as AnyDtype, Metadata};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

/// The format's own limit.
const LONGEST_HEADER: u64 = 100_000_000;

/// Reads the header.
pub(crate) fn read(bytes: &[u8], place: &str) -> Result<Contents> {
    let bad = |problem: String, remedy: &str| Err(Error::input(place, problem, remedy));
    let again = "write or download it again";
    let Some((len, rest)) = bytes.split_first_chunk::<8>().filter(|(_, rest)| rest.first() == Some(&b'{')) else {
        return bad("is neither a safetensors nor an npz file".into(), "save it in one of these formats");
    };
    let len = u64::from_le_bytes(*len);
    if len > LONGEST_HEADER {
        return bad(format!("is corrupt: it declares a header of {len} bytes"), again);
    }
    let Some((header, data)) = usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len)) else {
        return bad(format!("is truncated: {} bytes are left of a header of {len}", rest.len()), again);
    };
    // Not through `SafeTensors::deserialize`: version 0.8 adds up declared sizes without regard for overflow.
    let header: Metadata = match serde_json::from_slice(header) {
        Ok(header) => header,
        Err(e) => return bad(format!("has a corrupt header ({})", quoted(&e.to_string())), again),
    };
    let declared = header.data_len();
    if declared > data.len() {
        return bad(format!("is truncated or corrupt: {} bytes of tensors of a declared {declared}", data.len()), again);
    }
    if declared < data.len() {
        return bad(format!("is corrupt: {} bytes at its end belong to no tensor", data.len() - declared), again);
    }
    let start = bytes.len() - data.len();
    let tensors = header.tensors().into_iter().map(|(name, info)| {
        let dtype = match info.dtype {
            AnyDtype::I8 => Ok(Dtype::I8),
            AnyDtype::U8 => Ok(Dtype::U8),
            AnyDtype::BOOL => Ok(Dtype::Bool),
            AnyDtype::I32 => Ok(Dtype::I32),
            AnyDtype::I64 => Ok(Dtype::I64),
            AnyDtype::F32 => Ok(Dtype::F32),
            AnyDtype::F64 => Ok(Dtype::F64),
            other => Err(Refusal { problem: format!("has number format {other}"), remedy: "convert it to F32 or F64" }),
        };
        let (from, to) = info.data_offsets;
        let data = dtype.map(|dtype| Data { dtype, range: start + from..start + to });
        let half = match info.dtype {
            AnyDtype::F16 => Some((Half::F16, start + from..start + to)),
            AnyDtype::BF16 => Some((Half::Bf16, start + from..start + to)),
            _ => None,
        };
        (name, Tensor { dtype: info.dtype.to_string(), shape: info.shape.clone(), data, half })
    });
    Ok(Contents {
        place: place.into(),
        format: FileFormat::Safetensors,
        tensors: tensors.collect(),
        metadata: header.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect(),
    })
}

/// Everything that stands before the tensors, and where each of them, in the order given, begins.
///
/// Written here and not by the safetensors crate, which wants all tensors in memory and writes metadata in random order.
pub(crate) fn layout(tensors: &[TensorSpec], metadata: &BTreeMap<String, String>) -> (Vec<u8>, Vec<usize>) {
    // Wide numbers first: every tensor is then aligned.
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(tensors[i].dtype.size()));
    let mut header = serde_json::Map::new();
    if !metadata.is_empty() {
        header.insert("__metadata__".into(), serde_json::json!(metadata));
    }
    let mut offsets = vec![0; tensors.len()];
    let mut offset = 0;
    for i in order {
        let TensorSpec { name, dtype, shape } = &tensors[i];
        let end = offset + shape.iter().product::<usize>() * dtype.size();
        let entry = serde_json::json!({ "dtype": dtype.name(), "shape": shape, "data_offsets": [offset, end] });
        header.insert(name.to_string(), entry);
        offsets[i] = offset;
        offset = end;
    }
    let mut header = serde_json::Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let start = 8 + header.len();
    let head = [&(header.len() as u64).to_le_bytes(), header.as_slice()].concat();
    (head, offsets.into_iter().map(|offset| start + offset).collect())
}

/// Writes tensors side by side: all sizes are known, so each has its own handle at its own place in the file.
pub(crate) struct SafetensorsSink(Vec<File>);

impl SafetensorsSink {
    pub fn create(file: &AtomicFile, tensors: &[TensorSpec]) -> Result<Self> {
        let (head, starts) = layout(tensors, &BTreeMap::new());
        let io_error = |e| Error::io(file.path(), e);
        file.handle()?.write_all(&head).map_err(io_error)?;
        let handle_at = |start: usize| {
            let mut handle = file.handle()?;
            handle.seek(SeekFrom::Start(start as u64)).map_err(io_error)?;
            Ok(handle)
        };
        Ok(Self(starts.into_iter().map(handle_at).collect::<Result<_>>()?))
    }
}

impl TensorSink for SafetensorsSink {
    fn write(&mut self, tensor: usize, bytes: &[u8]) -> io::Result<()> {
        self.0[tensor].write_all(bytes)
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}

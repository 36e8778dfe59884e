//! The `.npy` format: a Python dictionary in text, padded to 64 bytes, then the numbers.
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>

use super::tensor::{Data, Dtype, Refusal, Tensor, TensorSpec, byte_len};
use crate::words::{self, quoted};

/// The first bytes of every `.npy` file.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";
const PLAIN: &str = "save it as a plain float32, float64 or int8 array with numpy.savez";

/// Reads the header of an array that begins at byte `start` of a file and takes up all of `array`.
pub(crate) fn read(array: &[u8], start: usize) -> Tensor {
    let refuse = |dtype: String, shape: Vec<usize>, problem: String, remedy| Tensor {
        dtype,
        shape,
        data: Err(Refusal { problem, remedy }),
        half: None,
    };
    let Some((text, numbers)) = split(array) else {
        return refuse("?".into(), Vec::new(), "is not an .npy array, or is truncated".into(), PLAIN);
    };
    let Some(Header { descr, fortran_order, shape }) = Parser(text).header() else {
        return refuse("?".into(), Vec::new(), "has an .npy header that is not that of a plain array".into(), PLAIN);
    };
    let dtype = match descr.as_str() {
        "|i1" | "<i1" => Dtype::I8,
        "|u1" | "<u1" => Dtype::U8,
        "|b1" => Dtype::Bool,
        "<i4" => Dtype::I32,
        "<i8" => Dtype::I64,
        "<f4" => Dtype::F32,
        "<f8" => Dtype::F64,
        other if other.starts_with('>') => {
            let problem = format!("is big-endian ({})", quoted(other));
            return refuse(descr, shape, problem, "save x.astype(x.dtype.newbyteorder('<'))");
        }
        other => {
            let problem = format!("has number format {}", quoted(other));
            return refuse(descr, shape, problem, "convert it, as in x.astype(numpy.float64) or, for signs, numpy.int8");
        }
    };
    let name = dtype.name().to_string();
    if fortran_order {
        return refuse(name, shape, "is in Fortran order".into(), "save numpy.ascontiguousarray(x)");
    }
    match byte_len(dtype, &shape) {
        Some(len) if len == numbers.len() => {
            let from = start + array.len() - len;
            Tensor { dtype: name, shape, data: Ok(Data { dtype, range: from..from + len }), half: None }
        }
        _ => {
            let problem = format!(
                "is truncated or corrupt: {} bytes of numbers for shape {} of {name}",
                numbers.len(),
                words::shape(&shape)
            );
            refuse(name, shape, problem, "write the file again")
        }
    }
}

/// The header of an array that is to be written; a multiple of 64 bytes, as NumPy's are.
pub(crate) fn header(tensor: &TensorSpec) -> Vec<u8> {
    let descr = match tensor.dtype {
        Dtype::I8 => "|i1",
        Dtype::U8 => "|u1",
        Dtype::Bool => "|b1",
        Dtype::I32 => "<i4",
        Dtype::I64 => "<i8",
        Dtype::F32 => "<f4",
        Dtype::F64 => "<f8",
    };
    let sizes: String = tensor.shape.iter().map(|size| format!("{size}, ")).collect();
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}", sizes.trim_end());
    // Magic, version and length take 10 bytes; the text ends with a newline.
    let text_len = (10 + text.len() + 1).next_multiple_of(64) - 10;
    text.extend(std::iter::repeat_n(' ', text_len - 1 - text.len()));
    text.push('\n');
    // At most three sizes of at most 20 digits: the length fits the 16 bits of version 1.0 with much to spare.
    [MAGIC, &[1, 0], &(text_len as u16).to_le_bytes(), text.as_bytes()].concat()
}

/// The text of the header and what follows it.
fn split(array: &[u8]) -> Option<(&str, &[u8])> {
    let (version, rest) = array.strip_prefix(MAGIC)?.split_first_chunk::<2>()?;
    let (len, rest) = match version {
        [1, _] => rest.split_first_chunk().map(|(len, rest)| (usize::from(u16::from_le_bytes(*len)), rest))?,
        [2 | 3, _] => {
            let (len, rest) = rest.split_first_chunk()?;
            (usize::try_from(u32::from_le_bytes(*len)).ok()?, rest)
        }
        _ => return None,
    };
    let (text, numbers) = rest.split_at_checked(len)?;
    Some((std::str::from_utf8(text).ok()?, numbers))
}

struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

/// What is left of the text. The grammar is the part of Python's literals that describes plain arrays.
struct Parser<'a>(&'a str);

impl<'a> Parser<'a> {
    fn header(mut self) -> Option<Header> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        self.token("{")?;
        while self.token("}").is_none() {
            let key = self.string()?;
            self.token(":")?;
            match key {
                "descr" => descr = Some(self.string()?.to_string()),
                "fortran_order" => fortran_order = Some(self.boolean()?),
                "shape" => shape = Some(self.tuple()?),
                _ => return None,
            }
            if self.token(",").is_none() && !self.0.trim_start().starts_with('}') {
                return None;
            }
        }
        self.0.trim().is_empty().then_some(())?;
        Some(Header { descr: descr?, fortran_order: fortran_order?, shape: shape? })
    }

    fn token(&mut self, token: &str) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(token)?;
        Some(())
    }

    fn string(&mut self) -> Option<&'a str> {
        self.0 = self.0.trim_start();
        let quote = self.0.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let (text, rest) = self.0[1..].split_once(quote)?;
        self.0 = rest;
        Some(text)
    }

    fn boolean(&mut self) -> Option<bool> {
        self.token("True").map(|()| true).or_else(|| self.token("False").map(|()| false))
    }

    fn tuple(&mut self) -> Option<Vec<usize>> {
        let mut sizes = Vec::new();
        self.token("(")?;
        while self.token(")").is_none() {
            self.0 = self.0.trim_start();
            let digits = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
            sizes.push(self.0[..digits].parse().ok()?);
            self.0 = &self.0[digits..];
            if self.token(",").is_none() && !self.0.trim_start().starts_with(')') {
                return None;
            }
        }
        Some(sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Option<Vec<usize>> {
        Parser(text).header().map(|h| h.shape)
    }

    #[test]
    fn headers_of_every_style_are_read() {
        assert_eq!(parse("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3, 4), }   \n"), Some(vec![2, 3, 4]));
        assert_eq!(parse("{\"shape\":(7,),\"descr\":\"<f4\",\"fortran_order\":True}"), Some(vec![7]));
        assert_eq!(parse("{'descr': '|i1', 'fortran_order': False, 'shape': ()}"), Some(vec![]));
    }

    #[test]
    fn other_text_is_not() {
        let bad = [
            "",
            "{",
            "{}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (2 3)}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (-2,)}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,)}",
            "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '<f8', 'fortran_order': 0, 'shape': (2,)}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (2,)} more",
            "{'descr': '<f8', 'fortran_order': False}",
        ];
        for text in bad {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn written_headers_are_read_back(shape in proptest::collection::vec(0usize..1 << 40, 0..4), which in 0..7usize) {
            let dtype = [Dtype::I8, Dtype::F32, Dtype::F64, Dtype::Bool, Dtype::U8, Dtype::I32, Dtype::I64][which];
            let bytes = header(&TensorSpec { name: "x".into(), dtype, shape: shape.clone() });
            prop_assert_eq!(bytes.len() % 64, 0);
            let (text, numbers) = split(&bytes).expect("a header");
            prop_assert!(numbers.is_empty() && text.ends_with('\n'));
            prop_assert_eq!(parse(text), Some(shape));
        }
    }
}

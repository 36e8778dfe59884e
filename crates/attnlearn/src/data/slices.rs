//! Examples that lie in somebody else's memory, in plain order: nothing is copied but what a block holds.

use super::{Block, ExampleSource, Shape};
use crate::files::{offence, spread};
use crate::linalg::lanes::{LANES, Real};
use crate::{Error, Result};
use std::ops::Range;

/// Borrowed numbers in one of the formats that files may have, read like those.
#[derive(Clone, Copy, Debug)]
pub enum Numbers<'a> {
    /// Signed bytes: signs.
    I8(&'a [i8]),
    /// Single precision.
    F32(&'a [f32]),
    /// Double precision.
    F64(&'a [f64]),
}

impl Numbers<'_> {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::I8(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::F64(v) => v.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the numbers `range` to every `stride`-th place of `out`; fails with the first that is not finite in `T`.
    pub fn copy_to<T: Real>(&self, range: Range<usize>, out: &mut [T], stride: usize) -> Result<(), f64> {
        match self {
            Self::I8(v) => spread(v[range].iter().map(|v| f64::from(*v)), out, stride),
            Self::F32(v) => spread(v[range].iter().map(|v| f64::from(*v)), out, stride),
            Self::F64(v) => spread(v[range].iter().copied(), out, stride),
        }
    }
}

/// What is said of an example that holds such a number, in the words of files.
pub(crate) fn not_finite(name: &str, example: usize, value: f64) -> Error {
    Error::input(format!("{name}, example {example}"), offence(value), "remove the example or mend it")
}

/// Examples in memory: `x` as `[n][k][d]`, `y` as `[n][k][d_out]`.
#[derive(Clone, Copy, Debug)]
pub struct ExampleSlices<'a> {
    x: Numbers<'a>,
    y: Numbers<'a>,
    shape: Shape,
    n: usize,
}

impl<'a> ExampleSlices<'a> {
    /// `n` examples of one shape; errors call the two `x` and `y`.
    pub fn new(x: Numbers<'a>, y: Numbers<'a>, n: usize, shape: Shape) -> Result<Self> {
        let Shape { k, d, d_out } = shape;
        if n == 0 || k == 0 || d == 0 || d_out == 0 {
            let problem = format!("x has shape {:?} and y has shape {:?}", [n, k, d], [n, k, d_out]);
            return Err(Error::input("examples", problem, "every one of [n, k, d] must be at least 1"));
        }
        for (name, numbers, wanted) in [("x", x, [n, k, d]), ("y", y, [n, k, d_out])] {
            let size = wanted.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
            if size != Some(numbers.len()) {
                let problem = format!("{} numbers for the shape {wanted:?}", numbers.len());
                return Err(Error::input(name, problem, "give as many numbers as the shape has"));
            }
        }
        Ok(Self { x, y, shape, n })
    }

    fn fill<T: Real>(&self, index: u64, block: &mut Block<T>) -> Result<()> {
        debug_assert_eq!(block.shape(), self.shape);
        let (per_x, per_y) = (self.shape.k * self.shape.d, self.shape.k * self.shape.d_out);
        let start = usize::try_from(index).unwrap_or(usize::MAX).saturating_mul(Block::<T>::CAPACITY).min(self.n);
        block.set_len((self.n - start).min(Block::<T>::CAPACITY));
        let end = start + block.len();
        for (i, (x, y)) in block.panels_mut().enumerate() {
            let examples = start + i * LANES..end.min(start + (i + 1) * LANES);
            if examples.len() < LANES {
                x.fill(T::ZERO);
                y.fill(T::ZERO);
            }
            for (lane, e) in examples.enumerate() {
                let read = |numbers: &Numbers<'_>, name: &str, per: usize, panel: &mut [T]| {
                    numbers.copy_to(e * per..(e + 1) * per, &mut panel[lane..], LANES).map_err(|value| not_finite(name, e, value))
                };
                read(&self.x, "x", per_x, x)?;
                read(&self.y, "y", per_y, y)?;
            }
        }
        Ok(())
    }
}

impl ExampleSource for ExampleSlices<'_> {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn len(&self) -> Option<u64> {
        Some(self.n as u64)
    }

    fn fill_f32(&self, index: u64, block: &mut Block<f32>) -> Result<()> {
        self.fill(index, block)
    }

    fn fill_f64(&self, index: u64, block: &mut Block<f64>) -> Result<()> {
        self.fill(index, block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ExampleFile;

    const SHAPE: Shape = Shape { k: 2, d: 3, d_out: 1 };

    /// The same numbers as a file in double precision.
    fn file(x: &[f64], y: &[f64], n: usize) -> ExampleFile {
        let (nx, ny) = (8 * x.len(), 8 * y.len());
        let header = format!(
            r#"{{"x":{{"dtype":"F64","shape":[{n},2,3],"data_offsets":[0,{nx}]}},"y":{{"dtype":"F64","shape":[{n},2,1],"data_offsets":[{nx},{}]}}}}"#,
            nx + ny
        );
        let numbers: Vec<u8> = x.iter().chain(y).flat_map(|v| v.to_le_bytes()).collect();
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &numbers].concat();
        ExampleFile::from_bytes(bytes, "file").unwrap()
    }

    #[test]
    fn blocks_are_those_of_a_file() {
        let n = 700;
        let numbers = |len: usize, salt: usize| (0..len).map(|i| ((i * 7919 + salt) % 1000) as f64 / 3.0).collect::<Vec<f64>>();
        let (x, y) = (numbers(n * 6, 1), numbers(n * 2, 2));
        let slices = ExampleSlices::new(Numbers::F64(&x), Numbers::F64(&y), n, SHAPE).unwrap();
        let file = file(&x, &y, n);
        for index in 0..3 {
            let (mut a, mut b) = (Block::<f64>::new(SHAPE), Block::<f64>::new(SHAPE));
            slices.fill_f64(index, &mut a).unwrap();
            file.fill_f64(index, &mut b).unwrap();
            assert_eq!(a.len(), b.len());
            assert!(a.panels().zip(b.panels()).all(|(a, b)| a == b));
            let (mut a, mut b) = (Block::<f32>::new(SHAPE), Block::<f32>::new(SHAPE));
            slices.fill_f32(index, &mut a).unwrap();
            file.fill_f32(index, &mut b).unwrap();
            assert!(a.panels().zip(b.panels()).all(|(a, b)| a == b));
        }
    }

    #[test]
    fn formats_agree_and_offenders_are_named() {
        let (signs, single): (Vec<i8>, Vec<f32>) = ((0..60).map(|i| if i % 3 == 0 { -1 } else { 1 }).collect(), vec![0.5; 20]);
        let wide: Vec<f64> = signs.iter().map(|v| f64::from(*v)).collect();
        let y = Numbers::F32(&single);
        let (mut a, mut b) = (Block::<f64>::new(SHAPE), Block::<f64>::new(SHAPE));
        ExampleSlices::new(Numbers::I8(&signs), y, 10, SHAPE).unwrap().fill_f64(0, &mut a).unwrap();
        ExampleSlices::new(Numbers::F64(&wide), y, 10, SHAPE).unwrap().fill_f64(0, &mut b).unwrap();
        assert!(a.panels().zip(b.panels()).all(|(a, b)| a == b));
        let mut wrong = wide.clone();
        wrong[6 * 7 + 1] = f64::NAN;
        let said = ExampleSlices::new(Numbers::F64(&wrong), y, 10, SHAPE).unwrap().fill_f64(0, &mut a).unwrap_err();
        assert_eq!(said.to_string(), "x, example 7: holds NaN; remove the example or mend it");
        assert!(ExampleSlices::new(Numbers::F64(&wide), y, 11, SHAPE).is_err());
        assert!(ExampleSlices::new(Numbers::F64(&[]), Numbers::F64(&[]), 0, SHAPE).is_err());
    }
}

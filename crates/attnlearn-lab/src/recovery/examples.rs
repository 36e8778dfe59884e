//! Examples of a teacher: inputs of several kinds, and noise.
//!
//! Correlated tokens are Gaussian with covariance `diag(1, 2^−s, …, d^−s)`. With `D` the root of it, `F_{Θ,W}(XD) = F_{DΘD, DW}(X)`: outputs for them are those of
//! another teacher for white tokens, and any source of examples can be turned into one of theirs.

use attnlearn::Result;
use attnlearn::data::{Block, ExampleSource, InputDistribution, Shape, check_size};
use attnlearn::engine::Batch;
use attnlearn::layer::{AttentionLayer, Head, Theta};
use attnlearn::linalg::Mat;
use attnlearn::linalg::lanes::Real;
use attnlearn::memory::{ask, numbers};
use attnlearn::teacher::TeacherStream;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

/// How tokens are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inputs {
    /// Signs.
    Boolean,
    /// Standard normal.
    Gaussian,
    /// Uniform on the sphere of radius √d.
    Sphere,
    /// Gaussian, variances `j^−2`.
    #[serde(rename = "correlated-2")]
    Correlated2,
    /// Gaussian, variances `j^−4`.
    #[serde(rename = "correlated-4")]
    Correlated4,
}

impl Inputs {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Boolean => "Boolean",
            Self::Gaussian => "Gaussian",
            Self::Sphere => "sphere",
            Self::Correlated2 => "correlated (j⁻²)",
            Self::Correlated4 => "correlated (j⁻⁴)",
        }
    }

    fn white(self) -> InputDistribution {
        match self {
            Self::Boolean => InputDistribution::Boolean,
            Self::Sphere => InputDistribution::Sphere,
            Self::Gaussian | Self::Correlated2 | Self::Correlated4 => InputDistribution::Gaussian,
        }
    }

    /// The diagonal of `D`, if it is not all ones.
    fn roots(self, d: usize) -> Option<Vec<f64>> {
        let power = match self {
            Self::Correlated2 => 1,
            Self::Correlated4 => 2,
            _ => return None,
        };
        Some((1..=d).map(|j| (j as f64).powi(-power)).collect())
    }

    /// An endless stream of examples of `teacher` with such tokens.
    pub fn stream(self, teacher: &AttentionLayer, k: usize, seed: u64) -> Result<Box<dyn ExampleSource>> {
        let Some(roots) = self.roots(teacher.d()) else {
            return Ok(Box::new(TeacherStream::new(teacher, k, self.white(), seed, None)));
        };
        let white = TeacherStream::new(&scaled(teacher, &roots)?, k, self.white(), seed, None);
        Ok(Box::new(Scaled { white, roots }))
    }
}

/// `DΘD, DW` for every head, and `Dc` for its key bias.
fn scaled(teacher: &AttentionLayer, roots: &[f64]) -> Result<AttentionLayer> {
    let left = |m: &Mat<f64>| Mat::from_fn(m.nrows(), m.ncols(), |i, j| roots[i] * m[(i, j)]);
    let head = |head: &Head| Head {
        theta: match &head.theta {
            Theta::Dense(theta) => {
                Theta::Dense(Mat::from_fn(theta.nrows(), theta.ncols(), |i, j| roots[i] * theta[(i, j)] * roots[j]))
            }
            Theta::LowRank { a, b } => Theta::LowRank { a: left(a), b: left(b) },
        },
        key_bias: head.key_bias.as_ref().map(|c| c.iter().zip(roots).map(|(c, root)| c * root).collect()),
        w: left(&head.w),
        terms: head.terms.clone(),
    };
    let bias = teacher.bias().map(<[f64]>::to_vec);
    AttentionLayer::new(teacher.heads().iter().map(head).collect(), bias, teacher.mask())
}

/// Examples whose tokens are multiplied by `D`, outputs as they are.
struct Scaled {
    white: TeacherStream,
    roots: Vec<f64>,
}

impl Scaled {
    fn scale<T: Real>(&self, block: &mut Block<T>) {
        let Shape { k, d, .. } = block.shape();
        let mut x = vec![T::ZERO; block.len() * k * d];
        block.copy_inputs(&mut x);
        for token in x.chunks_exact_mut(d) {
            token.iter_mut().zip(&self.roots).for_each(|(x, root)| *x = T::from_f64(x.to_f64() * root));
        }
        block.set_inputs(&x);
    }
}

impl ExampleSource for Scaled {
    fn shape(&self) -> Shape {
        self.white.shape()
    }

    fn len(&self) -> Option<u64> {
        self.white.len()
    }

    fn fill_f32(&self, index: u64, block: &mut Block<f32>) -> Result<()> {
        self.white.fill_f32(index, block)?;
        self.scale(block);
        Ok(())
    }

    fn fill_f64(&self, index: u64, block: &mut Block<f64>) -> Result<()> {
        self.white.fill_f64(index, block)?;
        self.scale(block);
        Ok(())
    }
}

/// `n` of them.
pub fn draw_examples(teacher: &AttentionLayer, k: usize, inputs: Inputs, n: usize, seed: u64) -> Result<Batch<f64>> {
    let stream = inputs.stream(teacher, k, seed)?;
    let shape = stream.shape();
    check_size(shape, Some(n as u64), "examples")?;
    ask(numbers::<f64>(&[n, k, shape.d + shape.d_out]), "examples", "draw fewer of them")?;
    Batch::read(stream.as_ref(), 0..n.div_ceil(Block::<f64>::CAPACITY) as u64, n)
}

/// Adds normal noise of `level` times the standard deviation of the outputs.
pub fn add_noise(examples: &mut Batch<f64>, level: f64, seed: u64) -> Result<()> {
    let size = level * (examples.variance()? / examples.y.len() as f64).sqrt();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    examples.y.iter_mut().for_each(|y| *y += size * rng.sample::<f64, _>(StandardNormal));
    Ok(())
}

/// Seeds for the several things that are drawn from one: the teacher has the seed itself, part 0.
pub fn part(seed: u64, part: u64) -> u64 {
    seed.wrapping_add(part << 40)
}

/// Sequences of `k` tokens that have as many outputs as a layer of `m` heads of full rank has unknowns.
pub fn counting_bound(d: usize, d_out: usize, m: usize, k: usize) -> f64 {
    (m * (d * d + d * d_out)) as f64 / (k * d_out) as f64
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use attnlearn::teacher::TeacherSpec;

    /// Outputs of correlated tokens are the teacher's own for them, in both precisions.
    #[test]
    fn correlated_examples_are_the_teachers() {
        let teacher = TeacherSpec::dense(5, 2, 2.0).draw(&mut ChaCha8Rng::seed_from_u64(1)).unwrap();
        for inputs in [Inputs::Boolean, Inputs::Correlated2, Inputs::Correlated4] {
            let examples = draw_examples(&teacher, 3, inputs, 300, 2).unwrap();
            let outputs = teacher.forward(3, &examples.x);
            assert!(outputs.iter().zip(&examples.y).all(|(f, y)| (f - y).abs() < 1e-12));
        }
        let examples = draw_examples(&teacher, 3, Inputs::Correlated4, 4000, 2).unwrap();
        let variance = |j: usize| examples.x.iter().skip(j).step_by(5).map(|x| x * x).sum::<f64>() / 12000.0;
        assert!((variance(4) * 625.0 - 1.0).abs() < 0.1 && (variance(0) - 1.0).abs() < 0.1);
        let stream = Inputs::Correlated2.stream(&teacher, 3, 4).unwrap();
        let (mut single, mut double) = (Block::<f32>::new(stream.shape()), Block::<f64>::new(stream.shape()));
        stream.fill_f32(1, &mut single).unwrap();
        stream.fill_f64(1, &mut double).unwrap();
        let near = |i: usize| single.token(i, 2).iter().zip(double.token(i, 2)).all(|(s, d)| (s - d).abs() < 1e-5);
        assert!((0..single.len()).all(near));
    }

    #[test]
    fn noise_has_the_size_asked_for() {
        let teacher = TeacherSpec::dense(5, 2, 2.0).draw(&mut ChaCha8Rng::seed_from_u64(1)).unwrap();
        let clean = draw_examples(&teacher, 3, Inputs::Gaussian, 2000, 2).unwrap();
        let mut noisy = clean.clone();
        add_noise(&mut noisy, 0.1, 3).unwrap();
        let added: f64 = clean.y.iter().zip(&noisy.y).map(|(a, b)| (a - b).powi(2)).sum();
        assert!((added / clean.variance().unwrap() / 0.01 - 1.0).abs() < 0.05);
    }
}

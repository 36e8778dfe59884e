//! Random teacher layers of several families.
//!
//! Attention matrices of one family with `‖Θ_i‖_F = norm`. For the linear families (dense, diagonal, block) every pairwise
//! cosine `⟨Θ_i, Θ_j⟩ / norm²` can be prescribed: with `E_j` orthonormal matrices of the family and `L Lᵀ` the wanted Gram
//! matrix of cosines, `Θ_i = norm Σ_j L_ij E_j`. Projections are `W_i` with iid `N(0, 1/d)` entries.

use crate::layer::{AttentionLayer, Head, Mask, Terms, Theta};
use crate::linalg::{Mat, frobenius, inner};
use crate::memory::{self, numbers};
use crate::{Error, Result};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

/// The shape of the attention matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Gaussian entries.
    #[default]
    Dense,
    /// Gaussian diagonal, zero elsewhere.
    Diagonal,
    /// Gaussian square blocks along the diagonal, zero elsewhere.
    Block {
        /// Side of a block; the last one may be smaller.
        size: usize,
    },
    /// `A Bᵀ` with Gaussian factors.
    LowRank {
        /// Columns of A and B.
        rank: usize,
    },
}

/// A recipe for a random teacher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TeacherSpec {
    /// Token dimension.
    pub d: usize,
    /// Output dimension.
    pub d_out: usize,
    /// Heads.
    pub m: usize,
    /// `‖Θ_i‖_F` of every head.
    pub norm: f64,
    /// Shape of the attention matrices.
    pub family: Family,
    /// Cosine between every two attention matrices; independent draws if not given.
    pub cosine: Option<f64>,
    /// Singular values of every attention matrix up to scale; those of the draw if not given.
    pub singular_values: Option<Vec<f64>>,
    /// Which keys a query may attend to.
    pub mask: Mask,
}

impl TeacherSpec {
    /// Dense Gaussian heads of one norm, square projections, no mask.
    pub fn dense(d: usize, m: usize, norm: f64) -> Self {
        Self { d, d_out: d, m, norm, family: Family::Dense, cosine: None, singular_values: None, mask: Mask::None }
    }

    /// Draws the teacher that a seed names. No block of a stream with the same seed shares its numbers.
    pub fn draw_from(&self, seed: u64) -> Result<AttentionLayer> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::MAX);
        self.draw(&mut rng)
    }

    /// Draws a teacher.
    pub fn draw(&self, rng: &mut impl Rng) -> Result<AttentionLayer> {
        self.check()?;
        let thetas = self.draw_thetas(rng)?;
        let scale = 1.0 / (self.d as f64).sqrt();
        let heads = thetas
            .into_iter()
            .map(|theta| Head {
                theta,
                key_bias: None,
                w: gaussian(rng, self.d, self.d_out) * faer::Scale(scale),
                terms: Terms::default(),
            })
            .collect();
        AttentionLayer::new(heads, None, self.mask)
    }

    fn check(&self) -> Result<()> {
        let bad = |problem: String, remedy: &str| Err(Error::input("teacher", problem, remedy));
        if self.d == 0 || self.d_out == 0 || self.m == 0 {
            return bad(format!("d = {}, d_out = {}, m = {}", self.d, self.d_out, self.m), "all three must be at least 1");
        }
        // As drawn and as scaled, one full matrix at least, and the projections.
        let theta = if let Family::LowRank { rank } = self.family { rank.saturating_mul(2) } else { self.d };
        let numbers = |columns: usize| numbers::<f64>(&[2, self.m, self.d, columns]);
        let bytes =
            numbers(theta).saturating_add(numbers(self.d_out)).saturating_add(memory::numbers::<f64>(&[6, self.d, self.d]));
        memory::ask(bytes, "teacher", "ask for fewer heads or dimensions")?;
        if !(self.norm.powi(2).is_finite() && self.norm > 0.0) {
            return bad(format!("norm {:?}", self.norm), "give a positive number, with a square that is one too");
        }
        match self.family {
            Family::Block { size: 0 } => return bad("blocks of size 0".into(), "give a block size of at least 1"),
            Family::LowRank { rank } if rank == 0 || rank > self.d => {
                return bad(format!("rank {rank} with d = {}", self.d), "give a rank between 1 and d");
            }
            _ => {}
        }
        if let Some(cosine) = self.cosine {
            let least = -1.0 / (self.m as f64 - 1.0).max(1.0);
            if !(cosine > least && cosine < 1.0) {
                return bad(format!("pairwise cosine {cosine} with {} heads", self.m), "give a value above −1/(m−1) and below 1");
            }
            if matches!(self.family, Family::LowRank { .. }) || self.singular_values.is_some() {
                return bad("a pairwise cosine together with a rank or a singular-value profile".into(), "prescribe one of them");
            }
            let dimension = match self.family {
                Family::Diagonal => self.d,
                Family::Block { size } => (0..self.d).map(|i| size.min(self.d - i / size * size)).sum(),
                _ => self.d * self.d,
            };
            if self.m > dimension {
                return bad(format!("{} heads in a family of dimension {dimension}", self.m), "ask for fewer heads");
            }
        }
        if let Some(s) = &self.singular_values
            && (s.len() != self.d || s.iter().any(|v| !v.is_finite() || *v < 0.0) || s.iter().all(|&v| v <= 0.0))
        {
            return bad(
                "a singular-value profile that is not d non-negative numbers, one of them positive".into(),
                "give d numbers",
            );
        }
        if self.singular_values.is_some() && self.family != Family::Dense {
            return bad("a singular-value profile for a structured family".into(), "use the dense family with it");
        }
        Ok(())
    }

    fn draw_thetas(&self, rng: &mut impl Rng) -> Result<Vec<Theta>> {
        let d = self.d;
        if let Family::LowRank { rank } = self.family {
            return Ok((0..self.m)
                .map(|_| {
                    let (a, b) = (gaussian(rng, d, rank), gaussian(rng, d, rank));
                    let scale = faer::Scale(self.norm / frobenius((&a * b.transpose()).as_ref()));
                    Theta::LowRank { a: a * scale, b }
                })
                .collect());
        }
        let mut drawn: Vec<Mat<f64>> = (0..self.m).map(|_| self.draw_one(rng)).collect();
        if let Some(cosine) = self.cosine {
            drawn = with_cosine(drawn, cosine)?;
        }
        Ok(drawn
            .into_iter()
            .map(|theta| {
                let scale = faer::Scale(self.norm / frobenius(theta.as_ref()));
                Theta::Dense(theta * scale)
            })
            .collect())
    }

    fn draw_one(&self, rng: &mut impl Rng) -> Mat<f64> {
        let d = self.d;
        let mut theta = gaussian(rng, d, d);
        match self.family {
            Family::Diagonal => keep(&mut theta, |i, j| i == j),
            Family::Block { size } => keep(&mut theta, |i, j| i / size == j / size),
            Family::Dense | Family::LowRank { .. } => {}
        }
        if let Some(s) = &self.singular_values {
            // The orthogonal factors of a Gaussian matrix are uniform.
            let (u, v) = (gaussian(rng, d, d).qr().compute_Q(), gaussian(rng, d, d).qr().compute_Q());
            theta = Mat::from_fn(d, d, |i, j| u[(i, j)] * s[j]) * v.transpose();
        }
        theta
    }
}

fn keep(theta: &mut Mat<f64>, kept: impl Fn(usize, usize) -> bool) {
    for j in 0..theta.ncols() {
        for i in 0..theta.nrows() {
            if !kept(i, j) {
                theta[(i, j)] = 0.0;
            }
        }
    }
}

fn gaussian(rng: &mut impl Rng, rows: usize, cols: usize) -> Mat<f64> {
    Mat::from_fn(rows, cols, |_, _| rng.sample(StandardNormal))
}

/// Heads that compute a parity of signs on sequences of two tokens:
///
/// ```text
/// Θ_i = 2(v e_0ᵀ + t_i e_0 e_0ᵀ),   W_i = (−1)^i e_0 e_0ᵀ,   v = e_1 + … + e_m,   t_i = 2i + 1 − m,   i < m
/// ```
///
/// Where the tokens differ in bit 0, head i attends to the one whose bit 0 is the sign of `⟨v, x_a⟩ + t_i x_a0`, up to `1 − tanh 2 = 0.04`: that counts bits up to
/// one threshold, and alternating signs make a parity of the counts. For even m the first output is `Π_{j≤m} x_aj − x_a0`, a parity of m + 1 bits; outputs are odd
/// in the query, so for odd m it is `Π_{1≤j≤m} x_aj`, of m bits.
pub fn parity_teacher(d: usize, m: usize) -> Result<AttentionLayer> {
    if m == 0 || d <= m {
        return Err(Error::input(
            "teacher",
            format!("parity by {m} heads with d = {d}"),
            "ask for at least one head, and fewer than d",
        ));
    }
    let head = |i: usize| {
        let t = 2.0 * i as f64 + 1.0 - m as f64;
        let theta = Mat::from_fn(d, d, |row, col| match (row, col) {
            (0, 0) => 2.0 * t,
            (row, 0) if row <= m => 2.0,
            _ => 0.0,
        });
        let sign = if i.is_multiple_of(2) { 1.0 } else { -1.0 };
        Head::dense(theta, Mat::from_fn(d, d, |row, col| if row + col == 0 { sign } else { 0.0 }))
    };
    AttentionLayer::new((0..m).map(head).collect(), None, Mask::None)
}

/// Matrices of unit norm and equal pairwise cosines in the span of `drawn`.
fn with_cosine(drawn: Vec<Mat<f64>>, cosine: f64) -> Result<Vec<Mat<f64>>> {
    let m = drawn.len();
    let mut basis: Vec<Mat<f64>> = Vec::with_capacity(m);
    for mut e in drawn {
        // Twice is enough for orthogonality to the last digit.
        for _ in 0..2 {
            for b in &basis {
                e -= b * faer::Scale(inner(e.as_ref(), b.as_ref()));
            }
        }
        let scale = faer::Scale(1.0 / frobenius(e.as_ref()));
        basis.push(e * scale);
    }
    let gram = Mat::from_fn(m, m, |i, j| if i == j { 1.0 } else { cosine });
    let l = gram
        .llt(faer::Side::Lower)
        .map_err(|_| Error::input("teacher", format!("pairwise cosine {cosine} is impossible"), "give a value above −1/(m−1)"))?;
    let (rows, cols) = (basis[0].nrows(), basis[0].ncols());
    Ok((0..m)
        .map(|i| {
            let mut theta = Mat::zeros(rows, cols);
            for (j, e) in basis.iter().enumerate().take(i + 1) {
                theta += e * faer::Scale(l.L()[(i, j)]);
            }
            theta
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn draw(spec: &TeacherSpec, seed: u64) -> Vec<Mat<f64>> {
        let layer = spec.draw(&mut ChaCha8Rng::seed_from_u64(seed)).expect("a valid recipe");
        layer.heads().iter().map(|h| h.theta.to_dense()).collect()
    }

    #[test]
    fn every_family_has_its_norm_and_shape() {
        let families = [Family::Dense, Family::Diagonal, Family::Block { size: 3 }, Family::LowRank { rank: 2 }];
        for (seed, family) in families.into_iter().enumerate() {
            let spec = TeacherSpec { family, ..TeacherSpec::dense(7, 3, 5.0) };
            for theta in draw(&spec, seed as u64) {
                assert!((frobenius(theta.as_ref()) - 5.0).abs() < 1e-12);
                let rank = theta.singular_values().expect("converges").iter().filter(|s| **s > 1e-9).count();
                assert_eq!(rank, if let Family::LowRank { rank } = family { rank } else { 7 });
                let off_diagonal = (0..7).flat_map(|i| (0..7).map(move |j| (i, j))).filter(|(i, j)| i != j);
                match family {
                    Family::Diagonal => assert!(off_diagonal.into_iter().all(|p| theta[p].abs() < 1e-300)),
                    Family::Block { size } => {
                        assert!(off_diagonal.into_iter().all(|(i, j)| i / size == j / size || theta[(i, j)].abs() < 1e-300));
                    }
                    _ => assert!(off_diagonal.into_iter().any(|p| theta[p].abs() > 1e-3)),
                }
            }
        }
    }

    #[test]
    fn pairwise_cosine_is_met() {
        for cosine in [-0.3, 0.0, 0.5, 0.99] {
            let spec = TeacherSpec { cosine: Some(cosine), ..TeacherSpec::dense(5, 4, 3.0) };
            let thetas = draw(&spec, 1);
            for i in 0..4 {
                for j in 0..i {
                    assert!((inner(thetas[i].as_ref(), thetas[j].as_ref()) / 9.0 - cosine).abs() < 1e-12);
                }
            }
        }
    }

    #[test]
    fn singular_value_profile_is_met() {
        let profile = vec![4.0, 2.0, 1.0, 0.5];
        let spec = TeacherSpec { singular_values: Some(profile.clone()), ..TeacherSpec::dense(4, 2, 3.0) };
        let size = profile.iter().map(|s| s * s).sum::<f64>().sqrt();
        for theta in draw(&spec, 2) {
            for (s, want) in theta.singular_values().expect("converges").iter().zip(&profile) {
                assert!((s - want * 3.0 / size).abs() < 1e-12);
            }
        }
    }

    /// All queries of d bits beside a key that differs in bit 0: the first output is the parity, all others are 0.
    #[test]
    fn parity_heads_compute_parities() {
        let d = 7;
        for m in 1..d {
            let layer = parity_teacher(d, m).expect("m is below d");
            for bits in 0..1_u32 << d {
                let query: Vec<f64> = (0..d).map(|j| if bits >> j & 1 == 1 { -1.0 } else { 1.0 }).collect();
                let key: Vec<f64> = query.iter().enumerate().map(|(j, x)| if j == 0 { -x } else { *x }).collect();
                let y = layer.forward(2, &[query.clone(), key].concat());
                let product: f64 = query[1..=m].iter().product();
                let parity = if m.is_multiple_of(2) { query[0] * product - query[0] } else { product };
                assert!((y[0] - parity).abs() < 2.1 * (1.0 - 2_f64.tanh()), "{m} heads, {query:?}: {} for {parity}", y[0]);
                assert!(y[1..d].iter().all(|y| y.abs() < 1e-12));
            }
        }
        assert!(parity_teacher(4, 4).is_err() && parity_teacher(4, 0).is_err());
    }

    /// Recipes of any size: drawn or refused, before memory is taken.
    #[test]
    fn giant_recipes_are_refused() {
        for (d, d_out, m, family) in [
            (1 << 40, 1, 1, Family::Dense),
            (4, 1 << 50, 1, Family::Diagonal),
            (4, 4, usize::MAX, Family::Dense),
            (1 << 22, 1, 1, Family::LowRank { rank: 1 }),
            (usize::MAX, usize::MAX, usize::MAX, Family::LowRank { rank: usize::MAX }),
        ] {
            let spec = TeacherSpec { d_out, family, ..TeacherSpec::dense(d, m, 1.0) };
            let said = spec.draw(&mut ChaCha8Rng::seed_from_u64(0)).expect_err("too large").to_string();
            assert!(said.starts_with("teacher: ") && said.contains("of memory are needed and"), "{said}");
        }
    }

    #[test]
    fn impossible_recipes_are_refused() {
        let good = TeacherSpec::dense(4, 3, 1.0);
        let bad = [
            TeacherSpec { m: 0, ..good.clone() },
            TeacherSpec { norm: f64::NAN, ..good.clone() },
            TeacherSpec { cosine: Some(-0.6), ..good.clone() },
            TeacherSpec { cosine: Some(1.0), ..good.clone() },
            TeacherSpec { cosine: Some(0.1), family: Family::LowRank { rank: 2 }, ..good.clone() },
            TeacherSpec { cosine: Some(0.1), family: Family::Diagonal, m: 5, ..good.clone() },
            TeacherSpec { family: Family::LowRank { rank: 9 }, ..good.clone() },
            TeacherSpec { family: Family::Block { size: 0 }, ..good.clone() },
            TeacherSpec { singular_values: Some(vec![1.0]), ..good.clone() },
        ];
        for spec in bad {
            assert!(spec.draw(&mut ChaCha8Rng::seed_from_u64(0)).is_err(), "{spec:?}");
        }
    }
}

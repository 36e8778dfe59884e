//! What descent moves: the factors of all heads side by side, in precision `T`.
//!
//! ```text
//! Θ_i = A_i B_gᵀ   (or Θ_i = A_i, where B is absent: full rank)        W_i = V_g O_i   (or W_i = O_i, where V is absent)
//! logits  ℓ_ab = ⟨R_a N_γ(x_a A_i + a°_i), R_b N_κ(x_b B_g + b°_g)⟩ + ⟨c_i, x_b⟩ + β_i(a − b)          F(X)_a = Σ_i Σ_b p_ab x_b V_g O_i + bias
//! ```
//!
//! Where scores are free in the distance, `⟨q_a, k_b⟩` is `Σ_m φ_m(a − b) q_a K_gm k_bᵀ`. `g` is the key group of head `i`: every head has one of its own, or `heads/groups` neighbours share one. Rotation `R`, norm `N` and mask are those of [`Scores`]; without both of
//! the former a query bias is a key bias, `c = B a°`, which is free here, and `a°`, `b°` are absent.
//!
//! All numbers stand in one vector, block after block: optimisers see that vector and nothing else.

use crate::layer::{AttentionLayer, Head, Terms, Theta};
use crate::linalg::symmetric::Field;
use crate::linalg::{Mat, MatRef};
use crate::scores::{Distances, Relative, Scores};
use crate::{Error, Result};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The shape of a student.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Form {
    /// Token dimension.
    pub d: usize,
    /// Output dimension.
    pub d_out: usize,
    /// m.
    pub heads: usize,
    /// Rank of the attention matrices; `None` for full.
    pub rank: Option<usize>,
    /// Rank of the projections; `None` for full.
    pub value_rank: Option<usize>,
    /// Key groups, which heads share in equal numbers; `None` if every head has keys and values of its own.
    pub groups: Option<usize>,
    /// Whether heads have key biases; where scores are not bilinear, biases of queries and of keys.
    pub key_bias: bool,
    /// Tokens of the sequences whose distances have a relative bias, if any have.
    pub relative: Option<usize>,
    /// Whether there is an output bias.
    pub bias: bool,
    /// How scores are made.
    pub scores: Scores,
}

/// Largest size of any kind.
const MOST: usize = 1 << 16;

/// The blocks of the vector of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// `A`, d × mr.
    A,
    /// `B`, d × gr.
    B,
    /// `a°`, 1 × mr.
    QueryBias,
    /// `b°`, 1 × gr.
    KeyBias,
    /// `γ` and `κ`, 2 × r.
    Gains,
    /// `K_m` of every function of the distance, below one another, Mr × gr.
    Kernel,
    /// `β`, distances × m.
    Relative,
    /// `c`, d × m.
    C,
    /// `V`, d × gs.
    V,
    /// `O`, ms × d_out.
    O,
    /// `bias`, 1 × d_out.
    Bias,
}

/// All of them, in order.
pub const PARTS: [Part; 11] = [
    Part::A,
    Part::B,
    Part::QueryBias,
    Part::KeyBias,
    Part::Gains,
    Part::Kernel,
    Part::Relative,
    Part::C,
    Part::V,
    Part::O,
    Part::Bias,
];

impl Form {
    /// Columns of queries and keys of one head: r, or d at full rank.
    pub fn r(&self) -> usize {
        self.rank.unwrap_or(self.d)
    }

    /// Columns of values of one head: s, or d at full rank.
    pub fn s(&self) -> usize {
        self.value_rank.unwrap_or(self.d)
    }

    /// How many key groups there are.
    pub fn key_groups(&self) -> usize {
        self.groups.unwrap_or(self.heads)
    }

    /// The key group of a head.
    pub fn group(&self, head: usize) -> usize {
        head / (self.heads / self.key_groups())
    }

    /// How many matrices stand side by side in a part: one for every head, every key group, or one in all.
    pub(crate) fn count(&self, part: Part) -> usize {
        match part {
            Part::B | Part::KeyBias | Part::Kernel | Part::V => self.key_groups(),
            Part::Gains | Part::Bias => 1,
            _ => self.heads,
        }
    }

    /// Functions of the distance whose matrices are free.
    pub(crate) fn functions(&self) -> usize {
        self.scores.distances.as_ref().map_or(0, Distances::functions)
    }

    /// The least distance that has a relative bias, and how many there are.
    pub(crate) fn distances(&self) -> (isize, usize) {
        let k = self.relative.unwrap_or(0);
        if self.scores.mask.is_causal() { (0, k) } else { (1 - k as isize, (2 * k).saturating_sub(1)) }
    }

    /// Numbers that a layer of this form is determined by: factors can be turned into one another without any change.
    pub(crate) fn unknowns(&self) -> usize {
        let (d, r, s, m, g) = (self.d, self.r(), self.s(), self.heads, self.key_groups());
        // A rotation leaves a complex number for every pair of a group free, a norm nothing but a sign; other factors can be multiplied by any r × r matrix.
        let gauge = match (&self.scores.rotation, self.scores.norm) {
            (_, Some(_)) => 0,
            (Some(rotation), None) => rotation.turned().min(r) + (r - rotation.turned().min(r)).pow(2),
            (None, None) => r * r.min(d),
        };
        let theta = if self.rank.is_some() { d * r * (m + g) - (g * gauge).min(d * r * g) } else { m * d * d };
        let w = if self.value_rank.is_some() { s * (g * d + m * self.d_out) - g * s * s.min(d) } else { m * d * self.d_out };
        let small = [Part::QueryBias, Part::KeyBias, Part::Gains, Part::Kernel, Part::Relative, Part::C, Part::Bias];
        theta + w + small.iter().map(|part| self.range(*part).len()).sum::<usize>()
    }

    /// Rows and columns of a block; no rows if it is absent.
    pub fn shape(&self, part: Part) -> (usize, usize) {
        let (m, g, bilinear) = (self.heads, self.key_groups(), self.scores.is_bilinear());
        let present = |is: bool, rows: usize, cols: usize| if is { (rows, cols) } else { (0, cols) };
        match part {
            Part::A => (self.d, m * self.r()),
            Part::B => present(self.rank.is_some(), self.d, g * self.r()),
            Part::QueryBias => present(self.key_bias && !bilinear, 1, m * self.r()),
            Part::KeyBias => present(self.key_bias && !bilinear, 1, g * self.r()),
            Part::Gains => present(self.scores.norm.is_some(), 2, self.r()),
            Part::Kernel => present(self.functions() > 0, self.functions() * self.r(), g * self.r()),
            Part::Relative => present(self.relative.is_some(), self.distances().1, m),
            Part::C => present(self.key_bias && bilinear, self.d, m),
            Part::V => present(self.value_rank.is_some(), self.d, g * self.s()),
            Part::O => (m * self.s(), self.d_out),
            Part::Bias => present(self.bias, 1, self.d_out),
        }
    }

    /// Where a block stands in the vector, row by row.
    pub fn range(&self, part: Part) -> Range<usize> {
        let size = |part: Part| {
            let (rows, cols) = self.shape(part);
            rows * cols
        };
        let start: usize = PARTS.iter().take_while(|p| **p != part).map(|p| size(*p)).sum();
        start..start + size(part)
    }

    /// Numbers in all.
    pub fn len(&self) -> usize {
        self.range(Part::Bias).end
    }

    /// Whether there are none: only for a form without heads.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A block of a vector of parameters, as a matrix.
    pub fn view<'a, T: Field>(&self, part: Part, values: &'a [T]) -> MatRef<'a, T> {
        let (rows, cols) = self.shape(part);
        MatRef::from_row_major_slice(&values[self.range(part)], rows, cols)
    }

    /// Size of the entries of a block in a random start whose attention matrices have the norm [`Self::NORM`], and of biases as they may become.
    pub fn size(&self, part: Part) -> f64 {
        let (d, r, s, m) = (self.d as f64, self.r() as f64, self.s() as f64, self.heads as f64);
        match part {
            // ‖A Bᵀ‖_F² = d² r σ⁴ with entries of variance σ² each, d² σ² at full rank.
            Part::A | Part::B if self.rank.is_some() => (Self::NORM / (d * r.sqrt())).sqrt(),
            Part::A | Part::B => Self::NORM / d,
            Part::O => 1.0 / (s * m).sqrt(),
            Part::V | Part::C | Part::Bias => 1.0 / d.sqrt(),
            // As large as what they are added to, over the root of d.
            Part::QueryBias | Part::KeyBias => self.size(Part::A),
            Part::Gains => (Self::NORM / r.sqrt()).sqrt(),
            Part::Kernel => 1.0,
            Part::Relative => 1.0 / d.sqrt(),
        }
    }

    /// The same for attention matrices of another norm.
    pub fn size_of(&self, part: Part, norm: f64) -> f64 {
        let share = norm / Self::NORM;
        let theta = if self.rank.is_some() { share.sqrt() } else { share };
        self.size(part) * if matches!(part, Part::A | Part::B) { theta } else { 1.0 }
    }

    /// `‖Θ‖_F` that heads begin with: heads that begin near 0 stay together.
    pub const NORM: f64 = 2.0;

    /// Refuses sizes of 0, and sizes whose products overflow.
    pub(crate) fn check(&self) -> Result<()> {
        let bad = |problem: &str| Err(Error::input("student", problem, "every size must be at least 1"));
        if self.d == 0 || self.d_out == 0 || self.heads == 0 {
            return bad("it has no tokens, outputs or heads");
        }
        if self.r() == 0 || self.s() == 0 {
            return bad("its heads have rank 0");
        }
        if self.groups.is_some_and(|groups| groups == 0 || !self.heads.is_multiple_of(groups)) {
            let problem = format!("{} heads cannot share {} key groups", self.heads, self.key_groups());
            return Err(Error::input("student", problem, "give a number of groups that the number of heads is a multiple of"));
        }
        if self.groups.is_some() && (self.rank.is_none() || self.value_rank.is_none()) {
            return Err(Error::input("student", "heads of full rank share no keys", "give the ranks of attention and of values"));
        }
        if !self.scores.is_bilinear() && self.rank.is_none() {
            return Err(Error::input("student", "rotation and norms act on factors", "give the rank of attention"));
        }
        self.scores.check(self.r(), "student")?;
        if [self.d, self.d_out, self.heads, self.r(), self.s()].iter().any(|size| *size > MOST) {
            return Err(Error::input("student", format!("one of its sizes is above {MOST}"), "ask for something smaller"));
        }
        Ok(())
    }
}

/// A layer in the making.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Student<T> {
    /// Its shape.
    pub form: Form,
    /// All numbers.
    pub values: Vec<T>,
}

impl<T: Field> Student<T> {
    /// Random heads with `‖Θ_i‖_F` about `norm` and outputs of size about 1 for tokens of squared norm d.
    pub fn random(form: Form, norm: f64, rng: &mut ChaCha8Rng) -> Result<Self> {
        form.check()?;
        let mut student = Self { values: vec![T::ZERO; form.len()], form };
        for head in 0..student.form.heads {
            student.draw_parts(head, &[Part::A, Part::B, Part::V, Part::O], norm, rng);
        }
        let gains = student.form.range(Part::Gains);
        student.values[gains].fill(T::from_f64(student.form.size(Part::Gains)));
        Ok(student)
    }

    /// Draws one head anew; keys and values that it shares with others stay.
    pub fn draw_head(&mut self, head: usize, norm: f64, rng: &mut ChaCha8Rng) {
        let alone = self.form.key_groups() == self.form.heads;
        let parts: &[Part] = if alone { &[Part::A, Part::B, Part::V, Part::O] } else { &[Part::A, Part::O] };
        self.draw_parts(head, parts, norm, rng);
        for part in [Part::QueryBias, Part::Relative, Part::C] {
            self.head_entries(part, head).into_iter().for_each(|index| self.values[index] = T::ZERO);
        }
    }

    fn draw_parts(&mut self, head: usize, parts: &[Part], norm: f64, rng: &mut ChaCha8Rng) {
        for part in parts {
            let scale = self.form.size_of(*part, norm);
            for index in self.head_entries(*part, head) {
                self.values[index] = T::from_f64(scale * rng.sample::<f64, _>(StandardNormal));
            }
        }
    }

    /// The middle one of the norms of all other heads' attention matrices, where there are any, within reason.
    pub(crate) fn norm_beside(&self, head: usize) -> f64 {
        let (a, b, r) = (self.form.view(Part::A, &self.values), self.form.view(Part::B, &self.values), self.form.r());
        let mut norms: Vec<f64> = (0..self.form.heads)
            .filter(|h| *h != head)
            .map(|h| {
                let a = a.subcols(h * r, r);
                if self.form.rank.is_none() {
                    return a.norm_l2().to_f64();
                }
                // ‖A Bᵀ‖_F² = ⟨AᵀA, BᵀB⟩.
                let b = b.subcols(self.form.group(h) * r, r);
                let (aa, bb) = (a.transpose() * a, b.transpose() * b);
                (0..r).flat_map(|j| (0..r).map(move |i| (i, j))).map(|at| (aa[at] * bb[at]).to_f64()).sum::<f64>().max(0.0).sqrt()
            })
            .collect();
        norms.sort_by(f64::total_cmp);
        norms.get(norms.len() / 2).map_or(Form::NORM, |norm| norm.clamp(0.1, 20.0))
    }

    /// Where the numbers of one head stand in some blocks, in the order of a student of that head.
    pub(crate) fn places(&self, head: usize, parts: &[Part]) -> Vec<usize> {
        parts.iter().flat_map(|part| self.head_entries(*part, head)).collect()
    }

    /// Where the numbers of one head stand in a block; those of its group where it shares them, and none of what all heads share.
    pub(crate) fn head_entries(&self, part: Part, head: usize) -> Vec<usize> {
        let (start, (rows, cols)) = (self.form.range(part).start, self.form.shape(part));
        if part == Part::O {
            let s = self.form.s();
            return (start + head * s * cols..start + (head + 1) * s * cols).collect();
        }
        let at = match part {
            Part::B | Part::KeyBias | Part::Kernel | Part::V => self.form.group(head),
            Part::Gains | Part::Bias => return Vec::new(),
            _ => head,
        };
        let width = cols / self.form.count(part);
        (0..rows).flat_map(|i| (0..width).map(move |j| start + i * cols + at * width + j)).collect()
    }

    /// The layer as it stands.
    pub fn layer(&self) -> Result<AttentionLayer> {
        let form = &self.form;
        let wide = |part: Part| {
            let block = form.view(part, &self.values);
            Mat::from_fn(block.nrows(), block.ncols(), |i, j| block[(i, j)].to_f64())
        };
        let [a, b, c, v, o] = [Part::A, Part::B, Part::C, Part::V, Part::O].map(wide);
        let [query, key, gains, relative] = [Part::QueryBias, Part::KeyBias, Part::Gains, Part::Relative].map(wide);
        let (r, s) = (form.r(), form.s());
        let row = |of: &Mat<f64>, row: usize, first: usize| -> Option<Vec<f64>> {
            (of.nrows() > 0).then(|| (first..first + r).map(|j| of[(row, j)]).collect())
        };
        let heads = (0..form.heads).map(|h| {
            let g = form.group(h);
            let theta = a.subcols(h * r, r).to_owned();
            let out = o.subrows(h * s, s).to_owned();
            let terms = Terms {
                query: row(&query, 0, h * r),
                key: row(&key, 0, g * r),
                gains: row(&gains, 0, 0).zip(row(&gains, 1, 0)).map(|(query, key)| [query, key]),
                relative: (relative.nrows() > 0)
                    .then(|| Relative::Table { first: form.distances().0, values: relative.col_as_slice(h).to_vec() }),
            };
            Head {
                theta: if form.rank.is_some() {
                    Theta::LowRank { a: theta, b: b.subcols(g * r, r).to_owned() }
                } else {
                    Theta::Dense(theta)
                },
                key_bias: (c.nrows() > 0).then(|| c.col_as_slice(h).to_vec()),
                w: if form.value_rank.is_some() { v.subcols(g * s, s) * out } else { out },
                terms,
            }
        });
        let bias = &self.values[form.range(Part::Bias)];
        let bias = form.bias.then(|| bias.iter().map(|b| b.to_f64()).collect());
        AttentionLayer::new(heads.collect(), bias, form.scores.clone())
    }
}

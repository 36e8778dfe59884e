//! The attention matrix and key bias of one head by regression on its logits.
//!
//! Where attention `p_ab` is well above its uncertainty, for the token `b°` that the query attends to most,
//!
//! ```text
//! ln p_ab − ln p_ab° = x_a A Bᵀ (x_b − x_b°)ᵀ + ⟨c, x_b − x_b°⟩
//! ```
//!
//! is regression for the factors: Gauss–Newton, by conjugate gradients, with tokens of covariance `I` in mind,
//!
//! ```text
//! (JᵀJ + λM) δ = Jᵀ(what is seen − what is believed)
//! ```
//!
//! where `λ` keeps what is seen by few logits from being guessed at. Outputs show an error of a logit by its product with `p` alone, so that `JᵀP⊥J` has
//! eigenvalues as small as attention is; here all that is clear has the same weight at first.

use crate::Result;
use crate::descend::optimise::conjugate::{Limits, conjugate, inner};
use crate::descend::optimise::levenberg::{Levenberg, LevenbergSettings, Solution, Solver, Taken};
use crate::engine::batch::{Batch, add};
use crate::engine::metric::Metric;
use crate::engine::student::{Form, Part};
use crate::linalg::Mat;
use crate::linalg::symmetric::{multiply, update_lower};
use crate::parallel;
use faer::{MatMut, MatRef};
use std::ops::Range;

/// What has at most this relative uncertainty is seen, unless its logit is further off than that: some of what is none is seen by chance.
const SEEN: f64 = 0.25;
const FAR: f64 = 2.0;

/// Uncertainty of a logit below which it is clear: the first, the least, and what it falls by when a step gains little. At first all directions of Θ
/// matter, in the end those that outputs show.
const CLEAR: (f64, f64, f64) = (1e-2, 1e-5, 0.1);

/// Share of all that is seen that may be clear.
const CLEAREST: f64 = 0.1;

/// Share of its own miss, over the usual one, that a logit is uncertain by: errors of the other heads are no noise, and some logits are far worse than σ
/// says.
const DOUBT: f64 = 0.3;

/// Steps, those that lead nowhere too, and products for each.
const STEPS: usize = 8;
const PRODUCTS: usize = 60;

/// Relative residual of a step.
const ACCURACY: f64 = 1e-4;

/// A step that leaves more than this of the error gains little.
const GAIN: f64 = 0.5;

/// Attention of a head as the outputs show it, and its uncertainty: `[row][key]`, 0 for keys that are hidden.
pub(crate) struct Attention {
    pub(crate) p: Vec<f64>,
    pub(crate) uncertain: Vec<f64>,
}

/// `A`, `B` and `c` of one head, from those before.
pub(crate) fn regress(
    attention: &Attention,
    examples: &Batch<f64>,
    form: Form,
    values: Vec<f64>,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<f64>> {
    let mut at = Regression::new(examples, form, values);
    let (mut clear, mut state, mut steps) = (CLEAR.0, Levenberg::new(FIRST), STEPS);
    while clear >= CLEAR.1 && steps > 0 {
        let Some((taken, left)) = at.step(attention, clear, &mut state, steps, stop)? else { break };
        steps -= 1 + taken.failures;
        if left >= GAIN {
            clear *= CLEAR.2;
        }
        at = taken.point;
    }
    Ok(at.values)
}

/// First λ.
const FIRST: f64 = 1e-2;

/// How λ goes on, through so many failures.
fn damping(failures: usize) -> LevenbergSettings {
    LevenbergSettings { least: 1e-6, largest: f64::INFINITY, rise: 10.0, failures, ..LevenbergSettings::default() }
}

/// The value that this share of all is below; 0 if there are none.
pub(crate) fn quantile(values: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    if values.is_empty() {
        return 0.0;
    }
    let at = ((share * values.len() as f64) as usize).min(values.len() - 1);
    *values.select_nth_unstable_by(at, f64::total_cmp).1
}

/// Queries, keys and biases of the tokens of a chunk.
struct Tokens {
    range: Range<usize>,
    q: Vec<f64>,
    key: Vec<f64>,
    t: Vec<f64>,
}

/// Which logits are seen, `[row][key]`.
struct Logits {
    /// The key that a row attends to most.
    most: Vec<usize>,
    /// 0 where nothing is seen.
    weight: Vec<f64>,
    /// What is seen less what is believed, weighted.
    miss: Vec<f64>,
}

/// Least squares for the factors of one head.
struct Regression<'a> {
    examples: &'a Batch<f64>,
    form: Form,
    /// `A`, `B`, `c`.
    values: Vec<f64>,
    /// At these.
    tokens: Vec<Vec<Tokens>>,
}

/// Logits that are seen from a point, and the normal equations there.
struct Seen<'a> {
    regression: &'a Regression<'a>,
    logits: &'a Logits,
    metric: Metric,
    stop: &'a dyn Fn() -> bool,
}

impl Solver for Seen<'_> {
    fn solve(&mut self, lambda: f64) -> Result<Option<Solution>> {
        let Self { regression, logits, metric, stop } = self;
        let product = |v: &[f64]| {
            let mut product = regression.adjoint(logits, &regression.derivative(logits, v));
            product.iter_mut().zip(metric.times(v)).for_each(|(p, m)| *p += lambda * m);
            product
        };
        let limits = Limits { accuracy: ACCURACY, products: PRODUCTS, stop: *stop };
        let (step, exact) = conjugate(regression.adjoint(logits, &logits.miss), &limits, product, |r| metric.solve(r))?;
        Ok(Some(Solution { step, exact }))
    }
}

impl<'a> Regression<'a> {
    fn new(examples: &'a Batch<f64>, form: Form, values: Vec<f64>) -> Self {
        let mut new = Self { examples, form, values, tokens: Vec::new() };
        let at = |range: Range<usize>| new.tokens_at(&new.values, range);
        new.tokens = parallel::map(examples.parts(), |chunks| chunks.into_iter().map(at).collect());
        new
    }

    fn tokens_at(&self, values: &[f64], range: Range<usize>) -> Tokens {
        let (x, rows) = (self.examples.inputs(&range), range.len() * self.examples.shape.k);
        let times = |part: Part| {
            let (present, cols) = self.form.shape(part);
            let mut out = vec![0.0; if present > 0 { rows * cols } else { 0 }];
            if present > 0 {
                let x = MatRef::from_row_major_slice(x, rows, self.form.d);
                multiply(MatMut::from_row_major_slice_mut(&mut out, rows, cols), false, 1.0, x, self.form.view(part, values));
            }
            out
        };
        let (q, mut key, t) = (times(Part::A), times(Part::B), times(Part::C));
        if self.form.rank.is_none() {
            key = x.to_vec();
        }
        Tokens { range, q, key, t }
    }

    /// A step of Gauss–Newton that leads somewhere, after fewer than `most` that do not, and what it leaves of the error.
    fn step(
        &self,
        attention: &Attention,
        clear: f64,
        state: &mut Levenberg,
        most: usize,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<(Taken<Self>, f64)>> {
        let logits = self.logits(attention, clear);
        let before = inner(&logits.miss, &logits.miss);
        let mut solver = Seen { regression: self, logits: &logits, metric: self.metric(&logits), stop };
        let moved = |step: &[f64]| {
            let moved = Self::new(self.examples, self.form.clone(), self.values.iter().zip(step).map(|(v, s)| v + s).collect());
            // By the same logits: others may be seen from there.
            let misses = moved.misses(&logits, attention);
            let error = inner(&misses, &misses);
            Some((moved, error))
        };
        let taken = state.step(before, &mut solver, moved, &damping(most))?;
        Ok(taken.map(|taken| {
            let left = taken.error / before;
            (taken, left)
        }))
    }

    /// What is left of these logits, weighted.
    fn misses(&self, logits: &Logits, attention: &Attention) -> Vec<f64> {
        let k = self.examples.shape.k;
        let mut misses = self.believed(logits);
        for (at, miss) in misses.iter_mut().enumerate().filter(|(at, _)| logits.weight[*at] > 0.0) {
            let most = at / k * k + logits.most[at / k];
            *miss = logits.weight[at] * (attention.p[at] / attention.p[most]).ln() - *miss;
        }
        misses
    }

    /// Logits at the point, relative and weighted.
    fn believed(&self, logits: &Logits) -> Vec<f64> {
        self.map(logits, |tokens, out| {
            self.bilinear(out, false, &tokens.q, &tokens.key);
            self.add_bias(out, &tokens.t);
        })
    }

    /// What is seen from here.
    fn logits(&self, attention: &Attention, clear: f64) -> Logits {
        let k = self.examples.shape.k;
        let top = |p: &[f64]| (0..k).fold(0, |top, b| if p[b] > p[top] { b } else { top });
        let most: Vec<usize> = attention.p.chunks_exact(k).map(top).collect();
        let mut logits = Logits { most, weight: vec![1.0; attention.p.len()], miss: vec![0.0; attention.p.len()] };
        let believed = self.believed(&logits);
        let relative = |i: usize| attention.uncertain[i] / attention.p[i].max(0.0);
        let mut seen = Vec::new();
        for (row, most) in logits.most.iter().enumerate() {
            let most = row * k + most;
            for at in (row * k..(row + 1) * k).filter(|at| *at != most) {
                let miss = (attention.p[at] / attention.p[most]).ln() - believed[at];
                if relative(at).max(relative(most)) < SEEN && miss.abs() < FAR {
                    seen.push((at, miss, relative(at) + relative(most)));
                }
            }
        }
        // What is clearer than most of what is seen is not clearer than that.
        let clear = clear.max(quantile(seen.iter().map(|(_, _, uncertain)| *uncertain), CLEAREST));
        let usual = quantile(seen.iter().map(|(_, miss, uncertain)| miss.abs() / (clear + uncertain)), 0.5).max(1.0);
        logits.weight.fill(0.0);
        for (at, miss, uncertain) in seen {
            logits.weight[at] = clear / (clear + uncertain + DOUBT * miss.abs() / usual);
            logits.miss[at] = logits.weight[at] * miss;
        }
        logits
    }

    /// The derivative of weighted logits along a direction.
    fn derivative(&self, logits: &Logits, direction: &[f64]) -> Vec<f64> {
        self.map(logits, |tokens, out| {
            let along = self.tokens_at(direction, tokens.range.clone());
            self.bilinear(out, false, &along.q, &tokens.key);
            if self.form.rank.is_some() {
                self.bilinear(out, true, &tokens.q, &along.key);
            }
            self.add_bias(out, &along.t);
        })
    }

    /// Logits of every chunk, relative to those of the keys attended to most, weighted.
    fn map(&self, logits: &Logits, of_chunk: impl Fn(&Tokens, &mut [f64]) + Sync) -> Vec<f64> {
        let k = self.examples.shape.k;
        let run = |chunks: &Vec<Tokens>| {
            let mut all = Vec::new();
            for tokens in chunks {
                let mut out = vec![0.0; tokens.range.len() * k * k];
                of_chunk(tokens, &mut out);
                for (out, row) in out.chunks_exact_mut(k).zip(tokens.range.start * k..) {
                    let most = out[logits.most[row]];
                    out.iter_mut().zip(&logits.weight[row * k..]).for_each(|(l, w)| *l = w * (*l - most));
                }
                all.extend(out);
            }
            all
        };
        parallel::map(&self.tokens, run).concat()
    }

    /// The adjoint of [`Self::derivative`].
    fn adjoint(&self, logits: &Logits, weighted: &[f64]) -> Vec<f64> {
        let (form, k) = (&self.form, self.examples.shape.k);
        let (d, r) = (form.d, form.r());
        let run = |chunks: &Vec<Tokens>| {
            let mut gradient = vec![0.0; self.values.len()];
            for tokens in chunks {
                let rows = tokens.range.len() * k;
                let (mut q, mut key, mut t) = (vec![0.0; rows * r], vec![0.0; rows * r], vec![0.0; rows]);
                let mut g = vec![0.0; k * k];
                for first in (0..rows).step_by(k) {
                    for (a, g) in g.chunks_exact_mut(k).enumerate() {
                        let row = tokens.range.start * k + first + a;
                        let at = row * k..(row + 1) * k;
                        g.iter_mut().zip(&logits.weight[at.clone()]).zip(&weighted[at]).for_each(|((g, w), v)| *g = w * v);
                        g[logits.most[row]] -= g.iter().sum::<f64>();
                    }
                    let (g, at) = (MatRef::from_row_major_slice(&g, k, k), first * r..(first + k) * r);
                    let into = MatMut::from_row_major_slice_mut(&mut q[at.clone()], k, r);
                    multiply(into, false, 1.0, g, MatRef::from_row_major_slice(&tokens.key[at.clone()], k, r));
                    let into = MatMut::from_row_major_slice_mut(&mut key[at.clone()], k, r);
                    multiply(into, false, 1.0, g.transpose(), MatRef::from_row_major_slice(&tokens.q[at], k, r));
                    (0..k).for_each(|b| t[first + b] = (0..k).map(|a| g[(a, b)]).sum());
                }
                let x = MatRef::from_row_major_slice(self.examples.inputs(&tokens.range), rows, d);
                for (part, back) in [(Part::A, &q), (Part::B, &key), (Part::C, &t)] {
                    let (present, cols) = form.shape(part);
                    if present > 0 {
                        let into = MatMut::from_row_major_slice_mut(&mut gradient[form.range(part)], d, cols);
                        multiply(into, true, 1.0, x.transpose(), MatRef::from_row_major_slice(back, rows, cols));
                    }
                }
            }
            (0.0, gradient)
        };
        add(parallel::map(&self.tokens, run), self.values.len()).1
    }

    /// `out ← [out] + Q Kᵀ`, sequence by sequence.
    fn bilinear(&self, out: &mut [f64], add: bool, q: &[f64], key: &[f64]) {
        let (k, r) = (self.examples.shape.k, self.form.r());
        for ((out, q), key) in out.chunks_exact_mut(k * k).zip(q.chunks_exact(k * r)).zip(key.chunks_exact(k * r)) {
            let (q, key) = (MatRef::from_row_major_slice(q, k, r), MatRef::from_row_major_slice(key, k, r));
            multiply(MatMut::from_row_major_slice_mut(out, k, k), add, 1.0, q, key.transpose());
        }
    }

    /// `out ← out + 1 tᵀ`, sequence by sequence.
    fn add_bias(&self, out: &mut [f64], t: &[f64]) {
        let k = self.examples.shape.k;
        for (out, t) in out.chunks_exact_mut(k * k).zip(t.chunks_exact(k)) {
            out.chunks_exact_mut(k).for_each(|out| out.iter_mut().zip(t).for_each(|(l, t)| *l += t));
        }
    }

    /// Blocks of `JᵀJ` for tokens that are independent of one another with covariance `I`.
    fn metric(&self, logits: &Logits) -> Metric {
        let (r, k) = (self.form.r(), self.examples.shape.k);
        let run = |chunks: &Vec<Tokens>| {
            let mut sums = [Mat::zeros(r, r), Mat::zeros(r, r), Mat::zeros(1, 1)];
            for tokens in chunks {
                let (mut keys, mut queries) = (Vec::new(), Vec::new());
                let key = |row: usize| &tokens.key[row * r..(row + 1) * r];
                for row in 0..tokens.range.len() * k {
                    let (first, all) = (row / k * k, tokens.range.start * k + row);
                    let (weights, most) = (&logits.weight[all * k..(all + 1) * k], key(first + logits.most[all]));
                    for (b, w) in weights.iter().enumerate().filter(|(_, w)| **w > 0.0) {
                        keys.extend(key(first + b).iter().zip(most).map(|(key, most)| w * (key - most)));
                    }
                    // x_b − x_b° has covariance 2I.
                    let squares = 2.0 * weights.iter().map(|w| w * w).sum::<f64>();
                    queries.extend(tokens.q[row * r..(row + 1) * r].iter().map(|q| q * squares.sqrt()));
                    sums[2][(0, 0)] += squares;
                }
                for (sum, columns) in sums.iter_mut().zip([&keys, &queries]) {
                    let columns = MatRef::from_column_major_slice(columns, r, columns.len() / r);
                    update_lower(sum.as_mut(), 1.0, columns, columns);
                }
            }
            sums
        };
        let runs: Vec<[Mat<f64>; 3]> = parallel::map(&self.tokens, run);
        let block = |i: usize| {
            let n = runs.first().map_or(0, |sums| sums[i].nrows());
            Mat::from_fn(n, n, |a, b| runs.iter().map(|sums| sums[i][(a.max(b), a.min(b))]).sum())
        };
        let parts = [Part::A, Part::B, Part::C].into_iter().enumerate().filter(|(_, part)| self.form.shape(*part).0 > 0);
        Metric::of(&self.form, &[parts.map(|(i, part)| (part, block(i))).collect()], RIDGE)
    }
}

/// Share of the mean of a diagonal that is added to it: heads of lower rank than `r` leave nothing else.
const RIDGE: f64 = 1e-8;

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::descend::testing::{mixed_form as form, sharp_problem as problem};
    use rand::RngExt;
    use rand_distr::StandardNormal;

    /// The derivative is that of the logits, and the adjoint its adjoint.
    #[test]
    fn derivative_and_adjoint_agree() {
        for seed in 0..12 {
            let form = form(seed);
            let (teacher, examples, mut rng) = problem(form.clone(), 40, seed);
            let mut normal = |n: usize| -> Vec<f64> { (0..n).map(|_| rng.sample(StandardNormal)).collect() };
            let attention = Attention::read(&teacher, 1, &examples).unwrap();
            let values: Vec<f64> = teacher.places(1, &[Part::A, Part::B, Part::C]).iter().map(|at| teacher.values[*at]).collect();
            let direction = normal(values.len());
            let at = |h: f64| {
                let moved = values.iter().zip(&direction).map(|(v, d)| v + h * d).collect();
                Regression::new(&examples, Form { heads: 1, bias: false, ..form.clone() }, moved)
            };
            let logits = at(0.0).logits(&attention, CLEAR.0);
            let believed = |h: f64| at(h).believed(&logits);
            let derivative = at(0.0).derivative(&logits, &direction);
            let h = 1e-5;
            // Logits are of second order in the factors: central differences are exact.
            let size = derivative.iter().fold(0.0_f64, |size, v| size.max(v.abs()));
            for ((up, down), exact) in believed(h).iter().zip(believed(-h)).zip(&derivative) {
                assert!(((up - down) / (2.0 * h) - exact).abs() < 1e-8 * size, "seed {seed}");
            }
            let any = normal(derivative.len());
            let (one, other) = (inner(&derivative, &any), inner(&direction, &at(0.0).adjoint(&logits, &any)));
            assert!(
                (one - other).abs() < 1e-11 * inner(&derivative, &derivative).sqrt() * inner(&any, &any).sqrt(),
                "seed {seed}"
            );
            assert!(logits.weight.iter().any(|w| *w > 0.5), "nothing is seen");
        }
    }

    /// A step that is damped beyond all is as much shorter as λ is larger, and still leads downhill.
    #[test]
    fn damping_shortens_steps() {
        for seed in 0..4 {
            let form = form(seed);
            let (teacher, examples, _) = problem(form.clone(), 200, seed);
            let attention = Attention::read(&teacher, 1, &examples).unwrap();
            let places = teacher.places(1, &[Part::A, Part::B, Part::C]);
            let values: Vec<f64> = places.iter().map(|at| 0.97 * teacher.values[*at]).collect();
            let length = |lambda: f64| {
                let regression = Regression::new(&examples, Form { heads: 1, bias: false, ..form.clone() }, values.clone());
                let (taken, left) =
                    regression.step(&attention, CLEAR.0, &mut Levenberg::new(lambda), 1, &|| false).unwrap().unwrap();
                assert!(left < 1.0, "seed {seed}, λ {lambda}: {left}");
                let moved: Vec<f64> = taken.point.values.iter().zip(&values).map(|(a, b)| a - b).collect();
                inner(&moved, &moved).sqrt()
            };
            let (long, short) = (length(1e4), length(1e6));
            assert!((long / short / 100.0 - 1.0).abs() < 0.05, "seed {seed}: {long:.1e} and {short:.1e}");
        }
    }
}

//! The rotation behind scores that are free in the distance.
//!
//! With orthonormal columns of a group's queries (all heads above one another, biases with them) and keys, `A = Q_A R_A`, `B = Q_B R_B`, its matrices are `K_m ← R_A K_m R_Bᵀ`, and there are to be `G` and `H`, r × r, with
//!
//! ```text
//! K_m = G S_m Hᵀ,     K_m = Re Σ_j E_jm g_j h_jᴴ,   E_jm = Σ_Δ φ_m(Δ) e^{iω_jΔ},   g_j = G_j + i G_{j+n}  for every pair
//! ```
//!
//! so that `A = Q_A G`, `B = Q_B H` are rotary. Linear functionals of `m` make of `E_j` what they like, as far as rounding lets them: with `Σ_m c_m E_jm = iω_j` and `Σ_m c°_m E_jm = 1`,
//!
//! ```text
//! (Σ_m c_m K_m)(Σ_m c°_m K_m)⁻¹ = G diag(iω) G⁻¹
//! ```
//!
//! has the `g_j` for eigenvectors, fastest pairs first; `H` is least squares. What the functionals cannot tell apart, pairs that hardly turn, makes no difference to the `K_m`. Then all is refined: by Gauss–Newton for `G` and `H` together
//! where heads are narrow, by least squares for one and the other in turn where they are wide.

use crate::Result;
use crate::descend::optimise::levenberg::{Fall, LeastSquares, LevenbergSettings, Solution, Solver, descend};
use crate::engine::student::{Form, PARTS, Part, Student};
use crate::linalg::{Mat, MatRef, frobenius, full_rank_least_squares, inverse, least_squares};
use crate::scores::{Distances, Rotation, Scores};
use faer::linalg::solvers::Eigen;

/// Singular values below these shares of the largest are left out of the functionals, each in its turn: the best wins.
const CUTS: [f64; 6] = [1e-3, 1e-5, 1e-7, 1e-9, 1e-11, 1e-13];

/// Most unknowns of the refinement of `G` and `H` together.
const MOST: usize = 1100;

/// Steps of a refinement, and the relative error that needs none.
const STEPS: usize = 30;
const EXACT: f64 = 1e-15;

/// How a refinement is damped: it begins near its end.
fn damping() -> LevenbergSettings {
    LevenbergSettings {
        steps: STEPS,
        goal: EXACT,
        progress: 0.0,
        first: 1e-6,
        least: 0.0,
        least_risen: 0.0,
        largest: f64::INFINITY,
        fall: Fall::By(0.1),
        rise: 10.0,
        failures: 5,
        ..LevenbergSettings::default()
    }
}

/// The rotary student that says what a relaxed one says, or nearly; `None` where numbers are not finite, or heads have lost a dimension.
pub(crate) fn extract(relaxed: &Student<f64>, rotation: &Rotation) -> Option<Student<f64>> {
    let free = &relaxed.form;
    let distances = free.scores.distances.as_ref()?;
    let form =
        Form { scores: Scores { rotation: Some(rotation.clone()), distances: None, ..free.scores.clone() }, ..free.clone() };
    let mut student = Student { values: vec![0.0; form.len()], form: form.clone() };
    for part in PARTS {
        let place = form.range(part);
        if !place.is_empty() {
            student.values[place].copy_from_slice(&relaxed.values[free.range(part)]);
        }
    }
    let (d, r) = (form.d, form.r());
    let s = distances.of_rotation(rotation, r);
    for group in 0..form.key_groups() {
        let heads: Vec<usize> = (0..form.heads).filter(|head| form.group(*head) == group).collect();
        let (queries, r_a) = orthonormal(&stacked(relaxed, (Part::A, Part::QueryBias), &heads))?;
        let (keys, r_b) = orthonormal(&stacked(relaxed, (Part::B, Part::KeyBias), &[group]))?;
        let kernel = free.view(Part::Kernel, &relaxed.values);
        let k: Vec<Mat<f64>> =
            (0..free.functions()).map(|m| &r_a * kernel.submatrix(m * r, group * r, r, r) * r_b.transpose()).collect();
        let Pairs { g, h, .. } = Pairs::of(&k, &s, distances, rotation)?;
        let height = queries.nrows() / heads.len();
        let made = &queries * &g;
        for (at, head) in heads.iter().enumerate() {
            unstack(&mut student, (Part::A, Part::QueryBias), *head, made.as_ref().subrows(at * height, height), d);
        }
        unstack(&mut student, (Part::B, Part::KeyBias), group, (&keys * &h).as_ref(), d);
    }
    student.values.iter().all(|v| v.is_finite()).then_some(student)
}

/// The columns of some heads or groups above one another, each with its bias below.
fn stacked(student: &Student<f64>, (part, bias): (Part, Part), which: &[usize]) -> Mat<f64> {
    let (form, r) = (&student.form, student.form.r());
    let (factor, bias) = (form.view(part, &student.values), form.view(bias, &student.values));
    let height = factor.nrows() + bias.nrows();
    Mat::from_fn(height * which.len(), r, |i, j| {
        let (at, i) = (which[i / height] * r + j, i % height);
        if i < factor.nrows() { factor[(i, at)] } else { bias[(i - factor.nrows(), at)] }
    })
}

/// Puts them back.
fn unstack(student: &mut Student<f64>, (part, bias): (Part, Part), at: usize, made: MatRef<'_, f64>, d: usize) {
    let r = made.ncols();
    for (part, first, rows) in [(part, 0, d), (bias, d, made.nrows() - d)] {
        let (start, cols) = (student.form.range(part).start, student.form.shape(part).1);
        for i in 0..rows {
            (0..r).for_each(|j| student.values[start + i * cols + at * r + j] = made[(first + i, j)]);
        }
    }
}

/// `Q` and `R`.
fn orthonormal(m: &Mat<f64>) -> Option<(Mat<f64>, Mat<f64>)> {
    if m.nrows() < m.ncols() {
        return None;
    }
    let qr = m.qr();
    Some((qr.compute_thin_Q(), qr.thin_R().to_owned()))
}

/// `G` and `H`, and the share of `‖K‖` that they miss.
#[derive(Clone)]
struct Pairs {
    /// Pairs that turn.
    n: usize,
    g: Mat<f64>,
    h: Mat<f64>,
    error: f64,
}

impl Pairs {
    fn of(k: &[Mat<f64>], s: &[Mat<f64>], distances: &Distances, rotation: &Rotation) -> Option<Self> {
        let size = k.iter().map(|k| k.squared_norm_l2()).sum::<f64>().sqrt();
        let guesses = CUTS.iter().filter_map(|cut| {
            let g = eigenvectors(k, distances, rotation, *cut)?;
            let h = other_side(k, s, &g, false)?;
            let error = miss(k, s, &g, &h, size);
            error.is_finite().then_some(Self { n: rotation.frequencies.len(), g, h, error })
        });
        let best = guesses.min_by(|a, b| a.error.total_cmp(&b.error))?;
        if 2 * best.g.nrows() * best.g.ncols() > MOST {
            return Some(best.in_turns(k, s, size));
        }
        let error = best.error;
        descend(&Both { k, s, size }, (best, error), &damping()).ok().map(|found| found.point)
    }

    /// Pairs of `G` and `H` alike in size, and coordinates that stand still: only their products count.
    fn balanced(mut self) -> Self {
        let (r, n) = (self.g.ncols(), self.n);
        for columns in (0..n).map(|j| vec![j, j + n]).chain((2 * n..r).map(|j| vec![j])) {
            let norm = |m: &Mat<f64>| columns.iter().map(|c| (0..r).map(|i| m[(i, *c)].powi(2)).sum::<f64>()).sum::<f64>().sqrt();
            let share = (norm(&self.h) / norm(&self.g)).sqrt();
            if share.is_finite() && share > 0.0 {
                for c in columns {
                    (0..r).for_each(|i| (self.g[(i, c)], self.h[(i, c)]) = (self.g[(i, c)] * share, self.h[(i, c)] / share));
                }
            }
        }
        self
    }

    /// Least squares for one and the other in turn.
    fn in_turns(mut self, k: &[Mat<f64>], s: &[Mat<f64>], size: f64) -> Self {
        for _ in 0..STEPS {
            let next = || {
                let g = other_side(k, s, &self.h, true)?;
                let h = other_side(k, s, &g, false)?;
                let error = miss(k, s, &g, &h, size);
                (error < self.error).then_some(Self { n: self.n, g, h, error })
            };
            let Some(better) = next() else { break };
            self = better;
        }
        self
    }
}

/// Least squares for `G` and `H` at once.
struct Both<'a> {
    k: &'a [Mat<f64>],
    s: &'a [Mat<f64>],
    size: f64,
}

impl LeastSquares for Both<'_> {
    type Point = Pairs;

    fn linearise(&self, at: &Pairs) -> Result<impl Solver> {
        let Pairs { g, h, .. } = at.clone().balanced();
        let r = g.nrows();
        let (rows, unknowns) = (self.k.len() * r * r, 2 * r * r);
        let mut jacobian = Mat::<f64>::zeros(rows + unknowns, unknowns);
        let mut right = Mat::<f64>::zeros(rows + unknowns, 1);
        for (m, (k, s)) in self.k.iter().zip(self.s).enumerate() {
            let (sh, gs) = (s * h.transpose(), &g * s);
            let miss = k - &g * &sh;
            for a in 0..r {
                for b in 0..r {
                    let row = (m * r + a) * r + b;
                    right[(row, 0)] = miss[(a, b)];
                    for c in 0..r {
                        jacobian[(row, a * r + c)] = sh[(c, b)];
                        jacobian[(row, r * r + b * r + c)] = gs[(a, c)];
                    }
                }
            }
        }
        let scales: Vec<f64> = (0..unknowns)
            .map(|j| (0..rows).map(|i| jacobian[(i, j)].powi(2)).sum::<f64>().sqrt().max(f64::MIN_POSITIVE))
            .collect();
        (0..unknowns).for_each(|j| (0..rows).for_each(|i| jacobian[(i, j)] /= scales[j]));
        Ok(Decomposed { jacobian, right, scales })
    }

    fn moved(&self, at: &Pairs, step: &[f64]) -> Option<(Pairs, f64)> {
        let Pairs { n, g, h, .. } = at.clone().balanced();
        let r = g.nrows();
        let moved = |from: &Mat<f64>, first: usize| Mat::from_fn(r, r, |i, j| from[(i, j)] + step[first + i * r + j]);
        let (g, h) = (moved(&g, 0), moved(&h, r * r));
        let error = miss(self.k, self.s, &g, &h, self.size);
        Some((Pairs { n, g, h, error }, error))
    }
}

/// `‖Jδ − r‖² + λ‖δ‖²`, columns of `J` being of size 1, by a QR decomposition: normal equations would square a condition that slow pairs make bad.
struct Decomposed {
    /// With room for `√λ` below.
    jacobian: Mat<f64>,
    right: Mat<f64>,
    scales: Vec<f64>,
}

impl Solver for Decomposed {
    fn solve(&mut self, lambda: f64) -> Result<Option<Solution>> {
        let rows = self.jacobian.nrows() - self.scales.len();
        (0..self.scales.len()).for_each(|j| self.jacobian[(rows + j, j)] = lambda.sqrt());
        let step = full_rank_least_squares(self.jacobian.as_ref(), self.right.as_ref());
        let step = self.scales.iter().enumerate().map(|(j, scale)| step[(j, 0)] / scale).collect();
        Ok(Some(Solution { step, exact: true }))
    }
}

/// `‖K − G S Hᵀ‖` over `‖K‖`.
fn miss(k: &[Mat<f64>], s: &[Mat<f64>], g: &Mat<f64>, h: &Mat<f64>, size: f64) -> f64 {
    k.iter().zip(s).map(|(k, s)| (k - g * s * h.transpose()).squared_norm_l2()).sum::<f64>().sqrt() / size
}

/// `H` for a `G`, by least squares; or `G` for an `H`.
fn other_side(k: &[Mat<f64>], s: &[Mat<f64>], known: &Mat<f64>, keys: bool) -> Option<Mat<f64>> {
    let r = known.nrows();
    let (mut left, mut right) = (Mat::zeros(k.len() * r, r), Mat::zeros(k.len() * r, r));
    for (m, (k, s)) in k.iter().zip(s).enumerate() {
        let (k, s) = if keys { (k.transpose(), s.transpose()) } else { (k.as_ref(), s.as_ref()) };
        left.as_mut().subrows_mut(m * r, r).copy_from(known * s);
        right.as_mut().subrows_mut(m * r, r).copy_from(k);
    }
    least_squares(left.as_ref(), right.as_ref(), 1e-14).map(|solution| solution.transpose().to_owned())
}

/// `G` from the eigenvectors, with functionals that leave out what is below `cut`.
fn eigenvectors(k: &[Mat<f64>], distances: &Distances, rotation: &Rotation, cut: f64) -> Option<Mat<f64>> {
    let (r, n, functions) = (k[0].nrows(), rotation.frequencies.len(), distances.functions());
    let all: Vec<f64> = rotation.frequencies.iter().copied().chain((r > 2 * n).then_some(0.0)).collect();
    // Real parts of E_j above their imaginary ones.
    let e = Mat::from_fn(2 * all.len(), functions, |i, m| {
        (0..distances.count())
            .map(|at| {
                let angle = all[i % all.len()] * (distances.first() + at as isize) as f64;
                distances.values()[at * functions + m] * if i < all.len() { angle.cos() } else { angle.sin() }
            })
            .sum::<f64>()
    });
    let functional = |real: &dyn Fn(usize) -> f64, imaginary: &dyn Fn(usize) -> f64| {
        let wanted = Mat::from_fn(2 * all.len(), 1, |i, _| if i < all.len() { real(i) } else { imaginary(i - all.len()) });
        let c = least_squares(e.as_ref(), wanted.as_ref(), cut)?;
        let mut sum = Mat::zeros(r, r);
        k.iter().enumerate().for_each(|(m, k)| sum += k * faer::Scale(c[(m, 0)]));
        Some(sum)
    };
    let (turning, still) = (functional(&|_| 0.0, &|j| all[j])?, functional(&|_| 1.0, &|_| 0.0)?);
    let generator = turning * inverse(still.as_ref())?;
    if !frobenius(generator.as_ref()).is_finite() {
        return None;
    }
    let eigen = Eigen::new_from_real(generator.as_ref()).ok()?;
    let (u, values) = (eigen.U(), eigen.S().column_vector());
    // A pair of conjugates is two columns, however near to the real axis; only what is on it is one.
    let mut turns: Vec<usize> = (0..r).filter(|i| values[*i].im > 0.0).collect();
    turns.sort_by(|a, b| values[*b].im.total_cmp(&values[*a].im));
    let column = |i: usize, imaginary: bool| {
        (0..r).map(|row| if imaginary { u[(row, i)].im } else { u[(row, i)].re }).collect::<Vec<f64>>()
    };
    // Fastest first; what is real turns too slowly to be seen, or not at all, and any basis will do.
    let mut pairs: Vec<[Vec<f64>; 2]> = turns.iter().take(n).map(|i| [column(*i, false), column(*i, true)]).collect();
    let real = (0..r).filter(|i| values[*i].im.abs() <= 0.0).map(|i| column(i, false));
    let slower = turns.iter().skip(n).flat_map(|i| [column(*i, false), column(*i, true)]);
    let mut rest: Vec<Vec<f64>> = slower.chain(real).collect();
    while pairs.len() < n {
        pairs.push([rest.pop()?, rest.pop()?]);
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| rotation.frequencies[*b].total_cmp(&rotation.frequencies[*a]));
    let mut g = Mat::zeros(r, r);
    for (j, [re, im]) in order.into_iter().zip(&pairs) {
        let size = re.iter().chain(im).map(|v| v * v).sum::<f64>().sqrt();
        (0..r).for_each(|i| (g[(i, j)], g[(i, j + n)]) = (re[i] / size, im[i] / size));
    }
    for (j, v) in (2 * n..r).zip(rest) {
        let size = v.iter().map(|v| v * v).sum::<f64>().sqrt();
        (0..r).for_each(|i| g[(i, j)] = v[i] / size);
    }
    Some(g)
}

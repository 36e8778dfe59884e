//! The interior-point method behind every question about a body: Mehrotra's predictor and corrector for
//!
//! ```text
//! minimise    q/2 ‖θ‖² + ⟨c, θ⟩ + γ t
//! subject to  lower_r − w_r t ≤ ⟨v_r, θ⟩ ≤ upper_r + w_r t,     |θ_j| ≤ R,     t ≥ 0
//! ```
//!
//! with `q = 1` for the minimum norm, `c = ±u` for the extent along `u`, and `γ = 1` for the least inflation; without `t`
//! in the first two. A step solves
//!
//! ```text
//! ⎡ q I + Aᵀ D A + D_box   b ⎤ ⎡ Δθ ⎤   ⎡ −(qθ + c) + Aᵀ pull + pull_box ⎤
//! ⎣        bᵀ              β ⎦ ⎣ Δt ⎦ = ⎣     −γ + ⟨w, pull⟩ + pull_t    ⎦
//! ```
//!
//! by Cholesky, with the stiffnesses `D` and the pulls of [`super::constraint`]: both sides of a slab share one row of `A`,
//! so that a step costs one symmetric rank-N update, `N p²` operations, and two cheaper sweeps over the rows.
//!
//! *Units.* Rows are scaled to length 1, and `θ` by a length taken from the rows, so that tolerances are relative.
//!
//! *Emptiness.* For any multipliers `λ ≥ 0` of the sides and every `θ` in the box,
//!
//! ```text
//! Σ λ · violation ≥ Σ λ (−g(θ)) = Σ λβ − ⟨Aᵀ(±λ), θ⟩ ≥ Σ λβ − R ‖Aᵀ(±λ)‖₁
//! ```
//!
//! (Farkas). When the right-hand side is positive no `θ` satisfies all rows, and divided by `Σ λ` it bounds the worst
//! violation from below. The multipliers of an empty body grow along such a certificate, so every iterate is tested.

use super::constraint::{Constraint, Linearised, Measure, Reach, Share};
use super::normal::Factor;
use super::rows::{self, Gram};
use super::{Body, Residuals, Settings, Status};
use rayon::prelude::*;

/// What is minimised.
#[derive(Clone, Copy, Debug)]
pub(super) enum Objective<'a> {
    /// `½ ‖θ‖²`.
    Norm,
    /// `⟨c, θ⟩`.
    Linear(&'a [f64]),
    /// `t`, with these weights `w > 0`.
    Inflation(&'a [f64]),
}

/// Where the method ended, in the units of the body.
#[derive(Clone, Debug)]
pub(super) struct Solution {
    pub point: Vec<f64>,
    pub t: f64,
    /// `λ_lower − λ_upper` of every row.
    pub multipliers: Vec<f64>,
    /// The same for the box.
    pub box_multipliers: Vec<f64>,
    pub residuals: Residuals,
    pub iterations: usize,
    pub status: Status,
}

/// Stiffness of equations and thin slabs: a slab whose half-width is below this part of the tolerance is an equation.
const THIN: f64 = 0.1;

/// A body is declared empty when some row of length 1 must be violated by this many tolerances.
const EMPTY: f64 = 10.0;

/// The sums of one panel of rows.
struct Sums {
    gram: Gram,
    border: Vec<f64>,
    pull: Vec<f64>,
    centring: Vec<f64>,
    gradient: Vec<f64>,
    taken: Vec<f64>,
    scalars: Scalars,
}

#[derive(Clone, Copy, Default)]
struct Scalars {
    corner: f64,
    pull: f64,
    centring: f64,
    gradient: f64,
    taken: f64,
    measure: Measure,
    reach: Reach,
}

/// The iterate and the data, all in the units of the method.
struct Interior<'a> {
    rows: &'a [f64],
    p: usize,
    q: f64,
    c: Vec<f64>,
    radius: f64,
    /// The unit of `θ`.
    length: f64,
    /// The unit of `t`.
    inflation_unit: f64,
    /// The unit of the objective.
    objective_unit: f64,
    theta: Vec<f64>,
    t: f64,
    constraints: Vec<Constraint>,
    box_sides: Vec<Constraint>,
    /// `t ≥ 0`, when there is a `t`.
    floor: Option<Constraint>,
    sums: Vec<Sums>,
}

/// Newton's equations at an iterate, and how good the iterate is.
struct Newton {
    matrix: Vec<f64>,
    /// The right-hand side with `τ = c = 0`.
    right: Vec<f64>,
    /// What `τ` adds to it.
    centring: Vec<f64>,
    measure: Measure,
    residuals: Residuals,
    /// The proven violation, if positive.
    emptiness: f64,
}

/// Minimises the objective over `lower ≤ V θ ≤ upper` (opened by `t w` for an inflation) within the body's box.
pub(super) fn solve(body: &Body, lower: &[f64], upper: &[f64], objective: Objective<'_>, settings: &Settings) -> Solution {
    let mut iterate = match Interior::new(body, lower, upper, objective, settings) {
        Ok(iterate) => iterate,
        Err(by) => return Solution::empty(body, by),
    };
    iterate.start();
    let mut iterations = 0;
    let mut stuck = 0;
    let (status, residuals) = loop {
        // Where are we?
        let newton = iterate.newton();
        if newton.emptiness > EMPTY * settings.tolerance {
            break (Status::Empty { by: newton.emptiness * iterate.length }, newton.residuals);
        }
        if newton.residuals.worst() <= settings.tolerance {
            break (Status::Solved, newton.residuals);
        }
        if iterations == settings.max_iterations || stuck == 5 {
            break (Status::Stalled, newton.residuals);
        }
        let Some(factor) = Factor::new(&newton.matrix, newton.right.len()) else {
            break (Status::Stalled, newton.residuals);
        };

        // Predictor: straight to the boundary.
        let step = factor.solve(&newton.matrix, &newton.right);
        let (reach, taken) = iterate.predict(&step);

        // Centring: the better the predictor did, the closer to the boundary we aim.
        let (primal, dual) = iterate.lengths(&reach, 1.0);
        let now = newton.measure.complementarity;
        let sigma = (reach.complementarity(now, primal, dual) / now).powi(3);
        let tau = sigma * now / newton.measure.sides;

        // Corrector: towards the centre, with the predictor's second-order term.
        let right: Vec<f64> = (0..taken.len()).map(|i| newton.right[i] + tau * newton.centring[i] - taken[i]).collect();
        let step = factor.solve(&newton.matrix, &right);
        let reach = iterate.correct(&step, tau);
        let (primal, dual) = iterate.lengths(&reach, settings.step_fraction);
        iterate.advance(&step, primal, dual);
        stuck = if primal.max(dual) < 1e-4 { stuck + 1 } else { 0 };
        iterations += 1;
        if std::env::var("CONVEX_TRACE").is_ok() {
            eprintln!("{iterations:3} {:.1e} {:.1e} {:.1e} mu {:.1e} sigma {sigma:.1e} steps {primal:.3} {dual:.3} empty {:.1e}", newton.residuals.primal, newton.residuals.dual, newton.residuals.gap, now / newton.measure.sides, newton.emptiness);
        }
    };
    iterate.solution(residuals, iterations, status)
}

impl Solution {
    fn empty(body: &Body, by: f64) -> Self {
        let residuals = Residuals { primal: by, dual: f64::INFINITY, gap: f64::INFINITY };
        Self {
            point: vec![0.0; body.dimension()],
            t: 0.0,
            multipliers: vec![0.0; body.count()],
            box_multipliers: vec![0.0; body.dimension()],
            residuals,
            iterations: 0,
            status: Status::Empty { by },
        }
    }
}

impl Sums {
    fn new(p: usize) -> Self {
        let zero = || vec![0.0; p];
        Self {
            gram: Gram::new(p),
            border: zero(),
            pull: zero(),
            centring: zero(),
            gradient: zero(),
            taken: zero(),
            scalars: Scalars::default(),
        }
    }

    fn clear(&mut self) {
        self.gram.clear();
        self.scalars = Scalars::default();
        for sum in [&mut self.border, &mut self.pull, &mut self.centring, &mut self.gradient, &mut self.taken] {
            sum.fill(0.0);
        }
    }
}

/// `Σ` of one vector over the panels, in order.
fn total(p: usize, sums: &[Sums], vector: impl Fn(&Sums) -> &[f64]) -> Vec<f64> {
    let mut total = vec![0.0; p];
    for sum in sums {
        for (total, term) in total.iter_mut().zip(vector(sum)) {
            *total += term;
        }
    }
    total
}

fn largest(values: impl IntoIterator<Item = f64>) -> f64 {
    // NaN must not hide: a maximum that skips it would declare a broken iterate optimal.
    values.into_iter().fold(0.0, |largest: f64, value| if value.abs() <= largest { largest } else { value.abs() })
}

impl<'a> Interior<'a> {
    /// The problem in the method's units; or the violation that no point can avoid when one row alone proves emptiness.
    fn new(
        body: &'a Body,
        lower: &[f64],
        upper: &[f64],
        objective: Objective<'_>,
        settings: &Settings,
    ) -> Result<Self, f64> {
        let (p, n, radius) = (body.dimension(), body.count(), body.radius());
        let weights = if let Objective::Inflation(weights) = objective { Some(weights) } else { None };
        // A row of zeros has no length of its own; it constrains t alone.
        let spare = body.norms().iter().copied().fold(0.0, f64::max);
        let spare = if spare > 0.0 { spare } else { 1.0 };
        let norm = |r: usize| if body.norms()[r] > 0.0 { body.norms()[r] } else { spare };
        // Bounds beyond what the box can reach say nothing.
        let bounds = |r: usize| {
            let reach = body.reaches()[r];
            let lower = if lower[r] <= -reach { f64::NEG_INFINITY } else { lower[r] };
            let upper = if upper[r] >= reach { f64::INFINITY } else { upper[r] };
            (lower, upper)
        };

        // The unit of length: how far the rows are from the origin.
        let distance = |r: usize| {
            let (lower, upper) = bounds(r);
            let distance = match objective {
                Objective::Norm => lower.max(-upper).max(0.0), // of the slab: ‖θ‖ is at least that
                _ => lower.abs().min(upper.abs()),             // of its nearest face
            };
            if distance.is_finite() { distance / norm(r) } else { 0.0 }
        };
        let length = (0..n).map(distance).fold(0.0, f64::max).min(radius * (p as f64).sqrt());
        let length = if length > 0.0 { length } else { radius };

        // The unit of t: such that the fastest row opens at speed 1.
        let speed = weights.map_or(1.0, |w| (0..n).map(|r| w[r] / norm(r)).fold(0.0, f64::max));
        let inflation_unit = length / speed;

        let mut constraints = Vec::with_capacity(n);
        for r in 0..n {
            let (scale, unit) = (1.0 / norm(r), norm(r) * length);
            let (lower, upper) = bounds(r);
            let row = if let Some(w) = weights {
                Constraint::slab(scale, lower / unit, upper / unit, w[r] / (norm(r) * speed))
            } else {
                let reach = body.reaches()[r];
                let by = (lower - reach).max(-upper - reach) / norm(r);
                if by > EMPTY * settings.tolerance * length {
                    return Err(by);
                }
                if body.norms()[r] > 0.0 && upper - lower <= 2.0 * THIN * settings.tolerance * unit {
                    Constraint::equation(scale, 0.5 * (lower + upper) / unit)
                } else if body.norms()[r] > 0.0 {
                    Constraint::slab(scale, lower / unit, upper / unit, 0.0)
                } else {
                    Constraint::slab(scale, f64::NEG_INFINITY, f64::INFINITY, 0.0)
                }
            };
            constraints.push(row);
        }

        let (q, c, objective_unit) = match objective {
            Objective::Norm => (1.0, vec![0.0; p], length * length),
            Objective::Linear(u) => {
                let norm = u.iter().map(|u| u * u).sum::<f64>().sqrt();
                (0.0, u.iter().map(|u| u / norm).collect(), norm * length)
            }
            Objective::Inflation(_) => (0.0, vec![0.0; p], inflation_unit),
        };
        let radius = radius / length;
        Ok(Self {
            rows: body.rows(),
            p,
            q,
            c,
            radius,
            length,
            inflation_unit,
            objective_unit,
            theta: vec![0.0; p],
            t: 0.0,
            constraints,
            box_sides: (0..p).map(|_| Constraint::slab(1.0, -radius, radius, 0.0)).collect(),
            floor: weights.map(|_| Constraint::slab(1.0, 0.0, f64::INFINITY, 0.0)),
            sums: rows::panels(n, || Sums::new(p)),
        })
    }

    /// `γ`.
    fn gamma(&self) -> f64 {
        f64::from(u8::from(self.floor.is_some()))
    }

    /// The first iterate: the least-squares fit to the middles of the rows, slacks as they are there or else a little
    /// positive, and multipliers that put every side on the central path.
    fn start(&mut self) {
        let p = self.p;
        self.sums.iter_mut().for_each(Sums::clear);
        rows::sweep(self.rows, p, &mut self.constraints, &mut self.sums, |v, rows, sums| {
            let (mut d, mut h) = ([0.0; rows::CHUNK], [0.0; rows::CHUNK]);
            for (i, row) in rows.iter().enumerate() {
                let Some(centre) = row.centre() else { continue };
                d[i] = row.scale * row.scale;
                h[i] = row.scale * centre;
            }
            sums.gram.add(v, &d[..rows.len()]);
            rows::add_combination(v, &h[..rows.len()], &mut sums.pull);
        });
        let mut matrix = self.gram(p);
        let trace: f64 = (0..p).map(|j| matrix[j * p + j]).sum();
        for j in 0..p {
            matrix[j * p + j] += 1e-6 * trace / p as f64 + 1e-12;
        }
        let right = total(p, &self.sums, |s| &s.pull);
        if let Some(factor) = Factor::new(&matrix, p) {
            self.theta = factor.solve(&matrix, &right);
        }
        for theta in &mut self.theta {
            *theta = if theta.is_finite() { theta.clamp(-0.9 * self.radius, 0.9 * self.radius) } else { 0.0 };
        }

        let theta = &self.theta;
        rows::sweep(self.rows, p, &mut self.constraints, &mut self.sums, |v, rows, _| {
            let mut z = [0.0; rows::CHUNK];
            rows::products(v, theta, &mut z[..rows.len()]);
            for (row, z) in rows.iter_mut().zip(z) {
                row.value = z * row.scale;
            }
        });
        for (row, theta) in self.box_sides.iter_mut().zip(theta) {
            row.value = *theta;
        }
        let violation = self.constraints.iter().map(Constraint::violation).fold(0.0, f64::max);
        if let Some(floor) = &mut self.floor {
            self.t = 1.5 * violation + 1e-3;
            floor.value = self.t;
        }
        let env = |name: &str, d: f64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(d);
        let least = env("LEAST", 0.01);
        let tau = env("TAU", 1.0);
        let n = self.constraints.len().max(1) as f64;
        let tau = tau * (p as f64 / n).min(1.0);
        let t = self.t;
        for row in self.constraints.iter_mut().chain(&mut self.box_sides).chain(&mut self.floor) {
            row.start(t, tau, least);
        }
    }

    /// The panels' `Vᵀ D V` in the upper left corner of an `n × n` matrix.
    fn gram(&self, n: usize) -> Vec<f64> {
        let p = self.p;
        let grams = self.sums.iter().map(|s| &s.gram);
        let mut matrix = vec![0.0; n * n];
        Gram::total(grams, &mut matrix, n);
        debug_assert!(n >= p);
        matrix
    }

    /// Newton's equations at this iterate, and its quality.
    fn newton(&mut self) -> Newton {
        let (p, t) = (self.p, self.t);
        let inflating = self.floor.is_some();
        self.sums.iter_mut().for_each(Sums::clear);
        rows::sweep(self.rows, p, &mut self.constraints, &mut self.sums, |v, rows, sums| {
            let mut d = [0.0; rows::CHUNK];
            let [mut border, mut pull, mut centring, mut gradient] = [d; 4];
            for (i, row) in rows.iter().enumerate() {
                let Linearised { stiffness, border: b, pull: u, centring: k, multipliers: m } = row.linearise(t);
                row.measure(t, &mut sums.scalars.measure);
                d[i] = row.scale * row.scale * stiffness;
                border[i] = row.scale * b.theta;
                pull[i] = row.scale * u.theta;
                centring[i] = row.scale * k.theta;
                gradient[i] = row.scale * m.theta;
                sums.scalars.corner += b.t;
                sums.scalars.pull += u.t;
                sums.scalars.centring += k.t;
                sums.scalars.gradient += m.t;
            }
            let n = rows.len();
            sums.gram.add(v, &d[..n]);
            rows::add_combination(v, &pull[..n], &mut sums.pull);
            rows::add_combination(v, &centring[..n], &mut sums.centring);
            rows::add_combination(v, &gradient[..n], &mut sums.gradient);
            if inflating {
                rows::add_combination(v, &border[..n], &mut sums.border);
            }
        });

        let n = p + usize::from(inflating);
        let mut matrix = self.gram(n);
        let mut right = total(p, &self.sums, |s| &s.pull);
        let mut centring = total(p, &self.sums, |s| &s.centring);
        let gradient = total(p, &self.sums, |s| &s.gradient); // Aᵀ(λ_lower − λ_upper)
        let mut measure = Measure::default();
        self.sums.iter().for_each(|s| measure.merge(&s.scalars.measure));

        // Every point of the box violates some row by at least this much (see above); with t nothing is ever empty.
        let proof = measure.dual - self.radius * gradient.iter().map(|g| g.abs()).sum::<f64>();
        let emptiness = if inflating || measure.multipliers <= 0.0 { 0.0 } else { proof / measure.multipliers };

        let mut slope: Vec<f64> = (0..p).map(|j| self.q * self.theta[j] + self.c[j] - gradient[j]).collect();
        for j in 0..p {
            let row = self.box_sides[j].linearise(0.0);
            self.box_sides[j].measure(0.0, &mut measure);
            matrix[j * n + j] += self.q + row.stiffness;
            right[j] += row.pull.theta - self.q * self.theta[j] - self.c[j];
            centring[j] += row.centring.theta;
            slope[j] -= row.multipliers.theta;
        }
        if let Some(floor) = &self.floor {
            let border = total(p, &self.sums, |s| &s.border);
            let row = floor.linearise(0.0);
            let scalar = |f: fn(&Scalars) -> f64| self.sums.iter().map(|s| f(&s.scalars)).sum::<f64>();
            floor.measure(0.0, &mut measure);
            matrix[p * n..p * n + p].copy_from_slice(&border);
            matrix[p * n + p] = scalar(|s| s.corner) + row.stiffness;
            right.push(scalar(|s| s.pull) + row.pull.theta - self.gamma());
            centring.push(scalar(|s| s.centring) + row.centring.theta);
            slope.push(self.gamma() - scalar(|s| s.gradient) - row.multipliers.theta);
        }

        let square: f64 = self.theta.iter().map(|t| t * t).sum();
        let linear: f64 = self.theta.iter().zip(&self.c).map(|(t, c)| t * c).sum();
        let objective = 0.5 * self.q * square + linear + self.gamma() * self.t;
        let dual_objective = measure.dual - 0.5 * self.q * square;
        let size = largest(self.theta.iter().copied()).max(1.0);
        let residuals = Residuals {
            primal: measure.residual / size,
            dual: largest(slope) / if self.q > 0.0 { size } else { 1.0 },
            gap: (objective - dual_objective).abs() / objective.abs().max(1.0),
        };
        Newton { matrix, right, centring, measure, residuals, emptiness }
    }

    /// The predictor in every row: how far it can go, and `Aᵀ(c/s)`, which its second-order term takes from the pulls.
    fn predict(&mut self, step: &[f64]) -> (Reach, Vec<f64>) {
        let (p, t) = (self.p, self.t);
        let t_step = if self.floor.is_some() { step[p] } else { 0.0 };
        for sums in &mut self.sums {
            sums.taken.fill(0.0);
            (sums.scalars.taken, sums.scalars.reach) = (0.0, Reach::default());
        }
        rows::sweep(self.rows, p, &mut self.constraints, &mut self.sums, |v, rows, sums| {
            let mut h = [0.0; rows::CHUNK];
            let n = rows.len();
            rows::products(v, &step[..p], &mut h[..n]);
            for (row, h) in rows.iter_mut().zip(&mut h) {
                let Share { theta, t } = row.predict(t, row.scale * *h, t_step, &mut sums.scalars.reach);
                *h = row.scale * theta;
                sums.scalars.taken += t;
            }
            rows::add_combination(v, &h[..n], &mut sums.taken);
        });
        let mut reach = Reach::default();
        self.sums.iter().for_each(|s| reach.merge(&s.scalars.reach));
        let mut taken = total(p, &self.sums, |s| &s.taken);
        for j in 0..p {
            taken[j] += self.box_sides[j].predict(0.0, step[j], 0.0, &mut reach).theta;
        }
        if let Some(floor) = &mut self.floor {
            let rows: f64 = self.sums.iter().map(|s| s.scalars.taken).sum();
            taken.push(rows + floor.predict(0.0, t_step, 0.0, &mut reach).theta);
        }
        (reach, taken)
    }

    /// The corrector in every row, and how far it can go.
    fn correct(&mut self, step: &[f64], tau: f64) -> Reach {
        let (p, t) = (self.p, self.t);
        let t_step = if self.floor.is_some() { step[p] } else { 0.0 };
        for sums in &mut self.sums {
            sums.scalars.reach = Reach::default();
        }
        rows::sweep(self.rows, p, &mut self.constraints, &mut self.sums, |v, rows, sums| {
            let mut z = [0.0; rows::CHUNK];
            rows::products(v, &step[..p], &mut z[..rows.len()]);
            for (row, z) in rows.iter_mut().zip(z) {
                row.correct(t, row.scale * z, t_step, tau, &mut sums.scalars.reach);
            }
        });
        let mut reach = Reach::default();
        self.sums.iter().for_each(|s| reach.merge(&s.scalars.reach));
        for j in 0..p {
            self.box_sides[j].correct(0.0, step[j], 0.0, tau, &mut reach);
        }
        if let Some(floor) = &mut self.floor {
            floor.correct(0.0, t_step, 0.0, tau, &mut reach);
        }
        reach
    }

    /// Step lengths, a fraction of the way to the boundary. In a linear program the primal and the dual step are
    /// independent; the quadratic term couples them.
    fn lengths(&self, reach: &Reach, fraction: f64) -> (f64, f64) {
        let (primal, dual) = ((fraction * reach.primal).min(1.0), (fraction * reach.dual).min(1.0));
        if self.q > 0.0 { (primal.min(dual), primal.min(dual)) } else { (primal, dual) }
    }

    fn advance(&mut self, step: &[f64], primal: f64, dual: f64) {
        for (theta, step) in self.theta.iter_mut().zip(step) {
            *theta += primal * step;
        }
        if self.floor.is_some() {
            self.t += primal * step[self.p];
        }
        self.constraints.par_iter_mut().with_min_len(4096).for_each(|row| row.advance(primal, dual));
        self.box_sides.iter_mut().chain(&mut self.floor).for_each(|row| row.advance(primal, dual));
    }

    /// Back in the units of the body.
    fn solution(self, residuals: Residuals, iterations: usize, status: Status) -> Solution {
        let unit = self.objective_unit / self.length;
        let multiplier = |row: &Constraint| unit * row.scale * row.multiplier();
        Solution {
            point: self.theta.iter().map(|t| t * self.length).collect(),
            t: self.t * self.inflation_unit,
            multipliers: self.constraints.iter().map(multiplier).collect(),
            box_multipliers: self.box_sides.iter().map(multiplier).collect(),
            residuals,
            iterations,
            status,
        }
    }
}

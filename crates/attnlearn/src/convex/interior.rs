//! The interior-point method behind every question about a body: Mehrotra's predictor and corrector for a [`Program`],
//! with the sides, springs and pulls of [`super::constraint`]. A step solves
//!
//! ```text
//! ⎡ q I + Aᵀ K A + K_box   b ⎤ ⎡ Δθ ⎤   ⎡ −(qθ + c) + Aᵀ pull + pull_box ⎤
//! ⎣          bᵀ            κ ⎦ ⎣ Δt ⎦ = ⎣    −γ + ⟨w, pull⟩ + pull_t     ⎦      b = Aᵀ(± w k),  κ = Σ w² k
//! ```
//!
//! by Cholesky. Both sides of a slab share one row of `A`, so that a step costs one symmetric rank-N update, `N p²`
//! operations, and two cheaper sweeps over the rows.
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
use super::program::{EMPTY, Objective, Program};
use super::rows::{self, CHUNK, Gram};
use super::{Body, Residuals, Settings, Status};
use crate::parallel;

/// Where the method ended, in the units of the body.
#[derive(Clone, Debug)]
pub(super) struct Solution {
    pub point: Vec<f64>,
    pub t: f64,
    /// `λ_lower − λ_upper` of every row.
    pub multipliers: Vec<f64>,
    /// The same for the box.
    pub box_multipliers: Vec<f64>,
    /// Every point of the box violates some row `r` by at least this times `‖v_r‖`, by these multipliers; if positive.
    pub proven_violation: f64,
    /// The unit of length that tolerances refer to.
    pub length: f64,
    pub residuals: Residuals,
    pub iterations: usize,
    pub status: Status,
}

/// Where to start from and how stiff to be; the later ones are for programs on which the earlier ones stalled.
#[derive(Clone, Copy)]
struct Start {
    /// The first `τ`, relative to what the program suggests.
    tau: f64,
    /// The `δ` of the springs, relative to their defaults: softer springs lose less of the rest to rounding.
    softness: f64,
}

const STARTS: [Start; 3] =
    [Start { tau: 1.0, softness: 1.0 }, Start { tau: 0.01, softness: 1.0 }, Start { tau: 1.0, softness: 1e3 }];

/// Steps without progress before the method gives up.
const PATIENCE: usize = 20;

/// Minimises the objective over `lower ≤ V θ ≤ upper` (opened by `t w` for an inflation) within the body's box.
pub(super) fn solve(body: &Body, lower: &[f64], upper: &[f64], objective: Objective<'_>, settings: &Settings) -> Solution {
    let attempt = |start: Start| match Program::new(body, lower, upper, objective, start.softness, settings) {
        Ok(program) => Iterate::new(program, start.tau).descend(settings),
        Err(by) => Solution::empty(body, by),
    };
    let [first, later @ ..] = STARTS;
    let mut best = attempt(first);
    for start in later {
        if best.status != Status::Stalled {
            break;
        }
        let next = attempt(start);
        let iterations = best.iterations + next.iterations;
        if next.status != Status::Stalled || next.residuals.worst() < best.residuals.worst() {
            best = next;
        }
        best.iterations = iterations;
    }
    best
}

impl Solution {
    fn empty(body: &Body, by: f64) -> Self {
        Self {
            point: vec![0.0; body.dimension()],
            t: 0.0,
            multipliers: vec![0.0; body.count()],
            box_multipliers: vec![0.0; body.dimension()],
            proven_violation: by,
            length: body.radius(),
            residuals: Residuals { primal: f64::INFINITY, dual: f64::INFINITY, gap: f64::INFINITY },
            iterations: 0,
            status: Status::Empty { by },
        }
    }
}

/// An iterate: `θ`, `t`, and in the program's constraints the slacks and multipliers.
struct Iterate<'a> {
    program: Program<'a>,
    theta: Vec<f64>,
    t: f64,
    sums: Vec<Sums>,
}

/// The equations of a step, and how good the iterate is.
struct Newton {
    matrix: Vec<f64>,
    /// The right-hand side with `τ = c = 0`.
    right: Vec<f64>,
    /// What `τ` adds to it, for `τ = 1`.
    centring: Vec<f64>,
    measure: Measure,
    residuals: Residuals,
    proven_violation: f64,
}

/// The sums of one panel of rows: the vectors for `θ`, the scalars for `t`.
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

impl<'a> Iterate<'a> {
    fn new(program: Program<'a>, relative_tau: f64) -> Self {
        let sums = rows::panels(program.constraints.len(), || Sums::new(program.p));
        let mut iterate = Self { theta: vec![0.0; program.p], t: 0.0, program, sums };
        iterate.start(relative_tau);
        iterate
    }

    /// Steps until the iterate is optimal, or proves that there is nothing to find, or gets no better.
    fn descend(mut self, settings: &Settings) -> Solution {
        let (mut best, mut idle, mut iterations) = (f64::INFINITY, 0, 0);
        loop {
            // Where are we?
            let newton = self.newton();
            let worst = newton.residuals.worst();
            (best, idle) = if worst < 0.9 * best { (worst, 0) } else { (best, idle + 1) };
            let status = if newton.proven_violation > EMPTY * settings.tolerance && self.program.floor.is_none() {
                Some(Status::Empty { by: newton.proven_violation * self.program.length })
            } else if worst <= settings.tolerance {
                Some(Status::Solved)
            } else if iterations == settings.max_iterations || idle == PATIENCE {
                Some(Status::Stalled)
            } else {
                None
            };
            if let Some(status) = status {
                return self.solution(&newton, iterations, status);
            }
            let Some(factor) = Factor::new(&newton.matrix, newton.right.len()) else {
                return self.solution(&newton, iterations, Status::Stalled);
            };

            // Predictor: straight to the boundary.
            let step = factor.solve(&newton.matrix, &newton.right);
            let (reach, taken) = self.predict(&step);

            // Centring: the further the predictor gets, the closer to the boundary we aim.
            let (primal, dual) = self.lengths(&reach, 1.0);
            let now = newton.measure.complementarity;
            let tau = (reach.complementarity(now, primal, dual) / now).powi(3) * now / newton.measure.sides;
            // The second-order term is that of a full step; a shorter one deserves less of it.
            let omega = primal.min(dual);

            // Corrector: towards the centre, with the predictor's second-order term.
            let right: Vec<f64> =
                (0..taken.len()).map(|i| newton.right[i] + tau * newton.centring[i] - omega * taken[i]).collect();
            let step = factor.solve(&newton.matrix, &right);
            let reach = self.correct(&step, tau, omega);
            let (primal, dual) = self.lengths(&reach, settings.step_fraction);
            self.advance(&step, primal, dual);
            iterations += 1;
        }
    }

    /// The first iterate: the least-squares fit to the middles of the rows, the slacks as they are there or else a little
    /// positive, and multipliers that put every side on the central path.
    fn start(&mut self, relative_tau: f64) {
        let &Program { rows, p, radius, .. } = &self.program;
        self.sums.iter_mut().for_each(Sums::clear);
        rows::sweep(rows, p, &mut self.program.constraints, &mut self.sums, |v, rows, sums| {
            let (mut root, mut h) = ([0.0; CHUNK], [0.0; CHUNK]);
            for (i, row) in rows.iter().enumerate() {
                if let Some(centre) = row.centre() {
                    (root[i], h[i]) = (row.scale, row.scale * centre);
                }
            }
            sums.gram.add(v, &root[..rows.len()]);
            rows::add_combinations(v, [&h[..rows.len()]], [&mut sums.pull]);
        });
        let mut matrix = self.gram(p);
        let ridge = 1e-6 * (0..p).map(|j| matrix[j * p + j]).sum::<f64>() / p as f64 + 1e-12;
        for j in 0..p {
            matrix[j * p + j] += ridge;
        }
        if let Some(factor) = Factor::new(&matrix, p) {
            self.theta = factor.solve(&matrix, &total(p, &self.sums, |s| &s.pull));
        }
        for theta in &mut self.theta {
            *theta = if theta.is_finite() { theta.clamp(-0.9 * radius, 0.9 * radius) } else { 0.0 };
        }

        let theta = &self.theta;
        rows::sweep(rows, p, &mut self.program.constraints, &mut self.sums, |v, rows, _| {
            let mut z = [0.0; CHUNK];
            rows::products(v, theta, &mut z[..rows.len()]);
            for (row, z) in rows.iter_mut().zip(z) {
                row.value = row.scale * z;
            }
        });
        for (row, theta) in self.program.box_sides.iter_mut().zip(theta) {
            row.value = *theta;
        }
        if self.program.floor.is_some() {
            self.t = 1.5 * self.program.constraints.iter().map(Constraint::opening).fold(0.0, f64::max) + 1e-3;
        }
        if let Some(floor) = &mut self.program.floor {
            floor.value = self.t;
        }

        let t = self.t;
        self.program.all_mut().for_each(|row| row.start(t, 1.0, 0.1));
        let tau = if self.program.floor.is_some() {
            // The multipliers of an inflation have the sum Σ w λ = γ.
            1.0 / self.program.all_mut().map(|row| row.linearise(t).multipliers.t).sum::<f64>().max(1.0 / t)
        } else {
            // About p of the N multipliers will be of order 1, the others 0.
            0.1 * (p as f64 / self.program.constraints.len().max(1) as f64).min(1.0)
        };
        self.program.all_mut().for_each(|row| row.start(t, relative_tau * tau, 0.1));
    }

    /// The equations of a step, and the quality of the iterate.
    fn newton(&mut self) -> Newton {
        let (&Program { rows, p, q, radius, .. }, t) = (&self.program, self.t);
        let inflating = self.program.floor.is_some();
        self.sums.iter_mut().for_each(Sums::clear);
        rows::sweep(rows, p, &mut self.program.constraints, &mut self.sums, |v, rows, sums| {
            let n = rows.len();
            let [mut root, mut border, mut pull, mut centring, mut gradient] = [[0.0; CHUNK]; 5];
            for (i, row) in rows.iter().enumerate() {
                let Linearised { stiffness, border: b, pull: u, centring: k, multipliers: m } = row.linearise(t);
                row.measure(t, &mut sums.scalars.measure);
                root[i] = row.scale * stiffness.sqrt();
                (border[i], sums.scalars.corner) = (row.scale * b.theta, sums.scalars.corner + b.t);
                (pull[i], sums.scalars.pull) = (row.scale * u.theta, sums.scalars.pull + u.t);
                (centring[i], sums.scalars.centring) = (row.scale * k.theta, sums.scalars.centring + k.t);
                (gradient[i], sums.scalars.gradient) = (row.scale * m.theta, sums.scalars.gradient + m.t);
            }
            sums.gram.add(v, &root[..n]);
            rows::add_combinations(
                v,
                [&pull[..n], &centring[..n], &gradient[..n]],
                [&mut sums.pull, &mut sums.centring, &mut sums.gradient],
            );
            if inflating {
                rows::add_combinations(v, [&border[..n]], [&mut sums.border]);
            }
        });

        let n = p + usize::from(inflating);
        let mut matrix = self.gram(n);
        let mut right = total(p, &self.sums, |s| &s.pull);
        let mut centring = total(p, &self.sums, |s| &s.centring);
        let gradient = total(p, &self.sums, |s| &s.gradient); // Aᵀ(±λ)
        let mut measure = Measure::default();
        self.sums.iter().for_each(|s| measure.merge(&s.scalars.measure));
        let proof = measure.dual - radius * gradient.iter().map(|g| g.abs()).sum::<f64>();
        let proven_violation = if measure.multipliers > 0.0 { proof / measure.multipliers } else { 0.0 };

        // The box and the quadratic term; `slope` is the gradient of the Lagrange function.
        let mut slope = vec![0.0; p];
        for j in 0..p {
            let side = &self.program.box_sides[j];
            let row = side.linearise(0.0);
            side.measure(0.0, &mut measure);
            let objective = q * self.theta[j] + self.program.c[j];
            matrix[j * n + j] += q + row.stiffness;
            right[j] += row.pull.theta - objective;
            centring[j] += row.centring.theta;
            slope[j] = objective - gradient[j] - row.multipliers.theta;
        }
        // The border of t.
        let gamma = self.program.gamma();
        if let Some(floor) = &self.program.floor {
            let row = floor.linearise(0.0);
            floor.measure(0.0, &mut measure);
            let scalar = |f: fn(&Scalars) -> f64| self.sums.iter().map(|s| f(&s.scalars)).sum::<f64>();
            matrix[p * n..p * n + p].copy_from_slice(&total(p, &self.sums, |s| &s.border));
            matrix[p * n + p] = scalar(|s| s.corner) + row.stiffness;
            right.push(scalar(|s| s.pull) + row.pull.theta - gamma);
            centring.push(scalar(|s| s.centring) + row.centring.theta);
            slope.push(gamma - scalar(|s| s.gradient) - row.multipliers.theta);
        }

        let square: f64 = self.theta.iter().map(|t| t * t).sum();
        let linear: f64 = self.theta.iter().zip(&self.program.c).map(|(t, c)| t * c).sum();
        let objective = 0.5 * q * square + linear + gamma * t;
        let dual_objective = measure.dual - 0.5 * q * square;
        let size = largest(self.theta.iter().copied()).max(1.0);
        let residuals = Residuals {
            primal: measure.residual / size,
            dual: largest(slope) / if q > 0.0 { size } else { 1.0 },
            gap: (objective - dual_objective).abs() / objective.abs().max(1.0),
        };
        Newton { matrix, right, centring, measure, residuals, proven_violation }
    }

    /// The predictor in every row: how far it can go, and `Aᵀ(± f ΔsΔλ/s)`.
    fn predict(&mut self, step: &[f64]) -> (Reach, Vec<f64>) {
        let (&Program { rows, p, .. }, t) = (&self.program, self.t);
        let t_step = step.get(p).copied().unwrap_or(0.0);
        for sums in &mut self.sums {
            sums.taken.fill(0.0);
            (sums.scalars.taken, sums.scalars.reach) = (0.0, Reach::default());
        }
        rows::sweep(rows, p, &mut self.program.constraints, &mut self.sums, |v, rows, sums| {
            let mut h = [0.0; CHUNK];
            let h = &mut h[..rows.len()];
            rows::products(v, &step[..p], h);
            for (row, h) in rows.iter_mut().zip(&mut *h) {
                let Share { theta, t } = row.predict(t, row.scale * *h, t_step, &mut sums.scalars.reach);
                *h = row.scale * theta;
                sums.scalars.taken += t;
            }
            rows::add_combinations(v, [h], [&mut sums.taken]);
        });
        let mut reach = Reach::default();
        self.sums.iter().for_each(|s| reach.merge(&s.scalars.reach));
        let mut taken = total(p, &self.sums, |s| &s.taken);
        for (j, side) in self.program.box_sides.iter_mut().enumerate() {
            taken[j] += side.predict(0.0, step[j], 0.0, &mut reach).theta;
        }
        if let Some(floor) = &mut self.program.floor {
            let rows: f64 = self.sums.iter().map(|s| s.scalars.taken).sum();
            taken.push(rows + floor.predict(0.0, t_step, 0.0, &mut reach).theta);
        }
        (reach, taken)
    }

    /// The corrector in every row, and how far it can go.
    fn correct(&mut self, step: &[f64], tau: f64, omega: f64) -> Reach {
        let (&Program { rows, p, .. }, t) = (&self.program, self.t);
        let t_step = step.get(p).copied().unwrap_or(0.0);
        for sums in &mut self.sums {
            sums.scalars.reach = Reach::default();
        }
        rows::sweep(rows, p, &mut self.program.constraints, &mut self.sums, |v, rows, sums| {
            let mut z = [0.0; CHUNK];
            rows::products(v, &step[..p], &mut z[..rows.len()]);
            for (row, z) in rows.iter_mut().zip(z) {
                row.correct(t, row.scale * z, t_step, tau, omega, &mut sums.scalars.reach);
            }
        });
        let mut reach = Reach::default();
        self.sums.iter().for_each(|s| reach.merge(&s.scalars.reach));
        for (side, step) in self.program.box_sides.iter_mut().chain(&mut self.program.floor).zip(step) {
            side.correct(0.0, *step, 0.0, tau, omega, &mut reach);
        }
        reach
    }

    /// Step lengths, a fraction of the way to the boundary. In a linear program the primal and the dual step are
    /// independent; the quadratic term couples them.
    fn lengths(&self, reach: &Reach, fraction: f64) -> (f64, f64) {
        let (primal, dual) = reach.lengths(fraction);
        if self.program.q > 0.0 { (primal.min(dual), primal.min(dual)) } else { (primal, dual) }
    }

    fn advance(&mut self, step: &[f64], primal: f64, dual: f64) {
        for (theta, step) in self.theta.iter_mut().zip(step) {
            *theta += primal * step;
        }
        self.t += primal * step.get(self.program.p).copied().unwrap_or(0.0);
        let Program { constraints, box_sides, floor, .. } = &mut self.program;
        parallel::each(constraints.chunks_mut(4096), |rows| rows.iter_mut().for_each(|row| row.advance(primal, dual)));
        box_sides.iter_mut().chain(floor).for_each(|row| row.advance(primal, dual));
    }

    /// The panels' `Vᵀ D V` in the upper left corner of an `n × n` matrix.
    fn gram(&self, n: usize) -> Vec<f64> {
        let mut matrix = vec![0.0; n * n];
        Gram::total(self.sums.iter().map(|s| &s.gram), &mut matrix, n);
        matrix
    }

    /// The iterate in the units of the body.
    fn solution(self, newton: &Newton, iterations: usize, status: Status) -> Solution {
        let Program { length, inflation_unit, objective_unit, constraints, box_sides, .. } = &self.program;
        let multiplier = |row: &Constraint| objective_unit / length * row.scale * row.multiplier();
        Solution {
            point: self.theta.iter().map(|t| t * length).collect(),
            t: self.t * inflation_unit,
            multipliers: constraints.iter().map(multiplier).collect(),
            box_multipliers: box_sides.iter().map(multiplier).collect(),
            proven_violation: newton.proven_violation * length,
            length: *length,
            residuals: newton.residuals,
            iterations,
            status,
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

/// `max |value|`, or NaN if there is one: a maximum that skipped it would declare a broken iterate optimal.
fn largest(values: impl IntoIterator<Item = f64>) -> f64 {
    values
        .into_iter()
        .fold(0.0, |largest: f64, value| if largest.is_nan() || value.is_nan() { f64::NAN } else { largest.max(value.abs()) })
}

//! What the interior-point method keeps of one row.
//!
//! A row `lower − w t ≤ z ≤ upper + w t`, `z = ⟨a, θ⟩`, has two *sides*, each an inequality
//!
//! ```text
//! g(θ, t) = ± z + w t − β ≥ 0          + with β = lower,   − with β = −upper
//! ```
//!
//! with a slack `s > 0` and a multiplier `λ > 0`. The method follows `s = g`, `λ s = τ` down to `τ → 0`; Newton's step is
//!
//! ```text
//! Δs = Δg + r                  r = g − s
//! Δλ = pull − d Δg − λ         d = λ / s,   pull = (τ − c) / s − d r
//! ```
//!
//! where `c = ΔsΔλ` of the predictor is Mehrotra's second-order correction. The multiplier after the step is therefore
//! `pull − d Δg`: a spring of stiffness `d`, and both sides of a row pull along the same `a`.
//!
//! A row so thin that both sides would vanish together is an equation `z = b` with a multiplier `y` of either sign. It is
//! met by the proximal method of multipliers, `y ← y + (b − z)/δ`: a spring of stiffness `1/δ`.

/// `δ` of the equations. In the units of the method lengths are about 1 and so is the stiffness of the rest.
const EQUATION_COMPLIANCE: f64 = 1e-8;

/// One inequality `± z + w t ≥ β`; absent when `β = −∞`.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub bound: f64,
    pub slack: f64,
    pub multiplier: f64,
    slack_step: f64,
    multiplier_step: f64,
}

impl Side {
    fn new(bound: f64) -> Self {
        Self { bound, slack: 1.0, multiplier: 0.0, slack_step: 0.0, multiplier_step: 0.0 }
    }

    fn is_present(&self) -> bool {
        self.bound > f64::NEG_INFINITY
    }

    fn stiffness(&self) -> f64 {
        self.multiplier / self.slack
    }
}

/// A row between two sides, or an equation.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Slab { lower: Side, upper: Side },
    Equation { target: f64, multiplier: f64, step: f64 },
}

/// One row: its scale, its place, its sides.
#[derive(Clone, Debug)]
pub(super) struct Constraint {
    /// `a = scale · v` is the row as the method sees it, of length 1.
    pub scale: f64,
    /// `w`, how fast the row opens with `t`.
    pub weight: f64,
    /// `z = ⟨a, θ⟩`.
    pub value: f64,
    value_step: f64,
    pub kind: Kind,
}

/// The part of a row in Newton's equations: `theta` times `a` in those of `θ`, `t` in that of `t`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    pub theta: f64,
    pub t: f64,
}

impl Share {
    fn add(&mut self, sign: f64, weight: f64, value: f64) {
        self.theta += sign * value;
        self.t += weight * value;
    }
}

/// Newton's equations, one row's contribution.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Linearised {
    /// `Σ d`, the coefficient of `a aᵀ`.
    pub stiffness: f64,
    /// `Σ ± w d`, the coefficient of `a` in the border that couples `θ` with `t`, and `Σ w² d` in its corner.
    pub border: Share,
    /// The pull with `τ = c = 0`.
    pub pull: Share,
    /// What `τ` adds: `τ Σ 1/s`.
    pub centring: Share,
    /// The multipliers.
    pub multipliers: Share,
}

/// Sums over the sides at the current point.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measure {
    /// `max |r|`.
    pub residual: f64,
    /// `Σ s λ`.
    pub complementarity: f64,
    /// The number of sides.
    pub sides: f64,
    /// `Σ β λ`, the rows' part of the dual objective.
    pub dual: f64,
    /// `Σ λ`.
    pub multipliers: f64,
}

impl Measure {
    pub fn merge(&mut self, other: &Self) {
        self.residual = self.residual.max(other.residual);
        self.complementarity += other.complementarity;
        self.sides += other.sides;
        self.dual += other.dual;
        self.multipliers += other.multipliers;
    }
}

/// How far a step can go, and what becomes of `Σ s λ` on the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    /// Largest `α` with `s + α Δs ≥ 0`.
    pub primal: f64,
    /// Largest `α` with `λ + α Δλ ≥ 0`.
    pub dual: f64,
    s_dl: f64,
    ds_l: f64,
    ds_dl: f64,
}

impl Default for Reach {
    fn default() -> Self {
        Self { primal: f64::INFINITY, dual: f64::INFINITY, s_dl: 0.0, ds_l: 0.0, ds_dl: 0.0 }
    }
}

impl Reach {
    fn note(&mut self, side: &Side) {
        if side.slack_step < 0.0 {
            self.primal = self.primal.min(-side.slack / side.slack_step);
        }
        if side.multiplier_step < 0.0 {
            self.dual = self.dual.min(-side.multiplier / side.multiplier_step);
        }
        self.s_dl += side.slack * side.multiplier_step;
        self.ds_l += side.slack_step * side.multiplier;
        self.ds_dl += side.slack_step * side.multiplier_step;
    }

    pub fn merge(&mut self, other: &Self) {
        self.primal = self.primal.min(other.primal);
        self.dual = self.dual.min(other.dual);
        self.s_dl += other.s_dl;
        self.ds_l += other.ds_l;
        self.ds_dl += other.ds_dl;
    }

    /// `Σ (s + α_p Δs)(λ + α_d Δλ)`, given `Σ s λ`.
    pub fn complementarity(&self, now: f64, primal: f64, dual: f64) -> f64 {
        (now + dual * self.s_dl + primal * self.ds_l + primal * dual * self.ds_dl).max(0.0)
    }
}

impl Constraint {
    /// `lower − w t ≤ ⟨scale · v, θ⟩ ≤ upper + w t`.
    pub fn slab(scale: f64, lower: f64, upper: f64, weight: f64) -> Self {
        let kind = Kind::Slab { lower: Side::new(lower), upper: Side::new(-upper) };
        Self { scale, weight, value: 0.0, value_step: 0.0, kind }
    }

    /// `⟨scale · v, θ⟩ = target`.
    pub fn equation(scale: f64, target: f64) -> Self {
        let kind = Kind::Equation { target, multiplier: 0.0, step: 0.0 };
        Self { scale, weight: 0.0, value: 0.0, value_step: 0.0, kind }
    }

    /// The middle of the row, or its only bound, or nothing.
    pub fn centre(&self) -> Option<f64> {
        match &self.kind {
            Kind::Equation { target, .. } => Some(*target),
            Kind::Slab { lower, upper } => match (lower.is_present(), upper.is_present()) {
                (true, true) => Some(0.5 * (lower.bound - upper.bound)),
                (true, false) => Some(lower.bound),
                (false, true) => Some(-upper.bound),
                (false, false) => None,
            },
        }
    }

    /// `max(−g, 0)` over the sides, at `t = 0`.
    pub fn violation(&self) -> f64 {
        let mut worst = 0.0;
        self.for_sides(0.0, |_, side, place| worst = f64::max(worst, side.bound - place));
        worst
    }

    /// Calls `f(sign, side, g + β)` for the sides that are present.
    fn for_sides(&self, t: f64, mut f: impl FnMut(f64, &Side, f64)) {
        if let Kind::Slab { lower, upper } = &self.kind {
            let open = self.weight * t;
            for (sign, side) in [(1.0, lower), (-1.0, upper)] {
                if side.is_present() {
                    f(sign, side, sign * self.value + open);
                }
            }
        }
    }

    fn for_sides_mut(&mut self, t: f64, mut f: impl FnMut(f64, &mut Side, f64)) {
        if let Kind::Slab { lower, upper } = &mut self.kind {
            let open = self.weight * t;
            for (sign, side) in [(1.0, lower), (-1.0, upper)] {
                if side.is_present() {
                    f(sign, side, sign * self.value + open);
                }
            }
        }
    }

    /// Sets every slack to `g`, or to a positive length of the row's own size where `g` is too small; `λ = τ/s`.
    pub fn start(&mut self, t: f64, tau: f64, least: f64) {
        let half_width = match &self.kind {
            Kind::Slab { lower, upper } => 0.5 * (-upper.bound - lower.bound).max(0.0),
            Kind::Equation { .. } => 0.0,
        };
        let floor = if half_width.is_finite() { (0.1 * half_width).max(f64::MIN_POSITIVE) } else { least };
        let floor = floor.max(self.weight * t * 0.1);
        self.for_sides_mut(t, |_, side, place| {
            let g = place - side.bound;
            side.slack = if g > floor { g } else { floor.max(-g) };
            side.multiplier = tau / side.slack;
        });
    }

    /// Adds this row to the sums over all rows.
    pub fn measure(&self, t: f64, sum: &mut Measure) {
        if let Kind::Equation { target, multiplier, .. } = self.kind {
            sum.residual = sum.residual.max((target - self.value).abs());
            sum.dual += target * multiplier;
            sum.multipliers += multiplier.abs();
        }
        self.for_sides(t, |_, side, place| {
            sum.residual = sum.residual.max((place - side.bound - side.slack).abs());
            sum.complementarity += side.slack * side.multiplier;
            sum.sides += 1.0;
            sum.dual += side.bound * side.multiplier;
            sum.multipliers += side.multiplier;
        });
    }

    /// This row in Newton's equations.
    pub fn linearise(&self, t: f64) -> Linearised {
        let mut row = Linearised::default();
        if let Kind::Equation { target, multiplier, .. } = self.kind {
            row.stiffness = 1.0 / EQUATION_COMPLIANCE;
            row.pull.theta = multiplier + (target - self.value) / EQUATION_COMPLIANCE;
            row.multipliers.theta = multiplier;
        }
        let w = self.weight;
        self.for_sides(t, |sign, side, place| {
            let (d, r) = (side.stiffness(), place - side.bound - side.slack);
            row.stiffness += d;
            row.border.add(sign, w, w * d);
            row.pull.add(sign, w, -d * r);
            row.centring.add(sign, w, 1.0 / side.slack);
            row.multipliers.add(sign, w, side.multiplier);
        });
        row
    }

    /// The predictor: the step to `τ = 0`. Returns what its second-order term `c` will take from the pull.
    pub fn predict(&mut self, t: f64, z_step: f64, t_step: f64, reach: &mut Reach) -> Share {
        let (mut taken, w) = (Share::default(), self.weight);
        self.for_sides_mut(t, |sign, side, place| {
            let (d, r) = (side.stiffness(), place - side.bound - side.slack);
            side.slack_step = sign * z_step + w * t_step + r;
            side.multiplier_step = -side.multiplier - d * side.slack_step;
            taken.add(sign, w, side.slack_step * side.multiplier_step / side.slack);
            reach.note(side);
        });
        taken
    }

    /// The corrector: the step to `τ`, given the predictor's second-order term.
    pub fn correct(&mut self, t: f64, z_step: f64, t_step: f64, tau: f64, reach: &mut Reach) {
        self.value_step = z_step;
        if let Kind::Equation { target, step, .. } = &mut self.kind {
            *step = (*target - self.value - z_step) / EQUATION_COMPLIANCE;
        }
        let w = self.weight;
        self.for_sides_mut(t, |sign, side, place| {
            let (d, r) = (side.stiffness(), place - side.bound - side.slack);
            let c = side.slack_step * side.multiplier_step;
            side.slack_step = sign * z_step + w * t_step + r;
            side.multiplier_step = (tau - c) / side.slack - side.multiplier - d * side.slack_step;
            reach.note(side);
        });
    }

    /// Goes `primal` of the way in `z` and the slacks, `dual` of the way in the multipliers.
    pub fn advance(&mut self, primal: f64, dual: f64) {
        self.value += primal * self.value_step;
        if let Kind::Equation { multiplier, step, .. } = &mut self.kind {
            *multiplier += dual * *step;
        }
        self.for_sides_mut(0.0, |_, side, _| {
            side.slack += primal * side.slack_step;
            side.multiplier += dual * side.multiplier_step;
        });
    }

    /// `λ_lower − λ_upper`, or the multiplier of the equation.
    pub fn multiplier(&self) -> f64 {
        self.linearise(0.0).multipliers.theta
    }
}

//! What the interior-point method keeps of one row, and what the row contributes to a step.
//!
//! A row `lower − w t ≤ z ≤ upper + w t`, `z = ⟨a, θ⟩`, has two *sides*, each an inequality
//!
//! ```text
//! g(θ, t) = ± z + w t − β ≥ 0          + with β = lower,   − with β = −upper
//! ```
//!
//! with a slack `s > 0` and a multiplier `λ > 0`. The method follows `s = g`, `λ s = τ` down to `τ → 0`; a step solves
//!
//! ```text
//! Δs = Δg + r + δ Δλ                 r = g − s
//! λ Δs + s Δλ = τ − λ s − c          c = ω ΔsΔλ of the predictor, Mehrotra's second-order correction
//! ```
//!
//! which is Newton's step but for `δ Δλ`, the damping of the proximal method of multipliers: it vanishes as the steps do.
//! The multiplier after the step is that of a spring,
//!
//! ```text
//! λ + Δλ = pull − k Δg,     k = 1 / (s/λ + δ),     pull = f (τ − c)/s + (1 − f) λ − k r,     f = 1 / (1 + δ λ/s)
//! ```
//!
//! whose stiffness `k` stays below `1/δ`, even where two rows leave each other no room and `s → 0` while `λ → ∞`.
//! Both sides of a row pull along the same `a`.
//!
//! A row so thin that its sides would vanish together is an equation `z = b`, with a multiplier `y` of either sign: the
//! spring with `s/λ = 0`, `y + Δy = y + (b − z − Δz)/δ`.

/// `δ` of a side. In the units of the method lengths are about 1, and so are the multipliers of what is active.
const SIDE_COMPLIANCE: f64 = 1e-11;

/// `δ` of an equation: softer, as nothing but `δ` bounds its stiffness from the first step on.
const EQUATION_COMPLIANCE: f64 = 1e-10;

/// One inequality `± z + w t ≥ β`; absent when `β = −∞`.
#[derive(Clone, Debug)]
struct Side {
    bound: f64,
    compliance: f64,
    slack: f64,
    multiplier: f64,
    slack_step: f64,
    multiplier_step: f64,
}

impl Side {
    fn new(bound: f64, compliance: f64) -> Self {
        Self { bound, compliance, slack: 1.0, multiplier: 0.0, slack_step: 0.0, multiplier_step: 0.0 }
    }

    /// The spring's `f / s` and `k`.
    fn spring(&self) -> (f64, f64) {
        let inverse = 1.0 / (self.slack + self.compliance * self.multiplier); // f / s, in one division
        (inverse, inverse * self.multiplier)
    }

    /// `r = g − s`, where `place = g + β`.
    fn residual(&self, place: f64) -> f64 {
        place - self.bound - self.slack
    }

    /// The step with `target = τ − c` when `g` moves so that `travel = Δg + r`.
    fn step(&mut self, travel: f64, target: f64) {
        let (f_s, k) = self.spring();
        self.multiplier_step = f_s * (target - self.multiplier * self.slack) - k * travel;
        self.slack_step = travel + self.compliance * self.multiplier_step;
    }
}

/// A row between two sides, or an equation.
#[derive(Clone, Debug)]
enum Kind {
    Slab { lower: Side, upper: Side },
    Equation { target: f64, compliance: f64, multiplier: f64, step: f64 },
}

/// One row.
#[derive(Clone, Debug)]
pub(super) struct Constraint {
    /// `a = scale · v` is the row as the method sees it, of length 1.
    pub scale: f64,
    /// `w`, how fast the row opens with `t`.
    weight: f64,
    /// `z = ⟨a, θ⟩`.
    pub value: f64,
    value_step: f64,
    kind: Kind,
}

/// A row's part in the equations: `theta` times `a` in those of `θ`, and `t` in that of `t`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    pub theta: f64,
    pub t: f64,
}

impl Share {
    /// Adds a force on one side, which pulls `z` up or down and opens with speed `w`.
    fn add(&mut self, sign: f64, weight: f64, force: f64) {
        self.theta += sign * force;
        self.t += weight * force;
    }
}

/// A row in the equations of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Linearised {
    /// `Σ k`, the coefficient of `a aᵀ`.
    pub stiffness: f64,
    /// `Σ ± w k`, the coefficient of `a` in the border that couples `θ` with `t`, and `Σ w² k` in its corner.
    pub border: Share,
    /// The pull when `τ = c = 0`.
    pub pull: Share,
    /// What `τ` adds to it, for `τ = 1`.
    pub centring: Share,
    /// The multipliers.
    pub multipliers: Share,
}

/// Sums over the sides at an iterate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measure {
    /// `max |r|`.
    pub residual: f64,
    /// `Σ λ s`.
    pub complementarity: f64,
    /// The number of sides.
    pub sides: f64,
    /// `Σ λ β`, the rows' part of the dual objective.
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

/// How far a step can go, and what becomes of `Σ λ s` on the way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reach {
    /// `max −Δs/s`: the slacks stay positive up to one over this part of the step.
    primal: f64,
    /// `max −Δλ/λ`.
    dual: f64,
    /// `Σ s Δλ`, `Σ Δs λ` and `Σ Δs Δλ`.
    products: [f64; 3],
}

impl Reach {
    fn note(&mut self, side: &Side) {
        self.primal = self.primal.max(-side.slack_step / side.slack);
        self.dual = self.dual.max(-side.multiplier_step / side.multiplier);
        self.products[0] += side.slack * side.multiplier_step;
        self.products[1] += side.slack_step * side.multiplier;
        self.products[2] += side.slack_step * side.multiplier_step;
    }

    /// The parts of the primal and of the dual step that lead `fraction` of the way to the boundary, at most 1.
    pub fn lengths(&self, fraction: f64) -> (f64, f64) {
        (fraction / self.primal.max(fraction), fraction / self.dual.max(fraction))
    }

    pub fn merge(&mut self, other: &Self) {
        self.primal = self.primal.max(other.primal);
        self.dual = self.dual.max(other.dual);
        for (sum, term) in self.products.iter_mut().zip(other.products) {
            *sum += term;
        }
    }

    /// `Σ (λ + α_d Δλ)(s + α_p Δs)`, given `Σ λ s`.
    pub fn complementarity(&self, now: f64, primal: f64, dual: f64) -> f64 {
        let [s_dl, ds_l, ds_dl] = self.products;
        (now + dual * s_dl + primal * ds_l + primal * dual * ds_dl).max(0.0)
    }
}

impl Constraint {
    /// `lower − w t ≤ ⟨scale · v, θ⟩ ≤ upper + w t`, with `δ` multiplied by `softness`.
    pub fn slab(scale: f64, lower: f64, upper: f64, weight: f64, softness: f64) -> Self {
        // A slab's multipliers start near τ over its half-width, and δ times that must be small beside the half-width.
        let half_width = 0.5 * (upper - lower);
        let compliance = softness * SIDE_COMPLIANCE.min((half_width * half_width).max(1e-20));
        let kind = Kind::Slab { lower: Side::new(lower, compliance), upper: Side::new(-upper, compliance) };
        Self { scale, weight, value: 0.0, value_step: 0.0, kind }
    }

    /// `⟨scale · v, θ⟩ = target`, with `δ` multiplied by `softness`.
    pub fn equation(scale: f64, target: f64, softness: f64) -> Self {
        let kind = Kind::Equation { target, compliance: softness * EQUATION_COMPLIANCE, multiplier: 0.0, step: 0.0 };
        Self { scale, weight: 0.0, value: 0.0, value_step: 0.0, kind }
    }

    /// The middle of the row, or its only bound, or nothing.
    pub fn centre(&self) -> Option<f64> {
        match &self.kind {
            Kind::Equation { target, .. } => Some(*target),
            Kind::Slab { lower, upper } => match (lower.bound.is_finite(), upper.bound.is_finite()) {
                (true, true) => Some(0.5 * (lower.bound - upper.bound)),
                (true, false) => Some(lower.bound),
                (false, true) => Some(-upper.bound),
                (false, false) => None,
            },
        }
    }

    /// Calls `f(sign, side, g + β)` for the sides that are present.
    fn for_sides(&self, t: f64, mut f: impl FnMut(f64, &Side, f64)) {
        if let Kind::Slab { lower, upper } = &self.kind {
            for (sign, side) in [(1.0, lower), (-1.0, upper)] {
                if side.bound > f64::NEG_INFINITY {
                    f(sign, side, sign * self.value + self.weight * t);
                }
            }
        }
    }

    /// The same, to change them.
    fn for_sides_mut(&mut self, t: f64, mut f: impl FnMut(f64, &mut Side, f64)) {
        if let Kind::Slab { lower, upper } = &mut self.kind {
            for (sign, side) in [(1.0, lower), (-1.0, upper)] {
                if side.bound > f64::NEG_INFINITY {
                    f(sign, side, sign * self.value + self.weight * t);
                }
            }
        }
    }

    /// The `t ≥ 0` from which on the row is satisfied where it stands; 0 for a row that does not open.
    pub fn opening(&self) -> f64 {
        let mut t = 0.0;
        if self.weight > 0.0 {
            self.for_sides(0.0, |_, side, place| t = f64::max(t, (side.bound - place) / self.weight));
        }
        t
    }

    /// Sets the slacks to `g`, or to a length of the row's own size where `g` is too small (`least` where the row has no
    /// size), and the multipliers to `τ/s`.
    pub fn start(&mut self, t: f64, tau: f64, least: f64) {
        let floor = match &self.kind {
            Kind::Slab { lower, upper } => 0.1 * (0.5 * (-upper.bound - lower.bound) + self.weight * t),
            Kind::Equation { .. } => return,
        };
        let floor = if floor.is_finite() { floor } else { least };
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
            sum.residual = sum.residual.max(side.residual(place).abs());
            sum.complementarity += side.slack * side.multiplier;
            sum.sides += 1.0;
            sum.dual += side.bound * side.multiplier;
            sum.multipliers += side.multiplier;
        });
    }

    /// This row in the equations of a step.
    pub fn linearise(&self, t: f64) -> Linearised {
        let mut row = Linearised::default();
        if let Kind::Equation { target, compliance, multiplier, .. } = self.kind {
            row.stiffness = 1.0 / compliance;
            row.pull.theta = multiplier + (target - self.value) / compliance;
            row.multipliers.theta = multiplier;
        }
        let w = self.weight;
        self.for_sides(t, |sign, side, place| {
            let (f_s, k) = side.spring();
            row.stiffness += k;
            row.border.add(sign, w, w * k);
            // (1 − f) λ = δ k λ
            row.pull.add(sign, w, k * (side.compliance * side.multiplier - side.residual(place)));
            row.centring.add(sign, w, f_s);
            row.multipliers.add(sign, w, side.multiplier);
        });
        row
    }

    /// The predictor: the step to `τ = 0`. Returns `Σ ± f ΔsΔλ/s`, which the second-order term takes from the pull.
    pub fn predict(&mut self, t: f64, z_step: f64, t_step: f64, reach: &mut Reach) -> Share {
        let (mut taken, w) = (Share::default(), self.weight);
        self.for_sides_mut(t, |sign, side, place| {
            side.step(sign * z_step + w * t_step + side.residual(place), 0.0);
            taken.add(sign, w, side.spring().0 * side.slack_step * side.multiplier_step);
            reach.note(side);
        });
        taken
    }

    /// The corrector: the step to `τ`, with `ω` times the predictor's second-order term.
    pub fn correct(&mut self, t: f64, z_step: f64, t_step: f64, tau: f64, omega: f64, reach: &mut Reach) {
        self.value_step = z_step;
        if let Kind::Equation { target, compliance, step, .. } = &mut self.kind {
            *step = (*target - self.value - z_step) / *compliance;
        }
        let w = self.weight;
        self.for_sides_mut(t, |sign, side, place| {
            let c = omega * side.slack_step * side.multiplier_step;
            side.step(sign * z_step + w * t_step + side.residual(place), tau - c);
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
        match &self.kind {
            Kind::Equation { multiplier, .. } => *multiplier,
            Kind::Slab { lower, upper } => lower.multiplier - upper.multiplier,
        }
    }
}

//! How hard a target is for a layer: upper bounds `B(f)` on its squared norm in the space of functions of the [kernel](super::KernelSpec).
//!
//! On the unit sphere the kernels are power series in inner products. With `κ(ρ) = Σ_k c_k ρ^k`,
//!
//! ```text
//! RFA     (1/N²) Σ_ij Σ_ab w_ab s_0^a s_ij^b,   w_ab = Σ_k c_k 4^{−k} C(k,a) C(k+1,b)
//! RFMLP   Σ_q v_q (Σ_i s_i)^q,                  v_q  = Σ_k c_k (N+2)^{−k} C(k,q)
//! ```
//!
//! with positive weights, so `(1/N) Σ_i ⟨T, x_0^{⊗a} ⊗ x_i^{⊗b}⟩` has squared norm at most `‖T‖²/w_ab` for attention, and `⟨T, z^{⊗q}⟩`,
//! `z = vec(x_{0:N})`, at most `‖T‖²/v_q` for the perceptron. Any tensor that gives the function will do:
//!
//! | target | RFA | RFMLP |
//! |---|---|---|
//! | query | `1/w_{p0}` | `1/v_p` |
//! | average | `1/w_{0p}` | `1/(N v_p)` |
//! | correlation | `τ/w_{p,p+q}` | `τ/(N C(2p+q,p) v_{2p+q})` |
//!
//! The plain tensor `I^{⊗p} ⊗ β^{⊗q}` has `τ = d^p` (a rotation for `I` changes nothing). Made symmetric in the `p+q` places of the key it
//! gives the same function with the least norm, `τ = C(d+p+q−1, p) p! q!/(p+q)!`: [`Complexity::plain`] and [`Complexity::sharp`].
//! For with `β = e_1` it is, but for parts that symmetry cancels, `Σ_k e_k ⊗ e_k ⊗ β^{⊗q}` over the tensors `e_k` of monomials `x^k`, `|k| = p`, of norm 1;
//! since `x^k` has squared norm `Π_i k_i!/p!`, making `e_k ⊗ β^{⊗q}` symmetric leaves `p! q!/(p+q)! · C(k_1+q, q)` of it, and
//! `Σ_k C(k_1+q, q)` is the coefficient of `z^p` in `(1−z)^{−(q+1)} (1−z)^{−(d−1)}`.
//! The binomial `C(2p+q, p)` comes of making the perceptron's tensor symmetric between query and key places.
//! For a sum, `√B` is the sum of the `√B` of its terms.
//!
//! No bound is given for biased heads (polynomials of `⟨x_0, x_i⟩` are limits of the smooth functions that they represent, but we know of
//! no exact representation), for the softmax head, off the sphere, or where lengths vary and the perceptron would have to divide by them.

use super::kernel::series;
use super::target::binomial;
use super::{KernelSpec, SetInputs, TargetSpec, Tokens};

/// Upper bounds on a squared norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Complexity {
    /// With the tensor as written.
    pub plain: f64,
    /// With the symmetric tensor: at most `plain`.
    pub sharp: f64,
}

/// Terms of the power series: their ratio falls below ½ soon after the degree of the target.
const TERMS: usize = 400;

impl TargetSpec {
    /// Bounds on the squared norm of the target before it is divided by its standard deviation (divide them by the variance for the
    /// norm of the values), or `None` where we know none.
    pub fn complexity(&self, kernel: &KernelSpec, inputs: &SetInputs) -> Option<Complexity> {
        if inputs.tokens != Tokens::Sphere {
            return None;
        }
        let (n, d) = (inputs.keys as f64, inputs.d as u32);
        let (a, b, plain, sharp) = match *self {
            Self::Query { p } => (p, 0, 1.0, 1.0),
            Self::Average { p } => (0, p, 1.0, 1.0),
            Self::Correlation { p, q, .. } => {
                let sharp = binomial(d + p + q - 1, p) / binomial(p + q, p);
                (p, p + q, f64::from(d).powi(p as i32), sharp)
            }
            Self::Mixed { gamma, ref simple, ref hard } => {
                let root = |spec: &Self| {
                    let (bound, (_, variance)) = (spec.complexity(kernel, inputs)?, spec.moments(inputs)?);
                    Some(((bound.plain / variance).sqrt(), (bound.sharp / variance).sqrt()))
                };
                let (simple, hard) = (root(simple)?, root(hard)?);
                let sum = |s: f64, h: f64| (gamma * s + (1.0 - gamma) * h).powi(2);
                return Some(Complexity { plain: sum(simple.0, hard.0), sharp: sum(simple.1, hard.1) });
            }
            Self::Softmax { .. } => return None,
        };
        let weight = match kernel {
            KernelSpec::Rfa => sum_series(4.0, |k| binomial(k, a) * binomial(k + 1, b)),
            KernelSpec::Rfmlp if b == 0 => sum_series(n + 2.0, |k| binomial(k, a)),
            KernelSpec::Rfmlp if inputs.min_keys == inputs.keys => {
                n * binomial(a + b, a) * sum_series(n + 2.0, |k| binomial(k, a + b))
            }
            KernelSpec::Rfmlp | KernelSpec::Brfa { .. } => return None,
        };
        Some(Complexity { plain: plain / weight, sharp: sharp / weight })
    }
}

/// `Σ_k c_k base^{−k} count(k)`.
fn sum_series(base: f64, count: impl Fn(u32) -> f64) -> f64 {
    series(TERMS).iter().zip(0u32..).map(|(c, k)| c * base.powi(-(k as i32)) * count(k)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{SetStream, Sets, Target};
    use crate::linalg::{Mat, solve_spd};

    fn bound(text: &str, kernel: &KernelSpec) -> Complexity {
        text.parse::<TargetSpec>().unwrap().complexity(kernel, &SetInputs::new(16, 16)).unwrap()
    }

    /// The figures of d = N = 16 to their two or three digits.
    #[test]
    fn plain_bounds_at_sixteen() {
        let figures = [
            ("query:p=2", 195.0, 0.5, 4.1e3, 50.0),
            ("query:p=3", 8.8e3, 50.0, 3.9e6, 5e4),
            ("average:p=3", 190.0, 0.5, 2.5e5, 5e3),
            ("average:p=5", 2.6e4, 500.0, 1.8e8, 5e6),
            ("correlation:p=1,q=1", 171.0, 0.5, 1.3e6, 5e4),
            ("correlation:p=3,q=2", 9.4e6, 5e4, 5.3e13, 5e11),
        ];
        for (text, attention, half, perceptron, other_half) in figures {
            let (a, p) = (bound(text, &KernelSpec::Rfa), bound(text, &KernelSpec::Rfmlp));
            println!("{text}: RFA {:.4e} sharp {:.4e}, RFMLP {:.4e} sharp {:.4e}", a.plain, a.sharp, p.plain, p.sharp);
            assert!((a.plain - attention).abs() <= half, "{text}: {}", a.plain);
            assert!((p.plain - perceptron).abs() <= other_half, "{text}: {}", p.plain);
            assert!(a.sharp <= a.plain && p.sharp <= p.plain);
        }
        assert!(
            (bound("correlation:p=1,q=1", &KernelSpec::Rfa).sharp / bound("correlation:p=1,q=1", &KernelSpec::Rfa).plain
                - 17.0 / 32.0)
                .abs()
                < 1e-12
        );
    }

    /// `τ` against the tensor `I^{⊗p} ⊗ β^{⊗q}` made symmetric entry by entry; at d = 16 the plain bound of (3,2) is 36 times larger.
    #[test]
    fn the_sharp_bound_is_the_norm_of_the_symmetric_tensor() {
        fn orders(n: usize) -> Vec<Vec<usize>> {
            if n == 0 {
                return vec![Vec::new()];
            }
            let put = |order: &[usize], at: usize| [&order[..at], &[n - 1], &order[at..]].concat();
            orders(n - 1).iter().flat_map(|order| (0..n).map(|at| put(order, at)).collect::<Vec<_>>()).collect()
        }
        let tau = |d: usize, p: u32, q: u32| {
            let spec = TargetSpec::Correlation { p, q, rotated: false };
            let bound = spec.complexity(&KernelSpec::Rfa, &SetInputs::new(3, d)).unwrap();
            bound.sharp / bound.plain * (d as f64).powi(p as i32)
        };
        for (d, p, q) in [(2usize, 1u32, 1u32), (3, 2, 0), (2, 2, 1), (3, 1, 2), (3, 2, 2), (2, 3, 2)] {
            let (places, orders) = ((p + q) as usize, orders((p + q) as usize));
            let beta: Vec<f64> = (0..d).map(|i| [0.6, -0.48, 0.64][i]).collect();
            let norm = beta.iter().map(|b| b * b).sum::<f64>().sqrt();
            let digits = |mut code: usize, len: usize| -> Vec<usize> { (0..len).map(|_| (code % d, code /= d).0).collect() };
            let mut square = 0.0;
            for query in (0..d.pow(p)).map(|code| digits(code, p as usize)) {
                for key in (0..d.pow(p + q)).map(|code| digits(code, places)) {
                    let entry = |order: &Vec<usize>| -> f64 {
                        let diagonal = (0..p as usize).all(|j| query[j] == key[order[j]]);
                        if diagonal { order[p as usize..].iter().map(|&j| beta[key[j]] / norm).product() } else { 0.0 }
                    };
                    square += (orders.iter().map(entry).sum::<f64>() / orders.len() as f64).powi(2);
                }
            }
            assert!((square / tau(d, p, q) - 1.0).abs() < 1e-12, "d = {d}, ({p},{q}): {square} and {}", tau(d, p, q));
        }
        assert!((16f64.powi(3) / tau(16, 3, 2) - 35.93).abs() < 0.01);
    }

    /// `yᵀ K⁻¹ y` on any sample is a lower bound of the squared norm: it must not pass the upper one.
    #[test]
    fn no_interpolant_has_a_larger_norm() {
        let inputs = SetInputs::new(2, 2);
        for text in [
            "query:p=1",
            "query:p=2",
            "average:p=2",
            "average:p=3",
            "correlation:p=1,q=1",
            "correlation:p=2,q=1",
            "mixed:gamma=0.3,simple=query:p=1,hard=average:p=2",
        ] {
            let spec: TargetSpec = text.parse().unwrap();
            let target = Target::new(&spec, inputs, 3).unwrap();
            let variance = target.variance();
            let sets = Sets::read(&SetStream::new(target, 1, 150)).unwrap();
            for kernel in [KernelSpec::Rfa, KernelSpec::Rfmlp] {
                let k = kernel.matrix(sets.block()).unwrap();
                let y = Mat::from_fn(150, 1, |i, _| sets.block().y[i]);
                let norm = (y.transpose() * solve_spd(k.as_ref(), y.as_ref()))[(0, 0)] * variance;
                let bound = spec.complexity(&kernel, &inputs).unwrap();
                println!("{text} {kernel:?}: {norm:.3} of {:.3}, plain {:.3}", bound.sharp, bound.plain);
                assert!(norm <= bound.sharp * 1.0001 && norm > 0.02 * bound.sharp, "{text} {kernel:?}: {norm} of {bound:?}");
            }
        }
    }

    #[test]
    fn unknown_bounds_are_none() {
        let inputs = SetInputs::new(4, 3);
        let query = TargetSpec::Query { p: 1 };
        let biased = KernelSpec::Brfa { mean: crate::features::Mean::Identity { scale: 1.0 } };
        assert!(query.complexity(&biased, &inputs).is_none());
        assert!(TargetSpec::Softmax { scale: 1.0 }.complexity(&KernelSpec::Rfa, &inputs).is_none());
        assert!(query.complexity(&KernelSpec::Rfa, &SetInputs { tokens: Tokens::Gaussian, ..inputs }).is_none());
        let ragged = SetInputs { min_keys: 2, ..inputs };
        assert!(TargetSpec::Average { p: 1 }.complexity(&KernelSpec::Rfmlp, &ragged).is_none());
        assert!(TargetSpec::Average { p: 1 }.complexity(&KernelSpec::Rfa, &ragged).is_some());
    }
}

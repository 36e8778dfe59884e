//! Targets of a set, of growing difficulty, and their means and variances.
//!
//! | text | target | |
//! |---|---|---|
//! | `query:p=3` | `⟨β, x_0⟩^p` | the query alone |
//! | `average:p=5` | `(1/N) Σ_i ⟨β, x_i⟩^p` | the keys alone |
//! | `correlation:p=4,q=2` | `(1/N) Σ_i ⟨x_0, S x_i⟩^p ⟨β, x_i⟩^q` | `S = I`, or a random rotation with `,s=rotation` |
//! | `mixed:gamma=0.5,simple=average:p=1,hard=correlation:p=4,q=2` | `γ f/sd(f) + (1−γ) g/sd(g)` | two of the others, one β |
//! | `softmax:scale=4` | `Σ_i softmax_i(⟨x_0, Θ x_i⟩) ⟨β, x_i⟩` | `Θ` with iid `N(0, scale²)` entries |
//!
//! `β` is a random unit vector. Values are divided by the standard deviation of the target (and not centred). Means and variances of the
//! first three are closed forms; those of the last two are estimated from [`Target::DRAWS`] seeded draws.
//!
//! **Closed forms.** With `x = |x| u`, `u` uniform on the sphere, `m_k = E⟨β,u⟩^k` and `ϱ_k = E|x|^k`, a term `g = ⟨x_0,x⟩^p ⟨β,x⟩^q` has
//! `E g² = m_{2p} m_{2q} ϱ_{2p} ϱ_{2p+2q}`, and since terms are independent given the query,
//!
//! ```text
//! Var f = (E g² − E h²) E[1/N] + E h² − (E g)²,      h(x_0) = E[g | x_0] = |x_0|^p ϱ_{p+q} Σ_j a_j ⟨β, u_0⟩^j
//! a_j = j! C(p,j) C(q,j) (p−j−1)!! (q−j−1)!! / d(d+2)…(d+p+q−2)     (p−j and q−j even)
//! ```
//!
//! by Wick's formula. The average is `p = 0`; the query is the case of one term.

use super::inputs::SetInputs;
use crate::linalg::{Mat, row_major};
use crate::memory::{ask, numbers};
use crate::{Error, Result};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A family of targets with its parameters; see the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetSpec {
    /// `⟨β, x_0⟩^p`.
    Query {
        /// Degree.
        p: u32,
    },
    /// `(1/N) Σ_i ⟨β, x_i⟩^p`.
    Average {
        /// Degree.
        p: u32,
    },
    /// `(1/N) Σ_i ⟨x_0, S x_i⟩^p ⟨β, x_i⟩^q`.
    Correlation {
        /// Degree in the correlation with the query.
        p: u32,
        /// Degree in the key alone.
        q: u32,
        /// Whether `S` is a random rotation rather than the identity.
        rotated: bool,
    },
    /// `γ simple + (1−γ) hard`, each of unit variance.
    Mixed {
        /// Weight of the simple part, in `[0, 1]`.
        gamma: f64,
        /// Not itself mixed.
        simple: Box<TargetSpec>,
        /// Not itself mixed.
        hard: Box<TargetSpec>,
    },
    /// A softmax attention head.
    Softmax {
        /// Standard deviation of its logits on the unit sphere.
        scale: f64,
    },
}

/// The largest degree: beyond it powers of inner products are noise.
const MAX_DEGREE: u32 = 32;

impl TargetSpec {
    /// Whether the parameters make sense.
    pub fn check(&self) -> Result<()> {
        let bad = |remedy: &str| Err(Error::input("target", format!("{self}"), remedy));
        match self {
            Self::Query { p } | Self::Average { p } if !(1..=MAX_DEGREE).contains(p) => bad("give p between 1 and 32"),
            Self::Correlation { p, q, .. } if !(1..=MAX_DEGREE).contains(&p.saturating_add(*q)) => {
                bad("give p + q between 1 and 32")
            }
            Self::Mixed { gamma, .. } if !(0.0..=1.0).contains(gamma) => bad("give gamma between 0 and 1"),
            Self::Mixed { simple, hard, .. } => {
                if [simple, hard].iter().any(|part| matches!(***part, Self::Mixed { .. })) {
                    return bad("mix two targets that are not mixed");
                }
                simple.check()?;
                hard.check()
            }
            Self::Softmax { scale } if !(scale.is_finite() && *scale >= 0.0) => bad("give a scale that is 0 or more"),
            _ => Ok(()),
        }
    }

    /// Mean and variance before normalisation, where a closed form is known.
    pub fn moments(&self, inputs: &SetInputs) -> Option<(f64, f64)> {
        match *self {
            Self::Query { p } => {
                let [m, square] = [p, 2 * p].map(|k| sphere_moment(inputs.d, k) * inputs.radial_moment(k));
                Some((m, square - m * m))
            }
            Self::Average { p } => Some(correlation_moments(0, p, inputs)),
            Self::Correlation { p, q, .. } => Some(correlation_moments(p, q, inputs)),
            Self::Mixed { .. } | Self::Softmax { .. } => None,
        }
    }
}

/// `E⟨β,u⟩^k` on the unit sphere: `(k−1)!! / d(d+2)…(d+k−2)`, 0 if `k` is odd.
fn sphere_moment(d: usize, k: u32) -> f64 {
    if k % 2 == 1 { 0.0 } else { (0..k / 2).map(|i| f64::from(2 * i + 1) / (d as f64 + f64::from(2 * i))).product() }
}

/// Mean and variance of `(1/N) Σ_i ⟨x_0, x_i⟩^p ⟨β, x_i⟩^q`; a rotation changes neither.
fn correlation_moments(p: u32, q: u32, inputs: &SetInputs) -> (f64, f64) {
    let m = |k| sphere_moment(inputs.d, k);
    let radial = |k| inputs.radial_moment(k);
    let mean = if p.is_multiple_of(2) && q.is_multiple_of(2) { m(p) * m(q) * radial(p) * radial(p + q) } else { 0.0 };
    let square = m(2 * p) * m(2 * q) * radial(2 * p) * radial(2 * p + 2 * q);
    let mut given = 0.0; // E h²
    if (p + q).is_multiple_of(2) {
        let odd = |k: u32| (0..k / 2).map(|i| f64::from(2 * i + 1)).product::<f64>(); // (k−1)!! for even k
        let falling: f64 = (0..(p + q) / 2).map(|i| inputs.d as f64 + f64::from(2 * i)).product();
        let a = |j: u32| {
            let factorial: f64 = (1..=j).map(f64::from).product();
            factorial * binomial(p, j) * binomial(q, j) * odd(p - j) * odd(q - j) / falling
        };
        let all: Vec<(u32, f64)> = (p % 2..=p.min(q)).step_by(2).map(|j| (j, a(j))).collect();
        for (i, a_i) in &all {
            for (j, a_j) in &all {
                given += a_i * a_j * m(i + j);
            }
        }
        given *= radial(2 * p) * radial(p + q).powi(2);
    }
    (mean, (square - given) * inputs.mean_inverse_length() + given - mean * mean)
}

/// `C(n, k)`.
pub(super) fn binomial(n: u32, k: u32) -> f64 {
    if k > n { 0.0 } else { (0..k).map(|i| f64::from(n - i) / f64::from(k - i)).product() }
}

/// A target whose parameters have been drawn, of unit variance over its inputs.
#[derive(Clone, Debug)]
pub struct Target {
    spec: TargetSpec,
    inputs: SetInputs,
    form: Form,
    mean: f64,
    variance: f64,
}

/// What is computed.
#[derive(Clone, Debug)]
enum Form {
    Query { p: i32, beta: Vec<f64> },
    Correlation { p: i32, q: i32, s: Option<Vec<f64>>, beta: Vec<f64> },
    Mixed(Vec<(f64, Form)>),
    Softmax { theta: Vec<f64>, beta: Vec<f64> },
}

/// Streams of a seed that no block of sets uses.
const PARAMETERS: u64 = u64::MAX;
const NORMALISATION: u64 = u64::MAX - 1;

impl Target {
    /// Sets from which mean and variance are estimated where no closed form is known: a relative error of the variance of about 1%.
    pub const DRAWS: usize = 1 << 15;

    /// Draws the parameters; they are a function of the seed alone.
    pub fn new(spec: &TargetSpec, inputs: SetInputs, seed: u64) -> Result<Self> {
        spec.check()?;
        inputs.check()?;
        let form = Form::draw(spec, inputs, seed)?;
        let (mean, variance) = spec.moments(&inputs).unwrap_or_else(|| estimate(&form, &inputs, seed));
        if !(variance.is_finite() && variance > 1e-14 * mean * mean && variance > 0.0) {
            return Err(Error::input(
                "target",
                format!("{spec} is constant on these inputs"),
                "take another degree or dimension",
            ));
        }
        Ok(Self { spec: spec.clone(), inputs, form, mean, variance })
    }

    /// The family.
    pub fn spec(&self) -> &TargetSpec {
        &self.spec
    }

    /// The inputs over which the variance is 1.
    pub fn inputs(&self) -> SetInputs {
        self.inputs
    }

    /// Mean before normalisation.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Variance before normalisation: the square of what values are divided by.
    pub fn variance(&self) -> f64 {
        self.variance
    }

    /// Value at a set, the query and then the keys one after another, divided by the standard deviation.
    pub fn value(&self, tokens: &[f64]) -> f64 {
        self.form.value(tokens, self.inputs.d) / self.variance.sqrt()
    }
}

/// Mean and variance over seeded draws.
fn estimate(form: &Form, inputs: &SetInputs, seed: u64) -> (f64, f64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(NORMALISATION);
    let (mut tokens, mut mean, mut squares) = (Vec::new(), 0.0, 0.0);
    for i in 0..Target::DRAWS {
        inputs.draw(&mut rng, &mut tokens);
        let gap = form.value(&tokens, inputs.d) - mean;
        mean += gap / (i + 1) as f64;
        squares += gap * gap * i as f64 / (i + 1) as f64;
    }
    (mean, squares / (Target::DRAWS - 1) as f64)
}

impl Form {
    fn draw(spec: &TargetSpec, inputs: SetInputs, seed: u64) -> Result<Self> {
        let d = inputs.d;
        if matches!(spec, TargetSpec::Correlation { rotated: true, .. } | TargetSpec::Softmax { .. }) {
            // The matrix, and at most its factors and a copy.
            ask(numbers::<f64>(&[4, d, d]), &format!("target {spec}"), "take a smaller dimension")?;
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(PARAMETERS);
        let mut normal = || -> f64 { rng.sample(StandardNormal) };
        let mut beta: Vec<f64> = (0..d).map(|_| normal()).collect();
        let norm = dot(&beta, &beta).sqrt();
        beta.iter_mut().for_each(|v| *v /= norm);
        let mut gaussian = || Mat::from_fn(d, d, |_, _| normal());
        Ok(match *spec {
            TargetSpec::Query { p } => Self::Query { p: p as i32, beta },
            TargetSpec::Average { p } => Self::Correlation { p: 0, q: p as i32, s: None, beta },
            TargetSpec::Correlation { p, q, rotated } => {
                // The orthogonal factor of a Gaussian matrix is uniform.
                let s = rotated.then(|| row_major(gaussian().qr().compute_Q().as_ref()));
                Self::Correlation { p: p as i32, q: q as i32, s, beta }
            }
            TargetSpec::Mixed { gamma, ref simple, ref hard } => {
                // One seed, hence one β.
                let [simple, hard] = [Target::new(simple, inputs, seed)?, Target::new(hard, inputs, seed)?];
                let part = |weight: f64, part: Target| (weight / part.variance.sqrt(), part.form);
                Self::Mixed(vec![part(gamma, simple), part(1.0 - gamma, hard)])
            }
            TargetSpec::Softmax { scale } => Self::Softmax { theta: row_major((gaussian() * faer::Scale(scale)).as_ref()), beta },
        })
    }

    fn value(&self, tokens: &[f64], d: usize) -> f64 {
        let (query, keys) = tokens.split_at(d);
        let len = (keys.len() / d) as f64;
        let keys = keys.chunks_exact(d);
        match self {
            Self::Query { p, beta } => dot(beta, query).powi(*p),
            Self::Correlation { p: 0, q, beta, .. } => keys.map(|x| dot(beta, x).powi(*q)).sum::<f64>() / len,
            Self::Correlation { p, q, s, beta } => {
                let pulled = s.as_ref().map_or_else(|| query.to_vec(), |s| pull(query, s));
                keys.map(|x| dot(&pulled, x).powi(*p) * dot(beta, x).powi(*q)).sum::<f64>() / len
            }
            Self::Mixed(parts) => parts.iter().map(|(weight, form)| weight * form.value(tokens, d)).sum(),
            Self::Softmax { theta, beta } => {
                let pulled = pull(query, theta);
                let top = keys.clone().map(|x| dot(&pulled, x)).fold(f64::MIN, f64::max);
                let (mut total, mut sum) = (0.0, 0.0);
                for x in keys {
                    let weight = (dot(&pulled, x) - top).exp();
                    total += weight;
                    sum += weight * dot(beta, x);
                }
                sum / total
            }
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `Sᵀ x` for a row-major square matrix.
fn pull(x: &[f64], s: &[f64]) -> Vec<f64> {
    let d = x.len();
    let mut out = vec![0.0; d];
    for (x, row) in x.iter().zip(s.chunks_exact(d)) {
        out.iter_mut().zip(row).for_each(|(out, s)| *out += x * s);
    }
    out
}

impl fmt::Display for TargetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Query { p } => write!(f, "query:p={p}"),
            Self::Average { p } => write!(f, "average:p={p}"),
            Self::Correlation { p, q, rotated } => {
                write!(f, "correlation:p={p},q={q}{}", if *rotated { ",s=rotation" } else { "" })
            }
            Self::Mixed { gamma, simple, hard } => write!(f, "mixed:gamma={gamma},simple={simple},hard={hard}"),
            Self::Softmax { scale } => write!(f, "softmax:scale={scale}"),
        }
    }
}

impl FromStr for TargetSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |problem: String| {
            let remedy =
                "write query:p=, average:p=, correlation:p=,q=[,s=rotation], softmax:scale= or mixed:gamma=,simple=…,hard=…";
            Error::input(format!("target {text}"), problem, remedy)
        };
        let (family, rest) = text.split_once(':').ok_or_else(|| bad("no parameters".into()))?;
        if family == "mixed" {
            let (gamma, parts) = rest.split_once(",simple=").ok_or_else(|| bad("no simple part".into()))?;
            let (simple, hard) = parts.split_once(",hard=").ok_or_else(|| bad("no hard part".into()))?;
            let gamma = gamma.strip_prefix("gamma=").and_then(|v| v.parse().ok()).ok_or_else(|| bad("no number gamma".into()))?;
            let spec = Self::Mixed { gamma, simple: Box::new(simple.parse()?), hard: Box::new(hard.parse()?) };
            spec.check()?;
            return Ok(spec);
        }
        let mut fields = Vec::new();
        for field in rest.split(',') {
            fields.push(field.split_once('=').ok_or_else(|| bad(format!("`{field}` is not name=value")))?);
        }
        let mut take = |name: &str| fields.iter().position(|f| f.0 == name).map(|place| fields.remove(place).1);
        let degree = |name: &str, value: Option<&str>| {
            value.and_then(|v| v.parse().ok()).ok_or_else(|| bad(format!("no whole number {name}")))
        };
        let spec = match family {
            "query" => Self::Query { p: degree("p", take("p"))? },
            "average" => Self::Average { p: degree("p", take("p"))? },
            "correlation" => {
                let (p, q) = (degree("p", take("p"))?, degree("q", take("q"))?);
                let rotated = match take("s") {
                    None | Some("identity") => false,
                    Some("rotation") => true,
                    Some(other) => return Err(bad(format!("s is `{other}`"))),
                };
                Self::Correlation { p, q, rotated }
            }
            "softmax" => {
                Self::Softmax { scale: take("scale").and_then(|v| v.parse().ok()).ok_or_else(|| bad("no number scale".into()))? }
            }
            other => return Err(bad(format!("no family `{other}`"))),
        };
        if let Some((name, _)) = fields.first() {
            return Err(bad(format!("`{name}` is unknown or given twice")));
        }
        spec.check()?;
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::super::inputs::Tokens;
    use super::*;

    const ALL: [&str; 8] = [
        "query:p=2",
        "query:p=3",
        "average:p=3",
        "average:p=2",
        "correlation:p=2,q=2",
        "correlation:p=1,q=1,s=rotation",
        "mixed:gamma=0.5,simple=average:p=1,hard=correlation:p=2,q=1",
        "softmax:scale=4",
    ];

    /// Mean and variance of the values over fresh draws, with their standard errors.
    fn sample(target: &Target, draws: usize, seed: u64) -> [(f64, f64); 2] {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut tokens = Vec::new();
        let values: Vec<f64> = (0..draws)
            .map(|_| {
                target.inputs().draw(&mut rng, &mut tokens);
                target.value(&tokens)
            })
            .collect();
        let n = draws as f64;
        let mean = values.iter().sum::<f64>() / n;
        let power = |k| values.iter().map(|v| (v - mean).powi(k)).sum::<f64>() / n;
        let (variance, fourth) = (power(2), power(4));
        [(mean, (variance / n).sqrt()), (variance, ((fourth - variance * variance) / n).sqrt())]
    }

    /// Within five standard errors of the sample, widened where the normalisation is itself an estimate.
    #[test]
    fn values_have_unit_variance_and_the_mean_that_is_stated() {
        let sphere = SetInputs::new(6, 5);
        let ragged = SetInputs { tokens: Tokens::Gaussian, min_keys: 2, ..sphere };
        for text in ALL {
            for inputs in [sphere, ragged] {
                for seed in 0..2 {
                    let target = Target::new(&text.parse().unwrap(), inputs, seed).unwrap();
                    let [(mean, mean_error), (variance, error)] = sample(&target, 40_000, 100 + seed);
                    let slack = if target.spec().moments(&inputs).is_some() { 0.0 } else { 0.04 };
                    assert!((variance - 1.0).abs() < 5.0 * error + slack, "{text} {inputs:?}: {variance} ± {error}");
                    let stated = target.mean() / target.variance().sqrt();
                    assert!(
                        (mean - stated).abs() < 5.0 * mean_error + slack,
                        "{text} {inputs:?}: {mean} ± {mean_error}, {stated}"
                    );
                }
            }
        }
    }

    #[test]
    fn texts_round_trip() {
        for text in ALL {
            let spec: TargetSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
            let json = serde_json::to_string(&spec).unwrap();
            assert_eq!(serde_json::from_str::<TargetSpec>(&json).unwrap(), spec);
        }
        assert_eq!("correlation:q=2,p=4,s=identity".parse::<TargetSpec>().unwrap().to_string(), "correlation:p=4,q=2");
    }

    #[test]
    fn bad_texts_are_refused() {
        for text in [
            "",
            "query",
            "query:",
            "query:p",
            "query:p=x",
            "query:p=-1",
            "query:p=0",
            "query:p=33",
            "query:p=1,p=2",
            "average:q=1",
            "correlation:p=1",
            "correlation:p=0,q=0",
            "correlation:p=1,q=1,s=other",
            "cube:p=1",
            "softmax:scale=nan",
            "softmax:scale=-1",
            "mixed:gamma=0.5",
            "mixed:gamma=2,simple=query:p=1,hard=query:p=2",
            "mixed:gamma=0.5,simple=query:p=1,hard=mixed:gamma=0.5,simple=query:p=1,hard=query:p=2",
        ] {
            assert!(text.parse::<TargetSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn constants_are_refused() {
        assert!(Target::new(&TargetSpec::Query { p: 2 }, SetInputs::new(3, 1), 0).is_err());
        assert!(Target::new(&TargetSpec::Query { p: 1 }, SetInputs::new(3, 1), 0).is_ok());
    }

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let inputs = SetInputs::new(4, 3);
        let mut tokens = Vec::new();
        inputs.draw(&mut ChaCha8Rng::seed_from_u64(5), &mut tokens);
        let turned: Vec<f64> = tokens[..3].iter().chain(tokens[3..].chunks_exact(3).rev().flatten()).copied().collect();
        for text in ALL {
            let target = Target::new(&text.parse().unwrap(), inputs, 1).unwrap();
            assert!((target.value(&tokens) - target.value(&turned)).abs() < 1e-12);
        }
    }
}

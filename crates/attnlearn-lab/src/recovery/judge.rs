//! How near a layer is to the teacher, which no learner has seen.

use attnlearn::Result;
use attnlearn::descend::{Newton, NewtonSettings};
use attnlearn::engine::{Batch, Form, Part, Student};
use attnlearn::layer::AttentionLayer;
use attnlearn::scores::Scores;
use serde::{Deserialize, Serialize};

/// A head is found if both of its matrices are within this, relatively.
pub const SAME_HEAD: f64 = 1e-6;

/// A layer beside its teacher.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// Largest relative error of an attention matrix; infinite (`null` in JSON) where a head is missing or left over.
    #[serde(deserialize_with = "or_infinite")]
    pub theta_error: f64,
    /// That of a projection.
    #[serde(deserialize_with = "or_infinite")]
    pub w_error: f64,
    /// Heads of the teacher within [`SAME_HEAD`].
    pub heads_found: usize,
}

/// JSON has no infinity.
pub(super) fn or_infinite<'de, D: serde::Deserializer<'de>>(value: D) -> std::result::Result<f64, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or(f64::INFINITY))
}

impl Judged {
    /// Whether every head is found, and nothing else.
    pub fn recovered(&self) -> bool {
        self.theta_error < SAME_HEAD && self.w_error < SAME_HEAD
    }

    /// Nothing was found at all.
    pub fn nothing() -> Self {
        Self { theta_error: f64::INFINITY, w_error: f64::INFINITY, heads_found: 0 }
    }
}

/// Compares a layer with its teacher up to the order of the heads, both in canonical form.
pub fn judge(teacher: &AttentionLayer, layer: &AttentionLayer) -> Judged {
    let Ok(distance) = teacher.canonical(1e-9).layer.distance(&layer.canonical(1e-7).layer) else { return Judged::nothing() };
    let heads_found = distance.heads.iter().filter(|head| head.theta < SAME_HEAD && head.w < SAME_HEAD).count();
    if !(distance.missing.is_empty() && distance.extra.is_empty()) {
        return Judged { heads_found, ..Judged::nothing() };
    }
    Judged { theta_error: distance.worst_theta(), w_error: distance.worst_w(), heads_found }
}

/// Share of the variance of examples that a layer leaves unexplained.
pub fn unexplained(layer: &AttentionLayer, examples: &Batch<f64>) -> Result<f64> {
    let outputs = layer.forward(examples.shape.k, &examples.x);
    let error: f64 = outputs.iter().zip(&examples.y).map(|(f, y)| (f - y).powi(2)).sum();
    Ok(error / examples.variance()?)
}

/// The least-squares estimate that Gauss–Newton reaches from a teacher of dense heads without biases: no learner can be expected to come nearer under noise.
pub fn statistical_limit(teacher: &AttentionLayer, examples: &Batch<f64>) -> Result<AttentionLayer> {
    let form = Form {
        d: teacher.d(),
        d_out: teacher.d_out(),
        heads: teacher.heads().len(),
        rank: None,
        value_rank: None,
        key_bias: false,
        bias: false,
        scores: Scores::of(teacher.mask()),
        groups: None,
        relative: None,
    };
    let mut values = vec![0.0; form.len()];
    let (a, o) = (form.range(Part::A).start, form.range(Part::O).start);
    for (h, head) in teacher.heads().iter().enumerate() {
        let theta = head.theta.to_dense();
        for i in 0..form.d {
            for j in 0..form.d {
                values[a + i * form.heads * form.d + h * form.d + j] = theta[(i, j)];
            }
            for e in 0..form.d_out {
                values[o + (h * form.d + i) * form.d_out + e] = head.w[(i, e)];
            }
        }
    }
    let mut student = Student { form, values };
    let settings = NewtonSettings { progress: 1e-9, ..NewtonSettings::default() };
    Newton::new(&settings).run(&mut student, examples, &settings, &|_| false)?;
    student.layer()
}

//! A rotary student as one whose scores are free in the distance: `K_m = S_m` at first ([`Distances`]).

use crate::engine::student::{Form, PARTS, Part, Student};
use crate::scores::{Distances, Scores};

/// The student with free scores, in sequences of `k` tokens; `None` where it has no rotation, or norms, which leave no coordinates to mix.
pub(crate) fn relax(student: &Student<f64>, k: usize) -> Option<Student<f64>> {
    let form = &student.form;
    let rotation = form.scores.rotation.as_ref().filter(|_| form.scores.norm.is_none())?;
    let distances = Distances::of(rotation, form.r(), form.scores.mask, k)?;
    let matrices = distances.of_rotation(rotation, form.r());
    let free = Form { scores: Scores { rotation: None, distances: Some(distances), ..form.scores.clone() }, ..form.clone() };
    let mut relaxed = Student { values: vec![0.0; free.len()], form: free.clone() };
    for part in PARTS.into_iter().filter(|part| *part != Part::Kernel) {
        relaxed.values[free.range(part)].copy_from_slice(&student.values[form.range(part)]);
    }
    let (start, (_, cols), r) = (free.range(Part::Kernel).start, free.shape(Part::Kernel), free.r());
    for (m, matrix) in matrices.iter().enumerate() {
        for i in 0..r {
            for j in 0..cols {
                relaxed.values[start + (m * r + i) * cols + j] = matrix[(i, j % r)];
            }
        }
    }
    Some(relaxed)
}

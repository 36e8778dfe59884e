//! Heads that a student has too many of.
//!
//! A student with more heads than its teacher explains the examples in many ways: heads that coincide, that attend to nothing in particular and cancel, or
//! that stand around one of the teacher's so that their errors cancel to a high order (two at `Θ ± δ` leave an error of order `δ²`, of NMSE `δ⁴`: at 10⁻²²
//! they are 10⁻⁵ apart, and three may be farther). None of this shows in a head for itself; all of it shows in the function. So the head whose removal
//! costs least, all outputs refitted, is taken away, the rest refined, and if the examples are still explained as well, it was not needed:
//!
//! ```text
//! exact:  NMSE ≤ goal, or no worse than it was
//! floor:  ‖F(X) − Y‖² grows by at most Δ (1 + 3√(2/Δ)) σ̂²,      Δ: unknowns that are gone,  σ̂² = ‖F(X) − Y‖²/(numbers − unknowns)
//! ```
//!
//! The latter is what Δ unknowns explain of noise, up to three standard deviations. A head that is needed costs far more than what is tried at all, so that
//! a search without such heads pays for one refit. Refinements see as many examples as memory has passes for; what they come to is judged on all.

use crate::Result;
use crate::descend::optimise::newton::{Newton, NewtonSettings};
use crate::descend::search::plan::{StrategySettings, most_sequences};
use crate::descend::search::redundant::cheapest;
use crate::engine::batch::Batch;
use crate::engine::student::{Form, PARTS, Part, Student};

/// Share of the variance above which the removal of a head is not tried.
const MOST: f64 = 1e-2;
/// In a fit at a floor: so many times what may be lost in the end.
const FLOOR: f64 = 10.0;
/// Steps of a refinement.
const STEPS: usize = 40;

/// A student without heads that it does not need; the same if it needs all of them. `exact` says whether it reaches the goal.
pub(crate) fn fewer(
    student: &Student<f64>,
    examples: &Batch<f64>,
    strategy: &StrategySettings,
    exact: bool,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Student<f64>> {
    if student.form.key_groups() < student.form.heads {
        // Those that share keys come in equal numbers: none can go alone.
        return Ok(student.clone());
    }
    let (variance, numbers, goal) = (examples.variance()?, examples.y.len() as f64, strategy.goal);
    let n = most_sequences(&student.form, examples.shape.k, strategy.pass_numbers).min(examples.len());
    let some = (n < examples.len()).then(|| examples.select(&(0..n).collect::<Vec<_>>()));
    let refined = some.as_ref().unwrap_or(examples);
    let variance_of_refined = refined.variance()?;
    let mut kept = student.clone();
    while kept.form.heads > 1 {
        let elimination = examples.refit(&kept.form, &mut kept.values)?;
        let error = examples.error(&kept.form, &kept.values);
        let costs = elimination.removal_costs(&kept.form, &kept.values);
        let least = cheapest(&costs);
        let mut other = without(&kept, least);
        let gone: f64 = (kept.form.unknowns() - other.form.unknowns()) as f64;
        let sigma = error / (numbers - kept.form.unknowns() as f64).max(1.0);
        let allowed = if exact { (goal * variance).max(error) } else { error + (gone + 3.0 * (2.0 * gone).sqrt()) * sigma };
        let worth = if exact { MOST * variance } else { FLOOR * (allowed - error) };
        if costs[least].is_nan() || costs[least] > worth {
            break;
        }
        examples.refit(&other.form, &mut other.values)?;
        let settings = NewtonSettings { goal: if exact { goal * 1e-4 } else { 0.0 }, steps: STEPS, ..NewtonSettings::default() };
        let mut newton = Newton::new(&settings);
        while newton.step(&mut other, refined, variance_of_refined, &settings, &[], &|_| stop())?.is_none() {
            let settled = matches!(newton.history.as_slice(), [.., before, now] if *now > (1.0 - SETTLED) * before);
            if !exact && settled {
                break;
            }
        }
        if examples.error(&other.form, &other.values) > allowed {
            break;
        }
        kept = other;
    }
    Ok(if kept.form == student.form { student.clone() } else { kept })
}

/// Gain of a step at a floor below which there is no other.
const SETTLED: f64 = 1e-5;

/// All but one head.
fn without(student: &Student<f64>, head: usize) -> Student<f64> {
    let form = Form { heads: student.form.heads - 1, ..student.form.clone() };
    let mut less = Student { values: vec![0.0; form.len()], form: form.clone() };
    for (to, from) in (0..student.form.heads).filter(|from| *from != head).enumerate() {
        for part in PARTS {
            for (to, from) in less.head_entries(part, to).into_iter().zip(student.head_entries(part, from)) {
                less.values[to] = student.values[from];
            }
        }
    }
    // What all heads share.
    for part in [Part::Gains, Part::Bias] {
        less.values[form.range(part)].copy_from_slice(&student.values[student.form.range(part)]);
    }
    less
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::data::InputDistribution;
    use crate::descend::search::learner::{Choice, HeadCount, Learner, Prepared, Wanted};
    use crate::layer::{AttentionLayer, Head, Mask};
    use crate::linalg::Mat;
    use crate::teacher::{TeacherSpec, TeacherStream};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    /// Learns with nine heads: heads found, and the NMSE on examples that choose.
    fn with_nine(teacher: &AttentionLayer, seed: u64) -> (AttentionLayer, f64) {
        let source = TeacherStream::new(teacher, 4, InputDistribution::Gaussian, seed + 100, None);
        let (learn, choose) = Batch::read(&source, 0..64, 600).unwrap().split_at(540);
        let prepared = Prepared::new(learn, choose).unwrap();
        let wanted = Wanted {
            heads: HeadCount::Given(9),
            biases: Choice::No,
            strategy: StrategySettings { seed, ..Default::default() },
            ..Wanted::default()
        };
        let outcome = Learner::new(&prepared, wanted).unwrap().finish(&|| false).unwrap();
        (outcome.layer, outcome.tries[outcome.chosen].held_out)
    }

    /// Two heads behind the examples are two heads, however many were asked for.
    #[test]
    fn nine_heads_for_two_are_two() {
        for seed in 0..5 {
            let teacher = TeacherSpec::dense(5, 2, 2.0).draw(&mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
            let (layer, nmse) = with_nine(&teacher, seed);
            assert_eq!(layer.heads().len(), 2, "seed {seed}");
            assert!(nmse < 1e-20, "seed {seed}: {nmse:.1e}");
            let distance = teacher.distance(&layer).unwrap();
            assert!(distance.worst_theta() < 1e-7 && distance.worst_w() < 1e-7, "seed {seed}: {distance:?}");
        }
    }

    /// A head that attends to everything alike is one head, not none and not several.
    #[test]
    fn a_head_without_attention_is_one() {
        for seed in 0..3 {
            let drawn = TeacherSpec::dense(5, 2, 2.0).draw(&mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
            let [sharp, flat] = drawn.heads() else { panic!("two heads") };
            let flat = Head::dense(Mat::zeros(5, 5), flat.w.clone());
            let teacher = AttentionLayer::new(vec![sharp.clone(), flat], None, Mask::None).unwrap();
            let (layer, nmse) = with_nine(&teacher, seed);
            assert!(layer.heads().len() == 2 && nmse < 1e-20, "seed {seed}: {} heads, {nmse:.1e}", layer.heads().len());
            let smallest = layer
                .heads()
                .iter()
                .map(|head| crate::linalg::frobenius(head.theta.to_dense().as_ref()))
                .fold(f64::INFINITY, f64::min);
            assert!(smallest < 1e-8, "seed {seed}: {smallest:.1e}");
        }
    }

    /// A student that needs all of its heads keeps them, to the last bit.
    #[test]
    fn what_is_needed_stays() {
        for seed in 0..5 {
            let (teacher, examples, _) =
                crate::descend::testing::sharp_problem(crate::descend::testing::mixed_form(seed), 100, seed);
            let same = fewer(&teacher, &examples, &StrategySettings::default(), true, &|| false).unwrap();
            assert_eq!(same, teacher);
        }
    }
}

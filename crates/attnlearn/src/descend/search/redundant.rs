//! Heads that do nothing while the others are nearly right.
//!
//! Of two heads that coincide one does nothing, and then the other everything. (Two that differ by δ leave an error of order δ⁴, and the removal of one
//! costs δ².) Such a head is drawn anew, and if it comes to nothing again it rests: what it does is not determined, and steps that move it lead nowhere.

use crate::Result;
use crate::engine::batch::Batch;
use crate::engine::student::{Form, Part, Student};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// Share of the variance above which the removal of a head costs more than that of one of two that a descent has led to the same place.
const COINCIDE: f64 = 1e-4;

/// All of a head but what is refitted.
const HEAD: [Part; 4] = [Part::A, Part::B, Part::C, Part::V];

/// Heads that did nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Redundant {
    /// Drawn anew.
    roused: Vec<usize>,
    /// Those that did nothing even then: steps leave them as they are.
    resting: Vec<usize>,
}

impl Redundant {
    /// How many were drawn anew.
    pub(crate) fn roused(&self) -> usize {
        self.roused.len()
    }

    /// Whether they are heads of such a student.
    pub(crate) fn fits(&self, form: &Form) -> bool {
        self.roused.iter().chain(&self.resting).all(|head| *head < form.heads)
    }

    /// Where the numbers stand of heads that rest.
    pub(crate) fn places(&self, student: &Student<f64>) -> Vec<usize> {
        self.resting.iter().flat_map(|head| student.places(*head, &HEAD)).collect()
    }

    /// Draws heads anew, or lets them rest, that do nothing in a student with such an error, the cheapest first: whether there were any.
    pub(crate) fn rouse(
        &mut self,
        student: &mut Student<f64>,
        examples: &Batch<f64>,
        error: f64,
        rng: &mut ChaCha8Rng,
    ) -> Result<bool> {
        let (form, variance, known) = (student.form.clone(), examples.variance()?, self.clone());
        let most = (error / variance).sqrt().min(COINCIDE) * variance;
        let mut busy: Vec<usize> = (0..form.heads).filter(|head| !self.resting.contains(head)).collect();
        while busy.len() > 1 {
            let elimination = examples.refit(&form, &mut student.values)?;
            let costs = elimination.removal_costs(&form, &student.values);
            let least = cheapest(&busy.iter().map(|head| costs[*head]).collect::<Vec<_>>());
            if costs[busy[least]] > most {
                break;
            }
            let head = busy.remove(least);
            if self.roused.contains(&head) {
                self.resting.push(head);
            } else {
                self.roused.push(head);
                let norm = student.norm_beside(head);
                student.draw_head(head, norm, rng);
            }
        }
        Ok(*self != known)
    }
}

/// The head whose removal costs least.
pub(crate) fn cheapest(costs: &[f64]) -> usize {
    (0..costs.len()).min_by(|a, b| costs[*a].total_cmp(&costs[*b])).unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::data::InputDistribution;
    use crate::scores::Scores;
    use crate::teacher::{TeacherSpec, TeacherStream};
    use rand::SeedableRng;

    /// A head that does nothing is drawn anew, and rests when it still does nothing; one that does something is left alone.
    #[test]
    fn idle_heads_are_roused_once() {
        let teacher = TeacherSpec::dense(6, 2, 2.0).draw(&mut ChaCha8Rng::seed_from_u64(3)).unwrap();
        let source = TeacherStream::new(&teacher, 4, InputDistribution::Boolean, 4, None);
        let examples = Batch::read(&source, 0..8, 200).unwrap();
        let form = Form {
            d: 6,
            d_out: 6,
            heads: 3,
            rank: None,
            value_rank: None,
            key_bias: false,
            bias: false,
            scores: Scores::of(crate::layer::Mask::None),
            groups: None,
            relative: None,
        };
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut student = Student::random(form.clone(), 2.0, &mut rng).unwrap();
        // Two heads of the teacher, and a third at random: with the others exact, it does nothing.
        for (head, theta) in teacher.heads().iter().map(|head| head.theta.to_dense()).enumerate() {
            for (at, i) in student.places(head, &[Part::A]).into_iter().zip(0..) {
                student.values[at] = theta[(i / 6, i % 6)];
            }
        }
        let error = 1e-6 * examples.variance().unwrap();
        let (before, mut idle) = (student.clone(), Redundant::default());
        assert!(idle.rouse(&mut student, &examples, error, &mut rng).unwrap());
        assert_eq!((idle.roused.as_slice(), idle.resting.as_slice()), ([2].as_slice(), [].as_slice()));
        let same = |head: usize| {
            student.places(head, &[Part::A]).iter().all(|i| student.values[*i].to_bits() == before.values[*i].to_bits())
        };
        assert!(same(0) && same(1) && !same(2));
        let roused = student.clone();
        assert!(idle.rouse(&mut student, &examples, error, &mut rng).unwrap());
        assert_eq!(idle.resting, [2]);
        let places = idle.places(&student);
        assert_eq!(places, student.places(2, &HEAD));
        assert!(places.iter().all(|i| student.values[*i].to_bits() == roused.values[*i].to_bits()), "a head that rests stays");
        assert!(!idle.rouse(&mut student, &examples, error, &mut rng).unwrap(), "the others do something");
        assert!(idle.fits(&form) && !idle.fits(&Form { heads: 2, ..form.clone() }));
    }
}

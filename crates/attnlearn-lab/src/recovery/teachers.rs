//! Teachers beyond random ones, and the seeds that they are drawn with.

use attnlearn::degeneracy::{Conditions, Verdict};
use attnlearn::layer::AttentionLayer;
use attnlearn::teacher::TeacherSpec;
use attnlearn::{Error, Result};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Draws before it is given up: about half of all small layers will do.
const DRAWS: usize = 1000;

/// A random teacher that meets all non-degeneracy conditions for sequences of `k` tokens.
pub fn nondegenerate(spec: &TeacherSpec, k: usize, seed: u64) -> Result<AttentionLayer> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for _ in 0..DRAWS {
        let teacher = spec.draw(&mut rng)?;
        if Conditions::of(&teacher, k)?.verdict() == Verdict::Met {
            return Ok(teacher);
        }
    }
    Err(Error::input("teacher", format!("none of {DRAWS} draws meets all conditions"), "ask for another norm, or other sizes"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::experiment::seeds;

    #[test]
    fn conditions_are_met_or_it_says_so() {
        for seed in seeds(3, 5) {
            let teacher = nondegenerate(&TeacherSpec::dense(6, 2, 6.0), 3, seed).unwrap();
            assert_eq!(Conditions::of(&teacher, 3).unwrap().verdict(), Verdict::Met);
        }
        assert!(nondegenerate(&TeacherSpec::dense(6, 2, 1e3), 3, 0).is_err());
    }
}

//! A limit of time, seen by a search as one more reason to stop.
//!
//! The clock is looked at where Ctrl-C is: between steps of a search. What is read before and certified after is not counted.

use super::watch::{Event, Watch};
use std::time::{Duration, Instant};

/// A watch that also stops a search when its time is up.
pub(super) struct Limited<'a> {
    watch: &'a dyn Watch,
    until: Option<Instant>,
}

impl<'a> Limited<'a> {
    /// From now on, if there is a limit.
    pub(super) fn new(watch: &'a dyn Watch, limit: Option<Duration>) -> Self {
        // A limit beyond what clocks count to is none.
        Self { watch, until: limit.and_then(|limit| Instant::now().checked_add(limit)) }
    }

    /// Whether it was the clock that stopped a search, and nobody else.
    pub(super) fn passed(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until) && !self.watch.interrupted()
    }
}

impl Watch for Limited<'_> {
    fn tell(&self, event: Event<'_>) {
        self.watch.tell(event);
    }

    fn interrupted(&self) -> bool {
        self.watch.interrupted() || self.passed()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::super::{Checkpointing, Method, Settings, Unwatched};
    use super::*;
    use crate::data::InputDistribution;
    use crate::descend::End;
    use crate::engine::Batch;
    use crate::teacher::{TeacherSpec, TeacherStream};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use std::sync::Mutex;

    struct Stopped;
    impl Watch for Stopped {
        fn interrupted(&self) -> bool {
            true
        }
    }

    /// The clock stops what Ctrl-C has not.
    #[test]
    fn the_clock_and_a_person_are_told_apart() {
        assert!(!Limited::new(&Unwatched, None).interrupted());
        assert!(!Limited::new(&Unwatched, Some(Duration::MAX)).interrupted());
        let up = Limited::new(&Unwatched, Some(Duration::ZERO));
        assert!(up.interrupted() && up.passed());
        let by_hand = Limited::new(&Stopped, Some(Duration::ZERO));
        assert!(by_hand.interrupted() && !by_hand.passed());
    }

    /// Told where the search can be continued.
    #[derive(Default)]
    struct Told(Mutex<Vec<bool>>);
    impl Watch for Told {
        fn tell(&self, event: Event<'_>) {
            if let Event::OutOfTime { checkpoint } = event {
                self.0.lock().unwrap().push(checkpoint.is_some());
            }
        }
    }

    /// Without any time there is an answer all the same, with a certificate; the search is kept, and continued it is the one that had no limit.
    #[test]
    fn a_search_that_is_out_of_time_has_an_answer_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        for seed in 0..3 {
            let teacher = TeacherSpec::dense(4, 2, 2.0).draw(&mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
            let examples: Batch<f64> =
                Batch::read(&TeacherStream::new(&teacher, 3, InputDistribution::Gaussian, seed, None), 0..8, 300).unwrap();
            let checkpoint = folder.path().join(format!("{seed}.checkpoint"));
            let run = |limit: Option<f64>, resume: bool| {
                let settings = Settings { method: Method::Descend, seed, time_limit: limit, ..Settings::default() };
                let checkpointing = Checkpointing { file: Some(checkpoint.clone()), layer: None, resume, every: None };
                let (plan, told) = (settings.check(&examples, "test", &checkpointing).unwrap(), Told::default());
                let found = plan.run(&examples, &told).unwrap();
                if !found.unfinished {
                    plan.remove_checkpoint().unwrap();
                }
                (found, told.0.into_inner().unwrap())
            };
            let (whole, told) = run(None, false);
            assert!(whole.recovered && !whole.search().unwrap().out_of_time && told.is_empty() && !checkpoint.exists());
            let (cut, told) = run(Some(1e-9), false);
            let search = cut.search().unwrap();
            assert!(search.out_of_time && !cut.recovered && cut.unfinished, "{}", cut.outcome);
            let certified = cut.certificate.as_ref().is_some_and(|certificate| certificate.nmse.is_some());
            assert!(
                cut.outcome.to_string().contains("limit of time") && cut.nmse.unwrap().is_finite() && certified,
                "{}",
                cut.outcome
            );
            assert_eq!((told.as_slice(), search.tries.last().unwrap().end), ([true].as_slice(), End::Stopped));
            assert!(checkpoint.exists());
            let (resumed, _) = run(None, true);
            assert_eq!(resumed.layer, whole.layer);
            assert!(!checkpoint.exists());
        }
    }
}

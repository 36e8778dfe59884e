//! A search on disk: everything that its next step depends on, so that one that is continued has the bits of one that never stopped.
//!
//! ```text
//! "attnrun2"   fingerprint of the examples   length   state   checksum of all that        (u64, little-endian)
//! ```
//!
//! The state is in the format of the postcard crate, in which numbers are exact. A file that is damaged, or that belongs to other
//! examples or settings, is refused.

use crate::descend::search::learner::{Learner, Prepared, Try, Wanted};
use crate::descend::search::plan::StrategySettings;
use crate::descend::search::state::State;
use crate::descend::search::strategy::Run;
use crate::engine::student::Form;
use crate::files::write_atomically;
use crate::hash::Hash;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

const MAGIC: &[u8; 8] = b"attnrun2";

#[derive(Serialize)]
struct Saving<'a> {
    wanted: &'a Wanted,
    tries: &'a [Try],
    form: Form,
    effort: f64,
    state: &'a State,
}

#[derive(Deserialize)]
struct Saved {
    wanted: Wanted,
    tries: Vec<Try>,
    form: Form,
    effort: f64,
    state: State,
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hash = Hash::new();
    hash.bytes(bytes);
    hash.value()
}

impl<'a> Learner<'a> {
    /// Keeps the search in a file, which is replaced whole or not at all.
    pub fn save(&self, path: &Path) -> Result<()> {
        let saving = Saving {
            wanted: &self.wanted,
            tries: &self.tries,
            form: self.form.clone(),
            effort: self.effort,
            state: &self.run.state,
        };
        let state = postcard::to_allocvec(&saving)
            .map_err(|e| Error::input(path.display().to_string(), format!("the search cannot be kept ({e})"), "leave it out"))?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.examples.fingerprint().to_le_bytes());
        bytes.extend((state.len() as u64).to_le_bytes());
        bytes.extend(state);
        let sum = checksum(&bytes);
        bytes.extend(sum.to_le_bytes());
        write_atomically(path, &bytes)
    }

    /// Continues a search from the contents of a file; errors will call it `place`.
    pub fn resume(examples: &'a Prepared, wanted: Wanted, bytes: &[u8], place: &str) -> Result<Self> {
        let damaged = || Error::input(place, "this checkpoint is damaged", "begin again without it");
        let Some((magic, rest)) = bytes.split_first_chunk::<8>() else { return Err(damaged()) };
        if magic != MAGIC {
            return Err(Error::input(place, "it is no checkpoint of a search", "give another file"));
        }
        let (Some((fingerprint, body)), Some((whole, sum))) = (rest.split_first_chunk::<8>(), bytes.split_last_chunk::<8>())
        else {
            return Err(damaged());
        };
        if checksum(whole) != u64::from_le_bytes(*sum) {
            return Err(damaged());
        }
        let Some((length, state)) = body.split_first_chunk::<8>() else { return Err(damaged()) };
        let state = state.get(..state.len().saturating_sub(8)).unwrap_or_default();
        if u64::from_le_bytes(*length) != state.len() as u64 {
            return Err(damaged());
        }
        if u64::from_le_bytes(*fingerprint) != examples.fingerprint() {
            return Err(other(place, "other examples"));
        }
        Self::from_state(examples, wanted, state, place)
    }

    /// The same from what stands between the header and the checksum.
    pub fn from_state(examples: &'a Prepared, wanted: Wanted, state: &[u8], place: &str) -> Result<Self> {
        let damaged = || Error::input(place, "this checkpoint is damaged", "begin again without it");
        let saved: Saved = postcard::from_bytes(state).map_err(|_| damaged())?;
        if saved.wanted != wanted {
            return Err(other(place, "other settings"));
        }
        let shape = examples.train.shape;
        let fits = |form: &Form| form.check().is_ok() && (form.d, form.d_out) == (shape.d, shape.d_out);
        let whole = |t: &Try| {
            let own = Form { heads: t.student.form.heads, ..t.form.clone() };
            fits(&own) && own.heads <= t.form.heads && own == t.student.form && own.len() == t.student.values.len()
        };
        let effort = saved.effort > 0.0 && saved.effort <= wanted.strategy.effort;
        if !(fits(&saved.form) && saved.tries.iter().all(whole) && effort) {
            return Err(damaged());
        }
        let strategy = StrategySettings { effort: saved.effort, ..wanted.strategy.clone() };
        let run = Run::resume(&examples.train, examples.whitening.principal(), saved.form.clone(), strategy, saved.state)?
            .ok_or_else(damaged)?;
        Ok(Self { examples, wanted, tries: saved.tries, run, form: saved.form, effort: saved.effort })
    }
}

fn other(place: &str, what: &str) -> Error {
    let problem = format!("this checkpoint belongs to {what}");
    Error::input(place, problem, "run the command that it is of, or begin again without it")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::data::InputDistribution;
    use crate::descend::search::learner::{HeadCount, Rank};
    use crate::engine::batch::Batch;
    use crate::teacher::{TeacherSpec, TeacherStream};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn prepared(seed: u64) -> Prepared {
        let teacher = TeacherSpec::dense(6, 2, 2.0).draw(&mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
        let source = TeacherStream::new(&teacher, 3, InputDistribution::Boolean, seed, None);
        let (train, test) = Batch::read(&source, 0..4, 80).unwrap().split_at(70);
        Prepared::new(train, test).unwrap()
    }

    /// Saved and continued after every step, a search ends with the bits of one that ran through.
    #[test]
    fn a_search_that_is_continued_has_the_same_bits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("search");
        let examples = prepared(1);
        let wanted = Wanted { heads: HeadCount::Auto(3), ..Wanted::default() };
        let whole = Learner::new(&examples, wanted.clone()).unwrap().finish(&|| false).unwrap();
        let mut learner = Learner::new(&examples, wanted.clone()).unwrap();
        let mut saves = 0;
        while !learner.advance(&|| false).unwrap() {
            learner.save(&path).unwrap();
            learner = Learner::resume(&examples, wanted.clone(), &std::fs::read(&path).unwrap(), "here").unwrap();
            saves += 1;
        }
        assert!(saves > 3, "{saves}");
        // Kept at its end, it is over, and nothing is tried again.
        learner.save(&path).unwrap();
        let mut learner = Learner::resume(&examples, wanted.clone(), &std::fs::read(&path).unwrap(), "here").unwrap();
        assert!(learner.advance(&|| false).unwrap());
        let parts = learner.outcome().unwrap();
        assert_eq!((parts.layer, parts.tries), (whole.layer, whole.tries));
    }

    #[test]
    fn what_is_damaged_or_of_another_search_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("search");
        let (examples, wanted) = (prepared(1), Wanted { heads: HeadCount::Given(2), ..Wanted::default() });
        let mut learner = Learner::new(&examples, wanted.clone()).unwrap();
        learner.advance(&|| false).unwrap();
        learner.save(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let said = |examples: &Prepared, wanted: &Wanted, bytes: &[u8]| {
            Learner::resume(examples, wanted.clone(), bytes, "here").err().map(|e| e.to_string()).unwrap_or_default()
        };
        assert_eq!(said(&examples, &wanted, &bytes), "");
        assert!(said(&prepared(2), &wanted, &bytes).contains("other examples"));
        let other = Wanted { rank: Rank::Given(2), ..wanted.clone() };
        assert!(said(&examples, &other, &bytes).contains("other settings"));
        assert!(said(&examples, &wanted, b"something else entirely").contains("no checkpoint"));
        for cut in [0, 7, 12, 30, bytes.len() - 1] {
            assert!(!said(&examples, &wanted, &bytes[..cut]).is_empty());
        }
        for at in (8..bytes.len()).step_by(97) {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            assert!(said(&examples, &wanted, &changed).contains("damaged"), "byte {at}");
        }
    }
}

//! Sums that outlive the program: a Gram on disk while it is gathered.
//!
//! The file holds what the sums are of, how far they have come, the sums, and a checksum of all that:
//!
//! ```text
//! "attnckpt"   length and text of the identity (map, precision, sizes)   hash of the examples   Gram   checksum        (u64, little-endian)
//! ```
//!
//! Blocks are added panel by panel in their order, and a panel is either in the sums or not, so a run that continues has
//! the bits of one that never stopped. Ridge and intercept are not part of the identity: the sums serve them all.

use super::Watch;
use super::gram::Gram;
use super::panel::Data;
use crate::features::{MapSpec, Precision, SetBlock, SetSource};
use crate::files::{AtomicFile, Claim};
use crate::hash::{Hash, Summed};
use crate::linalg::symmetric::Field;
use crate::{Error, Result};
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MAGIC: &[u8; 8] = b"attnckpt";
/// Time between two saves, if nothing else is said.
const INTERVAL: Duration = Duration::from_secs(60);
/// Saving takes at most one part in this many of the time.
const SHARE: u32 = 20;

/// Where the sums of a fit are kept until it is done.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    path: PathBuf,
    identity: String,
    interval: Duration,
}

impl Checkpoint {
    /// At `path`, for sums of the features of `map` in this precision.
    pub fn new(path: &Path, map: &MapSpec, precision: Precision) -> Result<Self> {
        let described = serde_json::to_string(&(map, precision))
            .map_err(|e| Error::input("feature map", format!("cannot be described ({e})"), "give finite numbers"))?;
        Ok(Self { path: path.to_owned(), identity: described, interval: INTERVAL })
    }

    /// Saved about this often instead of every minute; never so often that it takes more than a twentieth of the time.
    #[must_use]
    pub fn every(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file, once the fit is safe elsewhere.
    pub fn remove(&self) -> Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io(&self.path, e)),
            _ => Ok(()),
        }
    }

    /// The sums over all examples: from the file as far as that goes, then by gathering.
    pub(super) fn gather<T: Field>(&self, data: &Data<'_, T>, watch: &dyn Watch) -> Result<Gram> {
        let _claim = Claim::take(&self.path)?;
        let examples = fingerprint(data.source, watch)?;
        let mut gram = match File::open(&self.path) {
            Ok(file) => self.read(file, data, examples)?,
            Err(e) if e.kind() == ErrorKind::NotFound => Gram::new(data.features(), data.source.shape().targets),
            Err(e) => return Err(Error::io(&self.path, e)),
        };
        let (mut saved, mut interval) = (Instant::now(), self.interval);
        let blocks = next(&gram)..data.source.blocks();
        let outcome = gram.add_panels(data, blocks, watch, &mut |gram| {
            if saved.elapsed() >= interval {
                let start = Instant::now();
                self.save(gram, examples)?;
                (saved, interval) = (Instant::now(), self.interval.max(SHARE * start.elapsed()));
            }
            Ok(())
        });
        // Whole panels only are in the sums when the watch interrupts; what follows may be interrupted as well.
        match outcome {
            Ok(()) | Err(Error::Interrupted) => self.save(&gram, examples)?,
            Err(_) => {}
        }
        outcome.map(|()| gram)
    }

    fn save(&self, gram: &Gram, examples: u64) -> Result<()> {
        let file = AtomicFile::create(&self.path)?;
        let mut out = Summed { inner: BufWriter::new(file.handle()?), sum: Hash::new() };
        let mut write = || -> std::io::Result<()> {
            out.write_all(MAGIC)?;
            out.write_all(&(self.identity.len() as u64).to_le_bytes())?;
            out.write_all(self.identity.as_bytes())?;
            out.write_all(&examples.to_le_bytes())?;
            gram.write(&mut out)?;
            let sum = out.sum.value();
            out.write_all(&sum.to_le_bytes())?;
            out.flush()
        };
        write().map_err(|e| Error::io(&self.path, e))?;
        drop(out);
        file.commit()
    }

    fn read<T: Field>(&self, file: File, data: &Data<'_, T>, examples: u64) -> Result<Gram> {
        let place = self.path.display().to_string();
        let damaged = || Error::input(place.clone(), "this checkpoint is damaged", "remove it to begin again");
        let other = |what: &str| {
            let problem = format!("this checkpoint belongs to {what}");
            Err(Error::input(place.clone(), problem, "run the command that it is of, or remove it to begin again"))
        };
        let size = file.metadata().map_err(|e| Error::io(&self.path, e))?.len();
        let mut from = Summed { inner: BufReader::new(file), sum: Hash::new() };
        let mut word = [0; 8];
        from.read_exact(&mut word).map_err(|_| damaged())?;
        if &word != MAGIC {
            return Err(Error::input(place, "it is no checkpoint of a fit", "give another name"));
        }
        from.read_exact(&mut word).map_err(|_| damaged())?;
        let len = usize::try_from(u64::from_le_bytes(word)).ok().filter(|len| *len as u64 <= size).ok_or_else(damaged)?;
        let mut identity = vec![0; len];
        from.read_exact(&mut identity).map_err(|_| damaged())?;
        from.read_exact(&mut word).map_err(|_| damaged())?;
        if identity != self.identity.as_bytes() {
            return other("another feature map or precision");
        }
        if u64::from_le_bytes(word) != examples {
            return other("other examples or weights");
        }
        // The sizes follow from the map and the examples: what says otherwise is damaged, and is not worth the memory.
        let (p, t) = (data.features() as u64, data.source.shape().targets as u64);
        let numbers = 1 + p + 4 * t + p * t + p * (p + 1) / 2;
        if size != 8 + 8 + len as u64 + 8 + 8 + 24 + 8 * numbers + 8 {
            return Err(damaged());
        }
        let gram = Gram::read(&mut from, &place).map_err(|_| damaged())?;
        let sum = from.sum.value();
        from.read_exact(&mut word).map_err(|_| damaged())?;
        let whole = gram.examples == data.source.len() || gram.examples.is_multiple_of(SetBlock::CAPACITY as u64);
        if u64::from_le_bytes(word) != sum || gram.cross.nrows() as u64 != p || !whole {
            return Err(damaged());
        }
        Ok(gram)
    }
}

/// The first block that is not in the sums.
fn next(gram: &Gram) -> u64 {
    gram.examples.div_ceil(SetBlock::CAPACITY as u64)
}

/// A hash of all sets, their targets and their weights, in order.
fn fingerprint(source: &dyn SetSource, watch: &dyn Watch) -> Result<u64> {
    let mut hash = Hash::new();
    let mut block = SetBlock::new(source.shape());
    let shape = source.shape();
    [shape.keys, shape.d, shape.targets].iter().for_each(|size| hash.word(*size as u64));
    hash.word(source.len());
    for index in 0..source.blocks() {
        if watch.interrupted() {
            return Err(Error::Interrupted);
        }
        source.fill(index, &mut block)?;
        for values in [&block.x, &block.y, &block.weights] {
            values.iter().for_each(|v| hash.word(v.to_bits()));
        }
        block.lengths.iter().for_each(|len| hash.word(*len as u64));
    }
    Ok(hash.value())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::super::tests::{Waves, examples};
    use super::super::{Options, Ridge, Solver, Unwatched, fit, fit_with_checkpoint};
    use super::*;
    use crate::features::{Model, Sets};
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct After(AtomicUsize, usize);
    impl Watch for After {
        fn interrupted(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed) >= self.1
        }
    }

    fn checkpoint(folder: &Path, seed: u64) -> Checkpoint {
        Checkpoint::new(&folder.join("sums"), &MapSpec::new(Model::Rfa, 2, 2, 11, seed), Precision::F64).unwrap()
    }

    fn options() -> Options {
        Options { ridge: Ridge::Given(1e-3), ..Options::default() }
    }

    /// Interrupted at every poll, again and again, the fit has the bits of one that never was, and makes progress.
    #[test]
    fn a_fit_that_is_continued_has_the_same_bits() {
        let folder = tempfile::tempdir().unwrap();
        let (map, sets, point) = (Waves { p: 33, decay: 0.9 }, examples(4500, 2, true), checkpoint(folder.path(), 0));
        let whole = fit::<f64>(&map, &sets, &Options { solver: Solver::Gram, ..options() }, &Unwatched).unwrap();
        let mut runs = 0;
        let continued = loop {
            // Nine blocks of examples for their hash, then two panels at a time.
            match fit_with_checkpoint::<f64>(&map, &sets, &options(), Some(&point), &After(AtomicUsize::new(0), 11)) {
                Ok(fit) => break fit,
                Err(error) => assert!(matches!(error, Error::Interrupted), "{error}"),
            }
            runs += 1;
            assert!(runs < 10, "no progress");
        };
        assert!(runs >= 2, "interrupted {runs} times");
        assert_eq!((continued.v, continued.intercept, continued.solver), (whole.v, whole.intercept, Solver::Gram));
        point.remove().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        point.remove().unwrap();
    }

    #[test]
    fn what_belongs_to_another_fit_or_is_damaged_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (map, sets, point) = (Waves { p: 33, decay: 0.9 }, examples(1500, 1, true), checkpoint(folder.path(), 0));
        let run = |sets: &Sets, point: &Checkpoint| fit_with_checkpoint::<f64>(&map, sets, &options(), Some(point), &Unwatched);
        run(&sets, &point).unwrap();
        let refused = |sets: &Sets, point: &Checkpoint| run(sets, point).unwrap_err().to_string();
        let changed = |change: &dyn Fn(&mut SetBlock)| {
            let mut block = sets.block().clone();
            change(&mut block);
            Sets::new(block)
        };
        assert!(refused(&sets, &checkpoint(folder.path(), 1)).contains("another feature map"));
        let place = folder.path().join("sums");
        let single = Checkpoint::new(&place, &MapSpec::new(Model::Rfa, 2, 2, 11, 0), Precision::F32).unwrap();
        assert!(refused(&sets, &single).contains("precision"));
        for other in [
            changed(&|block| block.x[7] += 1e-12),
            changed(&|block| block.y[1499] = 0.0),
            changed(&|block| block.weights[700] = 9.0),
            sets.slice(0..1499),
        ] {
            assert!(refused(&other, &point).contains("other examples or weights"));
        }
        let bytes = std::fs::read(&place).unwrap();
        for at in [0, 9, 16, bytes.len() / 2, bytes.len() - 1] {
            let mut broken = bytes.clone();
            broken[at] ^= 1;
            std::fs::write(&place, &broken).unwrap();
            let said = refused(&sets, &point);
            assert!(["damaged", "no checkpoint", "another feature map"].iter().any(|what| said.contains(what)), "{at}: {said}");
        }
        for len in [0, 5, 20, bytes.len() - 8, bytes.len() - 1] {
            std::fs::write(&place, &bytes[..len]).unwrap();
            assert!(refused(&sets, &point).contains("damaged"), "{len}");
        }
        std::fs::write(&place, &bytes).unwrap();
        run(&sets, &point).unwrap();
    }

    #[test]
    fn other_solvers_have_no_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let (map, sets, point) = (Waves { p: 33, decay: 0.9 }, examples(20, 1, false), checkpoint(folder.path(), 0));
        let run = |solver| {
            fit_with_checkpoint::<f64>(&map, &sets, &Options { solver, ..options() }, Some(&point), &Unwatched)
                .map(|fit| fit.solver)
        };
        assert_eq!(run(Solver::Auto).unwrap(), Solver::Gram, "fewer examples than features, and yet");
        for solver in [Solver::Dual, Solver::Cg] {
            assert!(run(solver).unwrap_err().to_string().contains("gram"));
        }
    }
}

//! Sets and frozen heads on disk, the same for everyone.

use super::{D, HEADS, KEYS, N, N_TEST, Report, SEED};
use attnlearn::features::{MapSpec, Model, SetBlock, SetColumns, SetInputs, SetSource, SetStream, SetWriter, Target, TargetSpec};
use attnlearn::files::Dtype;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// The files of a problem.
pub struct Problem {
    pub train: PathBuf,
    pub test: PathBuf,
    pub weights: PathBuf,
}

impl Report {
    /// A file of sets, drawn unless it is there.
    pub fn sets(&self, name: &str, n: u64, seed: u64, noise: f64, dtype: Dtype) -> Result<PathBuf, String> {
        let path = self.bench.scratch.join(format!("{name}.npz"));
        if path.exists() {
            return Ok(path);
        }
        let draw = || -> attnlearn::Result<()> {
            let target = Target::new(&TargetSpec::Average { p: 3 }, SetInputs::new(KEYS, D), 0)?;
            let stream = SetStream::new(target, seed, n).with_noise(noise)?;
            let columns = SetColumns { x: Some(dtype), y: Some(dtype), length: false, weight: false };
            let mut writer = SetWriter::create(&path, stream.shape(), n, columns)?;
            let mut block = SetBlock::new(stream.shape());
            for index in 0..stream.blocks() {
                stream.fill(index, &mut block)?;
                writer.append(&block)?;
            }
            writer.finish()
        };
        draw().map_err(|e| e.to_string())?;
        Ok(path)
    }

    /// The frozen heads that attnlearn draws from [`SEED`], for the references.
    pub fn weights(&self, heads: usize) -> Result<PathBuf, String> {
        let path = self.bench.scratch.join(format!("weights-{heads}.npy"));
        let weights = MapSpec::new(Model::Rfa, D, KEYS, heads, SEED).weights().map_err(|e| e.to_string())?;
        let file = fs::File::create(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut to = BufWriter::new(file);
        let shape = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({heads}, {0}, {0}), }}", D + 1);
        // Version 1.0: magic, length, and a header padded to 64 bytes that ends in a line feed.
        let header = format!("{shape:<width$}\n", width = (shape.len() + 11).next_multiple_of(64) - 11);
        let mut write = || -> std::io::Result<()> {
            to.write_all(b"\x93NUMPY\x01\x00")?;
            to.write_all(&u16::try_from(header.len()).unwrap_or(u16::MAX).to_le_bytes())?;
            to.write_all(header.as_bytes())?;
            weights.iter().try_for_each(|w| to.write_all(&w.to_le_bytes()))?;
            to.flush()
        };
        write().map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path)
    }

    pub fn problem(&self, name: &str, noise: f64) -> Result<Problem, String> {
        Ok(Problem {
            train: self.sets(name, N, 1, noise, Dtype::F64)?,
            test: self.sets("test", N_TEST, 2, 0.0, Dtype::F64)?,
            weights: self.weights(HEADS)?,
        })
    }
}

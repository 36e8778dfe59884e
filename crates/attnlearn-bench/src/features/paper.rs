//! RFA, BRFA and RFMLP on the paper's targets, seed by seed.

use super::{D, HEADS, KEYS, N_TEST, Report};
use attnlearn::features::{Experiment, Learner, MapSpec, Model, Paired, Precision, SetInputs, TargetSpec};

impl Report {
    /// Paired comparisons of the models, everything drawn from the seed.
    pub fn paper(&mut self) -> Result<(), String> {
        const PAPER_N: u64 = 4096;
        const SEEDS: std::ops::Range<u64> = 200..205;
        self.line(&format!(
            "## The paper's comparison: d = N = {D}, M = {HEADS}, n = {PAPER_N}, {} seeds, ridge of least leave-one-out error, f32\n",
            SEEDS.end - SEEDS.start
        ));
        self.line(
            "Mean held-out MSE/Var, and the ratio of two models' errors, seed by seed, with its interval of confidence 95 %.\n",
        );
        self.table(&["target", "RFA", "BRFA", "RFMLP", "RFA / RFMLP", "BRFA / RFMLP", "BRFA / RFA"]);
        for target in [
            "average:p=2",
            "average:p=5",
            "correlation:p=1,q=0",
            "correlation:p=1,q=1",
            "correlation:p=2,q=1",
            "correlation:p=4,q=2",
        ] {
            let spec: TargetSpec = target.parse().map_err(|e| format!("{target}: {e}"))?;
            let experiment = Experiment::new(spec, SetInputs::new(KEYS, D), PAPER_N, N_TEST);
            let mut errors = Vec::new();
            for model in [Model::Rfa, Model::Brfa, Model::Rfmlp] {
                let learner = Learner::Frozen { map: MapSpec::new(model, D, KEYS, HEADS, 0), precision: Precision::F32 };
                let fits = SEEDS.map(|seed| experiment.held_out(&learner, seed).map(|score| score.nmse));
                errors.push(fits.collect::<attnlearn::Result<Vec<f64>>>().map_err(|e| e.to_string())?);
                eprintln!("{target} {model:?}: {:.4?}", errors.last());
            }
            self.bench.note(&serde_json::json!({
                "job": "paper", "target": target, "n": PAPER_N, "rfa": errors[0], "brfa": errors[1], "rfmlp": errors[2]
            }))?;
            let mean = |i: usize| format!("{:.4}", errors[i].iter().sum::<f64>() / errors[i].len() as f64);
            let ratio = |a: usize, b: usize| {
                let paired = Paired::log_ratio(&errors[a], &errors[b]).map_err(|e| e.to_string())?;
                Ok::<_, String>(format!("{:.3} ({:.3} to {:.3})", paired.mean.exp(), paired.low.exp(), paired.high.exp()))
            };
            let row = [target.to_owned(), mean(0), mean(1), mean(2), ratio(0, 2)?, ratio(1, 2)?, ratio(1, 0)?];
            self.row(&row);
        }
        self.line("");
        Ok(())
    }
}

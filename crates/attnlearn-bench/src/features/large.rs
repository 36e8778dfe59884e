//! More features than any Gram matrix has room for.

use super::peers::{Peer, number, total};
use super::{D, N_TEST, Report, SEED, shown, words};
use attnlearn::files::Dtype;

impl Report {
    pub fn large(&mut self) -> Result<(), String> {
        const LARGE_HEADS: usize = 5883;
        const LARGE_N: u64 = 50_000;
        let p = LARGE_HEADS * (D + 1);
        self.line(&format!("## p = {p} (M = {LARGE_HEADS}), n = {LARGE_N}: conjugate gradients, nothing kept, 4 GiB allowed\n"));
        self.table(&["", "ridge", "seconds", "iterations", "relative residual", "peak memory", "held-out MSE/Var"]);
        let data = self.sets("large", LARGE_N, 4, 0.3, Dtype::F32)?;
        let test = self.sets("test", N_TEST, 2, 0.0, Dtype::F64)?;
        for ridge in ["1e-2", "1e-3"] {
            let mut arguments = words(&[
                "--job",
                "stream",
                "--dtype",
                "f32",
                "--ridge",
                ridge,
                "--solver",
                "cg",
                "--memory",
                "4",
                "--tolerance",
                "1e-6",
            ]);
            arguments.extend(words(&["--heads", &LARGE_HEADS.to_string(), "--seed", &SEED.to_string()]));
            arguments.extend(["--data".into(), shown(&data), "--test".into(), shown(&test)]);
            let r = self.bench.run(Peer::Attnlearn, &arguments)?;
            let row = [
                "f32".into(),
                ridge.to_owned(),
                format!("{:.0}", total(&r)),
                r["iterations"].to_string(),
                format!("{:.1e}", number(&r, "residual")),
                format!("{:.2} GiB", number(&r, "peak_bytes") / f64::from(1u32 << 30)),
                format!("{:.4e}", number(&r, "mse_over_var")),
            ];
            self.row(&row);
        }
        self.line("");
        Ok(())
    }
}

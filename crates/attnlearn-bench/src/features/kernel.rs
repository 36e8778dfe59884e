//! Infinitely many heads.

use super::peers::{PEERS, Peer, number, total};
use super::{KEYS, N_TEST, Report, shown, words};
use attnlearn::files::Dtype;

impl Report {
    pub fn kernel(&mut self) -> Result<(), String> {
        const KERNEL_N: u64 = 4096;
        self.line(&format!("## Infinitely many heads: n = {KERNEL_N}, N = {KEYS}, f64, kernel matrix and Cholesky\n"));
        self.table(&[
            "kernel",
            "seconds",
            "of them kernel",
            "ns a pair of keys",
            "NumPy / it",
            "JAX / it",
            "held-out MSE/Var",
            "NumPy's",
        ]);
        let data = self.sets("kernel", KERNEL_N, 5, 0.3, Dtype::F64)?;
        let test = self.sets("test", N_TEST, 2, 0.0, Dtype::F64)?;
        for model in ["rfa", "brfa", "rfmlp"] {
            let peers = if model == "rfa" { &PEERS[..] } else { &PEERS[..1] };
            let rounds = self.rounds;
            let reports = self.bench.side_by_side(peers, rounds, |peer| {
                let mut arguments = words(&["--job", "kernel", "--dtype", "f64", "--ridge", "1e-4"]);
                arguments.extend(["--data".into(), shown(&data), "--test".into(), shown(&test)]);
                if peer == Peer::Attnlearn {
                    arguments.extend(words(&["--model", model]));
                }
                arguments
            })?;
            let ours = &reports[0];
            let kernel = ours["stages"]["gram"].as_f64().unwrap_or(f64::NAN);
            let pairs = (KERNEL_N * (KERNEL_N + 1) / 2) as f64 * (KEYS * KEYS) as f64;
            let ratio = |peer: usize| reports.get(peer).map_or("–".into(), |r| format!("{:.2}", total(r) / total(ours)));
            let row = [
                model.to_owned(),
                format!("{:.2}", total(ours)),
                format!("{kernel:.2}"),
                if model == "rfmlp" { "–".into() } else { format!("{:.2}", 1e9 * kernel / pairs) },
                ratio(1),
                ratio(2),
                format!("{:.5e}", number(ours, "mse_over_var")),
                reports.get(1).map_or("–".into(), |r| format!("{:.5e}", number(r, "mse_over_var"))),
            ];
            self.row(&row);
        }
        self.line("");
        Ok(())
    }
}

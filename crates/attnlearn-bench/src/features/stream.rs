//! Sets read from their file as they are needed: memory and time against n.

use super::peers::{PEERS, Peer, number, total};
use super::{D, KEYS, N_TEST, Report, SEED, shown, words};
use attnlearn::files::Dtype;

impl Report {
    pub fn stream(&mut self) -> Result<(), String> {
        const STREAM_HEADS: usize = 200;
        let p = STREAM_HEADS * (D + 1);
        let gram = (8 * p * p) as f64;
        self.line(&format!("## Streamed from a file: M = {STREAM_HEADS} (p = {p}), f32, Gram {:.0} MB\n", gram / 1e6));
        self.table(&[
            "",
            "n",
            "seconds",
            "µs a set",
            "share of the yardstick",
            "peak memory",
            "over the Gram's 8p²",
            "held-out MSE/Var",
        ]);
        let (test, weights) = (self.sets("test", N_TEST, 2, 0.0, Dtype::F64)?, self.weights(STREAM_HEADS)?);
        for n in [250_000u64, 500_000, 1_000_000] {
            let data = self.sets(&format!("stream-{n}"), n, 3, 0.3, Dtype::F32)?;
            let peers = if n == 1_000_000 { &PEERS[..] } else { &PEERS[..1] };
            let reports = self.bench.side_by_side(peers, 1, |peer| {
                let mut arguments = words(&["--job", "stream", "--dtype", "f32", "--ridge", "1e-4"]);
                arguments.extend(["--data".into(), shown(&data), "--test".into(), shown(&test)]);
                if peer == Peer::Attnlearn {
                    let heads = STREAM_HEADS.to_string();
                    arguments.extend(words(&["--heads", &heads, "--seed", &SEED.to_string(), "--solver", "gram"]));
                } else {
                    arguments.extend(["--weights".into(), shown(&weights)]);
                }
                arguments
            })?;
            let nf = n as f64;
            let work = nf * (STREAM_HEADS * ((D + 1) * (D + 1) + 2 * KEYS * (D + 1))) as f64
                + nf * (p * (p + 1) / 2) as f64
                + (p as f64).powi(3) / 6.0;
            for (library, r) in ["attnlearn", "NumPy", "JAX"].iter().zip(&reports) {
                let row = [
                    library.to_string(),
                    n.to_string(),
                    format!("{:.1}", total(r)),
                    format!("{:.1}", 1e6 * total(r) / nf),
                    format!("{:.0} %", 100.0 * work / total(r) / self.rates[0]),
                    format!("{:.0} MB", number(r, "peak_bytes") / 1e6),
                    format!("{:.2}", number(r, "peak_bytes") / gram),
                    format!("{:.4e}", number(r, "mse_over_var")),
                ];
                self.row(&row);
            }
        }
        self.line("\nThe references' peaks contain Python and their libraries.\n");
        Ok(())
    }
}

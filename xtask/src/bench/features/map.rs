//! Feature maps alone: what they give is thrown away.

use super::peers::{PEERS, Peer, number, total};
use super::{D, DTYPES, HEADS, N, Report, shown, words};

impl Report {
    pub fn map(&mut self) -> Result<(), String> {
        let data = self.problem("noise-0.3", 0.3)?;
        self.line(&format!("## Feature maps alone: d = N = {D}, M = {HEADS}, n = {N}, nothing kept\n"));
        self.table(&["model", "", "attnlearn, ns a set", "share of the yardstick", "NumPy / it", "JAX / it"]);
        for model in ["rfa", "softmax", "row-relu", "rfmlp"] {
            for (index, dtype) in DTYPES.iter().enumerate() {
                let peers = if model == "rfa" { &PEERS[..] } else { &PEERS[..1] };
                let rounds = self.rounds;
                let reports = self.bench.side_by_side(peers, rounds, |peer| {
                    let mut arguments = words(&["--job", "features", "--dtype", dtype, "--repeat", "3"]);
                    arguments.extend(["--data".into(), shown(&data.train)]);
                    if peer == Peer::Attnlearn {
                        arguments.extend(words(&["--heads", &HEADS.to_string(), "--model", model]));
                    } else {
                        arguments.extend(["--weights".into(), shown(&data.weights)]);
                    }
                    arguments
                })?;
                let ours = &reports[0];
                let ratio = |peer: usize| reports.get(peer).map_or("–".into(), |r| format!("{:.2}", total(r) / total(ours)));
                let share = 100.0 * number(ours, "multiply_adds") / total(ours) / self.rates[index];
                let row = [
                    model.to_owned(),
                    dtype.to_string(),
                    format!("{:.0}", 1e9 * total(ours) / N as f64),
                    format!("{share:.0} %"),
                    ratio(1),
                    ratio(2),
                ];
                self.row(&row);
            }
        }
        self.line("");
        Ok(())
    }
}

//! Feature maps alone: what they give is thrown away.

use super::peers::{PEERS, Peer, number, total};
use super::{D, DTYPES, HEADS, KEYS, N, Report, shown, words};

impl Report {
    pub fn map(&mut self) -> Result<(), String> {
        let data = self.problem("noise-0.3", 0.3)?;
        self.line(&format!("## Feature maps alone: d = N = {D}, M = {HEADS}, n = {N}, nothing kept\n"));
        self.line(
            "*Products and writes*: seconds that the products would take at the yardstick and the writes alone take (measured: the same places are\n\
             filled with ones), over the seconds of the map. *Beyond RFA*: exponentials, sums and divisions, for every key and head.\n",
        );
        let titles =
            ["model", "", "ns a set", "share of the yardstick", "products and writes", "beyond RFA", "NumPy / it", "JAX / it"];
        self.table(&titles);
        let mut plain = [f64::NAN; 2];
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
                let needed = number(ours, "multiply_adds") / self.rates[index] + number(ours, "write_seconds");
                let beyond = match model {
                    "rfa" => {
                        plain[index] = total(ours);
                        "–".into()
                    }
                    "rfmlp" => "–".into(),
                    _ => format!("{:.2} ns", 1e9 * (total(ours) - plain[index]) / (N as usize * HEADS * KEYS) as f64),
                };
                let row = [
                    model.to_owned(),
                    dtype.to_string(),
                    format!("{:.0}", 1e9 * total(ours) / N as f64),
                    format!("{share:.0} %"),
                    format!("{:.0} %", 100.0 * needed / total(ours)),
                    beyond,
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

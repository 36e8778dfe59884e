//! The main problem: direct solvers, what `auto` picks, and the ridge path.
//!
//! Operations are counted in multiply-adds that any direct method needs: features `n M ((d+1)² + 2N(d+1))`, one triangle of their products
//! `n(n+1)p/2`, Cholesky `m³/6` for the smaller `m = min(n, p)`. What a program computes beyond these does not count.

use super::peers::{PEERS, Peer, number, total};
use super::problem::Problem;
use super::{D, DTYPES, HEADS, KEYS, N, N_TEST, Report, SEED, shown, words};
use serde_json::Value;

impl Report {
    /// Fits by the peers at a ridge; what is given to attnlearn alone is `ours`.
    fn fits(&mut self, peers: &[Peer], data: &Problem, dtype: &str, ridge: f64, ours: &[&str]) -> Result<Vec<Value>, String> {
        let ridge = format!("{ridge:e}");
        let rounds = self.rounds;
        self.bench.side_by_side(peers, rounds, |peer| {
            let mut arguments = words(&["--job", "fit", "--dtype", dtype, "--ridge", &ridge]);
            arguments.extend(["--data".into(), shown(&data.train), "--test".into(), shown(&data.test)]);
            if peer == Peer::Attnlearn {
                arguments.extend(words(&["--heads", &HEADS.to_string(), "--seed", &SEED.to_string()]));
                arguments.extend(words(ours));
            } else {
                arguments.extend(["--weights".into(), shown(&data.weights)]);
            }
            arguments
        })
    }

    pub fn fit(&mut self) -> Result<(), String> {
        let p = HEADS * (D + 1);
        let (n, m) = (N as f64, (N as f64).min(p as f64));
        let features = n * (HEADS * ((D + 1) * (D + 1) + 2 * KEYS * (D + 1))) as f64;
        let work = features + n * (n + 1.0) / 2.0 * p as f64 + m.powi(3) / 6.0;
        self.line(&format!("## Fits: d = N = {D}, M = {HEADS} (p = {p}), n = {N}\n"));
        self.line(&format!(
            "Target `average:p=3`, standard deviation of the noise in y as given, errors on {N_TEST} sets without noise, ridge of least exact\n\
             leave-one-out error (`path`, in the widest precision shown). Counted: {work:.3e} multiply-adds, of them features {:.1} %, products {:.1} %, Cholesky {:.1} %.\n",
            100.0 * features / work,
            100.0 * (work - features - m.powi(3) / 6.0) / work,
            100.0 * m.powi(3) / 6.0 / work
        ));
        for (name, noise, dtypes) in [("noise-0.3", 0.3, &DTYPES[..]), ("noise-0", 0.0, &DTYPES[..1])] {
            let data = self.problem(name, noise)?;
            let mut paths = Vec::new();
            for dtype in dtypes {
                let mut arguments = words(&["--job", "path", "--dtype", dtype, "--heads", &HEADS.to_string()]);
                arguments.extend(words(&["--seed", &SEED.to_string(), "--solver", "dual"]));
                arguments.extend(["--data".into(), shown(&data.train), "--test".into(), shown(&data.test)]);
                paths.extend(self.bench.side_by_side(&PEERS[..1], self.rounds, |_| arguments.clone())?);
            }
            let ridge = paths.last().map_or(f64::NAN, |path| number(path, "ridge"));
            self.line(&format!("### Noise {noise}: ridge {ridge:.3e}\n"));
            self.table(&[
                "",
                "solver",
                "seconds",
                "better reference / it",
                "share of the yardstick",
                "held-out MSE/Var",
                "against the better reference's",
            ]);
            for (index, dtype) in dtypes.iter().enumerate() {
                let direct = self.fits(&PEERS, &data, dtype, ridge, &["--solver", "dual"])?;
                let auto = self.fits(&PEERS[..1], &data, dtype, ridge, &["--solver", "auto"])?;
                let better = if total(&direct[1]) <= total(&direct[2]) { &direct[1] } else { &direct[2] };
                let (seconds, error) = (total(better), number(better, "mse_over_var"));
                let rate = self.rates[index];
                let names = ["attnlearn", "NumPy", "JAX"];
                let all = names.iter().zip(&direct).chain([(&"attnlearn, `auto`", &auto[0])]);
                for (library, r) in all {
                    let solver = match r["solver"].as_str() {
                        Some("cg") => format!("cg, {} iterations", r["iterations"]),
                        Some(name) => name.into(),
                        None => "dual".into(),
                    };
                    let share = match r["solver"].as_str() {
                        Some("cg") => "–".into(),
                        _ => format!("{:.0} %", 100.0 * work / total(r) / rate),
                    };
                    let row = [
                        format!("{library}, {dtype}"),
                        solver,
                        format!("{:.1}", total(r)),
                        format!("{:.2}", seconds / total(r)),
                        share,
                        format!("{:.5e}", number(r, "mse_over_var")),
                        format!("{:+.2} %", 100.0 * (number(r, "mse_over_var") / error - 1.0)),
                    ];
                    self.row(&row);
                }
                let path = &paths[index];
                let row = [
                    format!("attnlearn, {dtype}, 20 ridges with leave-one-out"),
                    "dual".into(),
                    format!("{:.1}", total(path)),
                    format!("{:.2} × the direct fit", total(path) / total(&direct[0])),
                    String::new(),
                    format!("{:.5e}", number(path, "mse_over_var")),
                    format!("at its ridge {:.3e}", number(path, "ridge")),
                ];
                self.row(&row);
            }
            self.line("");
        }
        Ok(())
    }
}

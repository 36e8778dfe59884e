//! How scores are made, on the command line: windows, key heads, rotary positions, norms, relative biases.

use attnlearn::descend::Rank;
use attnlearn::learn::Settings;
use attnlearn::scores::Rotation;
use attnlearn::words::quoted;
use attnlearn::{Error, Result};
use std::fs;
use std::path::Path;

/// What `learn` can be told of scores beyond `--causal`.
#[derive(clap::Args, Debug, Default)]
pub struct ScoresArgs {
    /// Descend: a query sees this many of the last keys, itself among them.
    #[arg(long, value_name = "N")]
    window: Option<usize>,
    /// Descend: key heads that the heads share in equal numbers (grouped-query attention); with --heads and --rank.
    #[arg(long, value_name = "G")]
    kv_heads: Option<usize>,
    /// Descend: rotary positions, by their base or by a file of frequencies, one for every pair of coordinates; with --rank.
    #[arg(long, value_name = "BASE|FILE")]
    rope: Option<String>,
    /// Descend: coordinates of a head that turn, if not all do (partial rotation).
    #[arg(long, value_name = "N", requires = "rope")]
    rope_dims: Option<usize>,
    /// Descend: queries and keys are divided by their root mean square (query/key norms), with this ε beside the mean square.
    #[arg(long, value_name = "EPSILON")]
    qk_norm: Option<f64>,
    /// Descend: heads have relative biases, a number for every distance.
    #[arg(long)]
    relative_bias: bool,
}

impl ScoresArgs {
    /// The file of frequencies, if there is one.
    pub fn file(&self) -> Option<&Path> {
        self.rope.as_deref().filter(|rope| rope.parse::<f64>().is_err()).map(Path::new)
    }

    /// Puts them into the settings.
    pub fn apply(&self, settings: &mut Settings) -> Result<()> {
        settings.window = self.window;
        settings.kv_heads = self.kv_heads;
        settings.norm = self.qk_norm;
        settings.relative = self.relative_bias;
        let Some(rope) = &self.rope else { return Ok(()) };
        let frequencies = match rope.parse::<f64>() {
            Ok(base) => {
                if !(base.is_finite() && base > 0.0) {
                    return Err(Error::input("--rope", format!("a base of {base}"), "give a number above 0, 10000 say"));
                }
                let turned = match (self.rope_dims, settings.rank) {
                    (Some(turned), _) => turned,
                    (None, Some(Rank::Given(rank))) => rank,
                    (None, _) => return Err(Error::input("--rope", "the dimension of a head is not given", "give --rank too")),
                };
                if turned == 0 || !turned.is_multiple_of(2) {
                    let problem = format!("{turned} coordinates of a head cannot turn in pairs");
                    return Err(Error::input("--rope", problem, "give an even number, at most the rank, with --rope-dims"));
                }
                Rotation::of_base(base, turned).frequencies
            }
            Err(_) => {
                let text = fs::read_to_string(rope).map_err(|e| Error::io(Path::new(rope), e))?;
                let number = |word: &str| {
                    word.parse::<f64>().ok().filter(|v| v.is_finite()).ok_or_else(|| {
                        Error::input(rope, format!("{} is no frequency", quoted(word)), "give finite numbers, one for every pair")
                    })
                };
                text.split_whitespace().map(number).collect::<Result<_>>()?
            }
        };
        settings.rotation = Some(Rotation { frequencies });
        Ok(())
    }
}

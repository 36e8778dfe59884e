//! Values of flags: how they are written on the command line, and what they mean to the library.

use attnlearn::data::InputDistribution;
use attnlearn::features::ridge::Ridge;
use attnlearn::files::Dtype;
use attnlearn::layer::AttentionLayer;
use attnlearn::teacher::Family;
use attnlearn::words::{Setting, Value};
use attnlearn::{Error, Result};
use clap::ValueEnum;
use std::time::Duration;

/// Input distributions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Inputs {
    /// Uniform on {±1}^d.
    #[default]
    Boolean,
    /// Standard normal.
    Gaussian,
    /// Uniform on the sphere of radius √d.
    Sphere,
}

impl From<Inputs> for InputDistribution {
    fn from(inputs: Inputs) -> Self {
        match inputs {
            Inputs::Boolean => Self::Boolean,
            Inputs::Gaussian => Self::Gaussian,
            Inputs::Sphere => Self::Sphere,
        }
    }
}

/// Number formats of real numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Float {
    /// Single precision.
    F32,
    /// Double precision.
    #[default]
    F64,
}

/// Number formats of inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Number {
    /// Signed bytes, for inputs of ±1.
    I8,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

impl From<Float> for Dtype {
    fn from(float: Float) -> Self {
        match float {
            Float::F32 => Self::F32,
            Float::F64 => Self::F64,
        }
    }
}

impl From<Number> for Dtype {
    fn from(number: Number) -> Self {
        match number {
            Number::I8 => Self::I8,
            Number::F32 => Self::F32,
            Number::F64 => Self::F64,
        }
    }
}

/// A setting as people write it here: `--memory 0.5`, `--resume`, `--no-polish`.
pub fn flag(setting: &Setting) -> String {
    let name = match setting.name {
        "rotation" => "rope".to_owned(),
        "norm" => "qk-norm".to_owned(),
        "relative" => "relative-bias".to_owned(),
        name => name.replace('_', "-"),
    };
    match &setting.value {
        None | Some(Value::Switch(true)) => format!("--{name}"),
        Some(Value::Switch(false)) => format!("--no-{name}"),
        Some(Value::Given(value)) => format!("--{name} {value}"),
    }
}

/// `1000`, `1_000`, `1e3`, `2.5e6`.
pub fn count(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    if let Ok(n) = plain.parse() {
        return Ok(n);
    }
    let value: f64 = plain.parse().map_err(|_| "not a number such as 1000000 or 1e6".to_owned())?;
    // Up to 2^53 every whole number is exact.
    if (0.0..=9e15).contains(&value) && value.fract() <= 0.0 {
        Ok(value as u64)
    } else {
        Err("not a whole number such as 1000000 or 1e6".into())
    }
}

/// `90`, `90s`, `10m`, `1.5h`: seconds.
pub fn time(text: &str) -> Result<f64, String> {
    let units = [("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];
    let found = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
    let (number, seconds) = found.unwrap_or((text, 1.0));
    match number.trim().parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value * seconds),
        _ => Err("not a time such as 90s, 10m or 1.5h".into()),
    }
}

/// `dense`, `diagonal`, `block:SIZE`, `low-rank:RANK`.
pub fn family(text: &str) -> Result<Family, String> {
    let size = |text: &str| text.parse().map_err(|_| format!("'{text}' is not a whole number"));
    match text.split_once(':') {
        None if text == "dense" => Ok(Family::Dense),
        None if text == "diagonal" => Ok(Family::Diagonal),
        Some(("block", n)) => Ok(Family::Block { size: size(n)? }),
        Some(("low-rank", n)) => Ok(Family::LowRank { rank: size(n)? }),
        _ => Err("give dense, diagonal, block:SIZE or low-rank:RANK".into()),
    }
}

/// `auto`, `ridgeless` or a number above 0.
pub fn ridge(text: &str) -> Result<Ridge, String> {
    match text {
        "auto" => Ok(Ridge::Auto),
        "ridgeless" => Ok(Ridge::Ridgeless),
        number => positive(number).map(Ridge::Given).map_err(|_| "give a positive number, auto or ridgeless".into()),
    }
}

/// A finite number above 0.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v.is_finite() && v > 0.0 => Ok(v),
        _ => Err("give a positive number".into()),
    }
}

/// A time, not negative.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "give a number of seconds".into())
}

/// A number above 0 and below 1.
pub fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(v) if v > 0.0 && v < 1.0 => Ok(v),
        _ => Err("give a number between 0 and 1".into()),
    }
}

/// A finite number that is not negative.
pub fn magnitude(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v.is_finite() && v >= 0.0 => Ok(v),
        _ => Err("give a finite number that is not negative".into()),
    }
}

/// Refuses inputs whose tokens do not fit a layer.
pub fn same_dimension(layer: &AttentionLayer, d: usize, place: &str) -> Result<()> {
    if layer.d() == d {
        return Ok(());
    }
    let problem = format!("tokens of dimension d = {d} for a layer with d = {}", layer.d());
    Err(Error::input(place, problem, "give a layer and inputs of one dimension"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        assert_eq!(["1000", "1_000", "1e3", "2.5e6"].map(count), [Ok(1000), Ok(1000), Ok(1000), Ok(2_500_000)]);
        for bad in ["", "-1", "1.5", "1e300", "NaN", "many"] {
            assert!(count(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn settings_are_flags() {
        let settings = [Setting::new("most_examples"), Setting::to("memory", 0.5), Setting::switch("resume", true)];
        assert_eq!(settings.map(|s| flag(&s)), ["--most-examples", "--memory 0.5", "--resume"]);
        assert_eq!(flag(&Setting::switch("polish", false)), "--no-polish");
    }

    #[test]
    fn families() {
        assert_eq!(family("block:3"), Ok(Family::Block { size: 3 }));
        assert_eq!(family("low-rank:2"), Ok(Family::LowRank { rank: 2 }));
        assert!(["", "block", "block:x", "dense:2", "sparse"].iter().all(|bad| family(bad).is_err()));
    }
}

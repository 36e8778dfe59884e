//! (in work)

mod body;
mod constraint;
mod extent;
mod inflation;
mod interior;
mod minimum_norm;
mod normal;
mod program;
#[allow(missing_docs)]
pub mod rows;
mod settings;

pub use body::Body;
pub use extent::{Extent, extent};
pub use inflation::{Inflation, least_inflation, least_widening};
pub use minimum_norm::{MinimumNorm, minimum_norm};
pub use settings::{Residuals, Settings, Status};

//! How many examples serve which purpose.

use crate::data::Shape;
use crate::words::{Setting, Wording, grouped};
use serde::Serialize;
use std::fmt;

/// How examples are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parts {
    /// To learn from.
    pub learn: u64,
    /// To choose among answers by.
    pub choose: u64,
    /// For the certificate.
    pub certify: u64,
    /// Examples there are.
    pub of: u64,
    /// Those with the input of an earlier one; estimated where there are more distinct inputs than are counted.
    pub repeats: u64,
    /// Those left out because they do not fit in memory.
    pub left_out: u64,
    /// Sizes of an example.
    pub shape: Shape,
}

impl Parts {
    /// In words.
    pub fn text(&self) -> Wording {
        let Shape { k, d, d_out } = self.shape;
        let mut text = format!(
            "{} examples to learn from, {} to choose by, {} for the certificate; k = {k}, d = {d}, d_out = {d_out}",
            grouped(self.learn),
            grouped(self.choose),
            grouped(self.certify)
        );
        if self.repeats > 0 {
            let (repeats, of) = (grouped(self.repeats), grouped(self.of));
            text += &format!(
                "; {repeats} of {of} repeat the input of another: copies stay on one side, and no copy counts for the certificate"
            );
        }
        if self.left_out == 0 {
            return text.into();
        }
        let (left_out, of) = (grouped(self.left_out), grouped(self.of));
        text += &format!("; {left_out} of {of}, drawn at random, do not fit in memory and are left out: allow more with ");
        Wording::from(text).then(Setting::new("memory"))
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().fmt(f)
    }
}

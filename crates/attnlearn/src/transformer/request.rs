//! Which layer of a model is wanted, and what its files may not say.

/// What is asked of a model.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Which layer, from 0.
    pub layer: usize,
    /// How many heads, if neither configuration nor metadata says.
    pub heads: Option<usize>,
    /// What stands before the names of the layer, where several layers have the same number.
    pub prefix: Option<String>,
    /// Whether later tokens are hidden, if not as usual in the family.
    pub causal: Option<bool>,
}

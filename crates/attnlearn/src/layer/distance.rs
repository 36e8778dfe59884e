//! Distance between layers.

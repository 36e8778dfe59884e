//! Layers as safetensors files.

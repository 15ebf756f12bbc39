//! Fixtures from real kernels, and machines made up.

mod advice;
mod fixture;
mod kernels;
mod render;

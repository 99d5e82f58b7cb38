//! A drive's medium as its owner and its namespaces' users see it.

mod basics;
mod cuts;
mod rig;

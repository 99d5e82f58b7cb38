//! Words of the command line.

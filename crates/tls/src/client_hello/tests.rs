//! Tests of the reader of ClientHellos.

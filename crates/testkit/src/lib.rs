//! Golden PDUs, builders and a model disk for tests

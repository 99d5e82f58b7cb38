//! transfers

//! openssl
